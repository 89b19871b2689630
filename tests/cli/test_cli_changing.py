"""Changing a history: branches, names, merges and answers. What other processes wrote stays readable to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_process import HERE, settings

import threadline
from tests.commands import Run


def in_the_application(script: str, store: Path) -> str:
    """What a process prints that has the application's classes and this store, as `saver`."""
    whole = f"import cli_app, threadline\nsaver = threadline.connect({str(store)!r})\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", whole], env=settings(str(HERE)), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_is_a_branch_of_its_thread(run: Run, store: Path) -> None:
    made = json.loads(run("fork", "trip", "head~1", "--json")[0])
    newest = json.loads(run("log", "trip", "--json")[0])[0]
    assert (newest["id"], newest["source"], newest["is_head"]) == (made["checkpoint_id"], "fork", True)
    assert run("log", "trip")[0].splitlines()[0].endswith(f"[head, from {newest['origins'][0]}]")


def test_a_fork_may_be_a_new_thread_that_the_application_goes_on_with(run: Run, store: Path) -> None:
    assert run("fork", "trip", "head~1", "--to", "second")[0].splitlines()[1] == "thread  second"
    told = in_the_application(
        "found = saver.get_tuple({'configurable': {'thread_id': 'second'}})\n"
        "print(found.checkpoint['channel_values']['stops'], found.metadata['place'])",
        store,
    )
    # The metadata holds an object of a class that the command line does not have; it came through unharmed.
    assert told == "[Stop(city='Rome', nights=2)] Stop(city='Oslo', nights=0)\n"


def test_a_rollback_deletes_nothing(run: Run, store: Path) -> None:
    before = {one["id"] for one in json.loads(run("log", "trip", "--json")[0])}
    run("rollback", "trip", "head~1")
    after = json.loads(run("log", "trip", "--json")[0])
    assert before < {one["id"] for one in after}
    assert "colour" not in json.loads(run("show", "trip", "--json")[0])["values"]


def test_tags_are_made_moved_listed_and_forgotten(run: Run, store: Path) -> None:
    first = run("tag", "trip", "good", "head~1")[0].split()[2]
    assert json.loads(run("tag", "trip", "--json")[0]) == {"good": {"namespace": "", "checkpoint_id": first}}
    moved = run("tag", "trip", "good")[0].split()[2]
    assert moved != first
    assert run("tag", "trip")[0] == f"good  {moved}\n"
    assert run("tag", "trip", "good", "--delete")[0] == "deleted  tag good of trip\n"
    assert run("tag", "trip") == ("", "")


def test_pins_keep_and_let_go(run: Run, store: Path) -> None:
    run("pin", "trip", "step:0")
    assert "pinned]" in run("log", "trip")[0]
    run("unpin", "trip", "step:0")
    assert "pinned]" not in run("log", "trip")[0]


def test_an_archived_thread_refuses_changes_until_it_is_restored(run: Run, store: Path) -> None:
    assert run("archive", "trip")[0] == "archived  trip\n"
    assert "archived" in run("tag", "trip", "late", status=1)[1]
    assert json.loads(run("restore", "trip", "--json")[0]) == {"thread_id": "trip", "status": "active"}
    run("tag", "trip", "late")


@pytest.fixture
def plain_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two branches over plain values: both sides changed `word`, each added a note."""
    path = tmp_path / "plain.db"
    monkeypatch.setenv("THREADLINE_URL", str(path))
    with threadline.connect(path) as saver:
        base = _put(saver, {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, 1, word="a", notes=["x"])
        ours = _put(saver, base, 2, word="b", notes=["x", "ours"])
        saver.thread("t").tag("ours", ours)
        theirs = _put(saver, base, 2, word="c", notes=["x", "theirs"])
        saver.thread("t").tag("theirs", theirs)
        _put(saver, {"configurable": {"thread_id": "stranger", "checkpoint_ns": ""}}, 1, word="z")
    return path


def _put(saver: Any, at: Any, version: int, **values: Any) -> Any:
    checkpoint = threadline.empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = dict.fromkeys(values, version)
    return saver.put(at, checkpoint, {"source": "loop", "step": version}, checkpoint["channel_versions"])


@pytest.mark.parametrize(("strategy", "word"), [("ours", "c"), ("theirs", "b"), ("latest", "c")])
def test_a_merge_takes_the_side_it_is_told(run: Run, plain_store: Path, strategy: str, word: str) -> None:
    run("merge", "t", "ours", "--strategy", strategy)
    assert json.loads(run("show", "t", "--json")[0])["values"]["word"] == word
    assert "merges " in run("log", "t")[0].splitlines()[0]


def test_a_merge_that_is_not_told_names_the_conflict_and_the_option(run: Run, plain_store: Path) -> None:
    told, complaints = run("merge", "t", "ours", status=1)
    assert told == ""
    assert "both sides changed word" in complaints
    assert "--strategy ours, theirs or latest" in complaints


def test_other_threads_of_one_history_can_be_merged(run: Run, plain_store: Path) -> None:
    run("fork", "t", "ours", "--to", "elsewhere")
    made = json.loads(run("merge", "t", "elsewhere", "--strategy", "theirs", "--json")[0])
    assert made["thread_id"] == "t"
    assert json.loads(run("show", "t", "--json")[0])["values"]["word"] == "b"


def test_a_name_that_is_a_thread_and_a_tag_is_not_guessed(run: Run, plain_store: Path) -> None:
    run("fork", "t", "ours", "--to", "ours")
    assert "write thread:ours" in run("merge", "t", "ours", "--strategy", "ours", status=2)[1]
    run("merge", "t", "thread:ours", "--strategy", "ours")


def test_merging_says_which_class_it_lacks_and_takes_its_module(store: Path) -> None:
    merge = [sys.executable, "-m", "threadline", "merge", "trip", "head~1", "--strategy", "ours"]
    lacking = subprocess.run(merge, env=settings(), capture_output=True, text=True, timeout=120)
    assert (lacking.returncode, lacking.stdout) == (1, "")
    assert "cli_app:Stop is not known here: --import the module that defines it" in lacking.stderr
    assert len(lacking.stderr.splitlines()) == 1
    told = [*merge, "--import", "cli_app"]
    done = subprocess.run(told, env=settings(), cwd=HERE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (
        in_the_application(
            "print(saver.thread('trip').state()['stops'], saver.thread('trip').log()[0].origins != ())", store
        )
        == "[Stop(city='Rome', nights=2), Stop(city='Bern', nights=0)] True\n"
    )


def test_interrupts_are_listed_with_their_questions(run: Run, store: Path) -> None:
    assert run("interrupts")[0] == "trip  q-1  Stop(city='Graz', nights=0)\n"
    [asked] = json.loads(run("interrupts", "--prefix", "tr", "--json")[0])
    assert asked["value"] == {"$type": "cli_app:Stop", "fields": {"city": "Graz", "nights": 0}}
    assert run("interrupts", "--prefix", "other") == ("", "")


@pytest.mark.parametrize(
    ("said", "stored"), [('{"ok": true}', {"ok": True}), ("yes", "yes"), ('"7"', "7"), ("7", 7), ("null", None)]
)
def test_an_answer_is_json_or_else_text(run: Run, store: Path, said: str, stored: Any) -> None:
    run("answer", "trip", "q-1", said)
    writes = json.loads(run("writes", "trip", "--json")[0])
    assert [one["value"] for one in writes if one["channel"] == "__resume__"] == [[stored]]


def test_a_graph_goes_on_with_an_answer_from_the_command_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("langgraph.graph", reason="the graph is LangGraph's")
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    from threadline.langgraph import Checkpointer

    monkeypatch.setenv("THREADLINE_URL", str(tmp_path / "graph.db"))
    builder = StateGraph(dict)
    builder.add_node("ask", lambda state: {"answer": interrupt({"question": "how many?"})})
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    saver = Checkpointer(f"sqlite:///{tmp_path / 'graph.db'}")
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"answer": None}, config)

    [asked] = json.loads(run("interrupts", "--json")[0])
    assert asked["value"] == {"question": "how many?"}
    run("answer", "t", asked["interrupt_id"], "[1, 2]")
    assert graph.invoke(None, config)["answer"] == [1, 2]
    assert run("interrupts") == ("", "")
    saver.close()
