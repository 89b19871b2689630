"""Former values of items: what an item was at a time, for as long as its store keeps history."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ...errors import Corrupt
from ...ports.records import ABSENT, Record, RecordChange, RecordSpace, Scan, pack_name, split_name
from ..context import Context, Tools
from ..filters import check_filter, matches
from ..paging import record_pages
from .contents import has_expired, unpack, unwrapped, wrapped
from .shapes import Found, ItemOptions, Put, Version, name_of, path_of

__all__ = ["get_as_of", "has_past", "history_of", "last_version", "past_changes", "read_past", "search_as_of"]

PAST = RecordSpace.PAST
_PAGE = 500
# So many are all: nothing need be counted.
_ALL_VERSIONS = 2**62


async def history_of(store: Context, name: bytes) -> list[Version]:
    """All kept versions of an item, the newest first."""
    found: list[Version] = []
    until: float | None = None
    for record in reversed(await _versions(store, name, time.time())):
        value, version, _ = read_past(store.tools, record)
        found.append(Version(value, version, record.updated, until))
        until = record.updated
    return found


async def has_past(store: Context, prefix: bytes) -> bool:
    """Whether a version of some item below a prefix is kept."""
    return bool(await store.scan_records(PAST, Scan(prefix=prefix, limit=1)))


async def last_version(store: Context, name: bytes) -> tuple[int, float]:
    """The number of the last version of an item that is kept, and when it began; zeros without one."""
    last = await store.scan_records(PAST, Scan(prefix=name, newest_first=True, limit=1))
    return (read_past(store.tools, last[0])[1], last[0].updated) if last else (0, 0.0)


async def get_as_of(store: Context, name: bytes, moment: float) -> Found | None:
    """An item as it was at a moment; None where it was not there, or its history does not reach back so far."""
    held: Record | None = None
    is_last = True
    async for record in _kept(store, name, time.time()):
        if record.updated > moment:
            is_last = False
            break
        held = record
    if held is None:
        return None
    found = await _items_of(store, {name: held}, {name} if is_last else set(), moment)
    return found[0] if found else None


async def search_as_of(
    store: Context,
    prefix: bytes,
    filter: Mapping[str, Any] | None,
    moment: float,
    after: tuple[float, bytes] | None = None,
) -> list[Found]:
    """The items below a prefix as they were at a moment, the last updated first, then by name; `after` one of them."""
    wanted = check_filter(filter)
    held: dict[bytes, Record] = {}
    last: set[bytes] = set()
    async for record in _kept(store, prefix, time.time()):
        name = pack_name(split_name(record.name)[:-1])
        if record.updated <= moment:
            held[name] = record
            last.add(name)
        else:
            last.discard(name)
    found = [item for item in await _items_of(store, held, last, moment) if matches(item.value, wanted)]
    if after is not None:
        found = [item for item in found if (-item.updated, item.name) > (-after[0], after[1])]
    return sorted(found, key=lambda item: (-item.updated, item.name))


async def _items_of(store: Context, held: Mapping[bytes, Record], last: set[bytes], moment: float) -> list[Found]:
    """The items that were there at a moment, of the versions that began last before it; `last` have no later one."""
    found: list[Found] = []
    lapsed: list[Found] = []
    for name, record in held.items():
        value, version, ttl = read_past(store.tools, record)
        if value is None:
            continue
        item = Found(*path_of(name), value, record.created, record.updated, version, None, ttl, name)
        if ttl is None or record.updated + ttl > moment:
            found.append(item)
        elif name in last:
            lapsed.append(item)
    if lapsed:
        # Reads may have begun the time to live anew, of which only the item itself knows.
        records = await store.read_records(RecordSpace.ITEM, [item.name for item in lapsed])
        for item, now in zip(lapsed, records, strict=True):
            if now is not None and now.version == item.version and not has_expired(now, moment):
                found.append(item)
    return found


async def past_changes(store: Context, options: ItemOptions, put: Put, version: int, now: float) -> list[RecordChange]:
    """The record of a new version, and those of old versions that are no longer kept."""
    item = name_of(put.namespace, put.key)
    name = pack_name((*put.namespace, "", put.key, f"{round(now * 1e6):020d}"))
    value = unpack(store.tools.codec, put.content)[0] if put.content is not None else None
    form, stored = wrapped(store.tools, PAST, name, [value, version + 1, put.ttl_seconds])
    changes = [RecordChange(PAST, name, Record(name, form, stored, None, now, now, None, 0), ABSENT)]
    if 0 < options.keep_versions < _ALL_VERSIONS:
        earlier = await _versions(store, item)
        changes += [RecordChange(PAST, one.name, None) for one in earlier[: -options.keep_versions]]
    if options.keep_seconds is not None:
        last = await store.scan_records(PAST, Scan(prefix=item, newest_first=True, limit=1))
        if last and last[0].expires is None:
            # A version is kept for so long after the next one has begun.
            ends = last[0]._replace(expires=now + options.keep_seconds)
            changes.append(RecordChange(PAST, last[0].name, ends))
    return changes


def read_past(tools: Tools, record: Record) -> tuple[dict[str, Any] | None, int, float | None]:
    parts = unwrapped(tools, PAST, record)
    if type(parts) is not list or len(parts) != 3 or type(parts[0]) not in (dict, type(None)):
        raise Corrupt(f"item {split_name(record.name)[-2]!r}: a former version of it is damaged")
    return parts[0], parts[1], parts[2]


async def _versions(store: Context, name: bytes, now: float | None = None) -> list[Record]:
    """The records of all kept versions of an item, the oldest first."""
    return [record async for record in _kept(store, name, now)]


async def _kept(store: Context, prefix: bytes, now: float | None) -> AsyncIterator[Record]:
    """The records of versions below a prefix, those of one item from the oldest on; `now` leaves out the expired."""
    async for page in record_pages(store, PAST, Scan(prefix=prefix, limit=_PAGE, now=now)):
        for record in page:
            yield record
