"""From a builder to a graph that runs: channels, nodes with their writers, and the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..channels import (
    BaseChannel,
    EphemeralValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
    Topic,
)
from ..constants import END, ROOT, START, TAG_HIDDEN, TASKS
from ..policies import RetryPolicy
from ..running.inputs import branch_channel
from ..types import Send
from .actions import action_of
from .plan import Keys, Node, Writer
from .schema import built_from, schema_of
from .writers import BranchWriter, EdgeWriter, UpdateWriter

if TYPE_CHECKING:
    from ..compiled import CompiledStateGraph
    from .builder import BranchSpec, NodeSpec, StateGraph

__all__ = ["assemble"]


def assemble(builder: StateGraph, **options: Any) -> CompiledStateGraph:
    """Compile a validated builder."""
    from ..compiled import CompiledStateGraph

    validate = options.pop("validate")
    channels = _channels(builder)
    nodes = _Nodes(builder, validate).build()
    output = schema_of(builder.output_schema)
    return CompiledStateGraph(
        builder=builder,
        nodes=nodes,
        channels=channels,
        managed=dict(builder.managed),
        input_channels=START,
        output_channels=ROOT if output.is_root else tuple(output.channels),
        stream_channels=ROOT if ROOT in builder.channels and len(builder.channels) == 1 else tuple(builder.channels),
        stream_mode="updates",
        **options,
    )


def _channels(builder: StateGraph) -> dict[str, BaseChannel[Any, Any, Any]]:
    channels = dict(builder.channels)
    channels[START] = EphemeralValue(builder.input_schema)
    channels[TASKS] = Topic(Send, accumulate=False)
    for name, spec in builder.nodes.items():
        channels[branch_channel(name)] = LastValueAfterFinish(Any) if spec.defer else EphemeralValue(Any, guard=False)
    for name in builder.handlers():
        channels[branch_channel(name)] = EphemeralValue(Any, guard=False)
    for starts, end in builder.ordered_joins():
        if end == END:
            continue
        barrier = NamedBarrierValueAfterFinish if builder.nodes[end].defer else NamedBarrierValue
        channels[_join_channel(starts, end)] = barrier(str, set(starts))
    for name, channel in channels.items():
        channel.key = name
    return channels


def _join_channel(starts: tuple[str, ...], end: str) -> str:
    return f"join:{'+'.join(starts)}:{end}"


class _Nodes:
    """Makes the nodes of a builder."""

    def __init__(self, builder: StateGraph, validate: str) -> None:
        self.builder = builder
        self.validate = validate
        self.defaults = builder.defaults()
        self.handlers = builder.handler_names()
        self.updates = _update_validator(builder) if validate == "updates" else None
        self.joins = builder.ordered_joins()
        self.edges = self._edges_by_source()
        self.mappers: dict[Any, Callable[[Any], Any] | None] = {}

    def build(self) -> dict[str, Node]:
        """All nodes, the hidden ones included."""
        builder = self.builder
        nodes = {START: self._start()}
        for name, spec in builder.nodes.items():
            nodes[name] = self._node(name, spec)
        for name, handler in builder.handlers().items():
            nodes[name] = self._handler(name, handler)
        return nodes

    def _edges_by_source(self) -> dict[str, list[tuple[str, Any]]]:
        """Node -> the writes that make its static edges and its joins go on."""
        found: dict[str, list[tuple[str, Any]]] = {}
        for start, end in self.builder.ordered_edges():
            if end != END:
                found.setdefault(start, []).append((branch_channel(end), None))
        for starts, end in self.joins:
            for start in starts if end != END else ():
                found.setdefault(start, []).append((_join_channel(starts, end), start))
        return found

    def _start(self) -> Node:
        builder = self.builder
        keys = tuple(schema_of(builder.input_schema).channels)
        return Node(
            name=START,
            triggers=(START,),
            channels=START,
            tags=(TAG_HIDDEN,),
            writers=(UpdateWriter(keys, START, validate=self.updates), *self._edges(START)),
        )

    def _node(self, name: str, spec: NodeSpec) -> Node:
        schema = schema_of(spec.input_schema)
        triggers = [branch_channel(name)]
        triggers += [_join_channel(starts, end) for starts, end in self.joins if end == name]
        retry = spec.retry_policy if spec.retry_policy is not None else self.defaults.get("retry_policy")
        handler = self.handlers.get(name)
        return Node(
            name=name,
            triggers=tuple(triggers),
            channels=_reads(schema.keys),
            mapper=self._mapper(spec.input_schema),
            action=spec.runnable,
            writers=self._writers(name),
            metadata=spec.metadata or {},
            retry=_policies(retry),
            cache=spec.cache_policy if spec.cache_policy is not None else self.defaults.get("cache_policy"),
            timeout=spec.timeout if spec.timeout is not None else self._default_timeout(spec),
            error_handler=handler,
            defer=spec.defer,
        )

    def _default_timeout(self, spec: NodeSpec) -> Any:
        return self.defaults.get("timeout") if spec.runnable.is_async else None

    def _handler(self, name: str, handler: Any) -> Node:
        keys = _reads(schema_of(self.builder.state_schema).keys)
        action = action_of(handler, name)
        return Node(
            name=name,
            triggers=(branch_channel(name),),
            channels=keys,
            action=action,
            writers=self._writers(name),
            retry=_policies(self.defaults.get("retry_policy")),
            timeout=self.defaults.get("timeout") if action.is_async else None,
            is_error_handler=True,
        )

    def _writers(self, name: str) -> tuple[Writer, ...]:
        return (UpdateWriter(tuple(self.builder.channels), name, validate=self.updates), *self._edges(name))

    def _edges(self, name: str) -> list[Writer]:
        builder = self.builder
        static = self.edges.get(name, ())
        writers: list[Writer] = [EdgeWriter(static)] if static else []
        for branch_name, branch in builder.branches.get(name, {}).items():
            writers.append(self._branch(branch_name, branch, name))
        return writers

    def _branch(self, name: str, branch: BranchSpec, source: str) -> BranchWriter:
        declared = branch.input_schema
        if declared is None:
            spec = self.builder.nodes.get(source)
            declared = spec.input_schema if spec is not None else self.builder.state_schema
        schema = schema_of(declared)
        return BranchWriter(
            name,
            branch.path,
            branch.ends,
            keys=schema.keys,
            is_root=schema.is_root,
            mapper=self._mapper(declared),
            merges_output=branch.input_schema is None,
        )

    def _mapper(self, declared: Any) -> Callable[[Any], Any] | None:
        # One mapper a schema: nodes with the same one share their input.
        if declared not in self.mappers:
            self.mappers[declared] = built_from(declared)
        return self.mappers[declared]


def _reads(keys: tuple[str, ...]) -> Keys:
    return ROOT if keys == (ROOT,) else keys


def _policies(given: Any) -> tuple[RetryPolicy, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, RetryPolicy) else tuple(given)


def _update_validator(builder: StateGraph) -> Callable[[str, Any], Any]:
    from .validating import update_validator

    return update_validator(builder.state_schema)
