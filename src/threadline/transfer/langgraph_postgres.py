"""The tables of langgraph-checkpoint-postgres, opened for reading only.

What is read: `checkpoints` (a JSON document each, with the values that JSON has), `checkpoint_blobs` (all other
values, one row for each version of a channel) and `checkpoint_writes`. Which of several schemas they are in is left
to the search_path, as LangGraph's saver leaves it.

What the tables of other versions lack is read as LangGraph reads it: without `task_path` it is empty, and the
tables of the shallow saver, which keep one checkpoint of a namespace, have its id in the document and blobs of
no version. Their parent is gone, but not its writes.

Every call is one transaction that reads one snapshot and has ended when the call returns; a call whose connection
breaks is made again on a new one.

Items are in `store`, beside the other tables or alone. Their values are JSON documents.

What is asked of the tables of langgraph-checkpoint-postgres, whichever of their columns there are.

In every statement rows are called c (checkpoints), b (blobs) and w (writes), and v is a channel of a checkpoint with
its version. Texts are ordered by code point, as LangGraph's ids are made to be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ..backends.postgres.errors import is_lost, translate
from ..backends.postgres.url import read_url
from ..connect import parse_url
from ..errors import InvalidRequest, ThreadlineError
from .source import (
    ITEM_COLUMNS,
    MOST_ITEMS,
    SourceBlob,
    SourceCheckpoint,
    SourceItem,
    SourceKey,
    SourceTotals,
    SourceWrite,
)

__all__ = ["PostgresSource", "PostgresStatements"]


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
            self._read(self._find_tables)
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
            items = _one(cursor, "SELECT count(*) FROM store")[0] if self._items else 0
            embeddings = _one(cursor, "SELECT count(*) FROM store_vectors")[0] if self._has_embeddings else 0
            if not self._has_threads:
                return SourceTotals(0, 0, 0, 0, items, embeddings)
            checkpoints, checkpoint_bytes = _one(cursor, self._statements.checkpoint_totals)
            [blob_bytes] = _one(cursor, self._statements.blob_totals)
            writes, write_bytes = _one(cursor, self._statements.write_totals)
            [orphans] = _one(cursor, self._statements.orphans)
            size_bytes = checkpoint_bytes + blob_bytes + write_bytes
            return SourceTotals(checkpoints, writes - orphans, orphans, size_bytes, items, embeddings)

        return self._read(read)

    def tags(self) -> set[str | None]:
        """Every serialization tag in use; a write without any is a problem of its checkpoint."""
        return {tag for (tag,) in self._rows(self._statements.tags)} if self._has_threads else set()

    def threads(self) -> list[str]:
        """The ids of the threads, in order."""
        if not self._has_threads:
            return []
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

    def items(self, after: SourceItem | None) -> list[SourceItem]:
        """The next items in the order of the primary key."""
        if not self._items:
            return []
        if after is None:
            return [SourceItem(*row) for row in self._rows(self._items.format(where=""))]
        statement = self._items.format(where="WHERE (prefix, key) > (%s, %s)")
        return [SourceItem(*row) for row in self._rows(statement, (after.prefix, after.key))]

    def _find_tables(self, cursor: Any) -> None:
        """Prepare the statements for these tables; raises where they are not LangGraph's."""
        self._find_items(cursor)
        columns = {name: self._columns(cursor, name) for name in _COLUMNS}
        held = columns["checkpoints"]
        self._has_threads = any(columns.values()) or not self._items
        if not self._has_threads:
            return
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
                f"{self._where} holds no threads of langgraph-checkpoint-postgres and no items: is it the right "
                f"database? A schema that is not on the search_path is named in the URL: ?options=-csearch_path%3Dname"
            )
        self._statements = PostgresStatements(
            is_shallow="checkpoint_id" not in held,
            has_versions="version" in columns["checkpoint_blobs"],
            has_task_path="task_path" in columns["checkpoint_writes"],
        )

    def _find_items(self, cursor: Any) -> None:
        columns = self._columns(cursor, "store")
        is_theirs = columns.keys() >= ITEM_COLUMNS and columns["value"] == "jsonb"
        has_expiry = columns.keys() >= {"expires_at", "ttl_minutes"}
        self._items = _items_statement(has_expiry) if is_theirs else ""
        self._has_embeddings = is_theirs and bool(self._columns(cursor, "store_vectors"))

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
                f"{self._where} may not read LangGraph's tables: GRANT SELECT on {', '.join(_COLUMNS)}, on store "
                f"and store_vectors where they are there, and USAGE on their schema, to it"
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


def _items_statement(has_expiry: bool) -> str:
    """The next items, in the order of the index of the primary key."""
    times = ["created_at", "updated_at", "expires_at" if has_expiry else "NULL::timestamptz"]
    seconds = ", ".join([f"extract(epoch FROM {moment})::float8" for moment in times])
    return (
        f"SELECT prefix, key, convert_to(value::text, 'UTF8'), {seconds}, "
        f"{'ttl_minutes::float8' if has_expiry else 'NULL::float8'} "
        f"FROM store {{where}} ORDER BY prefix, key LIMIT {MOST_ITEMS}"
    )


def _blob(channel: str, tag: str | None, content: bytes | None) -> SourceBlob:
    return SourceBlob(channel, tag, content or b"")


def _write(task_id: str, task_path: str, idx: int, channel: str, tag: str | None, content: bytes | None) -> SourceWrite:
    return SourceWrite(task_id, task_path, idx, channel, tag, content or b"")


def _blobs_of(checkpoint: SourceCheckpoint) -> list[SourceBlob]:
    assert checkpoint.blobs is not None
    return checkpoint.blobs


# A damaged document is named when its checkpoint is read; it must not end the statement.
_VERSIONS = (
    "jsonb_each_text(CASE jsonb_typeof(c.checkpoint -> 'channel_versions') WHEN 'object' "
    "THEN c.checkpoint -> 'channel_versions' ELSE '{}' END) AS v(channel, version)"
)
_IN_PLACE = "w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns"


class PostgresStatements:
    """The statements for tables of one kind."""

    def __init__(self, *, is_shallow: bool, has_versions: bool, has_task_path: bool) -> None:
        self._id = "coalesce(c.checkpoint ->> 'id', '')" if is_shallow else "c.checkpoint_id"
        self._parent = "NULL" if is_shallow else "c.parent_checkpoint_id"
        self._task_path = "w.task_path" if has_task_path else "''"
        self._same_version = "AND b.version = v.version" if has_versions else ""
        self._of_checkpoint = f"{_IN_PLACE} AND w.checkpoint_id = {self._id}"
        self._chosen = (
            f"c.thread_id = %(thread)s AND (c.checkpoint_ns, {self._id}) IN "
            f"(SELECT * FROM unnest(%(namespaces)s::text[], %(ids)s::text[]))"
        )
        self._of_lost_parent = f"{_IN_PLACE} AND " + (
            f"w.checkpoint_id <> {self._id}"
            if is_shallow
            else "w.checkpoint_id = c.parent_checkpoint_id AND NOT EXISTS (SELECT 1 FROM checkpoints p "
            "WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns "
            "AND p.checkpoint_id = c.parent_checkpoint_id)"
        )

    # How many rows, and the bytes in them.
    checkpoint_totals = (
        "SELECT count(*), coalesce(sum(octet_length(c.checkpoint::text) + octet_length(c.metadata::text)), 0)::bigint "
        "FROM checkpoints c"
    )
    blob_totals = "SELECT coalesce(sum(octet_length(b.blob)), 0)::bigint FROM checkpoint_blobs b"
    write_totals = "SELECT count(*), coalesce(sum(octet_length(w.blob)), 0)::bigint FROM checkpoint_writes w"

    @property
    def orphans(self) -> str:
        """How many writes belong to no checkpoint."""
        return (
            "SELECT count(*) FROM checkpoint_writes w "
            f"WHERE NOT EXISTS (SELECT 1 FROM checkpoints c WHERE {self._of_checkpoint})"
        )

    # `empty` marks a channel that had no value: there are no bytes to read.
    tags = (
        "SELECT b.type FROM checkpoint_blobs b WHERE b.type <> 'empty' "
        "UNION SELECT w.type FROM checkpoint_writes w WHERE w.type IS NOT NULL"
    )
    threads = 'SELECT thread_id FROM (SELECT DISTINCT thread_id FROM checkpoints) t ORDER BY thread_id COLLATE "C"'

    @property
    def keys(self) -> str:
        """The checkpoints of a thread, oldest first, with the bytes of all that they have."""
        blob_bytes = (
            f"SELECT sum(octet_length(b.blob)) FROM {_VERSIONS} JOIN checkpoint_blobs b ON b.thread_id = c.thread_id "
            f"AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = v.channel {self._same_version}"
        )
        write_bytes = f"SELECT sum(octet_length(w.blob)) FROM checkpoint_writes w WHERE {self._of_checkpoint}"
        return (
            f"SELECT c.checkpoint_ns, {self._id}, (octet_length(c.checkpoint::text) + coalesce(({blob_bytes}), 0) "
            f"+ coalesce(({write_bytes}), 0))::bigint FROM checkpoints c WHERE c.thread_id = %s "
            f'ORDER BY {self._id} COLLATE "C", c.checkpoint_ns COLLATE "C"'
        )

    @property
    def checkpoints(self) -> str:
        """Chosen checkpoints without their blobs."""
        return (
            f"SELECT c.checkpoint_ns, {self._id}, {self._parent}, c.checkpoint::text, c.metadata::text "
            f"FROM checkpoints c WHERE {self._chosen}"
        )

    @property
    def blobs(self) -> str:
        """The blobs of chosen checkpoints: each once, with the ids of all that have it."""
        return (
            "SELECT v.checkpoint_ns, v.ids, b.channel, b.type, b.blob FROM "
            f"(SELECT c.checkpoint_ns, v.channel, v.version, array_agg({self._id}) AS ids FROM checkpoints c "
            f"CROSS JOIN LATERAL {_VERSIONS} WHERE {self._chosen} GROUP BY c.checkpoint_ns, v.channel, v.version) v "
            "JOIN checkpoint_blobs b ON b.thread_id = %(thread)s AND b.checkpoint_ns = v.checkpoint_ns "
            f"AND b.channel = v.channel {self._same_version} AND b.type <> 'empty'"
        )

    @property
    def writes(self) -> str:
        """The writes of chosen checkpoints."""
        return (
            f"SELECT c.checkpoint_ns, {self._id}, w.task_id, {self._task_path}, w.idx, w.channel, w.type, w.blob "
            f"FROM checkpoints c JOIN checkpoint_writes w ON {self._of_checkpoint} WHERE {self._chosen} "
            'ORDER BY w.task_id COLLATE "C", w.idx'
        )

    @property
    def sends(self) -> str:
        """Sends to chosen checkpoints of formats 1 to 3 whose parent, to which they are written, is not there."""
        return (
            f"SELECT c.checkpoint_ns, {self._id}, w.channel, w.type, w.blob FROM checkpoints c "
            f"JOIN checkpoint_writes w ON {self._of_lost_parent} AND w.channel = '__pregel_tasks' "
            f"WHERE {self._chosen} AND c.checkpoint -> 'v' < '4'::jsonb "
            f'ORDER BY {self._task_path} COLLATE "C", w.task_id COLLATE "C", w.idx'
        )
