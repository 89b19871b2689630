"""Which tasks run next, and what their writes do to the state: the two decisions of every step, without any I/O.

Rules:
- A node runs when a channel that triggers it is available and newer than what the node has seen.
- The sends of the step before come first, in their order, then the nodes by name.
- Writes are applied in the order of task paths, never in the order in which tasks finished.
- A step has one new version. Every channel that the step changes gets that version.
- A channel that nobody wrote is told so (`update([])`): triggers fade. When nothing triggers any node any more, all
  channels are told that the run would end (`finish`): what was deferred becomes available.
- Writes of the null task (input, Command) only write: they neither fade nor finish anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from .._base import printable
from ..building.nearest import nearest
from ..building.plan import Keys, Node, Plan
from ..channels import BaseChannel
from ..constants import MISSING, PUSH, RESERVED_WRITES, TASKS
from ..errors import EmptyChannelError, InvalidUpdateError
from .ids import path_text
from .inputs import branch_channel

__all__ = ["Applied", "GraphState", "apply_writes", "next_integer", "read_channels", "task_order", "triggered_nodes"]

log = logging.getLogger("threadline.graph")
_EDGE = branch_channel("")

Channels = dict[str, BaseChannel[Any, Any, Any]]
Version = Any


class Applied(Protocol):
    """What `apply_writes` needs of a task."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> tuple[Any, ...]: ...
    @property
    def triggers(self) -> Sequence[str]: ...
    @property
    def writes(self) -> Iterable[tuple[str, Any]]: ...


class GraphState:
    """The channels of one run, their versions, and which versions each node has seen."""

    __slots__ = ("changed", "channels", "live", "seen", "top", "versions")

    def __init__(self, channels: Channels, versions: dict[str, Version], seen: dict[str, dict[str, Version]]) -> None:
        self.channels = channels
        self.versions = versions
        # Inner dicts are replaced, never changed: a checkpoint may hold them while the next step runs.
        self.seen = seen
        # The highest version: a step's new version is the one after it.
        self.top: Version | None = max(versions.values()) if versions else None
        # The channels whose version moved since the last checkpoint that was stored.
        self.changed: set[str] = set()
        # The channels that fade and have a value now, in the order in which they got it; None: not looked for yet.
        self.live: dict[str, None] | None = None

    def moved(self, name: str, version: Version) -> None:
        """A channel changed."""
        self.versions[name] = version
        self.top = version
        self.changed.add(name)

    def copy(self) -> GraphState:
        """A state of its own with the same values."""
        channels = {name: channel.copy() for name, channel in self.channels.items()}
        return GraphState(channels, dict(self.versions), dict(self.seen))


def next_integer(current: Version | None, channel: None = None) -> Version:
    """The next version where no saver counts: integers."""
    return 1 if current is None else current + 1


def task_order(task: Applied) -> str:
    """The key by which tasks of a step are applied."""
    return path_text(task.path[:3])


def apply_writes(
    plan: Plan, state: GraphState, tasks: Sequence[Applied], next_version: Callable[[Any, Any], Any]
) -> set[str]:
    """Apply the writes of a step; gives the channels that changed and are available."""
    if len(tasks) > 1:
        tasks = sorted(tasks, key=task_order)
    versions = state.versions
    is_step = False
    for task in tasks:
        known = state.seen.get(task.name)
        seen = dict(known) if known else {}
        for name in task.triggers:
            is_step = True
            if name in versions:
                seen[name] = versions[name]
        state.seen[task.name] = seen
    new = next_version(state.top, None)
    if plan.consuming:
        _consume(plan, state, tasks, new)
    updated = _update(plan, state, tasks, new)
    if is_step:
        _fade(plan, state, updated, new)
        if updated.isdisjoint(plan.trigger_to_nodes) and plan.finishing:
            _finish(plan, state, updated, new)
    return updated


def _consume(plan: Plan, state: GraphState, tasks: Sequence[Applied], new: Version) -> None:
    for name in {name for task in tasks for name in task.triggers} & plan.consuming:
        if state.channels[name].consume():
            state.moved(name, new)
            if name in plan.fades:
                state.live = None


def _meant(name: str, channels: Iterable[str]) -> str:
    """The end of a message about an unknown channel; that of an edge is compared by its node."""
    if not name.startswith(_EDGE):
        return nearest(name, channels)
    return nearest(name.removeprefix(_EDGE), [one.removeprefix(_EDGE) for one in channels if one.startswith(_EDGE)])


def _update(plan: Plan, state: GraphState, tasks: Sequence[Applied], new: Version) -> set[str]:
    grouped: dict[str, list[Any]] = {}
    channels = state.channels
    for task in tasks:
        for name, value in task.writes:
            if name in grouped:
                grouped[name].append(value)
            elif name in channels:
                grouped[name] = [value]
            elif name not in RESERVED_WRITES:
                log.warning(
                    "Task %r with path %r wrote to unknown channel %r, ignoring it%s",
                    task.name,
                    task.path,
                    name,
                    printable(_meant(name, channels)),
                )
    updated = set()
    for name, values in grouped.items():
        channel = channels[name]
        try:
            changed = channel.update(values)
        except Exception as error:
            raise _explained(error, channel, name, tasks) from error
        if changed:
            state.moved(name, new)
            if channel.is_available():
                updated.add(name)
                if state.live is not None and name in plan.fades:
                    state.live[name] = None
    return updated


def _explained(error: Exception, channel: BaseChannel[Any, Any, Any], name: str, tasks: Sequence[Applied]) -> Exception:
    """The error of a channel, with the tasks that wrote to it; errors of reducers keep their class."""
    writers = [(task, value) for task in tasks for written, value in task.writes if written == name]
    named = ", ".join(f"{_told(task)} ({type(value).__name__})" for task, value in writers)
    if isinstance(error, InvalidUpdateError):
        return InvalidUpdateError(f"{error} Written in this step by: {named}.")
    if hasattr(error, "add_note"):
        held = channel.checkpoint()
        left = "no value" if held is MISSING else type(held).__name__
        error.add_note(f"While key {name!r} (it holds: {left}) was reduced with the writes of: {named}")
    return error


def _told(task: Applied) -> str:
    return f"{task.name} (send {task.path[1]})" if task.path and task.path[0] == PUSH else task.name


def _fade(plan: Plan, state: GraphState, updated: set[str], new: Version) -> None:
    if state.live is None:
        state.live = {name: None for name in plan.fading if state.channels[name].is_available()}
    for name in [name for name in state.live if name not in updated]:
        channel = state.channels[name]
        if channel.is_available() and channel.update(()):
            state.moved(name, new)
            if channel.is_available():
                updated.add(name)
                continue
            del state.live[name]


def _finish(plan: Plan, state: GraphState, updated: set[str], new: Version) -> None:
    for name in plan.finishing:
        channel = state.channels[name]
        if channel.finish():
            state.moved(name, new)
            if name in plan.fades:
                state.live = None
            if channel.is_available():
                updated.add(name)


def triggered_nodes(plan: Plan, state: GraphState, updated: Iterable[str] | None) -> list[Node]:
    """The nodes that run next; `updated` are the channels of the last step, None when they are not known."""
    if not state.versions:
        return []
    if updated is None:
        return [node for node in plan.nodes.values() if _is_triggered(state, node)]
    lookup, nodes = plan.trigger_to_nodes, plan.nodes
    names: set[str] = set()
    for channel in updated:
        if channel in lookup:
            names.update(lookup[channel])
    found = []
    for name in sorted(names) if len(names) > 1 else names:
        if _is_triggered(state, node := nodes[name]):
            found.append(node)
    return found


def _is_triggered(state: GraphState, node: Node) -> bool:
    seen = state.seen.get(node.name)
    channels, versions = state.channels, state.versions
    for name in node.triggers:
        channel = channels.get(name)
        if channel is None or not channel.is_available():
            continue
        if seen is None:
            return True
        version = versions.get(name)
        if version is not None and (name not in seen or version > seen[name]):
            return True
    return False


def sends_of(state: GraphState) -> Sequence[Any]:
    """The sends that wait for this step."""
    topic = state.channels.get(TASKS)
    return topic.get() if topic is not None and topic.is_available() else ()


def read_channels(channels: Mapping[str, BaseChannel[Any, Any, Any]], keys: Keys) -> Any:
    """The bare value of one channel (None when empty), or a dict of those that have a value."""
    if isinstance(keys, str):
        return read_channel(channels, keys, None)
    values = {}
    for name in keys:
        if (value := read_channel(channels, name)) is not MISSING:
            values[name] = value
    return values


def read_channel(channels: Mapping[str, BaseChannel[Any, Any, Any]], name: str, default: Any = MISSING) -> Any:
    """The value of a channel, or the default when it is empty."""
    try:
        return channels[name].get()
    except EmptyChannelError:
        return default
