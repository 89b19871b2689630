"""Retry, cache, timeouts, error handlers; runtime, context and config: sections 16 and 17."""

import asyncio
import operator
from dataclasses import dataclass
from typing import Annotated, Any

from oracle_table import case
from oracle_trial import Trial
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


def failing(t: Trial, error: BaseException, times: int) -> tuple[Any, list[int]]:
    tries = [0]

    def act(state: Any) -> Any:
        tries[0] += 1
        if tries[0] <= times:
            raise error
        return {"l": [f"try {tries[0]}"]}

    return t.node(act), tries


@case("16.1")
def retries_by_policy(t: Trial) -> Any:
    def attempt(error: BaseException, times: int, **policy: Any) -> Any:
        act, tries = failing(t, error, times)
        policies = policy.pop("policies", None) or t.RetryPolicy(initial_interval=0.001, jitter=False, **policy)
        graph = t.graph(Log, {"x": (act, {"retry_policy": policies})}, [(t.START, "x")])
        return [t.error(lambda: t.invoke(graph, {})), tries[0]]

    quick = {"initial_interval": 0.001, "jitter": False}
    return [
        attempt(ConnectionError("net"), 1),
        attempt(ConnectionError("net"), 3),
        attempt(ValueError("value"), 1),
        attempt(ValueError("value"), 1, retry_on=ValueError),
        attempt(ValueError("value"), 1, retry_on=[KeyError, ValueError]),
        attempt(KeyError("key"), 1, retry_on=lambda e: isinstance(e, LookupError)),
        attempt(Exception("plain"), 4, max_attempts=5),
        attempt(
            KeyError("key"),
            2,
            policies=[
                t.RetryPolicy(retry_on=ValueError, **quick),
                t.RetryPolicy(retry_on=KeyError, max_attempts=2, **quick),
            ],
        ),
    ]


@case("16.2")
def the_attempt_is_visible(t: Trial) -> Any:
    seen: list[Any] = []

    def act(state, runtime: t.Runtime):
        seen.append(runtime.execution_info.node_attempt)
        if len(seen) < 3:
            raise ConnectionError("net")
        return {"l": [len(seen)]}

    policy = t.RetryPolicy(initial_interval=0.001, jitter=False)
    saver = t.saver()
    graph = t.graph(Log, {"x": (t.node(act), {"retry_policy": policy})}, [(t.START, "x")], checkpointer=saver)
    return {"out": t.modes(graph, {}, t.config()), "seen": seen, **t.everything(graph, saver, t.config())}


@case("16.3")
def a_cached_node_is_not_run_again(t: Trial) -> Any:
    ran: list[str] = []

    def act(state: Any) -> Any:
        ran.append(state["a"])
        return {"l": [state["a"]]}

    builder = t.builder(Log, {"x": (t.node(act), {"cache_policy": t.CachePolicy()})}, [(t.START, "x")])
    graph = builder.compile(cache=t.cache())
    streams = [t.stream(graph, {"a": given}, stream_mode=["updates", "values"]) for given in ("1", "1", "2")]
    t.do(graph, "clear_cache")
    again = t.invoke(graph, {"a": "1"})
    return {"streams": streams, "again": again, "ran": ran}


@case("16.3")
def a_cache_key_of_ones_own(t: Trial) -> Any:
    ran: list[str] = []

    def act(state: Any) -> Any:
        ran.append(state["a"])
        return {"l": [state["a"]]}

    policy = t.CachePolicy(key_func=lambda state: state["a"][0], ttl=60)
    graph = t.builder(Log, {"x": (t.node(act), {"cache_policy": policy})}, [(t.START, "x")]).compile(cache=t.cache())
    return {"outs": [t.invoke(graph, {"a": given}) for given in ("a1", "a2", "b1")], "ran": ran}


@case("16.4", halves=("async",))
def a_node_runs_out_of_time(t: Trial) -> Any:
    tries = [0]

    async def slow(state: Any) -> Any:
        tries[0] += 1
        await asyncio.sleep(0 if tries[0] > 1 else 5)
        return {"l": ["done"]}

    def graph(**keywords: Any) -> Any:
        tries[0] = 0
        return t.graph(Log, {"x": (slow, {"timeout": 0.02, **keywords})}, [(t.START, "x")])

    retry = t.RetryPolicy(initial_interval=0.001, jitter=False)
    return [
        t.error(lambda: t.invoke(graph(), {}), 40),
        t.error(lambda: t.invoke(graph(retry_policy=retry), {})),
    ]


@case("16.4")
def a_timeout_of_a_sync_node_is_refused(t: Trial) -> Any:
    return t.error(lambda: t.graph(Log, {"x": (lambda s: {}, {"timeout": 1})}, [(t.START, "x")]) and 1, 0)


@case("16.5")
def an_error_handler_takes_the_place_of_its_node(t: Trial) -> Any:
    saver = t.saver()

    def handle(state, error: t.NodeError):
        return t.Command(update={"l": [f"{error.node}: {error.error}"]}, goto="z")

    def fail(state: Any) -> Any:
        raise ArithmeticError("no")

    graph = t.graph(
        Log,
        {"f": (t.node(fail), {"error_handler": t.node(handle)}), **names(t, "y", "z")},
        [(t.START, "f"), ("f", "y")],
        checkpointer=saver,
    )
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode=["values", "updates"], unordered=True),
        **t.everything(graph, saver, t.config()),
    }


@case("16.5")
def a_failing_error_handler_fails_the_run(t: Trial) -> Any:
    def handle(state, error: t.NodeError):
        raise LookupError("handler")

    def fail(state: Any) -> Any:
        raise ArithmeticError("no")

    graph = t.graph(Log, {"f": (t.node(fail), {"error_handler": t.node(handle)})}, [(t.START, "f")])
    return t.error(lambda: t.invoke(graph, {}))


@case("16.6")
def errors_carry_notes(t: Trial) -> Any:
    def fail(state: Any) -> Any:
        raise ArithmeticError("no")

    sub = t.graph(Log, {"f": t.node(fail)}, [(t.START, "f")])
    graph = t.graph(Log, {"sub": sub}, [(t.START, "sub")])
    try:
        t.do(graph, "invoke", {})
    except ArithmeticError as error:
        return [note[:30] for note in getattr(error, "__notes__", [])]
    return "no error"


@case("3.8")
def defaults_of_nodes(t: Trial) -> Any:
    act, tries = failing(t, ConnectionError("net"), 1)
    builder = t.StateGraph(Log)
    builder.set_node_defaults(retry_policy=t.RetryPolicy(initial_interval=0.001, jitter=False))
    builder.add_node("x", act)
    builder.add_edge(t.START, "x")
    return [t.invoke(builder.compile(), {}), tries]


@dataclass
class Context:
    user: str = "nobody"


@case("17.2")
def context_reaches_nodes_and_subgraphs(t: Trial) -> Any:
    def look(state, runtime: t.Runtime):
        return {"l": [getattr(runtime.context, "user", runtime.context)]}

    sub = t.graph(Log, {"i": t.node(look)}, [(t.START, "i")])
    builder = t.StateGraph(Log, context_schema=Context)
    builder.add_node("x", t.node(look))
    builder.add_node("sub", sub)
    builder.add_edge(t.START, "x")
    builder.add_edge("x", "sub")
    graph = builder.compile()
    return [
        t.invoke(graph, {}, context={"user": "dict"}),
        t.invoke(graph, {}, context=Context("object")),
        t.invoke(graph, {}),
    ]


@case("17.1")
def what_runs_can_be_asked_from_anywhere(t: Trial) -> Any:
    def look(state: Any) -> Any:
        runtime = t.get_runtime()
        return {
            "l": [
                t.get_config()["metadata"]["langgraph_node"],
                runtime.execution_info.thread_id,
                t.get_store() is None,
            ]
        }

    graph = t.graph(Log, {"x": t.node(look)}, [(t.START, "x")], checkpointer=t.saver(), store=t.store())
    return [
        t.invoke(graph, {}, t.config()),
        t.error(lambda: t.get_config(), 0),
        t.error(lambda: t.interrupt("?"), 0),
    ]


@case("17.1")
def a_store_is_given_to_nodes(t: Trial) -> Any:
    from langgraph.store.base import BaseStore

    def keep(state, *, store: BaseStore):
        store.put(("memories",), "one", {"text": "hi"})
        return {"l": [store.get(("memories",), "one").value]}

    graph = t.graph(Log, {"x": keep}, [(t.START, "x")], store=t.store())
    without = t.graph(Log, {"x": keep}, [(t.START, "x")])
    return [t.invoke(graph, {}), t.error(lambda: t.invoke(without, {}), 0)]


@case("17.3")
def configs_are_merged(t: Trial) -> Any:
    seen: list[Any] = []

    def look(state, config):
        seen.append(
            {
                "tags": sorted(config.get("tags") or []),
                "metadata": {k: v for k, v in sorted(config["metadata"].items()) if k in ("one", "two", "thread_id")},
                "configurable": {k: config["configurable"].get(k) for k in ("flavour", "size")},
                "limit": config.get("recursion_limit"),
            }
        )
        return {}

    graph = t.graph(Log, {"x": t.node(look)}, [(t.START, "x")]).with_config(
        {
            "tags": ["a"],
            "metadata": {"one": 1, "two": 1},
            "configurable": {"flavour": "mint", "size": 1},
            "recursion_limit": 9,
        }
    )
    t.invoke(graph, {}, {"tags": ["b"], "metadata": {"two": 2}, "configurable": {"size": 2, "thread_id": "t"}})
    t.invoke(graph, {})
    from oracle_normal import plain

    return plain(seen)


def _thread_id_is_named(ours: Any, theirs: Any) -> None:
    assert ours[0]["raised"] == theirs[0]["raised"] == "ValueError"
    assert ours[1]["raised"] == "InvalidRequest"
    assert theirs[1]["raised"] == "KeyError"


@case("17.3", differs=_thread_id_is_named)
def a_missing_thread_id(t: Trial) -> Any:
    graph = t.graph(Log, names(t, "x"), [(t.START, "x")], checkpointer=t.saver())
    return [
        t.error(lambda: t.invoke(graph, {}), 0),
        t.error(lambda: t.invoke(graph, {}, {"configurable": {"other": 1}}), 0),
    ]


@case("3.10")
def batches_and_attributes(t: Trial) -> Any:
    graph = t.graph(Log, names(t, "x"), [(t.START, "x")], name="mine")
    return {
        "batch": [t.do(graph, "batch", [{"a": "1"}, {"a": "2"}])[i]["a"] for i in (0, 1)],
        "nodes": sorted(graph.nodes),
        "channels": sorted(graph.channels),
        "mode": graph.stream_mode,
        "names": [graph.name, graph.with_config({"tags": ["t"]}).name],
    }


@case("3.10", halves=("async",))
def concurrency_is_bounded_by_the_config(t: Trial) -> Any:
    running, most = [0], [0]

    async def act(state: Any) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.005)
        running[0] -= 1
        return {"l": [1]}

    graph = t.graph(Log, {f"n{i}": act for i in range(8)}, [(t.START, f"n{i}") for i in range(8)])
    out = t.invoke(graph, {}, {"max_concurrency": 3})
    return {"out": out, "most": most[0]}
