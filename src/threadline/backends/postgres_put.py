"""One change as one statement, which writes all of it if the thread is still as expected, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .port import Change, WriteRow
from .postgres_schema import SERVER_BORN
from .postgres_sessions import BytesArray, WholesArray
from .rules import ACTIVITY_SECONDS
from .sql.statements import CHECKPOINT_COLUMNS, WRITE_COLUMNS, Statements

if TYPE_CHECKING:
    from .postgres_sessions import Step

__all__ = ["PutStatements", "split_writes"]

# Whether there are chunks, a checkpoint, writes that stay, writes that replace.
Shape = tuple[bool, bool, bool, bool]
_CHECKPOINT_TYPES = (
    "text", "text", "text", "bytea", "integer", "bytea", "integer", "bytea", "bigint", "text", "text", "float8",
    "jsonb",
)  # fmt: skip
# Where a write's columns stand in the row of a checkpoint; the rest is empty.
_WRITE_IN_FOUND = (
    ("task_id", "text"), ("", "bigint"), ("", "bigint"), ("namespace", "text"), ("checkpoint_id", "text"),
    ("task_path", "text"), ("links", "bytea"), ("form", "integer"), ("data", "bytea"), ("", "integer"), ("", "bytea"),
    ("idx", "bigint"), ("channel", "text"), ("", "text"), ("", "float8"), ("", "jsonb"), ("", "bigint"),
)  # fmt: skip
_WRITE_TYPES = ("text", "text", "text", "bigint", "text", "text", "bytea", "bigint", "bytea")


_ARRAYS: dict[str, type[list[Any]]] = {"text": list, "bigint": WholesArray, "bytea": BytesArray}


class PutStatements:
    """The statements that only PostgreSQL has, made when first needed."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._made: dict[Shape, str] = {}
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

    def serves(self, change: Change) -> bool:
        """Whether a change is of the usual kind: one that goes to a thread which is known to exist."""
        is_plain = change.head is None and change.lease is None and change.joins is None
        return is_plain and change.stamp is not None and change.stamp[1] >= 0 and len(change.checkpoints) <= 1

    def step(self, change: Change, server_born: float) -> Step:
        """The statement of a change and its values; it gives a row if the change was made."""
        assert change.stamp is not None
        pool, epoch = change.stamp
        values: list[Any] = [change.thread_id, pool, epoch, server_born]
        adds = [write for write in change.writes if not write.replaces]
        # Of two at one index the later counts; one statement cannot replace a row twice.
        replaces = list({write[:4]: write for write in change.writes if write.replaces}.values())
        if change.chunks:
            digests, links, forms, contents = zip(*sorted(change.chunks), strict=True)
            values += [pool, BytesArray(digests), BytesArray(links), WholesArray(forms), BytesArray(contents)]
        if change.checkpoints:
            values += [pool, *change.checkpoints[0]]
        for writes in (adds, replaces):
            if writes:
                values += [pool, *_columns(writes)]
        values += [change.now, change.now - ACTIVITY_SECONDS]
        shape = (bool(change.chunks), bool(change.checkpoints), bool(adds), bool(replaces))
        statement = self._made.get(shape)
        if statement is None:
            statement = self._made[shape] = self._make(shape)
        return statement, values

    def _make(self, shape: Shape) -> str:
        has_chunks, has_checkpoint, adds, replaces = shape
        sql = self._sql
        parts = [
            f"live AS MATERIALIZED (SELECT serial, active FROM {sql.t} WHERE thread_id = %s AND pool = %s "
            f"AND epoch = %s AND status NOT IN ('deleted', 'archived') AND deleted_before IS NULL "
            # Rows are looked at after the lock was granted only where every statement sees what is new.
            f"AND {SERVER_BORN} = %s AND current_setting('transaction_isolation') = 'read committed')"
        ]
        if has_chunks:
            parts.append(
                f"chunked AS (INSERT INTO {sql.k} (pool, digest, links, form, data) SELECT %s::bigint, n.* FROM live, "
                f"unnest(%s::bytea[], %s::bytea[], %s::bigint[], %s::bytea[]) AS n ON CONFLICT DO NOTHING)"
            )
        if has_checkpoint:
            parts.append(f"put AS ({self._checkpoint()})")
        if adds:
            parts.append(f"added AS ({self._writes(replace=False)})")
        if replaces:
            parts.append(f"replaced AS ({self._writes(replace=True)})")
        parts.append(
            f"touched AS (UPDATE {sql.t} t SET active = %s FROM live WHERE t.serial = live.serial AND live.active < %s)"
        )
        return f"WITH {', '.join(parts)} SELECT serial FROM live"

    def _checkpoint(self) -> str:
        marks = ", ".join(f"%s::{kind}" for kind in _CHECKPOINT_TYPES)
        columns = f"pool, thread, {CHECKPOINT_COLUMNS}"
        conflict = _replacing(CHECKPOINT_COLUMNS, "pool, thread, namespace, id")
        return f"INSERT INTO {self._sql.c} ({columns}) SELECT %s::bigint, live.serial, {marks} FROM live {conflict}"

    def _writes(self, *, replace: bool) -> str:
        arrays = ", ".join(f"%s::{kind}[]" for kind in _WRITE_TYPES)
        key = "pool, thread, namespace, checkpoint_id, task_id, idx"
        conflict = _replacing(WRITE_COLUMNS, key) if replace else "ON CONFLICT DO NOTHING"
        return (
            f"INSERT INTO {self._sql.w} (pool, thread, {WRITE_COLUMNS}) SELECT %s::bigint, live.serial, n.* "
            f"FROM live, unnest({arrays}) AS n {conflict}"
        )


def split_writes(rows: list[Any]) -> tuple[Any, list[Any]]:
    """A checkpoint's row, and its writes, from what a query `…_with_writes` found."""
    [found] = [row for row in rows if row[1] is not None]
    # In the order of WRITE_COLUMNS.
    writes = [
        (row[3], row[4], row[0], row[11], row[5], row[12], row[6], row[7], row[8]) for row in rows if row[1] is None
    ]
    return found, writes


def _columns(writes: list[WriteRow]) -> list[Any]:
    columns = list(zip(*writes, strict=True))[:-1]
    return [_ARRAYS[kind](column) for kind, column in zip(_WRITE_TYPES, columns, strict=True)]


def _replacing(columns: str, key: str) -> str:
    keys = key.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ") if name not in keys)
    return f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
