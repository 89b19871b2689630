"""Configs: how the ambient one, that of `with_config` and that of the call become one.

Rules: configurable and metadata are merged key by key, tags are appended without doubling, everything else is
replaced. Unknown keys at the top level are keys of `configurable`. A graph that is called inside a node belongs to that
node's task, unless its config names a thread or a checkpoint of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .constants import (
    CONFIG_KEY_CHECKPOINT_ID,
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_SCRATCHPAD,
    CONFIG_KEY_THREAD_ID,
)
from .runtime import CURRENT_TASK, get_config, get_store, get_stream_writer

if TYPE_CHECKING:
    from .running.tasks import Task

__all__ = [
    "Config",
    "default_recursion_limit",
    "get_config",
    "get_store",
    "get_stream_writer",
    "merge_configs",
    "parent_of",
]

Config = dict[str, Any]

_TOP_LEVEL = frozenset(
    ("configurable", "metadata", "tags", "recursion_limit", "max_concurrency", "run_name", "run_id", "callbacks")
)
_LINEAGE = (CONFIG_KEY_THREAD_ID, CONFIG_KEY_CHECKPOINT_NS, CONFIG_KEY_CHECKPOINT_ID, CONFIG_KEY_CHECKPOINT_MAP)
_TO_METADATA = ("thread_id", "checkpoint_id", "checkpoint_ns", "task_id", "run_id", "assistant_id", "graph_id")
_DEFAULT_RECURSION_LIMIT = 10007


def default_recursion_limit() -> int:
    """How many steps a run may take when its config does not say."""
    return int(os.environ.get("LANGGRAPH_DEFAULT_RECURSION_LIMIT", _DEFAULT_RECURSION_LIMIT))


def merge_configs(*configs: Mapping[str, Any] | None) -> Config:
    """One config out of several; later ones win."""
    merged: Config = {"tags": [], "metadata": {}, "configurable": {}}
    for config in configs:
        if not config:
            continue
        for key, value in config.items():
            if value is None:
                continue
            if key in ("configurable", "metadata"):
                merged[key] = {**merged[key], **value}
            elif key == "tags":
                merged["tags"] = [*merged["tags"], *(tag for tag in value if tag not in merged["tags"])]
            elif key in _TOP_LEVEL:
                merged[key] = value
            else:
                merged["configurable"][key] = value
    return merged


def with_copied_metadata(config: Config) -> Config:
    """A config with the ids of `configurable` in its metadata too."""
    configurable, metadata = config["configurable"], config["metadata"]
    copied = {
        key: configurable[key]
        for key in _TO_METADATA
        if key not in metadata and isinstance(configurable.get(key), (str, int, float, bool))
    }
    if "checkpoint_ns" in copied and not copied["checkpoint_ns"]:
        del copied["checkpoint_ns"]
    if copied:
        config["metadata"] = {**metadata, **copied}
    return config


def parent_of(config: Mapping[str, Any] | None) -> Task | None:
    """The task that a graph called with this config belongs to; None for a run of its own."""
    configurable = (config or {}).get("configurable") or {}
    found: Any = configurable.get(CONFIG_KEY_SCRATCHPAD)
    given: Task | None = getattr(found, "task", found)  # the bridge gives it another face
    if given is not None:
        own = given.config["configurable"]
        return given if all(configurable.get(key) == own.get(key) for key in _LINEAGE[:3]) else None
    if any(configurable.get(key) is not None for key in _LINEAGE):
        return None
    return CURRENT_TASK.get()
