"""Threads of LangGraph's PostgreSQL saver go on in any store, with their history and what they wait for."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
import travel_app
from import_cases import tuples_of
from langchain_core.messages import HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command

pytest.importorskip("langgraph.checkpoint.postgres", reason="the sources are written by LangGraph's own saver")
import postgres_cases
from langgraph.checkpoint.postgres import PostgresSaver
from postgres_cases import original, rows_of

import threadline
from tests.servers import places
from threadline.langgraph import Checkpointer
from threadline.langgraph import PostgresSaver as OurPostgresSaver
from threadline.transfer import Counts, import_postgres, import_threads


@pytest.fixture
def played(postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a schema with all threads of the application, the chat shortened."""
    monkeypatch.setenv(travel_app.JOURNAL, str(tmp_path / "journal.txt"))
    monkeypatch.setattr(travel_app, "TURNS", 6)
    with PostgresSaver.from_conn_string(postgres.url) as saver:
        saver.setup()
        travel_app.play_all(saver)
    return str(postgres.url)


@pytest.fixture(params=["sqlite", "the same schema", "another schema", "mysql", "redis"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """A target and its options."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}", {}
    elif request.param == "the same schema":
        yield None, {}
    elif request.param == "another schema":
        with places.postgres_place() as place:
            yield place.url, {}
    elif request.param == "mysql":
        place = request.getfixturevalue("mysql")
        yield place.url, {"table_prefix": place.table_prefix}
    else:
        place = request.getfixturevalue("redis_server")
        yield place.url, {"key_prefix": place.key_prefix}


def test_every_checkpoint_and_write_is_what_langgraphs_saver_gives(
    played: str, target: Path, run_import: Callable[..., Any]
) -> None:
    wanted, before = original(played), rows_of(played)
    told = run_import(played, "--to", target).stdout
    with Checkpointer(target) as saver:
        found = tuples_of(saver)
    assert found.keys() == wanted.keys()
    for place in wanted:
        assert found[place] == wanted[place]
    assert {namespace.partition(":")[0] for _, namespace, _ in found} == {"", "desk"}
    writes = sum(len(one.pending_writes) for one in wanted.values())
    assert f"checkpoints     {len(wanted)} ({len(wanted)} copied, 0 there already)" in told
    assert f"verified        {len(wanted) + writes} read back" in told
    assert rows_of(played) == before


def test_into_any_store_and_again(played: str, anywhere: tuple[str | None, dict[str, Any]]) -> None:
    wanted, before = original(played), rows_of(played)
    target, options = anywhere
    first = import_threads(played, target, **options)
    again = import_threads(played, target, **options)
    assert first.problems == again.problems == []
    assert first.checkpoints == Counts(copied=len(wanted))
    assert again.checkpoints == Counts(present=len(wanted))
    assert again.writes == Counts(present=first.writes.copied)
    with Checkpointer(target or played, **options) as saver:
        assert tuples_of(saver) == wanted
    assert rows_of(played) == before


def test_a_store_in_memory_is_refused(played: str) -> None:
    with pytest.raises(threadline.InvalidRequest, match="a store in memory ends with its process"):
        import_threads(played, "memory://import")


def test_an_interrupt_is_answered_in_another_process_that_has_only_the_imported_file(
    played: str, target: Path, run_import: Callable[..., Any], resume: Callable[..., Any]
) -> None:
    run_import(played, "--to", target)
    told = resume(
        target,
        """
        graph = app.build_booking().compile(checkpointer=saver)
        config = app.config_of("waits")
        waiting = graph.get_state(config)
        asked = waiting.interrupts[0].value
        assert asked == {"offer": app.Offer("DB", app.Decimal("21.00")), "seat": app.Class.FIRST,
                         "at": app.Stop("Basel", 4)}
        graph.invoke(Command(resume="gladly"), config)
        after = graph.get_state(config)
        show([waiting.next, after.next, after.values["confirmed"], sorted(after.values["visited"])])
        """,
    )
    assert told == [["desk"], [], "Ann takes DB: gladly", ["Basel", "Lyon"]]


def test_in_the_same_database_our_saver_goes_on_where_langgraphs_stopped(played: str, tmp_path: Path) -> None:
    before = rows_of(played)
    assert import_postgres(played).is_complete
    (tmp_path / "journal.txt").write_text("")
    with OurPostgresSaver.from_conn_string(played) as saver:
        booking = travel_app.build_booking().compile(checkpointer=saver)
        answered = booking.invoke(Command(resume="yes"), travel_app.config_of("waits"))
        assert answered["confirmed"] == "Ann takes DB: yes"
        repaired = booking.invoke(None, travel_app.config_of("failed"))
        assert [offer.carrier for offer in repaired["offers"]] == ["SNCF", "DB", "SBB"]
        versions = saver.get(travel_app.config_of("waits"))["channel_versions"]
    # Tasks that had finished under LangGraph's saver did not run again.
    assert (tmp_path / "journal.txt").read_text().split() == ["SBB"]
    assert all(re.match(r"\d{32}\.", version) for version in versions.values())
    assert rows_of(played) == before


def test_a_stopped_import_continues_where_it_was(
    played: str, target: Path, monkeypatch: pytest.MonkeyPatch, import_here: Callable[..., Any]
) -> None:
    monkeypatch.setattr("threadline.transfer.importing._BATCH_CHECKPOINTS", 5)
    done: list[int] = []

    def stop_at_ten(copied: int, total: int) -> None:
        done.append(copied)
        if copied >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_postgres(played, target, progress=stop_at_ten)
    there, total = done[-1], len(original(played))
    assert done[:2] == [5, 10]
    assert there < total
    told = import_here(played, "--to", target).stdout
    assert f"checkpoints     {total} ({total - there} copied, {there} there already)" in told
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == original(played)


def test_what_the_source_gained_since_is_added(played: str, target: Path) -> None:
    first = import_postgres(played, target)
    with PostgresSaver.from_conn_string(played) as saver:
        travel_app.ask(travel_app.build_chat().compile(checkpointer=saver), travel_app.config_of("chat"), 50)
        booking = travel_app.build_booking().compile(checkpointer=saver)
        booking.invoke(Command(resume="later"), travel_app.config_of("waits"))
    wanted = original(played)
    again = import_postgres(played, target)
    assert again.checkpoints == Counts(present=first.checkpoints.copied, copied=len(wanted) - first.checkpoints.copied)
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == wanted


@pytest.mark.parametrize("frequency", [3, 1000])
def test_a_delta_channel_is_replayed_from_imported_writes(postgres: Any, target: Path, frequency: int) -> None:
    # Its snapshots are blobs behind a `true` in the document.
    words = Annotated[list, DeltaChannel(lambda state, writes: [*state, *chain(*writes)], snapshot_frequency=frequency)]
    builder = StateGraph(TypedDict("Words", {"words": words}))  # type: ignore[misc]
    builder.add_node("echo", lambda state: {"words": [HumanMessage(f"heard {len(state['words'])}")]})
    builder.add_edge(START, "echo")
    config: Any = {"configurable": {"thread_id": "t"}}
    with PostgresSaver.from_conn_string(postgres.url) as saver:
        saver.setup()
        graph = builder.compile(checkpointer=saver)
        for turn in range(5):
            graph.invoke({"words": [HumanMessage(f"hello {turn}")]}, config)
        wanted = [one.values for one in graph.get_state_history(config)]
    assert import_postgres(postgres.url, target).is_complete
    with Checkpointer(target) as imported:
        graph = builder.compile(checkpointer=imported)
        assert [one.values for one in graph.get_state_history(config)] == wanted
        assert len(graph.invoke({"words": [HumanMessage("more")]}, config)["words"]) == 12


@pytest.mark.parametrize("place", ["//threadline:hunter2@", "password=hunter2&"])
def test_the_password_is_never_shown(postgres: Any, target: Path, import_here: Callable[..., Any], place: str) -> None:
    postgres_cases.write_thread(postgres.url)
    if place.startswith("//"):
        url = re.sub(r"//([^:@/]+)(:[^@]*)?@", r"//\1:hunter2@", postgres.url)
    else:
        url = postgres.url.replace("?", f"?{place}", 1)
    assert "hunter2" in url
    if psycopg.conninfo.conninfo_to_dict(postgres.url).get("password"):
        pytest.skip("this server asks for the password that it knows")
    done = import_here(url, "--to", target)
    assert "***" in done.stdout
    refused = import_here(url.replace("search_path%3D", "search_path%3Dno_"), "--to", target, status=2)
    lost = import_here(re.sub(r"@[^/]+/", "@127.0.0.1:1/", url), "--to", target, status=1)
    for told in (done, refused, lost):
        assert "hunter2" not in told.stdout + told.stderr
    assert len(refused.stderr.splitlines()) == len(lost.stderr.splitlines()) == 1


def test_the_report_counts_bytes(played: str, target: Path, import_here: Callable[..., Any]) -> None:
    report = json.loads(import_here(played, "--to", target, "--json").stdout)
    [(documents, blobs, writes)] = postgres_cases.execute(
        played,
        "SELECT (SELECT sum(octet_length(checkpoint::text) + octet_length(metadata::text)) FROM checkpoints), "
        "(SELECT sum(octet_length(blob)) FROM checkpoint_blobs), "
        "(SELECT sum(octet_length(blob)) FROM checkpoint_writes)",
    )
    assert report["is_complete"]
    assert report["bytes_before"] == documents + blobs + writes
    assert 0 < report["bytes_after"] < report["bytes_before"]


def test_threads_of_langgraph_are_announced_until_they_are_imported(
    postgres: Any, caplog: pytest.LogCaptureFixture
) -> None:
    postgres_cases.write_thread(postgres.url)
    with caplog.at_level(logging.WARNING, "threadline"):
        with threadline.connect(postgres.url) as saver:
            assert saver.count_threads() == 0
        [said] = [record.getMessage() for record in caplog.records if "own saver" in record.getMessage()]
        assert "threadline import postgresql://" in said
        import_postgres(postgres.url)
        caplog.clear()
        with threadline.connect(postgres.url) as saver:
            assert saver.count_threads() == 1
        assert not caplog.records
