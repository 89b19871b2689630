"""Graphs given by nodes and channels directly: `Pregel` with nodes that a `NodeBuilder` describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .building.actions import Action, action_of
from .building.plan import Node, Writer
from .compiled import Pregel
from .policies import CachePolicy, RetryPolicy, TimeoutPolicy
from .running.tasks import Task

__all__ = ["NodeBuilder", "Pregel"]


class ChannelWriter:
    """Writes what a node returned to channels, or what functions make of it."""

    is_async = False
    is_blocking = False

    def __init__(self, channels: tuple[str, ...], values: Mapping[str, Any]) -> None:
        self._channels = channels
        self._values = dict(values)

    @property
    def channels(self) -> tuple[str, ...]:
        """Every channel that is written."""
        return (*self._channels, *self._values)

    def write(self, output: Any, task: Task) -> None:
        for channel in self._channels:
            task.writes.append((channel, output))
        for channel, value in self._values.items():
            if callable(value):
                value = value(output)
                if value is None:
                    continue
            task.writes.append((channel, value))

    async def write_async(self, output: Any, task: Task) -> None:
        self.write(output, task)


class NodeBuilder:
    """Says what a node subscribes to, reads, does and writes."""

    def __init__(self) -> None:
        self._channels: str | list[str] = []
        self._triggers: list[str] = []
        self._tags: list[str] = []
        self._metadata: dict[str, Any] = {}
        self._writes: list[Writer] = []
        self._actions: list[Action] = []
        self._retry: list[RetryPolicy] = []
        self._cache: CachePolicy[Any] | None = None
        self._timeout: TimeoutPolicy | None = None

    def subscribe_only(self, channel: str) -> NodeBuilder:
        """Run when this channel changes, with its bare value."""
        if self._channels:
            raise ValueError("Cannot subscribe to single channels when other channels are already subscribed to")
        self._channels = channel
        self._triggers.append(channel)
        return self

    def subscribe_to(self, *channels: str, read: bool = True) -> NodeBuilder:
        """Run when one of these channels changes; with `read`, they are keys of the input."""
        if isinstance(self._channels, str):
            raise ValueError("Cannot subscribe to channels when subscribed to a single channel")
        if read:
            self._channels.extend(one for one in channels if one not in self._channels)
        self._triggers.extend(one for one in channels if one not in self._triggers)
        return self

    def read_from(self, *channels: str) -> NodeBuilder:
        """Have these channels as keys of the input, without running when they change."""
        if isinstance(self._channels, str):
            raise ValueError("Cannot read additional channels when subscribed to single channels")
        self._channels.extend(one for one in channels if one not in self._channels)
        return self

    def do(self, node: Any) -> NodeBuilder:
        """Call this, after what was given before."""
        self._actions.append(action_of(node))
        return self

    def write_to(self, *channels: str, **values: Any) -> NodeBuilder:
        """Write the output to these channels; a keyword writes a value, or what a function makes of the output."""
        self._writes.append(ChannelWriter(channels, values))
        return self

    def meta(self, *tags: str, **metadata: Any) -> NodeBuilder:
        """Tags and metadata of the node."""
        self._tags.extend(tags)
        self._metadata.update(metadata)
        return self

    def add_retry_policies(self, *policies: RetryPolicy) -> NodeBuilder:
        """When to run the node again."""
        self._retry.extend(policies)
        return self

    def add_cache_policy(self, policy: CachePolicy[Any]) -> NodeBuilder:
        """When to reuse a result."""
        self._cache = policy
        return self

    def set_timeout(self, timeout: Any) -> NodeBuilder:
        """How long an attempt may take."""
        self._timeout = TimeoutPolicy.coerce(timeout)
        return self

    def build(self) -> Node:
        """The node, still without a name."""
        return self.build_as("")

    def build_as(self, name: str) -> Node:
        """The node under a name."""
        action = _sequence(self._actions, name)
        if self._timeout is not None and (action is None or action.call_async is None):
            raise ValueError(f"Node {name!r} has a timeout but is not async: a thread cannot be stopped.")
        return Node(
            name=name,
            triggers=tuple(self._triggers),
            channels=self._channels if isinstance(self._channels, str) else tuple(self._channels),
            action=action,
            writers=tuple(self._writes),
            tags=tuple(self._tags),
            metadata=self._metadata,
            retry=tuple(self._retry),
            cache=self._cache,
            timeout=self._timeout,
        )


def _sequence(actions: list[Action], name: str) -> Action | None:
    if not actions:
        return None
    if len(actions) == 1:
        return actions[0]

    def call(value: Any, task: Task) -> Any:
        for action in actions:
            assert action.call is not None
            value = action.call(value, task)
        return value

    async def call_async(value: Any, task: Task) -> Any:
        for action in actions:
            if action.call_async is not None:
                value = await action.call_async(value, task)
            else:
                assert action.call is not None
                value = action.call(value, task)
        return value

    is_async = any(action.call is None for action in actions)
    sync_call: Callable[[Any, Task], Any] | None = None if is_async else call
    return Action(name, actions, sync_call, call_async if is_async else None)
