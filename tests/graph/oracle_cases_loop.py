"""Tasks and their order, the loop and its checkpoints, durability, resuming: sections 5 to 8."""

import contextvars
import operator
import threading
import uuid
from typing import Annotated, Any

from oracle_table import case
from oracle_trial import Trial
from typing_extensions import TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str
    n: int


class Count(TypedDict):
    n: Annotated[int, operator.add]


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


def counting(t: Trial, upto: int, **compiled: Any) -> Any:
    """A node that loops until n is reached."""
    builder = t.builder(Count, {"x": t.writes(n=1)}, [(t.START, "x")])
    builder.add_conditional_edges("x", t.node(lambda s: t.END if s["n"] >= upto else "x"), ["x", t.END])
    return builder.compile(**compiled)


@case("5.2")
def tasks_run_by_name_and_are_shown_as_defined(t: Trial) -> Any:
    saver = t.saver()
    nodes = names(t, "s", "z", "m", "a")
    graph = t.graph(
        Log, nodes, [(t.START, "s"), *(("s", n) for n in ("z", "m", "a"))], checkpointer=saver, interrupt_before="*"
    )
    config = t.config()
    first = t.invoke(graph, {}, config)
    second = t.invoke(graph, None, config)
    shown = t.state(graph, config)
    return {
        "first": first,
        "second": second,
        "state": shown,
        "tasks": t.stream(graph, None, config, stream_mode="tasks", interrupt_before=[], unordered=False)[:3],
        **t.everything(graph, saver, config),
    }


@case("5.6")
def the_config_of_a_task(t: Trial) -> Any:
    seen: list[Any] = []

    def look(state, config):
        configurable = config["configurable"]
        shown = {key: configurable[key] for key in sorted(configurable) if not key.startswith("__")}
        seen.append({"metadata": dict(config["metadata"]), "tags": config.get("tags"), "configurable": shown})
        return {}

    graph = t.graph(
        Log,
        {"x": (t.node(look), {"metadata": {"mine": 1}}), "w": t.node(look)},
        [(t.START, "x")],
        checkpointer=t.saver(),
    )
    config = {**t.config(), "metadata": {"user": "u"}, "tags": ["tag"], "run_name": "run"}
    t.invoke(graph, {}, config)
    t.invoke(graph, t.Command(goto=t.Send("w", {})), config)
    from oracle_normal import plain

    return [plain(item) for item in seen]


@case("5.7")
def context_variables_reach_nodes_and_do_not_leak(t: Trial) -> Any:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    def look(state: Any) -> Any:
        seen = variable.get()
        variable.set("by a node")
        return {"l": [seen]}

    graph = t.graph(
        Log, {"x": t.node(look), "y": t.node(look), "z": t.node(look)}, [(t.START, "x"), (t.START, "y"), ("x", "z")]
    )
    token = variable.set("by the caller")
    try:
        out = t.invoke(graph, {})
        return {"out": out, "after": variable.get()}
    finally:
        variable.reset(token)


@case("5.7", halves=("sync",))
def one_task_runs_in_the_thread_of_the_caller(t: Trial) -> Any:
    def look(state: Any) -> Any:
        return {"l": [threading.current_thread() is threading.main_thread()]}

    graph = t.graph(Log, {"x": look, "y": look, "z": look}, [(t.START, "x"), ("x", "y"), ("x", "z")])
    return t.invoke(graph, {})


@case("5.8", halves=("sync",))
def an_async_node_under_invoke_is_refused(t: Trial) -> Any:
    async def later(state: Any) -> Any:
        return {}

    return t.error(lambda: t.graph(Log, {"x": later}, [(t.START, "x")]).invoke({}), 35)


@case("5.8", halves=("async",))
def sync_nodes_run_under_ainvoke(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        {"x": lambda s: {"l": ["x"]}, "y": lambda s: {"l": ["y"]}},
        [(t.START, "x"), (t.START, "y")],
        checkpointer=saver,
    )
    return {"out": t.invoke(graph, {}, t.config()), **t.everything(graph, saver, t.config())}


@case("6.1")
def writes_are_applied_in_the_order_of_names(t: Trial) -> Any:
    import time

    def slow(name: str, seconds: float) -> Any:
        def act(state: Any) -> Any:
            time.sleep(seconds)
            return {"l": [name]}

        return act

    graph = t.graph(Log, {"b": slow("b", 0), "a": slow("a", 0.03)}, [(t.START, "b"), (t.START, "a")])
    return t.invoke(graph, {})


@case("6.6")
def channels_without_a_reader_and_empty_updates(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        {"x": t.writes(), "y": t.node(lambda s: None), "z": t.writes(a="z")},
        [(t.START, "x"), ("x", "y"), ("y", "z")],
        checkpointer=saver,
    )
    return {"stream": t.modes(graph, {"n": 1}, t.config()), **t.everything(graph, saver, t.config())}


@case("7.1")
def a_loop_and_a_second_input_on_the_thread(t: Trial) -> Any:
    saver = t.saver()
    graph = counting(t, 3, checkpointer=saver)
    return {
        "first": t.stream(graph, {"n": 0}, t.config(), stream_mode=["values", "updates", "checkpoints", "tasks"]),
        "second": t.invoke(graph, {"n": -1}, t.config()),
        **t.everything(graph, saver, t.config()),
    }


@case("7.2")
def metadata_of_config_and_configurable_is_stored(t: Trial) -> Any:
    saver = t.saver()
    graph = counting(t, 1, checkpointer=saver)
    config = {**t.config(flavour="mint", n=3), "metadata": {"user": "u", "nested": {"a": 1}}}
    t.invoke(graph, {"n": 0}, config)
    return {"metadata": [item["metadata"] for item in t.stored(saver, config)]}


@case("7.5")
def the_recursion_limit(t: Trial) -> Any:
    def attempt(limit: int) -> Any:
        saver = t.saver()
        graph = counting(t, 3, checkpointer=saver)
        config = {**t.config(), "recursion_limit": limit}
        return {
            "out": t.error(lambda: t.invoke(graph, {"n": 0}, config), 24),
            "next": t.state(graph, config)["next"],
            "kept": len(t.snapshots(graph, config)),
        }

    return [attempt(limit) for limit in (0, 1, 2, 3, 4, 5)]


@case("7.5")
def a_thread_goes_on_after_the_recursion_limit(t: Trial) -> Any:
    saver = t.saver()
    graph = counting(t, 5, checkpointer=saver)
    limited = {**t.config(), "recursion_limit": 2}
    return {
        "stopped": t.error(lambda: t.invoke(graph, {"n": 0}, limited), 24),
        "on": t.stream(graph, None, t.config(), stream_mode=["values", "checkpoints"]),
        **t.everything(graph, saver, t.config()),
    }


@case("7.6")
def remaining_steps_are_counted(t: Trial) -> Any:
    class State(TypedDict, total=False):
        l: Annotated[list, operator.add]
        left: t.RemainingSteps
        last: t.IsLastStep

    builder = t.builder(State, {"x": t.node(lambda s: {"l": [(s["left"], s["last"])]})}, [(t.START, "x")])
    builder.add_conditional_edges("x", t.node(lambda s: t.END if s["last"] else "x"), ["x", t.END])
    graph = builder.compile()
    return t.error(lambda: t.invoke(graph, {}, {"recursion_limit": 4}))


@case("8.1")
def the_three_durabilities(t: Trial) -> Any:
    outs = {}
    for durability in ("sync", "async", "exit"):
        saver = t.saver()
        graph = counting(t, 3, checkpointer=saver)
        outs[durability] = {
            "stream": t.stream(
                graph, {"n": 0}, t.config(), stream_mode=["values", "checkpoints"], durability=durability
            ),
            **t.everything(graph, saver, t.config()),
        }
    return outs


@case("8.1")
def exit_keeps_the_pending_writes_of_a_failed_step(t: Trial) -> Any:
    saver = t.saver()

    def fail(state: Any) -> Any:
        raise ArithmeticError("no")

    graph = t.graph(Log, {"x": t.writes(l=["x"]), "f": t.node(fail)}, [(t.START, "x"), ("x", "f")], checkpointer=saver)
    return {
        "error": t.error(lambda: t.invoke(graph, {}, t.config(), durability="exit")),
        **t.everything(graph, saver, t.config()),
    }


@case("8.3")
def a_failed_step_resumes_without_its_finished_tasks(t: Trial) -> Any:
    saver = t.saver()
    ran: list[str] = []
    fails = [True]

    def node(name: str) -> Any:
        def act(state: Any) -> Any:
            ran.append(name)
            if name == "z" and fails[0]:
                raise ArithmeticError("no")
            return {"l": [name]}

        return t.node(act)

    def slow(state: Any) -> Any:
        import time

        time.sleep(0.05)
        return node("z")(state)

    # The failing task is the last to end, so that its sibling has finished on both engines.
    async def slow_async(state: Any) -> Any:
        import asyncio

        await asyncio.sleep(0.05)
        return await node("z")(state)

    nodes = {"a": node("a"), "z": slow_async if t.is_async else slow, "end": node("end")}
    graph = t.graph(Log, nodes, [(t.START, "a"), (t.START, "z"), ("z", "end")], checkpointer=saver)
    error = t.error(lambda: t.invoke(graph, {}, t.config()))
    before = t.everything(graph, saver, t.config())
    fails[0] = False
    resumed = t.stream(graph, None, t.config(), stream_mode=["values", "updates"], unordered=True)
    return {
        "error": error,
        "before": before,
        "resumed": resumed,
        "ran": sorted(ran),
        **t.everything(graph, saver, t.config()),
    }


@case("8.3")
def a_failed_node_runs_again(t: Trial) -> Any:
    saver = t.saver()
    fails = [True]

    def act(state: Any) -> Any:
        if fails[0]:
            fails[0] = False
            raise ArithmeticError("no")
        return {"l": ["x"]}

    graph = t.graph(Log, {"x": t.node(act), "y": t.writes(l=["y"])}, [(t.START, "x"), ("x", "y")], checkpointer=saver)
    error = t.error(lambda: t.stream(graph, {}, t.config(), stream_mode=["values", "updates", "tasks"]))
    state = t.everything(graph, saver, t.config())
    return {
        "error": error,
        "state": state,
        "on": t.modes(graph, None, t.config()),
        **t.everything(graph, saver, t.config()),
    }


@case("8.3")
def the_same_run_id_resumes(t: Trial) -> Any:
    saver = t.saver()
    ran: list[str] = []
    fails = [True]

    def act(state: Any) -> Any:
        ran.append("x")
        return {"l": ["x"]}

    def last(state: Any) -> Any:
        ran.append("y")
        if fails[0]:
            fails[0] = False
            raise ArithmeticError("no")
        return {"l": ["y"]}

    graph = t.graph(Log, {"x": t.node(act), "y": t.node(last)}, [(t.START, "x"), ("x", "y")], checkpointer=saver)
    run = str(uuid.uuid4())
    config = {**t.config(), "metadata": {"run_id": run}}
    error = t.error(lambda: t.invoke(graph, {}, config))
    out = t.invoke(graph, {}, config)
    return {"error": error, "out": out, "ran": ran}


@case("8.4", halves=("sync",))
def a_failing_task_lets_siblings_finish(t: Trial) -> Any:
    saver = t.saver()

    def fail(state: Any) -> Any:
        import time

        time.sleep(0.05)
        raise ArithmeticError("no")

    graph = t.graph(
        Log, {"ok": t.writes(l=["ok"]), "bad": fail}, [(t.START, "ok"), (t.START, "bad")], checkpointer=saver
    )
    return {
        "error": t.error(lambda: t.invoke(graph, {}, t.config())),
        "state": t.state(graph, t.config()),
        "stored": t.stored(saver, t.config()),
    }


@case("8.9")
def a_run_is_drained(t: Trial) -> Any:
    saver = t.saver()
    control = t.RunControl()

    def stop(state: Any) -> Any:
        control.request_drain("deploy")
        return {"l": ["x"]}

    graph = t.graph(Log, {"x": t.node(stop), "y": t.writes(l=["y"])}, [(t.START, "x"), ("x", "y")], checkpointer=saver)
    error = t.error(lambda: t.invoke(graph, {}, t.config(), control=control))
    state = t.state(graph, t.config())
    return {
        "error": error,
        "state": state,
        "on": t.invoke(graph, None, t.config()),
        **t.everything(graph, saver, t.config()),
    }


def _sync_without_a_saver_runs(ours: Any, theirs: Any) -> None:
    assert ours == {"returned": {"n": 2}}
    assert theirs["raised"] == "AttributeError"


@case("8.1", differs=_sync_without_a_saver_runs)
def durability_sync_without_a_saver(t: Trial) -> Any:
    return t.error(lambda: t.do(counting(t, 2), "invoke", {"n": 0}, durability="sync"))
