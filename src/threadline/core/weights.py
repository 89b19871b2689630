"""What threads take: rows of their own, and the chunks that their checkpoints and writes lead to.

A thread that is alone in its pool has all chunks of it. Threads that share a pool, because one is a fork of the other,
each count what they lead to: together they may count more than is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backends.port import Backend, ThreadRow
from ..chunks.digest import split_links
from .pages import thread_rows
from .timeline import chunk_weights

__all__ = ["ThreadWeight", "all_threads", "weigh"]

_POOLS = 200
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWeight:
    """What one thread takes."""

    checkpoints: int = 0
    writes: int = 0
    # Rows and chunks; chunks that a fork has too are counted for both.
    stored_bytes: int = 0


async def all_threads(backend: Backend, prefix: str = "") -> list[ThreadRow]:
    """The rows of all living threads."""
    rows: list[ThreadRow] = []
    after = ""
    while page := await backend.threads(after, _PAGE, prefix):
        rows += page
        after = page[-1].thread_id
    return rows


async def weigh(backend: Backend, rows: Sequence[ThreadRow]) -> dict[str, ThreadWeight]:
    """What each of these threads takes."""
    found: dict[str, ThreadWeight] = {}
    by_pool: dict[int, list[ThreadRow]] = {}
    for row in rows:
        by_pool.setdefault(row.pool, []).append(row)
    pools = list(by_pool)
    for start in range(0, len(pools), _POOLS):
        weights = await backend.weights(pools[start : start + _POOLS])
        checkpoints = {(one.pool, one.thread): one for one in weights.checkpoints}
        writes = {(one.pool, one.thread): one for one in weights.writes}
        chunks = {one.pool: one.bytes for one in weights.chunks}
        mates: dict[int, set[int]] = {}
        for one in (*weights.checkpoints, *weights.writes):
            mates.setdefault(one.pool, set()).add(one.thread)
        for pool in pools[start : start + _POOLS]:
            is_shared = len(mates.get(pool, ())) > 1
            sizes = await chunk_weights(backend, pool) if is_shared else {}
            for row in by_pool[pool]:
                own, sent = checkpoints.get((pool, row.serial)), writes.get((pool, row.serial))
                below = await _reached(backend, row.thread_id, sizes) if is_shared else chunks.get(pool, 0)
                found[row.thread_id] = ThreadWeight(
                    checkpoints=own.rows if own else 0,
                    writes=sent.rows if sent else 0,
                    stored_bytes=below + (own.bytes if own else 0) + (sent.bytes if sent else 0),
                )
    return found


async def _reached(backend: Backend, thread_id: str, sizes: dict[bytes, tuple[bytes, int]]) -> int:
    """The bytes of the chunks that a thread's rows lead to."""
    links = {found.row.links for found in await thread_rows(backend, thread_id)}
    links |= {write.links for write in await backend.thread_writes(thread_id)}
    frontier = {digest for one in links for digest in split_links(one)}
    seen: set[bytes] = set()
    while frontier:
        seen |= frontier
        frontier = {child for digest in frontier if digest in sizes for child in split_links(sizes[digest][0])} - seen
    return sum(sizes[digest][1] + len(sizes[digest][0]) for digest in seen if digest in sizes)
