"""What collecting would find: a forecast without locks, which changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..backends.port import Backend
from ..backends.rules import mark
from .timeline import chunk_weights

__all__ = ["Unneeded", "unneeded_chunks"]

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """Chunks that nothing refers to."""

    chunks: int
    bytes: int


async def unneeded_chunks(backend: Backend, progress: Callable[[int, int], None] | None = None) -> Unneeded:
    """How many chunks of all pools nothing refers to; `progress` hears how many pools are done."""
    chunks = size = after = done = 0
    while pools := await backend.pools(after, _PAGE):
        for pool in pools:
            reachable: set[bytes] = set()
            await mark(await backend.pool_links(pool), reachable, partial(backend.links, pool))
            for digest, (links, length) in (await chunk_weights(backend, pool)).items():
                if digest not in reachable:
                    chunks += 1
                    size += length + len(links)
            done += 1
            if progress is not None:
                progress(done, done)
        after = pools[-1]
    return Unneeded(chunks=chunks, bytes=size)
