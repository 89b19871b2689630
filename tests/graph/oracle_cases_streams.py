"""What a run streams: section 10."""

import operator
from typing import Annotated, Any

from oracle_table import case
from oracle_trial import Trial
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


def chain(t: Trial, **compiled: Any) -> Any:
    return t.graph(Log, names(t, "x", "y"), [(t.START, "x"), ("x", "y")], **compiled)


@case("10.1")
def every_mode_alone(t: Trial) -> Any:
    outs = {}
    for mode in ("values", "updates", "tasks", "checkpoints", "debug", "custom", "messages"):
        outs[mode] = t.stream(chain(t, checkpointer=t.saver()), {"a": "in"}, t.config(), stream_mode=mode)
    outs["default"] = t.stream(chain(t), {"a": "in"})
    outs["all"] = t.stream(
        chain(t, checkpointer=t.saver()),
        {"a": "in"},
        t.config(),
        stream_mode=["debug", "values", "checkpoints", "tasks", "updates"],
    )
    return outs


@case("10.9")
def every_mode_in_version_2(t: Trial) -> Any:
    modes = ["values", "updates", "tasks", "checkpoints", "debug", "custom", "messages"]
    return {
        "list": t.stream(chain(t, checkpointer=t.saver()), {"a": "in"}, t.config(), stream_mode=modes, version="v2"),
        "one": t.stream(chain(t), {"a": "in"}, stream_mode="updates", version="v2"),
        "subgraphs": t.stream(chain(t), {"a": "in"}, stream_mode=["values"], version="v2", subgraphs=True),
    }


@case("10.1")
def namespaces_come_with_subgraphs(t: Trial) -> Any:
    return [
        t.stream(chain(t), {"a": "in"}, subgraphs=True),
        t.stream(chain(t), {"a": "in"}, subgraphs=True, stream_mode=["values", "updates"]),
        t.stream(chain(t), {"a": "in"}, stream_mode=["updates"]),
    ]


@case("10.2")
def values_come_only_when_output_keys_change(t: Trial) -> Any:
    graph = t.graph(
        Log, {"x": t.writes(l=["x"]), "y": t.writes(), "z": t.writes(a="z")}, [(t.START, "x"), ("x", "y"), ("y", "z")]
    )
    return [
        t.stream(graph, {"a": "in"}, stream_mode="values"),
        t.stream(graph, {"a": "in"}, stream_mode="values", output_keys=["a"]),
        t.stream(graph, {"a": "in"}, stream_mode="values", output_keys="l"),
        t.stream(graph, {"a": "in"}, stream_mode="updates", output_keys=["a"]),
        t.stream(graph, {"a": "in"}, stream_mode="updates", output_keys="l"),
        t.error(lambda: t.stream(graph, {}, output_keys=["zz"]), 0),
    ]


@case("10.3")
def a_key_written_twice_by_a_task(t: Trial) -> Any:
    twice = t.node(lambda s: [t.Command(update={"l": ["1"]}), t.Command(update={"l": ["2"], "a": "x"})])
    graph = t.graph(Log, {"x": twice}, [(t.START, "x")], checkpointer=t.saver())
    return t.stream(graph, {}, t.config(), stream_mode=["updates", "tasks", "values", "checkpoints"])


@case("10.3")
def sends_of_one_node_give_a_chunk_each(t: Trial) -> Any:
    builder = t.builder(Log, {"x": t.writes(), "w": t.node(lambda arg: {"l": [arg]})}, [(t.START, "x")])
    builder.add_conditional_edges("x", t.node(lambda s: [t.Send("w", i) for i in (1, 2, 3)]), ["w"])
    return t.modes(builder.compile(), {})


@case("10.4")
def tasks_show_failures_and_metadata(t: Trial) -> Any:
    def fail(state: Any) -> Any:
        raise ArithmeticError("no")

    graph = t.graph(
        Log, {"x": (t.writes(l=["x"]), {"metadata": {"mine": 1}}), "f": t.node(fail)}, [(t.START, "x"), ("x", "f")]
    )
    chunks: list[Any] = []

    def run() -> None:
        if not t.is_async:
            chunks.extend(graph.stream({}, stream_mode=["tasks", "updates"]))
            return

        async def every() -> None:
            async for chunk in graph.astream({}, stream_mode=["tasks", "updates"]):
                chunks.append(chunk)

        t.wait(every())

    error = t.error(run)
    from oracle_normal import plain

    return {"error": error, "chunks": [plain(chunk) for chunk in chunks]}


@case("10.7")
def custom_chunks_of_writers(t: Trial) -> Any:
    def inside(state: Any) -> Any:
        t.get_stream_writer()({"progress": 1})
        return {"l": ["x"]}

    def given(state, writer: t.StreamWriter):
        writer("two")
        writer("three")
        return {"l": ["y"]}

    def by_runtime(state, runtime: t.Runtime):
        runtime.stream_writer("four")
        return {}

    nodes = {"x": t.node(inside), "y": t.node(given), "z": t.node(by_runtime)}
    graph = t.graph(Log, nodes, [(t.START, "x"), ("x", "y"), ("y", "z")])
    return [
        t.stream(graph, {}, stream_mode="custom"),
        t.stream(graph, {}, stream_mode=["custom", "updates"]),
        t.stream(graph, {}, stream_mode="updates"),
        t.stream(graph, {}, stream_mode=["custom"], subgraphs=True),
    ]


@case("10.8", halves=("sync",))
def the_next_step_waits_for_the_consumer(t: Trial) -> Any:
    ran: list[str] = []

    def node(name: str) -> Any:
        def act(state: Any) -> Any:
            ran.append(name)
            return {"l": [name]}

        return act

    saver = t.saver()
    graph = t.graph(Log, {n: node(n) for n in "xyz"}, [(t.START, "x"), ("x", "y"), ("y", "z")], checkpointer=saver)
    stream = graph.stream({}, t.config(), stream_mode="updates")
    seen = []
    for _ in range(2):
        next(stream)
        seen.append(list(ran))
    stream.close()
    return {"ran": seen, "after close": list(ran), "state": t.state(graph, t.config())["next"]}


@case("10.10")
def invoke_with_another_mode_gives_the_chunks(t: Trial) -> Any:
    return [
        t.invoke(chain(t), {"a": "in"}, stream_mode="updates"),
        t.invoke(chain(t), {"a": "in"}, stream_mode=["values", "updates"]),
    ]


@case("10.11")
def messages_that_nodes_return_are_streamed(t: Trial) -> Any:
    def talk(state: Any) -> Any:
        return {"messages": [t.ai("hello", "m1")]}

    def repeat(state: Any) -> Any:
        return t.Command(update={"messages": [state["messages"][-1], t.ai("more", "m2")]})

    graph = t.graph(t.MessagesState, {"x": t.node(talk), "y": t.node(repeat)}, [(t.START, "x"), ("x", "y")])
    return t.stream(graph, {"messages": [t.human("hi", "m0")]}, stream_mode="messages")


@case("10.5")
def checkpoint_events_match_the_history(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, names(t, "x", "y", "z"), [(t.START, "x"), (t.START, "y"), ("y", "z")], checkpointer=saver)
    return {
        "events": t.stream(graph, {}, t.config(), stream_mode="checkpoints"),
        "history": t.history(graph, t.config()),
    }


@case("10.6")
def debug_under_durability_exit(t: Trial) -> Any:
    graph = chain(t, checkpointer=t.saver())
    return t.stream(graph, {}, t.config(), stream_mode="debug", durability="exit")
