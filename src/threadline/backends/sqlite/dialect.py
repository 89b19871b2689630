"""What is SQLite's own in the common SQL: column types, upserts, JSON, pools, and a transaction of the driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ...base.drive import run_now
from ..sql.records import record_marks, standard_upsert
from ..sql.rows import Transaction
from ..sql.statements import Dialect, Statements

__all__ = [
    "COLUMN_TYPES",
    "SqliteDialect",
    "SqliteStatements",
    "SqliteTransaction",
    "json_at",
    "page_counts",
    "plain_cursor",
    "plain_rows",
    "run_in",
]

T = TypeVar("T")

COLUMN_TYPES = {
    "path": "BLOB",
    "json": "TEXT",
    "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "text": "TEXT",
    "key": "TEXT",
    "blob": "BLOB",
    "whole": "INTEGER",
    "real": "REAL",
    "rowless": " WITHOUT ROWID",
}


class SqliteDialect(Dialect):
    """The common SQL is SQLite's own; only upserts and JSON differ."""

    # Each value that pads a statement is parsed and bound: a list of 69 packs, padded to 512, took a third of the time
    # of its query.
    padded_to: tuple[int, ...] = (1, 8, 16, 32, 64, 128, 256)
    rows_together = 10

    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        marks = ", ".join("?" * len(columns.split(",")))
        verb = "REPLACE" if replace else "IGNORE"
        return f"INSERT OR {verb} INTO {table} ({columns}) VALUES ({marks})"

    def upsert(self, table: str, rows: int = 1) -> str:
        return standard_upsert(table, record_marks("?", rows))

    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        if key in self.indexed:
            return f"{json_at(column, key)} = ?", [value]
        # A JSON path, quoted; the core passes only keys that need no escape.
        return f"json_extract({column}, ?) = ?", [f'$."{key}"', value]

    def json_may_equal(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        return f"{_noted_at(column, key)} IN (?, '')", [value]

    def record_index(self, table: str, name: str, key: str) -> tuple[str, str] | None:
        at = _noted_at("searchable", key)
        made = f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({at}, path) WHERE {self.space_of_items} = 1"
        return f"SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = '{name}'", made


class SqliteStatements(Statements):
    """The common statements, but for threads of a pool: the index has only those that joined it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        t = self.t
        # Who began a pool has its number for a serial.
        joined = f"SELECT serial FROM {t} JOIN one WHERE pool = id AND pool <> serial"
        inside = f"serial IN (SELECT id FROM one UNION ALL {joined}) AND pool = (SELECT id FROM one)"
        one = "WITH one (id) AS (VALUES (?))"
        self.pool_mates = f"{one} SELECT count(*) FROM {t} WHERE {inside} AND status <> 'deleted'"
        self.raise_epoch = f"{one} UPDATE {t} SET epoch = epoch + 1 WHERE {inside}"


class SqliteTransaction:
    """A connection inside a transaction; never suspends."""

    epoch_base = 0  # a file has no server that could lose commits, so it has one generation

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = plain_cursor(connection)

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._cursor.execute(statement, values).fetchall()

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._cursor.execute(statement, values).rowcount

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(statement, values)

    async def lock(self, pool: int) -> None:
        return None  # a writer holds the whole file


def run_in(connection: sqlite3.Connection, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
    """The result of work on a connection that is inside a transaction."""
    return run_now(work(SqliteTransaction(connection)))


def json_at(column: str, key: str) -> str:
    """The expression of a key that has an index: part of the statement, or SQLite would not use the index."""
    return f"json_extract({column}, '$.\"{key}\"')"


def _noted_at(column: str, key: str) -> str:
    """The value of a key, or the empty text: one look-up then finds the records that do not have the key as well."""
    return f"ifnull({json_at(column, key)}, '')"


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """A cursor that gives rows as tuples: a given connection may have a row_factory of its own."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def plain_rows(connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of a query as tuples."""
    return plain_cursor(connection).execute(statement, values).fetchall()


def page_counts(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """The pages of the database, how many of them are unused, and the bytes of a page."""
    pages, unused, page_bytes = (
        plain_rows(connection, f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
    )
    return pages, unused, page_bytes
