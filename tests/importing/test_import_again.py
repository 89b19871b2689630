"""Running the import again: after a kill, after the source has grown, after the store has gone on."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
import travel_app
from import_cases import environment, original, rows_of, tuples_of
from langchain_core.messages import HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from threadline.langgraph import Checkpointer
from threadline.transfer import Counts, import_sqlite

# Stops for a while after every transaction, so that there is time to kill it between any two.
SLOW_IMPORT = """
import sys, time
from threadline.transfer import import_sqlite
import threadline.transfer.importing as importing
importing._BATCH_CHECKPOINTS = 5
import_sqlite(sys.argv[1], sys.argv[2], progress=lambda done, total: time.sleep(0.03))
"""


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(travel_app.JOURNAL, str(tmp_path / "journal.txt"))


def checkpoints_in(store: Path) -> int:
    if not store.exists():
        return 0
    connection = sqlite3.connect(store, timeout=10)
    try:
        return int(connection.execute("SELECT count(*) FROM threadline_checkpoints").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def kill_when(store: Path, source: Path, at_least: int) -> int:
    """Kill an import once the store has so many checkpoints; returns how many it has then."""
    process = subprocess.Popen([sys.executable, "-c", SLOW_IMPORT, source, store], env=environment())
    try:
        deadline = time.monotonic() + 60
        while checkpoints_in(store) < at_least and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    return checkpoints_in(store)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to die of")
def test_a_killed_import_is_completed_by_running_it_again(
    source: Path, target: Path, run_import: Callable[..., Any]
) -> None:
    wanted = original(source)
    there = 0
    for fraction in (0.1, 0.35, 0.6):
        there = kill_when(target, source, max(there + 1, int(len(wanted) * fraction)))
        assert 0 < there < len(wanted)
    told = run_import(source, "--to", target).stdout
    assert f"({len(wanted) - there} copied, {there} there already)" in told
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == wanted


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to die of")
def test_whatever_a_killed_import_left_is_whole(source: Path, target: Path) -> None:
    wanted = original(source)
    kill_when(target, source, 40)
    with Checkpointer(target) as saver:
        found = tuples_of(saver)
    assert found
    for place, one in found.items():
        assert one == wanted[place]


def test_running_it_again_copies_nothing_and_verifies_everything(source: Path, target: Path) -> None:
    first = import_sqlite(source, target)
    again = import_sqlite(source, target)
    assert again.checkpoints == Counts(present=first.checkpoints.copied)
    assert again.writes == Counts(present=first.writes.copied)
    assert again.bytes_after == first.bytes_after


def test_what_the_source_gained_since_is_added(source: Path, target: Path) -> None:
    first = import_sqlite(source, target)
    with SqliteSaver.from_conn_string(str(source)) as saver:
        travel_app.ask(travel_app.build_chat().compile(checkpointer=saver), travel_app.config_of("chat"), 50)
        # An answer: a write to a checkpoint that was imported already, and checkpoints after it.
        booking = travel_app.build_booking().compile(checkpointer=saver)
        booking.invoke(Command(resume="later"), travel_app.config_of("waits"))
    wanted = original(source)
    again = import_sqlite(source, target)
    assert again.checkpoints.present == first.checkpoints.copied
    assert again.checkpoints.copied == len(wanted) - first.checkpoints.copied
    assert again.is_complete
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == wanted


def test_a_write_that_the_source_replaced_is_renewed(source: Path, target: Path) -> None:
    import_sqlite(source, target)
    with SqliteSaver.from_conn_string(str(source)) as saver:
        head = saver.get_tuple(travel_app.config_of("waits"))
        [(task, channel, _)] = [write for write in head.pending_writes if write[1] == "__interrupt__"]
        saver.put_writes(head.config, [(channel, ("asked again",))], task)
    again = import_sqlite(source, target)
    assert (again.writes.renewed, again.writes.kept) == (1, 0)
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == original(source)


def test_a_thread_that_went_on_in_the_store_keeps_what_it_has(source: Path, target: Path) -> None:
    import_sqlite(source, target)
    config = travel_app.config_of("waits")
    with Checkpointer(target) as saver:
        graph = travel_app.build_booking().compile(checkpointer=saver)
        graph.invoke(Command(resume="here"), config)
        went_on = tuples_of(saver)
    with SqliteSaver.from_conn_string(str(source)) as saver:
        head = saver.get_tuple(config)
        [(task, channel, _)] = [write for write in head.pending_writes if write[1] == "__interrupt__"]
        saver.put_writes(head.config, [(channel, ("asked again",))], task)
    again = import_sqlite(source, target)
    assert (again.writes.kept, again.writes.renewed, again.checkpoints.copied) == (1, 0, 0)
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == went_on
        graph = travel_app.build_booking().compile(checkpointer=saver)
        assert graph.get_state(config).values["confirmed"].endswith("here")


def test_a_thread_deleted_from_the_store_is_brought_again(source: Path, target: Path) -> None:
    import_sqlite(source, target)
    with Checkpointer(target) as saver:
        saver.delete_thread("chat")
    again = import_sqlite(source, target)
    assert again.is_complete
    assert again.checkpoints.copied == len([key for key in original(source) if key[0] == "chat"])
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == original(source)


def test_damage_in_the_store_is_found_when_it_is_run_again(source: Path, target: Path) -> None:
    import_sqlite(source, target)
    with sqlite3.connect(target) as connection:
        [(digest,)] = connection.execute(
            "SELECT digest FROM threadline_chunks WHERE length(data) > 200 ORDER BY digest LIMIT 1"
        )
        connection.execute("UPDATE threadline_chunks SET data = zeroblob(50) WHERE digest = ?", (digest,))
    again = import_sqlite(source, target)
    assert not again.is_complete
    assert all("what was read back is not what the source has" in problem for problem in again.problems)
    assert again.checkpoints.present > 0


def test_two_imports_at_once_do_no_harm(source: Path, target: Path) -> None:
    command = [sys.executable, "-m", "threadline", "import", str(source), "--to", str(target)]
    both = [subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == original(source)


@pytest.mark.parametrize("frequency", [3, 1000])
def test_a_delta_channel_is_replayed_from_imported_writes(tmp_path: Path, target: Path, frequency: int) -> None:
    words = Annotated[list, DeltaChannel(lambda state, writes: [*state, *chain(*writes)], snapshot_frequency=frequency)]
    builder = StateGraph(TypedDict("Words", {"words": words}))  # type: ignore[misc]
    builder.add_node("echo", lambda state: {"words": [HumanMessage(f"heard {len(state['words'])}")]})
    builder.add_edge(START, "echo")
    config: Any = {"configurable": {"thread_id": "t"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
        graph = builder.compile(checkpointer=saver)
        for turn in range(5):
            graph.invoke({"words": [HumanMessage(f"hello {turn}")]}, config)
        wanted = [one.values for one in graph.get_state_history(config)]
    assert import_sqlite(tmp_path / "old.db", target).is_complete
    with Checkpointer(target) as imported:
        graph = builder.compile(checkpointer=imported)
        assert [one.values for one in graph.get_state_history(config)] == wanted
        assert len(graph.invoke({"words": [HumanMessage("more")]}, config)["words"]) == 12


def test_into_the_same_file_and_the_source_is_left_byte_for_byte(source: Path, run_import: Callable[..., Any]) -> None:
    before, wanted = rows_of(source), original(source)
    run_import(f"sqlite:///{source}")
    run_import(f"sqlite:///{source}")
    assert rows_of(source) == before
    assert original(source) == wanted
    with Checkpointer(source) as saver:
        assert tuples_of(saver) == wanted


def test_a_separate_source_is_not_even_touched(source: Path, target: Path, run_import: Callable[..., Any]) -> None:
    content, changed = source.read_bytes(), source.stat().st_mtime_ns
    run_import(source, "--to", target)
    assert source.read_bytes() == content
    assert source.stat().st_mtime_ns == changed


def test_a_source_that_may_not_be_written_is_read(source: Path, target: Path) -> None:
    folder = source.parent / "locked"
    folder.mkdir()
    locked = source.rename(folder / "old.db")
    locked.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert import_sqlite(locked, target).is_complete
    finally:
        folder.chmod(0o755)


def test_a_source_in_use_is_read_with_what_its_log_holds(source: Path, target: Path) -> None:
    with SqliteSaver.from_conn_string(str(source)) as saver:
        travel_app.ask(travel_app.build_chat().compile(checkpointer=saver), travel_app.config_of("live"), 0)
        assert os.path.getsize(f"{source}-wal") > 0
        report = import_sqlite(source, target)
        assert report.checkpoints.copied == len(tuples_of(saver))
