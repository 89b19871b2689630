"""One change as one statement, which writes all of it if the thread is still as expected, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .port import Change, WriteRow
from .postgres_schema import SERVER_BORN
from .rules import ACTIVITY_SECONDS
from .sql.statements import CHECKPOINT_COLUMNS, WRITE_COLUMNS, Statements

if TYPE_CHECKING:
    from .postgres_sessions import Step

__all__ = ["PutStatements"]

# Whether there are chunks, a checkpoint, writes that stay, writes that replace.
Shape = tuple[bool, bool, bool, bool]
_CHECKPOINT_TYPES = (
    "text", "text", "text", "bytea", "integer", "bytea", "integer", "bytea", "bigint", "text", "text", "float8", "jsonb",
)  # fmt: skip
_WRITE_TYPES = ("text", "text", "text", "bigint", "text", "text", "bytea", "bigint", "bytea")


class PutStatements:
    """The statements that only PostgreSQL has, made when first needed."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._made: dict[Shape, str] = {}
        self.server_born = f"SELECT {SERVER_BORN}"
        columns = ", ".join("w." + column.strip() for column in WRITE_COLUMNS.split(","))
        of_thread = (
            f"SELECT {columns} FROM {sql.t} t JOIN {sql.w} w ON w.pool = t.pool AND w.thread = t.serial "
            f"WHERE t.thread_id = %s AND w.namespace = %s AND w.checkpoint_id = "
        )
        # The writes of a checkpoint, and of a namespace's newest, by the thread's name.
        self.writes = of_thread + "%s"
        newest = f"SELECT max(c.id) FROM {sql.c} c WHERE c.pool = t.pool AND c.thread = t.serial"
        self.newest_writes = of_thread + f"({newest} AND c.namespace = w.namespace)"

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
            values += [pool, list(digests), list(links), list(forms), list(contents)]
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
            f"AND {SERVER_BORN} = %s)"
        ]
        if has_chunks:
            parts.append(
                f"chunked AS (INSERT INTO {sql.k} (pool, digest, links, form, data) SELECT %s::bigint, n.* FROM live, "
                f"unnest(%b::bytea[], %b::bytea[], %b::bigint[], %b::bytea[]) AS n ON CONFLICT DO NOTHING)"
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
        arrays = ", ".join(f"%b::{kind}[]" for kind in _WRITE_TYPES)
        key = "pool, thread, namespace, checkpoint_id, task_id, idx"
        conflict = _replacing(WRITE_COLUMNS, key) if replace else "ON CONFLICT DO NOTHING"
        return (
            f"INSERT INTO {self._sql.w} (pool, thread, {WRITE_COLUMNS}) SELECT %s::bigint, live.serial, n.* "
            f"FROM live, unnest({arrays}) AS n {conflict}"
        )


def _columns(writes: list[WriteRow]) -> list[Any]:
    return [list(column) for column in list(zip(*writes, strict=True))[:-1]]


def _replacing(columns: str, key: str) -> str:
    keys = key.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ") if name not in keys)
    return f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
