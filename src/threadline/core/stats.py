"""Figures of a store and of its threads, and the probe of its health.

The figures of hidden threads are subtracted from those of the store; those of the trash are told beside them. A
thread takes its own rows, and the chunks that its checkpoints and writes lead to. A thread that is alone in its pool
has all chunks of it. Threads that share a pool, because one is a fork of the other, each count what they lead to:
together they may count more than is stored.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ..errors import ThreadlineError, Unavailable
from ..ports.checkpoints import Backend, CheckpointRow, ThreadRow, WriteRow, split_links
from ..ports.rules import HIDDEN, TRASH, kind_of
from .paging import ChunkWeights, chunk_weights, each_thread, pool_pages, thread_pages, thread_rows
from .requests import text_ids
from .retention.trash import stored_in
from .store_records import read_record, swap_record

__all__ = [
    "Health",
    "HiddenFigures",
    "Stats",
    "ThreadWeight",
    "Totals",
    "add_up",
    "all_threads",
    "failed_probe",
    "hidden_figures",
    "probe",
    "take_stats",
    "weigh",
    "weigh_named",
]

# How many pools are weighed by one query.
_POOLS = 512
_DAY_SECONDS = 24 * 3600
_BUSIEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The store in figures."""

    threads: int
    checkpoints: int
    writes: int
    chunks: int
    # What the store holds: the pages in use of the database, or the records in memory.
    bytes_stored: int
    # What it takes from the system, as `ls` shows a file and the log beside it, and how much of that is free for later.
    bytes_on_disk: int
    bytes_free: int
    # What the same checkpoints would take if each held its whole state.
    bytes_without_sharing: int
    mean_checkpoint_bytes: float
    # Checkpoints made in each of the last 24 hours; the first is the hour up to now.
    checkpoints_per_hour: tuple[int, ...]
    busiest_threads: tuple[tuple[str, int], ...]
    # What is in the trash, which no other figure but `chunks` and `bytes_stored` counts: deletions, the checkpoints
    # they hold, and the bytes of their rows and of chunks that nothing else needs.
    trash_entries: int = 0
    trash_checkpoints: int = 0
    trash_bytes: int = 0

    @property
    def bytes_saved(self) -> int:
        """The bytes that sharing saves."""
        return max(0, self.bytes_without_sharing - self.bytes_stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the store took, returned and removed a record, and how long that took."""

    ok: bool
    latency_seconds: float
    error: str | None = None


async def take_stats(backend: Backend, now: float) -> Stats:
    """Figures over the whole store; reads every chunk's links, but no data."""
    figures = await add_up(backend, now - _DAY_SECONDS)
    hidden = await hidden_figures(backend, now)
    whole = await _bytes_without_sharing(backend, figures, hidden)
    hours = Counter(int((now - created) // 3600) for created in figures.recent)
    checkpoints = figures.checkpoints - hidden.checkpoints
    space = await backend.space()
    return Stats(
        threads=figures.threads,
        checkpoints=checkpoints,
        writes=figures.writes - hidden.writes,
        chunks=figures.chunks,
        bytes_stored=space.held_bytes,
        bytes_on_disk=space.taken_bytes,
        bytes_free=space.free_bytes,
        bytes_without_sharing=whole,
        mean_checkpoint_bytes=whole / checkpoints if checkpoints > 0 else 0.0,
        checkpoints_per_hour=tuple(hours[hour] - hidden.hours[hour] for hour in range(24)),
        busiest_threads=figures.busiest,
        trash_entries=hidden.trash_entries,
        trash_checkpoints=hidden.trash_checkpoints,
        trash_bytes=hidden.trash_bytes,
    )


async def probe(backend: Backend) -> Health:
    """Write, read and remove a record; the error is told, not raised."""
    started = time.perf_counter()
    key, value = f"probe-{os.urandom(8).hex()}", os.urandom(16)
    try:
        await swap_record(backend, key, None, value)
        returned = await read_record(backend, key)
        removed = await swap_record(backend, key, value, None)
        if returned != value or not removed:
            raise Unavailable("the store returned another record than it was given")
    except ThreadlineError as error:
        return failed_probe(error, time.perf_counter() - started)
    return Health(ok=True, latency_seconds=time.perf_counter() - started)


def failed_probe(error: ThreadlineError, latency_seconds: float = 0.0) -> Health:
    """The answer of `health` when the store did not answer."""
    return Health(ok=False, latency_seconds=latency_seconds, error=f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class Totals:
    """Sums over all pools; of hidden threads, rows and chunks are in the sums and nothing else."""

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    row_bytes: int = 0
    # When the checkpoints were made that are younger than a time.
    recent: list[float] = field(default_factory=list)
    # The threads with the most checkpoints, and how many those are.
    busiest: tuple[tuple[str, int], ...] = ()
    # By pool, first those with threads that are shown: the bytes of its checkpoints.
    pools: dict[int, int] = field(default_factory=dict)
    shown_pools: int = 0


async def add_up(backend: Backend, since: float | None = None) -> Totals:
    """Sums over the whole store; reads no row."""
    totals = Totals()
    # Of threads that were weighed with their pool, and not listed yet: how many checkpoints they have.
    rows: dict[int, int] = {}
    async for page in thread_pages(backend):
        totals.threads += len(page)
        await _add(backend, totals, rows, [thread.pool for thread in page], since)
        counts = [(thread.thread_id, rows.pop(thread.serial, 0)) for thread in page]
        most = sorted((*totals.busiest, *(one for one in counts if one[1])), key=lambda one: (-one[1], one[0]))
        totals.busiest = tuple(most[:_BUSIEST])
    totals.shown_pools = len(totals.pools)
    async for page in thread_pages(backend, HIDDEN):
        await _add(backend, totals, rows, [thread.pool for thread in page], since)
    async for pools in pool_pages(backend):
        await _add(backend, totals, rows, pools, since)
    return totals


async def _add(
    backend: Backend, totals: Totals, rows: dict[int, int], pools: Sequence[int], since: float | None
) -> None:
    """Weigh those of some pools that were not weighed yet."""
    new = [pool for pool in dict.fromkeys(pools) if pool not in totals.pools]
    if not new:
        return
    totals.pools.update(dict.fromkeys(new, 0))
    weights = await backend.weights(new, since)
    for one in weights.checkpoints:
        totals.pools[one.pool] += one.bytes
        rows[one.thread] = one.rows
    totals.checkpoints += sum(one.rows for one in weights.checkpoints)
    totals.writes += sum(one.rows for one in weights.writes)
    totals.row_bytes += sum(one.bytes for one in (*weights.checkpoints, *weights.writes))
    totals.chunks += sum(one.rows for one in weights.chunks)
    totals.chunk_bytes += sum(one.bytes for one in weights.chunks)
    totals.recent += weights.recent


async def _bytes_without_sharing(backend: Backend, totals: Totals, hidden: HiddenFigures) -> int:
    total = 0
    for pool, row_bytes in islice(totals.pools.items(), totals.shown_pools):
        sizes = await _subtree_sizes(backend, pool)
        total += row_bytes
        for links, count in (await backend.roots(pool)).items():
            total += count * (sum(sizes.get(digest, 0) for digest in split_links(links)) - len(links))
        for links, own in hidden.roots.get(pool, ()):
            total -= own + sum(sizes.get(digest, 0) for digest in split_links(links))
    return total


async def _subtree_sizes(backend: Backend, pool: int) -> dict[bytes, int]:
    """For each chunk of a pool, its bytes and those of everything below it."""
    weights = await chunk_weights(backend, pool)
    whole = {digest: size for digest, (links, size) in weights.items() if not links}
    # Without recursion: forged chunks may be a long chain, and a forged pointer may name itself.
    begun: set[bytes] = set()
    waiting = [digest for digest in weights if digest not in whole]
    while waiting:
        digest = waiting[-1]
        if digest in whole:
            waiting.pop()
            continue
        links, size = weights.get(digest, (b"", 0))
        below = split_links(links)
        first = [] if digest in begun else [one for one in below if one not in whole and one not in begun]
        if first:
            begun.add(digest)
            waiting += first
        else:
            whole[waiting.pop()] = size + sum([whole.get(child, 0) for child in below])
    return whole


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
    async for thread in each_thread(backend, HIDDEN):
        rows, writes = await stored_in(backend, thread.thread_id)
        _count(figures, thread, rows, writes, now)
        if kind_of(thread.thread_id) == TRASH:
            in_trash[thread.pool].add(thread.thread_id)
    if in_trash:
        # Chunks are needed by rows, and whose these are only the threads themselves tell.
        others: dict[int, list[str]] = defaultdict(list)
        for thread in (*await all_threads(backend), *await all_threads(backend, HIDDEN)):
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
        if 0 <= now - row.created < _DAY_SECONDS:
            figures.hours[int((now - row.created) // 3600)] += 1
    if kind_of(thread.thread_id) == TRASH:
        figures.trash_entries += thread.status == "archived"
        figures.trash_checkpoints += len(rows)
        figures.trash_bytes += sum(len(row.document) + len(row.metadata) + len(row.links) for row in rows)
        figures.trash_bytes += sum(len(write.data) + len(write.links) for write in writes)


async def _only_needed_by(backend: Backend, pool: int, names: set[str], others: list[str]) -> int:
    """The bytes of the chunks of a pool that some of its threads need, and the others do not."""
    weights = await chunk_weights(backend, pool)
    needed: list[set[bytes]] = []
    for threads in (names, others):
        links: set[bytes] = set()
        for name in threads:
            rows, writes = await stored_in(backend, name)
            links.update(row.links for row in rows)
            links.update(write.links for write in writes)
        needed.append(weights.reached_from(links))
    return weights.total(needed[0] - needed[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWeight:
    """The rows and bytes of one thread."""

    checkpoints: int = 0
    writes: int = 0
    # Rows and chunks; chunks that a fork has too are counted for both.
    stored_bytes: int = 0


async def all_threads(backend: Backend, prefix: str = "") -> list[ThreadRow]:
    """The rows of all living threads."""
    return [row async for row in each_thread(backend, prefix)]


async def weigh_named(backend: Backend, thread_ids: Iterable[str]) -> dict[str, ThreadWeight]:
    """The rows and bytes of each of these threads; those that do not exist are left out."""
    rows = [await backend.thread(name) for name in dict.fromkeys(text_ids(thread_ids, "thread_ids"))]
    return await weigh(backend, [row for row in rows if row is not None and row.status != "deleted"])


async def weigh(backend: Backend, rows: Sequence[ThreadRow]) -> dict[str, ThreadWeight]:
    """The rows and bytes of each of these threads, of which there may be a hundred thousand."""
    found: dict[str, ThreadWeight] = {}
    # Threads of one pool follow each other, so that the chunks which they share are read once.
    turns: dict[int, int] = {}
    rows = sorted(rows, key=lambda row: turns.setdefault(row.pool, len(turns)))
    for start in range(0, len(rows), _POOLS):
        part = rows[start : start + _POOLS]
        weights = await backend.weights(list({row.pool: None for row in part}))
        checkpoints = {one[:2]: one for one in weights.checkpoints}
        writes = {one[:2]: one for one in weights.writes}
        chunks = {one.pool: one.bytes for one in weights.chunks}
        first: dict[int, int] = {}
        threads = (*weights.checkpoints, *weights.writes)
        shared = {one.pool for one in threads if first.setdefault(one.pool, one.thread) != one.thread}
        sizes, sizes_of = ChunkWeights(), -1
        for row in part:
            own, sent = checkpoints.get((row.pool, row.serial)), writes.get((row.pool, row.serial))
            if row.pool in shared:
                if sizes_of != row.pool:
                    sizes, sizes_of = await chunk_weights(backend, row.pool), row.pool
                below = await _reached(backend, row.thread_id, sizes)
            else:
                below = chunks.get(row.pool, 0)
            found[row.thread_id] = ThreadWeight(
                checkpoints=own.rows if own else 0,
                writes=sent.rows if sent else 0,
                stored_bytes=below + (own.bytes if own else 0) + (sent.bytes if sent else 0),
            )
    return found


async def _reached(backend: Backend, thread_id: str, weights: ChunkWeights) -> int:
    """The bytes of the chunks that a thread's rows lead to."""
    links = {found.row.links for found in await thread_rows(backend, thread_id)}
    links |= {write.links for write in await backend.thread_writes(thread_id)}
    return weights.below([digest for one in links for digest in split_links(one)], set())
