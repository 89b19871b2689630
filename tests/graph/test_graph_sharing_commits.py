"""Checkpoints that share a commit under durability "async": in order, soon, and never only in memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from graph_making import START
from typing_extensions import TypedDict

import threadline
from threadline import graph as room
from threadline.base.drive import run_now
from threadline.graph.storing.writer import SHARED_PUTS, ThreadWriter


class Count(TypedDict):
    n: int


class Batches:
    """A saver that notes what it is given, and by which thread."""

    prefers_batches = True

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, Any]]] = []
        self.threads: set[str] = set()
        self.arrived = threading.Event()
        self.failure: BaseException | None = None

    def put_batch(self, items: list[Any]) -> None:
        if self.failure is not None:
            raise self.failure
        self.calls.append([(item[0], item[1]) for item in items])
        self.threads.add(threading.current_thread().name)
        self.arrived.set()

    def put(self, *args: Any) -> None:
        self.put_batch([("put", *args)])

    def put_writes(self, *args: Any) -> None:
        self.put_batch([("put_writes", *args)])


class Nobody:
    """Looks after nothing."""

    def add(self, writer: ThreadWriter) -> None: ...


def step(writer: ThreadWriter, number: int) -> None:
    run_now(writer.add("put_writes", f"w{number}", hold=True))
    run_now(writer.add("put", f"c{number}"))


def until(reached: Any) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_checkpoints_that_come_at_once_share_a_commit_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadline.graph.storing.writer._watch", Nobody())
    saver = Batches()
    writer = ThreadWriter(saver)
    for number in range(2 * SHARED_PUTS + 1):
        step(writer, number)
    assert [len(call) for call in saver.calls] == [2 * SHARED_PUTS, 2 * SHARED_PUTS]
    run_now(writer.close())
    every = [name for call in saver.calls for _, name in call]
    assert every == [f"{kind}{number}" for number in range(2 * SHARED_PUTS + 1) for kind in "wc"]
    assert saver.threads == {threading.current_thread().name}


def test_a_checkpoint_that_no_other_follows_is_stored_by_the_thread_that_watches() -> None:
    saver = Batches()
    writer = ThreadWriter(saver)
    for number in range(3):
        step(writer, number)
        assert saver.arrived.wait(20)
        saver.arrived.clear()
        until(lambda: not writer._items)
    assert saver.threads == {"threadline-writer"}
    run_now(writer.close())
    until(lambda: not writer._is_watched)


def test_what_the_watching_thread_could_not_store_is_raised_by_the_next_call() -> None:
    saver = Batches()
    saver.failure = ValueError("no room")
    writer = ThreadWriter(saver)
    step(writer, 0)
    until(lambda: writer._failure is not None)
    with pytest.raises(ValueError, match="no room"):
        step(writer, 1)
    with pytest.raises(ValueError, match="no room"):
        run_now(writer.close())
    assert saver.calls == []


def test_what_is_added_after_the_end_is_stored_at_once() -> None:
    saver = Batches()
    writer = ThreadWriter(saver)
    run_now(writer.close())
    step(writer, 0)
    assert [name for call in saver.calls for _, name in call] == ["w0", "c0"]


def test_while_a_node_works_others_find_what_was_stored_before_it(tmp_path: Path) -> None:
    """A step is durable soon after its end, however long the next one takes."""
    path, config = tmp_path / "agents.db", {"configurable": {"thread_id": "t"}}
    may_go_on = threading.Event()

    def slow(state: dict[str, int]) -> dict[str, int]:
        with threadline.connect(path) as other:

            def newest() -> Any:
                found = other.get_tuple(config)
                return found and found.checkpoint["channel_values"].get("n")

            until(lambda: newest() == 1)
        may_go_on.set()
        return {"n": state["n"] + 1}

    with threadline.connect(path) as saver:
        builder = room.StateGraph(Count)
        builder.add_node("quick", lambda state: {"n": state["n"] + 1}).add_node("slow", slow)
        graph = builder.add_edge(START, "quick").add_edge("quick", "slow").compile(checkpointer=saver)
        assert graph.invoke({"n": 0}, config, durability="async") == {"n": 2}
        assert may_go_on.is_set()
        assert [one.metadata["step"] for one in saver.list(config)] == [2, 1, 0, -1]


def test_a_long_loop_stores_every_step(tmp_path: Path) -> None:
    config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 100}
    with threadline.connect(tmp_path / "agents.db") as saver:
        builder = room.StateGraph(Count).add_node("x", lambda state: {"n": state["n"] + 1}).add_edge(START, "x")
        builder.add_conditional_edges("x", lambda state: "x" if state["n"] < 50 else "__end__", ["x", "__end__"])
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"n": 0}, config, durability="async")
        history = list(graph.get_state_history(config))
        assert [one.values.get("n") for one in history] == [*range(50, -1, -1), None]
        assert saver.fsck().damaged == ()
