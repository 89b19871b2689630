"""Packs that are needed for a few of their items only: these get rows of their own, and the pack can be collected.

A run of items that closes becomes a pack, and rows of items that older checkpoints name become pointers into it
(chunks/runs.py). When the run is changed later and the checkpoints that had it are pruned, pointers may be all that
leads to the pack, and most of it may be dead. Replacing a pointer by its item changes no name and no value. It is a
compare-and-swap of one row, so that it is harmless beside writers, and may stop at any point.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from ...chunks.digest import Digester
from ...chunks.gather import chunk_place
from ...chunks.pack import Pack, is_pointer, member_of, place_in, unpack_pack
from ...errors import Corrupt, StorageFull
from ...ports.checkpoints import DIGEST_BYTES, ChunkRow, ThreadRow, split_links
from ...ports.rules import mark
from ..context import Context
from ..paging import each_pool, each_thread
from .gathering import gather_pool
from .hot import hot_chunks, unwrapped
from .prune import collect_pool

__all__ = ["collect_loosened", "compact", "loosen"]

_BATCH = 500
# A pack of which less is dead stays as it is.
_MOST_DEAD = 0.25
# A pack stands in a larger one, which stands in none.
_MOST_ROUNDS = 3


async def compact(store: Context) -> None:
    """Give the space of what was deleted back to the system, dead parts of packs included, and gather what is older."""
    threads: dict[int, list[ThreadRow]] = {}
    async for thread in each_thread(store.backend):
        threads.setdefault(thread.pool, []).append(thread)
    async for pool in each_pool(store.backend):
        # Whatever is dead goes, and what it stood with is gathered again: so what was deleted is erased.
        await _collect_loosened(store, pool, most_dead=0.0)
        with suppress(StorageFull):  # giving space back is all the more needed
            await gather_pool(store, pool, threads.get(pool, ()))
    await store.backend.compact()


async def collect_loosened(store: Context, pool: int) -> int:
    """Delete what nothing refers to, then what is mostly dead; returns how many chunks went."""
    return await collect_pool(store.backend, pool) + await _collect_loosened(store, pool)


async def _collect_loosened(store: Context, pool: int, most_dead: float = _MOST_DEAD) -> int:
    """Delete what is mostly dead: packs, then packs of which these were a part."""
    removed = 0
    for _ in range(_MOST_ROUNDS):
        if not await loosen(store, pool, most_dead):
            break
        removed += await collect_pool(store.backend, pool)
    return removed


async def loosen(store: Context, pool: int, most_dead: float = _MOST_DEAD) -> int:
    """Give the living items of packs that are dead by more than this rows of their own; returns of how many packs.

    A pack that a checkpoint has as a run is needed whole and stays. What is damaged stays as well: fsck names it. What
    is in the cold tier stays where it is: collecting reads no object.
    """
    links: dict[bytes, bytes] = {}
    rows = [one for one in await store.backend.roots(pool) if type(one) is bytes]
    await mark(rows, set(), partial(_noted, store, pool, links))
    pointers = await _pointers(store, pool, [digest for digest, below in links.items() if len(below) == DIGEST_BYTES])
    pointing = {row.digest for held in pointers.values() for row, _ in held}
    as_runs = {digest for one in rows for digest in split_links(one)}
    for digest, below in links.items():
        if below and digest not in pointing:
            as_runs.update(split_links(below))
    loosened = 0
    lonely = sorted(pointers.keys() - as_runs)
    for start in range(0, len(lonely), _BATCH):
        for row in await hot_chunks(store, pool, lonely[start : start + _BATCH]):
            pack = await _pack_of(store, pool, row)
            if pack is not None and await _loosen(store, pool, pack, pointers[row.digest], most_dead):
                loosened += 1
    return loosened


async def _noted(store: Context, pool: int, links: dict[bytes, bytes], digests: list[bytes]) -> dict[bytes, bytes]:
    found = await store.backend.links(pool, digests)
    sound = {digest: below for digest, below in found.items() if type(below) is bytes}
    links.update(sound)
    return sound


async def _pointers(store: Context, pool: int, digests: list[bytes]) -> dict[bytes, list[tuple[ChunkRow, int]]]:
    """For each pack, the rows among these that point into it, and to which place."""
    digester = store.tools.digesters.of(pool)
    found: dict[bytes, list[tuple[ChunkRow, int]]] = {}
    names = sorted(digests)
    for start in range(0, len(names), _BATCH):
        for row in await hot_chunks(store, pool, names[start : start + _BATCH]):
            content = unwrapped(store, pool, row)
            if content is None or len(content) > DIGEST_BYTES:
                continue
            try:
                place = place_in(digester, row.digest, row.links, content)
            except Corrupt:  # a node with one child
                continue
            found.setdefault(row.links, []).append((row, place))
    return found


async def _loosen(
    store: Context, pool: int, pack: Pack, pointers: list[tuple[ChunkRow, int]], most_dead: float
) -> bool:
    """Replace the pointers into a pack by what they point to; whether that was worth it, and done."""
    digester = store.tools.digesters.of(pool)
    found = [(row, member_of(digester, row.digest, pack, place)) for row, place in pointers]
    living = [(row, content) for row, content in found if content is not None]
    size = sum([len(content) for _, content in living])
    if len(living) < len(pointers):
        return False
    if size >= (1 - most_dead) * sum(map(len, pack.contents())):
        return False
    wrap = store.tools.envelope.wrap
    await store.backend.rewrap(
        pool,
        [(row, ChunkRow(row.digest, b"", *wrap(content, chunk_place(pool, row.digest)))) for row, content in living],
    )
    return True


async def _pack_of(store: Context, pool: int, row: ChunkRow) -> Pack | None:
    """The pack of a row; of one that is a pointer, the pack that it leads to."""
    digester = store.tools.digesters.of(pool)
    content = unwrapped(store, pool, row)
    if content is not None and is_pointer(digester, row.digest, row.links, content):
        outer = None
        for holder in await hot_chunks(store, pool, [row.links]):
            outer = _pack_in(holder, unwrapped(store, pool, holder), digester)
        content = None if outer is None else member_of(digester, row.digest, outer, content[0])
        row = row._replace(links=b"")
    return _pack_in(row, content, digester)


def _pack_in(row: ChunkRow, content: bytes | None, digester: Digester) -> Pack | None:
    if content is None or digester.node(row.links, content) != row.digest:
        return None
    try:
        return unpack_pack(content)
    except Corrupt:
        return None
