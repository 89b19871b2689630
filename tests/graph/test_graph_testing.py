"""The tools for testing graphs, on graphs of both engines."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import langgraph.graph
import langgraph.types
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import TypedDict

import threadline
from threadline import graph as room
from threadline.graph.testing import (
    Crash,
    CrashSaver,
    UnexpectedQuestion,
    answering,
    assert_same_history,
    crash_after,
    crashes,
    run_node,
)

CONFIG = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


def chain(library: Any, saver: Any = None, **nodes: Any) -> Any:
    builder = library.StateGraph(State)
    path = [library.START, *nodes]
    for name, action in nodes.items():
        builder.add_node(name, action)
    for source, target in zip(path, nodes, strict=False):
        builder.add_edge(source, target)
    return builder.compile(checkpointer=saver)


def letters(library: Any, saver: Any = None) -> Any:
    return chain(library, saver, **{name: lambda state, name=name: {"l": [name]} for name in "xyz"})


def test_one_node_runs_alone() -> None:
    def look(state: Any) -> Any:
        return {"l": [state["a"], len(state["l"])]}

    graph = chain(room, None, x=lambda state: {"a": "never"}, look=look, y=lambda state: {"a": "never"})
    assert run_node(graph, "look", {"a": "given", "l": [1, 2]}) == {"l": ["given", 2]}
    with pytest.raises(ValueError, match="no node 'nowhere'"):
        run_node(graph, "nowhere", {})


def test_one_node_that_asks() -> None:
    graph = chain(room, None, ask=lambda state: {"l": [room.interrupt("one?"), room.interrupt("two?")]})
    assert run_node(graph, "ask", {}, answers={"one?": 1, "two?": 2}) == {"l": [1, 2]}


@pytest.mark.parametrize("engine", ["threadline", "langgraph"])
def test_questions_are_answered_by_value_function_or_order(engine: str) -> None:
    if engine == "threadline":
        library, ask, saver = room, room.interrupt, lambda: threadline.connect("memory://")
    else:
        library, ask, saver = langgraph.graph, langgraph.types.interrupt, InMemorySaver

    def make() -> Any:
        return chain(
            library, saver(), x=lambda s: {"l": [ask("name?")]}, y=lambda s: {"l": [ask({"type": "age", "v": 1})]}
        )

    for answers in ({"name?": "bob", "age": 7}, ["bob", 7], lambda q: "bob" if q == "name?" else 7):
        assert answering(make(), {}, CONFIG, answers)["l"] == ["bob", 7]
    with pytest.raises(UnexpectedQuestion, match="age"):
        answering(make(), {}, CONFIG, {"name?": "bob"})
    with pytest.raises(UnexpectedQuestion, match="used up"):
        answering(make(), {}, CONFIG, ["bob"])


@pytest.mark.parametrize("library", [room, langgraph.graph], ids=["threadline", "langgraph"])
def test_a_graph_survives_every_crash(library: Any) -> None:
    report = crashes(letters(library), {"a": "in"})
    assert report.operations >= 4
    assert len(report.runs) == 2 * report.operations
    assert report.is_safe, str(report)
    assert set(report.repeated_nodes) <= {"__start__", "x", "y", "z"}


def test_a_graph_whose_end_depends_on_the_number_of_runs_is_found_out() -> None:
    ran: list[str] = []

    def impure(state: Any) -> Any:
        ran.append("x")
        return {"a": str(len(ran))}

    report = crashes(chain(room, None, x=impure, y=lambda state: {"l": ["y"]}), {})
    assert not report.is_safe
    assert "the end is another one" in str(report)


def test_crash_after_a_step_and_resume() -> None:
    saver = threadline.connect("memory://")
    graph = letters(room, saver)
    with crash_after(graph, 1) as doomed:
        doomed.invoke({}, CONFIG, durability="sync")
    assert graph.get_state(CONFIG).next == ("y",)
    assert graph.invoke(None, CONFIG)["l"] == ["x", "y", "z"]
    with pytest.raises(AssertionError, match="step 99"), crash_after(graph, 99) as fine:
        fine.invoke({}, CONFIG)


def test_a_saver_crashes_on_cue_and_stays_dead() -> None:
    saver = CrashSaver(threadline.connect("memory://"), at=1, when="before")
    graph = letters(room, saver)
    with pytest.raises(Crash):
        graph.invoke({}, CONFIG, durability="sync")
    with pytest.raises(Crash):
        graph.invoke({}, {"configurable": {"thread_id": "2"}}, durability="sync")
    assert saver.watch.operations[:2] == ["put", "put_writes"] or saver.watch.operations[:1] == ["put"]


def test_histories_are_compared_by_what_happened() -> None:
    ours, again = letters(room, threadline.connect("memory://")), letters(room, threadline.connect("memory://"))
    theirs = letters(langgraph.graph, InMemorySaver())
    for graph in (ours, again, theirs):
        graph.invoke({"a": "in"}, CONFIG)
    assert_same_history((ours, CONFIG), (again, CONFIG))
    assert_same_history((ours, CONFIG), list(theirs.get_state_history(CONFIG)))
    again.update_state(CONFIG, {"a": "changed"})
    with pytest.raises(AssertionError, match="5 checkpoints, the other 6"):
        assert_same_history((ours, CONFIG), (again, CONFIG))
    other = letters(room, threadline.connect("memory://"))
    other.invoke({"a": "other"}, CONFIG)
    with pytest.raises(AssertionError, match=r"step -1, oldest first\) differs in tasks"):
        assert_same_history((ours, CONFIG), (other, CONFIG))
