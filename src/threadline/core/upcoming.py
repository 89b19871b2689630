"""Which nodes a graph would run next, told by what is stored: there is no graph here.

A graph triggers a node when a channel that the node listens to has a value and a later version than the node has seen.
`branch:to:NODE` and `join:A+B:NODE` name their node; of every other channel a node is known to listen to it
when it has seen it before. Sends wait in a channel of their own. So of a graph built by hand, whose nodes listen to
plain channels, a node that never ran cannot be told: where nothing else is found, the answer is None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..model import INTERRUPT, TASKS, WRITES_IDX_MAP
from ..versions import is_newer

__all__ = ["finished_paths", "next_nodes"]

_START = "__start__"
_BRANCH, _JOIN = "branch:to:", "join:"
_PULL, _PUSH = "__pregel_pull", "__pregel_push"
# Entries among what nodes have seen that are no nodes.
_NO_NODES = frozenset((INTERRUPT, "__input__"))


def next_nodes(checkpoint: Mapping[str, Any], finished: Collection[str] = ()) -> tuple[str, ...] | None:
    """The nodes that are due at a checkpoint, less the tasks at the paths that have `finished`; None if nobody knows.

    A send is a run of its own: a node that is sent to twice is there twice.
    """
    versions, seen = checkpoint["channel_versions"], checkpoint["versions_seen"]
    values = checkpoint["channel_values"]
    if not isinstance(versions, Mapping) or not isinstance(seen, Mapping):
        return None
    done = [_parts(path) for path in finished]
    sends = _listed(values[TASKS]) if TASKS in values else []
    sent = [
        node
        for place, send in enumerate(sends)
        if (node := _sent_to(send)) and not any(kind == _PUSH and name == place for kind, name in done)
    ]
    pulled = {node for name in values if (node := _named_node(name, values)) and _is_new(name, node, versions, seen)}
    for node, listened in seen.items():
        if node not in _NO_NODES and isinstance(listened, Mapping):
            due = (name for name in listened if name in values and _is_available(name, values))
            if any(_is_new(name, node, versions, seen) for name in due):
                pulled.add(node)
    if not sends and not pulled and not any(name == _START or name.startswith((_BRANCH, _JOIN)) for name in versions):
        return None
    return (*sent, *sorted(node for node in pulled if (_PULL, node) not in done))


def finished_paths(writes: Iterable[Any]) -> set[str]:
    """The paths of the tasks that have written their results, of pending writes with `channel` and `task_path`."""
    return {write.task_path for write in writes if write.channel not in WRITES_IDX_MAP}


def _named_node(channel: str, values: Mapping[str, Any]) -> str | None:
    """The node that a channel names as the one it triggers."""
    if channel == _START:
        return _START
    if channel.startswith(_BRANCH):
        return channel.removeprefix(_BRANCH)
    if channel.startswith(_JOIN) and _is_available(channel, values):
        return channel.rpartition(":")[2]
    return None


def _is_available(channel: str, values: Mapping[str, Any]) -> bool:
    """Whether a channel has a value for its readers; a join has one when all it waits for has come."""
    if not channel.startswith(_JOIN):
        return True
    awaited = channel.removeprefix(_JOIN).rpartition(":")[0]
    came = values[channel]
    if isinstance(came, (list, tuple)) and len(came) == 2 and isinstance(came[1], bool):
        came = came[0] if came[1] else ()  # the join of a node that is deferred: what came, and whether that is all
    names = [name for name in _listed(came) if isinstance(name, str)]
    return sorted("+".join(names)) == sorted(awaited)


def _is_new(channel: str, node: str, versions: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    version = versions.get(channel)
    if version is None:
        return False
    before = seen.get(node)
    last = before.get(channel) if isinstance(before, Mapping) else None
    return is_newer(version, last)


def _parts(path: str) -> tuple[str, str | int]:
    """How a task came about, and its node, or for a send its number."""
    kind, _, rest = path.lstrip("~").partition(",")
    name = rest.strip() if kind == _PULL else rest.partition(",")[0].strip()
    return kind, int(name) if kind == _PUSH and name.isdecimal() else name


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []


def _sent_to(send: Any) -> str | None:
    """The node that a send names, whichever class it is of."""
    node = getattr(send, "node", None)
    state = getattr(send, "state", None)  # of a structure whose fields have no names
    if node is None and isinstance(state, list) and state:
        node = state[0]
    return node if isinstance(node, str) else None
