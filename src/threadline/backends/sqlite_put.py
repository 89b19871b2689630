"""Many puts of the usual kind in a few statements: each row that is bound costs little, each statement much."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from .port import Applied, Change, Stale
from .rules import ACTIVITY_SECONDS, is_usual
from .sql.backend import SqlBackend
from .sql.reader import Database

if TYPE_CHECKING:
    import sqlite3

    from .sql.statements import Statements

__all__ = ["SqliteBackend", "put_together"]

# Statements are made for these many threads; the rest is filled up.
_SIZES = (1, 4, 16, 128)
# Statements are made for these many rows.
_ROWS = (32, 8, 4, 2, 1)


class PuttingDatabase(Database, Protocol):
    """A database that takes puts of the usual kind together."""

    async def put(self, change: Change) -> bool:
        """Whether the change was made; if not, its thread is not what the change was prepared for."""


class SqliteBackend(SqlBackend):
    """The common backend, with a shorter way for most puts."""

    database: PuttingDatabase

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        if len(changes) == 1:
            [change] = changes
            if change.stamp is not None and is_usual(change) and await self.database.put(change):
                return [Applied(change.stamp)]
        return await super().apply(changes)


def put_together(connection: sqlite3.Connection, sql: Statements, changes: Sequence[Change]) -> list[bool]:
    """Make changes of the usual kind, inside a write transaction; tells whose thread was as expected."""
    cursor = connection.cursor()
    cursor.row_factory = None
    threads = {row[0]: row for row in _threads(cursor, sql, [change.thread_id for change in changes])}
    chunks: list[Any] = []
    checkpoints: list[Any] = []
    adds: list[Any] = []
    replaces: list[Any] = []
    made: list[bool] = []
    for change in changes:
        thread = threads.get(change.thread_id)
        made.append(thread is not None and _is_expected(thread, change))
        if thread is None or not made[-1]:
            continue
        _, serial, pool, _, _, _, active = thread
        chunks += [(pool, *chunk) for chunk in change.chunks]
        checkpoints += [(pool, serial, *row) for row in change.checkpoints]
        for write in change.writes:
            (replaces if write.replaces else adds).append((pool, serial, *write[:-1]))
        if change.now - active > ACTIVITY_SECONDS:
            cursor.execute(sql.touch, (change.now, change.thread_id))
    for statement, rows in (
        (sql.add_chunk, sorted(chunks)),
        (sql.put_checkpoint, checkpoints),
        (sql.add_write, adds),
        (sql.replace_write, replaces),
    ):
        if rows:
            _insert(cursor, statement, rows)
    return made


def _insert(cursor: sqlite3.Cursor, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows by as few statements as can be.

    Python's driver lets other threads run while a statement does, and waits for them afterwards: a row a
    statement, as `executemany` does it, would stop and go on for every row.
    """
    if len(rows) == 1:
        cursor.execute(statement, rows[0])
        return
    start = 0
    while start < len(rows):
        size = next(size for size in _ROWS if size <= len(rows) - start)
        batch = rows[start : start + size]
        cursor.execute(_for_rows(statement, size), list(chain.from_iterable(batch)))
        start += size


@lru_cache(maxsize=64)
def _for_rows(statement: str, count: int) -> str:
    """An insert of one row, made for several."""
    head, _, marks = statement.rpartition(" VALUES ")
    return f"{head} VALUES {', '.join([marks] * count)}"


def _threads(cursor: sqlite3.Cursor, sql: Statements, thread_ids: list[str]) -> list[Any]:
    size = next(size for size in _SIZES if len(thread_ids) <= size)
    values = thread_ids + thread_ids[-1:] * (size - len(thread_ids))
    columns = "thread_id, serial, pool, epoch, status, deleted_before, active"
    marks = ", ".join("?" * size)
    return cursor.execute(f"SELECT {columns} FROM {sql.t} WHERE thread_id IN ({marks})", values).fetchall()


def _is_expected(thread: Sequence[Any], change: Change) -> bool:
    _, _, pool, epoch, status, deleted_before, _ = thread
    # A thread that was begun anew may refuse what descends from before: the general way looks closer.
    return (pool, epoch) == change.stamp and status not in ("deleted", "archived") and deleted_before is None
