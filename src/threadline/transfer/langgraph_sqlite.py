"""The tables of langgraph-checkpoint-sqlite, opened for reading only.

What is read: `checkpoints` (one row each, the whole state in one blob) and `writes`. Databases from before
the column `task_path` are read as if it were empty, which is how LangGraph reads them. No transaction stays
open between calls, so a file that is also written to (by the import itself, perhaps) is not held up.

Items are in `store`, in the same file or in one of their own. Their values are JSON, their times UTC to the second.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from ..backends.sqlite.errors import translate
from ..connect import parse_url
from ..errors import InvalidRequest, NotFound
from .source import ITEM_COLUMNS, MOST_ITEMS, SourceCheckpoint, SourceItem, SourceKey, SourceTotals, SourceWrite

__all__ = ["SqliteSource"]

_CHECKPOINT_COLUMNS = frozenset(
    ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint", "metadata")
)
_WRITE_COLUMNS = frozenset(
    ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value")
)
_AT = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"


class SqliteSource:
    """One database of langgraph-checkpoint-sqlite."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        scheme, self.path = parse_url(url)
        if scheme != "sqlite" or self.path == ":memory:":
            raise InvalidRequest("import reads the SQLite files of langgraph-checkpoint-sqlite: sqlite:///old.db")
        if not os.path.isfile(self.path):
            raise NotFound(f"there is no database at {self.path}")
        with self._translated():
            self._connection = _open_read_only(self.path)
        try:
            with self._translated():
                self._check_tables()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def totals(self) -> SourceTotals:
        """How much there is to import."""
        return self._thread_totals()._replace(items=self._count("store"), embeddings=self._count("store_vectors"))

    def _thread_totals(self) -> SourceTotals:
        if not self._has_threads:
            return SourceTotals(0, 0, 0, 0)
        [(checkpoints, checkpoint_bytes)] = self._rows(
            "SELECT count(*), total(length(checkpoint) + coalesce(length(metadata), 0)) FROM checkpoints"
        )
        if not self._has_writes:
            return SourceTotals(checkpoints, 0, 0, int(checkpoint_bytes))
        [(writes, write_bytes)] = self._rows("SELECT count(*), total(length(value)) FROM writes")
        [(orphans,)] = self._rows(
            "SELECT count(*) FROM writes w WHERE NOT EXISTS (SELECT 1 FROM checkpoints c WHERE "
            "c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id)"
        )
        return SourceTotals(checkpoints, writes - orphans, orphans, int(checkpoint_bytes + write_bytes))

    def tags(self) -> set[str | None]:
        """Every serialization tag in use."""
        if not self._has_threads:
            return set()
        statement = "SELECT DISTINCT type FROM checkpoints"
        if self._has_writes:
            statement += " UNION SELECT DISTINCT type FROM writes"
        return {tag for (tag,) in self._rows(statement)}

    def threads(self) -> list[str]:
        """The ids of the threads, in order."""
        if not self._has_threads:
            return []
        return [row[0] for row in self._rows("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")]

    def keys(self, thread_id: str) -> list[SourceKey]:
        """The checkpoints of a thread in all namespaces, oldest first."""
        found = self._rows(
            "SELECT checkpoint_ns, checkpoint_id, coalesce(length(checkpoint), 0) FROM checkpoints "
            "WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns",
            (thread_id,),
        )
        return [SourceKey(*row) for row in found]

    def checkpoints(self, thread_id: str, keys: Sequence[SourceKey]) -> list[SourceCheckpoint]:
        """Some checkpoints with their writes, as they are at one moment; those deleted meanwhile are left out."""
        with self._translated():
            self._connection.execute("BEGIN")
            try:
                found = [self._checkpoint(thread_id, key) for key in keys]
            finally:
                self._connection.execute("ROLLBACK")
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def items(self, after: SourceItem | None) -> list[SourceItem]:
        """The next items in the order of their names."""
        if not self._has_items:
            return []
        where, place = ("WHERE (prefix, key) > (?, ?)", (after.prefix, after.key)) if after is not None else ("", ())
        found = self._rows(
            f"SELECT prefix, key, CAST(value AS BLOB), created_at, updated_at, {self._expiry} FROM store {where} "
            f"ORDER BY prefix, key LIMIT {MOST_ITEMS}",
            place,
        )
        return [
            SourceItem(
                *(prefix, key, _blob(value), _seconds(created), _seconds(updated)),
                *(None if expires is None else _seconds(expires), ttl_minutes),
            )
            for prefix, key, value, created, updated, expires, ttl_minutes in found
        ]

    def _count(self, table: str) -> int:
        """How many rows a table of the store has; 0 where it is not there."""
        if not self._has_items or not self._columns(table):
            return 0
        [(count,)] = self._rows(f"SELECT count(*) FROM {table}")
        return int(count)

    def _checkpoint(self, thread_id: str, key: SourceKey) -> SourceCheckpoint | None:
        at = (thread_id, key.namespace, key.id)
        statement = f"SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints WHERE {_AT}"
        row = self._connection.execute(statement, at).fetchone()
        if row is None:
            return None
        parent, tag, content, metadata = row
        writes: list[SourceWrite] = []
        if self._has_writes:
            statement = (
                f"SELECT task_id, {self._task_path}, idx, channel, type, value FROM writes WHERE {_AT} "
                "ORDER BY task_id, idx"
            )
            for task_id, task_path, idx, channel, write_tag, value in self._connection.execute(statement, at):
                writes.append(SourceWrite(task_id, task_path, idx, channel, write_tag, _blob(value)))
        return SourceCheckpoint(*at, parent or None, tag, _blob(content), _blob(metadata), writes)

    def _check_tables(self) -> None:
        columns, items = self._columns("checkpoints"), self._columns("store")
        self._has_items = items >= ITEM_COLUMNS
        self._expiry = "expires_at, ttl_minutes" if items >= {"expires_at", "ttl_minutes"} else "NULL, NULL"
        self._has_threads = bool(columns) or not self._has_items
        if self._has_threads and not columns >= _CHECKPOINT_COLUMNS:
            raise InvalidRequest(f"{self.path} {self._what_else(columns)}")
        writes = self._columns("writes")
        if writes and not writes >= _WRITE_COLUMNS:
            raise InvalidRequest(f"{self.path} has a table `writes` that is not langgraph-checkpoint-sqlite's")
        self._has_writes = bool(writes)
        self._task_path = "task_path" if "task_path" in writes else "''"

    def _what_else(self, columns: set[str]) -> str:
        """A database without LangGraph's tables, in words for the error."""
        if "thread_ts" in columns:
            return (
                "was written by a LangGraph from before langgraph-checkpoint-sqlite 1.0, whose tables held pickles: "
                "nothing can be imported from it"
            )
        if self._columns("threadline_threads"):
            return "is a Threadline store and holds no tables of LangGraph: there is nothing to import"
        return "holds no threads of langgraph-checkpoint-sqlite and no items: is it the right file?"

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._translated():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translate(error, self.path) from error


def _open_read_only(path: str) -> sqlite3.Connection:
    """A connection that cannot change the file."""
    address = f"file:{quote(os.path.abspath(path))}?mode=ro"
    connection = _connect(address)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        log = f"{path}-wal"
        if os.path.exists(log) and os.path.getsize(log):
            raise
        # A database in WAL mode on a read-only disk: nobody can be writing to it, SQLite needs to be told.
        connection = _connect(address + "&immutable=1")
    return connection


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=30.0)


def _blob(value: Any) -> bytes:
    """A column's bytes; SQLite gives text for what was stored as text."""
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else bytes(value)


def _seconds(moment: Any) -> float:
    """A time that SQLite wrote as text; not a number where it is none."""
    try:
        read = datetime.fromisoformat(moment)
        return (read if read.tzinfo is not None else read.replace(tzinfo=timezone.utc)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return math.nan
