"""Changes as one statement, which writes all of a change if its thread is still as expected, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .port import Change
from .postgres_schema import SERVER_BORN
from .postgres_sessions import BytesArray, RealsArray, TextsArray, WholesArray
from .rules import ACTIVITY_SECONDS
from .sql.reader import DOUBT_SHIFT
from .sql.statements import CHECKPOINT_COLUMNS, WRITE_COLUMNS, Statements

if TYPE_CHECKING:
    from .postgres_schema import PostgresTables
    from .postgres_sessions import Step

__all__ = ["PutStatements", "begin_group", "split_writes"]

# How the columns travel: as arrays, one element for each row.
_CHECKPOINT_TYPES = (
    "text", "text", "text", "bytea", "bigint", "bytea", "bigint", "bytea", "bigint", "text", "text", "float8", "text",
)  # fmt: skip
# Where a write's columns stand in the row of a checkpoint; the rest is empty.
_WRITE_IN_FOUND = (
    ("task_id", "text"), ("", "bigint"), ("", "bigint"), ("namespace", "text"), ("checkpoint_id", "text"),
    ("task_path", "text"), ("links", "bytea"), ("form", "integer"), ("data", "bytea"), ("", "integer"), ("", "bytea"),
    ("idx", "bigint"), ("channel", "text"), ("", "text"), ("", "float8"), ("", "jsonb"), ("", "bigint"),
)  # fmt: skip
_WRITE_TYPES = ("text", "text", "text", "bigint", "text", "text", "bytea", "bigint", "bytea")


_WITNESS_TYPES = ("text", "text", "float8")
_CHUNK_TYPES = ("bytea", "bytea", "bigint", "bytea")
_ARRAYS: dict[str, type[list[Any]]] = {
    "text": TextsArray, "bigint": WholesArray, "bytea": BytesArray, "float8": RealsArray
}  # fmt: skip
# Nobody waits for a lock together with others: whose pool is not to be had at once goes its own way. Which were had is
# said to the statement that follows; asking there again might find a lock that was granted after it looked at the rows.
_LOCKS = (
    "SELECT set_config('lock_timeout', %s, true), "
    "set_config('threadline.held', coalesce(string_agg(key::text, ','), ''), true) "
    "FROM unnest(%s::bigint[]) AS key WHERE pg_try_advisory_xact_lock_shared(key)"
)
_HELD = "string_to_array(nullif(current_setting('threadline.held'), ''), ',')::bigint[]"
_EPOCH_MASK = (1 << DOUBT_SHIFT) - 1
# Changes of more bytes than this in one statement would make the others wait.
_MOST_BYTES = 4 * 1024 * 1024


class PutStatements:
    """The statements that only PostgreSQL has, made when first needed."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._made: dict[int, str] = {}
        self.server_born = f"SELECT {SERVER_BORN}"
        # A checkpoint, and below it its writes, in one statement and so from one state of the database.
        written = ", ".join(f"w.{column}" if column else f"NULL::{kind}" for column, kind in _WRITE_IN_FOUND)
        below = (
            f"SELECT {written} FROM found f JOIN {sql.w} w ON w.pool = f.pool AND w.thread = f.thread "
            f"AND w.namespace = f.namespace AND w.checkpoint_id = f.id"
        )
        self.find_with_writes, self.newest_with_writes = (
            f"WITH found AS MATERIALIZED ({one}) SELECT * FROM found UNION ALL {below}"
            for one in (sql.find, sql.newest)
        )

    def steps(self, changes: Sequence[Change], tables: PostgresTables) -> list[Step]:
        """Changes of different pools: their locks, alone, and the statement; it gives the pools that were changed.

        What is looked at after a lock was granted is what holds now, so the locks have a statement of their own.
        """
        # Always in the same order: two statements that add the same rows wait for each other in one direction only.
        ordered = sorted(changes, key=_pool_of)
        chunks, checkpoints, adds, replaces = _rows_of(ordered)
        stamps = [change.stamp for change in ordered if change.stamp is not None]
        keys = WholesArray(tables.lock_key(pool) for pool, _ in stamps)
        values: list[Any] = [
            TextsArray(change.thread_id for change in ordered),
            WholesArray(pool for pool, _ in stamps),
            WholesArray(epoch & _EPOCH_MASK for _, epoch in stamps),
            RealsArray(change.now for change in ordered),
            keys,
            tables.server_born,
        ]
        witnesses = [(_pool_of(change), *witness) for change in ordered for witness in change.witnesses]
        shape = int(bool(witnesses))
        if witnesses:
            values += _columns(witnesses, _WITNESS_TYPES)
        for rows, types in (
            (chunks, _CHUNK_TYPES), (checkpoints, _CHECKPOINT_TYPES), (adds, _WRITE_TYPES), (replaces, _WRITE_TYPES)
        ):  # fmt: skip
            shape = shape << 1 | bool(rows)
            if rows:
                values += _columns(rows, types)
        if shape not in self._made:
            self._made[shape] = self._make(shape)
        return [(_LOCKS, [tables.lock_timeout, keys]), (self._made[shape], values)]

    def _make(self, shape: int) -> str:
        sql = self._sql
        parts = [
            f"live AS MATERIALIZED (SELECT t.pool, t.serial, t.active, n.now FROM "
            f"unnest(%s::text[], %s::bigint[], %s::bigint[], %s::float8[], %s::bigint[]) "
            f"AS n (thread_id, pool, epoch, now, key) "
            f"JOIN {sql.t} t ON t.thread_id = n.thread_id AND t.pool = n.pool AND t.epoch = n.epoch "
            f"WHERE n.key = ANY ({_HELD}) AND t.status NOT IN ('deleted', 'archived') AND t.deleted_before IS NULL "
            # Rows are looked at after the lock was granted only where every statement sees what is new.
            f"AND {SERVER_BORN} = %s AND current_setting('transaction_isolation') = 'read committed'"
            + (f" AND NOT EXISTS ({self._lost()}))" if shape & 16 else ")")
        ]
        if shape & 8:
            rows = _rows("digest, links, form, data", _CHUNK_TYPES)
            parts.append(
                f"chunked AS (INSERT INTO {sql.k} (pool, digest, links, form, data) SELECT n.* FROM {rows} "
                f"ORDER BY n.pool, n.digest ON CONFLICT DO NOTHING)"
            )
        if shape & 4:
            conflict = _replacing(CHECKPOINT_COLUMNS, "pool, thread, namespace, id")
            *plain, searchable = CHECKPOINT_COLUMNS.split(", ")
            columns = ", ".join([f"n.{column}" for column in plain] + [f"n.{searchable}::jsonb"])
            parts.append(
                f"put AS (INSERT INTO {sql.c} (pool, thread, {CHECKPOINT_COLUMNS}) "
                f"SELECT n.pool, live.serial, {columns} FROM {_rows(CHECKPOINT_COLUMNS, _CHECKPOINT_TYPES)} "
                f"ORDER BY n.pool {conflict})"
            )
        if shape & 2:
            parts.append(f"added AS ({self._writes('ON CONFLICT DO NOTHING')})")
        if shape & 1:
            key = "pool, thread, namespace, checkpoint_id, task_id, idx"
            parts.append(f"replaced AS ({self._writes(_replacing(WRITE_COLUMNS, key))})")
        parts.append(
            f"touched AS (UPDATE {sql.t} t SET active = live.now FROM live WHERE t.serial = live.serial "
            f"AND live.active < live.now - {ACTIVITY_SECONDS})"
        )
        return f"WITH {', '.join(parts)} SELECT pool FROM live"

    def _lost(self) -> str:
        """The rows by which the writer of a change knows of chunks, and which are not there."""
        arrays = ", ".join(f"%s::{kind}[]" for kind in ("bigint", *_WITNESS_TYPES))
        return (
            f"SELECT 1 FROM unnest({arrays}) AS w (pool, namespace, id, created) "
            f"WHERE w.pool = n.pool AND NOT EXISTS (SELECT 1 FROM {self._sql.c} c WHERE c.pool = w.pool "
            f"AND c.thread = t.serial AND c.namespace = w.namespace AND c.id = w.id AND c.created = w.created)"
        )

    def _writes(self, conflict: str) -> str:
        columns = ", ".join(f"n.{column}" for column in WRITE_COLUMNS.split(", "))
        return (
            f"INSERT INTO {self._sql.w} (pool, thread, {WRITE_COLUMNS}) SELECT n.pool, live.serial, {columns} "
            f"FROM {_rows(WRITE_COLUMNS, _WRITE_TYPES)} "
            f"ORDER BY n.pool, n.namespace, n.checkpoint_id, n.task_id, n.idx {conflict}"
        )


def begin_group() -> Callable[[Change], bool]:
    """A new group of changes; says of one after the other whether it goes along: another pool, and not too much."""
    pools: set[int] = set()
    size = 0

    def admits(change: Change) -> bool:
        nonlocal size
        size += _weight(change)
        if pools and (_pool_of(change) in pools or size > _MOST_BYTES):
            return False
        pools.add(_pool_of(change))
        return True

    return admits


def _pool_of(change: Change) -> int:
    assert change.stamp is not None
    return change.stamp[0]


def _weight(change: Change) -> int:
    size = sum([len(chunk.data) for chunk in change.chunks]) + sum([len(write.data) for write in change.writes])
    return size + sum([len(row.document) + len(row.metadata) for row in change.checkpoints])


def _rows_of(changes: Sequence[Change]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """The rows of changes, each after its pool: chunks, checkpoints, writes that stay, writes that replace."""
    chunks: list[Any] = []
    checkpoints: list[Any] = []
    adds: list[Any] = []
    replaces: list[Any] = []
    for change in changes:
        pool = _pool_of(change)
        chunks += [(pool, *chunk) for chunk in sorted(change.chunks)]
        # Of two under one key the later counts; one statement cannot replace a row twice.
        checkpoints += {row[:2]: (pool, *row) for row in change.checkpoints}.values()
        adds += [(pool, *write) for write in change.writes if not write.replaces]
        replaces += {write[:4]: (pool, *write) for write in change.writes if write.replaces}.values()
    return chunks, checkpoints, adds, replaces


def split_writes(rows: list[Any]) -> tuple[Any, list[Any]]:
    """A checkpoint's row, and its writes, from what a query `…_with_writes` found."""
    [found] = [row for row in rows if row[1] is not None]
    # In the order of WRITE_COLUMNS.
    writes = [
        (row[3], row[4], row[0], row[11], row[5], row[12], row[6], row[7], row[8]) for row in rows if row[1] is None
    ]
    return found, writes


def _columns(rows: Sequence[Sequence[Any]], types: Sequence[str]) -> list[Any]:
    """Rows that begin with their pool, as an array for each column."""
    columns = list(zip(*rows, strict=True))
    return [_ARRAYS[kind](column) for kind, column in zip(("bigint", *types), columns, strict=False)]


def _rows(columns: str, types: Sequence[str]) -> str:
    """Those arrays as rows again, of threads that are as expected."""
    arrays = ", ".join(f"%s::{kind}[]" for kind in ("bigint", *types))
    return f"unnest({arrays}) AS n (pool, {columns}) JOIN live ON live.pool = n.pool"


def _replacing(columns: str, key: str) -> str:
    keys = key.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ") if name not in keys)
    return f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
