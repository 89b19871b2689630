"""From the arguments of a call to the settings of its run: which saver, which thread, which namespace, who listens."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from .._base import InvalidRequest
from ..building.schema import is_pydantic
from ..config import Config, default_recursion_limit, merge_configs, parent_of, with_copied_metadata
from ..constants import (
    CONFIG_KEY_CHECKPOINT_ID,
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_THREAD_ID,
    NS_SEP,
)
from ..runtime import CURRENT_TASK, RunControl, ServerInfo
from ..showing.stream import Outlet
from ..storing.wire import adopted
from .ids import without_task_ids

if TYPE_CHECKING:
    from ..building.plan import Keys
    from ..compiled import Pregel
    from .tasks import Task

__all__ = ["Call", "RunSettings", "resolve_saver", "settings_of", "thread_config"]

log = logging.getLogger("threadline.graph")

_PRIVATE = (CONFIG_KEY_CHECKPOINT_NS, CONFIG_KEY_CHECKPOINT_ID, CONFIG_KEY_CHECKPOINT_MAP)
# Modes whose chunks come while a task runs.
_EAGER_MODES = frozenset(("custom", "messages"))


@dataclass(slots=True, kw_only=True)
class RunSettings:
    """The call, resolved: everything that the run needs besides its input and its graph."""

    given: Any
    config: Config
    # The task that calls this graph; None for a run of its own.
    parent: Task | None
    saver: Any
    store: Any
    cache: Any
    context: Any
    control: RunControl | None
    server_info: ServerInfo | None
    thread_id: Any
    run_id: Any
    namespace: str
    checkpoint_id: str | None
    parents: Mapping[str, str]
    # namespace -> checkpoint id, as the caller addressed graphs inside this one.
    checkpoint_map: Mapping[str, str]
    durability: str
    output_keys: Keys
    interrupt_before: Sequence[str] | str
    interrupt_after: Sequence[str] | str
    recursion_limit: int
    # The listener of this call, and all listeners: its own and those above that want subgraphs.
    outlet: Outlet | None
    outlets: Sequence[tuple[Outlet, tuple[str, ...]]]
    # Whether chunks must be visible while a single task runs.
    eager: bool
    strict: bool


class Call:
    """The arguments of invoke and stream that are the same for both."""

    __slots__ = (
        "context",
        "control",
        "durability",
        "interrupt_after",
        "interrupt_before",
        "output_keys",
        "subgraphs",
    )

    def __init__(
        self,
        *,
        context: Any = None,
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: Sequence[str] | str | None = None,
        interrupt_after: Sequence[str] | str | None = None,
        durability: str | None = None,
        control: RunControl | None = None,
        subgraphs: bool = False,
    ) -> None:
        self.context = context
        self.output_keys = output_keys
        self.interrupt_before = interrupt_before
        self.interrupt_after = interrupt_after
        self.durability = durability
        self.control = control
        self.subgraphs = subgraphs


def settings_of(
    graph: Pregel,
    given: Any,
    config: Config | None,
    call: Call,
    outlet: Outlet | None,
    *,
    saver: Any = None,
) -> RunSettings:
    """Resolve a call; a `saver` is given by those who only look."""
    parent = parent_of(config) if saver is None else None
    merged = _merged(graph, config, parent)
    saver = resolve_saver(graph, parent) if saver is None else saver
    addressed = merged["configurable"]
    namespace, shown = _namespaces(graph, parent)
    thread_id = _thread_id(addressed, saver)
    checkpoint_map = dict(addressed.get(CONFIG_KEY_CHECKPOINT_MAP) or {})
    checkpoint_id = _checkpoint_id(parent, addressed, checkpoint_map)
    outlets = [(outlet, shown)] if outlet is not None else []
    if parent is not None:
        outlets += [(one, shown) for one, _ in parent.run.outlets if one.subgraphs]
    above = parent.run if parent is not None else None
    return RunSettings(
        given=given,
        config=_public(merged),
        parent=parent,
        saver=saver,
        store=graph.store if graph.store is not None or above is None else above.store,
        cache=graph.cache if graph.cache is not None or above is None else above.settings.cache,
        context=_context(graph, call.context, above),
        control=call.control or (above.control if above is not None else None) or RunControl(),
        server_info=above.server_info if above is not None else None,
        thread_id=thread_id,
        run_id=_run_id(merged),
        namespace=namespace,
        checkpoint_id=checkpoint_id,
        parents=_parents(parent),
        checkpoint_map=checkpoint_map,
        durability=_durability(call, above, saver),
        output_keys=_output_keys(graph, call),
        interrupt_before=graph.interrupt_before_nodes if call.interrupt_before is None else call.interrupt_before,
        interrupt_after=graph.interrupt_after_nodes if call.interrupt_after is None else call.interrupt_after,
        recursion_limit=_recursion_limit(merged),
        outlet=outlet,
        outlets=outlets,
        eager=graph.stream_eager or any(one.subgraphs or one.modes & _EAGER_MODES for one, _ in outlets),
        strict=graph.strict,
    )


def _recursion_limit(merged: Config) -> int:
    given: int | None = merged.get("recursion_limit")
    if given is None:
        return default_recursion_limit()
    if given < 1:
        raise ValueError("recursion_limit must be at least 1")
    return given


def _merged(graph: Pregel, config: Config | None, parent: Task | None) -> Config:
    ambient = CURRENT_TASK.get()
    inherited: Mapping[str, Any] | None = None
    if parent is not None:
        inherited = {key: value for key, value in parent.config.items() if key not in ("run_name", "run_id")}
    elif ambient is not None:
        inherited = {
            key: value for key, value in ambient.config.items() if key not in ("configurable", "run_name", "run_id")
        }
        metadata = {key: value for key, value in inherited.get("metadata", {}).items() if key not in _IDS}
        inherited = {**inherited, "metadata": metadata}
    return with_copied_metadata(merge_configs(inherited, graph.config, config))


_IDS = frozenset(("thread_id", "checkpoint_id", "checkpoint_ns", "run_id"))


def _public(merged: Config) -> Config:
    """The config of the run: without addresses and the private keys of a task above."""
    configurable = {
        key: value
        for key, value in merged["configurable"].items()
        if key not in _PRIVATE and not key.startswith("__pregel_")
    }
    return {**merged, "configurable": configurable}


def resolve_saver(graph: Pregel, parent: Task | None) -> Any:
    """The saver of a run: the graph's own, or that of the graph above."""
    given = graph.checkpointer
    if given is False:
        return None
    if parent is not None:
        return parent.run.saver
    if given is True:
        raise RuntimeError("checkpointer=True cannot be used for root graphs.")
    return adopted(given)


def _thread_id(configurable: Mapping[str, Any], saver: Any) -> str | None:
    thread_id = configurable.get(CONFIG_KEY_THREAD_ID)
    if thread_id is None:
        if saver is None:
            return None
        if not configurable:
            raise ValueError(
                "Checkpointer requires one or more of the following 'configurable' keys: "
                "thread_id, checkpoint_ns, checkpoint_id; such as config={'configurable': {'thread_id': '...'}}"
            )
        raise InvalidRequest(
            "a graph with a checkpointer needs a thread: config={'configurable': {'thread_id': '...'}}"
        )
    return str(thread_id)


def thread_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The configurable of a config that addresses a thread; ValueError without a thread_id."""
    configurable = dict((config or {}).get("configurable") or {})
    if configurable.get(CONFIG_KEY_THREAD_ID) is None:
        raise InvalidRequest("the config names no thread: {'configurable': {'thread_id': '...'}}")
    configurable[CONFIG_KEY_THREAD_ID] = str(configurable[CONFIG_KEY_THREAD_ID])
    return configurable


def _namespaces(graph: Pregel, parent: Task | None) -> tuple[str, tuple[str, ...]]:
    """The namespace that checkpoints are kept under, and the one that streams show."""
    if parent is None:
        return "", ()
    number = parent.graphs
    parent.graphs += 1
    full = parent.namespace if not number else f"{parent.namespace}{NS_SEP}{number}"
    stored = without_task_ids(full) if graph.checkpointer is True else full
    return stored, tuple(stored.split(NS_SEP))


def _checkpoint_id(
    parent: Task | None, configurable: Mapping[str, Any], checkpoint_map: Mapping[str, str]
) -> str | None:
    if parent is not None:
        return None
    if configurable.get(CONFIG_KEY_CHECKPOINT_NS):
        # The address of a graph inside this one: this one is replayed from where that one was.
        return checkpoint_map.get("")
    return configurable.get(CONFIG_KEY_CHECKPOINT_ID)


def _parents(parent: Task | None) -> dict[str, str]:
    if parent is None:
        return {}
    return parent.checkpoint_map()


def _run_id(merged: Config) -> Any:
    found = merged.get("run_id") or merged["metadata"].get("run_id")
    return None if found is None else str(found)


def _durability(call: Call, above: Any, saver: Any) -> str:
    if call.durability is not None and call.durability not in ("sync", "async", "exit"):
        raise ValueError(f"durability is 'sync', 'async' or 'exit', not {call.durability!r}")
    if call.durability is not None and saver is None and above is None:
        warnings.warn("`durability` has no effect when no checkpointer is present.", UserWarning, stacklevel=6)
    if call.durability is not None:
        return call.durability
    return above.settings.durability if above is not None else "async"


def _output_keys(graph: Pregel, call: Call) -> Keys:
    if call.output_keys is None:
        return graph.stream_keys
    keys: Keys = call.output_keys if isinstance(call.output_keys, str) else tuple(call.output_keys)
    for key in (keys,) if isinstance(keys, str) else keys:
        if key not in graph.plan.channels:
            raise ValueError(f"output_keys: {key!r} is no channel of the graph")
    return keys


def _context(graph: Pregel, given: Any, above: Any) -> Any:
    if given is None:
        return above.context_value if above is not None else None
    schema = graph.context_schema
    if isinstance(given, dict) and isinstance(schema, type) and (is_dataclass(schema) or is_pydantic(schema)):
        return schema(**given)
    return given
