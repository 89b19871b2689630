"""Former values of items: what an item was at a time, for as long as its store keeps history.

A version is a record of PAST, named by its item and the moment at which it began. It is written with the put that makes
it. A version that a store without history has put is known by the item alone; it is noted here when the next change
comes that is noted. So is the time at which a version ended, where reads had begun its time to live anew.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from ...errors import Corrupt, NotFound
from ...ports.records import (
    ABSENT,
    MOST_NAME_BYTES,
    Expired,
    Record,
    RecordChange,
    RecordSpace,
    Scan,
    pack_name,
    split_name,
)
from ..context import Context, Tools
from ..filters import check_item_filter, item_matches
from ..paging import record_pages
from .contents import has_expired, read_item, unpack, unwrapped, value_of, wrapped
from .shapes import Found, ItemOptions, Put, Version, name_of, path_of

__all__ = [
    "EVERY_VERSION",
    "Past",
    "get_as_of",
    "has_past",
    "history_of",
    "last_version",
    "note_ends",
    "past_changes",
    "read_past",
    "restorable",
    "search_as_of",
]

ITEM, PAST = RecordSpace.ITEM, RecordSpace.PAST
_PAGE = 500
# So many are all: nothing need be counted.
_ALL_VERSIONS = 2**62
# How a store goes on with a history that another one keeps.
EVERY_VERSION = ItemOptions(keep_versions=_ALL_VERSIONS)
# What databases may make of a time.
_SAME_SECONDS = 1e-3


class Past(NamedTuple):
    """A version as it is stored; the value None is a deletion."""

    value: dict[str, Any] | None
    version: int
    ttl: float | None
    # When it expired, where that is not its time to live after it began.
    expired: float | None = None


async def history_of(store: Context, name: bytes) -> list[Version]:
    """All kept versions of an item, the newest first."""
    now = time.time()
    records = await _versions(store, name, now)
    if not records:
        return []
    [live] = await store.read_records(ITEM, [name])
    found: list[Version] = []
    until: float | None = None
    if live is not None and live.updated > records[-1].updated:  # put by a store that keeps no history
        value, ttl = value_of(store.tools, live)
        found.append(Version(value, live.version, live.updated, _passed(live.expires, now), ttl))
        until = live.updated
    for record in reversed(records):
        past = read_past(store.tools, record)
        is_live = live is not None and not found and past.version == live.version
        ends = live.expires if is_live and live is not None else _end(record, past)
        ends = _passed(ends, until if until is not None else now)
        found.append(Version(past.value, past.version, record.updated, ends if ends is not None else until, past.ttl))
        until = record.updated
    return found


def restorable(history: Sequence[Version], key: str, version: int) -> tuple[dict[str, Any], timedelta | None]:
    """The value of a version and its time to live; NotFound where it is not kept."""
    for one in history:
        if one.version == version and one.value is not None:
            return one.value, timedelta(seconds=one.ttl) if one.ttl is not None else None
    raise NotFound(f"no version {version} of item {key!r} is kept")


async def has_past(store: Context, prefix: bytes) -> bool:
    """Whether a version of some item below a prefix is kept."""
    return bool(await store.backend.record_prefixes(PAST, prefix, 1, b"", 1))


async def last_version(store: Context, name: bytes) -> tuple[int, float]:
    """The number of the last version of an item that is kept, and when it began; zeros without one."""
    last = await _last(store, name)
    return (read_past(store.tools, last).version, last.updated) if last is not None else (0, 0.0)


async def get_as_of(store: Context, name: bytes, moment: float) -> Found | None:
    """An item as it was at a moment; None where it was not there, or its history does not reach back so far."""
    [live] = await store.read_records(ITEM, [name])
    times = _Times()
    async for record in _kept(store, name, time.time()):
        times.add(record, moment)
    return times.item(store.tools, name, live, moment)


async def search_as_of(
    store: Context,
    prefix: bytes,
    filter: Mapping[str, Any] | None,
    moment: float,
    after: tuple[float, bytes] | None = None,
) -> list[Found]:
    """The items below a prefix as they were at a moment, the last updated first, then by name; `after` one of them."""
    wanted = check_item_filter(filter)
    live = {record.name: record async for record in _each(store, ITEM, prefix, None)}
    times: dict[bytes, _Times] = {name: _Times() for name in live}
    async for record in _kept(store, prefix, time.time()):
        times.setdefault(pack_name(split_name(record.name)[:-1]), _Times()).add(record, moment)
    items = [own.item(store.tools, name, live.get(name), moment) for name, own in times.items()]
    found = [item for item in items if item is not None and item_matches(item.value, wanted)]
    if after is not None:
        found = [item for item in found if (-item.updated, item.name) > (-after[0], after[1])]
    return sorted(found, key=lambda item: (-item.updated, item.name))


@dataclass(slots=True)
class _Times:
    """Of the versions of an item, oldest first: the last one that had begun by a moment, and the last one of all."""

    held: Record | None = None
    last: Record | None = None

    def add(self, record: Record, moment: float) -> None:
        self.last = record
        if record.updated <= moment:
            self.held = record

    def item(self, tools: Tools, name: bytes, live: Record | None, moment: float) -> Found | None:
        """The item as it was then; `live` is its record now."""
        if live is not None:
            # The last version is the item itself, or was replaced by it: an import brings a value with an earlier time.
            began = live.updated if self.last is None else max(live.updated, self.last.updated)
            if began <= moment:
                return None if has_expired(live, moment) else read_item(tools, live)._replace(expires=None)
        if self.held is None:
            return None
        past = read_past(tools, self.held)
        if past.value is None or _passed(_end(self.held, past), moment) is not None:
            return None
        created, updated = self.held.created, self.held.updated
        return Found(*path_of(name), past.value, created, updated, past.version, None, past.ttl, name)


def _end(record: Record, past: Past) -> float | None:
    """When a version ends by itself; None for never."""
    return past.expired if past.expired is not None or past.ttl is None else record.updated + past.ttl


def _passed(ends: float | None, moment: float) -> float | None:
    """A time that is over by a moment, else None."""
    return ends if ends is not None and ends <= moment else None


# -- writing


async def past_changes(
    store: Context, options: ItemOptions, put: Put, version: int, now: float, before: Record | None
) -> list[RecordChange]:
    """The record of a new version, what there is to note of the one before it, and versions that are no longer kept."""
    item = name_of(put.namespace, put.key)
    if put.content is None and len(item) > MOST_NAME_BYTES - len(_name_at(b"", now)):
        return []  # no version of an item with so long a name can be kept
    name = pack_name((*put.namespace, "", put.key, _began(now)))
    value = unpack(store.tools.codec, put.content)[0] if put.content is not None else None
    form, stored = wrapped(store.tools, PAST, name, [value, version + 1, put.ttl_seconds])
    created = before.created if before is not None else now
    changes = [RecordChange(PAST, name, Record(name, form, stored, None, created, now, None, 0), ABSENT)]
    ending = await _noted(store, before) if before is not None else {}
    if 0 < options.keep_versions < _ALL_VERSIONS:
        names = sorted({one.name for one in await _versions(store, item)} | ending.keys())
        for old in names[: -options.keep_versions]:
            changes.append(RecordChange(PAST, old, None))
            ending.pop(old, None)
    if options.keep_seconds is not None:
        last = await _last(store, item)
        if last is not None and last.expires is None:
            ending.setdefault(last.name, last)
        # A version is kept for so long after the next one has begun.
        ends = now + options.keep_seconds
        ending = {old: one._replace(expires=one.expires or ends) for old, one in ending.items()}
    return changes + [RecordChange(PAST, one.name, one) for one in ending.values()]


async def note_ends(store: Context, expired: Sequence[Expired]) -> None:
    """Note when items ended that were swept: of versions that reads kept alive nothing else knows it."""
    for name, ends in expired:
        last = await _last(store, name)
        if last is None:
            continue
        try:
            past = read_past(store.tools, last)
        except (Corrupt, NotFound):
            continue
        if past.value is not None and last.updated <= ends and _differs(_end(last, past), ends):
            noted = _packed(store.tools, last, past._replace(expired=ends))
            await store.backend.write_records([RecordChange(PAST, noted.name, noted, last.version)])


async def _noted(store: Context, before: Record) -> dict[bytes, Record]:
    """What the history of an item lacks of the version that is there, by name: the version itself, or how it ends."""
    name = _name_at(before.name, before.updated)
    if len(name) > MOST_NAME_BYTES:
        return {}
    [kept] = await store.read_records(PAST, [name])
    if kept is None and (last := await _last(store, before.name)) is not None and last.updated > before.updated:
        name, kept = last.name, last  # of an import, which brings a value with an earlier time
    try:
        if kept is None:
            value, ttl = value_of(store.tools, before)
            past = Past(value, before.version, ttl)
            kept = Record(name, 0, b"", None, before.created, before.updated, None, 0)
        elif before.expires is None:
            return {}
        else:
            past = read_past(store.tools, kept)
            if not _differs(_end(kept, past), before.expires):
                return {}
    except (Corrupt, NotFound):  # it can be replaced, though nobody can read it
        return {}
    if before.expires is not None and _differs(_end(kept, past), before.expires):
        past = past._replace(expired=before.expires)
    return {name: _packed(store.tools, kept, past)}


def _differs(ends: float | None, other: float) -> bool:
    return ends is None or abs(ends - other) > _SAME_SECONDS


def _packed(tools: Tools, record: Record, past: Past) -> Record:
    """A record with another content."""
    form, stored = wrapped(tools, PAST, record.name, list(past if past.expired is not None else past[:3]))
    return record._replace(form=form, value=stored)


def read_past(tools: Tools, record: Record) -> Past:
    """The version that a record holds; Corrupt names its item."""
    parts = unwrapped(tools, PAST, record)
    if type(parts) is not list or len(parts) not in (3, 4) or type(parts[0]) not in (dict, type(None)):
        raise Corrupt(f"item {split_name(record.name)[-2]!r}: a former version of it is damaged")
    return Past(*parts)


def _began(moment: float) -> str:
    """The last segment of a version's name."""
    return f"{round(moment * 1e6):020d}"


def _name_at(item: bytes, moment: float) -> bytes:
    return item + _began(moment).encode() + b"\0"


async def _last(store: Context, name: bytes) -> Record | None:
    """The record of the last version of an item that is kept."""
    last = await store.scan_records(PAST, Scan(prefix=name, newest_first=True, limit=1))
    return last[0] if last else None


async def _versions(store: Context, name: bytes, now: float | None = None) -> list[Record]:
    """The records of all kept versions of an item, the oldest first."""
    return [record async for record in _kept(store, name, now)]


def _kept(store: Context, prefix: bytes, now: float | None) -> AsyncIterator[Record]:
    """The records of versions below a prefix, those of one item from the oldest on; `now` leaves out the expired."""
    return _each(store, PAST, prefix, now)


async def _each(store: Context, space: RecordSpace, prefix: bytes, now: float | None) -> AsyncIterator[Record]:
    async for page in record_pages(store, space, Scan(prefix=prefix, limit=_PAGE, now=now)):
        for record in page:
            yield record
