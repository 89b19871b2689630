"""What hidden threads hold, in figures: stats take it out of those of the store, and tell what the trash takes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from ..backends.hidden import HIDDEN, TRASH, kind_of
from ..backends.port import Backend, CheckpointRow, ThreadRow, WriteRow
from ..backends.rules import mark
from .timeline import chunk_weights
from .trash import stored_in

__all__ = ["HiddenFigures", "hidden_figures"]

_PAGE = 500


@dataclass(slots=True)
class HiddenFigures:
    """Sums over all hidden threads."""

    checkpoints: int = 0
    writes: int = 0
    # Checkpoints made in each of the last 24 hours.
    hours: list[int] = field(default_factory=lambda: [0] * 24)
    # By pool: links, and the size of document and metadata, of each checkpoint.
    roots: dict[int, list[tuple[bytes, int]]] = field(default_factory=lambda: defaultdict(list))
    trash_entries: int = 0
    trash_checkpoints: int = 0
    trash_bytes: int = 0


async def hidden_figures(backend: Backend, now: float) -> HiddenFigures:
    """Sums over the hidden threads of a store; without any, one query."""
    figures = HiddenFigures()
    in_trash: dict[int, set[str]] = defaultdict(set)
    for thread in await _all(backend, HIDDEN):
        rows, writes = await stored_in(backend, thread.thread_id)
        _count(figures, thread, rows, writes, now)
        if kind_of(thread.thread_id) == TRASH:
            in_trash[thread.pool].add(thread.thread_id)
    if in_trash:
        # Chunks are needed by rows, and whose these are only the threads themselves tell.
        others: dict[int, list[str]] = defaultdict(list)
        for thread in (*await _all(backend, ""), *await _all(backend, HIDDEN)):
            if thread.pool in in_trash and thread.thread_id not in in_trash[thread.pool]:
                others[thread.pool].append(thread.thread_id)
        for pool, names in in_trash.items():
            figures.trash_bytes += await _only_needed_by(backend, pool, names, others[pool])
    return figures


def _count(
    figures: HiddenFigures, thread: ThreadRow, rows: list[CheckpointRow], writes: list[WriteRow], now: float
) -> None:
    figures.checkpoints += len(rows)
    figures.writes += len(writes)
    for row in rows:
        figures.roots[thread.pool].append((row.links, len(row.document) + len(row.metadata)))
        if 0 <= now - row.created < 24 * 3600:
            figures.hours[int((now - row.created) // 3600)] += 1
    if kind_of(thread.thread_id) == TRASH:
        figures.trash_entries += thread.status == "archived"
        figures.trash_checkpoints += len(rows)
        figures.trash_bytes += sum(len(row.document) + len(row.metadata) + len(row.links) for row in rows)
        figures.trash_bytes += sum(len(write.data) + len(write.links) for write in writes)


async def _only_needed_by(backend: Backend, pool: int, names: set[str], others: list[str]) -> int:
    """The bytes of the chunks of a pool that some of its threads need, and the others do not."""
    needed: list[set[bytes]] = []
    for threads in (names, others):
        links: set[bytes] = set()
        for name in threads:
            rows, writes = await stored_in(backend, name)
            links.update(row.links for row in rows)
            links.update(write.links for write in writes)
        reachable: set[bytes] = set()
        await mark(links, reachable, partial(backend.links, pool))
        needed.append(reachable)
    weights = await chunk_weights(backend, pool)
    alone = needed[0] - needed[1]
    return sum(size + len(links) for digest, (links, size) in weights.items() if digest in alone)


async def _all(backend: Backend, prefix: str) -> list[ThreadRow]:
    found: list[ThreadRow] = []
    while page := await backend.threads(found[-1].thread_id if found else "", _PAGE, prefix):
        found += page
    return found
