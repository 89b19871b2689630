"""Named records on SQLite: one record is one query on a connection that reads, outside of any transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ...ports.records import Content, Record, RecordSpace
from ..sql.reader import Database
from ..sql.records import SqlRecords, record_of_row
from .connections import SqliteConnections

__all__ = ["AskingDatabase", "SqliteRecords"]

T = TypeVar("T")
_new: Any = tuple.__new__


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
            cursor = connection.cursor()
            # A given connection may have a row_factory of its own; the core reads tuples.
            cursor.row_factory = None
            return cursor.execute(statement, values).fetchone()

        row = await self.database.ask(query)
        return [record_of_row(row) if row is not None else None]

    def record_reader(self, connections: SqliteConnections, space: RecordSpace) -> Callable[[bytes], Record | None]:
        """Reads the record of a name on the calling thread: the query alone, without a coroutine around it."""
        row_now = _row_reader(connections, self._sql.one, space)

        def record_now(name: bytes) -> Record | None:
            row = row_now(name)
            # As the class of these tuples makes them, in a third of the time: SQLite gives bytes for what are bytes.
            return _new(Record, row) if row is not None else None

        return record_now

    def content_reader(self, connections: SqliteConnections, space: RecordSpace) -> Callable[[bytes], Content | None]:
        """The same for no more of a record than its content."""
        return _row_reader(connections, self._sql.content, space)


def _row_reader(connections: SqliteConnections, statement: str, space: RecordSpace) -> Callable[[bytes], Any]:
    number, read = int(space), connections.read

    def row_now(name: bytes) -> Any:
        values = (number, name)

        def query(connection: sqlite3.Connection) -> Any:
            cursor = connection.cursor()
            cursor.row_factory = None
            return cursor.execute(statement, values).fetchone()

        return read(query, in_transaction=False)

    return row_now
