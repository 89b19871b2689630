"""The tables of a SQLite database: checked when it is opened, created or migrated where the options allow it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from ...base.drive import run_now
from ...ports.rules import FORMAT
from ..sql.setup import Migration, SqlSetup, migrations
from ..sql.statements import index_name
from .dialect import COLUMN_TYPES, json_at, plain_rows

__all__ = ["Opened", "SqliteSchema"]


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
