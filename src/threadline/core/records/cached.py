"""Cached results of nodes, on the Records port: a value under a namespace and a key, for a time.

A cache may forget at any moment, so nothing here fails a caller: an entry that cannot be decoded is a miss. Keys are
made from arguments by the codec and BLAKE2b (`stable_key`), so they are the same in every process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ormsgpack import unpackb

from ...base.hashing import blake2b
from ...base.printable import printable
from ...codec.codec import Codec
from ...codec.limits import stack
from ...errors import ThreadlineError
from ...ports.records import Content, Record, RecordChange, RecordSpace, Scan, pack_name, split_name
from ..context import Context, Tools
from ..paging import record_pages
from .checks import check_key, check_namespace
from .contents import PLAIN_OBJECT, has_expired, place_of_record, unpack, unwrapped

__all__ = [
    "CACHE",
    "Entry",
    "EntryFigures",
    "FullKey",
    "clear_entries",
    "delete_entries",
    "entry_at",
    "entry_figures",
    "get_entries",
    "held_values",
    "known_entry",
    "stable_key",
    "sweep_entries",
    "value_of",
]

log = logging.getLogger("threadline.cache")
FullKey = tuple[tuple[str, ...], str]
CACHE = RecordSpace.CACHE
_PAGE = 500


class Entry(NamedTuple):
    """Where an entry is, as checked."""

    key: FullKey
    name: bytes
    # What the seal or checksum of its record is bound to.
    bound: bytes


def entry_at(namespace: Any, key: Any) -> Entry:
    """The place of an entry; InvalidRequest says what is wrong with its namespace or key."""
    named = check_namespace(namespace, may_be_empty=True), check_key(key)
    name = pack_name((*named[0], "", key))
    return Entry(named, name, place_of_record(CACHE, name))


# The same for a namespace and a key that can be hashed: nodes ask for the same entries again and again.
known_entry = lru_cache(4096)(entry_at)


def stable_key(codec: Codec, *args: Any, **named: Any) -> str:
    """A key for these arguments: equal for equal arguments, in every process and version of Python."""
    packed = codec.encode_natively([_in_order(codec, list(args)), _in_order(codec, named)], "arguments")
    return blake2b(packed, digest_size=16, person=b"cache").hexdigest()


def _in_order(codec: Codec, value: Any) -> Any:
    """A value whose dicts have their keys in order: equal dicts may have been filled in another one."""
    kind = type(value)
    if kind is dict:
        parts = [(key, _in_order(codec, part)) for key, part in value.items()]
        is_text = {str}.issuperset(map(type, value))
        return dict(sorted(parts, key=lambda part: part[0] if is_text else codec.encode_natively(part[0])))
    if kind is list or kind is tuple:
        return kind([_in_order(codec, part) for part in value])
    return value


async def get_entries(store: Context, entries: Sequence[Entry]) -> dict[FullKey, Any]:
    """The values of those entries that are there and have not expired."""
    records = await store.read_records(CACHE, [entry.name for entry in entries])
    return _values_of(store.tools, entries, records)


def _values_of(tools: Tools, entries: Sequence[Entry], records: Iterable[Record | None]) -> dict[FullKey, Any]:
    """The values of records that have not expired; what cannot be read counts as missing."""
    now = time.time()
    found: dict[FullKey, Any] = {}
    for (key, _, bound), record in zip(entries, records, strict=True):
        if record is None:
            continue
        try:
            if not has_expired(record, now):
                found[key] = unwrapped(tools, CACHE, record, bound)
        except (ThreadlineError, ValueError, TypeError) as error:
            _count_as_missing(key, error)
    return found


def held_values(codec: Codec, entries: Sequence[Entry], held: Callable[[bytes], Record | None]) -> dict[FullKey, Any]:
    """The values of entries that this process's memory holds: objects around their content."""
    found: dict[FullKey, Any] = {}
    for key, name, _ in entries:
        record: Any = held(name)
        if record is None or (record[6] is not None and record[6] <= time.time()):
            continue
        content = record[2][0]
        try:
            found[key] = unpackb(content) if not stack.is_little else codec.decode(content)
        except ValueError:  # with more than msgpack has by itself
            try:
                found[key] = codec.decode(content)
            except (ThreadlineError, ValueError, TypeError) as error:
                _count_as_missing(key, error)
    return found


def value_of(tools: Tools, entry: Entry, content: Content | None) -> dict[FullKey, Any]:
    """The value of one entry that is not sealed."""
    if content is None:
        return {}
    key, _, bound = entry
    form, stored, expires = content
    try:
        if expires is not None and expires <= time.time():
            return {}
        return {key: unpack(tools.codec, tools.envelope.unwrap_row(form, stored, bound))}
    except (ThreadlineError, ValueError, TypeError) as error:
        _count_as_missing(key, error)
        return {}


def _count_as_missing(key: FullKey, error: Exception) -> None:
    log.warning("the cached value of %r cannot be read and counts as missing: %s", key, printable(error))


async def delete_entries(store: Context, entries: Sequence[Entry]) -> None:
    """Forget these entries."""
    if entries:
        await store.backend.write_records([RecordChange(CACHE, entry.name, None) for entry in entries])


async def clear_entries(store: Context, namespaces: Sequence[Sequence[str]] | None) -> int:
    """Forget all entries of these namespaces, or of all; returns how many."""
    if namespaces is None:
        return await store.backend.drop_records(CACHE, b"")
    # Of the namespace itself and not of those below it: its own names lie behind the empty segment.
    return sum([await store.backend.drop_records(CACHE, pack_name((*one, ""))) for one in namespaces])


@dataclass(slots=True)
class EntryFigures:
    """How many entries there are, and what their values take."""

    entries: int = 0
    expired: int = 0
    stored_bytes: int = 0
    namespaces: dict[tuple[str, ...], int] = field(default_factory=dict)

    def most(self, limit: int = 10) -> list[tuple[tuple[str, ...], int]]:
        """The namespaces with the most entries."""
        return sorted(self.namespaces.items(), key=lambda one: (-one[1], one[0]))[:limit]


async def entry_figures(store: Context, namespace: Sequence[str] | None = None) -> EntryFigures:
    """Figures over the entries of one namespace, or of all; expired ones that were not swept are counted apart."""
    found, now = EntryFigures(), time.time()
    prefix = pack_name((*namespace, "")) if namespace is not None else b""
    async for page in record_pages(store, CACHE, Scan(prefix=prefix, limit=_PAGE)):
        for record in page:
            if record.expires is not None and record.expires <= now:
                found.expired += 1
                continue
            named = split_name(record.name)[:-2]
            found.entries += 1
            # In this process's memory a value is an object around its content.
            found.stored_bytes += len(record.value[0] if record.form == PLAIN_OBJECT else record.value)  # type: ignore[arg-type]
            found.namespaces[named] = found.namespaces.get(named, 0) + 1
    return found


async def sweep_entries(store: Context, now: float) -> int:
    """Delete what has expired; returns how many entries went."""
    count = 0
    while expired := await store.backend.expire_records(CACHE, now, _PAGE):
        count += len(expired)
    return count
