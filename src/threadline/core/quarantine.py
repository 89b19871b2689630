"""Setting damaged checkpoints aside, so that the rest of their thread can be used.

A checkpoint is judged anew before it goes: what was healed or replaced since the report stays, and so does
what is whole but may not be rebuilt here. What goes is kept first, row and writes as they were stored, in a
record of the store itself, and its sound chunks stay (core/keepers.py). Then the pool is collected: a damaged chunk
that stayed would be taken for the good one by the next put of the same content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import ormsgpack

from ..backends.port import Backend, CheckpointKey, Found, WriteRow
from ..errors import Conflict
from .damage import Damage
from .evidence import evidence_key
from .fsck import judge, on_a_cycle
from .keepers import keep_sound_chunks
from .lineage import History, with_chains
from .retention import collect_pool, history_of
from .soundness import Walk, subject_of, subject_of_write
from .tools import Tools

__all__ = ["Aside", "evidence_key", "quarantine"]

_TRIES = 32
_Stored = tuple[Found | None, list[WriteRow]]


class Aside(NamedTuple):
    """A checkpoint that is set aside, or would be, and why."""

    thread_id: str
    key: CheckpointKey
    why: tuple[str, ...]


async def quarantine(
    backend: Backend, tools: Tools, damages: Sequence[Damage], now: float, *, dry_run: bool = False
) -> list[Aside]:
    """Set damaged checkpoints aside, with their writes; returns those that went, or with `dry_run` would go.

    Checkpoints whose delta channels are replayed from a damaged one go with it: without it they would be
    replayed to a wrong value.
    """
    await tools.open(backend)
    by_thread: dict[str, dict[CheckpointKey, list[str]]] = defaultdict(lambda: defaultdict(list))
    for damage in damages:
        by_thread[damage.thread_id][CheckpointKey(damage.namespace, damage.checkpoint_id)].append(damage.what)
    gone: list[Aside] = []
    for thread_id, named in by_thread.items():
        thread = await backend.thread(thread_id)
        if thread is None or thread.status == "deleted":
            continue
        walk = Walk(backend, tools, thread.pool)
        history = await history_of(backend, tools, thread_id)
        # Oldest first: of a circle of parents the first one goes, and then there is no circle.
        for key in sorted(named, key=lambda key: (key.id, key.namespace)):
            for one in await _aside(walk, thread_id, key, named[key], history, None if dry_run else now):
                gone.append(one)
                history.pop(one.key, None)
        if not dry_run:
            await collect_pool(backend, thread.pool)
    if gone and not dry_run:
        # What is known to be stored may be what was found missing.
        tools.forget()
    return gone


async def _aside(
    walk: Walk, thread_id: str, key: CheckpointKey, why: Sequence[str], history: History, now: float | None
) -> list[Aside]:
    """Set a checkpoint aside if it is damaged, and before it those that are replayed from it; gives all that went.

    Without a time nothing is done.
    """
    own = Aside(thread_id, key, tuple(why))
    for _ in range(_TRIES):
        judged = await _stored(walk.backend, thread_id, key)
        if not await _is_damaged(walk, thread_id, key, judged, history):
            return []
        because = (f"a delta channel is replayed from {key.id}",)
        others = [Aside(thread_id, at, because) for at in _dependents(history, key)]
        if now is None:
            return [*others, own]
        # Those first: if this is interrupted, none of them is left to be replayed to a wrong value.
        gone = [
            one for one in others if await _set_aside(walk, one, await _stored(walk.backend, thread_id, one.key), now)
        ]
        if await _set_aside(walk, own, judged, now):
            return [*gone, own]
    raise Conflict(f"thread {thread_id!r}: checkpoint {key.id} is written again and again; try again")


async def _is_damaged(walk: Walk, thread_id: str, key: CheckpointKey, stored: _Stored, history: History) -> bool:
    found, writes = stored
    if found is None and not writes:
        return False
    forms = [write.form for write in writes] + ([found.row.form, found.row.metadata_form] if found is not None else [])
    await walk.tools.learn_keys(walk.backend, forms)
    subjects = [subject_of_write(walk.tools, thread_id, write) for write in writes]
    if found is not None:
        subjects.append(subject_of(walk.tools, found))
    thread = await walk.backend.thread(thread_id)
    if thread is None or thread.pool != walk.pool:
        return False  # begun anew meanwhile, in a pool of its own
    walk.forget_troubles()
    if any(verdict.damages for verdict in await judge(walk, thread_id, subjects)):
        return True
    parents = {at: step.parent.id if step.parent else None for at, step in history.items()}
    return found is not None and key in on_a_cycle(parents)


def _dependents(history: History, key: CheckpointKey) -> list[CheckpointKey]:
    """The checkpoints whose delta channels are replayed from this one, newest first."""
    chained = [at for at, step in history.items() if step.replays and at != key and key in with_chains(history, [at])]
    return sorted(chained, reverse=True)


async def _set_aside(walk: Walk, one: Aside, stored: _Stored, now: float) -> bool:
    """Keep what is stored and take it out of its thread, unless it is another by now."""
    found, writes = stored
    backend, (thread_id, key, why) = walk.backend, one
    if found is None and not writes:
        return False
    await _keep_evidence(backend, thread_id, key, [now, list(why), found and tuple(found.row), *map(tuple, writes)])
    await keep_sound_chunks(walk, thread_id, key, [*([found.row.links] if found else []), *(w.links for w in writes)])
    again, pending = await _stored(backend, thread_id, key)
    if (again and again.row, pending) != (found and found.row, writes):
        return False
    await backend.remove_checkpoints(thread_id, [key])
    return True


async def _stored(backend: Backend, thread_id: str, key: CheckpointKey) -> _Stored:
    """A checkpoint with its writes, which may be there without it."""
    found = await backend.find(thread_id, *key)
    if found is not None:
        return found, found.writes
    writes = await backend.thread_writes(thread_id)
    return None, [write for write in writes if (write.namespace, write.checkpoint_id) == key]


def _held(record: bytes) -> list[object]:
    """What a record of quarantine holds; all of it, as bytes, where it is no record of ours."""
    try:
        held = ormsgpack.unpackb(record)
    except ValueError:
        held = None
    return held if type(held) is list else [record]


async def _keep_evidence(backend: Backend, thread_id: str, key: CheckpointKey, evidence: list[object]) -> None:
    """Add to the record of a place; nothing that is there is lost."""
    name = evidence_key(thread_id, *key)
    for _ in range(_TRIES):
        before = await backend.get_meta(name)
        held = _held(before) if before else []
        packed = ormsgpack.packb([*held, [thread_id, *evidence]])
        if await backend.swap_meta(name, before, packed):
            return
    raise Conflict(f"thread {thread_id!r}: checkpoint {key.id} is set aside by several at once; try again")
