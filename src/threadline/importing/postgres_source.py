"""The tables of langgraph-checkpoint-postgres, opened for reading only.

What is read: `checkpoints` (a JSON document each, with the values that JSON has), `checkpoint_blobs` (all other
values, one row for each version of a channel) and `checkpoint_writes`. Which of several schemas they are in is left
to the search_path, as LangGraph's saver leaves it.

What the tables of other versions lack is read as LangGraph reads it: without `task_path` it is empty, and the
tables of the shallow saver, which keep one checkpoint of a namespace, have its id in the document and blobs of
no version. Their parent is gone, but not its writes.

Every call is one transaction that reads one snapshot and has ended when the call returns; a call whose connection
breaks is made again on a new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ..backends.postgres_engine import read_url
from ..backends.postgres_errors import is_lost, translate
from ..connecting import parse_url
from ..errors import InvalidRequest, ThreadlineError
from .postgres_statements import PostgresStatements
from .source import SourceBlob, SourceCheckpoint, SourceKey, SourceTotals, SourceWrite

__all__ = ["PostgresSource"]

T = TypeVar("T")
Place = tuple[str, str]
_CONNECT_SECONDS = 10
_COLUMNS = {
    "checkpoints": frozenset(("thread_id", "checkpoint_ns", "checkpoint", "metadata")),
    "checkpoint_blobs": frozenset(("thread_id", "checkpoint_ns", "channel", "type", "blob")),
    "checkpoint_writes": frozenset(
        ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "blob")
    ),
}


class PostgresSource:
    """One database of langgraph-checkpoint-postgres."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        scheme, address = parse_url(url)
        if scheme != "postgresql":
            raise InvalidRequest(
                "this import reads the tables of langgraph-checkpoint-postgres: postgresql://user@host/database"
            )
        self._conninfo, self._where, self.shown_url = read_url(address)
        self._connection: Any = None
        try:
            self._statements = self._read(self._find_tables)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def totals(self) -> SourceTotals:
        """How much there is to import."""

        def read(cursor: Any) -> SourceTotals:
            checkpoints, checkpoint_bytes = _one(cursor, self._statements.checkpoint_totals)
            [blob_bytes] = _one(cursor, self._statements.blob_totals)
            writes, write_bytes = _one(cursor, self._statements.write_totals)
            [orphans] = _one(cursor, self._statements.orphans)
            size_bytes = checkpoint_bytes + blob_bytes + write_bytes
            return SourceTotals(checkpoints, writes - orphans, orphans, size_bytes)

        return self._read(read)

    def tags(self) -> set[str | None]:
        """Every serialization tag in use; a write without any is a problem of its checkpoint."""
        return {tag for (tag,) in self._rows(self._statements.tags)}

    def threads(self) -> list[str]:
        """The ids of the threads, in order."""
        return [thread_id for (thread_id,) in self._rows(self._statements.threads)]

    def keys(self, thread_id: str) -> list[SourceKey]:
        """The checkpoints of a thread in all namespaces, oldest first."""
        return [SourceKey(*row) for row in self._rows(self._statements.keys, (thread_id,))]

    def checkpoints(self, thread_id: str, keys: Sequence[SourceKey]) -> list[SourceCheckpoint]:
        """Some checkpoints with their writes, as they are at one moment; those deleted meanwhile are left out."""
        statements = self._statements
        chosen = {
            "thread": thread_id,
            "namespaces": [key.namespace for key in keys],
            "ids": [key.id for key in keys],
        }

        def read(cursor: Any) -> list[SourceCheckpoint]:
            found: dict[Place, SourceCheckpoint] = {}
            for namespace, id, parent, content, metadata in _all(cursor, statements.checkpoints, chosen):
                found[namespace, id] = SourceCheckpoint(
                    thread_id, namespace, id, parent or None, None, content.encode(), (metadata or "").encode(), [], []
                )
            for namespace, ids, *blob in _all(cursor, statements.blobs, chosen):
                # The same object for every checkpoint that has it: most values outlive many steps.
                shared = _blob(*blob)
                for id in ids:
                    _blobs_of(found[namespace, id]).append(shared)
            for namespace, id, *write in _all(cursor, statements.writes, chosen):
                found[namespace, id].writes.append(_write(*write))
            for namespace, id, *blob in _all(cursor, statements.sends, chosen):
                one = found[namespace, id]
                found[namespace, id] = one._replace(sends=(*one.sends, _blob(*blob)))
            return [found[key.namespace, key.id] for key in keys if (key.namespace, key.id) in found]

        return self._read(read)

    def _find_tables(self, cursor: Any) -> PostgresStatements:
        """What to ask these tables; raises where they are not LangGraph's."""
        columns = {name: self._columns(cursor, name) for name in _COLUMNS}
        held = columns["checkpoints"]
        if "thread_ts" in held:
            raise InvalidRequest(
                f"{self._where} was written by a LangGraph from before langgraph-checkpoint-postgres 1.0: "
                f"nothing can be imported from it"
            )
        is_theirs = all(columns[name].keys() >= wanted for name, wanted in _COLUMNS.items())
        if not is_theirs or held["checkpoint"] != "jsonb":
            if self._columns(cursor, "threadline_threads") and not any(columns.values()):
                raise InvalidRequest(
                    f"{self._where} is a Threadline store and holds no tables of LangGraph: there is nothing to import"
                )
            raise InvalidRequest(
                f"{self._where} holds no threads of langgraph-checkpoint-postgres: is it the right database? "
                f"A schema that is not on the search_path is named in the URL: ?options=-csearch_path%3Dname"
            )
        return PostgresStatements(
            is_shallow="checkpoint_id" not in held,
            has_versions="version" in columns["checkpoint_blobs"],
            has_task_path="task_path" in columns["checkpoint_writes"],
        )

    def _columns(self, cursor: Any, table: str) -> dict[str, str]:
        statement = (
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        )
        return {str(name): str(kind) for name, kind in _all(cursor, statement, (table,))}

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._read(lambda cursor: _all(cursor, statement, values))

    def _read(self, act: Callable[[Any], T]) -> T:
        """Do this in one transaction; once more on a new connection where an old one broke."""
        is_new = False
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    is_new = True
                    self._connection = self._connect()
                with self._connection.transaction(), self._connection.cursor(binary=True) as cursor:
                    return act(cursor)
            except psycopg.Error as error:
                # 40001: a standby had to go on with what its primary sent.
                if is_new or not (is_lost(error) or error.sqlstate == "40001"):
                    raise self._translated(error) from error
                self.close()

    def _connect(self) -> Any:
        options: dict[str, Any] = {}
        if "connect_timeout" not in conninfo_to_dict(self._conninfo):
            options["connect_timeout"] = _CONNECT_SECONDS
        # Nothing is prepared: a pooler may serve every transaction by another connection.
        connection = psycopg.connect(
            self._conninfo, autocommit=True, prepare_threshold=None, client_encoding="utf8", **options
        )
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        return connection

    def _translated(self, error: psycopg.Error) -> ThreadlineError:
        if error.sqlstate == "42501":
            return InvalidRequest(
                f"{self._where} may not read LangGraph's tables: GRANT SELECT on {', '.join(_COLUMNS)}, and USAGE "
                f"on their schema, to it"
            )
        if error.sqlstate in ("42P01", "42703"):
            return InvalidRequest(f"the tables of LangGraph in {self._where} were dropped or changed meanwhile")
        return translate(error, self._where)


def _all(cursor: Any, statement: str, values: Any = ()) -> list[Any]:
    rows: list[Any] = cursor.execute(statement, values).fetchall()
    return rows


def _one(cursor: Any, statement: str) -> Any:
    [row] = _all(cursor, statement)
    return row


def _blob(channel: str, tag: str | None, content: bytes | None) -> SourceBlob:
    return SourceBlob(channel, tag, content or b"")


def _write(task_id: str, task_path: str, idx: int, channel: str, tag: str | None, content: bytes | None) -> SourceWrite:
    return SourceWrite(task_id, task_path, idx, channel, tag, content or b"")


def _blobs_of(checkpoint: SourceCheckpoint) -> list[SourceBlob]:
    assert checkpoint.blobs is not None
    return checkpoint.blobs
