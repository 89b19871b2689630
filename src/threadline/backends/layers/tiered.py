"""A backend with a cold tier: rows whose bytes are in objects are read as the rows that they were.

Everything above sees hot rows. Puts and all that walks links pass through unchanged: only `chunks` looks at the forms
of what it read, and `rewrap` at the rows that it is to replace. The layer reads objects and never writes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import Corrupt
from ...packs.cold import Reference, fits, hot_form, is_cold, read_reference
from ...ports.checkpoints import ChunkRow, Pairs
from ...ports.objects import ALTERED, GONE, Absence, Lost, Objects
from .layer import Layer

__all__ = ["TieredLayer"]

Stored = tuple[bytes, bytes, int, bytes]
# A pack may be written anew, and the old object deleted, between the reading of a row and the reading of its object.
_LOOKS = 3


class TieredLayer(Layer):
    """Resolves cold rows; is the `Tier` of the backends above it."""

    def __init__(self, inner: Any, objects: Objects) -> None:
        self.objects = objects
        super().__init__(inner)
        self.tier = self

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[Stored]:
        found: list[Stored] = await self._inner.chunks(pool, digests)
        cold = [row for row in found if is_cold(row[2])]
        return await self._resolved(pool, found, cold) if cold else found

    async def rewrap(self, pool: int, chunks: Pairs[ChunkRow] = (), **of_thread: Any) -> None:
        """A row that was read out of an object is replaced where it is cold: by the row that the database has.

        The name of a chunk stands for its content, so a cold row of the same links and form is the row that was read.
        """
        if of_thread:
            await self._inner.rewrap(pool, **of_thread)
        names = [before.digest for before, _ in chunks]
        held = {row[0]: ChunkRow(*row) for row in await self.stored_chunks(pool, names)} if names else {}
        await self.swap_chunks(pool, [(_as_held(held.get(before.digest), before), after) for before, after in chunks])

    async def stored_chunks(self, pool: int, digests: Sequence[bytes]) -> list[Stored]:
        found: list[Stored] = await self._inner.chunks(pool, digests)
        return found

    async def swap_chunks(self, pool: int, rows: Pairs[ChunkRow]) -> None:
        # What was read of an object that is gone has no bytes to compare with: its row became hot since, and stays.
        known = [(before, after) for before, after in rows if type(before.data) is bytes]
        if known:
            await self._inner.rewrap(pool, known)

    async def _resolved(self, pool: int, found: list[Stored], cold: list[Stored]) -> list[Stored]:
        resolved: dict[bytes, Stored] = {}
        for _ in range(_LOOKS):
            resolved.update(await self._read(cold))
            lost = {row[0]: row for row in cold if type(resolved[row[0]][3]) is not bytes}
            if not lost:
                break
            again = {row[0]: row for row in await self.stored_chunks(pool, sorted(lost))}
            moved = [row for digest, row in again.items() if row != lost[digest]]
            resolved.update({row[0]: row for row in moved})
            for digest in lost.keys() - again.keys():
                del resolved[digest]  # collected meanwhile
            cold = [row for row in moved if is_cold(row[2])]
            if not cold:
                break
        gone = {row[0] for row in found if is_cold(row[2])} - resolved.keys()
        return [resolved.get(row[0], row) for row in found if row[0] not in gone]

    async def _read(self, cold: Sequence[Stored]) -> dict[bytes, Stored]:
        """Cold rows as they were, by digest; those whose objects do not have them hold a `Lost`."""
        by_object: dict[str, list[tuple[Stored, Reference]]] = {}
        resolved: dict[bytes, Any] = {}
        for row in cold:
            try:
                reference = read_reference(row[3])
            except Corrupt as damage:
                resolved[row[0]] = _lost(row, f"is damaged: {damage}")
                continue
            by_object.setdefault(reference.object_name, []).append((row, reference))
        for name, wanted in by_object.items():
            parts = await self._parts(name, [one for _, one in wanted])
            for at, (row, reference) in enumerate(wanted):
                if parts is None or not fits(reference, parts[at]):
                    fate = GONE if parts is None else ALTERED
                    where = self.objects.where
                    why = f"is in the object {name} of {where}, which {fate}"
                    resolved[row[0]] = _lost(row, why, Absence(name, where, fate))
                else:
                    resolved[row[0]] = row[0], row[1], hot_form(row[2]), parts[at]
        return resolved

    async def _parts(self, name: str, wanted: Sequence[Reference]) -> list[bytes] | None:
        spans = [(one.offset, one.length) for one in wanted]
        parts = await self.objects.read(name, spans)
        if parts is None or all(map(fits, wanted, parts)):
            return parts
        # A cache may have kept what an object held while it was damaged.
        return await self.objects.read(name, spans, is_fresh=True)


def _lost(row: Stored, why: str, absence: Absence | None = None) -> Any:
    return row[0], row[1], hot_form(row[2]), Lost(why, absence)


def _as_held(held: ChunkRow | None, before: ChunkRow) -> ChunkRow:
    """The cold row that a row was read from; the row itself where the database has it as it is, or another one."""
    if held is not None and is_cold(held.form) and (held.links, hot_form(held.form)) == (before.links, before.form):
        return held
    return before
