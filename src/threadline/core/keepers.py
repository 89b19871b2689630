"""Keeping the sound chunks of quarantined checkpoints, so that what could be read of them can be after a restore.

A hidden thread in the pool of its origin has a row for each of them, without a document: its links name the chunks
that are sound, all of them. A node above a damaged chunk is left out. It would keep that chunk, too, and what it is
part of cannot be read with it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..backends.hidden import ASIDE, hidden_id, hidden_ids_of
from ..backends.port import Backend, Change, CheckpointKey, CheckpointRow, Stale, ThreadRow
from ..backends.rules import mark
from ..chunks.digest import split_links
from ..errors import Conflict, Unavailable
from .soundness import Walk, batches
from .words import living

__all__ = ["keep_sound_chunks", "let_go", "pools_of_keepers"]

_BATCH = 256
_MOST_KEEPERS = 100
_TRIES = 32


async def keep_sound_chunks(walk: Walk, thread_id: str, key: CheckpointKey, roots: Iterable[bytes]) -> None:
    """Keep what is sound of the chunks that these links lead to; called before their rows are deleted."""
    backend, links = walk.backend, [part for part in roots if type(part) is bytes]
    for _ in range(_TRIES):
        thread = await living(backend, thread_id)
        sound = await _sound(walk, links)
        if not sound or thread.pool != walk.pool:
            return
        keeper = await _keeper(backend, thread)
        before = await backend.find(keeper, *key, with_writes=False)
        held = set(split_links(before.row.links)) if before is not None else set()
        row = _row(key, b"".join(sorted(sound | held)), thread.created)
        change = Change(thread_id=keeper, now=thread.created, stamp=(thread.pool, thread.epoch), checkpoints=[row])
        [outcome] = await backend.apply([change])
        if not isinstance(outcome, Stale):
            return
    raise Unavailable(f"thread {thread_id!r} was pruned again and again meanwhile; try again")


async def let_go(backend: Backend, thread_id: str, key: CheckpointKey, now: float) -> None:
    """Keep chunks of this checkpoint no longer; the last one takes the keeper along."""
    for row in await _keepers(backend, thread_id):
        await backend.remove_checkpoints(row.thread_id, [key])
        if not await backend.walk(row.thread_id, None, 1):
            await backend.remove_thread(row.thread_id, "0", now)


async def pools_of_keepers(backend: Backend, thread_id: str) -> set[int]:
    """The pools in which chunks of a thread are kept: it may have had several lives."""
    return {row.pool for row in await _keepers(backend, thread_id)}


async def _keepers(backend: Backend, origin: str) -> list[ThreadRow]:
    return await backend.threads("", _MOST_KEEPERS, hidden_ids_of(origin) + ASIDE)


async def _keeper(backend: Backend, thread: ThreadRow) -> str:
    """The hidden thread for a thread, in its pool; the thread may have had a life before, in another one."""
    origin = thread.thread_id
    for _ in range(_TRIES):
        held = {row.thread_id: row.pool for row in await _keepers(backend, origin)}
        for name, pool in held.items():
            if pool == thread.pool:
                return name
        slot = next(slot for slot in range(len(held) + 1) if hidden_id(origin, ASIDE, slot) not in held)
        try:
            name = hidden_id(origin, ASIDE, slot)
            await backend.apply([Change(thread_id=name, now=thread.created, joins=origin)])
        except Conflict:
            continue  # another process made one
    raise Unavailable(f"thread {origin!r} is set aside by several at once; try again")


async def _sound(walk: Walk, links: Sequence[bytes]) -> set[bytes]:
    """The chunks below some links that are sound, and so is all below them."""
    below: dict[bytes, bytes] = {}

    async def links_of(digests: list[bytes]) -> dict[bytes, bytes]:
        found = await walk.backend.links(walk.pool, digests)
        below.update((digest, part if type(part) is bytes else b"") for digest, part in found.items())
        return {digest: below[digest] for digest in found}

    await mark(links, set(), links_of)
    good: set[bytes] = set()
    for batch in batches(sorted(below), _BATCH):
        good.update(stored[0] for stored in await walk.fetch(batch) if walk.fault_of(stored) is None)
    while bad := [digest for digest in good if not good.issuperset(split_links(below[digest]))]:
        good.difference_update(bad)
    return good


def _row(key: CheckpointKey, links: bytes, created: float) -> CheckpointRow:
    return CheckpointRow(*key, None, links, 0, b"", 0, b"", None, None, None, created, None)
