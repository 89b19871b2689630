"""Embeddings for sqlite-vec, beside their records: an index that the database itself keeps true.

As on PostgreSQL (backends/postgres/vectors.py): a table for each number of dimensions, triggers that mark what was
added or replaced and remove what went, whoever writes, and a search that fills what is marked. The extension is loaded
into connections that read, where this Python's sqlite3 can load one; the triggers need none.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...base.printable import printable
from ...errors import ThreadlineError
from ...ports.records import Embedded, Nearest, RecordSpace
from ..sql.records import SqlRecords, bounds_of

if TYPE_CHECKING:
    from ..sql.rows import Transaction
    from .records import AskingDatabase

__all__ = ["SqliteVectors", "reason_without_extensions"]

log = logging.getLogger("threadline.store")
_VECTOR = int(RecordSpace.VECTOR)
_MOST_MARKS = 1000
# What was said already: most processes open many stores, and none of them can load an extension.
_said: set[str] = set()


def reason_without_extensions() -> str | None:
    """Why this Python cannot use sqlite-vec; None where it can."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        return "the sqlite3 of this Python was built without loading of extensions"
    if find_spec("sqlite_vec") is None:
        return "sqlite-vec is not installed (pip install sqlite-vec)"
    return None


class SqliteVectors(SqlRecords):
    """The part of the Records port that is about embeddings."""

    database: AskingDatabase

    async def index_vectors(self, dims: int) -> bool:
        why_not = reason_without_extensions()
        if why_not is None and self.database.is_given:
            why_not = "no extension is loaded into a connection that was given"
        if why_not is None:
            why_not = await self._made_ready(dims)
        if why_not is not None and why_not not in _said:
            _said.add(why_not)
            log.warning(
                "semantic search on SQLite goes without sqlite-vec, reads all embeddings of a namespace and compares "
                "them here: %s",
                printable(why_not),
            )
        return why_not is None

    async def _made_ready(self, dims: int) -> str | None:
        """Make the table of these embeddings where it is missing; tells why there is none."""
        sql, table = self._sql, self._table(dims)

        async def work(tx: Transaction) -> str | None:
            found = await tx.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
            if found:
                return None
            if not sql.dialect.may_index:
                return "its table of embeddings does not exist, and this store may not make it"
            for statement in _definitions(sql.table, table):
                await tx.run(statement)
            return None

        try:
            await self.database.ask(_version)
            return await self.database.write(work)
        except (ThreadlineError, sqlite3.Error) as error:
            return str(error)

    async def nearest_vectors(self, dims: int, prefix: bytes, query: bytes, limit: int) -> Nearest:
        table, (low, high) = self._table(dims), bounds_of(prefix)
        within = "path > ? AND path < ?"
        marked = f"SELECT path FROM {table} WHERE number = -1 AND {within} ORDER BY path LIMIT ?"
        # An embedding without length is as near to all as one at a right angle.
        nearest = (
            f"SELECT path, min(ifnull(vec_distance_cosine(embedding, ?), 1)) AS away FROM {table} "
            f"WHERE number >= 0 AND {within} GROUP BY path ORDER BY away, path LIMIT ?"
        )

        def ask(connection: sqlite3.Connection) -> Nearest:
            _version(connection)
            unfilled = connection.execute(marked, (low, high, _MOST_MARKS)).fetchall()
            found = connection.execute(nearest, (query, low, high, limit)).fetchall() if not unfilled else []
            return Nearest([path for (path,) in unfilled], [(path, float(away)) for path, away in found])

        return await self.database.ask(ask)

    async def fill_vectors(self, dims: int, embedded: Sequence[Embedded]) -> None:
        table, width = self._table(dims), 4 * dims

        async def work(tx: Transaction) -> None:
            for one in embedded:
                place = (one.name, one.made)
                # Only what is still marked for this very record: another may have filled it, or replaced the record.
                if await tx.run(f"DELETE FROM {table} WHERE path = ? AND made = ? AND number = -1", place):
                    rows = [
                        (one.name, number, one.made, one.vectors[start : start + width])
                        for number, start in enumerate(range(0, len(one.vectors), width))
                    ]
                    await tx.many(f"INSERT INTO {table} (path, number, made, embedding) VALUES (?, ?, ?, ?)", rows)

        await self.database.write(work)

    def _table(self, dims: int) -> str:
        return f"{self._sql.table.removesuffix('records')}vectors_{dims:d}"


def _version(connection: sqlite3.Connection) -> Any:
    """Load the extension into a connection that lacks it."""
    try:
        return connection.execute("SELECT vec_version()").fetchall()
    except sqlite3.OperationalError:
        connection.enable_load_extension(True)
        try:
            import_module("sqlite_vec").load(connection)
        finally:
            connection.enable_load_extension(False)
        return connection.execute("SELECT vec_version()").fetchall()


def _definitions(records: str, table: str) -> list[str]:
    """The table, the triggers that keep it true, and a mark for each embedding that is there."""
    mark = (
        f"BEGIN DELETE FROM {table} WHERE path = NEW.path; "
        f"INSERT INTO {table} (path, number, made) VALUES (NEW.path, -1, NEW.updated); END"
    )
    return [
        f"CREATE TABLE {table} (path BLOB NOT NULL, number INTEGER NOT NULL, made REAL NOT NULL, embedding BLOB, "
        f"PRIMARY KEY (path, number)) WITHOUT ROWID",
        f"CREATE INDEX {table}_marked ON {table} (path) WHERE number = -1",
        f"CREATE TRIGGER {table}_new AFTER INSERT ON {records} WHEN NEW.space = {_VECTOR} {mark}",
        f"CREATE TRIGGER {table}_put AFTER UPDATE ON {records} WHEN NEW.space = {_VECTOR} {mark}",
        f"CREATE TRIGGER {table}_gone AFTER DELETE ON {records} WHEN OLD.space = {_VECTOR} "
        f"BEGIN DELETE FROM {table} WHERE path = OLD.path; END",
        f"INSERT INTO {table} (path, number, made) SELECT path, -1, updated FROM {records} WHERE space = {_VECTOR}",
    ]
