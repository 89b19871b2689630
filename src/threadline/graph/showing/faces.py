"""What a graph says about itself: drawings and JSON schemas, and its cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from .._base import MissingExtra
from ..constants import CACHE_NS_WRITES, END, START

if TYPE_CHECKING:
    from ..compiled import Pregel
    from ..config import Config
    from .draw import Graph, Outline

__all__ = ["Faces"]


class Faces:
    """The methods of a graph that describe it."""

    def get_graph(self: Any, config: Config | None = None, *, xray: int | bool = False) -> Graph:
        """The graph as nodes and edges, to draw; `xray` shows the graphs inside, to a depth if it is a number."""
        from .draw import draw

        return draw(outline_of(self, xray), xray=xray)

    async def aget_graph(self: Any, config: Config | None = None, *, xray: int | bool = False) -> Graph:
        return self.get_graph(config, xray=xray)  # type: ignore[no-any-return]

    def get_input_jsonschema(self: Any, config: Config | None = None) -> dict[str, Any]:
        """The JSON schema of the input."""
        if self.builder is not None:
            return json_schema(self.builder.input_schema, self.get_name("Input"), self.channels)
        return json_schema(_channel_type(self, self.input_channels), self.get_name("Input"))

    def get_output_jsonschema(self: Any, config: Config | None = None) -> dict[str, Any]:
        """The JSON schema of the output."""
        if self.builder is not None:
            return json_schema(self.builder.output_schema, self.get_name("Output"), self.channels)
        return json_schema(_channel_type(self, self.output_channels), self.get_name("Output"))

    def get_context_jsonschema(self: Any) -> dict[str, Any] | None:
        """The JSON schema of the context; None when the graph has no context schema."""
        return None if self.context_schema is None else json_schema(self.context_schema, "Context")

    def clear_cache(self: Any, nodes: Sequence[str] | None = None) -> None:
        """Forget kept results of some nodes, or of all."""
        if self.cache is None:
            raise ValueError("No cache is set for this graph. Cannot clear cache.")
        self.cache.clear(_cache_namespaces(self, nodes))

    async def aclear_cache(self: Any, nodes: Sequence[str] | None = None) -> None:
        if self.cache is None:
            raise ValueError("No cache is set for this graph. Cannot clear cache.")
        await self.cache.aclear(_cache_namespaces(self, nodes))


def _cache_namespaces(graph: Any, nodes: Sequence[str] | None) -> list[tuple[str, ...]]:
    from ..running.caching import identity

    chosen = graph.nodes if nodes is None else nodes
    return [
        (CACHE_NS_WRITES, identity(graph.nodes[name].action.source), name)
        for name in chosen
        if graph.nodes[name].action is not None
    ]


def outline_of(graph: Pregel, xray: int | bool) -> Outline:
    """What there is to draw of a graph."""
    from .draw import Branch, Outline, Station

    builder = graph.builder
    pauses: dict[str, str] = {}
    for name in graph.nodes:
        before = graph.interrupt_before_nodes == "*" or name in graph.interrupt_before_nodes
        after = graph.interrupt_after_nodes == "*" or name in graph.interrupt_after_nodes
        if before or after:
            pauses[name] = ",".join(word for word, holds in (("before", before), ("after", after)) if holds)
    if builder is None:
        # An entrypoint ends where its function returns; other nodes lead to what their channels trigger.
        returns = [Branch({END: END})] if START in graph.channels else []
        stations = {
            name: Station(_action(graph, name), node.metadata, branches=returns) for name, node in graph.nodes.items()
        }
        return Outline(stations, _channel_edges(graph), pauses=pauses, begins_with_start=False)
    branches = {
        source: [Branch(branch.ends) for branch in found.values() if branch.ends is not None]
        for source, found in builder.branches.items()
    }
    stations = {}
    for name, spec in builder.nodes.items():
        ends = spec.ends if isinstance(spec.ends, dict) else {end: end for end in spec.ends}
        own = [*branches.get(name, []), *([Branch(_labelled(ends, spec.ends))] if ends else [])]
        inner = graph.subgraphs_of(name) if xray else ()
        deeper = outline_of(inner[0], xray if xray is True else xray - 1) if inner and xray else None
        stations[name] = Station(spec.runnable.source, spec.metadata, spec.defer, own, deeper)
    return Outline(stations, builder.ordered_edges(), builder.ordered_joins(), pauses, branches.get(START, []))


def _channel_edges(graph: Pregel) -> list[tuple[str, str]]:
    """Who triggers whom in a graph of nodes and channels."""
    given = graph.input_keys
    written = {START: {given} if isinstance(given, str) else {*given}}
    for name, node in graph.nodes.items():
        written[name] = {channel for writer in node.writers for channel in getattr(writer, "channels", ())}
    return [
        (source, target)
        for source, channels in written.items()
        for target, node in graph.nodes.items()
        if not channels.isdisjoint(node.triggers)
    ]


def _labelled(ends: dict[str, str], given: Any) -> dict[Any, str]:
    """Destinations as label -> target; a dict of the user is target -> label."""
    return {label: target for target, label in ends.items()} if isinstance(given, dict) else dict(ends)


def _action(graph: Pregel, name: str) -> Any:
    action = graph.nodes[name].action
    return None if action is None else action.source


def _channel_type(graph: Any, keys: Any) -> Any:
    if isinstance(keys, str):
        return graph.channels[keys].UpdateType
    from typing_extensions import TypedDict

    return TypedDict("State", {key: graph.channels[key].UpdateType for key in keys}, total=False)  # type: ignore[operator]


def json_schema(declared: Any, title: str, channels: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON schema of a type; needs pydantic. A class with annotations is shown as the channels of these."""
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise MissingExtra("JSON schemas need pydantic: pip install pydantic") from None
    if channels is not None and _is_plain_class(declared):
        declared = _as_model(declared, title, channels)
    schema: dict[str, Any] = TypeAdapter(_without_channels(declared)).json_schema()
    return schema


def _is_plain_class(declared: Any) -> bool:
    """Whether a schema is a data class, or another class with annotations, which pydantic has no name for."""
    from typing_extensions import is_typeddict

    from ..building.schema import is_pydantic, schema_of

    is_known = is_typeddict(declared) or is_pydantic(declared)
    return isinstance(declared, type) and not is_known and not schema_of(declared).is_root


def _as_model(declared: Any, title: str, channels: Mapping[str, Any]) -> Any:
    from pydantic import create_model

    from ..building.schema import schema_of

    defaults = {one.name: one for one in dataclasses.fields(declared)} if dataclasses.is_dataclass(declared) else {}
    fields: dict[str, Any] = {}
    for key in schema_of(declared).hints:
        if key in channels:
            kind = channels[key].UpdateType
            fields[key] = kind, _default(defaults.get(key), kind)
    return create_model(title, **fields)


def _default(declared: dataclasses.Field[Any] | None, kind: Any) -> Any:
    """The value of a field that is not given; `...` where there is none."""
    if declared is not None and declared.default is not dataclasses.MISSING:
        return declared.default
    if declared is not None and declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return None if type(None) in get_args(kind) else ...


def _without_channels(declared: Any) -> Any:
    """A TypedDict whose annotations pydantic understands: without reducers and channels."""
    from typing_extensions import NotRequired, Required, TypedDict, is_typeddict

    from ..building.schema import plain_hint, schema_of

    if not is_typeddict(declared):
        return declared
    fields: dict[str, Any] = {}
    for key, hint in schema_of(declared).hints.items():
        if key in schema_of(declared).managed:
            continue
        wrapper = Required if key in declared.__required_keys__ else NotRequired
        fields[key] = wrapper[plain_hint(hint)]
    return TypedDict(declared.__name__, fields)  # type: ignore[operator]
