"""Bad input: what is refused, by which error, and what its message says to write instead."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from graph_making import CONFIG, START, Recorder, State, chain, halves, run, writes
from typing_extensions import TypedDict

import threadline
from threadline import graph as room
from threadline.errors import InvalidRequest


class Form(TypedDict, total=False):
    name: str
    l: Annotated[list, operator.add]


def built(*edges: Any, nodes: tuple[str, ...] = ("ask", "answer"), **options: Any) -> Any:
    builder = room.StateGraph(Form)
    for name in nodes:
        builder.add_node(name, writes(name))
    for source, target in edges:
        builder.add_edge(source, target)
    return builder.compile(**options)


def two_writers() -> Any:
    builder = room.StateGraph(Form)
    builder.add_node("ask", lambda state: {"name": 1}).add_node("answer", lambda state: {"name": "x"})
    return builder.add_edge(START, "ask").add_edge(START, "answer").compile().invoke({})


def endless() -> Any:
    builder = room.StateGraph(State).add_node("x", writes("x")).add_node("y", writes("y"))
    graph = builder.add_edge(START, "x").add_edge("x", "y").add_edge("y", "x").compile(threadline.connect("memory://"))
    return graph.invoke({"l": []}, {**CONFIG, "recursion_limit": 6})


async def awaited(state: Any) -> Any:
    return {}


def branching(target: str, **options: Any) -> Any:
    builder = room.StateGraph(Form).add_node("ask", writes("ask")).add_edge(START, "ask")
    return builder.add_conditional_edges("ask", lambda state: target, **options)


REFUSALS: dict[str, tuple[Callable[[], Any], type[BaseException], str]] = {
    "an edge to nowhere": (lambda: built((START, "ask"), ("ask", "anser")), ValueError, "did you mean 'answer'"),
    "an edge from nowhere": (lambda: built((START, "ask"), ("zz", "ask")), ValueError, "the nodes are ask, answer"),
    "a branch to nowhere": (lambda: branching("ask", path_map=["aks"]).compile(), ValueError, "did you mean 'ask'"),
    "a branch that goes nowhere": (
        lambda: branching("aks").compile(strict=True).invoke({}),
        room.InvalidUpdateError,
        "did you mean 'ask'",
    ),
    "a pause nowhere": (lambda: built((START, "ask"), interrupt_after=["aks"]), ValueError, "did you mean 'ask'"),
    "no entry": (lambda: built(), ValueError, "add at least one edge from START"),
    "two writers": (two_writers, room.InvalidUpdateError, r"Annotated.*ask \(int\), answer \(str\)|Annotated.*answer"),
    "a node returns a number": (lambda: chain(x=lambda state: 5).invoke({}), room.InvalidUpdateError, "returns a dict"),
    "a node returns a list": (
        lambda: chain(x=lambda state: [{"l": []}]).invoke({}),
        room.InvalidUpdateError,
        "got a list.*returns a dict",
    ),
    "the input is a number": (
        lambda: chain(x=writes("x")).invoke(5),
        room.InvalidUpdateError,
        "input .* is a dict",
    ),
    "no input": (lambda: chain(x=writes("x")).invoke(None), room.EmptyInputError, "give it an input"),
    "a state without a saver": (
        lambda: chain(x=writes("x")).get_state(CONFIG),
        ValueError,
        r"No checkpointer set.*threadline\.connect",
    ),
    "a history without a saver": (
        lambda: list(chain(x=writes("x")).get_state_history(CONFIG)),
        ValueError,
        r"checkpointer=threadline\.connect",
    ),
    "an update without a saver": (
        lambda: chain(x=writes("x")).update_state(CONFIG, {"l": []}),
        ValueError,
        r"checkpointer=threadline\.connect",
    ),
    "a resume without a saver": (
        lambda: chain(x=writes("x")).invoke(room.Command(resume=1)),
        RuntimeError,
        r"checkpointer=threadline\.connect",
    ),
    "an update as nobody": (
        lambda: chain(threadline.connect("memory://"), xray=writes("x")).update_state(CONFIG, {"l": []}, "xary"),
        room.InvalidUpdateError,
        "did you mean 'xray'",
    ),
    "the recursion limit": (
        endless,
        room.GraphRecursionError,
        r"These repeat: x -> y|These repeat: y -> x",
    ),
    "no room for a step": (
        lambda: chain(x=writes("x")).invoke({}, {"recursion_limit": 0}),
        ValueError,
        "at least 1",
    ),
    "no thread": (
        lambda: chain(threadline.connect("memory://"), x=writes("x")).invoke({}),
        ValueError,
        r"\{'configurable': \{'thread_id'",
    ),
    "no thread beside other keys": (
        lambda: chain(threadline.connect("memory://"), x=writes("x")).invoke({}, {"configurable": {"user": "u"}}),
        InvalidRequest,
        r"\{'configurable': \{'thread_id'",
    ),
    "an async node under invoke": (lambda: chain(x=awaited).invoke({}), TypeError, "async API"),
    "another durability": (
        lambda: chain(threadline.connect("memory://"), x=writes("x")).invoke({}, CONFIG, durability="never"),  # type: ignore[arg-type]
        ValueError,
        "'sync', 'async' or 'exit'",
    ),
    "a url as saver": (
        lambda: built((START, "ask"), checkpointer="sqlite:///x.db"),
        TypeError,
        r"threadline\.connect\(url\)",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_says_what_to_write_instead(what: str) -> None:
    call, kind, says = REFUSALS[what]
    with pytest.raises(kind, match=f"(?s){says}"):
        call()


@halves
def test_what_langgraph_accepts_warns_and_is_refused_by_a_strict_graph(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    saver = threadline.connect("memory://")

    def ask(state: Any) -> Any:
        return {"l": [room.interrupt("who?")]}

    graph, strict = (chain(saver, options={"strict": one}, x=ask) for one in (False, True))
    run(graph, is_async, {"l": []}, CONFIG)
    with pytest.raises(room.InvalidUpdateError, match=r"discards 1 open question.*Command\(resume=\.\.\.\)"):
        run(strict, is_async, {"l": ["new"]}, CONFIG)
    assert graph.get_state(CONFIG).interrupts, "nothing was written"
    run(graph, is_async, {"l": ["new"]}, CONFIG)
    run(graph, is_async, room.Command(resume="Ada"), CONFIG)
    with pytest.raises(room.UnknownInterruptError, match="no question is pending"):
        run(strict, is_async, room.Command(resume="Eve"), CONFIG)
    run(graph, is_async, room.Command(resume="Eve"), CONFIG)
    before = graph.get_state(CONFIG).config
    with pytest.raises(room.InvalidUpdateError, match="no key of the state"):
        strict.update_state(CONFIG, {"naem": 1})
    assert graph.get_state(CONFIG).config == before
    graph.update_state(CONFIG, {"naem": 1})
    for told in ("discards 1 open question", "no question is pending", "'naem', which is no key"):
        assert told in caplog.text


class Broken(Recorder):
    """A saver of which one method fails."""

    def __init__(self, method: str) -> None:
        super().__init__()
        for name in (method, "a" + method):
            setattr(self, name, self._fail_async if name.startswith("a") else self._fail)

    def _fail(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("the store is away")

    async def _fail_async(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        raise ConnectionError("the store is away")


@halves
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("method", ["put", "put_writes", "get_tuple"])
def test_a_failure_of_the_saver_reaches_the_caller(is_async: bool, durability: str, method: str) -> None:
    graph = chain(Broken(method), x=writes("x"), y=writes("y"))
    if (method, durability) == ("put_writes", "exit"):
        assert run(graph, is_async, {"l": []}, CONFIG, durability=durability) == {"l": ["x", "y"]}
        return  # nothing is pending at the end: there are no writes to store
    with pytest.raises(ConnectionError, match="the store is away"):
        run(graph, is_async, {"l": []}, CONFIG, durability=durability)
