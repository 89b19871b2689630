"""Rows of chunks whose bytes are in the database, and what they hold, for upkeep that reads no object."""

from __future__ import annotations

from collections.abc import Sequence

from ...chunks.gather import chunk_place
from ...errors import Corrupt, InvalidRequest, NotFound
from ...packs.cold import is_cold
from ...ports.checkpoints import ChunkRow
from ...ports.objects import tier_of
from ..context import Context

__all__ = ["hot_chunks", "unwrapped"]


async def hot_chunks(store: Context, pool: int, digests: Sequence[bytes]) -> list[ChunkRow]:
    """The rows of these chunks, without those that are in the cold tier."""
    tier = tier_of(store.backend)
    found = await (tier.stored_chunks if tier is not None else store.backend.chunks)(pool, digests)
    hot = [ChunkRow(*row) for row in found if not is_cold(row[2])]
    await store.learn_forms([row.form for row in hot])
    return hot


def unwrapped(store: Context, pool: int, row: ChunkRow) -> bytes | None:
    """The content of a chunk, whose digest is not checked yet; None where it cannot be opened."""
    try:
        return store.tools.envelope.unwrap(row.form, row.data, chunk_place(pool, row.digest))
    except (Corrupt, InvalidRequest, NotFound, TypeError):
        return None
