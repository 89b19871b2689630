"""The bridge: LangChain's messages, tokens, callbacks, Runnables and tools in graphs of `threadline.graph`.

What LangGraph does with the same graph is the model.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import langgraph.func
import langgraph.graph
import langgraph.types
import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.callbacks import GraphCallbackHandler
from typing_extensions import TypedDict

import threadline
import threadline.graph
from threadline.langgraph import bridge

ROOMS = pytest.mark.parametrize("room", [threadline.graph, langgraph.graph], ids=["ours", "langgraph"])
BOTH = (langgraph.graph, threadline.graph)

# Importing the bridge switches it on; other tests of this process run without it.
bridge.uninstall()


@pytest.fixture(autouse=True)
def switched_on() -> Iterator[None]:
    bridge.install()
    yield
    bridge.uninstall()


def model_of(*texts: str) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(text, id=f"m{place}") for place, text in enumerate(texts)]))


def chat(room: Any, model: Any, *, is_async: bool = False, **options: Any) -> Any:
    def say(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def asay(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = room.StateGraph(room.MessagesState).add_node("say", asay if is_async else say)
    return builder.add_edge(room.START, "say").compile(**options)


def streamed(graph: Any, given: Any, config: Any = None, *, is_async: bool = False, **options: Any) -> list[Any]:
    if not is_async:
        return list(graph.stream(given, config, **options))

    async def collect() -> list[Any]:
        return [chunk async for chunk in graph.astream(given, config, **options)]

    return asyncio.run(collect())


def without_ids(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if "checkpoint_ns" not in key}


# -- messages


@ROOMS
def test_messages_become_langchains_classes(room: Any) -> None:
    merged = room.add_messages(
        [HumanMessage("a", id="1")],
        ["b", ("assistant", "c"), {"role": "tool", "content": "d", "tool_call_id": "x"}, AIMessageChunk("e")],
    )
    assert [type(message) for message in merged] == [HumanMessage, HumanMessage, AIMessage, ToolMessage, AIMessage]
    assert [message.content for message in merged] == ["a", "b", "c", "d", "e"]
    assert all(message.id for message in merged)


@ROOMS
def test_messages_are_replaced_and_removed_by_id(room: Any) -> None:
    left = [HumanMessage("a", id="1"), AIMessage("b", id="2")]
    assert room.add_messages(left, [AIMessage("c", id="2")]) == [HumanMessage("a", id="1"), AIMessage("c", id="2")]
    assert room.add_messages(left, [RemoveMessage(id="1")]) == [AIMessage("b", id="2")]
    with pytest.raises(ValueError, match="doesn't exist"):
        room.add_messages(left, [RemoveMessage(id="9")])


def test_our_way_of_removing_works_too() -> None:
    left = [HumanMessage("a", id="1"), AIMessage("b", id="2")]
    assert threadline.graph.add_messages(left, [threadline.graph.RemoveMessage("1")]) == [AIMessage("b", id="2")]


def test_messages_of_the_state_are_not_made_again() -> None:
    left = [HumanMessage("a", id="1")]
    assert threadline.graph.add_messages(left, ["b"])[0] is left[0]


def test_the_format_of_openai() -> None:
    blocks = [{"type": "text", "text": "hi"}]
    ours, theirs = (room.add_messages([], [HumanMessage(blocks, id="1")], format="langchain-openai") for room in BOTH)
    assert ours == theirs


def test_messages_survive_a_store() -> None:
    graph = chat(threadline.graph, model_of("hello"), checkpointer=threadline.connect("memory://"))
    config = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": ["hi"]}, config)
    assert [type(message) for message in graph.get_state(config).values["messages"]] == [HumanMessage, AIMessage]


# -- tokens


@pytest.mark.parametrize("is_async", [False, True])
def test_tokens_come_as_langgraph_gives_them(is_async: bool) -> None:
    config = {"tags": ["mine"], "metadata": {"who": "me"}}
    seen = []
    for room in BOTH:
        graph = chat(room, model_of("hello big world"), is_async=is_async)
        chunks = streamed(graph, {"messages": ["hi"]}, config, is_async=is_async, stream_mode="messages")
        seen.append([(type(one).__name__, one.content, one.id, without_ids(metadata)) for one, metadata in chunks])
    assert [content for _, content, *_ in seen[0]] == ["hello", " ", "big", " ", "world"]
    assert seen[0] == seen[1]


def test_tokens_of_models_that_run_side_by_side() -> None:
    seen = []
    for room in BOTH:
        builder = room.StateGraph(room.MessagesState)
        for name in ("a", "b"):
            model = GenericFakeChatModel(messages=iter([AIMessage(f"{name} speaks", id=name)]))
            builder.add_node(name, lambda state, model=model: {"messages": [model.invoke(state["messages"])]})
            builder.add_edge(room.START, name)
        chunks = builder.compile().stream({"messages": ["hi"]}, stream_mode="messages")
        seen.append(sorted((metadata["langgraph_node"], one.id, one.content) for one, metadata in chunks))
    assert len(seen[0]) == 6
    assert seen[0] == seen[1]


@ROOMS
def test_a_model_tagged_nostream_says_nothing_until_its_message_is_written(room: Any) -> None:
    graph = chat(room, model_of("hello world").with_config(tags=["nostream"]))
    chunks = list(graph.stream({"messages": ["hi"]}, stream_mode="messages"))
    assert [one.content for one, _ in chunks] == ["hello world"]


@pytest.mark.parametrize("subgraphs", [False, True])
def test_tokens_of_a_graph_inside(subgraphs: bool) -> None:
    seen = []
    for room in BOTH:
        builder = room.StateGraph(room.MessagesState).add_node("inner", chat(room, model_of("hello world")))
        outer = builder.add_edge(room.START, "inner").compile()
        chunks = list(outer.stream({"messages": ["hi"]}, stream_mode="messages", subgraphs=subgraphs))
        shown = [(len(chunk[0]), chunk[1]) if subgraphs else (0, chunk) for chunk in chunks]
        seen.append([(depth, one.content, metadata["langgraph_node"]) for depth, (one, metadata) in shown])
    assert seen[0] == seen[1]


# -- callbacks and configs


class Recorder(BaseCallbackHandler):
    """What was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.names: dict[Any, str] = {}
        self.parents: dict[str, str | None] = {}

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: Any, parent_run_id: Any = None, **rest: Any
    ) -> None:
        self._begin(rest.get("name"), run_id, parent_run_id)

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: Any, parent_run_id: Any = None, **_: Any
    ) -> None:
        self._begin("model", run_id, parent_run_id)

    def _begin(self, name: Any, run_id: Any, parent_run_id: Any) -> None:
        self.names[run_id] = name
        self.parents[name] = self.names.get(parent_run_id)
        self.told.append(("start", name))

    def on_chain_end(self, outputs: Any, *, run_id: Any, **_: Any) -> None:
        self.told.append(("end", self.names[run_id]))

    def on_llm_end(self, response: Any, *, run_id: Any, **_: Any) -> None:
        self.told.append(("end", self.names[run_id]))

    def on_chain_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        self.told.append((type(error).__name__, self.names[run_id]))


@pytest.mark.parametrize("is_async", [False, True])
def test_handlers_are_told_as_langgraph_tells_them(is_async: bool) -> None:
    recorders = []
    for room in BOTH:
        recorder = Recorder()
        graph = chat(room, model_of("hello"), is_async=is_async)
        streamed(graph, {"messages": ["hi"]}, {"callbacks": [recorder]}, is_async=is_async)
        recorders.append(recorder)
    theirs, ours = recorders
    assert ours.told == theirs.told
    assert ours.parents == theirs.parents == {"LangGraph": None, "say": "LangGraph", "model": "say"}


def test_a_failure_is_told_of_the_node_and_the_graph() -> None:
    recorders = []
    for room in BOTH:

        def broken(state: Any) -> Any:
            raise KeyError("no")

        recorder = Recorder()
        graph = room.StateGraph(room.MessagesState).add_node(broken).add_edge(room.START, "broken").compile()
        with pytest.raises(KeyError):
            graph.invoke({"messages": ["hi"]}, {"callbacks": [recorder]})
        recorders.append(recorder.told)
    assert recorders[0] == recorders[1]
    assert ("KeyError", "broken") in recorders[1]
    assert ("KeyError", "LangGraph") in recorders[1]


class Payloads(BaseCallbackHandler):
    """What was told of inputs and outputs, by name."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.told: dict[str, list[Any]] = {}

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, name: Any = None, **_: Any) -> None:
        self.names[run_id] = name
        self.told[name] = [inputs]

    def on_chain_end(self, outputs: Any, *, run_id: Any, **_: Any) -> None:
        self.told[self.names[run_id]].append(outputs)


class Numbers(TypedDict, total=False):
    a: int
    b: int


def numbers(room: Any, **options: Any) -> Any:
    builder = room.StateGraph(Numbers).add_node("x", lambda state: {"b": 2}, **options)
    builder.add_node("y", lambda state: None)
    return builder.add_edge(room.START, "x").add_edge("x", "y").compile()


def test_handlers_are_told_what_goes_in_and_comes_out() -> None:
    told = []
    for room in BOTH:
        payloads = Payloads()
        numbers(room).invoke({"a": 1}, {"callbacks": [payloads], "run_name": "mine"})
        told.append(payloads.told)
    assert told[0] == told[1]
    assert told[1] == {"mine": [{"a": 1}, {"a": 1, "b": 2}], "x": [{"a": 1}, {"b": 2}], "y": [{"a": 1, "b": 2}, None]}


def test_a_trace_policy_hides_what_a_node_takes_and_gives() -> None:
    room = threadline.graph
    payloads = Payloads()
    policy = room.TracePolicy(process_inputs=room.omit_payload, process_outputs=lambda output: sorted(output))
    result = numbers(room, trace_policy=policy).invoke({"a": 1}, {"callbacks": [payloads]})
    assert payloads.told["x"] == [{}, ["b"]]
    assert result == {"a": 1, "b": 2}


def test_a_question_is_no_error() -> None:
    def ask(state: Any) -> Any:
        return {"messages": [threadline.graph.interrupt("well?")]}

    recorder = Recorder()
    room = threadline.graph
    builder = room.StateGraph(room.MessagesState).add_node(ask).add_edge(room.START, "ask")
    builder.compile(checkpointer=threadline.connect("memory://")).invoke(
        {"messages": ["hi"]}, {"callbacks": [recorder], "configurable": {"thread_id": "1"}}
    )
    assert recorder.told == [("start", "LangGraph"), ("start", "ask"), ("end", "ask"), ("end", "LangGraph")]


class Course(GraphCallbackHandler):
    """When a graph stopped and went on."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_interrupt(self, event: Any) -> None:
        self.told.append(("stop", event.status, len(event.checkpoint_ns), [one.value for one in event.interrupts]))
        assert event.run_id is not None
        assert event.checkpoint_id

    def on_resume(self, event: Any) -> None:
        self.told.append(("on", event.status, len(event.checkpoint_ns)))


@pytest.mark.parametrize("stop", ["question", "inside", "before", "after"])
def test_handlers_are_told_when_a_graph_stops_and_goes_on(stop: str) -> None:
    told = []
    for room, types in ((langgraph.graph, langgraph.types), (threadline.graph, threadline.graph)):
        saver = bridge_free_saver() if room is langgraph.graph else threadline.connect("memory://")

        def ask(state: Any, types: Any = types) -> Any:
            return {"a": types.interrupt("well?") if stop in ("question", "inside") else 1}

        node = ask
        if stop == "inside":
            node = room.StateGraph(Numbers).add_node("ask", ask).add_edge(room.START, "ask").compile()
        builder = room.StateGraph(Numbers).add_node("node", node).add_node("last", lambda state: None)
        builder.add_edge(room.START, "node").add_edge("node", "last")
        stops = {f"interrupt_{stop}": ["node"]} if stop in ("before", "after") else {}
        graph = builder.compile(checkpointer=saver, **stops)
        course = Course()
        config = {"callbacks": [course], "configurable": {"thread_id": "1"}}
        graph.invoke({"b": 1}, config)
        graph.invoke(None if stops else types.Command(resume=2), config)
        told.append(course.told)
    assert told[0] == told[1]
    assert [what for what, *_ in told[1]][:2] == ["stop", "on"]


def test_graphs_inside_are_children_of_their_node() -> None:
    recorders = []
    for room in BOTH:
        recorder = Recorder()
        inner = chat(room, model_of("hello"), name="inner graph")
        builder = room.StateGraph(room.MessagesState).add_node("outer", lambda state, inner=inner: inner.invoke(state))
        builder.add_edge(room.START, "outer").compile().invoke({"messages": ["hi"]}, {"callbacks": [recorder]})
        recorders.append(recorder)
    assert recorders[1].parents["inner graph"] == "outer"
    assert recorders[0].parents == recorders[1].parents


def test_async_handlers_are_told_too() -> None:
    class Awaited(AsyncCallbackHandler):
        def __init__(self) -> None:
            self.told: list[Any] = []

        async def on_chain_start(self, serialized: Any, inputs: Any, *, name: Any = None, **_: Any) -> None:
            self.told.append(name)

        async def on_chain_end(self, outputs: Any, **_: Any) -> None:
            self.told.append("end")

    told = []
    for room in BOTH:
        handler = Awaited()
        graph = chat(room, model_of("hello"), is_async=True)
        asyncio.run(graph.ainvoke({"messages": ["hi"]}, {"callbacks": [handler]}))
        told.append(handler.told)
    assert told[0] == told[1] == ["LangGraph", "say", "end", "end"]


def test_tasks_of_the_functional_api() -> None:
    seen = []
    for func in (langgraph.func, threadline.graph):
        model, recorder = model_of("hello there"), Recorder()

        @func.task
        def call(text: str, model: Any = model) -> Any:
            return model.invoke(text)

        @func.entrypoint()
        def flow(text: str, call: Any = call) -> Any:
            return call(text).result()

        chunks = list(flow.stream("hi", {"callbacks": [recorder]}, stream_mode="messages"))
        seen.append(([(one.content, found["langgraph_node"]) for one, found in chunks], recorder.parents))
    assert seen[0] == seen[1]
    assert seen[1][1] == {"LangGraph": None, "flow": "LangGraph", "call": "flow", "model": "call"}


def test_a_retried_node_still_has_its_callbacks() -> None:
    room = threadline.graph
    recorder, model, tries = Recorder(), model_of("hello"), []

    def say(state: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("again")
        return {"messages": [model.invoke(state["messages"])]}

    builder = room.StateGraph(room.MessagesState)
    builder.add_node("say", say, retry_policy=room.RetryPolicy(initial_interval=0, jitter=False))
    builder.add_edge(room.START, "say").compile().invoke({"messages": ["hi"]}, {"callbacks": [recorder]})
    assert recorder.parents["model"] == "say"


@ROOMS
def test_a_runnable_in_a_node_finds_the_nodes_config(room: Any) -> None:
    found: list[RunnableConfig] = []
    inner = RunnableLambda(lambda value, config: found.append(config) or value)

    def node(state: Any, config: RunnableConfig) -> Any:
        inner.invoke(1)
        assert config["metadata"]["langgraph_node"] == "node"

    builder = room.StateGraph(room.MessagesState).add_node(node).add_edge(room.START, "node")
    builder.compile().invoke({"messages": ["hi"]}, {"configurable": {"user": "ada"}, "tags": ["t"]})
    assert found[0]["configurable"]["user"] == "ada"
    assert found[0]["metadata"]["langgraph_node"] == "node"
    assert "t" in found[0]["tags"]


# -- Runnables and tools as nodes


@ROOMS
def test_a_pipeline_is_a_node(room: Any) -> None:
    pipeline = RunnableLambda(lambda state: state["messages"]) | model_of("hello") | (lambda said: {"messages": [said]})
    builder = room.StateGraph(room.MessagesState).add_node("pipeline", pipeline).add_edge(room.START, "pipeline")
    result = builder.compile().invoke({"messages": ["hi"]})
    assert [message.content for message in result["messages"]] == ["hi", "hello"]


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_graph_of_langgraph_is_a_node(is_kept: bool) -> None:
    inner = chat(langgraph.graph, model_of("hello"))
    saver = threadline.connect("memory://") if is_kept else None
    room = threadline.graph
    outer = room.StateGraph(room.MessagesState).add_node("inner", inner).add_edge(room.START, "inner")
    result = outer.compile(checkpointer=saver).invoke({"messages": ["hi"]}, {"configurable": {"thread_id": "1"}})
    assert [message.content for message in result["messages"]] == ["hi", "hello"]


def test_a_graph_of_langgraph_inside_may_ask() -> None:
    def ask(state: Any) -> Any:
        return {"messages": [("ai", langgraph.types.interrupt("well?"))]}

    theirs, ours = langgraph.graph, threadline.graph
    inner = theirs.StateGraph(theirs.MessagesState).add_node(ask).add_edge(theirs.START, "ask").compile()
    builder = ours.StateGraph(ours.MessagesState).add_node("inner", inner).add_edge(ours.START, "inner")
    outer = builder.compile(checkpointer=threadline.connect("memory://"))
    config = {"configurable": {"thread_id": "1"}}
    asked = outer.invoke({"messages": ["hi"]}, config)["__interrupt__"]
    assert [(type(one), one.value) for one in asked] == [(ours.Interrupt, "well?")]
    result = outer.invoke(ours.Command(resume="fine"), config)
    assert [message.content for message in result["messages"]] == ["hi", "fine"]
    assert not outer.get_state(config).next


def calling(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": "call-1"}], id="ai")


def tools_graph(room: Any, *tools: Any, **options: Any) -> Any:
    builder = room.StateGraph(room.MessagesState).add_node("tools", bridge.tools_node(tools))
    builder.add_node("other", lambda state: {"messages": [("assistant", "other ran")]})
    return builder.add_edge(room.START, "tools").compile(**options)


@ROOMS
@pytest.mark.parametrize("is_async", [False, True])
def test_prebuilt_tools_run_as_a_node(room: Any, is_async: bool) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    graph = tools_graph(room, add)
    given = {"messages": [calling("add", a=1, b=2)]}
    result = asyncio.run(graph.ainvoke(given)) if is_async else graph.invoke(given)
    assert [(type(message), message.content) for message in result["messages"]] == [(AIMessage, ""), (ToolMessage, "3")]


@ROOMS
def test_a_tool_may_return_a_command_of_langgraph(room: Any) -> None:
    @tool
    def leave() -> langgraph.types.Command:
        """Go elsewhere."""
        said = ToolMessage("left", tool_call_id="call-1")
        return langgraph.types.Command(update={"messages": [said]}, goto="other")

    result = tools_graph(room, leave).invoke({"messages": [calling("leave")]})
    assert [message.content for message in result["messages"]] == ["", "left", "other ran"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_may_ask_with_either_interrupt(is_async: bool) -> None:
    @tool
    def confirm() -> str:
        """Ask twice."""
        first = langgraph.types.interrupt("sure?")
        return f"{first} and {langgraph.types.interrupt('really?')}"

    seen = []
    for room, command, saver in (
        (threadline.graph, threadline.graph.Command, threadline.connect("memory://")),
        (langgraph.graph, langgraph.types.Command, bridge_free_saver()),
    ):
        graph = tools_graph(room, confirm, checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "1"}}

        def run(given: Any, graph: Any = graph, config: Any = config) -> Any:
            return asyncio.run(graph.ainvoke(given, config)) if is_async else graph.invoke(given, config)

        questions = [run({"messages": [calling("confirm")]})["__interrupt__"][0].value]
        questions.append(run(command(resume="yes"))["__interrupt__"][0].value)
        seen.append((questions, [message.content for message in run(command(resume="indeed"))["messages"]]))
    assert seen[0] == seen[1] == (["sure?", "really?"], ["", "yes and indeed"])


def bridge_free_saver() -> Any:
    from langgraph.checkpoint.memory import InMemorySaver

    return InMemorySaver()


def test_approval_takes_the_calls_of_langchains_messages() -> None:
    from threadline.graph.approval import Approval

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    room = threadline.graph
    builder = room.StateGraph(room.MessagesState).add_node("tools", Approval([add], interrupt_on={"add": True}))
    graph = builder.add_edge(room.START, "tools").compile(checkpointer=threadline.connect("memory://"))
    config = {"configurable": {"thread_id": "1"}}
    asked = graph.invoke({"messages": [calling("add", a=1, b=2)]}, config)["__interrupt__"][0].value
    assert asked["action_requests"][0]["args"] == {"a": 1, "b": 2}
    result = graph.invoke(room.Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert isinstance(result["messages"][-1], ToolMessage)
    assert result["messages"][-1].content == "3"


# -- off


def test_without_the_bridge_messages_are_dicts() -> None:
    bridge.uninstall()
    assert threadline.graph.add_messages([], [{"role": "user", "content": "a", "id": "1"}]) == [
        {"role": "user", "content": "a", "id": "1"}
    ]


def test_the_adapter_does_not_switch_it_on() -> None:
    script = "import sys, threadline.langgraph, threadline.graph; print('threadline.langgraph.bridge' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "False"
