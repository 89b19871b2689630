"""Graphs inside graphs: section 11."""

import operator
from typing import Annotated, Any

from oracle_table import case
from oracle_trial import Trial
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


class Inner(TypedDict, total=False):
    a: str
    own: str


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


def inner(t: Trial, **compiled: Any) -> Any:
    nodes = {"i1": t.writes(own="o"), "i2": t.node(lambda s: {"a": s.get("a", "") + s["own"]})}
    return t.graph(Inner, nodes, [(t.START, "i1"), ("i1", "i2")], **compiled)


def asking(t: Trial, **compiled: Any) -> Any:
    nodes = {"i1": t.writes(own="o"), "i2": t.node(lambda s: {"a": s.get("a", "") + t.interrupt("?")})}
    return t.graph(Inner, nodes, [(t.START, "i1"), ("i1", "i2")], **compiled)


def calling(t: Trial, graph: Any, times: int = 1) -> Any:
    """A node whose function calls a graph."""
    if t.is_async:

        async def acall(state: Any) -> Any:
            outs = [(await graph.ainvoke({"a": state.get("a", "")}))["a"] for _ in range(times)]
            return {"l": outs}

        return acall
    return lambda state: {"l": [graph.invoke({"a": state.get("a", "")})["a"] for _ in range(times)]}


@case("11.1")
def a_graph_as_a_node_shares_keys(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        {"x": t.writes(a="x"), "sub": inner(t), **names(t, "y")},
        [(t.START, "x"), ("x", "sub"), ("sub", "y")],
        checkpointer=saver,
    )
    modes = ["values", "updates", "tasks", "checkpoints"]
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode=modes, subgraphs=True),
        "without": t.stream(graph, {}, t.config("2"), stream_mode=modes),
        **t.everything(graph, saver, t.config()),
    }


@case("11.1")
def a_shared_reducer_is_reduced_twice(t: Trial) -> Any:
    sub = t.graph(Log, names(t, "s"), [(t.START, "s")])
    graph = t.graph(Log, {"sub": sub}, [(t.START, "sub")])
    return t.stream(graph, {"l": ["in"]}, stream_mode=["values", "updates"], subgraphs=True)


@case("11.1")
def a_graph_called_in_a_function(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": calling(t, inner(t))}, [(t.START, "x")], checkpointer=saver)
    return {
        "stream": t.stream(graph, {"a": "in"}, t.config(), stream_mode=["values", "updates"], subgraphs=True),
        **t.everything(graph, saver, t.config()),
    }


@case("11.3")
def several_calls_in_one_task(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": calling(t, inner(t), 3)}, [(t.START, "x")], checkpointer=saver)
    return {
        "stream": t.stream(graph, {"a": "in"}, t.config(), stream_mode="updates", subgraphs=True),
        **t.everything(graph, saver, t.config()),
    }


@case("11.2")
def a_subgraph_with_a_state_of_its_own(t: Trial) -> Any:
    class Memory(TypedDict, total=False):
        a: str
        own: Annotated[list, operator.add]

    saver = t.saver()
    sub = t.graph(
        Memory,
        {"i": t.node(lambda s: {"own": [s["a"]], "a": f"seen {len(s['own'])}"})},
        [(t.START, "i")],
        checkpointer=True,
    )
    graph = t.graph(Log, {"sub": sub}, [(t.START, "sub")], checkpointer=saver)
    outs = [t.invoke(graph, {"a": f"in{i}"}, t.config()) for i in range(3)]
    return {"outs": outs, **t.everything(graph, saver, t.config())}


@case("11.2")
def a_subgraph_without_a_saver(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"sub": inner(t, checkpointer=False)}, [(t.START, "sub")], checkpointer=saver)
    return {"out": t.invoke(graph, {"a": "in"}, t.config()), **t.everything(graph, saver, t.config())}


@case("9.8")
def a_question_in_a_subgraph(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"sub": asking(t), **names(t, "y")}, [(t.START, "sub"), ("sub", "y")], checkpointer=saver)
    config = t.config()
    asked = t.stream(graph, {"a": "in"}, config, stream_mode=["values", "updates"], subgraphs=True)
    waiting = t.everything(graph, saver, config)
    deep = t.state(graph, config, subgraphs=True)
    answered = t.stream(graph, t.Command(resume="A"), config, stream_mode=["values", "updates"], subgraphs=True)
    return {
        "asked": asked,
        "waiting": waiting,
        "deep": deep,
        "answered": answered,
        **t.everything(graph, saver, config),
    }


def _the_answer_that_was_taken_is_withdrawn(ours: Any, theirs: Any) -> None:
    # The node could ask again after the graph that it calls: the answer that was taken must not be found a second time.
    def answers(observed: Any) -> list[Any]:
        writes = [("list", ["NULL-TASK", "__resume__", answer]) for answer in (None, "B")]
        return [item["writes"].pop(place) for item in observed["stored"] for place in _places(item["writes"], writes)]

    assert [one[1][2] for one in answers(ours)] == [None]
    assert [one[1][2] for one in answers(theirs)] == ["B"]
    assert ours == theirs


def _places(items: list[Any], wanted: list[Any]) -> list[int]:
    return [place for place, item in enumerate(items) if item in wanted]


@case("9.8", differs=_the_answer_that_was_taken_is_withdrawn)
def a_question_in_a_called_subgraph(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"x": calling(t, asking(t), 2)}, [(t.START, "x")], checkpointer=saver)
    config = t.config()
    outs = [t.invoke(graph, {"a": "in"}, config)]
    outs.append(t.state(graph, config, subgraphs=True))
    outs.append(t.invoke(graph, t.Command(resume="A"), config))
    outs.append(t.invoke(graph, t.Command(resume="B"), config))
    return {"outs": outs, **t.everything(graph, saver, config)}


@case("9.8")
def questions_of_parallel_subgraphs_by_id(t: Trial) -> Any:
    class Two(TypedDict, total=False):
        one: str
        two: str

    def sub(key: str) -> Any:
        return t.graph(Two, {"q": t.node(lambda s: {key: t.interrupt(key)})}, [(t.START, "q")])

    class Result(TypedDict, total=False):
        l: Annotated[list, operator.add]

    def part(key: str) -> Any:
        graph = sub(key)
        if t.is_async:

            async def acall(state: Any) -> Any:
                return {"l": [(await graph.ainvoke({}))[key]]}

            return acall
        return lambda state: {"l": [graph.invoke({})[key]]}

    saver = t.saver()
    graph = t.graph(Result, {"p": part("one"), "q": part("two")}, [(t.START, "p"), (t.START, "q")], checkpointer=saver)
    config = t.config()
    asked = t.invoke(graph, {}, config)
    answers = {question.id: question.value.upper() for question in t.snapshot(graph, config).interrupts}
    return {
        "asked": asked,
        "out": t.invoke(graph, t.Command(resume=answers), config),
        **t.everything(graph, saver, config),
    }


@case("11.5")
def the_state_of_a_subgraph_through_its_parent(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"sub": asking(t)}, [(t.START, "sub")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    below = t.snapshot(graph, config).tasks[0].state
    shown = t.state(graph, below)
    history = t.history(graph, below)
    t.update(graph, below, {"own": "changed"})
    return {
        "shown": shown,
        "history": history,
        "changed": t.state(graph, config, subgraphs=True),
        "answered": t.invoke(graph, t.Command(resume="A"), config),
        "missing": t.error(lambda: t.state(graph, t.config(checkpoint_ns="nowhere:1")), 8),
    }


@case("11.4")
def subgraphs_are_found(t: Trial) -> Any:
    sub = inner(t)
    deeper = t.graph(Log, {"mid": sub}, [(t.START, "mid")])
    graph = t.graph(Log, {"sub": sub, "deep": deeper, "called": calling(t, sub)}, [(t.START, "sub"), ("sub", "deep")])
    return [
        [name for name, _ in graph.get_subgraphs()],
        [name for name, _ in graph.get_subgraphs(recurse=True)],
        [name for name, _ in graph.get_subgraphs(namespace="deep")],
    ]


@case("11.6")
def a_graph_called_with_its_own_thread(t: Trial) -> Any:
    saver, other = t.saver(), t.saver()
    sub = inner(t, checkpointer=other)
    own = {"configurable": {"thread_id": "own"}}
    if t.is_async:

        async def call(state: Any) -> Any:
            return {"l": [(await sub.ainvoke({"a": "z"}, own))["a"]]}
    else:

        def call(state: Any) -> Any:
            return {"l": [sub.invoke({"a": "z"}, own)["a"]]}

    graph = t.graph(Log, {"x": call}, [(t.START, "x")], checkpointer=saver)
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode="updates", subgraphs=True),
        "parent": t.stored(saver, t.config()),
        "own": t.stored(other, own),
    }


@case("11.7")
def errors_in_subgraphs_carry_their_type(t: Trial) -> Any:
    def fail(state: Any) -> Any:
        raise ArithmeticError("deep")

    saver = t.saver()
    sub = t.graph(Inner, {"i1": t.writes(own="o"), "f": t.node(fail)}, [(t.START, "i1"), ("i1", "f")])
    graph = t.graph(Log, {"sub": sub}, [(t.START, "sub")], checkpointer=saver)
    error = t.error(lambda: t.invoke(graph, {"a": "in"}, t.config()))
    return {"error": error, "state": t.state(graph, t.config(), subgraphs=True), "stored": t.stored(saver, t.config())}


@case("11.1")
def a_subgraph_in_a_loop_starts_fresh(t: Trial) -> Any:
    class State(TypedDict, total=False):
        n: Annotated[int, operator.add]
        a: str

    saver = t.saver()
    sub = t.graph(Inner, {"i": t.node(lambda s: {"a": s.get("a", "") + ".", "own": "o"})}, [(t.START, "i")])
    builder = t.builder(State, {"x": t.writes(n=1), "sub": sub}, [(t.START, "x"), ("x", "sub")])
    builder.add_conditional_edges("sub", t.node(lambda s: t.END if s["n"] > 2 else "x"), ["x", t.END])
    graph = builder.compile(checkpointer=saver)
    return {"out": t.invoke(graph, {"a": ""}, t.config()), **t.everything(graph, saver, t.config())}


@case("8.1")
def durability_exit_with_subgraphs(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, {"sub": asking(t)}, [(t.START, "sub")], checkpointer=saver)
    config = t.config()
    asked = t.invoke(graph, {"a": "in"}, config, durability="exit")
    waiting = t.everything(graph, saver, config)
    return {
        "asked": asked,
        "waiting": waiting,
        "answered": t.invoke(graph, t.Command(resume="A"), config, durability="exit"),
        **t.everything(graph, saver, config),
    }
