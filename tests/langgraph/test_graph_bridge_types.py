"""The bridge: LangGraph's own commands, sends, overwrites and questions in plain functions; tracers of LangChain."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from typing import Annotated, Any
from uuid import UUID

import langgraph.config
import langgraph.graph
import langgraph.types
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers import LangChainTracer
from langchain_core.tracers.base import BaseTracer
from typing_extensions import TypedDict

import threadline
import threadline.graph
from threadline.langgraph import Checkpointer, bridge

BOTH = (langgraph.graph, threadline.graph)
ROOMS = pytest.mark.parametrize("room", BOTH, ids=["langgraph", "ours"])
HALVES = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
CONFIG: Any = {"configurable": {"thread_id": "1"}}
bridge.uninstall()


@pytest.fixture(autouse=True)
def switched_on() -> Iterator[None]:
    bridge.install()
    yield
    bridge.uninstall()


class State(TypedDict, total=False):
    l: Annotated[list, operator.add]  # noqa: E741


def graph_of(room: Any, *nodes: Any, **options: Any) -> Any:
    saver = Checkpointer("memory://") if room is langgraph.graph else threadline.connect("memory://")
    builder = room.StateGraph(State)
    names = [name for name, _ in nodes]
    for name, action in nodes:
        builder.add_node(name, action)
    for source, target in zip([room.START, *names], names, strict=False):
        builder.add_edge(source, target)
    return builder.compile(checkpointer=saver, **options)


def call(graph: Any, given: Any, *, is_async: bool, config: Any = CONFIG) -> Any:
    return asyncio.run(graph.ainvoke(given, config)) if is_async else graph.invoke(given, config)


# -- types


@ROOMS
@HALVES
def test_langgraphs_interrupt_asks_in_a_plain_function(room: Any, is_async: bool) -> None:
    ran: list[str] = []

    def ask(state: Any) -> Any:
        ran.append("ask")
        return {"l": [langgraph.types.interrupt("one?"), langgraph.types.interrupt("two?")]}

    async def aask(state: Any) -> Any:
        return ask(state)

    graph = graph_of(room, ("x", aask if is_async else ask), ("y", lambda state: {"l": ["y"]}))
    seen = [call(graph, {"l": []}, is_async=is_async)]
    seen.append(call(graph, langgraph.types.Command(resume=1), is_async=is_async))
    questions = [[one.value for one in chapter["__interrupt__"]] for chapter in seen]
    assert questions == [["one?"], ["two?"]]
    assert len({one.id for chapter in seen for one in chapter["__interrupt__"]}) == 2
    assert call(graph, langgraph.types.Command(resume=2), is_async=is_async) == {"l": [1, 2, "y"]}
    assert ran == ["ask"] * 3


def test_a_question_of_langgraph_has_the_id_it_has_there() -> None:
    """A thread that waits on one engine is answered on the other."""
    saver = Checkpointer("memory://")

    def ask(state: Any) -> Any:
        return {"l": [langgraph.types.interrupt("who?")]}

    builders = [room.StateGraph(State).add_node("x", ask).add_edge(room.START, "x") for room in BOTH]
    theirs, ours = (builder.compile(checkpointer=saver) for builder in builders)
    asked = theirs.invoke({"l": []}, CONFIG)["__interrupt__"]
    assert ours.get_state(CONFIG).interrupts[0].id == asked[0].id
    assert ours.invoke(langgraph.types.Command(resume={asked[0].id: "Ada"}), CONFIG) == {"l": ["Ada"]}


def test_either_interrupt_may_be_swallowed_no_more_than_the_other() -> None:
    """LangGraph's leaves no trace when it is swallowed; ours is told."""

    def swallow(state: Any) -> Any:
        try:
            threadline.graph.interrupt("who?")
        except Exception:
            return {"l": ["went on"]}

    with pytest.raises(threadline.graph.errors.InterruptSwallowed):
        graph_of(threadline.graph, ("x", swallow)).invoke({"l": []}, CONFIG)


@ROOMS
@HALVES
def test_commands_and_sends_of_langgraph_from_functions(room: Any, is_async: bool) -> None:
    types = langgraph.types
    builder = room.StateGraph(State)
    builder.add_node("x", lambda state: types.Command(update={"l": ["x"]}, goto="y"))
    builder.add_node("y", lambda state: [types.Command(update={"l": ["y"]}), {"l": ["also"]}])
    builder.add_node("z", lambda state: {"l": [state["n"]]})
    builder.add_node("w", lambda state: {"l": types.Overwrite([*state["l"], "w"])})
    builder.add_edge(room.START, "x")
    builder.add_conditional_edges("y", lambda state: [types.Send("z", {"n": n}) for n in range(2)], ["z"])
    builder.add_edge("z", "w")
    assert call(builder.compile(), {"l": []}, is_async=is_async) == {"l": ["x", "y", "also", 0, 1, "w"]}


@ROOMS
def test_a_command_of_langgraph_leaves_its_graph(room: Any) -> None:
    def leave(state: Any) -> Any:
        return langgraph.types.Command(graph=langgraph.types.Command.PARENT, update={"l": ["out"]}, goto="after")

    inner = room.StateGraph(State).add_node("leave", leave).add_edge(room.START, "leave").compile()
    builder = room.StateGraph(State).add_node("inner", inner).add_node("after", lambda state: {"l": ["after"]})
    assert builder.add_edge(room.START, "inner").compile().invoke({"l": ["in"]}) == {"l": ["in", "out", "after"]}


def test_values_of_other_types_pass_as_they_are() -> None:
    given = (1, 2)
    graph = graph_of(threadline.graph, ("x", lambda state: {"l": [given]}))
    assert graph.invoke({"l": []}, CONFIG)["l"][0] == given
    assert type(graph.invoke({"l": []}, CONFIG)["l"][0]) is tuple


@ROOMS
def test_langgraphs_helpers_find_the_task(room: Any) -> None:
    def say(state: Any) -> Any:
        langgraph.config.get_stream_writer()("custom")
        return {"l": [langgraph.config.get_config()["metadata"]["langgraph_node"]]}

    graph = graph_of(room, ("x", say))
    chunks = list(graph.stream({"l": []}, CONFIG, stream_mode=["custom", "updates"]))
    assert chunks == [("custom", "custom"), ("updates", {"x": {"l": ["x"]}})]


# -- tracers


class Tree(BaseTracer):
    """Keeps the runs that it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Any] = []

    def _persist_run(self, run: Any) -> None:
        self.roots.append(run)


def shape(run: Any) -> Any:
    """What a tracer makes of a run, without times and ids; the branches of LangGraph are runs of their own."""
    children = [shape(child) for child in run.child_runs if "langsmith:hidden" not in (child.tags or ())]
    ended = "error" if run.error else "ended"
    named = {key: run.extra["metadata"].get(key) for key in ("langgraph_node", "langgraph_step", "thread_id")}
    return run.name, run.run_type, ended, named, children


def traced_graph(room: Any) -> Any:
    model = GenericFakeChatModel(messages=iter([AIMessage("hello")] * 4))

    def think(state: Any) -> Any:
        return {"l": [model.invoke("hi").content, RunnableLambda(lambda value: value + 1, name="plus").invoke(1)]}

    def fail(state: Any) -> Any:
        raise ValueError("no")

    inner = room.StateGraph(State).add_node("deep", lambda state: {"l": ["deep"]}).add_edge(room.START, "deep")
    return graph_of(room, ("think", think), ("below", inner.compile()), ("fail", fail))


def test_a_tracer_sees_the_tree_that_langgraph_shows_it() -> None:
    found = []
    for room in BOTH:
        tracer = Tree()
        with pytest.raises(ValueError, match="no"):
            traced_graph(room).invoke({"l": []}, {**CONFIG, "callbacks": [tracer], "run_name": "whole"})
        assert len(tracer.roots) == 1
        found.append(shape(tracer.roots[0]))
    assert found[1] == found[0]
    name, _, ended, _, nodes = found[1]
    assert (name, ended) == ("whole", "error")
    assert [(one[0], one[2]) for one in nodes] == [("think", "ended"), ("below", "ended"), ("fail", "error")]
    assert [(one[0], one[1]) for one in nodes[0][4]] == [("GenericFakeChatModel", "llm"), ("plus", "chain")]


class Client:
    """What LangSmith's tracer needs of its client; nothing leaves the process."""

    tracing_queue = None
    otel_exporter = None

    def __init__(self) -> None:
        self.created: dict[UUID, dict[str, Any]] = {}
        self.updated: dict[UUID, dict[str, Any]] = {}

    def flush(self) -> None:
        """All runs arrived when they were handed over."""

    def create_run(self, **run: Any) -> None:
        self.created[run["id"]] = run

    def update_run(self, *, run_id: UUID, **run: Any) -> None:
        self.updated[run_id] = run


@HALVES
def test_langsmiths_tracer_is_told_of_every_run(is_async: bool) -> None:
    client: Any = Client()
    tracer = LangChainTracer(client=client, project_name="threadline")
    model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))

    def think(state: Any) -> Any:
        return {"l": [model.invoke("hi").content]}

    async def athink(state: Any) -> Any:
        return {"l": [(await model.ainvoke("hi")).content]}

    graph = graph_of(threadline.graph, ("think", athink if is_async else think))
    assert call(graph, {"l": []}, is_async=is_async, config={**CONFIG, "callbacks": [tracer]}) == {"l": ["hello"]}
    tracer.wait_for_futures()
    names = {run["name"]: run for run in client.created.values()}
    assert names.keys() == {"LangGraph", "think", "GenericFakeChatModel"}
    assert names["think"]["parent_run_id"] == names["LangGraph"]["id"]
    assert names["GenericFakeChatModel"]["parent_run_id"] == names["think"]["id"]
    assert {run["trace_id"] for run in names.values()} == {names["LangGraph"]["id"]}
    assert client.updated.keys() == client.created.keys()
    assert not any(run.get("error") for run in client.updated.values())
