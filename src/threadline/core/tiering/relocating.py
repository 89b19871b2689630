"""Moving chunks: into objects, from objects into others, and back into the database.

The order of each step is what keeps every chunk readable, whenever a process dies: the object is registered, uploaded,
read back and verified; then one transaction after the other replaces rows, each only if it still is what was packed. A
row that was collected in the meantime is not there any more, and is not made again. Nobody waits for any of this: a put
that adds a chunk again finds its row, hot or cold.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...errors import Unavailable
from ...packs.cold import COLD, REFERENCE_BYTES, Reference, cold_row, fits, hot_form, read_reference
from ...packs.reader import read_pack
from ...packs.writer import PackWriter
from ...ports.checkpoints import DIGEST_BYTES, Backend, ChunkRow
from ...ports.objects import ALTERED, GONE, Tier, absence_of, why_lost
from ..paging import parts_of
from .choosing import Chosen
from .registry import ObjectRecord, note_object
from .shapes import Restored

__all__ = ["Mover", "restore_chunks"]

Stored = tuple[bytes, bytes, int, bytes]
Cold = tuple[ChunkRow, Reference]
# What one query reads, and what one transaction replaces.
_READ_BYTES = 4 * 1024 * 1024
_SWAP_BYTES = 2 * 1024 * 1024
_SWAP_ROWS = 200
_SALT_BYTES = 16


class Mover:
    """Moves chunks of one store into objects. `renew` is called before each step that changes rows, and may raise."""

    def __init__(self, backend: Backend, tier: Tier, now: float, renew: Callable[[], Awaitable[None]]) -> None:
        self._backend, self._tier, self._now, self._renew = backend, tier, now, renew
        self.chunks = self.bytes = self.objects = 0
        # Objects that were to be written anew and could not be read, and what became of them.
        self.unreadable: dict[str, str] = {}

    async def move(self, pool: int, chosen: Sequence[Chosen]) -> None:
        """Move hot chunks of a pool."""
        writer, rows = self._new(pool), list[ChunkRow]()
        for part in parts_of(chosen, lambda one: one.size, _READ_BYTES):
            stored = {row[0]: row for row in await self._tier.stored_chunks(pool, [one.digest for one in part])}
            for digest, _ in part:
                row = stored.get(digest)
                if row is None or not _is_hot(row):
                    continue  # collected, moved or damaged in the meantime
                if not writer.takes(len(row[3])):
                    await self._carry(pool, writer, rows)
                    writer, rows = self._new(pool), []
                writer.add(ChunkRow(*row))
                rows.append(ChunkRow(*row))
        await self._carry(pool, writer, rows)

    async def rewrite(self, pool: int, cold: Sequence[Cold]) -> None:
        """Move living chunks out of objects that are to go, into new ones. What cannot be read stays, and is noted."""
        writer, rows = self._new(pool), list[ChunkRow]()
        for part in parts_of(cold, lambda one: one[1].length, _READ_BYTES):
            for row, data in await self._read(part):
                if not writer.takes(len(data)):
                    await self._carry(pool, writer, rows)
                    writer, rows = self._new(pool), []
                writer.add(row._replace(form=hot_form(row.form), data=data))
                rows.append(row)
        await self._carry(pool, writer, rows)

    async def _read(self, part: Sequence[Cold]) -> list[tuple[ChunkRow, bytes]]:
        by_object: dict[str, list[Cold]] = {}
        for row, reference in part:
            by_object.setdefault(reference.object_name, []).append((row, reference))
        found: list[tuple[ChunkRow, bytes]] = []
        for name, wanted in by_object.items():
            contents = await self._tier.objects.read(
                name, [(one.offset, one.length) for _, one in wanted], is_fresh=True
            )
            if contents is None:
                self.unreadable[name] = GONE
                continue
            whole = [
                (row, content)
                for (row, reference), content in zip(wanted, contents, strict=True)
                if fits(reference, content)
            ]
            if len(whole) < len(wanted):
                self.unreadable[name] = ALTERED
            found += whole
        return found

    def _new(self, pool: int) -> PackWriter:
        return PackWriter(pool, salt=os.urandom(_SALT_BYTES))

    async def _carry(self, pool: int, writer: PackWriter, rows: Sequence[ChunkRow]) -> None:
        """Register, upload, verify, then replace rows."""
        if not rows:
            return
        packed = writer.finish()
        name, entries = packed.name.hex(), packed.index.entries
        chunk_bytes = sum(entry.length for entry in entries)
        size = len(packed.content)
        record = ObjectRecord(name=name, pool=pool, size=size, chunk_bytes=chunk_bytes, made=self._now)
        await self._renew()
        await note_object(self._backend, record)
        await self._tier.objects.put(name, packed.content)
        await self._verify(name, packed.content)
        data = packed.content
        pairs = []
        for row, entry in zip(rows, entries, strict=True):
            hot = ChunkRow(row.digest, row.links, entry.form, data[entry.offset : entry.offset + entry.length])
            pairs.append((row, cold_row(hot, packed.name, entry.offset)))
        pairs.sort(key=lambda pair: pair[0].digest)  # as puts do: all writers lock rows in one order
        for part in parts_of(pairs, lambda pair: len(pair[0].data), _SWAP_BYTES, _SWAP_ROWS):
            await self._renew()
            await self._tier.swap_chunks(pool, part)
        self.objects += 1
        await self._count(pool, pairs)

    async def _verify(self, name: str, content: bytes) -> None:
        """Read an object back; Unavailable, with nothing moved, unless it is what was written."""
        found = await self._tier.objects.read(name, [(0, len(content))], is_fresh=True)
        if found is None or found[0] != content or await self._tier.objects.size(name) != len(content):
            where = self._tier.objects.where
            raise Unavailable(f"object {name} of {where} is not what was written to it: no chunk was moved there")
        read_pack(found[0], bytes.fromhex(name))

    async def _count(self, pool: int, pairs: Sequence[tuple[ChunkRow, ChunkRow]]) -> None:
        made = {after.digest: after for _, after in pairs}
        for part in parts_of(list(made), lambda _: REFERENCE_BYTES, _READ_BYTES, 500):
            for row in await self._tier.stored_chunks(pool, part):
                if tuple(row) == tuple(made[row[0]]):
                    self.chunks += 1
                    self.bytes += read_reference(row[3]).length


async def restore_chunks(backend: Backend, tier: Tier, pool: int, cold: Sequence[Cold]) -> Restored:
    """Bring chunks back into the database; those that their objects do not have stay as they are, and are counted."""
    chunks = size = lost = 0
    reasons: dict[str, None] = {}
    for part in parts_of(cold, lambda one: one[1].length, _READ_BYTES, _SWAP_ROWS):
        stored = {row.digest: row for row, _ in part}
        pairs = []
        for row in await backend.chunks(pool, list(stored)):
            if (why := why_lost(row[3])) is not None:
                lost += 1
                reasons[_reason(row[3], why)] = None
            else:
                pairs.append((stored[row[0]], ChunkRow(*row)))
        pairs.sort(key=lambda pair: pair[0].digest)
        await tier.swap_chunks(pool, pairs)
        chunks += len(pairs)
        size += sum(len(after.data) for _, after in pairs)
    return Restored(chunks=chunks, bytes=size, lost=lost, why_lost=tuple(reasons))


def _reason(content: Any, why: str) -> str:
    absence = absence_of(content)
    return f"a chunk {why}" if absence is None else f"the object {absence.name} of {absence.where} {absence.fate}"


def _is_hot(row: Stored) -> bool:
    """Whether a row is one that a pack can hold: not cold, and in none of its columns damaged."""
    digest, links, form, data = row
    if not all(type(one) is bytes for one in (digest, links, data)) or type(form) is not int:
        return False
    return 0 <= form < COLD and len(digest) == DIGEST_BYTES and len(links) % DIGEST_BYTES == 0
