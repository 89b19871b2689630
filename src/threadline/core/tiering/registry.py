"""The objects that a store has written or began to write, as records of the store.

A record is written before its object. So whatever a process that died left in the object store is found without a
listing. An object that no row names is an *orphan*. It goes when it was one for the grace: somebody may be about to
move rows to it, and a database that is set back to an earlier state names objects that were orphans since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import ormsgpack

from ...codec.limits import unpack
from ...errors import Corrupt
from ...ports.checkpoints import Backend
from ..store_records import change_record, read_records_of

__all__ = ["ObjectRecord", "forget_object", "note_object", "note_orphan", "registered"]

_KIND = "cold:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRecord:
    """An object of a pool: its name, its bytes, when it was registered, and since when no row names it."""

    name: str
    pool: int
    size: int
    # The bytes of chunks in it, without magic, index and checksum.
    chunk_bytes: int
    made: float
    orphaned: float | None = None

    def packed(self) -> bytes:
        return ormsgpack.packb([self.pool, self.size, self.chunk_bytes, self.made, self.orphaned])

    @classmethod
    def unpacked(cls, name: str, stored: bytes) -> ObjectRecord:
        try:
            pool, size, chunk_bytes, made, orphaned = unpack(stored)
        except (ValueError, TypeError):
            raise Corrupt(f"the record of the object {name} is damaged") from None
        return cls(name=name, pool=pool, size=size, chunk_bytes=chunk_bytes, made=made, orphaned=orphaned)


async def registered(backend: Backend) -> dict[str, ObjectRecord]:
    """All objects, by name."""
    found: Mapping[str, bytes] = await read_records_of(backend, _KIND)
    return {name: ObjectRecord.unpacked(name, stored) for name, stored in found.items()}


async def note_object(backend: Backend, record: ObjectRecord) -> None:
    """Register an object; to be called before it is written."""
    await change_record(backend, _KIND + record.name, lambda _: record.packed(), "the record of an object")


async def note_orphan(backend: Backend, record: ObjectRecord, since: float | None) -> ObjectRecord:
    """Note since when no row names an object; None where one does."""
    anew = replace(record, orphaned=since)
    if record.orphaned != since:
        await note_object(backend, anew)
    return anew


async def forget_object(backend: Backend, name: str) -> None:
    """Remove the record of an object that was deleted."""
    await change_record(backend, _KIND + name, lambda _: None, "the record of an object")
