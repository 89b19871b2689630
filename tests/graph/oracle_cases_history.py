"""Reading and writing state, time travel: sections 12 to 14."""

import itertools
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


def chain(t: Trial, *wanted: str, **compiled: Any) -> Any:
    nodes = names(t, *(wanted or "xyz"))
    path = [t.START, *nodes]
    return t.graph(Log, nodes, list(itertools.pairwise(path)), **compiled)


def at(t: Trial, graph: Any, config: Any, step: int) -> Any:
    """The config of the checkpoint of a step, the oldest one."""
    return [s for s in t.snapshots(graph, config) if s.metadata["step"] == step][-1].config


@case("12.1")
def state_of_unknown_threads_and_without_a_saver(t: Trial) -> Any:
    graph = chain(t, checkpointer=t.saver())
    return {
        "unknown": t.state(graph, t.config("nobody")),
        "history": t.history(graph, t.config("nobody")),
        "no saver": t.error(lambda: t.state(chain(t), t.config()), 19),
        "update": t.error(lambda: t.update(chain(t), t.config(), {}), 19),
        "number": t.invoke(graph, {}, {"configurable": {"thread_id": 7}}),
        "as text": t.state(graph, t.config("7"))["values"],
    }


@case("12.4")
def history_with_limits_and_filters(t: Trial) -> Any:
    graph = chain(t, checkpointer=t.saver())
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    middle = at(t, graph, config, 1)
    return {
        "limit": t.history(graph, config, limit=2),
        "before": t.history(graph, config, before=middle),
        "filter": t.history(graph, config, filter={"source": "input"}),
        "one": t.state(graph, middle),
    }


@case("12.2")
def a_snapshot_of_the_head_and_of_the_past(t: Trial) -> Any:
    saver = t.saver()
    nodes = {"ask": t.node(lambda s: {"l": [t.interrupt("?")]}), **names(t, "ok")}
    graph = t.graph(Log, nodes, [(t.START, "ask"), (t.START, "ok")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {}, config)
    head = t.snapshot(graph, config)
    return {"head": t.state(graph, config), "by id": t.state(graph, head.config), "history": t.history(graph, config)}


@case("13.1")
def an_update_runs_the_writers_of_its_node(t: Trial) -> Any:
    saver = t.saver()
    graph = chain(t, checkpointer=saver, interrupt_before=["y"])
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    t.update(graph, config, {"l": ["by hand"], "a": "new"})
    updated = t.everything(graph, saver, config)
    return {"updated": updated, "on": t.invoke(graph, None, config), **t.everything(graph, saver, config)}


@case("13.1")
def an_update_as_another_node(t: Trial) -> Any:
    saver = t.saver()
    graph = chain(t, checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    t.update(graph, config, {"l": ["by hand"]}, as_node="x")
    updated = t.everything(graph, saver, config)
    return {
        "updated": updated,
        "on": t.stream(graph, None, config, stream_mode="updates"),
        **t.everything(graph, saver, config),
    }


@case("13.1")
def an_update_makes_branches_choose(t: Trial) -> Any:
    saver = t.saver()
    builder = t.builder(Log, names(t, "x", "y", "z"), [(t.START, "x")])
    builder.add_conditional_edges("x", t.node(lambda s: s["a"]), ["y", "z"])
    graph = builder.compile(checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "y"}, config)
    t.update(graph, config, {"a": "z"}, as_node="x")
    return {"next": t.state(graph, config), "on": t.invoke(graph, None, config)}


@case("13.2")
def the_node_of_an_update_is_guessed(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        names(t, "x", "y", "z"),
        [(t.START, "x"), (t.START, "y"), ("x", "z")],
        checkpointer=saver,
        interrupt_before=["z"],
    )
    config = t.config()
    t.invoke(graph, {}, config)
    lone = chain(t, "only", checkpointer=t.saver())
    t.update(lone, config, {"l": ["first"]})
    new = chain(t, checkpointer=t.saver())
    t.update(new, config, {"l": ["first"]})
    return {
        "tie": t.error(lambda: t.update(graph, config, {"l": ["?"]}), 16),
        "unknown": t.error(lambda: t.update(graph, config, {"l": ["?"]}, as_node="nowhere"), 12),
        "only": t.everything(lone, lone.checkpointer, config),
        "unseen": t.everything(new, new.checkpointer, config),
        "on": t.invoke(new, None, config),
    }


@case("13.3")
def updates_as_end_input_and_copy(t: Trial) -> Any:
    saver = t.saver()
    graph = chain(t, checkpointer=saver, interrupt_before=["y"])
    outs = {}
    for as_node, values in (("__end__", None), ("__input__", {"a": "again"}), ("__copy__", None)):
        config = t.config(as_node)
        t.invoke(graph, {"a": "in"}, config)
        t.update(graph, config, values, as_node=as_node)
        outs[as_node] = {**t.everything(graph, saver, config), "on": t.invoke(graph, None, config)}
    return outs


@case("13.4")
def bulk_updates(t: Trial) -> Any:
    saver = t.saver()
    graph = chain(t, checkpointer=saver)
    config = t.config()
    t.do(
        graph,
        "bulk_update_state",
        config,
        [
            [t.StateUpdate({"a": "in"}, "__input__")],
            [t.StateUpdate({"l": ["x1"]}, "x")],
            [t.StateUpdate({"l": ["y1"]}, "y"), t.StateUpdate({"l": ["z1"]}, "z")],
        ],
    )
    return {
        **t.everything(graph, saver, config),
        "empty": t.error(lambda: t.do(graph, "bulk_update_state", config, []), 0),
        "empty step": t.error(lambda: t.do(graph, "bulk_update_state", config, [[]]), 0),
    }


@case("13.5")
def an_update_over_a_pending_question(t: Trial) -> Any:
    saver = t.saver()
    nodes = {"x": t.node(lambda s: {"l": [t.interrupt("?")]}), **names(t, "y")}
    graph = t.graph(Log, nodes, [(t.START, "x"), ("x", "y")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {}, config)
    t.update(graph, config, {"l": ["instead"]}, as_node="x")
    return {"updated": t.everything(graph, saver, config), "on": t.invoke(graph, None, config)}


@case("14.1")
def replay_from_a_checkpoint(t: Trial) -> Any:
    saver = t.saver()
    ran: list[str] = []

    def node(name: str) -> Any:
        def act(state: Any) -> Any:
            ran.append(name)
            return {"l": [name]}

        return t.node(act)

    graph = t.graph(Log, {n: node(n) for n in "xyz"}, [(t.START, "x"), ("x", "y"), ("y", "z")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {}, config)
    del ran[:]
    past = at(t, graph, config, 1)
    replayed = t.stream(graph, None, past, stream_mode=["values", "updates", "checkpoints"])
    final = t.snapshots(graph, config)[0].config
    return {
        "replayed": replayed,
        "ran": ran,
        "final": t.invoke(graph, None, final),
        **t.everything(graph, saver, config),
    }


@case("14.2")
def a_fork_by_update_and_by_input(t: Trial) -> Any:
    saver = t.saver()
    graph = chain(t, checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    past = at(t, graph, config, 1)
    branch = t.update(graph, past, {"l": ["forked"]})
    forked = t.invoke(graph, None, branch)
    state = t.everything(graph, saver, config)
    other = t.invoke(graph, {"a": "other"}, past)
    return {"forked": forked, "state": state, "other": other, **t.everything(graph, saver, config)}


@case("9.11")
def replay_asks_again(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        {"x": t.node(lambda s: {"l": [t.interrupt("?")]}), **names(t, "y")},
        [(t.START, "x"), ("x", "y")],
        checkpointer=saver,
    )
    config = t.config()
    t.invoke(graph, {}, config)
    waiting = t.snapshot(graph, config).config
    t.invoke(graph, t.Command(resume="A"), config)
    asked = t.invoke(graph, None, waiting)
    answered = t.invoke(graph, t.Command(resume="B"), config)
    return {"asked": asked, "answered": answered, **t.everything(graph, saver, config)}


@case("14.5")
def an_answer_at_a_past_checkpoint(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        {"x": t.node(lambda s: {"l": [t.interrupt("?")]}), **names(t, "y")},
        [(t.START, "x"), ("x", "y")],
        checkpointer=saver,
    )
    config = t.config()
    t.invoke(graph, {}, config)
    waiting = t.snapshot(graph, config).config
    t.invoke(graph, t.Command(resume="A"), config)
    other = t.invoke(graph, t.Command(resume="B"), waiting)
    return {"other": other, **t.everything(graph, saver, config)}


@case("14.1")
def an_answer_at_the_head_by_its_id(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log, {"x": t.node(lambda s: {"l": [t.interrupt("1"), t.interrupt("2")]})}, [(t.START, "x")], checkpointer=saver
    )
    config = t.config()
    t.invoke(graph, {}, config)
    t.invoke(graph, t.Command(resume="A"), t.snapshot(graph, config).config)
    return {
        "out": t.invoke(graph, t.Command(resume="B"), t.snapshot(graph, config).config),
        **t.everything(graph, saver, config),
    }


@case("14.3")
def replay_over_a_subgraph(t: Trial) -> Any:
    class Memory(TypedDict, total=False):
        a: str
        own: Annotated[list, operator.add]

    outs = {}
    for kind in (None, True):
        saver = t.saver()
        sub = t.graph(
            Memory,
            {"i": t.node(lambda s: {"own": ["i"], "a": str(len(s["own"]))})},
            [(t.START, "i")],
            checkpointer=kind,
        )
        graph = t.graph(Log, {"x": t.writes(l=["x"]), "sub": sub}, [(t.START, "x"), ("x", "sub")], checkpointer=saver)
        config = t.config()
        t.invoke(graph, {"a": "1"}, config)
        t.invoke(graph, {"a": "2"}, config)
        past = at(t, graph, config, 1)
        replayed = t.stream(graph, None, past, stream_mode=["values", "updates"], subgraphs=True)
        outs[str(kind)] = {"replayed": replayed, **t.everything(graph, saver, config)}
    return outs


@case("14.1")
def replay_of_a_head_that_is_an_update_or_a_fork(t: Trial) -> Any:
    outs = {}
    for kind in ("update", "fork"):
        saver = t.saver()
        ran: list[str] = []

        def two(state: Any, ran: list[str] = ran) -> Any:
            ran.append("ask")
            return {"l": [t.interrupt("1"), t.interrupt("2")]}

        def fine(state: Any, ran: list[str] = ran) -> Any:
            ran.append("fine")
            return {"l": ["fine"]}

        nodes = {"ask": t.node(two), "fine": t.node(fine)}
        graph = t.graph(Log, nodes, [(t.START, "ask"), (t.START, "fine")], checkpointer=saver)
        config = t.config()
        t.invoke(graph, {}, config)
        if kind == "update":
            t.update(graph, config, {"a": "new"}, as_node="__start__")
        else:
            t.invoke(graph, None, t.snapshot(graph, config).config)
        t.invoke(graph, None, config)
        t.invoke(graph, t.Command(resume="A"), config)
        del ran[:]
        replayed = t.stream(graph, None, t.snapshot(graph, config).config, stream_mode="updates", unordered=True)
        outs[kind] = {"replayed": replayed, "ran": sorted(ran), **t.everything(graph, saver, config)}
    return outs
