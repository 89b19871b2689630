"""Threads begun on one engine and resumed on the other, through one store."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import langgraph.graph
import langgraph.types
import pytest
from typing_extensions import TypedDict

import threadline
from threadline import graph as room
from threadline.langgraph import Checkpointer

CONFIG = {"configurable": {"thread_id": "1"}}


class Library:
    """One engine and its saver on the store."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        theirs = name == "langgraph"
        self.graph = langgraph.graph if theirs else room
        self.types = langgraph.types if theirs else room
        self.saver: Any = Checkpointer(url) if theirs else threadline.connect(url)


PAIRS = [("langgraph", "threadline"), ("threadline", "langgraph")]


@pytest.fixture(params=PAIRS, ids=["theirs-then-ours", "ours-then-theirs"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    first, second = (Library(name, url) for name in request.param)
    yield first, second
    first.saver.close()
    second.saver.close()


class State(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


Maker = Callable[[Library], Any]


def asking(library: Library) -> Any:
    builder = library.graph.StateGraph(State)
    builder.add_node("x", lambda state: {"l": ["x"]})
    builder.add_node("ask", lambda state: {"l": [library.types.interrupt("one?"), library.types.interrupt("two?")]})
    builder.add_node("ok", lambda state: {"l": ["ok"]})
    builder.add_node("end", lambda state: {"l": ["end"]})
    for source, target in ((library.graph.START, "x"), ("x", "ask"), ("x", "ok")):
        builder.add_edge(source, target)
    builder.add_edge(["ask", "ok"], "end")
    return builder.compile(checkpointer=library.saver)


def below(library: Library) -> Any:
    inner = library.graph.StateGraph(State)
    inner.add_node("i1", lambda state: {"a": "i1"})
    inner.add_node("i2", lambda state: {"a": state["a"] + library.types.interrupt("deep?")})
    inner.add_edge(library.graph.START, "i1")
    inner.add_edge("i1", "i2")
    builder = library.graph.StateGraph(State)
    builder.add_node("sub", inner.compile())
    builder.add_node("end", lambda state: {"l": [state["a"]]})
    builder.add_edge(library.graph.START, "sub")
    builder.add_edge("sub", "end")
    return builder.compile(checkpointer=library.saver)


def sending(library: Library) -> Any:
    builder = library.graph.StateGraph(State)
    builder.add_node("x", lambda state: {"l": ["x"]})
    builder.add_node("w", lambda arg: {"l": [arg["i"]]})
    builder.add_node("j", lambda state: {"l": ["j"]})
    builder.add_edge(library.graph.START, "x")
    builder.add_conditional_edges("x", lambda state: [library.types.Send("w", {"i": i}) for i in (2, 1)], ["w"])
    builder.add_edge("w", "j")
    return builder.compile(checkpointer=library.saver, interrupt_before=["w"])


def shown(snapshot: Any) -> Any:
    """A snapshot as both engines must show it, with the ids themselves."""
    return {
        "values": snapshot.values,
        "next": snapshot.next,
        "config": snapshot.config,
        "metadata": dict(snapshot.metadata),
        "parent": snapshot.parent_config,
        "created": snapshot.created_at,
        "tasks": [
            (task.id, task.name, task.path, [(one.value, one.id) for one in task.interrupts], task.result)
            for task in snapshot.tasks
        ],
        "questions": [(one.value, one.id) for one in snapshot.interrupts],
    }


def same_view(one: Any, other: Any) -> None:
    assert shown(one.get_state(CONFIG)) == shown(other.get_state(CONFIG))
    left, right = ([shown(item) for item in graph.get_state_history(CONFIG)] for graph in (one, other))
    assert left == right


def test_questions_asked_on_one_are_answered_on_the_other(pair: Any) -> None:
    first, second = pair
    begun, goes_on = asking(first), asking(second)
    asked = begun.invoke({"a": "in"}, CONFIG)
    assert [question.value for question in asked["__interrupt__"]] == ["one?"]
    same_view(begun, goes_on)
    asked = goes_on.invoke(second.types.Command(resume="1"), CONFIG)
    assert [question.value for question in asked["__interrupt__"]] == ["two?"]
    same_view(begun, goes_on)
    # And back: the second answer is given on the engine that began.
    done = begun.invoke(first.types.Command(resume="2"), CONFIG)
    assert done["l"] == ["x", "1", "2", "ok", "end"]
    same_view(begun, goes_on)


def test_answers_by_id_go_to_the_other_engine(pair: Any) -> None:
    first, second = pair
    begun, goes_on = asking(first), asking(second)
    begun.invoke({"a": "in"}, CONFIG)
    (question,) = goes_on.get_state(CONFIG).interrupts
    goes_on.invoke(second.types.Command(resume={question.id: "1"}), CONFIG)
    (question,) = begun.get_state(CONFIG).interrupts
    assert begun.invoke(first.types.Command(resume={question.id: "2"}), CONFIG)["l"][-1] == "end"


def test_a_subgraph_that_is_half_done_goes_on(pair: Any) -> None:
    first, second = pair
    begun, goes_on = below(first), below(second)
    begun.invoke({"a": "in"}, CONFIG)
    same_view(begun, goes_on)
    deep = [graph.get_state(CONFIG, subgraphs=True).tasks[0].state for graph in (begun, goes_on)]
    assert shown(deep[0]) == shown(deep[1])
    assert deep[0].next == ("i2",)
    assert goes_on.invoke(second.types.Command(resume="!"), CONFIG)["l"] == ["i1!"]
    same_view(begun, goes_on)


def test_pending_sends_go_on(pair: Any) -> None:
    first, second = pair
    begun, goes_on = sending(first), sending(second)
    begun.invoke({"a": "in"}, CONFIG)
    same_view(begun, goes_on)
    assert goes_on.get_state(CONFIG).next == ("w", "w")
    assert goes_on.invoke(None, CONFIG)["l"] == ["x", 2, 1, "j"]
    same_view(begun, goes_on)


def test_a_failed_step_is_repeated_without_its_finished_tasks(pair: Any) -> None:
    first, second = pair
    ran: list[str] = []
    fails = [True]

    def make(library: Library) -> Any:
        def slow(state: Any) -> Any:
            import time

            time.sleep(0.05)
            ran.append("bad")
            if fails[0]:
                raise ArithmeticError("no")
            return {"l": ["bad"]}

        def fine(state: Any) -> Any:
            ran.append("fine")
            return {"l": ["fine"]}

        builder = library.graph.StateGraph(State)
        builder.add_node("bad", slow)
        builder.add_node("fine", fine)
        builder.add_edge(library.graph.START, "bad")
        builder.add_edge(library.graph.START, "fine")
        return builder.compile(checkpointer=library.saver)

    begun, goes_on = make(first), make(second)
    with pytest.raises(ArithmeticError):
        begun.invoke({"a": "in"}, CONFIG)
    fails[0] = False
    assert goes_on.invoke(None, CONFIG)["l"] == ["bad", "fine"]
    assert ran == ["fine", "bad", "bad"]


def test_updates_and_forks_of_the_other_engine_are_seen(pair: Any) -> None:
    first, second = pair
    begun, goes_on = sending(first), sending(second)
    begun.invoke({"a": "in"}, CONFIG)
    begun.update_state(CONFIG, {"l": ["by hand"]})
    same_view(begun, goes_on)
    past = list(goes_on.get_state_history(CONFIG))[-2].config
    goes_on.update_state(past, {"a": "forked"}, as_node="x")
    same_view(begun, goes_on)


def test_a_conversation_takes_turns(pair: Any) -> None:
    first, second = pair

    def make(library: Library) -> Any:
        builder = library.graph.StateGraph(State)
        builder.add_node("x", lambda state: {"l": [len(state["l"])]})
        builder.add_edge(library.graph.START, "x")
        return builder.compile(checkpointer=library.saver)

    graphs = [make(first), make(second)]
    for turn in range(6):
        out = graphs[turn % 2].invoke({"l": ["in"]}, CONFIG)
    assert out["l"] == ["in", 1, "in", 3, "in", 5, "in", 7, "in", 9, "in", 11]
    same_view(*graphs)


def test_the_async_halves_take_turns(pair: Any) -> None:
    first, second = pair
    begun, goes_on = asking(first), asking(second)

    async def story() -> Any:
        await begun.ainvoke({"a": "in"}, CONFIG)
        await goes_on.ainvoke(second.types.Command(resume="1"), CONFIG)
        return await begun.ainvoke(first.types.Command(resume="2"), CONFIG)

    assert asyncio.run(story())["l"] == ["x", "1", "2", "ok", "end"]


def test_functional_tasks_are_given_back_to_the_other_engine(tmp_path: Path) -> None:
    import langgraph.func

    url = f"sqlite:///{tmp_path / 'agents.db'}"
    ran: list[Any] = []

    def make(task: Any, entrypoint: Any, ask: Any, saver: Any) -> Any:
        @task
        def step(name: str) -> str:
            ran.append(name)
            return name.upper()

        @entrypoint(checkpointer=saver)
        def work(given: str) -> Any:
            one = step("one").result()
            answer = ask("go?")
            return [one, answer, step("two").result()]

        return work

    ours = make(room.task, room.entrypoint, room.interrupt, threadline.connect(url))
    theirs = make(langgraph.func.task, langgraph.func.entrypoint, langgraph.types.interrupt, Checkpointer(url))
    for thread, (begun, goes_on, command) in enumerate(
        ((ours, theirs, langgraph.types.Command), (theirs, ours, room.Command))
    ):
        del ran[:]
        config = {"configurable": {"thread_id": str(thread)}}
        begun.invoke("in", config)
        assert goes_on.invoke(command(resume="yes"), config) == ["ONE", "yes", "TWO"]
        assert ran == ["one", "two"]
