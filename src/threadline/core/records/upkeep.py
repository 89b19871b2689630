"""Upkeep of records: whether each can be read, sealing them anew under the current key, deleting what has expired."""

from __future__ import annotations

from typing import NamedTuple

from ...base.printable import printable
from ...errors import Corrupt, NotAllowed
from ...ports.records import Record, RecordSpace, Scan, split_name
from ..context import Context
from ..paging import record_pages
from .cached import sweep_entries
from .contents import PLAIN_OBJECT, place_of_record, read_item, unwrapped
from .items import read_vectors, sweep_items
from .past import read_past

__all__ = ["ExpiredRecords", "damaged_records", "rotate_records", "sweep_records"]

_PAGE = 256
_SPOKEN = {
    RecordSpace.ITEM: "item",
    RecordSpace.PAST: "a former value of item",
    RecordSpace.VECTOR: "the embeddings of item",
    RecordSpace.CACHE: "cached result",
}


async def damaged_records(store: Context) -> tuple[int, list[str]]:
    """How many records were read, and what is wrong with those that a read would refuse.

    What looks damaged is read again: it is told only when it was the same then. A key that the ring lacks raises
    NotFound.
    """
    count = 0
    damaged: list[str] = []
    for space in _SPOKEN:
        async for page in record_pages(store, space, Scan(limit=_PAGE)):
            count += len(page)
            suspects = [record for record in page if _fault_of(store, space, record) is not None]
            again = await store.read_records(space, [record.name for record in suspects])
            for before, now in zip(suspects, again, strict=True):
                fault = _fault_of(store, space, before) if now == before else None
                if fault is not None:
                    damaged.append(f"{_named(space, before)}: {fault}")
    return count, damaged


async def rotate_records(store: Context, current: int) -> int:
    """Seal all records under the current key; returns how many were sealed anew. Versions and times stay.

    A record that another writer changes meanwhile is left: that put is sealed under the current key.
    """
    done = 0
    envelope = store.tools.envelope
    for space in _SPOKEN:  # those of the store itself are sealed by their owners
        async for page in record_pages(store, space, Scan(limit=_PAGE)):
            pairs: list[tuple[Record, Record]] = []
            for record in page:
                if record.form >> 1 != current:
                    place = place_of_record(space, record.name)
                    form, value = envelope.wrap_row(envelope.unwrap_row(record.form, record.value, place), place)
                    pairs.append((record, record._replace(form=form, value=value)))
            if pairs:
                await store.backend.rewrap_records(space, pairs)
                done += len(pairs)
    return done


class ExpiredRecords(NamedTuple):
    """How many items and cached results have expired, and were not swept before."""

    items: int = 0
    cached: int = 0


async def sweep_records(store: Context, now: float, *, dry_run: bool) -> ExpiredRecords:
    """Delete the items, former values and cached results that have expired; `dry_run` counts them only."""
    if not dry_run:
        return ExpiredRecords(await sweep_items(store, now), await sweep_entries(store, now))
    expired = []
    for space in (RecordSpace.ITEM, RecordSpace.CACHE):
        everything = await store.backend.count_records(space, b"")
        expired.append(max(0, everything - await store.backend.count_records(space, b"", now)) if everything else 0)
    return ExpiredRecords(*expired)


def _fault_of(store: Context, space: RecordSpace, record: Record) -> str | None:
    try:
        if space is RecordSpace.ITEM:
            read_item(store.tools, record)
        elif space is RecordSpace.PAST:
            read_past(store.tools, record)
        elif space is RecordSpace.VECTOR:
            read_vectors(store.tools, record)
        elif record.form != PLAIN_OBJECT:
            unwrapped(store.tools, space, record)
    except NotAllowed:
        return None  # whole, and of a type that is not rebuilt here: a cache takes it for a miss
    except (Corrupt, ValueError, IndexError) as error:
        return printable(error)
    return None


def _named(space: RecordSpace, record: Record) -> str:
    try:
        path = split_name(record.name)
        whole = path[:-1] if space is RecordSpace.PAST else path
        return f"{_SPOKEN[space]} {whole[-1]!r} in {whole[:-2]}"
    except (ValueError, IndexError):
        return f"{_SPOKEN[space]} of a damaged name"
