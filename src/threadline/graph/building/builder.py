"""`StateGraph`: nodes, edges and branches over a state, checked and compiled into a graph that runs.

Nothing is looked up by name before `compile`, except in `add_edge` with several sources, whose nodes must exist. Adding
to a builder that was compiled does not change what was compiled.
"""

from __future__ import annotations

import logging
import os
import typing
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Union, get_args, get_origin

from typing_extensions import Self, TypeVar

from ..channels import BaseChannel
from ..constants import DEFAULT_ERROR_HANDLER, END, ERROR_HANDLER_PREFIX, NS_END, NS_SEP, START
from ..policies import CachePolicy, RetryPolicy, TimeoutPolicy, TracePolicy
from ..types import All, Checkpointer, Command, ensure_valid_checkpointer
from ..warnings import LangGraphDeprecatedSinceV05, LangGraphDeprecatedSinceV10
from .actions import Action, action_of, is_async_callable, name_of
from .nearest import nearest
from .schema import first_parameter_schema, literal_values, merge_channel, resolved_hints, schema_of

if typing.TYPE_CHECKING:
    from ..compiled import CompiledStateGraph

__all__ = ["BranchSpec", "NodeSpec", "StateGraph"]

log = logging.getLogger("threadline.graph")

StateT = TypeVar("StateT", default=Any)
ContextT = TypeVar("ContextT", default=Any)
InputT = TypeVar("InputT", default=Any)
OutputT = TypeVar("OutputT", default=Any)
Timeout = float | timedelta | TimeoutPolicy | None
Retry = RetryPolicy | Sequence[RetryPolicy] | None


@dataclass(slots=True, kw_only=True)
class NodeSpec:
    """A node as it was added."""

    runnable: Action
    metadata: dict[str, Any] | None
    input_schema: Any
    retry_policy: Retry
    cache_policy: CachePolicy[Any] | None
    ends: tuple[str, ...] | dict[str, str]
    defer: bool
    timeout: TimeoutPolicy | None
    trace_policy: TracePolicy | None
    is_error_handler: bool = False


@dataclass(slots=True)
class BranchSpec:
    """A conditional edge as it was added."""

    path: Action
    ends: dict[Hashable, str] | None
    input_schema: Any = None


class StateGraph(Generic[StateT, ContextT, InputT, OutputT]):
    """A graph whose nodes read and write one shared state.

    Each node takes the state and returns the keys it changes; a key annotated with a reducer combines the writes of
    nodes that run side by side.
    """

    def __init__(
        self,
        state_schema: Any = None,
        context_schema: type[Any] | None = None,
        *,
        input_schema: Any = None,
        output_schema: Any = None,
        **deprecated: Any,
    ) -> None:
        for old, new in (("config_schema", "context_schema"), ("input", "input_schema"), ("output", "output_schema")):
            if deprecated.get(old) is not None:
                since = LangGraphDeprecatedSinceV10 if old == "config_schema" else LangGraphDeprecatedSinceV05
                warnings.warn(f"`{old}` is deprecated. Use `{new}` instead.", since, stacklevel=2)
        context_schema = context_schema or deprecated.get("config_schema")
        input_schema = input_schema or deprecated.get("input")
        output_schema = output_schema or deprecated.get("output")
        if state_schema is None:
            if input_schema is None or output_schema is None:
                raise ValueError("Must provide state_schema or input and output")
            state_schema = input_schema
        self.nodes: dict[str, NodeSpec] = {}
        self.edges: set[tuple[str, str]] = set()
        self.branches: dict[str, dict[str, BranchSpec]] = {}
        self.channels: dict[str, BaseChannel[Any, Any, Any]] = {}
        self.managed: dict[str, Any] = {}
        self.schemas: dict[Any, Any] = {}
        self.waiting_edges: set[tuple[tuple[str, ...], str]] = set()
        self.compiled = False
        self.state_schema = state_schema
        self.context_schema = context_schema
        self.input_schema = input_schema or state_schema
        self.output_schema = output_schema or state_schema
        self._edge_order: dict[tuple[str, str], None] = {}
        self._join_order: dict[tuple[tuple[str, ...], str], None] = {}
        self._defaults: dict[str, Any] = {}
        self._handlers: dict[str, Any] = {}
        self._default_handler: Any = None
        self._add_schema(self.state_schema)
        self._add_schema(self.input_schema, allow_managed=False)
        self._add_schema(self.output_schema, allow_managed=False)

    # -- nodes

    def add_node(
        self,
        node: Any,
        action: Any = None,
        *,
        defer: bool = False,
        metadata: dict[str, Any] | None = None,
        input_schema: Any = None,
        retry_policy: Retry = None,
        cache_policy: CachePolicy[Any] | None = None,
        error_handler: Any = None,
        destinations: dict[str, str] | tuple[str, ...] | None = None,
        timeout: Timeout = None,
        trace_policy: TracePolicy | None = None,
        **deprecated: Any,
    ) -> Self:
        """Add a node under a name, or under the name that the callable has."""
        if (retry := deprecated.get("retry")) is not None:
            warnings.warn(
                "`retry` is deprecated. Use `retry_policy` instead.", LangGraphDeprecatedSinceV05, stacklevel=2
            )
            retry_policy = retry_policy or retry
        if (old_input := deprecated.get("input")) is not None:
            warnings.warn(
                "`input` is deprecated. Use `input_schema` instead.", LangGraphDeprecatedSinceV05, stacklevel=2
            )
            input_schema = input_schema or old_input
        name, action = self._named(node, action)
        self._note_late_change("node")
        self._check_name(name)
        if input_schema is None and (hinted := _hinted_input(action)) is not None:
            input_schema = hinted
        if input_schema is not None:
            self._add_schema(input_schema)
        self.nodes[name] = NodeSpec(
            runnable=action_of(action, name),
            metadata=metadata,
            input_schema=input_schema if input_schema is not None else self.state_schema,
            retry_policy=retry_policy,
            cache_policy=cache_policy,
            ends=_destinations(action, destinations),
            defer=defer,
            timeout=_checked_timeout(timeout, action, name),
            trace_policy=trace_policy,
        )
        if error_handler is not None:
            self._handlers[name] = error_handler
        return self

    def set_node_defaults(
        self,
        *,
        retry_policy: Retry = None,
        cache_policy: CachePolicy[Any] | None = None,
        error_handler: Any = None,
        timeout: Timeout = None,
    ) -> Self:
        """Policies for all nodes that set none of their own."""
        given = {"retry_policy": retry_policy, "cache_policy": cache_policy, "timeout": TimeoutPolicy.coerce(timeout)}
        self._defaults.update({key: value for key, value in given.items() if value is not None})
        if error_handler is not None:
            self._default_handler = error_handler
        return self

    def _named(self, node: Any, action: Any) -> tuple[str, Any]:
        if isinstance(node, str):
            name = str(getattr(node, "value", node))
            if action is None:
                raise RuntimeError(f"Node {name!r} has no action: write add_node({name!r}, function)")
            return name, action
        if action is not None:
            raise RuntimeError("add_node takes a name and an action, or an action alone")
        action_of(node)  # refuses what cannot be called, before its name is asked for
        return name_of(node), node

    def _check_name(self, name: str) -> None:
        if name in self.nodes:
            raise ValueError(f"Node `{name}` already present.")
        if name in (START, END):
            raise ValueError(f"Node `{name}` is reserved.")
        for character in (NS_SEP, NS_END):
            if character in name:
                raise ValueError(f"'{character}' is a reserved character and is not allowed in the node names.")

    # -- edges

    def add_edge(self, start_key: str | list[str] | tuple[str, ...], end_key: str) -> Self:
        """After one node, or after all of several, run another."""
        self._note_late_change("edge")
        if isinstance(start_key, str):
            start, end = _text(start_key), _text(end_key)
            if start == END:
                raise ValueError("END cannot be a start node")
            if end == START:
                raise ValueError("START cannot be an end node")
            self.edges.add((start, end))
            self._edge_order[(start, end)] = None
            return self
        for start in start_key:
            if start == END:
                raise ValueError("END cannot be a start node")
            if start not in self.nodes:
                raise ValueError(f"Need to add_node `{start}` first")
        if end_key == START:
            raise ValueError("START cannot be an end node")
        if end_key != END and end_key not in self.nodes:
            raise ValueError(f"Need to add_node `{end_key}` first")
        join = (tuple(_text(one) for one in start_key), _text(end_key))
        self.waiting_edges.add(join)
        self._join_order[join] = None
        return self

    def add_conditional_edges(
        self,
        source: str,
        path: Any,
        path_map: Mapping[Hashable, str] | Sequence[str] | None = None,
    ) -> Self:
        """After a node, go where a function of the state says."""
        self._note_late_change("edge")
        action = action_of(path, _branch_name(path))
        name = action.name
        branches = self.branches.setdefault(source, {})
        if name in branches:
            raise ValueError(f"Branch with name `{name}` already exists for node `{source}`")
        schema = first_parameter_schema(action.source)
        if schema is not None:
            self._add_schema(schema)
        branches[name] = BranchSpec(action, _ends(path, path_map), schema)
        return self

    def add_sequence(self, nodes: Sequence[Any]) -> Self:
        """Add nodes that run one after another."""
        if len(nodes) < 1:
            raise ValueError("Sequence requires at least one node.")
        previous: str | None = None
        for node in nodes:
            name, action = node if isinstance(node, tuple) and len(node) == 2 else (name_of(node), node)
            if name in self.nodes:
                raise ValueError(
                    f"Node names must be unique: node with the name '{name}' already exists. If you need to use two "
                    "different runnables/callables with the same name (for example, using `lambda`), please provide "
                    "them as tuples (name, runnable/callable)."
                )
            self.add_node(name, action)
            if previous is not None:
                self.add_edge(previous, name)
            previous = name
        return self

    def set_entry_point(self, key: str) -> Self:
        """Begin with this node."""
        return self.add_edge(START, key)

    def set_conditional_entry_point(
        self, path: Any, path_map: Mapping[Hashable, str] | Sequence[str] | None = None
    ) -> Self:
        """Begin where a function of the input says."""
        return self.add_conditional_edges(START, path, path_map)

    def set_finish_point(self, key: str) -> Self:
        """End after this node."""
        return self.add_edge(key, END)

    # -- checking and compiling

    def validate(self, interrupt: Sequence[str] | None = None) -> Self:
        """Raise ValueError for what cannot be compiled: unknown names, no entrypoint."""
        sources = {start for start, _ in self._all_edges()} | set(self.branches)
        for source in sorted(sources):
            if source != START and source not in self.nodes:
                raise ValueError(f"Found edge starting at unknown node '{source}'{self._meant(source)}")
        if START not in sources:
            raise ValueError("Graph must have an entrypoint: add at least one edge from START to another node")
        for _, end in self._all_edges():
            if end != END and end not in self.nodes:
                raise ValueError(f"Found edge ending at unknown node `{end}`{self._meant(end)}")
        for source, branches in self.branches.items():
            for name, branch in branches.items():
                for end in (branch.ends or {}).values():
                    if end != END and end not in self.nodes:
                        raise ValueError(
                            f"At '{source}' node, '{name}' branch found unknown target '{end}'{self._meant(end)}"
                        )
        for spec in self.nodes.values():
            for end in spec.ends:
                if end != END and end not in self.nodes:
                    raise ValueError(f"Found edge ending at unknown node `{end}`{self._meant(end)}")
        for node in interrupt or ():
            if node not in self.nodes:
                raise ValueError(f"Interrupt node `{node}` not found{self._meant(node)}")
        self.compiled = True
        return self

    def _meant(self, name: str) -> str:
        return nearest(name, self.nodes, "nodes")

    def compile(
        self,
        checkpointer: Checkpointer = None,
        *,
        cache: Any = None,
        store: Any = None,
        interrupt_before: All | Sequence[str] | None = None,
        interrupt_after: All | Sequence[str] | None = None,
        debug: bool = False,
        name: str | None = None,
        transformers: Sequence[Any] | None = None,
        strict: bool = False,
        exclusive: bool = False,
        version: str | None = None,
        renamed: Mapping[str, str] | None = None,
        migrate: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        validate: str = "inputs",
    ) -> CompiledStateGraph[StateT, ContextT, InputT, OutputT]:
        """A graph that runs.

        `strict` makes errors of undeclared keys, unknown targets, answers without a question, new input over open ones,
        and questions without a saver. `exclusive` lets one run at a time write a thread. `version` is kept in the
        metadata of checkpoints; `renamed` and `migrate` take threads of older versions along.
        """
        from .assembling import assemble

        checkpointer = ensure_valid_checkpointer(checkpointer)
        if isinstance(store, (str, os.PathLike)):
            raise TypeError("store= takes a store and no URL: compile(store=threadline.Store(url))")
        before, after = interrupt_before or [], interrupt_after or []
        named = [*(before if before != "*" else []), *(after if after != "*" else [])]
        self.validate(interrupt=named)
        if validate not in ("updates", "inputs", "off"):
            raise ValueError("validate is 'updates', 'inputs' or 'off'")
        return assemble(
            self,
            checkpointer=checkpointer,
            cache=cache,
            store=store,
            interrupt_before_nodes=before,
            interrupt_after_nodes=after,
            debug=debug,
            name=name or "LangGraph",
            strict=strict,
            exclusive=exclusive,
            version=version,
            renamed=renamed,
            migrate=migrate,
            validate=validate,
        )

    def _all_edges(self) -> list[tuple[str, str]]:
        joined = [(start, end) for starts, end in self._join_order for start in starts]
        return [*self._edge_order, *joined]

    def _add_schema(self, declared: Any, allow_managed: bool = True) -> None:
        if declared in self.schemas:
            return
        if not isinstance(declared, type) and get_origin(declared) is None and not hasattr(declared, "__metadata__"):
            warnings.warn(
                f"Invalid state_schema: {declared}. Expected a type or Annotated[type, reducer]. "
                "Please provide a valid schema to ensure correct updates.",
                UserWarning,
                stacklevel=4,
            )
        schema = schema_of(declared)
        if schema.managed and not allow_managed:
            names = ", ".join(schema.managed)
            raise ValueError(
                f"Invalid managed channels detected in {getattr(declared, '__name__', '')}: {names}. "
                "Managed channels are not permitted in Input/Output schema."
            )
        self.schemas[declared] = {**schema.channels, **schema.managed}
        for key, channel in schema.channels.items():
            merge_channel(self.channels, key, channel)
        self.managed.update(schema.managed)

    def _note_late_change(self, what: str) -> None:
        if self.compiled:
            log.warning(
                "Adding %r to a graph that is compiled already: this will not be reflected in the compiled graph",
                what,
            )

    def handler_names(self) -> dict[str, str]:
        """Node -> the hidden node that handles its errors."""
        names = {node: f"{ERROR_HANDLER_PREFIX}{node}" for node in self._handlers}
        if self._default_handler is not None:
            names = {**dict.fromkeys(self.nodes, DEFAULT_ERROR_HANDLER), **names}
        return names

    def handlers(self) -> dict[str, Any]:
        """Hidden node -> the function that handles errors."""
        found = {f"{ERROR_HANDLER_PREFIX}{node}": handler for node, handler in self._handlers.items()}
        if self._default_handler is not None:
            found[DEFAULT_ERROR_HANDLER] = self._default_handler
        return found

    def defaults(self) -> dict[str, Any]:
        """The policies of `set_node_defaults`."""
        return dict(self._defaults)

    def ordered_edges(self) -> list[tuple[str, str]]:
        """The static edges in the order in which they were added."""
        return list(self._edge_order)

    def ordered_joins(self) -> list[tuple[tuple[str, ...], str]]:
        """The joins in the order in which they were added."""
        return list(self._join_order)


def _text(name: str) -> str:
    return str(getattr(name, "value", name))


def _hinted_input(action: Any) -> Any:
    return None if hasattr(action, "invoke") else first_parameter_schema(action)


def _destinations(action: Any, given: dict[str, str] | tuple[str, ...] | None) -> tuple[str, ...] | dict[str, str]:
    if given is not None:
        return given
    if hasattr(action, "invoke"):
        return ()
    hint = resolved_hints(action).get("return")
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        options = get_args(hint)
    else:
        options = (hint,)
    for option in options:
        if get_origin(option) is Command and (inner := get_args(option)) and (names := literal_values(inner[0])):
            return tuple(names)
    return ()


def _ends(path: Any, path_map: Any) -> dict[Hashable, str] | None:
    if isinstance(path_map, Mapping):
        return dict(path_map)
    if path_map is not None:
        return {name: name for name in path_map}
    if names := literal_values(resolved_hints(path).get("return")):
        return {name: name for name in names}
    return None


def _branch_name(path: Any) -> str:
    name = name_of(path)
    return "condition" if name == "<lambda>" else name


def _checked_timeout(timeout: Timeout, action: Any, name: str) -> TimeoutPolicy | None:
    policy = TimeoutPolicy.coerce(timeout)
    if policy is not None and not hasattr(action, "ainvoke") and not is_async_callable(action):
        raise ValueError(
            f"Node {name!r} has a timeout but is not async: a thread cannot be stopped. Write it as `async def`."
        )
    return policy
