"""Channels, schemas, what nodes may return: sections 1 and 2."""

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any

from oracle_table import case
from oracle_trial import Trial
from pydantic import BaseModel
from typing_extensions import NotRequired, TypedDict


class Loose(TypedDict, total=False):
    a: str
    b: str
    n: int


class Total(TypedDict):
    l: Annotated[list, operator.add]
    n: Annotated[int, operator.add]


class Both(TypedDict, total=False):
    a: str
    l: Annotated[list, operator.add]


@case("1.2")
def last_value_of_two_writers_is_refused(t: Trial) -> Any:
    graph = t.graph(
        Loose, {"x": t.writes(a="x"), "y": t.writes(a="y")}, [(t.START, "x"), (t.START, "y")], checkpointer=t.saver()
    )
    config = t.config()
    return {
        "error": t.error(lambda: t.invoke(graph, {"a": "0"}, config), 60),
        "state": t.error(lambda: t.state(graph, config), 60),
    }


@case("1.2")
def any_value_is_cleared_by_a_step_without_writes(t: Trial) -> Any:
    class State(TypedDict, total=False):
        a: Annotated[str, t.AnyValue]
        b: str

    nodes = {"x": t.writes(a="x"), "y": t.writes(a="y"), "z": t.writes(b="z")}
    graph = t.graph(State, nodes, [(t.START, "x"), (t.START, "y"), ("x", "z")])
    return t.stream(graph, {"b": "0"}, stream_mode="values")


@case("1.3")
def ephemeral_value_lives_for_one_step(t: Trial) -> Any:
    class State(TypedDict, total=False):
        e: Annotated[str, t.EphemeralValue]
        l: Annotated[list, operator.add]

    look = t.node(lambda state: {"l": [state.get("e", "gone")]})
    saver = t.saver()
    graph = t.graph(
        State,
        {"x": t.writes(e="1"), "y": look, "z": look},
        [(t.START, "x"), ("x", "y"), ("y", "z")],
        checkpointer=saver,
    )
    return {"stream": t.stream(graph, {}, t.config(), stream_mode="values"), **t.everything(graph, saver, t.config())}


@case("1.4")
def reducers_start_at_their_empty_value(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Total, {"x": t.node(lambda s: {"l": [len(s["l"])], "n": 2})}, [(t.START, "x")], checkpointer=saver)
    return {"out": t.invoke(graph, {"l": ["in"]}, t.config()), **t.everything(graph, saver, t.config())}


@case("1.4")
def a_reducer_without_empty_value_takes_the_first_as_it_is(t: Trial) -> Any:
    def longest(one: Any, other: Any) -> Any:
        return one if len(one) > len(other) else other

    class State(TypedDict, total=False):
        a: Annotated[str | None, longest]

    return [
        t.invoke(t.graph(State, {"x": t.writes(a="xx"), "y": t.writes(a="y")}, [(t.START, "x"), (t.START, "y")]), given)
        for given in ({}, {"a": "long"})
    ]


@case("1.5")
def overwrite_replaces_and_ignores_its_siblings(t: Trial) -> Any:
    saver = t.saver()
    nodes = {"x": t.writes(l=["x"]), "y": t.writes(l=t.Overwrite(["y"])), "z": t.writes(l=["z"])}
    graph = t.graph(Both, nodes, [(t.START, n) for n in nodes], checkpointer=saver)
    return {"out": t.invoke(graph, {"l": ["in"]}, t.config()), **t.everything(graph, saver, t.config())}


@case("1.5")
def overwrite_as_a_dict(t: Trial) -> Any:
    outs = []
    for form in ({"__overwrite__": ["y"]}, {"type": "__overwrite__", "value": ["w"]}):
        graph = t.graph(Both, {"x": t.writes(l=form), "z": t.writes(l=["z"])}, [(t.START, "x"), ("x", "z")])
        outs.append(t.stream(graph, {"l": ["in"]}, stream_mode="values"))
    return outs


@case("1.5")
def two_overwrites_in_a_step_are_refused(t: Trial) -> Any:
    nodes = {"x": t.writes(l=t.Overwrite(["x"])), "y": t.writes(l=t.Overwrite(["y"]))}
    return t.error(lambda: t.invoke(t.graph(Both, nodes, [(t.START, "x"), (t.START, "y")]), {"l": []}), 40)


def _unwrapped(ours: Any, theirs: Any) -> None:
    assert ours == {"a": "x"}
    assert theirs["a"]["is"] == "Overwrite"


@case("1.5", differs=_unwrapped)
def overwrite_of_a_last_value_is_unwrapped(t: Trial) -> Any:
    return t.invoke(t.graph(Loose, {"x": t.writes(a=t.Overwrite("x"))}, [(t.START, "x")]), {})


@case("1.6")
def topics_keep_one_step_or_all(t: Trial) -> Any:
    class State(TypedDict, total=False):
        one: Annotated[list, t.Topic(str)]
        all: Annotated[list, t.Topic(str, accumulate=True)]

    saver = t.saver()
    nodes = {
        "x": t.writes(one="x", all="x"),
        "y": t.writes(one=["y", "yy"], all=["y", "yy"]),
        "z": t.writes(all="z"),
    }
    graph = t.graph(State, nodes, [(t.START, "x"), (t.START, "y"), ("x", "z")], checkpointer=saver)
    # Under durability "async" LangGraph stores the list after the next step has changed it.
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode="values", durability="sync"),
        **t.everything(graph, saver, t.config()),
    }


@case("1.7")
def a_join_waits_for_all_of_its_sources(t: Trial) -> Any:
    saver = t.saver()
    builder = t.builder(
        Both,
        {n: t.writes(l=[n]) for n in ("a1", "b1", "b2", "c")},
        [(t.START, "a1"), (t.START, "b1"), ("b1", "b2")],
    )
    builder.add_edge(["a1", "b2"], "c")
    graph = builder.compile(checkpointer=saver)
    modes = ["values", "updates"]
    return {
        # Under durability "async" LangGraph stores the barrier after the next step has changed it.
        "stream": t.stream(graph, {}, t.config(), stream_mode=modes, unordered=True, durability="sync"),
        **t.everything(graph, saver, t.config()),
    }


@case("1.8")
def a_deferred_node_runs_last(t: Trial) -> Any:
    saver = t.saver()
    nodes = {n: t.writes(l=[n]) for n in ("a1", "b1", "b2", "b3")}
    nodes["d"] = (t.writes(l=["d"]), {"defer": True})
    graph = t.graph(
        Both,
        nodes,
        [(t.START, "a1"), (t.START, "b1"), ("b1", "b2"), ("b2", "b3"), ("a1", "d"), ("b3", "d")],
        checkpointer=saver,
    )
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode=["values", "updates"], unordered=True),
        **t.everything(graph, saver, t.config()),
    }


@case("1.8")
def a_deferred_join_survives_an_interrupt(t: Trial) -> Any:
    saver = t.saver()
    builder = t.builder(
        Both,
        {
            "a1": t.writes(l=["a1"]),
            "b1": t.writes(l=["b1"]),
            "b2": t.writes(l=["b2"]),
            "d": (t.writes(l=["d"]), {"defer": True}),
        },
        [(t.START, "a1"), (t.START, "b1"), ("b1", "b2")],
    )
    builder.add_edge(["a1", "b1"], "d")
    graph = builder.compile(checkpointer=saver, interrupt_before=["b2"])
    return {
        "first": t.invoke(graph, {}, t.config()),
        "then": t.stream(graph, None, t.config(), stream_mode="updates"),
        **t.everything(graph, saver, t.config()),
    }


@case("1.9")
def an_untracked_value_is_in_memory_only(t: Trial) -> Any:
    class State(TypedDict, total=False):
        secret: Annotated[Any, t.UntrackedValue]
        l: Annotated[list, operator.add]

    saver = t.saver()
    look = t.node(lambda state: {"l": [state.get("secret", "gone")]})
    graph = t.graph(
        State,
        {"x": t.writes(secret="s"), "y": look, "z": look},
        [(t.START, "x"), ("x", "y"), ("y", "z")],
        checkpointer=saver,
        interrupt_before=["z"],
    )
    return {
        "out": t.invoke(graph, {}, t.config()),
        "resumed": t.invoke(graph, None, t.config()),
        **t.everything(graph, saver, t.config()),
    }


def _delta_is_whole(ours: Any, theirs: Any) -> None:
    assert ours["out"] == theirs["out"]
    assert ours["state"] == theirs["state"]
    assert ours["kept"] == theirs["out"]["d"]


@case("1.10", differs=_delta_is_whole)
def a_delta_channel_is_stored_whole(t: Trial) -> Any:
    class State(TypedDict, total=False):
        d: Annotated[list, t.DeltaChannel(lambda state, writes: [*(state or []), *writes], list)]

    saver = t.saver()
    graph = t.graph(State, {"x": t.writes(d=1), "y": t.writes(d=2)}, [(t.START, "x"), ("x", "y")], checkpointer=saver)
    out = t.invoke(graph, {"d": 0}, t.config())
    kept = t.stored(saver, t.config())[0]["values"].get("d")
    return {"out": out, "kept": kept, "state": t.state(graph, t.config())["values"]}


@case("2.1")
def a_bare_type_is_a_root_graph(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Annotated[list, operator.add], {"x": t.node(lambda s: [len(s)])}, [(t.START, "x")], checkpointer=saver
    )
    return {
        "stream": t.modes(graph, ["a"], t.config()),
        "again": t.invoke(graph, ["b"], t.config()),
        **t.everything(graph, saver, t.config()),
    }


@dataclass
class Point:
    x: int = 0
    log: Annotated[list, operator.add] = field(default_factory=list)


@case("2.6")
def a_dataclass_is_built_at_every_node(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Point,
        {
            "a": t.node(lambda p: {"x": p.x + 1, "log": [type(p).__name__]}),
            "b": t.node(lambda p: Point(p.x * 2, ["b"])),
        },
        [(t.START, "a"), ("a", "b")],
        checkpointer=saver,
    )
    return {
        "out": t.invoke(graph, Point(3), t.config()),
        "dict": t.invoke(graph, {"x": 5}, t.config("2")),
        "v2": plain_v2(t, graph),
        **t.everything(graph, saver, t.config()),
    }


def plain_v2(t: Trial, graph: Any) -> Any:
    return [
        t.invoke(graph, {"x": 1}, t.config("3"), version="v2"),
        t.stream(graph, {"x": 1}, t.config("4"), version="v2", stream_mode=["values", "updates", "checkpoints"]),
    ]


class Model(BaseModel):
    n: int
    s: str | None = None
    log: Annotated[list, operator.add] = []


@case("2.6")
def a_model_validates_at_every_node(t: Trial) -> Any:
    graph = t.graph(
        Model,
        {"a": t.node(lambda m: {"n": "7", "log": [type(m.n).__name__]}), "b": t.node(lambda m: {"log": [repr(m.n)]})},
        [(t.START, "a"), ("a", "b")],
    )
    return {
        "coerced": t.invoke(graph, {"n": "3"}),
        "model": t.invoke(graph, Model(n=3)),
        "refused": t.error(lambda: t.invoke(graph, {"n": "x"}), 30),
        "v2": t.invoke(graph, {"n": 1}, version="v2"),
    }


@case("2.7")
def a_model_returned_writes_what_was_set(t: Trial) -> Any:
    graph = t.graph(
        Model,
        {"a": t.node(lambda m: Model(n=1)), "b": t.node(lambda m: Model(n=2, s=None))},
        [(t.START, "a"), ("a", "b")],
    )
    return t.stream(graph, {"n": 0, "s": "kept"}, stream_mode=["updates", "values"])


@case("2.7")
def nodes_may_return_none_and_lists_of_commands(t: Trial) -> Any:
    nodes = {
        "x": t.node(lambda s: None),
        "y": t.node(lambda s: [t.Command(update={"l": ["y1"]}), {"l": ["y2"]}, t.Command(update={"a": "y"})]),
    }
    return t.modes(t.graph(Both, nodes, [(t.START, "x"), ("x", "y")]), {"a": "in"})


@case("2.7")
def anything_else_returned_is_refused(t: Trial) -> Any:
    def attempt(value: Any) -> Any:
        graph = t.graph(Both, {"x": t.node(lambda s: value)}, [(t.START, "x")])
        return t.error(lambda: t.invoke(graph, {"a": "in"}), 18)

    return [attempt(value) for value in ("text", 3, ["a"], [{"a": "1"}], ({"a": "1"},), set())]


@case("2.8")
def the_input_is_filtered_and_checked(t: Trial) -> Any:
    class Given(TypedDict, total=False):
        a: str

    saver = t.saver()
    builder = t.StateGraph(Both, input_schema=Given)
    builder.add_node("x", t.node(lambda s: {"l": [sorted(s)]}))
    builder.add_edge(t.START, "x")
    graph = builder.compile(checkpointer=saver)
    return {
        "out": t.invoke(graph, {"a": "1", "l": ["dropped"], "zz": 1}, t.config()),
        "empty": t.invoke(graph, {}, t.config("2")),
        "nothing": t.error(lambda: t.invoke(graph, None, t.config("3")), 10),
        "text": t.error(lambda: t.invoke(graph, "text", t.config("4")), 13),
        **t.everything(graph, saver, t.config()),
    }


@case("2.4")
def private_keys_pass_between_the_nodes_that_name_them(t: Trial) -> Any:
    class Private(TypedDict, total=False):
        hidden: str

    class Out(TypedDict, total=False):
        a: str

    def take(state: Private) -> Any:
        return {"a": state.get("hidden", "none")}

    saver = t.saver()
    builder = t.StateGraph(Both, output_schema=Out)
    builder.add_node("x", t.writes(hidden="h", l=["x"]))
    builder.add_node("y", t.node(take), input_schema=Private)
    builder.add_edge(t.START, "x")
    builder.add_edge("x", "y")
    graph = builder.compile(checkpointer=saver)
    return {
        "out": t.invoke(graph, {"a": "in"}, t.config()),
        "streams": t.modes(graph, {"a": "in"}, t.config("2")),
        "narrow": t.invoke(graph, {"a": "in"}, t.config("3"), output_keys=["l"]),
        "one": t.invoke(graph, {"a": "in"}, t.config("4"), output_keys="l"),
        **t.everything(graph, saver, t.config()),
    }


@case("2.5")
def one_key_in_two_schemas(t: Trial) -> Any:
    class Other(TypedDict, total=False):
        l: str

    class Clash(TypedDict, total=False):
        l: Annotated[list, operator.sub]

    def build(schema: Any) -> Any:
        return t.StateGraph(Both, input_schema=schema) and "built"

    return [t.error(lambda s=schema: build(s), 30) for schema in (Other, Clash)]


@case("2.6")
def mutation_of_the_input_dict_is_not_seen_by_siblings(t: Trial) -> Any:
    def mutate(state: dict) -> Any:
        state["a"] = "changed"
        return {"l": [state["a"]]}

    nodes = {"x": t.node(mutate), "y": t.node(lambda s: {"l": [s["a"]]})}
    return t.invoke(t.graph(Both, nodes, [(t.START, "x"), (t.START, "y")]), {"a": "in"})


@case("2.2")
def annotations_that_are_no_reducers(t: Trial) -> Any:
    class State(TypedDict, total=False):
        d: Annotated[list, operator.add, "doc"]
        r: NotRequired[Annotated[list, operator.add]]

    def three(a: Any, b: Any, c: Any) -> Any: ...

    class Wrong(TypedDict):
        a: Annotated[list, three]

    graph = t.graph(State, {"x": t.writes(d=[2], r=[2])}, [(t.START, "x")])
    return {
        "out": t.invoke(graph, {"d": [1], "r": [1]}),
        "wrong": t.error(lambda: t.StateGraph(Wrong) and 1, 12),
    }


@case("2.10")
def json_schemas(t: Trial) -> Any:
    graphs = [t.graph(schema, {"x": t.writes()}, [(t.START, "x")]) for schema in (Both, Point, Model)]
    return [[sorted(graph.get_input_jsonschema()["properties"]), graph.get_context_jsonschema()] for graph in graphs]
