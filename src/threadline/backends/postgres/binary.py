"""Values as PostgreSQL takes and gives them, in binary form, so that bytes are not turned into hexadecimal digits.

Text: PostgreSQL's `text` holds no NUL, but ids may. NUL is stored as U+0001 U+0001, and U+0001 as U+0001 U+0002:
every text comes back as it was, and the order by code point, which COLLATE "C" gives, stays what it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

__all__ = [
    "ADAPTERS",
    "BytesArray",
    "RealsArray",
    "TextsArray",
    "WholesArray",
    "arrays",
    "bound",
    "escape",
    "plain",
    "unescape",
    "wired",
]


def bound(values: Sequence[Any]) -> list[Any]:
    """Values as they are sent."""
    return [
        (value if "\0" not in value and "\1" not in value else escape(value))
        if type(value) is str
        else [escape(one) for one in value]
        if type(value) is list and value and type(value[0]) is str
        else value
        for value in values
    ]


def wired(values: Sequence[Any]) -> list[Any]:
    """Values in binary form, as `ask` sends them."""
    sent: list[Any] = []
    for value in values:
        kind = type(value)
        if value is None or kind is bytes:
            sent.append(value)
        elif kind is str:
            sent.append(escape(value).encode() if "\0" in value or "\1" in value else value.encode())
        elif kind is int:
            sent.append(_INT8(value))
        elif kind is float:
            sent.append(_FLOAT8(value))
        else:
            sent.append(_array(value))
    return sent


def escape(text: str) -> str:
    """Text without NUL, in the same order."""
    if "\0" not in text and "\1" not in text:
        return text
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def unescape(text: str) -> str:
    """What `escape` was given."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


def plain(rows: list[Any]) -> list[Any]:
    """Rows as they were given; only the few with an escape in them are made anew."""
    for position, row in enumerate(rows):
        for value in row:
            if type(value) is str and "\1" in value:
                rows[position] = tuple(unescape(one) if type(one) is str else one for one in row)
                break
    return rows


class BytesArray(list[Any]):
    """A list that is sent as `bytea[]`; the driver's own way looks at every element three times."""


class TextsArray(list[Any]):
    """A list that is sent as `text[]`."""


class WholesArray(list[Any]):
    """A list that is sent as `bigint[]`."""


class RealsArray(list[Any]):
    """A list that is sent as `float8[]`."""


def arrays(types: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Any]:
    """The columns of rows, each as an array of its type."""
    return [_OF_TYPE[kind](column) for kind, column in zip(types, zip(*rows, strict=True), strict=True)]


_OF_TYPE: dict[str, type[list[Any]]] = {
    "text": TextsArray, "bigint": WholesArray, "bytea": BytesArray, "float8": RealsArray
}  # fmt: skip
# Dimensions, whether there are NULLs, the type of the elements, how many, and where counting begins.
_ARRAY_HEAD = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_WHOLE = struct.Struct("!iq")
_REAL = struct.Struct("!id")
_NULL = _LENGTH.pack(-1)
_BYTEA, _TEXT = 17, 25
_INT8 = struct.Struct("!q").pack
_FLOAT8 = struct.Struct("!d").pack


def _text(value: str) -> bytes:
    encoded = escape(value).encode()
    return _LENGTH.pack(len(encoded)) + encoded


# The type of an array, the type of its elements, and an element with its length before it.
_ARRAYS: dict[type, tuple[int, int, Callable[[Any], bytes]]] = {
    BytesArray: (1001, _BYTEA, lambda value: b"".join((_LENGTH.pack(len(value)), value))),
    TextsArray: (1009, _TEXT, _text),
    WholesArray: (1016, 20, lambda value: _WHOLE.pack(8, value)),
    RealsArray: (1022, 701, lambda value: _REAL.pack(8, value)),
}


def _encoded(texts: list[str]) -> list[bytes]:
    together = "".join(texts)
    is_plain = "\0" not in together and "\1" not in together
    return [text.encode() for text in texts] if is_plain else [escape(text).encode() for text in texts]


def _array(values: list[Any]) -> bytes:
    """An array of one dimension, in binary form."""
    _, element, one = _ARRAYS[type(values)]
    # Without a call for each: a change may have thousands.
    if element in (_BYTEA, _TEXT) and None not in values:
        sized = values if element == _BYTEA else _encoded(values)
        pairs = zip(map(_LENGTH.pack, map(len, sized)), sized, strict=True)
        return _ARRAY_HEAD.pack(1, 0, element, len(values), 1) + b"".join(chain.from_iterable(pairs))
    parts = [_NULL if value is None else one(value) for value in values]
    return _ARRAY_HEAD.pack(1, None in values, element, len(values), 1) + b"".join(parts)


class _ArrayDumper(Dumper):
    """An array of one dimension, in binary form."""

    format = Format.BINARY

    def __init__(self, cls: type, context: Any = None) -> None:
        super().__init__(cls, context)
        self.oid = _ARRAYS[cls][0]

    def dump(self, obj: Any) -> bytes:
        return _array(obj)


class _JsonText(Loader):
    """JSON as text: the core parses it."""

    format = Format.BINARY

    def load(self, data: Any) -> str:
        return bytes(data)[1:].decode()


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("jsonb", _JsonText)
    # One type for all whole numbers: a statement is prepared for each combination of types.
    adapters.register_dumper(int, Int8BinaryDumper)
    for kind in _ARRAYS:
        adapters.register_dumper(kind, _ArrayDumper)
    return adapters


ADAPTERS = _adapters()
