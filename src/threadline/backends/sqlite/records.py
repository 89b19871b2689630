"""Named records on SQLite: one record is one query on a connection that reads, outside of any transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ...ports.records import Record, RecordSpace
from ..sql.reader import Database
from ..sql.records import SqlRecords, record_of_row

__all__ = ["AskingDatabase", "SqliteRecords"]

T = TypeVar("T")


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
