"""Chunks whose bytes are in an object that is lost, while the checkpoints that need them are in quarantine.

Their rows must leave the pool: the next put of the same content would take them for stored. But the object may come
back, from a bucket that keeps versions. So each of these rows, and each row of a node above it, becomes the content of
another chunk, its *carrier*, which is an item of the pool as any other: it is kept, sealed anew and collected as items
are. The evidence names the carriers and the objects, and `unquarantine` makes rows of the carriers again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ormsgpack

from ...chunks.gather import chunk_place
from ...codec.limits import unpack
from ...packs.cold import hot_form, is_cold, read_reference
from ...ports.checkpoints import DIGEST_BYTES, ChunkRow, split_links
from ...ports.objects import tier_of
from .verify import Stored, Trouble, Walk, batches

__all__ = ["Away", "carriers_of", "closed_under_links", "rows_of"]

_BATCH = 256
# The form in a carrier of a row whose bytes are at hand: it holds their content, which is wrapped when it is put back.
_UNWRAPPED = -1


class Away(NamedTuple):
    """What the evidence has of such chunks: their carriers, the objects, and the forms of the bytes in these."""

    carriers: tuple[bytes, ...] = ()
    objects: tuple[str, ...] = ()
    forms: tuple[int, ...] = ()

    def packed(self) -> dict[str, Any]:
        return {"carriers": b"".join(self.carriers), "objects": list(self.objects), "forms": list(self.forms)}

    @classmethod
    def unpacked(cls, held: Any) -> Away:
        """Raises ValueError, TypeError or LookupError for what is none."""
        carriers, objects, forms = held["carriers"], held["objects"], held["forms"]
        if type(carriers) is not bytes or not all(type(name) is str for name in objects):
            raise ValueError("it has another shape")
        return cls(tuple(split_links(carriers)), tuple(objects), tuple(map(int, forms)))

    @property
    def key_numbers(self) -> set[int]:
        return {hot_form(form) >> 1 for form in self.forms}


async def carriers_of(walk: Walk, digests: Iterable[bytes]) -> tuple[list[ChunkRow], Away]:
    """The carriers of some rows of a pool, and what the evidence says of them."""
    tier, envelope = tier_of(walk.store.backend), walk.tools.envelope
    carriers: list[ChunkRow] = []
    objects: set[str] = set()
    forms: set[int] = set()
    if tier is None:
        return [], Away()
    for batch in batches(sorted(digests), _BATCH):
        for row in await tier.stored_chunks(walk.pool, batch):
            if is_cold(row[2]):
                objects.add(read_reference(row[3]).object_name)
                forms.add(row[2])
                held: list[Any] = list(row)
            else:
                content = walk.content_of(row)
                if isinstance(content, Trouble):
                    continue  # altered since it was looked at
                held = [row[0], row[1], _UNWRAPPED, content]
            packed = ormsgpack.packb(held)
            name = walk.tools.digesters.of(walk.pool).item(packed)
            carriers.append(ChunkRow(name, b"", *envelope.wrap(packed, chunk_place(walk.pool, name))))
    return carriers, Away(tuple(row.digest for row in carriers), tuple(sorted(objects)), tuple(sorted(forms)))


async def rows_of(walk: Walk, away: Away) -> list[ChunkRow]:
    """The rows that carriers hold, as they are to be put back; what nothing good can be made of is left out."""
    rows: dict[bytes, ChunkRow] = {}
    for batch in batches(sorted(set(away.carriers)), _BATCH):
        for stored in await walk.fetch(batch):
            row = _row_in(walk, stored)
            if row is not None:
                rows[row.digest] = row
    below = {digest: row.links for digest, row in rows.items()}
    outside = sorted({link for links in below.values() for link in split_links(links)} - rows.keys())
    there: set[bytes] = set()
    for batch in batches(outside, _BATCH):
        there.update(await walk.store.backend.links(walk.pool, batch))
    whole = closed_under_links(below.keys() | there, below)
    return [rows[digest] for digest in sorted(rows.keys() & whole)]


def closed_under_links(digests: Iterable[bytes], below: Mapping[bytes, bytes]) -> set[bytes]:
    """Those of some chunks that lead to nothing else than these."""
    found = set(digests)
    while bad := [digest for digest in found if not found.issuperset(split_links(below.get(digest, b"")))]:
        found.difference_update(bad)
    return found


def _row_in(walk: Walk, stored: Stored) -> ChunkRow | None:
    if walk.fault_of(stored) is not None:
        return None
    content = walk.content_of(stored)
    try:
        digest, links, form, data = _shaped(unpack(content) if isinstance(content, bytes) else None)
    except (ValueError, TypeError):
        return None
    if form == _UNWRAPPED:
        form, data = walk.tools.envelope.wrap(data, chunk_place(walk.pool, digest))
    return ChunkRow(digest, links, form, data)


def _shaped(held: Any) -> Sequence[Any]:
    if type(held) is not list or list(map(type, held)) != [bytes, bytes, int, bytes] or len(held[0]) != DIGEST_BYTES:
        raise ValueError("it holds no row")
    return held
