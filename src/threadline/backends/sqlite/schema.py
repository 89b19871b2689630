"""The tables of a SQLite database: checked when it is opened, created or migrated where the options allow it.

Two indexes are made when they are first needed, because each costs every put a page of the log: checkpoints by their
id, which a listing of all threads goes by, and by their parent, which a deletion asks for. Few rows are looked through
without one. Where an index cannot be made, the answers are the same, later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...base.drive import run_now
from ...errors import ThreadlineError
from ...ports.rules import FORMAT
from ..sql.rows import Database
from ..sql.setup import Migration, SqlSetup, migrations
from ..sql.statements import Statements, index_name
from .dialect import COLUMN_TYPES, json_at, plain_rows

if TYPE_CHECKING:
    from ..sql.rows import Transaction

__all__ = ["LateIndexes", "Opened", "RoomyDatabase", "SqliteSchema"]

# So many rows are looked through in a tenth of a millisecond.
_FEW_ROWS = 400


class Opened(NamedTuple):
    """A connection, and what runs work on it in a write transaction."""

    connection: sqlite3.Connection
    transact: Callable[[Callable[[sqlite3.Connection], Any]], Any]


class SqliteSchema(SqlSetup):
    """The schema of one store: which tables it needs, and whether they may be made. Nothing of it suspends."""

    def __init__(self, url: str, prefix: str, setup: str | bool, indexed: Sequence[str], *, read_only: bool) -> None:
        super().__init__(prefix, url, setup, read_only=read_only)
        self._indexed = indexed

    def allow_changes(self) -> None:
        """From now on tables may be made and migrated: the caller asked for it by `setup()`."""
        self._mode, self.may_write = "migrate", True

    async def create(self, wire: Opened) -> None:
        await super().create(wire)
        await self._look_around(wire)

    def _steps(self) -> list[Migration]:
        return migrations(self.prefix, COLUMN_TYPES)

    def _numbering(self, *, replaces: bool) -> str:
        verb, number = "REPLACE" if replaces else "IGNORE", f"CAST('{FORMAT}' AS BLOB)"
        return f"INSERT OR {verb} INTO {self.prefix}meta (name, value) VALUES ('format', {number})"

    async def _alone(self, wire: Opened, act: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        wire.transact(lambda _: run_now(act(wire)))

    async def _execute(self, wire: Opened, statements: Sequence[str]) -> None:
        for statement in statements:
            wire.connection.execute(statement)

    async def _written_format(self, wire: Opened) -> Any:
        named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        if not plain_rows(wire.connection, named, (self.prefix + "meta",)):
            return None
        # A NULL is a damaged record, not a missing one.
        rows = plain_rows(wire.connection, f"SELECT ifnull(value, '') FROM {self.prefix}meta WHERE name = 'format'")
        return rows[0][0] if rows else None

    async def _look_around(self, wire: Opened) -> None:
        missing = self._missing_indexes(wire.connection) if self.may_write else []
        if missing:
            await self._alone(wire, lambda wire: self._execute(wire, missing))

    def _missing_indexes(self, connection: sqlite3.Connection) -> list[str]:
        """What makes the metadata indexes that are missing; searching works without them, slowly."""
        named = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
        wanted = [(index_name(self.prefix, key), json_at("searchable", key)) for key in self._indexed]
        return [
            f"CREATE INDEX IF NOT EXISTS {name} ON {self.prefix}checkpoints ({at}, id)"
            for name, at in wanted
            if not plain_rows(connection, named, (name,))
        ]

    async def _has_threads(self, wire: Opened) -> bool:
        return bool(plain_rows(wire.connection, f"SELECT 1 FROM {self.prefix}threads LIMIT 1"))

    async def _holds_langgraphs(self, wire: Opened) -> bool:
        columns = {row[1] for row in plain_rows(wire.connection, "PRAGMA table_info(checkpoints)")}
        if not {"thread_id", "checkpoint_ns", "parent_checkpoint_id"} <= columns:
            return False
        return bool(plain_rows(wire.connection, "SELECT 1 FROM checkpoints LIMIT 1"))


class RoomyDatabase(Database, Protocol):
    """A database that knows of the room on its disk."""

    def has_room(self) -> bool:
        """Whether the disk has plenty of room, more than all that is stored takes."""


class LateIndexes:
    """Makes the indexes of one store."""

    def __init__(self, database: RoomyDatabase, sql: Statements) -> None:
        self._database = database
        self._sql = sql
        # Those that are there, and those that could not be made.
        self._settled: set[str] = set()

    async def by_age(self) -> None:
        """Checkpoints of all threads are about to be read in the order of their ids."""
        await self._need("checkpoints_by_age", "(id)", f"SELECT 1 FROM {self._sql.c}", ())

    async def by_parent(self, thread_id: str) -> None:
        """The children of checkpoints of a thread are about to be looked for."""
        rows = f"SELECT 1 {self._sql.joined} t.thread_id = ?"
        await self._need("checkpoints_by_parent", "(pool, thread, namespace, parent)", rows, (thread_id,))

    async def _need(self, name: str, columns: str, rows: str, values: tuple[str, ...]) -> None:
        """Have an index, unless there are few of the rows that would be looked through without it."""
        name = self._sql.prefix + name
        if name in self._settled or not self._sql.dialect.may_index:
            return
        if not await self._database.read_once(partial(_rows, f"{rows} LIMIT 1 OFFSET {_FEW_ROWS}", values)):
            return
        there = f"SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = '{name}'"
        if not await self._database.read_once(partial(_rows, there, ())):
            if not self._database.has_room():
                return  # what is left of the disk is for deletions
            made = f"CREATE INDEX IF NOT EXISTS {name} ON {self._sql.c} {columns}"
            with suppress(ThreadlineError):  # another process has the file
                await self._database.write(partial(_rows, made, ()))
        self._settled.add(name)


async def _rows(statement: str, values: tuple[str, ...], tx: Transaction) -> list[Any]:
    return await tx.rows(statement, values)
