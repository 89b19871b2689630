"""Which chunks of a pool are to go to the cold tier, in the order in which they are read together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ...errors import Corrupt
from ...packs.cold import REFERENCE_BYTES, Reference, is_cold, read_reference
from ...ports.checkpoints import Backend, ChunkRow, ThreadRow, split_links
from ...ports.objects import Tier
from ...ports.rules import ACTIVITY_SECONDS, is_hidden, mark
from ..paging import chunk_pages, thread_rows
from ..retention.policy import TierPolicy, seconds_of

__all__ = ["Chosen", "Due", "choose_chunks", "cold_chunks", "due_of", "reachable_from"]

# A reference is not worth it for less. Chunks with links are the way to others: they move only where they are long.
_LEAST_BYTES = 4 * REFERENCE_BYTES
_LEAST_LINKED_BYTES = 4096
# A pool with less than this to move is left alone: an object costs a request.
_LEAST_OBJECT_BYTES = 2048
_BATCH = 500


class Due(NamedTuple):
    """The threads of a pool: those that go as a whole, those of which large chunks go, and those that stay."""

    whole: list[ThreadRow]
    large: list[ThreadRow]
    staying: list[ThreadRow]


class Chosen(NamedTuple):
    """A chunk that is to move, and its stored size."""

    digest: bytes
    size: int


def due_of(threads: Iterable[ThreadRow], policy: TierPolicy, now: float, named: set[str] | None = None) -> Due:
    """Sort the threads of a pool; those that were named are due now, hidden ones always."""
    after, large_after = (seconds_of(span, "after") or 0.0 for span in (policy.after, policy.large_after))
    due = Due([], [], [])
    for thread in threads:
        is_archived = policy.archived and thread.status == "archived"
        is_named = is_hidden(thread.thread_id) or (named is not None and thread.thread_id in named)
        if is_named or (named is None and (is_archived or _is_idle(thread, after, now))):
            due.whole.append(thread)
        elif named is None and policy.large_bytes is not None and _is_idle(thread, large_after, now):
            due.large.append(thread)
        else:
            due.staying.append(thread)
    return due


def _is_idle(thread: ThreadRow, seconds: float, now: float) -> bool:
    """Whether nothing was put for so long, which is noted once a minute; no time at all is at once."""
    return not seconds or now - thread.active - ACTIVITY_SECONDS >= seconds


async def choose_chunks(backend: Backend, pool: int, due: Due, policy: TierPolicy) -> list[Chosen]:
    """The chunks that are to move: those of the newest checkpoints first, in the order in which they are linked."""
    if not due.whole and not due.large:
        return []
    keep_all = await reachable_from(backend, pool, due.staying)
    keep_small = await reachable_from(backend, pool, due.large)
    large_bytes = policy.large_bytes
    sizes: dict[bytes, int] = {}
    async for page in chunk_pages(backend, pool):
        for digest, links, form, size in page:
            if is_cold(form) or size < (_LEAST_LINKED_BYTES if links else _LEAST_BYTES) or digest in keep_all:
                continue
            if digest not in keep_small or (large_bytes is not None and size >= large_bytes):
                sizes[digest] = size
    if sum(sizes.values()) < _LEAST_OBJECT_BYTES:
        return []
    names = [thread.thread_id for thread in (*due.whole, *due.large)]
    heads = [found.row.links for found in await backend.heads(names, "")]
    order: dict[bytes, None] = {}
    await _follow(backend, pool, heads, order)
    await _follow(backend, pool, sorted(await backend.roots(pool)), order)
    # What nothing leads to is left to be collected.
    return [Chosen(digest, sizes[digest]) for digest in order if digest in sizes]


async def reachable_from(backend: Backend, pool: int, threads: Sequence[ThreadRow]) -> set[bytes]:
    """Everything that the checkpoints and writes of some threads lead to."""
    reachable: set[bytes] = set()
    for thread in threads:
        rows = [found.row.links for found in await thread_rows(backend, thread.thread_id)]
        rows += [write.links for write in await backend.thread_writes(thread.thread_id)]
        await mark(set(rows), reachable, partial(backend.links, pool))
    return reachable


async def cold_chunks(backend: Backend, tier: Tier, pool: int) -> list[tuple[ChunkRow, Reference]]:
    """The cold rows of a pool, as they are stored, in the order of their bytes; damaged references are left out."""
    digests: list[bytes] = []
    async for page in chunk_pages(backend, pool):
        digests += [digest for digest, _, form, _ in page if is_cold(form)]
    found: list[tuple[ChunkRow, Reference]] = []
    for start in range(0, len(digests), _BATCH):
        for row in await tier.stored_chunks(pool, digests[start : start + _BATCH]):
            with suppress(Corrupt):  # whoever needs the value finds the same
                if is_cold(row[2]):
                    found.append((ChunkRow(*row), read_reference(row[3])))
    return sorted(found, key=lambda one: one[1][:2])


async def _follow(backend: Backend, pool: int, roots: Iterable[bytes], order: dict[bytes, None]) -> None:
    """Add what some links lead to, level by level, each level in the order of its links."""
    level = list(dict.fromkeys(digest for links in roots for digest in split_links(links) if digest not in order))
    while level:
        order.update(dict.fromkeys(level))
        links = await backend.links(pool, level)
        below = (child for digest in level for child in split_links(links.get(digest, b"")))
        level = list(dict.fromkeys(child for child in below if child not in order))
