"""Figures and probes: what the store holds, what sharing saves, whether it answers."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from ..backends.port import Backend
from ..chunks.digest import split_links
from ..errors import ThreadlineError, Unavailable
from .hidden_figures import HiddenFigures, hidden_figures

__all__ = ["Health", "Stats", "failed_probe", "probe", "take_stats"]

_PAGE = 10_000


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
        """What sharing saves."""
        return max(0, self.bytes_without_sharing - self.bytes_stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the store took, returned and removed a record, and how long that took."""

    ok: bool
    latency_seconds: float
    error: str | None = None


async def take_stats(backend: Backend, now: float) -> Stats:
    """Figures over the whole store; reads every chunk's links, but no data."""
    figures = await backend.summary(now)
    hidden = await hidden_figures(backend, now)
    whole = await _bytes_without_sharing(backend, hidden)
    checkpoints = figures.checkpoints - hidden.checkpoints
    space = await backend.space()
    return Stats(
        threads=figures.threads,
        checkpoints=checkpoints,
        writes=figures.writes - hidden.writes,
        chunks=figures.chunks,
        bytes_stored=await backend.size_bytes(),
        bytes_on_disk=space.taken_bytes,
        bytes_free=space.free_bytes,
        bytes_without_sharing=whole,
        mean_checkpoint_bytes=whole / checkpoints if checkpoints > 0 else 0.0,
        checkpoints_per_hour=tuple(figures.recent_hours.get(hour, 0) - hidden.hours[hour] for hour in range(24)),
        busiest_threads=tuple(figures.busiest),
        trash_entries=hidden.trash_entries,
        trash_checkpoints=hidden.trash_checkpoints,
        trash_bytes=hidden.trash_bytes,
    )


async def probe(backend: Backend) -> Health:
    """Write, read and remove a record; the error is told, not raised."""
    started = time.perf_counter()
    key, value = f"probe-{os.urandom(8).hex()}", os.urandom(16)
    try:
        await backend.swap_meta(key, None, value)
        returned = await backend.get_meta(key)
        removed = await backend.swap_meta(key, value, None)
        if returned != value or not removed:
            raise Unavailable("the store returned another record than it was given")
    except ThreadlineError as error:
        return failed_probe(error, time.perf_counter() - started)
    return Health(ok=True, latency_seconds=time.perf_counter() - started)


def failed_probe(error: ThreadlineError, latency_seconds: float = 0.0) -> Health:
    """What `health` tells when the store did not answer."""
    return Health(ok=False, latency_seconds=latency_seconds, error=f"{type(error).__name__}: {error}")


async def _bytes_without_sharing(backend: Backend, hidden: HiddenFigures) -> int:
    pools: set[int] = set()
    after = ""
    while True:
        page = await backend.threads(after, _PAGE)
        pools.update(thread.pool for thread in page)
        if len(page) < _PAGE:
            break
        after = page[-1].thread_id
    total = 0
    for pool in pools:
        sizes = await _subtree_sizes(backend, pool)
        for sign, roots in ((1, await backend.root_sizes(pool)), (-1, hidden.roots.get(pool, []))):
            for links, own in roots:
                total += sign * (own + sum(sizes.get(digest, 0) for digest in split_links(links)))
    return total


async def _subtree_sizes(backend: Backend, pool: int) -> dict[bytes, int]:
    """For each chunk of a pool, its bytes and those of everything below it."""
    links: dict[bytes, bytes] = {}
    sizes: dict[bytes, int] = {}
    after = b""
    while True:
        page = await backend.chunk_sizes(pool, after, _PAGE)
        for digest, below, size in page:
            links[digest] = below
            sizes[digest] = size
        if len(page) < _PAGE:
            break
        after = page[-1][0]
    whole: dict[bytes, int] = {}

    def weigh(digest: bytes) -> int:
        # Trees are a handful of levels deep, whatever their width.
        if digest not in whole:
            below = split_links(links.get(digest, b""))
            whole[digest] = sizes.get(digest, 0) + sum(map(weigh, below))
        return whole[digest]

    for digest in sizes:
        weigh(digest)
    return whole
