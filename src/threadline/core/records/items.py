"""Items of a Store: JSON-like values under a namespace and a key, on the Records port.

An item is a record of the space ITEM, named by its namespace, an empty segment and its key. Where a store keeps
history, each version is also a record of PAST, under the item's name and the moment it began; a deletion is a version
without a value. The embeddings of an item are one record of VECTOR under the same name. All records of a put change
in one transaction.

Two kinds of put: a plain one is written as it is. One under a condition (`if_version`), or of a store that keeps
history, reads the item first and is a compare-and-swap on its version.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from ormsgpack import packb

from ...base.attempts import ITEM_ATTEMPTS, gave_up
from ...base.printable import printable
from ...errors import Conflict, Corrupt, InvalidRequest
from ...ports.records import ABSENT, Expired, Record, RecordChange, RecordSpace, Scan, split_name
from ..context import Context, Tools
from ..filters import check_item_filter, item_matches, look_up
from ..rows import LONGEST_INDEXED, searchable_value
from .contents import has_expired, read_item, unpack, unwrapped, wrapped
from .past import EVERY_VERSION, has_past, last_version, note_ends, past_changes
from .shapes import Found, ItemOptions, Put, name_of, path_of

__all__ = [
    "ITEM",
    "check_fields",
    "count_items",
    "delete_items",
    "forget_item",
    "get_items",
    "index_embeddings",
    "index_items",
    "list_groups",
    "put_items",
    "read_vectors",
    "record_of",
    "refresh_items",
    "search_items",
    "searchable_of",
    "searchables_of",
    "sweep_items",
    "time_now",
]

log = logging.getLogger("threadline.store")
ITEM, PAST, VECTOR = RecordSpace.ITEM, RecordSpace.PAST, RecordSpace.VECTOR
_PAGE = 500
_ALL = 1 << 62
_FIELD = re.compile(r"(?=.{1,200}$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
# Noted, as JSON, for a field that is missing, or whose value no database looks for. A text that is looked for is
# printable.
_NOT_FOUND = '"\\n"'
# An item is refreshed at most this often within its time to live: reading it twice a second need not write twice.
_REFRESHES_PER_LIFE = 100


def time_now() -> float:
    """Now, in whole microseconds: the time that an item shows is the time by which it is sorted."""
    return time.time_ns() // 1000 / 1e6


# -- writing


async def put_items(store: Context, options: ItemOptions, puts: Sequence[Put]) -> None:
    """Keep all these items in one transaction; of several puts to one item the last one holds.

    Raises Conflict where a condition does not hold; then nothing was changed.
    """
    last = puts if len(puts) == 1 else _last_of_each(puts)
    remembered = set() if options.keeps_history else await _remembered(store, last)
    if not options.keeps_history and not remembered and all(put.if_version is None for put in last):
        now = time_now()
        await store.backend.write_records(
            [change for put in last for change in _changes(store.tools, options, put, now)]
        )
        return
    for _ in range(ITEM_ATTEMPTS):
        changes, owners = await _conditional_changes(store, options, last, remembered)
        refused = await store.backend.write_records(changes)
        if refused is None:
            return
        put = owners[refused]
        if put.if_version is not None:
            raise _lost(put)
    what = f"put of item {last[0].key!r} in {last[0].namespace}"
    raise gave_up(what, "another writer changed it during each of them", Conflict, ITEM_ATTEMPTS)


def _last_of_each(puts: Sequence[Put]) -> list[Put]:
    """Of several puts to one item the last one, under the condition that one of them has."""
    last: dict[tuple[tuple[str, ...], str], Put] = {}
    for put in puts:
        before = last.get((put.namespace, put.key))
        if before is not None and before.if_version is not None:
            if put.if_version not in (None, before.if_version):
                raise _lost(put)
            put = put._replace(if_version=before.if_version)
        last[put.namespace, put.key] = put
    return list(last.values())


async def _remembered(store: Context, puts: Sequence[Put]) -> set[bytes]:
    """Of deletions by a store without history, those of items whose history another store keeps.

    A later value shows by itself that it was put. Of a deletion nothing would be left.
    """
    names = [name_of(put.namespace, put.key) for put in puts if put.content is None]
    if not names or (len(names) > 1 and not await has_past(store, b"")):
        return set()
    return {name for name in names if await has_past(store, name)}


async def _conditional_changes(
    store: Context, options: ItemOptions, puts: Sequence[Put], remembered: set[bytes]
) -> tuple[list[RecordChange], list[Put]]:
    """The changes of puts under conditions, and the put that each of them belongs to."""
    names = [name_of(put.namespace, put.key) for put in puts]
    changes: list[RecordChange] = []
    owners: list[Put] = []
    for put, name, before in zip(puts, names, await _living(store, names), strict=True):
        version = before.version if before is not None else ABSENT
        if put.if_version is not None and put.if_version != version:
            raise _lost(put)
        keeps_history = options.keeps_history or name in remembered
        number, updated = (version, before.updated) if before is not None else (0, 0.0)
        if before is None and put.content is not None and keeps_history:
            # An item that was deleted goes on from there: no two of its versions have the same number.
            number, updated = await last_version(store, name)
        now = _moment_after(updated)
        own = _changes(store.tools, options, put, now)
        record = own[0].record
        if record is not None and before is None:
            record = record._replace(version=number + 1)
        own[0] = own[0]._replace(record=record, if_version=version)
        if keeps_history and not (put.content is None and before is None):
            kept = options if options.keeps_history else EVERY_VERSION
            own += await past_changes(store, kept, put, number, now, before)
        changes += own
        owners += [put] * len(own)
    return changes, owners


async def _living(store: Context, names: Sequence[bytes]) -> list[Record | None]:
    """The records of items; one that has expired is not there, and is deleted where no sweep has come by."""
    held: list[Record | None] = []
    for record in await store.read_records(ITEM, names):
        if record is not None and record.expires is not None and has_expired(record, time.time()):
            gone = [RecordChange(ITEM, record.name, None, record.version), RecordChange(VECTOR, record.name, None)]
            if await store.backend.write_records(gone) is None:
                await note_ends(store, [Expired(record.name, record.expires)])
            record = None
        held.append(record)
    return held


def _moment_after(updated: float) -> float:
    """Now, and in any case after a version of that time, whatever the clock says.

    In whole microseconds: a time that was shown or typed finds the version that began then. Where the clock is behind,
    two writers do not take the same moment: by it a put is told from one of another writer with the same value.
    """
    now = time_now()
    return now if now > updated + 1e-6 else round(updated + random.randrange(2, 1000) / 1e6, 6)


async def delete_items(store: Context, options: ItemOptions, prefix: bytes, *, forget: bool) -> int:
    """Delete all items below a prefix; with `forget` their history too. Returns how many were there."""
    if forget or not (options.keeps_history or await has_past(store, prefix)):
        there = await store.backend.count_records(ITEM, prefix, time.time())
        dropped = await store.backend.drop_records(ITEM, prefix)
        for space in (VECTOR, PAST) if forget else (VECTOR,):
            await store.backend.drop_records(space, prefix)
        return min(there, dropped)
    count = 0
    while page := await store.scan_records(ITEM, Scan(prefix=prefix, limit=_PAGE)):
        count += sum(not has_expired(record, time.time()) for record in page)
        await put_items(store, options, [Put(*path_of(record.name), None) for record in page])
    return count


async def forget_item(store: Context, name: bytes) -> None:
    """Delete an item with its history and its embeddings: nothing of it stays."""
    await store.backend.write_records([RecordChange(ITEM, name, None), RecordChange(VECTOR, name, None)])
    await store.backend.drop_records(PAST, name)


async def sweep_items(store: Context, now: float) -> int:
    """Delete what has expired, with its embeddings; returns how many items went."""
    count = 0
    while expired := await store.backend.expire_records(ITEM, now, _PAGE):
        count += len(expired)
        names = [name for name, _ in expired]
        vectors = await store.read_records(VECTOR, names)
        items = await store.read_records(ITEM, names)
        for name, vector, item in zip(names, vectors, items, strict=True):
            if vector is not None and item is None:
                # A put since then gave the vector another version, and this deletion is refused.
                await store.backend.write_records([RecordChange(VECTOR, name, None, vector.version)])
        if await has_past(store, b""):
            await note_ends(store, expired)
    while await store.backend.expire_records(PAST, now, _PAGE):
        pass
    return count


def _changes(tools: Tools, options: ItemOptions, put: Put, now: float) -> list[RecordChange]:
    """The changes of a put without a condition: of the item first, then of its embeddings."""
    name = name_of(put.namespace, put.key)
    if put.content is None:
        # Embeddings go too where this store makes none: another one may have made them.
        return [RecordChange(ITEM, name, None), RecordChange(VECTOR, name, None)]
    return _changes_of(tools, options, name, put, now)


def record_of(
    tools: Tools, name: bytes, content: bytes, ttl: float | None, searchable: str | None, now: float
) -> Record:
    """The record of an item."""
    form, stored = wrapped(tools, ITEM, name, content)
    return Record(name, form, stored, searchable, now, now, now + ttl if ttl is not None else None, 0)


def _changes_of(tools: Tools, options: ItemOptions, name: bytes, put: Put, now: float) -> list[RecordChange]:
    """The changes of a put of a value under a record's name."""
    assert put.content is not None
    record = record_of(tools, name, put.content, put.ttl_seconds, put.searchable, now)
    changes = [RecordChange(ITEM, name, record)]
    if put.vectors is not None:
        # Embeddings that were made at another time than the item are of a former value.
        form, stored = wrapped(tools, VECTOR, name, put.vectors)
        changes.append(RecordChange(VECTOR, name, Record(name, form, stored, None, now, now, None, 0)))
    elif options.has_vectors:
        changes.append(RecordChange(VECTOR, name, None))
    return changes


# -- reading


async def get_items(store: Context, names: Sequence[bytes], *, refresh: bool) -> list[Found | None]:
    """The items of these names that have not expired; `refresh` begins their time to live anew."""
    found: list[Found | None] = []
    has_ttl = False
    for record in await store.read_records(ITEM, names):
        if record is None or has_expired(record, time.time()):
            found.append(None)
            continue
        item = read_item(store.tools, record)
        has_ttl = has_ttl or item.ttl is not None
        found.append(item)
    if refresh and has_ttl:
        await refresh_items(store, [item for item in found if item is not None])
    return found


async def search_items(
    store: Context,
    options: ItemOptions,
    prefix: bytes,
    filter: Mapping[str, Any] | None,
    *,
    after: tuple[float, bytes] | None = None,
    wanted_count: int = _PAGE,
) -> AsyncIterator[Found]:
    """The items below a prefix that match a filter: the last updated first, then by name.

    `after` continues behind the item that was updated then and has this name, whether it is still there or not.
    `wanted_count` is how many the caller will probably take.
    """
    wanted = check_item_filter(filter)
    hints = _hints(wanted, options.indexed)
    # Where the database checks the whole filter, nearly all that it finds is wanted. In memory each page sorts all.
    size = min(wanted_count, _PAGE) if len(hints) == len(wanted) and not store.tools.keeps_objects else _PAGE
    if store.tools.keeps_objects and wanted:
        size = _ALL
    now = time.time()
    place: dict[str, Any] = {"after": after[1], "after_time": after[0]} if after is not None else {}
    while True:
        scan = Scan(prefix=prefix, limit=size, equals=hints, now=now, newest_first=True, **place)
        page = await store.scan_records(ITEM, scan)
        for record in _promising(store.tools, page, wanted) if store.tools.keeps_objects and wanted else page:
            item = read_item(store.tools, record)
            if not wanted or item_matches(item.value, wanted):
                yield item
        if len(page) < size:
            return
        place, size = {"after": page[-1].name, "after_time": page[-1].updated}, _PAGE


def _exact(filter: Mapping[str, Any]) -> list[Any]:
    """The values that a filter asks for as they are."""
    return [
        wanted["$eq"] if isinstance(wanted, Mapping) and set(wanted) == {"$eq"} else wanted
        for wanted in filter.values()
    ]


def _promising(tools: Tools, records: Sequence[Record], wanted: Mapping[str, Any]) -> Iterator[Record]:
    """Of records that are objects of this process, those that may match a filter.

    Most others show it soon: a text that is looked for occurs in the content as it is packed.
    """
    exact = _exact(wanted)
    needles = [packb(one) for one in exact if type(one) is str and one.isprintable()]
    simple = [(key, one) for key, one in zip(wanted, exact, strict=True) if not isinstance(one, (Mapping, list))]
    for record in records:
        content: Any = record.value[0]
        for needle in needles:
            if needle not in content:
                break
        else:
            value = unpack(tools.codec, content)[0]
            for key, one in simple:
                if key in value and value[key] != one:
                    break
            else:
                yield record


async def count_items(store: Context, options: ItemOptions, prefix: bytes, filter: Mapping[str, Any] | None) -> int:
    """How many items below a prefix match a filter."""
    if not filter:
        return await store.backend.count_records(ITEM, prefix, time.time())
    count = 0
    async for _ in search_items(store, options, prefix, filter):
        count += 1
    return count


async def list_groups(store: Context, prefix: bytes, depth: int) -> AsyncIterator[tuple[str, ...]]:
    """The namespaces below a prefix that hold an item, cut to a depth, in order."""
    now, after = time.time(), b""
    while page := await store.backend.record_prefixes(ITEM, prefix, depth, after, _PAGE, now):
        for group in page:
            yield split_name(group)
        after = page[-1]


async def refresh_items(store: Context, items: Sequence[Found]) -> None:
    """Begin the time to live of items anew, where a part of it has passed since it last began."""
    now = time.time()
    by_ttl: dict[float, list[bytes]] = {}
    for item in items:
        if item.ttl is not None and item.expires is not None:
            began = item.expires - item.ttl
            if now - began > item.ttl / _REFRESHES_PER_LIFE:
                by_ttl.setdefault(item.ttl, []).append(item.name)
    for ttl, names in by_ttl.items():
        await store.backend.touch_records(ITEM, names, now + ttl)


def read_vectors(tools: Tools, record: Record) -> bytes:
    """The embeddings of an item, as 32-bit floats side by side."""
    vectors = unwrapped(tools, VECTOR, record)
    if type(vectors) is not bytes:
        raise Corrupt(f"the embeddings of item {split_name(record.name)[-1]!r} are damaged")
    return vectors


def check_fields(fields: Any) -> tuple[str, ...]:
    """The fields of `index_fields`: keys of values, or paths into nested dicts such as `user.plan`."""
    named = tuple(fields) if not isinstance(fields, str) else (None,)
    for field in named:
        if not isinstance(field, str) or not _FIELD.fullmatch(field):
            raise InvalidRequest(
                f"index_fields is a list of keys such as user_id or user.plan (letters, digits, - _), not {fields!r}"
            )
    return tuple(dict.fromkeys(named))


async def index_items(store: Context, options: ItemOptions) -> None:
    """Make the indexes of a store's fields that are missing; searching works without them, slowly."""
    try:
        await store.backend.index_records(options.indexed)
    except InvalidRequest as error:
        log.warning("the indexes of index_fields cannot be made, and filters are slow: %s", printable(error))


async def index_embeddings(store: Context, dims: int) -> bool:
    """Whether the database finds near embeddings by itself; not where they are sealed."""
    if store.tools.envelope.ring is not None:
        return False
    try:
        return await store.backend.index_vectors(dims)
    except InvalidRequest as error:  # a store that is only read, perhaps
        log.warning("the database cannot index embeddings, and all are compared here: %s", printable(error))
        return False


def searchable_of(value: Mapping[str, Any], indexed: Sequence[str]) -> str:
    """The values of indexed fields, as JSON."""
    # The names of fields need no escape; see `check_fields`.
    return "{" + ",".join([f'"{field}":{_noted(value, field)}' for field in indexed]) + "}"


def searchables_of(values: Sequence[Mapping[str, Any]], indexed: Sequence[str]) -> list[str]:
    """The values of indexed fields of many items, each as JSON."""
    columns = [_column(values, field) for field in indexed]
    noted = columns[0] if len(columns) == 1 else map(",".join, zip(*columns, strict=True))
    return ["{" + one + "}" for one in noted]


def _column(values: Sequence[Mapping[str, Any]], field: str) -> list[str]:
    """A field of many values, as it is noted. Mostly these are short texts without quotes: one look tells."""
    if {dict}.issuperset(map(type, values)):
        found: Any = [value.get(field) for value in values]
        if {str}.issuperset(map(type, found)) and max(map(len, found)) <= LONGEST_INDEXED:
            text = "".join(found)
            if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
                return [f'"{field}":"{one}"' for one in found]
    return [f'"{field}":{_noted(value, field)}' for value in values]


def _noted(value: Mapping[str, Any], field: str) -> str:
    form = searchable_value(value[field] if field in value else look_up(value, field))
    return _quoted(form) if type(form) is str else _NOT_FOUND if form is None else repr(form)


def _hints(filter: Mapping[str, Any], indexed: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """The part of a filter that a database can look up by an index."""
    hints = []
    for key, exact in zip(filter, _exact(filter), strict=True):
        form = searchable_value(exact) if key in indexed else None
        if form is not None:
            hints.append((key, form))
    return tuple(hints)


def _lost(put: Put) -> Conflict:
    return Conflict(
        f"item {put.key!r} in {put.namespace} is not at version {put.if_version}: read it again and decide anew"
    )
