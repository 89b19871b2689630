"""A graph that runs: `Pregel`, given by nodes and channels, and `CompiledStateGraph`, made by a builder.

Every method has an async twin with the same meaning. `stream` is the loop seen from outside; `invoke` runs it to its
end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import Self, TypeVar

from ._base import printable, run_now
from .building.plan import Keys, Node, Plan, as_keys
from .channels import BaseChannel, Topic
from .config import Config, merge_configs
from .constants import CONFIG_KEY_SCRATCHPAD, INTERRUPT, TASKS
from .policies import RetryPolicy
from .reading.state import StateMethods
from .running.calling import Call, settings_of
from .running.hosts import BlockingHost, Host
from .running.loop import Run
from .runtime import RunControl
from .showing.faces import Faces
from .showing.stream import Outlet
from .types import Durability, GraphOutput, Send, StreamMode

if TYPE_CHECKING:
    from .building.builder import StateGraph
    from .showing.streaming import Presenter

__all__ = ["CompiledStateGraph", "Pregel"]

log = logging.getLogger("threadline.graph")

StateT = TypeVar("StateT", default=Any)
ContextT = TypeVar("ContextT", default=Any)
InputT = TypeVar("InputT", default=Any)
OutputT = TypeVar("OutputT", default=Any)


class Pregel(StateMethods, Faces, Generic[StateT, ContextT, InputT, OutputT]):
    """A graph of nodes and channels that runs in steps."""

    builder: StateGraph | None = None

    def __init__(
        self,
        *,
        nodes: Mapping[str, Any],
        channels: Mapping[str, Any] | None,
        input_channels: str | Sequence[str],
        output_channels: str | Sequence[str],
        stream_channels: str | Sequence[str] | None = None,
        managed: Mapping[str, Any] | None = None,
        auto_validate: bool = True,
        stream_mode: StreamMode = "values",
        stream_eager: bool = False,
        interrupt_after_nodes: str | Sequence[str] = (),
        interrupt_before_nodes: str | Sequence[str] = (),
        step_timeout: float | None = None,
        debug: bool | None = None,
        checkpointer: Any = None,
        store: Any = None,
        cache: Any = None,
        retry_policy: RetryPolicy | Sequence[RetryPolicy] = (),
        cache_policy: Any = None,
        context_schema: type[Any] | None = None,
        config: Config | None = None,
        name: str = "LangGraph",
        **choices: Any,
    ) -> None:
        self._take_parts(nodes, channels or {}, managed or {})
        self.input_channels = as_keys(input_channels)
        self.output_channels = as_keys(output_channels)
        self.stream_channels = None if stream_channels is None else as_keys(stream_channels)
        self.stream_mode = stream_mode
        self.stream_eager = stream_eager
        self.interrupt_after_nodes = interrupt_after_nodes
        self.interrupt_before_nodes = interrupt_before_nodes
        self.step_timeout = step_timeout
        self.debug = bool(debug)
        self.checkpointer = checkpointer
        self.store = store
        self.cache = cache
        self.retry_policy = (retry_policy,) if isinstance(retry_policy, RetryPolicy) else tuple(retry_policy)
        self.cache_policy = cache_policy
        self.context_schema = context_schema
        self.config = config
        self.name = name
        self._take_choices(**choices)
        if auto_validate:
            self.validate()
        self._make_plan()

    def _take_parts(self, nodes: Mapping[str, Any], channels: Mapping[str, Any], managed: Mapping[str, Any]) -> None:
        self.nodes: dict[str, Node] = {key: _built(key, node) for key, node in nodes.items()}
        self.channels: dict[str, Any] = _with_sends(channels)
        self.managed = dict(managed)
        self._subgraphs: dict[str, tuple[Pregel, ...]] = {}

    def _take_choices(
        self,
        *,
        strict: bool = False,
        exclusive: bool = False,
        version: str | None = None,
        renamed: Mapping[str, str] | None = None,
        migrate: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        **_: Any,
    ) -> None:
        """What LangGraph does not have: see `StateGraph.compile`."""
        self.strict = strict
        self.exclusive = exclusive
        self.version = version
        self.renamed = dict(renamed or {})
        self.migrate = migrate

    def _make_plan(self) -> None:
        self.plan = Plan(self.nodes, self.channels, self.managed)
        self.input_keys = self.input_channels
        self.output_fades = not set(self.plan.fading).isdisjoint(
            (self.output_channels,) if isinstance(self.output_channels, str) else self.output_channels
        )
        self.stream_keys: Keys = (
            self.stream_channels
            if self.stream_channels is not None
            else tuple(name for name in self.channels if name != TASKS)
        )

    def validate(self) -> Self:
        """Raise ValueError for channels that are named and do not exist."""
        for node in self.nodes.values():
            for trigger in node.triggers:
                if trigger not in self.channels:
                    raise ValueError(f"Subscribed channel '{trigger}' not in known channels: {sorted(self.channels)}")
        for keys, what in ((self.input_channels, "Input"), (self.output_channels, "Output")):
            for key in (keys,) if isinstance(keys, str) else keys:
                if key not in self.channels:
                    raise ValueError(f"{what} channel '{key}' not in known channels: {sorted(self.channels)}")
        for listed in (self.interrupt_after_nodes, self.interrupt_before_nodes):
            for node_name in () if listed == "*" else listed:
                if node_name not in self.nodes:
                    raise ValueError(f"Node {node_name} not in nodes")
        return self

    # -- running

    def invoke(
        self,
        input: Any,
        config: Config | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] = "values",
        print_mode: StreamMode | Sequence[StreamMode] = (),
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: str | Sequence[str] | None = None,
        interrupt_after: str | Sequence[str] | None = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: str = "v1",
        **_: Any,
    ) -> Any:
        """Run to the end, or to a question, and return the output (or the chunks of another stream mode)."""
        call = Call(
            context=context,
            output_keys=output_keys if output_keys is not None else self.output_channels,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            durability=durability,
            control=control,
        )
        if stream_mode != "values":
            return list(self._stream(input, config, call, stream_mode, print_mode, version=version))
        printer = self._printer(print_mode)
        run = self._run(input, config, call, printer.outlet if printer else None, BlockingHost)
        run_now(_to_end(run, printer))
        return self._result(run, version)

    async def ainvoke(
        self,
        input: Any,
        config: Config | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] = "values",
        print_mode: StreamMode | Sequence[StreamMode] = (),
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: str | Sequence[str] | None = None,
        interrupt_after: str | Sequence[str] | None = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        version: str = "v1",
        **_: Any,
    ) -> Any:
        call = Call(
            context=context,
            output_keys=output_keys if output_keys is not None else self.output_channels,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            durability=durability,
            control=control,
        )
        if stream_mode != "values":
            return [one async for one in self._astream(input, config, call, stream_mode, print_mode, version=version)]
        printer = self._printer(print_mode)
        run = self._run(input, config, call, printer.outlet if printer else None, _loop_host())
        await _to_end(run, printer)
        return self._result(run, version)

    def stream(
        self,
        input: Any,
        config: Config | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        print_mode: StreamMode | Sequence[StreamMode] = (),
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: str | Sequence[str] | None = None,
        interrupt_after: str | Sequence[str] | None = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        subgraphs: bool = False,
        debug: bool | None = None,
        version: str = "v1",
        buffer: int | None = None,
        **_: Any,
    ) -> Iterator[Any]:
        """Run while the caller consumes chunks; the next step begins when the next chunk is asked for."""
        call = Call(
            context=context,
            output_keys=output_keys,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            durability=durability,
            control=control,
            subgraphs=subgraphs,
        )
        mode = self._default_mode(config) if stream_mode is None else stream_mode
        printed = print_mode or (("updates", "values") if debug or (debug is None and self.debug) else ())
        return self._stream(input, config, call, mode, printed, version=version, buffer=buffer)

    def astream(
        self,
        input: Any,
        config: Config | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        print_mode: StreamMode | Sequence[StreamMode] = (),
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: str | Sequence[str] | None = None,
        interrupt_after: str | Sequence[str] | None = None,
        durability: Durability | None = None,
        control: RunControl | None = None,
        subgraphs: bool = False,
        debug: bool | None = None,
        version: str = "v1",
        buffer: int | None = None,
        **_: Any,
    ) -> AsyncIterator[Any]:
        call = Call(
            context=context,
            output_keys=output_keys,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            durability=durability,
            control=control,
            subgraphs=subgraphs,
        )
        mode = self._default_mode(config) if stream_mode is None else stream_mode
        printed = print_mode or (("updates", "values") if debug or (debug is None and self.debug) else ())
        return self._astream(input, config, call, mode, printed, version=version, buffer=buffer)

    def batch(self, inputs: Sequence[Any], config: Any = None, **options: Any) -> list[Any]:
        """The results of several inputs; `config` is one for all, or a list."""
        configs = config if isinstance(config, list) else [config] * len(inputs)
        return [self.invoke(one, settings, **options) for one, settings in zip(inputs, configs, strict=True)]

    async def abatch(self, inputs: Sequence[Any], config: Any = None, **options: Any) -> list[Any]:
        import asyncio

        configs = config if isinstance(config, list) else [config] * len(inputs)
        pairs = zip(inputs, configs, strict=True)
        return list(await asyncio.gather(*(self.ainvoke(one, settings, **options) for one, settings in pairs)))

    # -- how the above is put together

    def _run(
        self, given: Any, config: Config | None, call: Call, outlet: Outlet | None, host: Callable[..., Host]
    ) -> Run:
        settings = settings_of(self, given, config, call, outlet)
        made = host(settings.config.get("max_concurrency"))
        run = Run(self, made, settings)
        if outlet is not None and settings.eager:
            outlet.wake = made.wake
        return run

    def _stream(
        self,
        given: Any,
        config: Config | None,
        call: Call,
        mode: Any,
        print_mode: Any,
        *,
        version: str = "v1",
        buffer: int | None = None,
    ) -> Iterator[Any]:
        from .showing.streaming import Presenter

        shown = Presenter(self, mode, print_mode, call.subgraphs, version)
        run = self._run(given, config, call, shown.outlet, BlockingHost)
        shown.listen(buffer)
        steps = run.chunks()
        try:
            while True:
                try:
                    run_now(steps.__anext__())  # type: ignore[arg-type]
                except StopAsyncIteration:
                    yield from shown.take()
                    return
                except Exception:
                    yield from shown.take()  # what was shown before the failure
                    raise
                yield from shown.take()
        finally:
            shown.release()
            run_now(steps.aclose())  # type: ignore[attr-defined]

    async def _astream(
        self,
        given: Any,
        config: Config | None,
        call: Call,
        mode: Any,
        print_mode: Any,
        *,
        version: str = "v1",
        buffer: int | None = None,
    ) -> AsyncIterator[Any]:
        from .showing.streaming import Presenter

        shown = Presenter(self, mode, print_mode, call.subgraphs, version)
        run = self._run(given, config, call, shown.outlet, _loop_host())
        shown.listen(buffer)
        steps = run.chunks()
        try:
            async for _ in steps:
                for chunk in shown.take():
                    yield chunk
            for chunk in shown.take():
                yield chunk
        except Exception:
            for chunk in shown.take():  # what was shown before the failure
                yield chunk
            raise
        finally:
            shown.release()
            await steps.aclose()  # type: ignore[attr-defined]

    def _printer(self, print_mode: Any) -> Presenter | None:
        """What prints chunks while a run goes on, if that was asked for."""
        printed = print_mode or (("updates", "values") if self.debug else ())
        if not printed:
            return None
        from .showing.streaming import Presenter

        return Presenter(self, (), printed, False, "v1")

    def _default_mode(self, config: Config | None) -> Any:
        """As a node of another graph, which gives its config along, a graph shows its state; otherwise what changed."""
        is_node = CONFIG_KEY_SCRATCHPAD in ((config or {}).get("configurable") or {})
        return "values" if is_node else self.stream_mode

    def _result(self, run: Run, version: str) -> Any:
        output = run.output()
        if version == "v2":
            from .showing.streaming import as_output

            return GraphOutput(as_output(self, output), tuple(run.interrupts))
        if not run.interrupts:
            return output
        questions = list(run.interrupts)
        return {**output, INTERRUPT: questions} if isinstance(output, dict) else {INTERRUPT: questions}

    def refuse_or_warn(self, message: str) -> None:
        """What is only logged, unless the graph is strict."""
        if self.strict:
            from .errors import InvalidUpdateError

            raise InvalidUpdateError(message)
        log.warning("%s", printable(message))

    def version_note(self) -> dict[str, Any]:
        """What the metadata of a checkpoint says of the graph's version."""
        return {} if self.version is None else {"graph_version": self.version}

    def note_discarded(self, run: Run) -> None:
        """New input while questions are open: they are discarded, which a strict graph refuses."""
        from .running.entering import open_questions

        if questions := open_questions(run):
            self.refuse_or_warn(
                f"new input discards {len(questions)} open question(s) of thread {run.thread_id!r}; "
                "answer with Command(resume=...) instead"
            )

    # -- copies

    def copy(self, update: dict[str, Any] | None = None) -> Self:
        """A copy of this graph with some attributes replaced."""
        import copy

        made = copy.copy(self)
        for key, value in (update or {}).items():
            setattr(made, key, value)
        made._make_plan()
        return made

    def with_config(self, config: Config | None = None, **kwargs: Any) -> Self:
        """A copy of this graph with a config that all its runs have."""
        return self.copy({"config": merge_configs(self.config, config, kwargs)})

    def get_name(self, suffix: str | None = None, *, name: str | None = None) -> str:
        """The name of the graph, or another one, with a suffix in its own style."""
        shown = name or self.name
        if not suffix:
            return shown
        return f"{shown}{suffix.title()}" if shown[:1].isupper() else f"{shown}_{suffix.lower()}"


class CompiledStateGraph(Pregel[StateT, ContextT, InputT, OutputT]):
    """What `StateGraph.compile` gives."""

    def __init__(self, *, builder: StateGraph, **options: Any) -> None:
        super().__init__(context_schema=builder.context_schema, **options)
        self.builder = builder


def _built(name: str, node: Any) -> Node:
    if isinstance(node, Node):
        return node
    built: Node = node.build_as(name)
    return built


def _with_sends(channels: Mapping[str, BaseChannel[Any, Any, Any]]) -> dict[str, BaseChannel[Any, Any, Any]]:
    made = dict(channels)
    made.setdefault(TASKS, Topic(Send, accumulate=False))
    for name, channel in made.items():
        if not channel.key:
            channel.key = name
    return made


def _loop_host() -> Callable[..., Host]:
    from .running.hosts import LoopHost

    return LoopHost


async def _to_end(run: Run, printer: Presenter | None) -> None:
    async for _ in run.chunks():
        if printer is not None:
            list(printer.take())
    if printer is not None:
        list(printer.take())
