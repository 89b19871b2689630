"""Items that only older checkpoints name, and packs, are gathered in larger packs, which compress better.

A row of one message is hardly smaller when it is compressed; a hundred rows of text are half as large together. So
`compact` moves what stands alone into packs of half a megabyte. Each item and each pack keeps its digest: its row
becomes a pointer, in the transaction that stores the larger pack, under the stamp with which the rows were read.
So a crash leaves either, and a collection in between makes the change stale. Packs that hold packs are never moved, so
an item is at most two pointers away.

What the newest checkpoints name as items stays as it is: it is read most often, and may be changed next. Other nodes of
older checkpoints, whose links must stay readable, are compressed by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...chunks.gather import chunk_place
from ...chunks.pack import LARGEST_PACK, MOST_ITEMS, PACK, pack_of, pointer_to, unpack_pack
from ...errors import Conflict, Corrupt
from ...ports.checkpoints import Applied, Change, ChunkRow, ThreadRow, split_links
from ..context import Context
from ..paging import ChunkWeights, chunk_weights, thread_rows
from .hot import hot_chunks, unwrapped

__all__ = ["gather_pool"]

_BATCH = 500
# What is gathered has at least so many bytes: a few short items are not worth a pointer each.
_LEAST_BYTES = 16 * 1024
# A pack that is larger than this compresses as well by itself.
_LARGE_PACK = LARGEST_PACK // 2
# What a larger pack and its pointers take at most, of what its parts took.
_MOST_SHARE = 0.95
# Slower than what a put can wait for, and smaller; reading takes no longer. A pack of half a megabyte takes 0.05 s, in
# which an event loop stands still. The highest levels take twice that and more, and gain half a percent.
_LEVEL = 16


class _Member(NamedTuple):
    """An item or a pack that is to move."""

    digest: bytes
    content: bytes
    stored_bytes: int


async def gather_pool(store: Context, pool: int, threads: Sequence[ThreadRow]) -> int:
    """Gather the older items and the packs of a pool in larger packs; returns how many moved.

    `threads` are those of the pool. Where none of them takes puts, or a collection comes between, the rest stays as it
    is until the next time.
    """
    writer = next((one for one in threads if one.status == "active"), None)
    thread = None if writer is None else await store.backend.thread(writer.thread_id)
    if thread is None or thread.pool != pool or store.tools.envelope.compression is None:
        return 0
    # What is read from now on is there as long as this stamp holds.
    weights = ChunkWeights(
        {digest: one for digest, one in (await chunk_weights(store.backend, pool)).items() if type(one[0]) is bytes}
    )
    order, staying, newest = await _oldest_first(store, threads, weights, thread)
    await _compress_nodes(store, pool, [one for one in weights if weights[one][0] and one not in staying])
    moved = 0
    group: list[_Member] = []
    for start in range(0, len(order), _BATCH):
        for member in await _members(store, pool, order[start : start + _BATCH], staying):
            size = sum([len(one.content) for one in group])
            if len(group) == MOST_ITEMS or size + len(member.content) > LARGEST_PACK:
                if not await _move(store, thread, newest, group):
                    return moved
                moved += len(group)
                group = []
            group.append(member)
    if sum([len(one.content) for one in group]) >= _LEAST_BYTES and await _move(store, thread, newest, group):
        moved += len(group)
    return moved


async def _oldest_first(
    store: Context, threads: Sequence[ThreadRow], weights: ChunkWeights, writer: ThreadRow
) -> tuple[list[bytes], set[bytes], str | None]:
    """The chunks without links that checkpoints lead to, those of the newest ones, and the newest id of one thread."""
    order: dict[bytes, None] = {}
    newest: list[bytes] = []
    last = None
    for thread in threads:
        found_rows = await thread_rows(store.backend, thread.thread_id)
        rows = [one for one in found_rows if type(one.row.links) is bytes]  # what is damaged is fsck's business
        namespaces: set[str] = set()
        for found in rows:
            if found.row.namespace not in namespaces:
                namespaces.add(found.row.namespace)
                newest.append(found.row.links)
        for found in reversed(rows):
            _follow(found.row.links, weights, order)
        if thread.thread_id == writer.thread_id and rows:
            last = rows[0].row.id
    alone = [digest for digest in order if not weights[digest][0]]
    return alone, weights.reached_from(newest), last


def _follow(links: bytes, weights: ChunkWeights, order: dict[bytes, None]) -> None:
    """Add what some links lead to, level by level, each in the order of its links."""
    level: Iterable[bytes] = [digest for digest in split_links(links) if digest in weights and digest not in order]
    while level:
        order.update(dict.fromkeys(level))
        below = [child for digest in level for child in split_links(weights[digest][0])]
        level = [child for child in dict.fromkeys(below) if child in weights and child not in order]


async def _members(store: Context, pool: int, digests: Sequence[bytes], staying: set[bytes]) -> list[_Member]:
    """Those of some chunks that may move; what is damaged stays, and so does what is in the cold tier."""
    digester = store.tools.digesters.of(pool)
    rows = {row.digest: row for row in await hot_chunks(store, pool, sorted(digests))}
    found = []
    for digest in digests:
        row = rows.get(digest)
        content = None if row is None or row.links else unwrapped(store, pool, row)
        if row is None or content is None:
            continue
        if digester.item(content) == digest:
            may_move = digest not in staying
        else:
            may_move = digester.node(b"", content) == digest and _is_small_pack(content)
        if may_move:
            found.append(_Member(digest, content, len(row.data)))
    return found


def _is_small_pack(content: bytes) -> bool:
    """Whether this is a pack that may be moved: it is not large, and holds no packs."""
    if not content.startswith(PACK) or len(content) > _LARGE_PACK:
        return False
    try:
        return not any([one.startswith(PACK) for one in unpack_pack(content).contents()])
    except Corrupt:
        return False


async def _compress_nodes(store: Context, pool: int, digests: Sequence[bytes]) -> None:
    """Compress nodes, however short; a compare-and-swap of each row, which changes no content."""
    for start in range(0, len(digests), _BATCH):
        pairs = []
        for row in await hot_chunks(store, pool, digests[start : start + _BATCH]):
            content = unwrapped(store, pool, row) if type(row.form) is int and not row.form & 1 else None
            if content is not None:
                form, data = store.tools.envelope.wrap(content, chunk_place(pool, row.digest), _LEVEL)
                if form & 1:
                    pairs.append((row, row._replace(form=form, data=data)))
        if pairs:
            await store.backend.rewrap(pool, pairs)


async def _move(store: Context, thread: ThreadRow, newest: str | None, group: Sequence[_Member]) -> bool:
    """Store a pack of these, and pointers in their places, in one transaction; False where that was refused."""
    pool, digester = thread.pool, store.tools.digesters.of(thread.pool)
    contents = [one.content for one in group]
    packed = pack_of([b""] * len(group), list(map(len, contents)), None, b"".join(contents))
    assert packed is not None
    name = digester.node(b"", packed)
    wrap = store.tools.envelope.wrap
    pack = ChunkRow(name, b"", *wrap(packed, chunk_place(pool, name), _LEVEL))
    pointers = []
    for place, one in enumerate(group):
        links, content = pointer_to(digester, one.digest, name, place)
        pointers.append(ChunkRow(one.digest, links, *wrap(content, chunk_place(pool, one.digest))))
    added = len(pack.data) + sum([len(row.links) + len(row.data) for row in pointers])
    if added >= _MOST_SHARE * sum([one.stored_bytes for one in group]):
        return True  # it would not be worth it
    change = Change(
        thread_id=thread.thread_id,
        now=thread.active,  # nothing was put
        stamp=thread.stamp,
        # In place of a row of that name, too: it may be damaged, and all that moves would be lost.
        moved=[pack, *pointers],
        continues=newest,
        begins=False,
    )
    try:
        [outcome] = await store.backend.apply([change])
    except Conflict:  # archived, deleted or leased meanwhile
        return False
    return isinstance(outcome, Applied)
