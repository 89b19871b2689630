"""Building graphs, commands, sends: sections 3 and 4."""

import enum
import functools
import operator
from typing import Annotated, Any, Literal

from oracle_table import case
from oracle_trial import Trial
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


@case("3.1")
def names_of_nodes_are_checked(t: Trial) -> Any:
    def build(*adds: Any) -> Any:
        builder = t.StateGraph(Log)
        for add in adds:
            builder.add_node(*add)
        return sorted(builder.nodes)

    f = t.writes()

    def named(state: Any) -> Any:
        return {}

    class Kind(str, enum.Enum):
        ONE = "one"

    return [
        t.error(lambda adds=adds: build(*adds), 14)
        for adds in (
            [("x", f), ("x", f)],
            [("__start__", f)],
            [("__end__", f)],
            [("a|b", f)],
            [("a:b", f)],
            [(named,)],
            [(Kind.ONE, f)],
        )
    ]


@case("3.2")
def actions_of_many_kinds(t: Trial) -> Any:
    class Callable_:
        def __call__(self, state: Any) -> Any:
            return {"l": ["object"]}

        def method(self, state: Any) -> Any:
            return {"l": ["method"]}

    def two(prefix: str, state: Any) -> Any:
        return {"l": [prefix]}

    def chunks(state: Any) -> Any:
        yield {"l": ["first"]}
        yield {"l": ["last"]}

    graph = t.graph(
        Log,
        {
            "o": Callable_(),
            "m": Callable_().method,
            "p": functools.partial(two, "partial"),
            "lam": lambda s: {"l": ["lambda"]},
        },
        [(t.START, "o"), ("o", "m"), ("m", "p"), ("p", "lam")],
    )
    assert chunks
    return t.stream(graph, {}, stream_mode="updates")


@case("3.3")
def parameters_are_injected_by_name(t: Trial) -> Any:
    def one(state, config):
        return {"l": [config["configurable"]["flavour"], config["metadata"]["langgraph_node"]]}

    def two(state, *, writer: t.StreamWriter, runtime: t.Runtime):
        writer("custom")
        return {"l": [type(runtime).__name__, runtime.execution_info.node_attempt]}

    def three(state: Any, config=None, store=None) -> Any:
        return {"l": [store is None]}

    nodes = {"one": t.node(one), "two": t.node(two)}
    graph = t.graph(Log, nodes, [(t.START, "one"), ("one", "two")])
    assert three
    return t.stream(graph, {}, {"configurable": {"flavour": "mint"}}, stream_mode=["updates", "custom"])


@case("3.4")
def edges_are_checked(t: Trial) -> Any:
    def compiled(*edges: Any) -> Any:
        return bool(t.graph(Log, names(t, "x", "y"), edges))

    return [
        t.error(lambda edges=edges: compiled(*edges), 16)
        for edges in (
            [(t.END, "x")],
            [("x", t.START)],
            [(t.START, "x"), ("x", "nowhere")],
            [(t.START, "x"), ("nowhere", "x")],
            [("x", "y")],
            [(t.START, "x"), (["x", "nowhere"], "y")],
            [(t.START, "x"), ("x", "y"), ("x", "y")],
        )
    ]


@case("3.4")
def two_edges_into_a_node_fire_once_a_step(t: Trial) -> Any:
    saver = t.saver()
    edges = [(t.START, "a1"), (t.START, "b1"), ("b1", "b2"), ("a1", "c"), ("b2", "c")]
    graph = t.graph(Log, names(t, "a1", "b1", "b2", "c"), edges, checkpointer=saver)
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode=["values", "updates"], unordered=True),
        **t.everything(graph, saver, t.config()),
    }


@case("3.5")
def branches_by_map_list_and_hint(t: Trial) -> Any:
    def hinted(state: Log) -> Literal["y", "z"]:
        return "z"

    outs = []
    for path, path_map in (
        (lambda s: "go", {"go": "y", "stay": "z"}),
        (lambda s: True, {True: "y", False: t.END}),
        (lambda s: "z", ["y", "z"]),
        (lambda s: ["y", "z"], None),
        (lambda s: t.END, None),
        (hinted, None),
    ):
        builder = t.builder(Log, names(t, "x", "y", "z"), [(t.START, "x")])
        builder.add_conditional_edges("x", t.node(path), *([path_map] if path_map else []))
        outs.append(t.stream(builder.compile(), {}, stream_mode=["values", "updates"], unordered=True))
    return outs


@case("3.5")
def wrong_results_of_branches(t: Trial) -> Any:
    def attempt(result: Any, path_map: Any = None) -> Any:
        builder = t.builder(Log, names(t, "x", "y"), [(t.START, "x")])
        builder.add_conditional_edges("x", t.node(lambda s: result), *([path_map] if path_map else []))
        return t.error(lambda: t.invoke(builder.compile(), {}), 10)

    return [
        attempt("missing", {"go": "y"}),
        attempt(None),
        attempt("__start__"),
        attempt(t.Send("__end__", {})),
        attempt([]),
    ]


@case("3.5")
def a_branch_reads_the_writes_of_its_own_task(t: Trial) -> Any:
    seen: list[Any] = []

    def path(state: Any) -> str:
        seen.append({key: state[key] for key in sorted(state)})
        return t.END

    builder = t.builder(Log, {"x": t.writes(a="x", l=["x"]), "y": t.writes(l=["y"])}, [(t.START, "x"), (t.START, "y")])
    builder.add_conditional_edges("x", path)
    return {"out": t.invoke(builder.compile(), {"l": ["in"]}), "seen": seen}


@case("3.5")
def a_failing_branch_fails_its_task(t: Trial) -> Any:
    saver = t.saver()

    def path(state: Any) -> str:
        raise LookupError("lost")

    builder = t.builder(Log, names(t, "x"), [(t.START, "x")])
    builder.add_conditional_edges("x", path)
    graph = builder.compile(checkpointer=saver)
    return {
        "error": t.error(lambda: t.invoke(graph, {}, t.config())),
        "state": t.state(graph, t.config()),
    }


@case("3.6")
def entry_points_and_sequences(t: Trial) -> Any:
    builder = t.StateGraph(Log)
    builder.add_sequence([("one", t.writes(l=["one"])), ("two", t.writes(l=["two"]))])
    builder.set_entry_point("one")
    builder.set_finish_point("two")

    def sequence(*steps: Any) -> Any:
        return t.StateGraph(Log).add_sequence(list(steps)) and "built"

    other = t.builder(Log, names(t, "x", "y"))
    other.set_conditional_entry_point(t.node(lambda s: "y"), ["x", "y"])
    return [
        t.stream(builder.compile(), {}, stream_mode="updates"),
        t.stream(other.compile(), {}, stream_mode="updates"),
        t.error(lambda: sequence(), 10),
        t.error(lambda: sequence(("x", t.writes()), ("x", t.writes())), 10),
    ]


@case("3.7")
def compile_checks_its_arguments(t: Trial) -> Any:
    builder = t.builder(Log, names(t, "x"), [(t.START, "x")])
    return [
        t.error(lambda: builder.compile(checkpointer="sqlite") and 1, 28),
        t.error(lambda: builder.compile(interrupt_before=["nowhere"]) and 1, 10),
        t.error(lambda: t.StateGraph(Log).compile() and 1, 20),
        builder.compile().name,
        builder.compile(name="mine").name,
        t.error(lambda: t.invoke(builder.compile(checkpointer=True), {}), 16),
    ]


@case("4.1")
def a_command_updates_and_goes_besides_the_edges(t: Trial) -> Any:
    saver = t.saver()
    nodes = names(t, "y", "z")
    nodes["x"] = t.node(lambda s: t.Command(update={"l": ["x"]}, goto="z"))
    graph = t.graph(Log, nodes, [(t.START, "x"), ("x", "y")], checkpointer=saver)
    return {"stream": t.modes(graph, {}, t.config()), **t.everything(graph, saver, t.config())}


@case("4.1")
def forms_of_a_command(t: Trial) -> Any:
    outs = []
    for command in (
        t.Command(update=[("l", ["p"]), ("a", "p")]),
        t.Command(goto=["y", t.Send("z", {"l": ["arg"]})]),
        t.Command(goto=t.END),
        t.Command(),
        t.Command(update={"a": "q"}, goto=t.Send("y", {})),
    ):
        nodes = {**names(t, "y"), "x": t.node(lambda s, c=command: c), "z": t.node(lambda s: {"l": [s]})}
        outs.append(t.modes(t.graph(Log, nodes, [(t.START, "x")]), {}))
    return outs


@case("4.2")
def sends_run_in_order_before_pulled_tasks(t: Trial) -> Any:
    saver = t.saver()

    def fan(state: Any) -> Any:
        return [t.Send("w", {"i": i}) for i in (3, 1, 2)] + ["y"]

    builder = t.builder(
        Log,
        {"x": t.writes(l=["x"]), "w": t.node(lambda arg: {"l": [arg["i"]]}), **names(t, "y", "j")},
        [(t.START, "x"), ("w", "j"), ("y", "j")],
    )
    builder.add_conditional_edges("x", t.node(fan), ["w", "y"])
    graph = builder.compile(checkpointer=saver)
    return {"stream": t.modes(graph, {}, t.config()), **t.everything(graph, saver, t.config())}


@case("4.2")
def sends_of_several_tasks_keep_the_order_of_their_tasks(t: Trial) -> Any:
    def sender(name: str) -> Any:
        return t.node(lambda s: t.Command(goto=[t.Send("w", f"{name}{i}") for i in (1, 2)]))

    nodes = {"b": sender("b"), "a": sender("a"), "w": t.node(lambda arg: {"l": [arg]})}
    saver = t.saver()
    graph = t.graph(Log, nodes, [(t.START, "b"), (t.START, "a")], checkpointer=saver)
    return {"out": t.invoke(graph, {}, t.config()), **t.everything(graph, saver, t.config())}


@case("4.3")
def a_command_as_input(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, names(t, "x", "y"), [(t.START, "x")], checkpointer=saver)
    return {
        "run": t.invoke(graph, {"a": "in"}, t.config()),
        "goto": t.stream(
            graph, t.Command(goto="y", update={"a": "new"}), t.config(), stream_mode=["values", "updates"]
        ),
        "send": t.stream(graph, t.Command(goto=t.Send("y", {})), t.config(), stream_mode=["values", "updates"]),
        "update": t.invoke(graph, t.Command(update={"a": "last"}), t.config()),
        "parent": t.error(lambda: t.invoke(graph, t.Command(graph=t.Command.PARENT, goto="x"), t.config()), 0),
        **t.everything(graph, saver, t.config()),
    }


def _nothing_is_refused(ours: Any, theirs: Any) -> None:
    assert ours["raised"] == "EmptyInputError"
    assert theirs["raised"] == "UnboundLocalError"


@case("4.3", differs=_nothing_is_refused)
def a_command_without_content_as_input(t: Trial) -> Any:
    graph = t.graph(Log, names(t, "x"), [(t.START, "x")], checkpointer=t.saver())
    t.invoke(graph, {"a": "in"}, t.config())
    return t.error(lambda: t.invoke(graph, t.Command(), t.config()), 0)


@case("4.3")
def a_command_as_first_input(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, names(t, "x", "y"), [(t.START, "x")], checkpointer=saver)
    return {
        "goto": t.stream(graph, t.Command(goto="y"), t.config(), stream_mode=["values", "updates"], unordered=True),
        **t.everything(graph, saver, t.config()),
    }


@case("4.4")
def a_command_to_the_parent(t: Trial) -> Any:
    saver = t.saver()
    up = t.node(lambda s: t.Command(graph=t.Command.PARENT, update={"l": ["up"]}, goto="z"))
    sub = t.graph(Log, {"s1": t.writes(l=["s1"]), "s2": up}, [(t.START, "s1"), ("s1", "s2")])
    graph = t.graph(Log, {"sub": sub, **names(t, "y", "z")}, [(t.START, "sub"), ("sub", "y")], checkpointer=saver)
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode=["values", "updates"], subgraphs=True, unordered=True),
        **t.everything(graph, saver, t.config()),
    }


@case("4.4")
def a_command_two_levels_up(t: Trial) -> Any:
    def up(state: Any) -> Any:
        return t.Command(graph=t.Command.PARENT, update={"l": ["up"]}, goto="b2")

    inner = t.graph(Log, {"i": t.node(up)}, [(t.START, "i")])
    middle = t.graph(Log, {"inner": inner, **names(t, "b2")}, [(t.START, "inner")])
    outer = t.graph(Log, {"middle": middle, **names(t, "c")}, [(t.START, "middle"), ("middle", "c")])
    return t.stream(outer, {}, stream_mode=["values", "updates"], subgraphs=True)
