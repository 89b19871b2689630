"""Mistakes that are said, limits, and what a run shows of itself."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Annotated, Any

import pytest
from graph_making import CONFIG, END, START, State, chain, writes
from typing_extensions import TypedDict

import threadline
from threadline import graph as room


def test_what_is_dropped_is_said_once_and_refused_by_a_strict_graph(caplog: pytest.LogCaptureFixture) -> None:
    graph = chain(x=lambda state: {"ll": [1], "l": [2]}, y=lambda state: {"l": [3]})
    assert graph.invoke({"l": []}) == graph.invoke({"l": []}) == {"l": [2, 3]}
    assert [record.message for record in caplog.records].count(
        "Node 'x' wrote 'll', which is no key of the state: it is dropped; did you mean 'l'?"
    ) == 1
    strict = chain(options={"strict": True}, x=lambda state: {"ll": [1]})
    with pytest.raises(room.InvalidUpdateError, match="did you mean 'l'"):
        strict.invoke({"l": []})
    lost = chain(options={"strict": True}, x=lambda state: room.Command(goto="yy"), y=writes("y"))
    with pytest.raises(room.InvalidUpdateError, match="goes to 'yy'"):
        lost.invoke({"l": []})
    sent = chain(options={"strict": True}, x=lambda state: room.Command(goto=room.Send("yy", {})))
    with pytest.raises(room.InvalidUpdateError, match="unknown node name yy"):
        sent.invoke({"l": []})


def test_a_key_of_the_input_and_a_target_that_are_not_there_are_told_by_the_nearest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain(x=lambda state: room.Command(goto="reviw"), review=writes("r")).invoke({"l": [], "aa": 1})
    assert "The input has 'aa', which is no key of the state: it is dropped; did you mean 'a'?" in caplog.text
    assert "unknown channel 'branch:to:reviw', ignoring it; did you mean 'review'?" in caplog.text
    chain(x=lambda state: room.Command(goto=room.Send("reviw", {})), review=writes("r")).invoke({"l": []})
    assert "unknown node name reviw; did you mean 'review'?" in caplog.text


def test_a_join_that_cannot_fill_is_named(caplog: pytest.LogCaptureFixture) -> None:
    builder = room.StateGraph(State)
    for name in "abcd":
        builder.add_node(name, writes(name))
    builder.add_conditional_edges(START, lambda state: "a", ["a", "b"])
    graph = builder.add_edge(["a", "b"], "d").compile()
    assert graph.invoke({"l": []}) == {"l": ["a"]}
    assert "node 'd' waits for b" in caplog.text
    assert "defer=True" in caplog.text


def test_the_error_of_two_writers_names_them() -> None:
    builder = room.StateGraph(State).add_node("x", lambda state: {"a": 1}).add_node("y", lambda state: {"a": "two"})
    graph = builder.add_edge(START, "x").add_edge(START, "y").compile()
    with pytest.raises(room.InvalidUpdateError, match=r"x \(int\), y \(str\)"):
        graph.invoke({"l": []})


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions carry notes since Python 3.11")
def test_a_message_read_as_an_object_is_explained() -> None:
    def read(state: Any) -> Any:
        message: Any = {"role": "user", "content": "hi", "id": "1"}
        return {"l": [message.content]}

    with pytest.raises(AttributeError, match="no attribute 'content'") as caught:
        chain(x=read).invoke({"l": []})
    assert "message['content']" in caught.value.__notes__[-1]
    with pytest.raises(AttributeError) as other:
        chain(x=lambda state: state.content).invoke({"l": []})
    assert not any("message['content']" in note for note in other.value.__notes__)


def test_the_recursion_limit_names_the_cycle() -> None:
    graph = room.StateGraph(State).add_node("x", writes("x")).add_node("y", writes("y"))
    loop = (
        graph.add_edge(START, "x")
        .add_edge("x", "y")
        .add_edge("y", "x")
        .compile(checkpointer=threadline.connect("memory://"))
    )
    with pytest.raises(room.GraphRecursionError, match=r"invoke\(None") as caught:
        loop.invoke({"l": []}, {**CONFIG, "recursion_limit": 5})
    assert caught.value.limit == 5
    assert "\\n" not in str(caught.value)
    assert set(caught.value.cycle) == {"x", "y"}
    assert caught.value.last_nodes[-1] == "x"
    assert len(loop.get_state(CONFIG).values["l"]) == 5


def test_going_on_with_a_new_thread_says_what_is_missing() -> None:
    graph = chain(threadline.connect("memory://"), x=writes("x"))
    with pytest.raises(room.EmptyInputError, match="no checkpoint to go on from; give it an input"):
        graph.invoke(None, CONFIG)


@pytest.mark.parametrize("kind", ["sync", "threads", "async"])
def test_a_fast_writer_waits_for_a_slow_consumer(kind: str) -> None:
    made = [0]
    ahead: list[int] = []

    def speak(state: Any, writer: Any) -> Any:
        for number in range(60):
            made[0] += 1
            writer(number)
        return {"l": ["x"]}

    async def speak_async(state: Any, runtime: room.Runtime) -> Any:
        for number in range(60):
            made[0] += 1
            await runtime.awrite(number)
        return {"l": ["x"]}

    graph = chain(x=speak_async if kind == "async" else speak)
    taken: list[int] = []

    def take(number: int) -> None:
        time.sleep(0.001)
        taken.append(number)
        ahead.append(made[0] - len(taken))

    async def consume() -> None:
        async for number in graph.astream({"l": []}, stream_mode="custom", buffer=4):
            await asyncio.sleep(0.001)
            take(number)

    if kind == "sync":
        for number in graph.stream({"l": []}, stream_mode="custom", buffer=4):
            take(number)
    else:
        asyncio.run(consume())
    assert taken == list(range(60))
    # Four wait in the buffer, one is being put and one is being taken.
    assert max(ahead) <= 6


def test_only_functions_that_cannot_block_run_on_the_loop() -> None:
    from threadline.graph.building.quick import is_quick

    limit = 3
    waits = time.sleep
    assert room.Send  # names of the room load when they are first used
    assert is_quick(lambda state: "x" if len(state["l"]) < limit else END)
    assert is_quick(lambda state: [room.Send("x", one) for one in state.get("l", [])])
    assert is_quick(lambda state: {"a": state["a"] + 1})
    assert not is_quick(lambda state: waits(1))
    assert not is_quick(lambda state: time.sleep(1))
    assert not is_quick(lambda state: state["call"].read())
    assert not is_quick(lambda state, store: store.get("x"))
    assert not is_quick(lambda state: print("x"))
    assert not is_quick(len)


def test_overwrite_is_unwrapped_everywhere() -> None:
    class Both(TypedDict, total=False):
        plain: list
        empty: Annotated[Any, lambda left, right: [*left, *right]]

    builder = room.StateGraph(Both).add_node(
        "x", lambda state: {"plain": room.Overwrite([1]), "empty": room.Overwrite([2])}
    )
    assert builder.add_edge(START, "x").compile().invoke({"plain": []}) == {"plain": [1], "empty": [2]}


def test_a_missing_thread_is_named() -> None:
    graph = chain(threadline.connect("memory://"), x=writes("x"))
    with pytest.raises(ValueError, match="thread_id"):
        graph.invoke({"l": []})
    with pytest.raises(ValueError, match="thread_id"):
        graph.invoke({"l": []}, {"configurable": {"other": 1}})


def test_subgraphs_are_chosen_by_whole_names() -> None:
    inner = room.StateGraph(State).add_node("i", writes("i")).add_edge(START, "i").compile()
    other = room.StateGraph(State).add_node("i", writes("i")).add_edge(START, "i").compile()
    builder = room.StateGraph(State).add_node("sub", inner).add_node("subway", other)
    graph = builder.add_edge(START, "sub").add_edge("sub", "subway").compile()
    assert dict(graph.get_subgraphs(namespace="subway")) == {"subway": other}
    assert dict(graph.get_subgraphs(namespace="sub")) == {"sub": inner}


def test_steps_are_logged_when_somebody_listens(caplog: pytest.LogCaptureFixture) -> None:
    graph = chain(threadline.connect("memory://"), x=writes("x"), y=writes("y"))
    with caplog.at_level(logging.DEBUG, logger="threadline.graph.steps"):
        graph.invoke({"l": []}, CONFIG)
    lines = [record.message for record in caplog.records if record.name == "threadline.graph.steps"]
    assert [line.split(" in ")[0] for line in lines] == [
        "thread '1' step 0: __start__",
        "thread '1' step 1: x",
        "thread '1' step 2: y",
    ]
    assert all(line.endswith("bytes changed") for line in lines)


def test_what_is_printed_leaves_the_result_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    graph = chain(threadline.connect("memory://"), x=lambda state: {"l": [room.interrupt("q")]})
    asked = graph.invoke({"l": []}, CONFIG, print_mode="updates")
    assert [one.value for one in asked["__interrupt__"]] == ["q"]
    assert "[updates]" in capsys.readouterr().out


def test_the_error_of_a_reducer_names_its_key_and_writers() -> None:
    graph = chain(x=lambda state: {"l": 5})
    with pytest.raises(TypeError) as caught:
        graph.invoke({"l": ["a"]})
    notes = getattr(caught.value, "__notes__", None)
    if notes is not None:  # Python 3.10 has no notes
        assert "While key 'l' (it holds: list) was reduced with the writes of: x (int)" in notes


def test_spans_do_not_mark_questions_as_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    ended: list[tuple[str, bool, int]] = []

    class Span:
        def __init__(self, name: str) -> None:
            self.name, self.is_error, self.events = name, False, 0

        def set_status(self, status: Any) -> None:
            self.is_error = True

        def set_attribute(self, key: str, value: Any) -> None:
            assert isinstance(value, int)

        def add_event(self, name: str, attributes: Any) -> None:
            self.events += 1

        def end(self) -> None:
            ended.append((self.name, self.is_error, self.events))

    trace: Any = types.ModuleType("opentelemetry.trace")
    trace.get_tracer = lambda name: types.SimpleNamespace(start_span=lambda name, context, attributes: Span(name))
    trace.set_span_in_context = lambda span: span
    trace.Status = lambda code, text: code
    trace.StatusCode = types.SimpleNamespace(ERROR="error")
    provider = type("ProxyTracerProvider", (), {})()
    trace.get_tracer_provider = lambda: provider
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)

    def fail(state: Any) -> Any:
        raise ValueError("no")

    chain(x=lambda state: {"l": ["x"]}).invoke({"l": []})
    assert not ended, "the API is loaded, and nobody has set a provider"
    provider = object()
    chain(threadline.connect("memory://"), x=lambda state: {"l": [room.interrupt("q")]}).invoke({"l": []}, CONFIG)
    assert ("node x", False, 1) in ended
    assert ("graph LangGraph", False, 1) in ended
    ended.clear()
    with pytest.raises(ValueError, match="no"):
        chain(x=fail).invoke({"l": []})
    assert [name for name, is_error, _ in ended if is_error] == ["node x", "graph LangGraph"]
