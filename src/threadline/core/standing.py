"""Where a thread stands, gathered for whoever asks why it does not go on.

What cannot be read does not end the answer: it is part of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..backends.port import Backend, CheckpointKey
from ..errors import Corrupt, NotAllowed, NotFound
from ..model import ERROR
from ..namespaces import ROOT
from .audit import task_name
from .leases import LockInfo, held
from .questions import questions
from .reading import Read, read_one, to_tuple, value_of
from .requests import Place
from .survey import ThreadInfo, Waiting, describe
from .timeline import Entry, read_log
from .tools import Tools
from .upcoming import finished_paths, next_nodes
from .weights import ThreadWeight, weigh
from .words import living

__all__ = ["Failure", "Standing", "standing"]

T = TypeVar("T")


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
    waits: tuple[Waiting, ...]
    error: Failure | None
    lock: LockInfo | None
    # The ends of all branches of the root graph, newest first; the first is the head.
    branches: tuple[Entry, ...]
    weight: ThreadWeight
    # What could not be read on the way; `fsck` reads everything.
    damage: tuple[str, ...]


async def standing(backend: Backend, tools: Tools, thread_id: str, now: float) -> Standing:
    """Where a thread stands now; NotFound without it."""
    await tools.open(backend)
    row = await living(backend, thread_id)
    damage: list[str] = []
    log = await read_log(backend, tools, thread_id, sizes=False)
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
        asked = await questions(backend, tools, thread_id)
        return tuple(
            Waiting(
                thread_id=thread_id,
                checkpoint_id=one.key.id,
                task_id=one.task_id,
                interrupt_id=one.id,
                value=one.value,
            )
            for one in asked
        )

    async def listed() -> ThreadInfo:
        return await describe(backend, tools, thread_id)

    unread = ThreadInfo(
        thread_id=thread_id, status=row.status, created=row.created, last_active=row.active, forked_from=row.forked_from
    )
    newest = {entry.namespace: entry.id for entry in reversed(log.entries)}
    return Standing(
        info=await tried(listed, unread),
        head=head,
        next=await tried(lambda: _next(backend, tools, head, damage), None),
        waits=await tried(waiting, ()),
        error=await tried(lambda: _last_error(backend, tools, thread_id, newest), None),
        lock=await tried(lambda: held(backend, thread_id, now), None),
        branches=tuple(entry for entry in roots if entry.is_head),
        weight=(await weigh(backend, [row]))[thread_id],
        damage=tuple(dict.fromkeys(damage)),
    )


async def _next(backend: Backend, tools: Tools, head: Entry | None, damage: list[str]) -> tuple[str, ...] | None:
    """What runs next at the head; every value of it is looked at on the way."""
    if head is None or head.damage is not None:
        return None
    read = await read_one(backend, tools, Place(head.thread_id, head.namespace, head.id))
    if read is None:
        return None
    for name, ref in read.document.roots.refs.items():
        try:
            value_of(tools, read, ref, f"channel {name!r}")
        except (Corrupt, NotFound) as trouble:
            damage.append(str(trouble))
        except NotAllowed:
            continue  # a class that this process lacks is no damage
    checkpoint: Any = to_tuple(tools, read._replace(writes=[]), lazy=True).checkpoint
    return next_nodes(checkpoint, finished_paths(write for write, _ in read.writes))


async def _last_error(backend: Backend, tools: Tools, thread_id: str, newest: dict[str, str]) -> Failure | None:
    failed = [write for write in await backend.thread_writes(thread_id) if write.channel == ERROR]
    if not failed:
        return None
    last = max(failed, key=lambda write: (write.checkpoint_id, write.namespace))
    key = CheckpointKey(last.namespace, last.checkpoint_id)
    read = await read_one(backend, tools, Place(thread_id, *key))
    return Failure(
        task=task_name(last),
        text=_text_of(tools, read, last.task_id) if read is not None else "its checkpoint is not there",
        namespace=key.namespace,
        checkpoint_id=key.id,
        is_past=newest.get(key.namespace) != key.id,
    )


def _text_of(tools: Tools, read: Read, task_id: str) -> str:
    for write, ref in read.writes:
        if write.channel == ERROR and write.task_id == task_id:
            error = value_of(tools, read, ref, "the error of a task")
            name, message = getattr(error, "type_name", type(error).__name__), getattr(error, "message", None)
            said = message if isinstance(message, str) else str(error)
            return f"{str(name).rpartition(':')[2]}: {said}" if said else str(name).rpartition(":")[2]
    return ""
