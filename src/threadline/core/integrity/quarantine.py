"""Setting damaged checkpoints aside, so that the rest of their thread can be used.

A checkpoint is judged anew before it goes: what was healed or replaced since the report stays, and so does
what is whole but may not be rebuilt here. What goes is kept first, row and writes as they were stored, in a
record of the store itself, and its sound chunks stay (evidence.py); rows of chunks that are in a lost object are kept
elsewhere (away.py). Then the pool is collected: a damaged chunk that stayed would be taken for the good one by the next
put of the same content. `unquarantine` puts it back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ormsgpack

from ...base.attempts import ATTEMPTS, gave_up
from ...base.printable import printable
from ...codec.limits import unpack
from ...errors import Conflict, Corrupt, InvalidRequest, NotFound
from ...ports.checkpoints import Applied, Backend, Change, CheckpointKey, CheckpointRow, Found, WriteRow
from ..context import Context
from ..history.graph import History, history_of, on_a_cycle
from ..requests import text_id
from ..retention.prune import collect_pool
from ..store_records import change_record, read_record, record_names, swap_record
from .away import rows_of
from .evidence import RECORDS, Entry, entries_of, evidence_key, keep_chunks, let_go, pools_of_keepers
from .fsck import judge
from .report import Damage, check_damages
from .verify import Walk, subject_of, subject_of_write

__all__ = ["Aside", "Quarantined", "evidence_key", "quarantine", "quarantined", "unquarantine"]


_Stored = tuple[Found | None, list[WriteRow]]


class Aside(NamedTuple):
    """A checkpoint that is set aside, or would be, and why."""

    thread_id: str
    key: CheckpointKey
    why: tuple[str, ...]


async def quarantine(store: Context, damages: Sequence[Damage], now: float, *, dry_run: bool = False) -> list[Aside]:
    """Set damaged checkpoints aside, with their writes; returns those that went, or with `dry_run` would go.

    Checkpoints whose delta channels are replayed from a damaged one go with it: without it they would be
    replayed to a wrong value.
    """
    by_thread: dict[str, dict[CheckpointKey, list[str]]] = defaultdict(lambda: defaultdict(list))
    for damage in check_damages(damages):
        by_thread[damage.thread_id][CheckpointKey(damage.namespace, damage.checkpoint_id)].append(damage.what)
    gone: list[Aside] = []
    for thread_id, named in by_thread.items():
        thread = await store.backend.thread(thread_id)
        if thread is None or thread.status == "deleted":
            continue
        walk = Walk(store, thread.pool)
        history = await history_of(store, thread_id)
        # Oldest first: of a circle of parents the first one goes, and then there is no circle.
        for key in sorted(named, key=lambda key: (key.id, key.namespace)):
            for one in await _aside(walk, thread_id, key, named[key], history, None if dry_run else now):
                gone.append(one)
                history.pop(one.key, None)
        if not dry_run:
            await collect_pool(store.backend, thread.pool)
    if gone and not dry_run:
        # What is known to be stored may be what was found missing.
        store.tools.forget()
    return gone


async def _aside(
    walk: Walk, thread_id: str, key: CheckpointKey, why: Sequence[str], history: History, now: float | None
) -> list[Aside]:
    """Set a checkpoint aside if it is damaged, and before it those that are replayed from it; gives all that went.

    Without a time nothing is done.
    """
    own = Aside(thread_id, key, tuple(why))
    for _ in range(ATTEMPTS):
        judged = await _stored(walk.store, thread_id, key)
        if not await _is_damaged(walk, thread_id, key, judged, history):
            return []
        because = (f"a delta channel is replayed from {key.id}",)
        others = [Aside(thread_id, at, because) for at in _dependents(history, key)]
        if now is None:
            return [*others, own]
        # Those first: if this is interrupted, none of them is left to be replayed to a wrong value.
        gone = [
            one for one in others if await _set_aside(walk, one, await _stored(walk.store, thread_id, one.key), now)
        ]
        if await _set_aside(walk, own, judged, now):
            return [*gone, own]
    why = f"checkpoint {key.id} was written during each of them"
    raise gave_up(f"quarantine in thread {thread_id!r}", why, Conflict)


async def _is_damaged(walk: Walk, thread_id: str, key: CheckpointKey, stored: _Stored, history: History) -> bool:
    found, writes = stored
    if found is None and not writes:
        return False
    subjects = [subject_of_write(walk.tools, thread_id, write) for write in writes]
    if found is not None:
        subjects.append(subject_of(walk.tools, found))
    thread = await walk.store.thread(thread_id)
    if thread is None or thread.pool != walk.pool:
        return False  # begun anew meanwhile, in a pool of its own
    walk.forget_troubles()
    if any(verdict.damages for verdict in await judge(walk, thread_id, subjects)):
        return True
    return found is not None and key in on_a_cycle(history.parents)


def _dependents(history: History, key: CheckpointKey) -> list[CheckpointKey]:
    """The checkpoints whose delta channels are replayed from this one, newest first."""
    chained = [at for at, step in history.items() if step.replays and at != key and key in history.with_chains([at])]
    return sorted(chained, reverse=True)


async def _set_aside(walk: Walk, one: Aside, stored: _Stored, now: float) -> bool:
    """Keep what is stored and take it out of its thread, unless it is another by now."""
    found, writes = stored
    backend, (thread_id, key, why) = walk.store.backend, one
    if found is None and not writes:
        return False
    links = [*([found.row.links] if found else []), *(write.links for write in writes)]
    away = await keep_chunks(walk, thread_id, key, links)
    await _keep_evidence(backend, key, Entry([thread_id, now, list(why)], [found and found.row, *writes], away))
    again, pending = await _stored(walk.store, thread_id, key)
    if (again and again.row, pending) != (found and found.row, writes):
        return False
    await backend.remove_checkpoints(thread_id, [key])
    return True


async def _stored(store: Context, thread_id: str, key: CheckpointKey) -> _Stored:
    """A checkpoint with its writes, which may be there without it."""
    found = await store.find(thread_id, *key)
    if found is not None:
        return found, found.writes
    writes = await store.thread_writes(thread_id)
    return None, [write for write in writes if (write.namespace, write.checkpoint_id) == key]


def _held(record: bytes) -> list[object]:
    """The entries of a record of quarantine; the record itself, as bytes, where it is none of ours."""
    try:
        held = unpack(record)
    except ValueError:
        held = None
    return held if type(held) is list else [record]


async def _keep_evidence(backend: Backend, key: CheckpointKey, entry: Entry) -> None:
    """Add to the record of a place; nothing that is there is lost."""
    thread_id = entry.head[0]
    name = evidence_key(thread_id, *key)

    def added(before: bytes | None) -> bytes:
        return ormsgpack.packb([*(_held(before) if before else []), entry.packed()])

    await change_record(backend, name, added, f"quarantine of checkpoint {key.id} of thread {thread_id!r}", Conflict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A checkpoint that was set aside."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    # When, in seconds since 1970, and what was wrong.
    quarantined: float
    why: tuple[str, ...]
    writes: int

    @property
    def key(self) -> CheckpointKey:
        return CheckpointKey(self.namespace, self.checkpoint_id)

    def __str__(self) -> str:
        where = f" in {self.namespace!r}" if self.namespace else ""
        return printable(f"thread {self.thread_id!r}, checkpoint {self.checkpoint_id}{where}: {'; '.join(self.why)}")


async def quarantined(backend: Backend, thread_id: str | None = None) -> list[Quarantined]:
    """The quarantined checkpoints of all threads or of one, oldest first."""
    # Records are of the whole store; a view shows those of its threads.
    thread_id, prefix = None if thread_id is None else text_id(thread_id, "thread_id"), getattr(backend, "prefix", "")
    found: list[Quarantined] = []
    for name in await record_names(backend, RECORDS):
        try:
            entries = entries_of(name, await read_record(backend, name))
        except Corrupt:
            continue  # fsck and rotation tell of it
        found += map(_described, entries)
    chosen = [one for one in found if thread_id in (None, one.thread_id) and one.thread_id.startswith(prefix)]
    return sorted(chosen, key=lambda one: (one.thread_id, one.quarantined, one.key))


async def unquarantine(store: Context, chosen: Any, now: float) -> int:
    """Put checkpoints back into their threads as they were, damaged as they may be; returns how many.

    Raises NotFound for one that is not in quarantine, and Conflict where its thread was deleted, or has it again.
    """
    if not isinstance(chosen, Sequence) or not all(isinstance(one, Quarantined) for one in chosen):
        raise InvalidRequest("unquarantine takes a list of what quarantined() gives")
    for one in chosen:
        await _put_back(store, one, now)
    if chosen:
        store.tools.forget()
    return len(chosen)


async def _put_back(store: Context, one: Quarantined, now: float) -> None:
    backend = store.backend
    name = evidence_key(one.thread_id, *one.key)
    for _ in range(ATTEMPTS):
        before = await read_record(backend, name)
        entries = entries_of(name, before)
        at = next((at for at, entry in enumerate(entries) if _described(entry) == one), None)
        if at is None:
            raise NotFound(f"thread {one.thread_id!r}: checkpoint {one.checkpoint_id} is not in quarantine")
        if not await _applied(store, one, entries[at], now):
            continue
        left = [entry.packed() for n, entry in enumerate(entries) if n != at]
        if not await swap_record(backend, name, before, ormsgpack.packb(left) if left else None):
            continue
        if not left:
            await let_go(backend, one.thread_id, one.key, now)
        return
    raise gave_up(
        f"return from quarantine to thread {one.thread_id!r}", "another process changed it during each of them"
    )


async def _applied(store: Context, one: Quarantined, entry: Entry, now: float) -> bool:
    backend = store.backend
    thread = await backend.thread(one.thread_id)
    if thread is None or thread.status == "deleted":
        raise Conflict(f"the thread {one.thread_id!r} was deleted: its checkpoint {one.checkpoint_id} has no place")
    pools = await pools_of_keepers(backend, one.thread_id)
    if pools and thread.pool not in pools:
        raise Conflict(
            f"the thread {one.thread_id!r} was deleted and begun anew: {one.checkpoint_id} is of its life before"
        )
    row, *writes = entry.rows
    found = await backend.find(one.thread_id, *one.key, with_writes=False)
    if found is not None and found.row != row:
        raise Conflict(f"thread {one.thread_id!r}: checkpoint {one.checkpoint_id} was put again since; delete it first")
    change = Change(thread_id=one.thread_id, now=now, stamp=thread.stamp, begins=False)
    change.checkpoints = [row] if isinstance(row, CheckpointRow) else []
    change.writes = [write for write in writes if isinstance(write, WriteRow)]
    change.chunks = await rows_of(Walk(store, thread.pool), entry.away)
    [outcome] = await backend.apply([change])
    return isinstance(outcome, Applied)


def _described(entry: Entry) -> Quarantined:
    thread_id, when, why = entry.head
    row, *writes = entry.rows
    first = row if row is not None else writes[0]
    assert first is not None
    named = first.id if isinstance(first, CheckpointRow) else first.checkpoint_id
    return Quarantined(
        thread_id=thread_id,
        namespace=first.namespace,
        checkpoint_id=named,
        quarantined=when,
        why=tuple(why),
        writes=len(writes),
    )
