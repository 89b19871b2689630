"""Single sentences of the specification that no other case shows by itself."""

import enum
import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from langgraph.checkpoint.memory import InMemorySaver
from oracle_normal import version_number
from oracle_table import case
from oracle_trial import Trial
from typing_extensions import NotRequired, Required, TypedDict


class Log(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: str


def names(t: Trial, *wanted: str) -> dict[str, Any]:
    return {name: t.writes(l=[name]) for name in wanted}


# -- channels and schemas


@case("1.1", halves=("sync",))
def channels_are_compared_by_their_declaration(t: Trial) -> Any:
    def plus(left: Any, right: Any) -> Any:
        return left + right

    made: list[Any] = [
        t.LastValue(int),
        t.LastValue(str),
        t.AnyValue(int),
        t.EphemeralValue(int),
        t.EphemeralValue(int, guard=False),
        t.UntrackedValue(int),
        t.Topic(int),
        t.Topic(int, accumulate=True),
        t.NamedBarrierValue(str, {"a", "b"}),
        t.NamedBarrierValue(str, {"a", "c"}),
        t.BinaryOperatorAggregate(list, operator.add),
        t.BinaryOperatorAggregate(list, plus),
        t.BinaryOperatorAggregate(list, lambda left, right: left),
        t.BinaryOperatorAggregate(list, lambda left, right: right),
    ]
    filled = t.LastValue(int)
    filled.update([5])
    return {"table": [[one == other for other in made] for one in made], "value": filled == made[0]}


@case("1.1", halves=("sync",))
def a_channel_is_empty_until_it_is_written(t: Trial) -> Any:
    found = []
    for channel in (t.LastValue(int), t.Topic(int), t.EphemeralValue(int), t.AnyValue(int)):
        empty = channel.from_checkpoint(t.MISSING)
        before = (empty.is_available(), t.error(empty.get), empty.checkpoint() is t.MISSING)
        changed = empty.update([1])
        copied = empty.from_checkpoint(empty.checkpoint())
        found.append([before[0], before[1], changed, copied.get(), empty.consume(), empty.finish(), empty.update([])])
    return found


@case("1.4")
def abstract_and_qualified_types_have_empty_values(t: Trial) -> Any:
    class State(TypedDict):
        seq: Annotated[Sequence[str], operator.add]
        table: Annotated[Mapping[str, int], lambda left, right: {**left, **right}]
        needed: Required[Annotated[list, operator.add]]
        spare: Annotated[NotRequired[list], operator.add]
        number: Annotated[int, operator.add]

    graph = t.graph(State, {"x": t.writes(seq=["s"], table={"k": 1}, number=2)}, [(t.START, "x")])
    return t.stream(graph, {"number": 1}, stream_mode="values")


@case("1.6", halves=("sync",))
def a_topic_gives_new_lists_and_reads_old_checkpoints(t: Trial) -> Any:
    topic = t.Topic(int).from_checkpoint(t.MISSING)
    topic.update([1, [2, 3]])
    given = topic.get()
    given.append(9)
    return [topic.get(), t.Topic(int).from_checkpoint((set(), [4, 5])).get(), topic.update([]), t.error(topic.get)]


@case("1.7", halves=("sync",))
def a_barrier_refuses_names_it_does_not_wait_for(t: Trial) -> Any:
    barrier = t.NamedBarrierValue(str, {"a", "b"}).from_checkpoint(t.MISSING)
    seen = [barrier.update(["a"]), barrier.is_available(), barrier.consume(), barrier.update(["a"])]
    seen += [barrier.update(["b"]), barrier.is_available(), barrier.consume(), barrier.is_available()]
    return [*seen, t.error(lambda: barrier.update(["c"]))]


@case("2.3", halves=("sync",))
def deprecated_keywords_of_a_graph_warn(t: Trial) -> Any:
    class Given(TypedDict):
        a: str

    def made(**options: Any) -> Any:
        builder = t.StateGraph(Log, **options)
        builder.add_node("x", t.writes(l=["x"]))
        builder.add_edge(t.START, "x")
        return builder.compile().invoke({"a": "in", "l": ["given"]})

    return [t.warned(lambda key=key: made(**{key: Given})) for key in ("input", "output", "config_schema")]


@case("2.3", halves=("sync",))
def managed_values_are_no_input_or_output(t: Trial) -> Any:
    class Managed(TypedDict):
        left: t.RemainingSteps  # type: ignore[name-defined]

    return [
        t.error(lambda key=key: t.StateGraph(Log, **{key: Managed}), 12) for key in ("input_schema", "output_schema")
    ]


@case("2.9")
def output_keys_narrow_what_is_returned_and_streamed(t: Trial) -> Any:
    class Out(TypedDict):
        l: Annotated[list, operator.add]

    builder = t.builder(Log, {"x": t.writes(l=["x"], a="x")}, [(t.START, "x")], output_schema=Out)
    graph = builder.compile()
    return {
        "invoke": t.invoke(graph, {}),
        "stream": t.stream(graph, {}, stream_mode=["values", "updates"]),
        "narrowed": t.invoke(graph, {}, output_keys=["a"]),
        "one": t.invoke(graph, {}, output_keys="a"),
        "narrowed stream": t.stream(graph, {}, stream_mode=["values", "updates"], output_keys=["a"]),
        "unknown": type(_raised(lambda: t.invoke(graph, {}, output_keys=["no"]))).__name__,
    }


def _raised(call: Any) -> Any:
    try:
        return call()
    except Exception as error:
        return error


@case("3.1")
def members_of_an_enum_are_names(t: Trial) -> Any:
    class Step(str, enum.Enum):
        FIRST = "first"
        SECOND = "second"

    builder = t.StateGraph(Log)
    builder.add_node(Step.FIRST, t.node(lambda s: t.Command(update={"l": ["first"]}, goto=Step.SECOND)))
    builder.add_node(Step.SECOND, t.writes(l=["second"]))
    builder.add_edge(t.START, Step.FIRST)
    return t.stream(builder.compile(), {}, stream_mode=["updates", "values"])


# -- commands, tasks


@case("4.1", halves=("sync",))
def commands_and_sends_are_values(t: Trial) -> Any:
    sends = [t.Send("x", 1), t.Send("x", 1), t.Send("y", 1), t.Send("x", 2)]
    command = t.Command(update={"a": 1}, goto="x")
    return {
        "sends": [one == sends[0] for one in sends],
        "hashes": [hash(one) == hash(sends[0]) for one in sends],
        "repr": [repr(sends[0]), repr(command), repr(t.Command()), repr(t.Command(resume="r", graph="g"))],
        "frozen": type(_raised(lambda: setattr(command, "goto", "y"))).__name__,
        "keywords only": type(_raised(lambda: t.Command("g"))).__name__,
        "parent": t.Command.PARENT,
    }


@case("4.5")
def a_list_of_commands_is_applied_in_order(t: Trial) -> Any:
    many = [t.Command(update={"l": [1]}, goto="y"), {"l": [2]}, t.Command(update={"l": [3]}, goto=[t.Send("z", {})])]
    graph = t.graph(Log, {"x": t.node(lambda s: many), **names(t, "y", "z")}, [(t.START, "x")])
    return t.stream(graph, {}, stream_mode=["updates", "values"], unordered=True)


@case("5.3")
def a_task_names_all_triggers_of_its_node(t: Trial) -> Any:
    graph = t.graph(
        Log,
        names(t, "a", "b", "c", "d"),
        [(t.START, "b"), (t.START, "a"), (["a", "b"], "c"), ("a", "c"), (["b", "c"], "d"), ("c", "d")],
    )
    return t.stream(graph, {}, stream_mode="tasks", unordered=True)


class Recording(InMemorySaver):
    """LangGraph's saver, noting what either engine hands to it."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[Any] = []
        self.writes_put: list[Any] = []

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        versions = {name: version_number(version) for name, version in sorted(new_versions.items())}
        has_parent = "checkpoint_id" in config["configurable"]
        self.puts.append([metadata["source"], metadata["step"], has_parent, versions, checkpoint["v"]])
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        # LangGraph goes through edges in the order of a set.
        self.writes_put.append([sorted(name for name, _ in writes), task_path])
        super().put_writes(config, writes, task_id, task_path)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.put_writes(config, writes, task_id, task_path)

    def told(self) -> Any:
        return {"puts": self.puts, "writes": sorted(self.writes_put, key=repr)}


@case("5.5")
def writes_are_handed_over_with_the_path_of_their_task(t: Trial) -> Any:
    saver = Recording()
    builder = t.builder(Log, {**names(t, "a", "b", "z"), "n": t.node(lambda s: None)}, [(t.START, "a"), (t.START, "b")])
    builder.add_conditional_edges("b", t.node(lambda s: [t.Send("z", {}), t.Send("z", {}), t.Send("n", {})]))
    graph = builder.compile(checkpointer=saver)
    t.invoke(graph, {}, t.config(), durability="sync")
    return saver.told()


@case("7.4")
def a_put_names_the_channels_that_moved(t: Trial) -> Any:
    found = []
    for durability in ("sync", "exit"):
        saver = Recording()
        graph = t.graph(
            Log,
            {**names(t, "a", "b"), "ask": t.node(lambda s: {"a": t.interrupt("?")})},
            [(t.START, "a"), ("a", "ask"), ("ask", "b")],
            checkpointer=saver,
        )
        t.invoke(graph, {"l": ["in"]}, t.config(), durability=durability)
        t.invoke(graph, t.Command(resume="yes"), t.config(), durability=durability)
        t.update(graph, t.config(), {"l": ["by hand"]}, as_node="a")
        found.append(saver.told())
    return found


@case("8.2")
def what_is_put_for_failures_and_questions(t: Trial) -> Any:
    def fail(state: Any) -> Any:
        raise ValueError("no")

    found = []
    for nodes in ({"x": t.node(fail)}, {"x": t.node(lambda s: {"l": [t.interrupt("1"), t.interrupt("2")]})}):
        saver = Recording()
        graph = t.graph(Log, nodes, [(t.START, "x")], checkpointer=saver)
        ends = [t.error(lambda graph=graph: t.invoke(graph, {}, t.config(), durability="sync"))]
        if "returned" in ends[0]:
            ends.append(t.invoke(graph, t.Command(resume=1), t.config(), durability="sync"))
        found.append({**saver.told(), "ends": ends})
    return found


@case("8.5")
def writes_of_commands_on_one_checkpoint_add_up(t: Trial) -> Any:
    saver = t.saver()
    graph = t.graph(
        Log, {"x": t.node(lambda s: {"l": [t.interrupt("?")]}), **names(t, "y")}, [(t.START, "x")], checkpointer=saver
    )
    t.invoke(graph, {"l": ["in"]}, t.config())
    told = [t.invoke(graph, t.Command(update={"l": [number]}), t.config()) for number in range(2)]
    return {"told": told, "state": t.state(graph, t.config()), "stored": t.stored(saver, t.config())}


class Forgetful(InMemorySaver):
    """A saver of an older contract: no pending writes, and no paths of tasks."""

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        return found._replace(pending_writes=None) if found is not None else None

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    def put_writes(self, config: Any, writes: Any, task_id: str) -> None:  # type: ignore[override]
        super().put_writes(config, writes, task_id)

    async def aput_writes(self, config: Any, writes: Any, task_id: str) -> None:  # type: ignore[override]
        self.put_writes(config, writes, task_id)


@case("8.6 8.7")
def a_saver_of_an_older_contract(t: Trial) -> Any:
    graph = t.graph(
        Log, names(t, "x", "y"), [(t.START, "x"), ("x", "y")], checkpointer=Forgetful(), interrupt_before=["y"]
    )
    first = t.invoke(graph, {}, t.config())
    return [first, t.state(graph, t.config())["next"], t.invoke(graph, None, t.config())]


# -- streams, states, defer


@case("10.1")
def an_unknown_mode_shows_nothing(t: Trial) -> Any:
    graph = t.graph(Log, names(t, "x"), [(t.START, "x")])
    modes: list[Any] = ["nothing", ["nothing", "updates"]]
    return [t.error(lambda mode=mode: t.stream(graph, {}, stream_mode=mode)) for mode in modes]


@case("10.1")
def a_graph_called_as_a_node_streams_values(t: Trial) -> Any:
    inner = t.graph(Log, names(t, "deep"), [(t.START, "deep")])
    graph = t.graph(Log, {"below": inner}, [(t.START, "below")])
    return [inner.stream_mode, t.stream(graph, {}, subgraphs=True), t.stream(graph, {})]


@case("12.5")
def states_of_an_entrypoint_are_bare_values(t: Trial) -> Any:
    saver = t.saver()

    @t.entrypoint(checkpointer=saver)
    def work(n: int, *, previous: Any = None) -> Any:
        if n == 5:
            t.interrupt("five?")
        return t.entrypoint.final(value=n + 1, save=(previous or 0) + n)

    @t.entrypoint(checkpointer=saver)
    async def awork(n: int, *, previous: Any = None) -> Any:
        if n == 5:
            t.interrupt("five?")
        return t.entrypoint.final(value=n + 1, save=(previous or 0) + n)

    graph = awork if t.is_async else work
    seen = [t.state(graph, t.config())["values"]]
    for given in (1, 2, 5):
        t.invoke(graph, given, t.config())
        seen.append(t.state(graph, t.config()))
    return {"seen": seen, "history": t.history(graph, t.config())}


@case("16.7")
def a_deferred_node_runs_again_when_it_is_written_again(t: Trial) -> Any:
    builder = t.StateGraph(Log)
    builder.add_node("x", t.writes(l=["x"]))
    builder.add_node("y", t.writes(l=["y"]))
    builder.add_node("last", t.node(lambda s: {"l": [f"last {len(s['l'])}"]}), defer=True)
    builder.add_edge(t.START, "x")
    builder.add_edge("x", "y")
    builder.add_edge("x", "last")
    builder.add_conditional_edges("last", t.node(lambda s: "x" if len(s["l"]) < 6 else "__end__"), ["x", "__end__"])
    saver = t.saver()
    graph = builder.compile(checkpointer=saver)
    told = t.stream(graph, {}, t.config(), stream_mode=["updates", "values"], durability="sync")
    return {"told": told, "stored": t.stored(saver, t.config())}
