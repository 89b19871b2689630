"""Items of LangGraph's stores on their way into ours.

A page of items is compared with what the store has of it, written in one transaction under the condition that nobody
changed these items meanwhile, then read back and compared. So a run may be stopped and made again at any time.

Where both have an item and they differ, the one that was updated last holds. Embeddings are not copied: those that the
store has of a replaced value are deleted, and a put of the item makes new ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..base.attempts import ITEM_ATTEMPTS, gave_up
from ..codec.codec import Codec
from ..core.context import Context
from ..core.records.checks import check_key, check_namespace
from ..core.records.contents import pack_item, read_item, wrapped
from ..core.records.past import has_past, past_changes, read_past
from ..core.records.shapes import Found, ItemOptions, Put, name_of
from ..errors import Conflict, Corrupt
from ..ports.records import ABSENT, Record, RecordChange, RecordSpace, Scan
from .compare import read_json
from .report import Counts
from .source import SourceItem

__all__ = ["Brought", "WantedItem", "bring_items", "wanted_item"]

ITEM, PAST, VECTOR = RecordSpace.ITEM, RecordSpace.PAST, RecordSpace.VECTOR
# Databases keep times to the microsecond.
_SAME_MOMENT = 1e-6
# A history that is kept here goes on, whatever its length.
_ALL_VERSIONS = ItemOptions(keep_versions=2**62)


class WantedItem(NamedTuple):
    """An item as it should be stored; `put` holds its value and its time to live."""

    put: Put
    name: bytes
    created: float
    updated: float
    expires: float | None

    def __str__(self) -> str:
        return f"item {self.put.key!r} in {self.put.namespace}"


@dataclass(slots=True)
class Brought:
    """The outcome of a page."""

    counts: Counts = field(default_factory=Counts)
    problems: list[str] = field(default_factory=list)


def wanted_item(found: SourceItem, codec: Codec) -> WantedItem:
    """The item of a row; Corrupt or InvalidRequest when there can be no such item."""
    namespace, key = check_namespace(tuple(found.prefix.split("."))), check_key(found.key)
    value = read_json(found.content, "value")
    if type(value) is not dict:
        raise Corrupt("its value is no JSON object")
    times = (found.created, found.updated, found.expires or 0.0, found.ttl_minutes or 0.0)
    if not all(map(math.isfinite, times)):
        raise Corrupt("its times cannot be read")
    ttl = found.ttl_minutes * 60.0 if found.ttl_minutes is not None else None
    put = Put(namespace, key, pack_item(codec, value, ttl), ttl)
    return WantedItem(put, name_of(namespace, key), found.created, found.updated, found.expires)


async def bring_items(store: Context, wanted: Sequence[WantedItem]) -> Brought:
    """Give the store these items as the source has them; what it has newer stays."""
    keeps_history = await has_past(store, b"")
    for _ in range(ITEM_ATTEMPTS):
        brought, changes, written = Brought(), list[RecordChange](), list[WantedItem]()
        for one, record in zip(wanted, await _records(store, wanted), strict=True):
            try:
                outcome = _outcome(store, one, record)
            except Corrupt as problem:
                brought.problems.append(str(problem))
                continue
            brought.counts.add(outcome)
            if outcome.copied or outcome.renewed:
                changes += await _changes(store, one, record, keeps_history)
                written.append(one)
        if not changes or await store.backend.write_records(changes) is None:
            await _check(store, written, brought)
            return brought
    raise gave_up("import of items", "other writers changed them during each of them", Conflict, ITEM_ATTEMPTS)


async def _records(store: Context, wanted: Sequence[WantedItem]) -> list[Record | None]:
    return await store.read_records(ITEM, [one.name for one in wanted]) if wanted else []


def _outcome(store: Context, wanted: WantedItem, record: Record | None) -> Counts:
    """What becomes of an item: one of the counts is 1."""
    if record is None or (record.expires is not None and record.expires <= time.time()):
        return Counts(copied=1)
    held = read_item(store.tools, record)
    if _is_same(store, wanted, held):
        return Counts(present=1)
    return Counts(kept=1) if held.updated > wanted.updated + _SAME_MOMENT else Counts(renewed=1)


def _is_same(store: Context, wanted: WantedItem, held: Found) -> bool:
    if abs(held.updated - wanted.updated) > _SAME_MOMENT:
        return False
    if wanted.expires is None or held.expires is None:
        if wanted.expires is not held.expires:
            return False
    elif held.expires < wanted.expires - _SAME_MOMENT:
        # Later is the same: the item was read here, which began its time anew.
        return False
    return pack_item(store.tools.codec, held.value, held.ttl) == wanted.put.content


async def _changes(
    store: Context, wanted: WantedItem, before: Record | None, keeps_history: bool
) -> list[RecordChange]:
    """The changes that make an item what it should be; refused where it is no longer what it was."""
    put, name = wanted.put, wanted.name
    version = before.version if before is not None else ABSENT
    form, value = wrapped(store.tools, ITEM, name, put.content)
    item = Record(name, form, value, None, wanted.created, wanted.updated, wanted.expires, 0)
    changes = [RecordChange(ITEM, name, item, version)]
    if before is not None:
        changes.append(RecordChange(VECTOR, name, None))
    last = await store.scan_records(PAST, Scan(prefix=name, newest_first=True, limit=1)) if keeps_history else []
    if last:
        # A version that began before the last one, a deletion perhaps, holds here from now on.
        is_later = wanted.updated > last[0].updated + 2 * _SAME_MOMENT
        began = round(wanted.updated if is_later else time.time(), 6)
        number = version if before is not None else read_past(store.tools, last[0])[1]
        if before is None:
            changes[0] = RecordChange(ITEM, name, item._replace(version=number + 1), ABSENT)
        changes += await past_changes(store, _ALL_VERSIONS, put, number, began, before)
    return changes


async def _check(store: Context, written: Sequence[WantedItem], brought: Brought) -> None:
    """Read back what was written, and note where it is not what the source has."""
    for one, record in zip(written, await _records(store, written), strict=True):
        # Somebody may have put a newer one since, and its time may be over already.
        if record is None or _outcome(store, one, record).renewed:
            brought.problems.append(f"{one}: what was read back is not what the source has")
