"""Where runs stop and go on: graphs inside that stop, results that are given back, updates of several nodes."""

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


@case("9.6")
def a_pause_in_a_subgraph_is_shown_by_the_root(t: Trial) -> Any:
    shown = []
    for pause in ({"interrupt_before": ["j"]}, {"interrupt_after": ["i"]}):
        sub = t.graph(Log, names(t, "i", "j"), [(t.START, "i"), ("i", "j")], **pause)
        saver = t.saver()
        graph = t.graph(
            Log,
            {**names(t, "a", "z"), "sub": sub},
            [(t.START, "a"), ("a", "sub"), ("sub", "z")],
            checkpointer=saver,
        )
        modes = ["updates", "values", "tasks"]
        for given in ({}, None):
            shown.append(t.stream(graph, given, t.config(), stream_mode=modes, subgraphs=True))
        shown.append(t.everything(graph, saver, t.config()))
    return shown


@case("9.5")
def siblings_of_a_question_in_a_subgraph(t: Trial) -> Any:
    ask = t.node(lambda s: {"l": [t.interrupt("?")]})
    sub = t.graph(Log, {**names(t, "f"), "ask": ask}, [(t.START, "f"), (t.START, "ask")])
    saver = t.saver()
    graph = t.graph(Log, {**names(t, "z"), "sub": sub}, [(t.START, "sub"), ("sub", "z")], checkpointer=saver)
    return [
        t.stream(graph, {}, t.config("other"), stream_mode="updates", subgraphs=True, unordered=True),
        t.stream(graph, {}, t.config(), stream_mode="values", subgraphs=True),
        t.state(graph, t.config(), subgraphs=True),
        t.invoke(graph, t.Command(resume="A"), t.config()),
    ]


@case("10.4")
def calls_that_are_given_back_are_shown_to_start(t: Trial) -> Any:
    double = t.task(t.node(_double))
    asked = _asking_entrypoint(t, double)
    modes = ["updates", "tasks", "values"]
    return [
        t.stream(asked, 1, t.config(), stream_mode=modes),
        t.stream(asked, t.Command(resume="A"), t.config(), stream_mode=modes),
        t.history(asked, t.config()),
    ]


@case("16.3")
def cached_results_of_calls_are_stored(t: Trial) -> Any:
    double = t.task(cache_policy=t.CachePolicy())(t.node(_double))
    asked = _asking_entrypoint(t, double, cache=t.cache())
    modes = ["updates", "tasks", "values"]
    return [
        [
            t.stream(asked, 1, t.config(thread), stream_mode=modes),
            t.stream(asked, t.Command(resume="A"), t.config(thread), stream_mode=modes),
            t.stored(asked.checkpointer, t.config(thread)),
        ]
        for thread in ("1", "2")
    ]


@case("16.3")
def a_cached_result_beside_a_failure_is_stored(t: Trial) -> Any:
    ran: list[str] = []

    def keep(state: Any) -> Any:
        ran.append("keep")
        return {"l": ["keep"]}

    def fail(state: Any) -> Any:
        ran.append("fail")
        if ran.count("fail") == 2:
            raise ValueError("the second time")
        return {"l": ["fail"]}

    saver = t.saver()
    nodes = {"keep": (t.node(keep), {"cache_policy": t.CachePolicy()}), "fail": t.node(fail), **names(t, "z")}
    edges = [(t.START, "keep"), (t.START, "fail"), ("keep", "z")]
    graph = t.graph(Log, nodes, edges, checkpointer=saver, cache=t.cache())
    t.invoke(graph, {"a": "same"}, t.config("1"))
    return {
        "failed": t.error(lambda: t.invoke(graph, {"a": "same"}, t.config("2"))),
        "waiting": t.state(graph, t.config("2")),
        "forgotten": t.do(graph, "clear_cache"),
        "resumed": t.stream(graph, None, t.config("2"), stream_mode=["updates", "values"], unordered=True),
        "ran": sorted(ran),
        **t.everything(graph, saver, t.config("2")),
    }


@case("9.3")
def an_answer_on_a_thread_that_is_not_there(t: Trial) -> Any:
    """As with a mistyped thread id: a question that nobody has seen is not answered by it."""
    ask = t.node(lambda s: {"l": [t.interrupt("?")]})
    inner = t.graph(Log, {"ask": ask}, [(t.START, "ask")])
    seen = []
    for asking in (ask, inner):
        saver = t.saver()
        graph = t.graph(Log, {**names(t, "a"), "q": asking}, [(t.START, "a"), ("a", "q")], checkpointer=saver)
        for thread, more in (("1", {}), ("2", {"update": {"l": ["u"]}})):
            given = t.Command(resume="early", **more)
            modes = ["updates", "values"]
            seen.append(t.stream(graph, given, t.config(thread), stream_mode=modes, subgraphs=True))
            seen.append(t.everything(graph, saver, t.config(thread)))
    return seen


@case("13.4")
def updates_together_each_name_their_node(t: Trial) -> Any:
    graph = t.graph(Log, names(t, "a", "b"), [(t.START, "a"), ("a", "b")], checkpointer=t.saver())
    t.invoke(graph, {}, t.config())
    updates = [t.StateUpdate({"l": ["u"]}), t.StateUpdate({"l": ["v"]}, "b")]
    return t.error(lambda: t.do(graph, "bulk_update_state", t.config(), [updates]))


def _double(x: int) -> int:
    return 2 * x


def _asking_entrypoint(t: Trial, double: Any, **options: Any) -> Any:
    if t.is_async:

        @t.entrypoint(checkpointer=t.saver(), **options)
        async def asked(x: int) -> Any:
            first = await double(x)
            answer = t.interrupt("?")
            return [first, answer, await double(x)]

    else:

        @t.entrypoint(checkpointer=t.saver(), **options)
        def asked(x: int) -> Any:
            first = double(x).result()
            answer = t.interrupt("?")
            return [first, answer, double(x).result()]

    return asked
