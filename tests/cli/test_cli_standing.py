"""`why`, `locks` and `unlock`, and what the other commands say of what is next, waits, failed or is held."""

from __future__ import annotations

import json
import operator
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

import threadline
from tests.commands import Run

graphs = pytest.importorskip("langgraph.graph", reason="the threads are those of graphs")
from langgraph.types import Command, Send, interrupt  # noqa: E402

from threadline.langgraph import Checkpointer  # noqa: E402

OnTerminal = Callable[..., str]
AT: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    notes: Annotated[list[str], operator.add]


def ask(state: Any) -> Any:
    return {"notes": [interrupt("which way?")]}


def write(state: Any) -> Any:
    if state["n"] == 1:
        raise ValueError("there is no seat left, " * 8)
    return {"notes": ["written"]}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two nodes that are joined, a question, and three that are sent to, of which one fails."""
    monkeypatch.setenv("THREADLINE_URL", str(tmp_path / "g.db"))
    builder = graphs.StateGraph(State)
    for name in ("a", "b"):
        builder.add_node(name, lambda state, name=name: {"notes": [name]})
        builder.add_edge(graphs.START, name)
    builder.add_node(ask).add_node(write).add_edge(["a", "b"], "ask")
    builder.add_conditional_edges("ask", lambda state: [Send("write", {"n": n}) for n in range(3)], ["write"])
    return builder.compile(checkpointer=Checkpointer(tmp_path / "g.db"))


def why(run: Run) -> Any:
    return json.loads(run("why", "t", "--json")[0])


def test_a_thread_that_waits(run: Run, graph: Any) -> None:
    asked = graph.invoke({"notes": []}, AT)["__interrupt__"][0]
    told = why(run)
    assert (told["status"], told["next"], told["error"], told["lock"], told["damage"]) == (
        "suspended", ["ask"], None, None, []
    )  # fmt: skip
    assert told["head"]["checkpoint_id"] == graph.get_state(AT).config["configurable"]["checkpoint_id"]
    [waits] = told["waits"]
    assert (waits["interrupt_id"], waits["value"]) == (asked.id, "which way?")
    assert (told["checkpoints"], len(told["branches"])) == (3, 1)
    assert told["stored_bytes"] > 0
    text = run("why", "t")[0]
    assert f"\nwaits     {asked.id}  'which way?'\n" in text
    assert "\nnext      ask\n" in text
    assert "[head, interrupt]" in run("log", "t")[0]
    shown = run("show", "t")[0]
    assert "\nnext        ask\n" in shown
    assert f"\nwaits       {asked.id}  'which way?'\n" in shown
    assert json.loads(run("show", "t", "--json")[0])["waits"][0]["interrupt_id"] == asked.id


def test_a_thread_that_failed(run: Run, graph: Any, store: Path, on_terminal: OnTerminal, monkeypatch: Any) -> None:
    monkeypatch.setenv("THREADLINE_URL", str(store.parent / "g.db"))
    graph.invoke({"notes": []}, AT)
    with pytest.raises(ValueError, match="no seat"):
        graph.invoke(Command(resume="left"), AT)
    told = why(run)
    assert told["error"]["text"] == "ValueError: " + "there is no seat left, " * 8
    assert told["error"]["is_past"] is False
    assert told["status"] == "active"
    # Of three tasks that were sent, those that wrote are done.
    assert told["next"] == list(graph.get_state(AT).next)
    assert set(told["next"]) == {"write"}
    assert "error]" in run("log", "t")[0].splitlines()[0]
    # The text of the error is not cut, and fits the terminal.
    shown = on_terminal("why", "t")
    assert " ".join(shown.split()).count("there is no seat left,") == 8
    assert max(map(len, shown.splitlines())) <= 80
    graph.update_state(AT, {"notes": ["by hand"]}, as_node="write")
    assert why(run)["error"]["is_past"] is True
    assert "before the graph went on" in run("why", "t")[0]


def test_next_is_what_the_graph_says_at_every_checkpoint(run: Run, graph: Any) -> None:
    graph.invoke({"notes": []}, AT)
    history = list(graph.get_state_history(AT))
    assert len(history) == 3
    for past in history:
        told = json.loads(run("show", "t", past.config["configurable"]["checkpoint_id"], "--json")[0])
        assert sorted(told["next"]) == sorted(past.next)


def test_a_run_that_has_ended_has_nothing_next(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADLINE_URL", str(tmp_path / "g.db"))
    builder = graphs.StateGraph(State).add_node("a", lambda state: {"notes": ["a"]}).add_edge(graphs.START, "a")
    builder.compile(checkpointer=Checkpointer(tmp_path / "g.db")).invoke({"notes": []}, AT)
    assert why(run)["next"] == []
    assert "none: the run has ended" in run("why", "t")[0]


def test_a_run_that_stopped_between_two_steps_has_not_ended(run: Run, graph: Any) -> None:
    graph.invoke({"notes": []}, AT)
    with threadline.connect(os.environ["THREADLINE_URL"]) as saver:
        saver.thread("t").delete("head")  # as if the process had died before it was put
    told = why(run)
    assert (told["next"], sorted(told["finished"])) == ([], ["a", "b"])
    assert "none: a, b finished, and the run stopped there" in " ".join(run("why", "t")[0].split())
    assert "none: a, b finished" in run("show", "t", "--all")[0]


def test_what_runs_next_is_unknown_where_no_graph_wrote(run: Run, store: Path) -> None:
    with threadline.connect(store) as saver:
        checkpoint = threadline.empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"n": 1}, {"n": 1}
        saver.put({"configurable": {"thread_id": "t"}}, checkpoint, {"step": 1}, {"n": 1})
        saver.thread("bare").create()
    assert why(run)["next"] is None
    assert "next      unknown" in run("why", "t")[0]
    assert "head      none yet" in run("why", "bare")[0]
    assert "there is no thread 'nobody'" in run("why", "nobody", status=1)[1]


def test_an_entry_of_the_functional_api_is_next(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from langgraph.func import entrypoint

    monkeypatch.setenv("THREADLINE_URL", str(tmp_path / "g.db"))

    @entrypoint(checkpointer=Checkpointer(tmp_path / "g.db"))
    def essay(topic: str) -> Any:
        return interrupt("go on?")

    essay.invoke("cats", AT)
    told = why(run)
    assert told["waits"][0]["value"] == "go on?"
    assert told["next"] == ["__start__"]  # the graph alone knows the name of its only node


def test_why_names_branches_and_the_lock(run: Run, store: Path) -> None:
    with threadline.connect(store) as saver, saver.lock("trip", ttl=60, holder="worker 7"):
        told = json.loads(run("why", "trip", "--json")[0])
        text = run("why", "trip")[0]
    assert told["lock"]["holder"] == "worker 7"
    assert 0 < told["lock"]["seconds_left"] <= 60
    assert "lock      worker 7 since 20" in text
    assert len(told["branches"]) == 2
    assert told["branches"][0]["checkpoint_id"] == told["head"]["checkpoint_id"]


def test_locks_tell_who_holds_what(run: Run, store: Path) -> None:
    assert run("locks") == ("", "")
    with threadline.connect(store) as saver, saver.lock("trip", holder="worker 7"), saver.lock("new", ttl=600):
        told = run("locks")[0].splitlines()
        listed = json.loads(run("locks", "--json", "--prefix", "tr")[0])
    assert told[0].startswith("new ")
    assert f"(process {os.getpid()})" in told[0]
    assert told[1].startswith("trip  worker 7")
    assert told[1].endswith(" s left")
    [one] = listed
    assert (one["thread_id"], one["holder"], one["since"][10], one["ends"][10]) == ("trip", "worker 7", "T", "T")
    assert run("locks") == ("", "")


def test_unlock_is_told_first_and_done_with_yes(run: Run, store: Path) -> None:
    with threadline.connect(store) as saver, saver.lock("trip", ttl=600, holder="worker 7"):
        assert "--yes does it" in run("unlock", "trip")[0]
        assert "worker 7" in run("locks")[0]
        assert "done    unlocked" in run("unlock", "trip", "--yes")[0]
        assert run("locks") == ("", "")
        with pytest.raises(threadline.Conflict, match="lease"):
            saver.put({"configurable": {"thread_id": "trip"}}, threadline.empty_checkpoint(), {}, {})
    for more in ([], ["--yes"]):
        assert "nobody holds a lease on thread 'trip'" in run("unlock", "trip", *more, status=1)[1]


def _spoil_writes(channel: str) -> None:
    """Change the last byte of each pending write of a channel."""
    with sqlite3.connect(os.environ["THREADLINE_URL"]) as database:
        for task, data in database.execute(
            "SELECT task_id, data FROM threadline_writes WHERE channel = ?", (channel,)
        ).fetchall():
            spoiled = data[:-1] + bytes([data[-1] ^ 1])
            database.execute(
                "UPDATE threadline_writes SET data = ? WHERE task_id = ? AND channel = ?", (spoiled, task, channel)
            )


def test_a_damaged_question_hides_only_itself(run: Run, graph: Any) -> None:
    graph.invoke({"notes": []}, AT)
    _spoil_writes("__interrupt__")
    shown = run("show", "t", status=1)
    assert "[damaged]" in shown[0]
    assert "'a'" in shown[0]
    assert "fsck" in shown[1]
    told = json.loads(run("show", "t", "--json", status=1)[0])
    assert told["values"]["notes"] == ["a", "b"]
    assert [one["value"]["$type"] for one in told["waits"]] == ["damaged"]
    stands = why(run)
    assert (stands["status"], stands["next"], len(stands["waits"])) == ("suspended", ["ask"], 1)
    assert any("__interrupt__" in one for one in stands["damage"])
    assert [one["status"] for one in json.loads(run("threads", "--json")[0])] == ["suspended"]
    assert "[damaged]" in run("interrupts", status=1)[0]
    assert "[damaged]" in run("writes", "t", status=1)[0]
    with pytest.raises(threadline.Corrupt):
        graph.checkpointer.get_tuple(AT)
    with pytest.raises(threadline.Corrupt):
        graph.checkpointer.thread("t").writes()


def test_a_question_whose_earlier_answers_are_damaged_is_not_answered_without_them(run: Run, graph: Any) -> None:
    asked = graph.invoke({"notes": []}, AT)["__interrupt__"][0]
    config = graph.checkpointer.get_tuple(AT).config
    [question] = graph.checkpointer.interrupts()
    graph.checkpointer.put_writes(config, [("__resume__", ["left"])], question.task_id)
    _spoil_writes("__resume__")
    assert "which way?" in run("interrupts")[0]
    with pytest.raises(threadline.Corrupt, match="__resume__"):
        graph.checkpointer.thread("t").answer({asked.id: "right"})
