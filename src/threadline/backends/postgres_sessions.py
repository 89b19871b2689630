"""A connection of psycopg as both halves use it: batches of statements, each batch one round trip.

Text: PostgreSQL's `text` holds no NUL, but ids may. NUL is stored as U+0001 U+0001, and U+0001 as U+0001 U+0002:
every text comes back as it was, and the order by code point, which COLLATE "C" gives, stays what it was.
Values go and come in binary form, so that bytes are not turned into hexadecimal digits.
"""

from __future__ import annotations

import math
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8BinaryDumper

from .patience import is_unhurried
from .postgres_pipeline import answered, end_with_sync

__all__ = [
    "BlockingSession",
    "BytesArray",
    "LoopSession",
    "RealsArray",
    "Result",
    "Session",
    "Step",
    "TextsArray",
    "WholesArray",
    "is_between_batches",
]

# A statement and what it binds.
Step = tuple[str, Sequence[Any]]
# So many statements may be on their way at once; more would only pile up in memory.
_MOST_STEPS = 256


class Result(NamedTuple):
    """What came of a statement."""

    changed: int
    rows: list[Any]


class Session(Protocol):
    """One connection, for the time that somebody works on it."""

    connection: Any
    # The pool it goes back to, and whether it goes back without autocommit.
    pool: Any
    is_restored: bool
    # How often the server had been lost when the connection was made.
    generation: int
    # For how many seconds a batch waits for its answer; None for as long as it takes.
    patience: float | None

    async def batch(self, steps: Sequence[Step]) -> list[Result]:
        """Run statements in order, in one round trip; the first that fails ends the batch, and is raised."""

    async def close(self) -> None:
        """Close the connection itself."""


class _Session:
    """What both kinds know of their connection."""

    def __init__(self, connection: Any, pool: Any = None, generation: int = 0, patience: float | None = None) -> None:
        self.connection = connection
        self.pool = pool
        self.is_restored = False
        self.generation = generation
        self.patience = patience

    def _deadline(self) -> float:
        if self.patience is None or is_unhurried.get():
            return math.inf
        return time.monotonic() + self.patience


class BlockingSession(_Session):
    """A `psycopg.Connection`; never suspends."""

    async def batch(self, steps: Sequence[Step]) -> list[Result]:
        connection, deadline = self.connection, self._deadline()
        cursors = [_Cursor(connection, deadline) for _ in steps]
        if len(steps) == 1:
            cursors[0].execute(steps[0][0], bound(steps[0][1]), binary=True)
        for start in range(0, len(steps) if len(steps) > 1 else 0, _MOST_STEPS):
            end_with_sync(connection, deadline)
            with connection.pipeline():
                for cursor, (statement, values) in zip(
                    cursors[start : start + _MOST_STEPS], steps[start : start + _MOST_STEPS], strict=True
                ):
                    cursor.execute(statement, bound(values), binary=True)
        return [Result(cursor.rowcount, _plain(cursor.fetchall()) if has_rows(cursor) else []) for cursor in cursors]

    async def close(self) -> None:
        self.connection.close()


class LoopSession(_Session):
    """A `psycopg.AsyncConnection`, on the loop it belongs to."""

    async def batch(self, steps: Sequence[Step]) -> list[Result]:
        connection, deadline = self.connection, self._deadline()
        cursors = [_AsyncCursor(connection, deadline) for _ in steps]
        if len(steps) == 1:
            await cursors[0].execute(steps[0][0], bound(steps[0][1]), binary=True)
        for start in range(0, len(steps) if len(steps) > 1 else 0, _MOST_STEPS):
            end_with_sync(connection, deadline)
            async with connection.pipeline():
                for cursor, (statement, values) in zip(
                    cursors[start : start + _MOST_STEPS], steps[start : start + _MOST_STEPS], strict=True
                ):
                    await cursor.execute(statement, bound(values), binary=True)
        return [
            Result(cursor.rowcount, _plain(await cursor.fetchall()) if has_rows(cursor) else []) for cursor in cursors
        ]

    async def close(self) -> None:
        await self.connection.close()


def has_rows(cursor: Any) -> bool:
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def is_idle(connection: Any) -> bool:
    """Whether the connection is in no transaction."""
    return bool(connection.pgconn.transaction_status == TransactionStatus.IDLE)


def is_between_batches(connection: Any) -> bool:
    """Whether the connection is in the middle of no batch, as far as the driver knows."""
    return connection._pipeline is None and connection.pgconn.pipeline_status == PipelineStatus.OFF


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


def escape(text: str) -> str:
    """Text without NUL, in the same order."""
    if "\0" not in text and "\1" not in text:
        return text
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def unescape(text: str) -> str:
    """What `escape` was given."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


def _plain(rows: list[Any]) -> list[Any]:
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


# Dimensions, whether there are NULLs, the type of the elements, how many, and where counting begins.
_ARRAY_HEAD = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_WHOLE = struct.Struct("!iq")
_REAL = struct.Struct("!id")
_NULL = _LENGTH.pack(-1)


class _ArrayDumper(Dumper, ABC):
    """An array of one dimension, in binary form."""

    format = Format.BINARY
    element = 0

    def dump(self, obj: Any) -> bytes:
        parts = [_NULL if one is None else self.one(one) for one in obj]
        return _ARRAY_HEAD.pack(1, None in obj, self.element, len(obj), 1) + b"".join(parts)

    @abstractmethod
    def one(self, value: Any) -> bytes:
        """An element with its length before it."""


class _BytesArrayDumper(_ArrayDumper):
    oid, element = 1001, 17

    def one(self, value: Any) -> bytes:
        return b"".join((_LENGTH.pack(len(value)), value))


class _TextsArrayDumper(_ArrayDumper):
    oid, element = 1009, 25

    def one(self, value: Any) -> bytes:
        encoded = escape(value).encode()
        return _LENGTH.pack(len(encoded)) + encoded


class _WholesArrayDumper(_ArrayDumper):
    oid, element = 1016, 20

    def one(self, value: Any) -> bytes:
        return _WHOLE.pack(8, value)


class _RealsArrayDumper(_ArrayDumper):
    oid, element = 1022, 701

    def one(self, value: Any) -> bytes:
        return _REAL.pack(8, value)


class _JsonText(Loader):
    """JSON as text: nobody here looks into it."""

    format = Format.BINARY

    def load(self, data: Any) -> str:
        return bytes(data)[1:].decode()


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("jsonb", _JsonText)
    # One type for all whole numbers: a statement is prepared for each combination of types.
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(BytesArray, _BytesArrayDumper)
    adapters.register_dumper(TextsArray, _TextsArrayDumper)
    adapters.register_dumper(WholesArray, _WholesArrayDumper)
    adapters.register_dumper(RealsArray, _RealsArrayDumper)
    return adapters


_ADAPTERS = _adapters()


class _OurCursor:
    """Our types and rows, whatever a given connection makes of its own, and an end of waiting."""

    def __init__(self, connection: Any, deadline: float) -> None:
        super().__init__(connection, row_factory=tuple_row)  # type: ignore[call-arg]
        self._deadline = deadline

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS

    def _execute_gen(self, *args: Any, **options: Any) -> Any:
        generator = super()._execute_gen(*args, **options)  # type: ignore[misc]
        return answered(generator, self._pgconn, self._deadline)  # type: ignore[attr-defined]


class _Cursor(_OurCursor, psycopg.Cursor[Any]):
    """A cursor of the sync half."""


class _AsyncCursor(_OurCursor, psycopg.AsyncCursor[Any]):
    """A cursor on a loop."""
