"""Corners of all sections: combinations that the other cases leave out."""

import asyncio
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


@case("3.2")
def generators_and_maps_as_nodes(t: Trial) -> Any:
    def chunks(state: Any) -> Any:
        yield {"l": ["first"]}
        yield {"l": ["last"]}

    async def achunks(state: Any) -> Any:
        yield {"l": ["first"]}
        yield {"l": ["last"]}

    several = {"l": lambda s: ["of l"], "a": lambda s: "of a"}
    graph = t.graph(Log, {"g": achunks if t.is_async else chunks, "m": several}, [(t.START, "g"), ("g", "m")])
    return t.stream(graph, {}, stream_mode=["updates", "values"])


@case("3.2")
def objects_with_invoke_as_nodes(t: Trial) -> Any:
    from langchain_core.runnables import RunnableLambda

    graph = t.graph(Log, {"r": RunnableLambda(lambda s: {"l": ["runnable"]})}, [(t.START, "r")])
    return t.stream(graph, {}, stream_mode=["updates", "values"])


def _unfinished_writes_are_not_shown(ours: Any, theirs: Any) -> None:
    # The node has written, its branch asks: the task is not finished, so its writes are no state yet.
    assert ours["asked"].pop("l") == ("list", [])
    assert theirs["asked"].pop("l") == ("list", ["x"])
    assert ours == theirs


@case("9.4", differs=_unfinished_writes_are_not_shown)
def a_branch_may_ask(t: Trial) -> Any:
    saver = t.saver()
    builder = t.builder(Log, names(t, "x", "y", "z"), [(t.START, "x")])
    builder.add_conditional_edges("x", t.node(lambda s: t.interrupt("where?")), ["y", "z"])
    graph = builder.compile(checkpointer=saver)
    asked = t.invoke(graph, {}, t.config())
    waiting = t.state(graph, t.config())
    return {
        "asked": asked,
        "waiting": waiting,
        "answered": t.invoke(graph, t.Command(resume="z"), t.config()),
        **t.everything(graph, saver, t.config()),
    }


@case("10.12")
def custom_and_messages_of_subgraphs(t: Trial) -> Any:
    def talk(state: Any) -> Any:
        t.get_stream_writer()("inside")
        return {"messages": [t.ai("deep", "m1")]}

    sub = t.graph(t.MessagesState, {"i": t.node(talk)}, [(t.START, "i")])
    graph = t.graph(t.MessagesState, {"sub": sub}, [(t.START, "sub")])
    given = {"messages": [t.human("hi", "m0")]}
    modes = ["custom", "messages", "updates"]
    return [
        t.stream(graph, given, stream_mode=modes, subgraphs=True),
        t.stream(graph, given, stream_mode=modes),
        t.stream(graph, given, stream_mode="messages", subgraphs=True),
    ]


@case("10.6")
def debug_of_subgraphs(t: Trial) -> Any:
    sub = t.graph(Log, names(t, "i"), [(t.START, "i")])
    graph = t.graph(Log, {"sub": sub}, [(t.START, "sub")], checkpointer=t.saver())
    return [
        t.stream(graph, {}, t.config(), stream_mode="debug", subgraphs=True),
        t.stream(graph, {}, t.config("2"), stream_mode=["tasks", "checkpoints"], subgraphs=True, version="v2"),
    ]


@case("10.9")
def questions_in_version_2(t: Trial) -> Any:
    graph = t.graph(Log, {"x": t.node(lambda s: {"l": [t.interrupt("?")]})}, [(t.START, "x")], checkpointer=t.saver())
    modes = ["values", "updates", "checkpoints", "tasks"]
    return [
        t.stream(graph, {"a": "in"}, t.config(), stream_mode=modes, version="v2"),
        t.stream(graph, t.Command(resume="A"), t.config(), stream_mode=modes, version="v2"),
        t.invoke(graph, {"a": "again"}, t.config(), version="v2"),
    ]


@case("7.7")
def a_step_runs_out_of_time(t: Trial) -> Any:
    import time

    async def aslow(state: Any) -> Any:
        await asyncio.sleep(2)
        return {}

    def slow(state: Any) -> Any:
        time.sleep(0.2)
        return {}

    graph = t.graph(Log, {"x": aslow if t.is_async else slow}, [(t.START, "x")])
    graph.step_timeout = 0.02
    return t.error(lambda: t.invoke(graph, {}), 0)


@case("8.8", halves=("async",))
def a_cancelled_run_can_go_on(t: Trial) -> Any:
    saver = t.saver()
    entered: list[str] = []

    async def wait(state: Any) -> Any:
        entered.append("x")
        if len(entered) == 1:
            await asyncio.sleep(30)
        return {"l": ["y"]}

    graph = t.graph(Log, {"x": t.writes(l=["x"]), "y": wait}, [(t.START, "x"), ("x", "y")], checkpointer=saver)

    async def story() -> Any:
        running = asyncio.ensure_future(graph.ainvoke({}, t.config()))
        while not entered:
            await asyncio.sleep(0.001)
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            return "cancelled"

    told = t.wait(story())
    state = t.state(graph, t.config())
    return {"told": told, "state": state, "on": t.invoke(graph, None, t.config()), "ran": entered}


@case("8.8", halves=("async",))
def a_node_that_cancels_itself_fails_the_run(t: Trial) -> Any:
    async def cancel(state: Any) -> Any:
        raise asyncio.CancelledError

    return t.error(lambda: t.invoke(t.graph(Log, {"x": cancel}, [(t.START, "x")]), {}), 40)


@case("11.2")
def a_question_in_a_subgraph_without_a_saver(t: Trial) -> Any:
    saver = t.saver()
    ran: list[str] = []

    def one(state: Any) -> Any:
        ran.append("one")
        return {"a": "one"}

    sub = t.graph(
        Log,
        {"i1": t.node(one), "i2": t.node(lambda s: {"a": t.interrupt("?")})},
        [(t.START, "i1"), ("i1", "i2")],
        checkpointer=False,
    )
    graph = t.graph(Log, {"sub": sub}, [(t.START, "sub")], checkpointer=saver)
    outs = [t.invoke(graph, {}, t.config())]
    outs.append(t.error(lambda: t.invoke(graph, t.Command(resume="A"), t.config())))
    return {"outs": outs, "ran": ran, "state": t.state(graph, t.config())}


@case("13.3")
def copies_with_updates(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, names(t, "x", "y"), [(t.START, "x"), ("x", "y")], checkpointer=saver)
    config = t.config()
    t.invoke(graph, {"a": "in"}, config)
    past = next(s for s in t.snapshots(graph, config) if s.metadata["step"] == 1).config
    t.update(graph, past, [({"l": ["copied"]}, "x")], as_node="__copy__")
    return {**t.everything(graph, saver, config), "on": t.invoke(graph, None, config)}


@case("13.2")
def updates_with_ids_of_tasks(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log,
        names(t, "x", "y", "z"),
        [(t.START, "x"), (t.START, "y"), ("x", "z")],
        checkpointer=saver,
        interrupt_before="*",
    )
    config = t.config()
    t.invoke(graph, {}, config)
    tasks = t.snapshot(graph, config).tasks
    updates = [t.StateUpdate({"l": [f"by hand {task.name}"]}, task.name, task.id) for task in tasks]
    t.do(graph, "bulk_update_state", config, [updates])
    return t.everything(graph, saver, config)


@case("15.3")
def tasks_that_call_tasks(t: Trial) -> Any:
    saver = t.saver()
    if t.is_async:

        @t.task
        async def leaf(x: int) -> int:
            return x + 1

        @t.task
        async def stem(x: int) -> int:
            return await leaf(x) + await leaf(x + 1)

        @t.entrypoint(checkpointer=saver)
        async def work(x: int) -> Any:
            return await stem(x)
    else:

        @t.task
        def leaf(x: int) -> int:
            return x + 1

        @t.task
        def stem(x: int) -> int:
            return leaf(x).result() + leaf(x + 1).result()

        @t.entrypoint(checkpointer=saver)
        def work(x: int) -> Any:
            return stem(x).result()

    return {
        "stream": t.stream(work, 1, t.config(), stream_mode="updates", unordered=True),
        **t.everything(work, saver, t.config()),
    }


@case("15.3")
def policies_of_tasks(t: Trial) -> Any:
    tries: list[str] = []
    policy = t.RetryPolicy(initial_interval=0.001, jitter=False)

    def flaky(x: int) -> int:
        tries.append("flaky")
        if len(tries) == 1:
            raise ConnectionError("again")
        return x

    ran: list[int] = []

    def kept(x: int) -> int:
        ran.append(x)
        return x * 10

    task = t.task(retry_policy=policy, name="renamed")(t.node(flaky))
    cached = t.task(cache_policy=t.CachePolicy())(t.node(kept))
    if t.is_async:

        @t.entrypoint(cache=t.cache())
        async def work(x: int) -> Any:
            return [await task(x), await cached(1), await cached(1)]
    else:

        @t.entrypoint(cache=t.cache())
        def work(x: int) -> Any:
            return [task(x).result(), cached(1).result(), cached(1).result()]

    return {
        "stream": t.stream(work, 5, stream_mode="updates"),
        "again": t.invoke(work, 6),
        "tries": tries,
        "ran": ran,
    }


@case("15.4")
def questions_of_parallel_tasks(t: Trial) -> Any:
    saver = t.saver()
    if t.is_async:

        @t.task
        async def ask(x: str) -> Any:
            return t.interrupt(x)

        @t.entrypoint(checkpointer=saver)
        async def work(x: Any) -> Any:
            return list(await asyncio.gather(ask("one"), ask("two")))
    else:

        @t.task
        def ask(x: str) -> Any:
            return t.interrupt(x)

        @t.entrypoint(checkpointer=saver)
        def work(x: Any) -> Any:
            futures = [ask("one"), ask("two")]
            return [future.result() for future in futures]

    config = t.config()
    t.invoke(work, "in", config)
    answers = {question.id: question.value.upper() for question in t.snapshot(work, config).interrupts}
    rounds = [sorted(answers.values())]
    out = t.invoke(work, t.Command(resume=answers), config)
    for _ in range(2):
        pending = t.snapshot(work, config).interrupts
        if not pending:
            break
        answers = {question.id: question.value.upper() for question in pending}
        rounds.append(sorted(answers.values()))
        out = t.invoke(work, t.Command(resume=answers), config)
    return {"out": out, "answered": sorted({answer for one in rounds for answer in one})}


@case("15.1", halves=("async",))
def sync_tasks_in_an_async_entrypoint(t: Trial) -> Any:
    @t.task
    def double(x: int) -> int:
        return x * 2

    @t.entrypoint()
    async def work(x: int) -> Any:
        return [await double(x), await double(x + 1)]

    return t.invoke(work, 2)


@case("15.2")
def an_entrypoint_with_injected_parameters(t: Trial) -> Any:
    def work(x: int, *, writer: t.StreamWriter, config: Any = None, previous: Any = None) -> Any:
        writer(f"custom {x}")
        return [x, previous]

    flow = t.entrypoint(checkpointer=t.saver())(t.node(work))
    return [
        t.stream(flow, 1, t.config(), stream_mode=["custom", "updates", "values"]),
        t.invoke(flow, 2, t.config()),
        t.state(flow, t.config()),
    ]


@case("16.5")
def a_default_error_handler(t: Trial) -> Any:
    def handle(state, error: t.NodeError):
        return {"l": [f"handled {error.node}"]}

    def fail(state: Any) -> Any:
        raise ArithmeticError("no")

    saver = t.saver()
    builder = t.StateGraph(Log)
    builder.set_node_defaults(error_handler=t.node(handle))
    builder.add_node("f", t.node(fail))
    builder.add_node("y", t.writes(l=["y"]))
    builder.add_edge(t.START, "f")
    builder.add_edge("f", "y")
    graph = builder.compile(checkpointer=saver)
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode=["updates", "values"]),
        **t.everything(graph, saver, t.config()),
    }


@case("16.5")
def an_error_handler_after_retries(t: Trial) -> Any:
    tries: list[int] = []

    def fail(state: Any) -> Any:
        tries.append(1)
        raise ConnectionError("no")

    def handle(state, error: t.NodeError):
        return t.Command(goto=t.END, update={"l": [len(tries)]})

    retry = t.RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=2)
    nodes = {"f": (t.node(fail), {"retry_policy": retry, "error_handler": t.node(handle)}), **names(t, "y")}
    graph = t.graph(Log, nodes, [(t.START, "f"), ("f", "y")])
    return t.stream(graph, {}, stream_mode=["updates", "values"])


@case("16.4", halves=("async",))
def timeouts_of_sends_and_idle_nodes(t: Trial) -> Any:
    async def slow(arg: Any) -> Any:
        await asyncio.sleep(5)
        return {}

    async def busy(state, runtime: t.Runtime):
        for _ in range(5):
            await asyncio.sleep(0.15)
            runtime.heartbeat()
        return {"l": ["busy"]}

    sending = t.builder(Log, {"x": t.writes(), "w": slow}, [(t.START, "x")])
    sending.add_conditional_edges("x", lambda s: [t.Send("w", 1, timeout=0.02)], ["w"])
    idle = t.graph(Log, {"b": (busy, {"timeout": t.TimeoutPolicy(idle_timeout=0.5)})}, [(t.START, "b")])
    return [t.error(lambda: t.invoke(sending.compile(), {}), 38), t.invoke(idle, {})]


@case("5.7", halves=("sync",))
def concurrency_of_threads_is_bounded(t: Trial) -> Any:
    import threading
    import time

    running, most, lock = [0], [0], threading.Lock()

    def act(state: Any) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return {"l": [1]}

    graph = t.graph(Log, {f"n{i}": act for i in range(6)}, [(t.START, f"n{i}") for i in range(6)])
    return {"out": t.invoke(graph, {}, {"max_concurrency": 2}), "most": most[0]}


@case("2.10")
def whole_json_schemas(t: Trial) -> Any:
    class Given(TypedDict, total=False):
        n: int

    class Context(TypedDict):
        user: str

    builder = t.StateGraph(Log, Context, input_schema=Given, output_schema=Log)
    builder.add_node("x", t.writes())
    builder.add_edge(t.START, "x")
    graph = builder.compile()
    shown = []
    for schema in (graph.get_input_jsonschema(), graph.get_output_jsonschema(), graph.get_context_jsonschema()):
        shown.append({key: schema[key] for key in ("type", "required") if key in schema})
        shown.append({key: value.get("type") for key, value in schema["properties"].items()})
    return shown


@case("7.8")
def a_thread_of_an_old_format(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log, {"x": t.writes(l=["x"]), "w": t.node(lambda arg: {"l": [arg]})}, [(t.START, "x")], checkpointer=saver
    )
    first = saver.get_next_version(None, None)
    second = saver.get_next_version(first, None)
    checkpoint = {
        "v": 1,
        "id": "1ef4f797-8335-6428-8001-8a1503f9b875",
        "ts": "2024-07-31T20:14:19.804150+00:00",
        "channel_values": {"l": ["old"], "start:x": "__start__"},
        "channel_versions": {"l": second, "start:x": second, "__start__": second},
        "versions_seen": {"__start__": {"__start__": first}, "__input__": {}},
        "pending_sends": [t.Send("w", "sent")],
    }
    metadata = {"source": "loop", "step": 0, "parents": {}}
    saver.put(t.config(checkpoint_ns=""), checkpoint, metadata, checkpoint["channel_versions"])
    return {
        "state": t.state(graph, t.config())["next"],
        "on": t.stream(graph, None, t.config(), stream_mode="updates", unordered=True),
    }


@case("17.3")
def a_graph_inside_inherits_the_config(t: Trial) -> Any:
    seen: list[Any] = []

    def look(state, config):
        seen.append([sorted(config.get("tags") or []), config["metadata"].get("user"), config["configurable"].get("k")])
        return {}

    sub = t.graph(Log, {"i": t.node(look)}, [(t.START, "i")])
    if t.is_async:

        async def call(state: Any) -> Any:
            await sub.ainvoke({}, {"tags": ["inner"], "metadata": {"user": "inner"}})
            return {}
    else:

        def call(state: Any) -> Any:
            sub.invoke({}, {"tags": ["inner"], "metadata": {"user": "inner"}})
            return {}

    graph = t.graph(Log, {"x": call, "sub": sub}, [(t.START, "x"), ("x", "sub")])
    t.invoke(graph, {}, {"tags": ["outer"], "metadata": {"user": "outer"}, "configurable": {"k": 1}})
    from oracle_normal import plain

    return plain(seen)


@case("12.3")
def a_snapshot_shows_errors_and_results(t: Trial) -> Any:
    import time

    saver = t.saver()

    def fail(state: Any) -> Any:
        time.sleep(0.05)
        raise ArithmeticError("no")

    async def afail(state: Any) -> Any:
        await asyncio.sleep(0.05)
        raise ArithmeticError("no")

    graph = t.graph(
        Log,
        {"f": afail if t.is_async else fail, **names(t, "ok")},
        [(t.START, "f"), (t.START, "ok")],
        checkpointer=saver,
    )
    error = t.error(lambda: t.invoke(graph, {}, t.config()))
    return {"error": error, **t.everything(graph, saver, t.config())}


@case("4.4")
def a_command_to_the_parent_with_sends(t: Trial) -> Any:
    def up(state: Any) -> Any:
        return t.Command(graph=t.Command.PARENT, goto=[t.Send("w", {"i": i}) for i in (1, 2)])

    sub = t.graph(Log, {"s": t.node(up)}, [(t.START, "s")])
    saver = t.saver()
    graph = t.graph(
        Log, {"sub": sub, "w": t.node(lambda arg: {"l": [arg["i"]]})}, [(t.START, "sub")], checkpointer=saver
    )
    return {"out": t.modes(graph, {}, t.config()), **t.everything(graph, saver, t.config())}


@case("4.4")
def a_command_to_the_parent_from_a_called_graph(t: Trial) -> Any:
    sub = t.graph(
        Log,
        {"s": t.node(lambda s: t.Command(graph=t.Command.PARENT, update={"l": ["up"]}, goto="y"))},
        [(t.START, "s")],
    )
    if t.is_async:

        async def call(state: Any) -> Any:
            await sub.ainvoke({})
            return {"l": ["never"]}
    else:

        def call(state: Any) -> Any:
            sub.invoke({})
            return {"l": ["never"]}

    graph = t.graph(Log, {"x": call, **names(t, "y")}, [(t.START, "x")])
    return t.modes(graph, {})


@case("1.9")
def untracked_keys_of_sends_are_not_stored(t: Trial) -> Any:
    class State(TypedDict, total=False):
        secret: Annotated[Any, t.UntrackedValue]
        l: Annotated[list, operator.add]

    saver = t.saver()
    builder = t.builder(
        State, {"x": t.writes(), "w": t.node(lambda arg: {"l": [arg.get("secret"), arg["i"]]})}, [(t.START, "x")]
    )
    builder.add_conditional_edges("x", t.node(lambda s: [t.Send("w", {"secret": "s", "i": 1})]), ["w"])
    graph = builder.compile(checkpointer=saver)
    return {"out": t.invoke(graph, {}, t.config()), "stored": t.stored(saver, t.config())}


@case("6.8")
def new_input_discards_what_was_next(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(Log, names(t, "x", "y"), [(t.START, "x"), ("x", "y")], checkpointer=saver, interrupt_before=["y"])
    t.invoke(graph, {"a": "1"}, t.config())
    return {"again": t.invoke(graph, {"a": "2"}, t.config()), **t.everything(graph, saver, t.config())}


@case("3.9")
def hints_of_commands_are_checked(t: Trial) -> Any:
    from typing import Literal, Optional, Union

    def good(state: Log) -> Union[t.Command[Literal["y"]], dict]:  # noqa: UP007 - the form that is tested
        return t.Command(goto="y")

    def bad(state: Log) -> Optional[t.Command[Literal["nowhere"]]]:  # noqa: UP045 - the form that is tested
        return None

    fine = t.graph(Log, {"x": good, **names(t, "y")}, [(t.START, "x")]) if not t.is_async else None
    return [
        t.stream(fine, {}, stream_mode="updates") if fine else "sync nodes",
        t.error(lambda: t.graph(Log, {"x": bad}, [(t.START, "x")]) and 1, 12),
    ]
