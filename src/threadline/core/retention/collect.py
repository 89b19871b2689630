"""A forecast of garbage collection, without locks; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ports.checkpoints import Backend
from ..paging import chunk_weights, each_pool

__all__ = ["Unneeded", "unneeded_chunks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """Chunks that nothing refers to."""

    chunks: int
    bytes: int


async def unneeded_chunks(backend: Backend, progress: Callable[[int, int], None] | None = None) -> Unneeded:
    """How many chunks of all pools nothing refers to; `progress` hears how many pools are done."""
    chunks = size = done = 0
    async for pool in each_pool(backend):
        weights = await chunk_weights(backend, pool)
        unneeded = weights.keys() - weights.reached_from(await backend.roots(pool))
        chunks, size = chunks + len(unneeded), size + weights.total(unneeded)
        done += 1
        if progress is not None:
            progress(done, done)
    return Unneeded(chunks=chunks, bytes=size)
