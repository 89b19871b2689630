"""The chunks of one pool, carried to a pool of another store.

Rules that keep the target readable whatever stops the copy:

- Children go before their parents, and chunks before the rows that name them. A chunk that was committed is whole.
- A chunk of the target is relied on only when all below it was found there too, under the stamp that the rows are then
  put with: garbage collection that went on meanwhile makes the change stale, and everything is asked again.
- Each chunk is checked against its name before it is sent, and read back after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.bounded_cache import BoundedCache
from ...errors import Corrupt, Unavailable
from ...ports.checkpoints import Applied, Change, ChunkRow, Stamp, split_links
from ..context import Context
from .translate import Fault, Names, Opened, Translator, fault_in

__all__ = ["Carrier", "Missing", "WentStale", "children_first"]

_FETCH = 256
# So many bytes of chunks are sent in one transaction.
_MOST_BYTES = 4 * 1024 * 1024
_PACK_BYTES = 32 * 1024 * 1024


class Missing(Corrupt):
    """Chunks that rows of the source name are not there."""


class WentStale(Unavailable):
    """Chunks were deleted from the target's pool while the copy relied on them."""


class Carrier:
    """Carries chunks to one pool; knows which of them the target has."""

    def __init__(self, source: Context, target: Context, source_pool: int, stamp: Stamp, *, is_new: bool) -> None:
        self.source, self.target, self.stamp = source, target, stamp
        # Whether every chunk of the target's pool was brought by this carrier, so that nothing need be asked.
        self.is_new = is_new
        self.translator = Translator(source.tools, target.tools, source_pool, stamp[0])
        self.names: Names = {}
        # Chunks that have their names, and are in no change that was applied yet.
        self._unsent: list[bytes] = []
        self.sent = 0
        self.sent_bytes = 0
        self._packs: BoundedCache[bytes, bytes] = BoundedCache(_PACK_BYTES)

    def forget(self, stamp: Stamp) -> None:
        """Forget which chunks the target has: its pool's epoch changed."""
        self.stamp, self.is_new = stamp, False
        self.names.clear()
        self._unsent.clear()

    def learn(self, links: bytes, held: bytes) -> None:
        """Note that a row of the target names these chunks of its pool, which are those of a row of the source."""
        self.names.update(zip(split_links(links), split_links(held), strict=True))

    async def bring(self, thread_id: str, now: float, links: Iterable[bytes]) -> list[ChunkRow]:
        """Carry all that these links lead to; the last rows are left to be sent with the rows that name them.

        Raises Missing or Fault where the source lacks a chunk or has it damaged, and WentStale.
        """
        for digest in self._unsent:
            # The change that was to take it was never applied.
            self.names.pop(digest, None)
        self._unsent.clear()
        rows: list[ChunkRow] = []
        size = 0
        order = await self._order({digest for one in links for digest in split_links(one)})
        for start in range(0, len(order), _FETCH):
            for opened in await self._opened(order[start : start + _FETCH]):
                if opened.row.links and not self.names.keys() >= set(split_links(opened.row.links)):
                    # It moved into a pack after its links were read.
                    raise Missing(f"the chunk {opened.row.digest.hex()} was changed while it was read")
                row = await self._translated(opened)
                rows.append(row)
                self._unsent.append(opened.row.digest)
                size += len(row.data)
                if size > _MOST_BYTES:
                    await self.send(Change(thread_id=thread_id, now=now, stamp=self.stamp, chunks=rows))
                    rows, size = [], 0
        return rows

    async def send(self, change: Change) -> None:
        """Apply a change to the target and read its chunks back; raises WentStale."""
        [outcome] = await self.target.backend.apply([change])
        if not isinstance(outcome, Applied):
            self.forget(outcome.stamp)
            raise WentStale(
                f"copy to thread {change.thread_id!r}: chunks were deleted from the target meanwhile; run it again"
            )
        self._unsent.clear()
        self.sent += len(change.chunks)
        self.sent_bytes += sum([len(row.data) for row in change.chunks])
        await self._verify(change.chunks)

    async def _order(self, wanted: set[bytes]) -> list[bytes]:
        """What the target lacks of these chunks and all below them, children before their parents."""
        links: dict[bytes, bytes] = {}
        absent: set[bytes] = set()
        asks_target = not self.is_new and self.translator.keeps_names
        frontier = wanted - self.names.keys()
        while frontier:
            asked = sorted(frontier)
            held = await self.target.backend.links(self.stamp[0], asked) if asks_target else {}
            lacking = [digest for digest in asked if digest not in held]
            found = await self.source.backend.links(self.translator.source_pool, lacking) if lacking else {}
            if len(found) < len(lacking):
                gone = next(digest for digest in lacking if digest not in found)
                raise Missing(f"the chunk {gone.hex()} is missing")
            absent.update(lacking)
            links.update(held)
            links.update(found)
            named = [links[digest] for digest in asked if links[digest]]
            frontier = {child for one in named for child in split_links(one)} - links.keys() - self.names.keys()
        order = children_first(wanted, links)
        for digest in order:
            if digest not in absent:
                self.names[digest] = digest
        return [digest for digest in order if digest in absent]

    async def _opened(self, digests: Sequence[bytes]) -> list[Opened]:
        """These chunks of the source in the same order, each checked."""
        stored = await self.source.chunks(self.translator.source_pool, digests)
        found = {row[0]: row for row in stored}
        gone = [digest for digest in digests if digest not in found]
        if gone:
            raise Missing(f"the chunk {gone[0].hex()} is missing")
        return [self.translator.open(ChunkRow(*found[digest])) for digest in digests]

    async def _translated(self, opened: Opened) -> ChunkRow:
        if self.translator.is_verbatim:
            self.names[opened.row.digest] = opened.row.digest
            return opened.row
        packs: dict[bytes, bytes] = {}
        if opened.place is not None:
            packs[opened.row.links] = await self._pack(opened.row.links)
        elif not opened.is_item and not opened.row.links:
            self._packs.put(opened.row.digest, opened.content, len(opened.content) + 200)
        row = self.translator.chunk(opened, self.names, packs)
        self.names[opened.row.digest] = row.digest
        return row

    async def _pack(self, digest: bytes) -> bytes:
        held = self._packs.get(digest)
        if held is None:
            [opened] = await self._opened([digest])
            held = opened.content
            if opened.place is not None:
                held = self.translator.held(opened, await self._pack(opened.row.links))
            self._packs.put(digest, held, len(held) + 200)
        return held

    async def _verify(self, rows: Sequence[ChunkRow]) -> None:
        """Read chunks back. One that the target had before may be stored otherwise, and must be what its name says."""
        pool = self.stamp[0]
        for start in range(0, len(rows), _FETCH):
            part = rows[start : start + _FETCH]
            stored = {row[0]: ChunkRow(*row) for row in await self.target.chunks(pool, [row.digest for row in part])}
            for row in part:
                held = stored.get(row.digest)
                if held == row:
                    continue
                fault = "is not there" if held is None else fault_in(self.target.tools, pool, held)
                if fault is not None:
                    raise Fault(f"the chunk {row.digest.hex()} was read back from the target: {fault}")


def children_first(roots: Iterable[bytes], links: dict[bytes, bytes]) -> list[bytes]:
    """All that is below some chunks and themselves, each after what it names; what has no entry in `links` is left
    out."""
    # Most chunks name no others: they go first, and only those above them are walked.
    order = [digest for digest, below in links.items() if not below]
    done: set[bytes] = set(order)
    for root in sorted(roots):
        stack = [(root, False)] if root not in done else []
        while stack:
            digest, is_ready = stack.pop()
            if is_ready:
                order.append(digest)
            elif digest not in done and digest in links:
                done.add(digest)
                stack.append((digest, True))
                stack += [(child, False) for child in split_links(links[digest]) if child not in done]
    return order
