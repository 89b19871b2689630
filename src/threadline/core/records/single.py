"""The straight line: an item that is got or put as most are, in a few steps from the face to the backend.

The answers are those of a batch of one operation. What is unusual (a condition, history, embeddings) takes the way of
batch.py instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from ormsgpack import unpackb

from ...codec.limits import stack
from ...ports.checkpoints import Backend
from ...ports.records import PlainPuts, Record, RecordChange, RecordSpace
from ..context import Context, Tools
from .batch import Item, make_item, moment_of
from .checks import check_key, check_namespace, ttl_seconds
from .contents import has_expired, pack_item, pack_items, place_of_record, read_item, unpack, value_of, wrapped
from .items import ITEM, refresh_items, searchable_of, searchables_of, time_now
from .shapes import ItemOptions, name_of

__all__ = [
    "Columns",
    "ItemPlace",
    "Make",
    "Packed",
    "get_item",
    "held_item",
    "item_place",
    "item_places",
    "native_item",
    "packed_put",
    "packed_puts",
    "put_packed",
    "read_now",
]

T = TypeVar("T")
_new: Any = tuple.__new__


class ItemPlace(NamedTuple):
    """Where an item is, as checked."""

    namespace: tuple[str, ...]
    key: str
    name: bytes
    # What the seal or checksum of its record is bound to.
    bound: bytes


# A put of a packed value: the name of its record, the content, its time to live in seconds, what is searchable, and
# what the record is bound to.
Packed = tuple[bytes, bytes, float | None, str | None, bytes]


class Columns(NamedTuple):
    """Such puts by columns, each item once: databases take many rows so."""

    names: Sequence[bytes]
    contents: Sequence[bytes]
    seconds: Sequence[float | None]
    searchables: Sequence[str | None]
    bounds: Sequence[bytes]

    def rows(self) -> Iterator[Packed]:
        """One put after the other."""
        return zip(*self, strict=True)


# Builds an item for a caller: of its place, its value, when it was created and updated, and its record.
Make = Callable[[ItemPlace, dict[str, Any], datetime, datetime, Record], T]


def item_place(namespace: Any, key: Any) -> ItemPlace:
    """The place of an item; InvalidRequest says what is wrong with its namespace or key."""
    try:
        return _checked(namespace, key)
    except TypeError:  # a list, or what is no name at all
        return _checked.__wrapped__(namespace, key)


def item_places(namespaces: Iterable[Any], keys: Iterable[Any]) -> list[ItemPlace]:
    """The places of many items."""
    try:
        return [*map(_checked, namespaces, keys)]
    except TypeError:
        return [*map(item_place, namespaces, keys)]


@lru_cache(4096)
def _checked(namespace: Any, key: Any) -> ItemPlace:
    """Agents read and put the same items again and again."""
    named = check_namespace(namespace)
    name = name_of(named, check_key(key))
    return ItemPlace(named, key, name, place_of_record(ITEM, name))


# -- reading


def native_item(place: ItemPlace, value: dict[str, Any], created: datetime, updated: datetime, record: Record) -> Item:
    """An item as callers of a Threadline store see it."""
    ends = record.expires
    expires = moment_of(ends) if ends is not None else None
    return make_item(place.namespace, place.key, value, created, updated, record.version, expires)


def held_item(tools: Tools, held: Any, place: ItemPlace, make: Make[T], otherwise: Any) -> T | None:
    """The item at a place, of records that this process's memory holds; `otherwise` for one that may expire."""
    record = held.get(place[2])
    if record is None:
        return None
    content, created, updated = stored = record[2]
    if record[6] is not None or stack.is_little:
        return otherwise  # type: ignore[no-any-return]
    if created is None:
        created = stored[1] = moment_of(record[4])
        updated = stored[2] = moment_of(record[5])
    try:
        value = unpackb(content)[0]
    except ValueError:  # with what JSON has and msgpack has not
        value = unpack(tools.codec, content)[0]
    return make(place, value, created, updated, record)


def read_now(tools: Tools, record: Record, place: ItemPlace, make: Make[T]) -> T:
    """The item of a record that was read, does not expire and is not sealed."""
    value, _ = value_of(tools, record, place[3])
    created = updated = moment_of(record[4])
    if record[5] != record[4]:
        updated = moment_of(record[5])
    return make(place, value, created, updated, record)


async def get_item(
    store: Context, place: ItemPlace, make: Make[T], *, refresh: bool, held: Record | None = None
) -> T | None:
    """An item that has not expired, of its record where that was read; `refresh` begins its time to live anew."""
    if held is not None:
        record: Record | None = held
        await store.learn_forms([held.form])
    else:
        [record] = await store.read_records(ITEM, (place.name,))
    if record is None or has_expired(record, time.time()):
        return None
    found = read_item(store.tools, record, place)
    if refresh and found.ttl is not None:
        await refresh_items(store, [found])
    return make(place, found.value, moment_of(record.created), moment_of(record.updated), record)


# -- putting


def packed_put(tools: Tools, options: ItemOptions, place: ItemPlace, value: Any, ttl: Any) -> Packed:
    """A put as it is handed on: its value is checked and copied."""
    seconds = ttl_seconds(ttl) if ttl is not None else None
    content = pack_item(tools.codec, value, seconds)
    searchable = searchable_of(value, options.indexed) if options.indexed else None
    return place[2], content, seconds, searchable, place[3]


def packed_puts(
    tools: Tools, options: ItemOptions, ops: Sequence[Any], kind: Any, places: Callable[[Any, Any], Sequence[ItemPlace]]
) -> Columns | None:
    """The puts of a batch of nothing but plain puts, each item once; None for any other batch.

    `kind` is the class of such puts, and `places` checks where items are, by their namespaces and their keys.
    """
    # By columns: what all of a batch have in common is found out once, and not for each of them.
    if not {kind}.issuperset(map(type, ops)):
        return None
    namespaces, keys, values, indexes, ttls, *conditions = zip(*ops, strict=True)
    if type(None) in {*map(type, values)} or not all(map(_is_unset, conditions)):
        return None
    if not _is_unset(indexes) and any(index is not None and index is not False for index in indexes):
        return None
    _, _, names, bounds = zip(*places(namespaces, keys), strict=True)
    if _is_unset(ttls):
        seconds: Sequence[float | None] = ttls
        contents = pack_items(tools.codec, values)
    else:
        seconds = [ttl_seconds(ttl) for ttl in ttls]
        contents = [pack_item(tools.codec, value, ttl) for value, ttl in zip(values, seconds, strict=True)]
    indexed = options.indexed
    searchables = searchables_of(values, indexed) if indexed else [None] * len(ops)
    packed = Columns(names, contents, seconds, searchables, bounds)
    if len({*names}) == len(names):
        return packed
    # Of several puts to one item the last one holds.
    return _columns_of({one[0]: one for one in packed.rows()}.values())


def _columns_of(puts: Iterable[Packed]) -> Columns:
    """Puts that are at hand one by one, as columns."""
    return Columns(*zip(*puts, strict=True))


def put_packed(
    tools: Tools, puts: Sequence[Packed] | Columns, space: RecordSpace = ITEM
) -> Callable[[Backend], Coroutine[Any, Any, None]]:
    """Makes puts, whatever is there, in one transaction."""

    async def put(backend: Backend) -> None:
        # Without a context: nothing is read, and every put of an item comes here.
        if not tools.is_open:
            await tools.open(backend)
        await backend.write_records(_changes(tools, puts, space))

    return put


def _changes(tools: Tools, puts: Sequence[Packed] | Columns, space: RecordSpace) -> Sequence[RecordChange]:
    now = time_now()
    if not isinstance(puts, Columns):
        if len(puts) == 1:
            [(name, content, seconds, searchable, bound)] = puts
            form, stored = (
                wrapped(tools, space, name, content) if tools.keeps_objects else tools.envelope.wrap_row(content, bound)
            )
            record = _new(Record, (name, form, stored, searchable, now, now, _end(now, seconds), 0))
            # As the class of these tuples makes them, in a third of the time.
            return (_new(RecordChange, (space, name, record, None)),)
        puts = _columns_of(puts)
    names, contents, lives, searchables, bounds = puts
    forms: Sequence[int]
    values: Sequence[bytes]
    if tools.keeps_objects:
        forms, values = zip(*map(partial(wrapped, tools, space), names, contents), strict=True)
    else:
        forms, values = tools.envelope.wrap_rows(contents, bounds)
    ends = lives if _is_unset(lives) else [_end(now, seconds) for seconds in lives]
    return PlainPuts(space, now, names, forms, values, searchables, ends)


def _is_unset(column: Sequence[Any]) -> bool:
    """Whether none of a batch has a value here."""
    return column.count(None) == len(column)


def _end(now: float, seconds: float | None) -> float | None:
    return now + seconds if seconds is not None else None
