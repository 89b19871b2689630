"""The plan of a graph: what the loop needs to know about it, worked out once when it is compiled.

A step looks up which nodes a channel triggers, which channels fade when nobody writes them and which ones wait for the
end of the run. None of this changes while a graph runs, so none of it is computed in a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..channels import (
    BaseChannel,
    BinaryOperatorAggregate,
    DeltaChannel,
    LastValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
    UntrackedValue,
)
from ..constants import TAG_HIDDEN
from ..policies import CachePolicy, RetryPolicy, TimeoutPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..running.tasks import Task
    from .actions import Action

__all__ = ["Keys", "Node", "Plan", "Writer"]

# One name means the bare value of that channel, several mean a dict.
Keys = str | tuple[str, ...]
# Channels whose update([]) never changes anything.
_STEADY = (
    LastValue,
    BinaryOperatorAggregate,
    DeltaChannel,
    UntrackedValue,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
    LastValueAfterFinish,
)


class Writer(Protocol):
    """Turns what a node returned into writes of its task."""

    # Whether `write` calls a function of the user that must be awaited.
    is_async: bool
    # Whether `write` calls a function of the user that may block.
    is_blocking: bool

    def write(self, output: Any, task: Task) -> None:
        """Append the writes to the task's."""

    async def write_async(self, output: Any, task: Task) -> None:
        """Append the writes to the task's, in a run that awaits."""


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """A node as the loop sees it: what makes it run, what it reads, what it calls, what it writes."""

    name: str
    triggers: tuple[str, ...]
    channels: Keys
    action: Action | None = None
    mapper: Callable[[Any], Any] | None = None
    writers: tuple[Writer, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    retry: tuple[RetryPolicy, ...] = ()
    cache: CachePolicy[Any] | None = None
    timeout: TimeoutPolicy | None = None
    error_handler: str | None = None
    is_error_handler: bool = False
    defer: bool = False

    @property
    def is_hidden(self) -> bool:
        return TAG_HIDDEN in self.tags

    @property
    def is_quick(self) -> bool:
        """Whether a task of this node can be seen to end at once, and to do nothing but compute what it writes."""
        if self.action is None or not self.action.is_quick or self.retry or self.timeout or self.error_handler:
            return False
        return not any([writer.is_blocking or writer.is_async for writer in self.writers])


class Plan:
    """A graph's nodes and channels, indexed for the loop."""

    __slots__ = (
        "channels",
        "consuming",
        "deltas",
        "fades",
        "fading",
        "finishing",
        "managed",
        "nodes",
        "sorted_triggers",
        "trigger_to_nodes",
        "untracked",
    )

    def __init__(
        self, nodes: Mapping[str, Node], channels: Mapping[str, BaseChannel[Any, Any, Any]], managed: Mapping[str, Any]
    ) -> None:
        self.nodes = dict(nodes)
        self.channels = dict(channels)
        self.managed = dict(managed)
        triggered: dict[str, list[str]] = {}
        for node in nodes.values():
            for trigger in node.triggers:
                triggered.setdefault(trigger, []).append(node.name)
        self.trigger_to_nodes: dict[str, tuple[str, ...]] = {name: tuple(found) for name, found in triggered.items()}
        self.sorted_triggers = {name: tuple(sorted(node.triggers)) for name, node in nodes.items()}
        self.fading = _names(channels, lambda kind: kind not in _STEADY)
        self.fades = frozenset(self.fading)
        self.finishing = _names(channels, lambda kind: kind.finish is not BaseChannel.finish)
        self.consuming = frozenset(_names(channels, lambda kind: kind.consume is not BaseChannel.consume))
        self.deltas = _names(channels, lambda kind: issubclass(kind, DeltaChannel))
        self.untracked = frozenset(_names(channels, lambda kind: issubclass(kind, UntrackedValue)))

    def start_channels(self, stored: Mapping[str, Any], missing: Any) -> dict[str, BaseChannel[Any, Any, Any]]:
        """New channels that hold the stored values."""
        return {name: channel.from_checkpoint(stored.get(name, missing)) for name, channel in self.channels.items()}

    def edges_from(self, node: str) -> list[str]:
        """The nodes that static edges lead to from a node."""
        prefix = "branch:to:"
        found = self.nodes.get(node)
        writes = [write for writer in found.writers for write in getattr(writer, "writes", ())] if found else []
        return [name.removeprefix(prefix) for name, _ in writes if name.startswith(prefix)]


def _names(channels: Mapping[str, BaseChannel[Any, Any, Any]], chosen: Callable[[Any], bool]) -> tuple[str, ...]:
    return tuple(name for name, channel in channels.items() if chosen(type(channel)))


def as_keys(given: str | Sequence[str]) -> Keys:
    """Channel names as they are kept: one name, or a tuple of names."""
    return given if isinstance(given, str) else tuple(given)
