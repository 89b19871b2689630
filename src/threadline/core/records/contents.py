"""What the value of a record holds: encoded, compressed and sealed for its own place, and the way back.

An item is packed once, on the caller's thread: one call of ormsgpack checks the value, copies it and encodes it. What
that call cannot vouch for (subclasses, bytes, whole numbers beyond 64 bits) is looked through in Python, which says
which key is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ormsgpack

from ...codec.codec import OPTIONS, Codec
from ...codec.limits import stack
from ...errors import Corrupt, InvalidRequest, NotFound, NotSerializable, TooLarge
from ...ports.records import Record, RecordSpace, split_name
from ..context import Tools
from .checks import checked_value
from .shapes import Found, path_of

__all__ = [
    "PLAIN_OBJECT",
    "has_expired",
    "pack_item",
    "pack_items",
    "pack_result",
    "place_of_record",
    "read_item",
    "unpack",
    "unwrapped",
    "value_of",
    "wrapped",
]

# The form of a record whose value is an object, in a store that is this process's memory.
PLAIN_OBJECT = -1
# Records whose content is packed before the store is touched.
_PACKED = (RecordSpace.ITEM, RecordSpace.CACHE)
_SCALARS = frozenset((str, int, float, bool, type(None), bytes))
packb, unpackb = ormsgpack.packb, ormsgpack.unpackb


def pack_item(codec: Codec, value: Any, ttl: float | None) -> bytes:
    """The content of an item: a JSON-like dict and its time to live. InvalidRequest names the key that is neither."""
    if type(value) is dict:
        try:
            packed = packb([value, ttl], None, OPTIONS)
        except (TypeError, ValueError, RecursionError):
            pass  # not of JSON, or not of msgpack alone: the look in Python tells which
        else:
            if not _may_hold_bytes(packed):
                return packed
    plain = checked_value(value)
    try:
        return codec.encode_natively([plain, ttl])
    except NotSerializable as error:  # of kinds that JSON has, and nested too deeply perhaps
        raise InvalidRequest(f"the value cannot be stored: {error}") from None


def pack_items(codec: Codec, values: Sequence[Any]) -> list[bytes]:
    """The contents of items that live for ever."""
    if {dict}.issuperset(map(type, values)):
        try:
            packed = [packb([value, None], None, OPTIONS) for value in values]
        except (TypeError, ValueError, RecursionError):
            pass  # `pack_item` tells which
        else:
            # One look through all of them: mostly none has a byte that needs a closer one.
            if not _may_hold_bytes(b"".join(packed)):
                return packed
    return [pack_item(codec, value, None) for value in values]


def _may_hold_bytes(packed: bytes) -> bool:
    """Whether there are markers of bytes and of extensions, which msgpack has and JSON has not.

    They may as well be a part of a number or a text: then Python looks, too.
    """
    return (
        0xC4 in packed
        or 0xC5 in packed
        or 0xC6 in packed
        or 0xC7 in packed
        or 0xC8 in packed
        or 0xC9 in packed
        or 0xD4 in packed
        or 0xD5 in packed
        or 0xD6 in packed
        or 0xD7 in packed
        or 0xD8 in packed
    )


def pack_result(codec: Codec, value: Any) -> bytes:
    """The content of a cached result; NotSerializable where it has none."""
    if codec.foreign is None:
        try:
            packed = packb(value, None, OPTIONS)
        except (TypeError, ValueError, RecursionError):
            pass  # of more than msgpack has by itself
        else:
            if not (0xC4 in packed or 0xC5 in packed or 0xC6 in packed):  # bytearrays are packed as bytes
                return packed
    return codec.encode(value)


def unpack(codec: Codec, content: bytes) -> Any:
    """The value of some content; it is the caller's own."""
    if not stack.is_little:
        try:
            return unpackb(content)
        except ValueError:
            pass  # damaged, or with what JSON has and msgpack has not
    return codec.decode(content)


def place_of_record(space: RecordSpace, name: bytes) -> bytes:
    """What the seal or checksum of a record is bound to."""
    return packb(["record", int(space), name])


def wrapped(tools: Tools, space: RecordSpace, name: bytes, content: Any) -> tuple[int, Any]:
    """Form and value of a record that holds this content; that of an item or a result is packed already."""
    if space in _PACKED:
        if tools.keeps_objects:
            # With its times, once somebody has seen them.
            return PLAIN_OBJECT, [content, None, None]
        return tools.envelope.wrap_row(content, place_of_record(space, name))
    if tools.keeps_objects:
        return PLAIN_OBJECT, content
    return tools.envelope.wrap_row(tools.codec.encode_natively(content), place_of_record(space, name))


def unwrapped(tools: Tools, space: RecordSpace, record: Record, bound: bytes | None = None) -> Any:
    """The content of a record; Corrupt names it, and so does NotFound where the ring lacks its key.

    `bound` is what its seal or checksum is bound to, where that is known.
    """
    if record.form == PLAIN_OBJECT and tools.keeps_objects:
        held: Any = record.value
        return unpack(tools.codec, held[0]) if space in _PACKED else _copied(held)
    try:
        content = tools.envelope.unwrap_row(record.form, record.value, bound or place_of_record(space, record.name))
        return unpack(tools.codec, content)
    except (NotFound, TooLarge) as error:
        raise type(error)(f"record {split_name(record.name)}: {error}") from None
    except (Corrupt, ValueError, TypeError) as error:
        raise Corrupt(f"record {split_name(record.name)} is damaged ({error})") from None


def read_item(tools: Tools, record: Record, place: tuple[Any, ...] | None = None) -> Found:
    """The item of a record; Corrupt names it. `place` is where it is, as checked, where that is known."""
    value, ttl = value_of(tools, record, place[3] if place is not None else None)
    namespace, key = place[:2] if place is not None else path_of(record.name)
    return Found(
        namespace, key, value, record.created, record.updated, record.version, record.expires, ttl, record.name
    )


def value_of(tools: Tools, record: Record, bound: bytes | None = None) -> tuple[dict[str, Any], float | None]:
    """The value of an item's record and its time to live in seconds; Corrupt names it."""
    parts = unwrapped(tools, RecordSpace.ITEM, record, bound)
    if type(parts) is not list or len(parts) != 2 or type(parts[0]) is not dict:
        namespace, key = path_of(record.name)
        raise Corrupt(f"item {key!r} in {namespace}: its record is damaged")
    value, ttl = parts
    return value, ttl


def has_expired(record: Record, now: float) -> bool:
    """Whether a record has expired by then; Corrupt names one whose time is damaged."""
    try:
        return record.expires is not None and record.expires <= now
    except TypeError:  # SQLite keeps anything in any column
        raise Corrupt(f"record {split_name(record.name)} is damaged (the time at which it expires is none)") from None


def _copied(value: Any) -> Any:
    """A copy of a plain value: callers may change what they get."""
    kind = type(value)
    if kind is dict:
        return {key: part if type(part) in _SCALARS else _copied(part) for key, part in value.items()}
    if kind is list:
        return [part if type(part) in _SCALARS else _copied(part) for part in value]
    return value
