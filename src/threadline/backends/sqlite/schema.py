"""The tables of a SQLite database: checked when it is opened, created or migrated where the options allow it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from ...base.printable import printable
from ...errors import InvalidRequest
from ...ports.rules import FORMAT, IMPORTABLE, check_format
from ..sql.setup import migrations
from ..sql.statements import index_name
from .dialect import COLUMN_TYPES, json_at, plain_rows

__all__ = ["SqliteSchema"]

log = logging.getLogger("threadline")


class SqliteSchema:
    """The schema of one store: which tables it needs, and whether they may be made."""

    def __init__(self, url: str, prefix: str, setup: str | bool, indexed: Sequence[str], *, read_only: bool) -> None:
        self._url = url
        self._prefix = prefix
        self._setup = setup
        self._read_only = read_only
        self._indexed = indexed
        self._migrations = migrations(prefix, COLUMN_TYPES)

    def ddl(self) -> str:
        """Everything that is executed on an empty database."""
        written = f"INSERT OR REPLACE INTO {self._prefix}meta (name, value) VALUES ('format', CAST('{FORMAT}' AS BLOB))"
        steps = [f"-- {step.number}: {step.reason}\n" + ";\n".join(step.statements) for step in self._migrations]
        return ";\n".join([*steps, written]) + ";\n"

    def allow_changes(self) -> None:
        """From now on `create` may make and migrate tables: the caller asked for it by `setup()`."""
        self._setup = "migrate"

    def must_create(self, connection: sqlite3.Connection) -> bool:
        """Whether something is missing that `create` makes; raises if it is needed and may not be made."""
        found = self._format(connection)
        may_create = self._setup is not False and not self._read_only
        if found is None and not may_create:
            theirs = f"; {IMPORTABLE.format(self._url)}" if self._holds_langgraphs(connection) else ""
            raise InvalidRequest(
                f"the database has no Threadline tables: call setup() once, or open it with setup='create'{theirs}"
            )
        if found is not None and found < FORMAT and self._setup != "migrate":
            raise InvalidRequest(
                f"the database has format {found}: open it once with setup='migrate' to bring it to {FORMAT}"
            )
        return found != FORMAT or (may_create and bool(self._missing_indexes(connection)))

    def create(self, connection: sqlite3.Connection) -> None:
        """Apply the missing migrations and make the missing indexes, inside one write transaction."""
        found = self._format(connection) or 0
        for step in self._migrations:
            if step.number > found:
                for statement in step.statements:
                    connection.execute(statement)
        connection.execute(
            f"INSERT OR REPLACE INTO {self._prefix}meta (name, value) VALUES ('format', ?)", (b"%d" % FORMAT,)
        )
        for name, key in self._missing_indexes(connection):
            at = json_at("searchable", key)
            connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {self._prefix}checkpoints ({at}, id)")

    def warn_of_langgraphs(self, connection: sqlite3.Connection) -> None:
        """Log that an empty store stands beside LangGraph's own tables: their threads must not seem lost."""
        if plain_rows(connection, f"SELECT 1 FROM {self._prefix}threads LIMIT 1"):
            return
        if self._holds_langgraphs(connection):
            log.warning(
                "%s holds threads of LangGraph's own saver, which Threadline does not read in place: "
                "bring them over with `threadline import %s`",
                printable(self._url.removeprefix("sqlite:///")),
                printable(self._url),
            )

    def _format(self, connection: sqlite3.Connection) -> int | None:
        named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        if not plain_rows(connection, named, (self._prefix + "meta",)):
            return None
        rows = plain_rows(connection, f"SELECT value FROM {self._prefix}meta WHERE name = 'format'")
        return check_format(rows[0][0], self._url) if rows else None

    def _missing_indexes(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        """Names and keys of the metadata indexes that are missing; searching works without them, slowly."""
        named = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
        wanted = [(index_name(self._prefix, key), key) for key in self._indexed]
        return [(name, key) for name, key in wanted if not plain_rows(connection, named, (name,))]

    def _holds_langgraphs(self, connection: sqlite3.Connection) -> bool:
        """Whether the database has threads of LangGraph's own saver."""
        columns = {row[1] for row in plain_rows(connection, "PRAGMA table_info(checkpoints)")}
        if not {"thread_id", "checkpoint_ns", "parent_checkpoint_id"} <= columns:
            return False
        return bool(plain_rows(connection, "SELECT 1 FROM checkpoints LIMIT 1"))
