"""Where a thread stands: what runs next, waits, failed, holds it or is damaged.

Damage does not end the answer: it is part of it. The next nodes are told from the stored checkpoint, without a graph.
A graph triggers a node when a channel that the node listens to has a value and a later version than the node has seen.
`branch:to:NODE` and `join:A+B:NODE` name their node; of every other channel a node is known to listen to it
when it has seen it before. Sends wait in a channel of their own. So of a graph built by hand, whose nodes listen to
plain channels, a node that never ran cannot be told: where nothing else is found, the answer is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..base.checkpoint import ERROR, INTERRUPT, TASKS, WRITES_IDX_MAP
from ..base.damage import Damaged
from ..base.namespaces import ROOT
from ..base.versions import is_newer
from ..errors import Corrupt, NotAllowed, NotFound
from .context import Context
from .get import read_one, read_writes, to_tuple, value_of
from .history.log import Entry, read_log
from .history.state import task_name
from .interrupts import questions
from .leases import LockInfo, held
from .lifecycle import living
from .requests import Place
from .stats import ThreadWeight, weigh
from .threads import ThreadInfo, Waiting, describe, told

__all__ = ["Failure", "Standing", "finished_paths", "next_and_finished", "next_nodes", "standing"]

T = TypeVar("T")
_START = "__start__"
_BRANCH, _JOIN = "branch:to:", "join:"
_PULL, _PUSH = "__pregel_pull", "__pregel_push"
# Entries among what nodes have seen that are no nodes.
_NO_NODES = frozenset((INTERRUPT, "__input__"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The error of a task."""

    task: str
    text: str
    namespace: str
    checkpoint_id: str
    # Whether the graph has gone on from there since.
    is_past: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a thread stands."""

    info: ThreadInfo
    # The newest checkpoint of the root graph; None where there is none yet.
    head: Entry | None
    # The nodes that run next; empty at the end of a run, None where that cannot be told without the graph.
    next: tuple[str, ...] | None
    # The nodes that were due at the head and have finished: their writes are stored, and no run has taken them up.
    finished: tuple[str, ...]
    waits: tuple[Waiting, ...]
    error: Failure | None
    lock: LockInfo | None
    # The ends of all branches of the root graph, newest first; the first is the head.
    branches: tuple[Entry, ...]
    weight: ThreadWeight
    # What could not be read on the way; `fsck` reads everything.
    damage: tuple[str, ...]


async def standing(store: Context, thread_id: str, now: float) -> Standing:
    """Where a thread stands now; NotFound without it."""
    row = await living(store, thread_id)
    damage: list[str] = []
    log = await read_log(store, thread_id, sizes=False)
    roots = [entry for entry in log if entry.namespace == ROOT]
    head = roots[0] if roots else None
    damage += [entry.damage for entry in log if entry.damage is not None]

    async def tried(act: Callable[[], Awaitable[T]], otherwise: T) -> T:
        try:
            return await act()
        except (Corrupt, NotAllowed, NotFound) as trouble:
            if str(trouble) not in damage:
                damage.append(str(trouble))
            return otherwise

    async def waiting() -> tuple[Waiting, ...]:
        asked = await questions(store, thread_id)
        damage.extend(one.value.why for one in asked if isinstance(one.value, Damaged))
        return tuple(told(thread_id, one) for one in asked)

    async def listed() -> ThreadInfo:
        return await describe(store, thread_id)

    unread = ThreadInfo(
        thread_id=thread_id, status=row.status, created=row.created, last_active=row.active, forked_from=row.forked_from
    )
    newest = {entry.namespace: entry.id for entry in reversed(log.entries)}
    nothing: tuple[tuple[str, ...] | None, tuple[str, ...]] = (None, ())
    upcoming, finished = await tried(lambda: _next(store, head, damage), nothing)
    return Standing(
        info=await tried(listed, unread),
        head=head,
        next=upcoming,
        finished=finished,
        waits=await tried(waiting, ()),
        error=await tried(lambda: _last_error(store, thread_id, newest), None),
        lock=await tried(lambda: held(store.backend, thread_id, now), None),
        branches=tuple(entry for entry in roots if entry.is_head),
        weight=(await weigh(store.backend, [row]))[thread_id],
        damage=tuple(dict.fromkeys(damage)),
    )


async def _next(
    store: Context, head: Entry | None, damage: list[str]
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The nodes that run next at the head, and those that have finished there; every value of it is looked at."""
    if head is None or head.damage is not None:
        return None, ()
    place = Place(head.thread_id, head.namespace, head.id)
    # A damaged write hides only itself: which tasks have finished is told without what they wrote.
    row, read = await store.find(*place), await read_one(store, place, with_writes=False)
    if row is None or read is None:
        return None, ()
    for name, ref in read.document.roots.refs.items():
        try:
            value_of(store.tools, read, ref, f"channel {name!r}")
        except (Corrupt, NotFound) as trouble:
            damage.append(str(trouble))
        except NotAllowed:
            continue  # a class that this process lacks is no damage
    written = await read_writes(store, store.tools.lenient, head.thread_id, row.pool, row.writes)
    damage.extend(value.why for _, value, _ in written if isinstance(value, Damaged))
    checkpoint: Any = to_tuple(store.tools, read, lazy=True).checkpoint
    return next_and_finished(checkpoint, finished_paths(row.writes))


async def _last_error(store: Context, thread_id: str, newest: dict[str, str]) -> Failure | None:
    failed = [write for write in await store.thread_writes(thread_id) if write.channel == ERROR]
    if not failed:
        return None
    last = max(failed, key=lambda write: (write.checkpoint_id, write.namespace))
    key = last.key
    found = await store.find(thread_id, *key, with_writes=False)
    read = await read_writes(store, store.tools, thread_id, found.pool, [last]) if found is not None else []
    return Failure(
        task=task_name(last),
        text=_text_of(read[0][1]) if read else "its checkpoint is not there",
        namespace=key.namespace,
        checkpoint_id=key.id,
        is_past=newest.get(key.namespace) != key.id,
    )


def _text_of(error: Any) -> str:
    if isinstance(error, Damaged):
        raise Corrupt(error.why)
    name, message = getattr(error, "type_name", type(error).__name__), getattr(error, "message", None)
    said = message if isinstance(message, str) else str(error)
    return f"{str(name).rpartition(':')[2]}: {said}" if said else str(name).rpartition(":")[2]


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


def next_and_finished(
    checkpoint: Mapping[str, Any], finished: Collection[str]
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The nodes that are due at a checkpoint, and those that were and have finished."""
    upcoming = next_nodes(checkpoint, finished)
    due = next_nodes(checkpoint) if finished and upcoming is not None else ()
    return upcoming, tuple((Counter(due) - Counter(upcoming)).elements())


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
