"""The three durability modes end in the same state, and what each has stored can be resumed."""

import operator
from itertools import pairwise
from typing import Annotated, TypedDict

import pytest
from langgraph.channels import UntrackedValue
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

MODES = ("sync", "async", "exit")


class Work(TypedDict):
    count: int
    log: Annotated[list[str], operator.add]


def build_loop(ran, fail_at=None):
    """Count to ten, fanning out twice on the way; `fail_at` fails when that count is reached."""

    def count(state):
        ran.append(state["count"])
        if state["count"] == fail_at:
            raise RuntimeError(f"failed at {fail_at}")
        return {"count": state["count"] + 1, "log": [f"count {state['count']}"]}

    def route(state):
        if state["count"] in (3, 7):
            return [Send("aside", f"{name} {state['count']}") for name in ("x", "y")]
        return "count" if state["count"] < 10 else END

    builder = StateGraph(Work)
    builder.add_node("count", count)
    builder.add_node("aside", lambda text: {"log": [f"aside {text}"]})
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", route, ["count", "aside", END])
    builder.add_edge("aside", "count")
    return builder


EXPECTED_LOG = [
    "count 0",
    "count 1",
    "count 2",
    "aside x 3",
    "aside y 3",
    "count 3",
    "count 4",
    "count 5",
    "count 6",
    "aside x 7",
    "aside y 7",
    "count 7",
    "count 8",
    "count 9",
]


@pytest.mark.parametrize("durability", MODES)
def test_every_mode_ends_in_the_same_state(half, saver, reopen, thread, durability):
    config = thread()
    graph = build_loop([]).compile(checkpointer=saver)
    final = half.invoke(graph, {"count": 0, "log": []}, config, durability=durability)

    stored = half.get_state(build_loop([]).compile(checkpointer=reopen()), config)

    assert final == {"count": 10, "log": EXPECTED_LOG}
    assert stored.values == final
    assert stored.next == ()


@pytest.mark.parametrize("durability", MODES)
def test_history_has_every_step_or_only_the_last(half, saver, thread, durability):
    graph = build_loop([]).compile(checkpointer=saver)
    half.invoke(graph, {"count": 0, "log": []}, thread(), durability=durability)

    history = half.get_state_history(graph, thread())

    if durability == "exit":
        assert [snapshot.metadata["step"] for snapshot in history] == [12]
        assert history[0].parent_config is None
        return
    assert [snapshot.metadata["step"] for snapshot in history] == list(range(12, -2, -1))
    lengths = [len(snapshot.values["log"]) for snapshot in history]
    assert lengths == [14, 13, 12, 11, 9, 8, 7, 6, 5, 3, 2, 1, 0, 0]
    for newer, older in pairwise(history):
        assert newer.parent_config["configurable"] == older.config["configurable"]


@pytest.mark.parametrize("durability", MODES)
def test_a_failed_run_resumes_in_every_mode(half, saver, reopen, thread, durability):
    config = thread()
    ran = []
    with pytest.raises(RuntimeError, match="failed at 5"):
        half.invoke(
            build_loop(ran, fail_at=5).compile(checkpointer=saver),
            {"count": 0, "log": []},
            config,
            durability=durability,
        )
    assert ran == [0, 1, 2, 3, 4, 5]

    ran.clear()
    final = half.invoke(build_loop(ran).compile(checkpointer=reopen()), None, config, durability=durability)

    assert ran == [5, 6, 7, 8, 9]
    assert final == {"count": 10, "log": EXPECTED_LOG}


@pytest.mark.parametrize("durability", MODES)
def test_finished_siblings_stay_finished_in_every_mode(half, saver, reopen, thread, durability):
    """Two siblings are done when the third asks: answering must not run them again."""
    ran = []

    def side(name):
        return lambda state: ran.append(name) or {"log": [name]}

    def ask(state):
        return {"log": [interrupt("go on?")]}

    builder = StateGraph(Work)
    for name, node in (("a", side("a")), ("b", side("b")), ("c", ask)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    config = thread()
    half.invoke(builder.compile(checkpointer=saver), {"count": 0}, config, durability=durability)
    assert sorted(ran) == ["a", "b"]

    final = half.invoke(builder.compile(checkpointer=reopen()), Command(resume="c"), config, durability=durability)

    assert sorted(ran) == ["a", "b"]
    assert final["log"] == ["a", "b", "c"]


@pytest.mark.parametrize("second", MODES)
@pytest.mark.parametrize("first", MODES)
def test_modes_may_change_between_runs_of_one_thread(half, reopen, thread, first, second):
    config = thread()
    for durability in (first, second, first):
        graph = build_loop([]).compile(checkpointer=reopen())
        final = half.invoke(graph, {"count": 0, "log": ["run"]}, config, durability=durability)

    assert final["log"] == 3 * ["run", *EXPECTED_LOG]
    stored = half.get_state(build_loop([]).compile(checkpointer=reopen()), config)
    assert stored.values == final


@pytest.mark.parametrize("durability", MODES)
def test_a_subgraph_that_waits_resumes_in_every_mode(half, saver, reopen, thread, durability):
    ran = []

    def build():
        inner = StateGraph(Work)
        inner.add_node("first", lambda state: ran.append("first") or {"log": ["first"]})
        inner.add_node("ask", lambda state: {"log": [interrupt("?")]})
        inner.add_edge(START, "first")
        inner.add_edge("first", "ask")
        outer = StateGraph(Work)
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        return outer

    config = thread()
    half.invoke(build().compile(checkpointer=saver), {"count": 0}, config, durability=durability)
    graph = build().compile(checkpointer=reopen())
    final = half.invoke(graph, Command(resume="answer"), config, durability=durability)

    assert ran == ["first"]
    assert final["log"] == ["first", "answer"]


@pytest.mark.parametrize("durability", MODES)
def test_an_untracked_value_is_used_but_never_stored(half, saver, reopen, thread, durability):
    class Session(TypedDict):
        handle: Annotated[object, UntrackedValue]
        used: bool

    # A function cannot be serialised: storing it would fail the run.
    builder = StateGraph(Session)
    builder.add_node("open", lambda state: {"handle": lambda: None})
    builder.add_node("use", lambda state: {"used": callable(state["handle"])})
    builder.add_edge(START, "open")
    builder.add_edge("open", "use")
    half.invoke(builder.compile(checkpointer=saver), {"used": False}, thread(), durability=durability)

    stored = half.get_state(builder.compile(checkpointer=reopen()), thread())
    assert stored.values == {"used": True}
