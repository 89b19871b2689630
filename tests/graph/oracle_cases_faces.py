"""Messages, drawings, graphs of channels: sections 18, 19 and 21."""

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from oracle_normal import plain
from oracle_table import case
from oracle_trial import Trial
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


@case("18.1", halves=("sync",))
def messages_are_merged_by_id(t: Trial) -> Any:
    add, human, ai, gone = t.add_messages, t.human, t.ai, t.removal
    one, two = human("one", "1"), ai("two", "2")
    return [
        t.error(lambda left=left, right=right: add(left, right), 30)
        for left, right in (
            ([one], [two]),
            ([one], two),
            (one, two),
            ([one], human("new", "1")),
            ([one, two], [gone("1")]),
            ([one], [gone("9")]),
            ([one, two], [ai("x", "3"), gone(t.REMOVE_ALL_MESSAGES), ai("y", "4")]),
            ([one], [gone("1"), human("back", "1")]),
            ([one], [human("a", "5"), human("b", "5")]),
            ([one], [ai("a", "5"), gone("5")]),
            (None, [one]),
            ([one], None),
            ([], ["text", ("user", "pair"), {"role": "user", "content": "dict", "id": "7"}]),
            ([], [{"wrong": 1}]),
        )
    ]


@case("18.2")
def a_conversation_on_a_thread(t: Trial) -> Any:
    saver = t.saver()
    reply = t.node(lambda s: {"messages": [t.ai(f"reply {len(s['messages'])}", f"r{len(s['messages'])}")]})
    graph = t.graph(t.MessagesState, {"chat": reply}, [(t.START, "chat")], checkpointer=saver)
    outs = [t.invoke(graph, {"messages": [t.human(f"turn {i}", f"h{i}")]}, t.config()) for i in range(3)]
    t.update(graph, t.config(), {"messages": [t.removal("h0"), t.human("changed", "h1")]})
    return {"outs": outs, "state": t.state(graph, t.config())}


@case("18.2")
def a_message_is_pushed_while_a_node_runs(t: Trial) -> Any:
    def push(state: Any) -> Any:
        t.push_message(t.ai("pushed", "p"))
        return {"messages": [t.ai("done", "d")]}

    graph = t.graph(t.MessagesState, {"x": t.node(push)}, [(t.START, "x")])
    return t.stream(graph, {"messages": [t.human("hi", "h")]}, stream_mode=["messages", "updates", "values"])


@case("18.2")
def a_graph_of_nothing_but_messages(t: Trial) -> Any:
    builder = t.MessageGraph()
    builder.add_node("x", t.node(lambda messages: t.ai(f"got {len(messages)}", "r")))
    builder.add_edge(t.START, "x")
    return t.invoke(builder.compile(), [t.human("hi", "h")])


@case("19.1", halves=("sync",))
def drawings_of_graphs(t: Trial) -> Any:
    def hinted(state: Log) -> Literal["y", "__end__"]:
        return "y"

    def going(state: Log) -> t.Command[Literal["x", "z"]]:
        return t.Command(goto="x")

    builder = t.builder(
        Log,
        {
            "x": (t.writes(), {"metadata": {"k": "v"}}),
            "y": (going, {}),
            "z": (t.writes(), {"defer": True}),
            "w v": t.writes(),
        },
        [(t.START, "x"), ("y", "z")],
    )
    builder.add_conditional_edges("x", hinted)
    builder.add_conditional_edges("z", lambda s: "go", {"go": "w v", "stop": t.END})
    sub = t.graph(Log, names(t, "i1", "i2"), [(t.START, "i1"), ("i1", "i2")])
    outer = t.graph(Log, {"sub": sub, **names(t, "q")}, [(t.START, "sub"), ("sub", "q")])
    graphs = [
        builder.compile().get_graph(),
        builder.compile(interrupt_before=["x"], interrupt_after=["z"]).get_graph(),
        outer.get_graph(),
        outer.get_graph(xray=True),
        t.graph(Log, names(t, "lone"), [(t.START, "lone")]).get_graph(),
    ]
    return [
        {
            "text": graph.draw_mermaid(),
            "nodes": [(node.id, node.name, plain(node.metadata)) for node in graph.nodes.values()],
            "edges": [(edge.source, edge.target, edge.data, edge.conditional) for edge in graph.edges],
        }
        for graph in graphs
    ]


@case("19.1", halves=("sync",))
def drawings_of_channels_and_entrypoints(t: Trial) -> Any:
    def node(source: str, *targets: str) -> Any:
        return t.NodeBuilder().subscribe_only(source).do(lambda x: x).write_to(*targets)

    def drawn(nodes: dict[str, Any], outputs: Any) -> Any:
        channels = {name: t.LastValue(int) for name in ("in", "a", "b", "out", "more")}
        return t.Pregel(nodes=nodes, channels=channels, input_channels="in", output_channels=outputs).get_graph()

    @t.entrypoint()
    def work(x: int) -> int:
        return x

    graphs = [
        work.get_graph(),
        drawn({"one": node("in", "a"), "two": node("a", "out")}, "out"),
        drawn({"one": node("in", "a", "b"), "two": node("a", "out"), "three": node("b", "more")}, ["out", "more"]),
        drawn({"one": node("in", "a"), "two": node("a", "in"), "lost": node("b", "out")}, "out"),
    ]
    return [
        {
            "text": graph.draw_mermaid(),
            "nodes": list(graph.nodes),
            "edges": [(edge.source, edge.target, edge.data, edge.conditional) for edge in graph.edges],
        }
        for graph in graphs
    ]


@case("21.1")
def a_graph_given_by_nodes_and_channels(t: Trial) -> Any:
    one = t.NodeBuilder().subscribe_only("in").do(t.node(lambda x: x + 1)).write_to("mid")
    two = t.NodeBuilder().subscribe_only("mid").do(t.node(lambda x: x * 2)).write_to("out")
    graph = t.Pregel(
        nodes={"one": one, "two": two},
        channels={"in": t.EphemeralValue(int), "mid": t.LastValue(int), "out": t.LastValue(int)},
        input_channels="in",
        output_channels="out",
    )
    return {
        "out": t.invoke(graph, 3),
        "values": t.stream(graph, 3, stream_mode="values"),
        "updates": t.stream(graph, 3, stream_mode="updates"),
    }


@case("21.1")
def channels_read_besides_triggers(t: Trial) -> Any:
    one = (
        t.NodeBuilder()
        .subscribe_to("a", "b")
        .do(t.node(lambda given: sorted(given.items())))
        .write_to("out", log=lambda given: [len(given)])
    )
    graph = t.Pregel(
        nodes={"one": one},
        channels={
            "a": t.EphemeralValue(int),
            "b": t.EphemeralValue(int),
            "log": t.Topic(int, accumulate=True),
            "out": t.LastValue(list),
        },
        input_channels=["a", "b"],
        output_channels=["out", "log"],
    )
    return [t.invoke(graph, {"a": 1, "b": 2}), t.invoke(graph, {"a": 1})]


@case("21.1")
def a_graph_of_channels_keeps_threads(t: Trial) -> Any:
    saver = t.saver()
    one = t.NodeBuilder().subscribe_to("in").read_from("total").do(t.node(lambda given: given["in"])).write_to("total")
    graph = t.Pregel(
        nodes={"one": one},
        channels={"in": t.EphemeralValue(int), "total": t.BinaryOperatorAggregate(int, operator.add)},
        input_channels="in",
        output_channels="total",
        checkpointer=saver,
    )
    outs = [t.error(lambda i=i: t.invoke(graph, i, t.config())) for i in (1, 2)]
    return {"outs": outs, "state": t.state(graph, t.config()), "stored": t.stored(saver, t.config())}


@dataclass
class Declared:
    needed: int
    perhaps: str | None
    words: Annotated[list[str], operator.add] = field(default_factory=lambda: ["x"])
    count: int = 3


class Annotations:
    count: int
    words: Annotated[list, operator.add]


@case("2.10")
def json_schemas_of_classes(t: Trial) -> Any:
    """A data class, and a class with annotations, are shown by their channels, with defaults."""

    class Typed(TypedDict):
        words: Annotated[list[str], operator.add]

    graphs = []
    for state, others, name in (
        (Declared, {}, "LangGraph"),
        (Annotations, {}, "small"),
        (Typed, {"input_schema": Declared}, "LangGraph"),
        (Typed, {"output_schema": Declared}, "LangGraph"),
    ):
        builder = t.StateGraph(state, **others)
        graphs.append(builder.add_node("x", t.writes()).add_edge(t.START, "x").compile(name=name))
    return [[graph.get_name("x"), graph.get_input_jsonschema(), graph.get_output_jsonschema()] for graph in graphs]
