"""Named records on SQLite: one record is one query, and a batch of puts is one statement or a few.

A query for one record runs outside of any transaction, on a connection that reads. Statements of many rows bind what
the rows have in common once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol, TypeVar

from ...ports.records import Content, PlainPuts, Record, RecordChange, RecordSpace
from ..sql.records import PlainWrites, SqlRecords, record_of_row, standard_upsert
from ..sql.rows import Database, Transaction
from .connections import SqliteConnections
from .dialect import plain_cursor

__all__ = ["AskingDatabase", "SqliteRecords"]

T = TypeVar("T")
_new: Any = tuple.__new__
# Statements exist for these numbers of rows, so that a few of them take any number. Batches come in round numbers.
_ROWS = (100, 64, 32, 16, 8, 4, 2, 1)


class AskingDatabase(Database, Protocol):
    """A database that answers one query by the shortest way."""

    # Whether its connection is somebody else's.
    is_given: bool

    async def ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of one query."""


class SqliteRecords(SqlRecords):
    """Named records in one table of SQLite."""

    database: AskingDatabase

    async def read_records(self, space: RecordSpace, names: Sequence[bytes]) -> list[Record | None]:
        if len(names) != 1:
            return await super().read_records(space, names)
        statement, values = self._sql.one, (int(space), names[0])

        def query(connection: sqlite3.Connection) -> Any:
            return plain_cursor(connection).execute(statement, values).fetchone()

        row = await self.database.ask(query)
        return [record_of_row(row) if row is not None else None]

    def _plain_writes(self, changes: Sequence[RecordChange]) -> PlainWrites:
        if type(changes) is PlainPuts and changes.are_alike:
            return _PutsAlike(self._sql, changes)
        return super()._plain_writes(changes)

    def record_reader(self, connections: SqliteConnections, space: RecordSpace) -> Callable[[bytes], Record | None]:
        """Reads the record of a name on the calling thread: the query alone, without a coroutine around it."""
        row_now = _row_reader(connections, self._sql.one, space)

        def record_now(name: bytes) -> Record | None:
            row = row_now(name)
            # As the class of these tuples makes them, in a third of the time: SQLite gives bytes for what are bytes.
            return _new(Record, row) if row is not None else None

        return record_now

    def content_reader(self, connections: SqliteConnections, space: RecordSpace) -> Callable[[bytes], Content | None]:
        """A function that reads only the content of a record, on the calling thread."""
        return _row_reader(connections, self._sql.content, space)


class _PutsAlike(PlainWrites):
    """Puts of one caller that share space, form, time and expiry. Joined with others they are as any."""

    __slots__ = ()

    async def __call__(self, tx: Transaction) -> None:
        [puts] = self._callers
        assert isinstance(puts, PlainPuts)
        shared = (int(puts.space), puts.forms[0], puts.now, puts.expires[0])
        is_searchable = puts.searchables.count(None) < len(puts)
        names, values, searchables = zip(*puts.rows(), strict=True)
        # Python's driver looks for an adapter of every bytes object, and of no bytearray: five times as fast.
        columns = (map(bytearray, names), map(bytearray, values), searchables)[: 3 if is_searchable else 2]
        flat, width, start = [*chain.from_iterable(zip(*columns, strict=True))], len(columns), 0
        for size in _ROWS:
            while len(flat) - start >= size * width:
                end = start + size * width
                await tx.run(_upsert_alike(self._sql.table, size, width), (*shared, *flat[start:end]))
                start = end


@lru_cache(64)
def _upsert_alike(table: str, rows: int, width: int) -> str:
    """An upsert of so many records; it binds what they share, then path, value and perhaps searchable of each."""
    searchable = "?{}" if width == 3 else "NULL"
    mark = f"(?1, ?{{}}, ?2, ?{{}}, {searchable}, ?3, ?3, ?4, 1)"
    marks = ", ".join([mark.format(*range(at, at + width)) for at in range(5, 5 + width * rows, width)])
    return standard_upsert(table, marks)


def _row_reader(connections: SqliteConnections, statement: str, space: RecordSpace) -> Callable[[bytes], Any]:
    number, read = int(space), connections.read

    def row_now(name: bytes) -> Any:
        values = (number, name)

        def query(connection: sqlite3.Connection) -> Any:
            return plain_cursor(connection).execute(statement, values).fetchone()

        return read(query, in_transaction=False)

    return row_now
