"""A change as one statement, which writes all of the change if its thread is as expected, or nothing of it.

The statement locks the rows that it relies on. READ COMMITTED looks at the newest version of a row when it is locked,
however old the statement's snapshot is: an epoch that was raised, a thread that was deleted, a witness that is gone or
a lease that was lost meanwhile is seen, no row is left, and nothing is written. Rules:

- The thread's row is locked FOR KEY SHARE: puts do not exclude each other, nor what changes `active` or `asked`. A
  transaction that deletes chunks or checkpoints has locked it FOR UPDATE before.
- A thread or witness that is locked so at this moment is skipped, not waited for. The general way waits. A witness is
  locked because a deletion of checkpoints raises no epoch, and a channel may be read by way of its parent.
- The server runs the parts of WITH that nobody reads from the last to the first. They are written down in reverse, so
  that every put goes in one order: the thread's row, chunks, the checkpoint, its writes; each kind sorted by its key.
  Puts that meet therefore wait for each other in one direction only.
- Rows that are not locked are read from the snapshot. Which checkpoint is the newest cannot be asked by the statement
  that waits for its turn: for `head`, the thread is locked alone by a statement before it, in the same round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...ports.checkpoints import Change
from ...ports.rules import ACTIVITY_SECONDS, GENERATION_SHIFT, asked_at, lease_key, split_writes
from ..sql.statements import (
    CHECKPOINT_COLUMNS,
    CHECKPOINT_KEY,
    CHUNK_COLUMNS,
    CHUNK_KEY,
    THREAD_COLUMNS,
    WRITE_COLUMNS,
    WRITE_KEY,
    Statements,
)
from .binary import arrays
from .schema import SERVER_BORN
from .wire import Statement

__all__ = [
    "CHECKPOINT_TYPES", "CHUNK_TYPES", "Marks", "Put", "PutStatements", "WRITE_TYPES", "expected_thread", "given",
    "latest", "replacing", "split_found", "usual",
]  # fmt: skip

# JSON, the last column, is text until the statement casts it: its own binary form begins with a number of a version.
CHECKPOINT_TYPES = (
    "text", "text", "text", "bytea", "bigint", "bytea", "bigint", "bytea", "bigint", "text", "text", "float8", "text"
)  # fmt: skip
WRITE_TYPES = ("text", "text", "text", "bigint", "text", "text", "bytea", "bigint", "bytea")
CHUNK_TYPES = ("bytea", "bytea", "bigint", "bytea")
# Where a write's columns stand in the row of a checkpoint; the rest is empty.
_WRITE_IN_FOUND = (
    ("", "bigint"), ("", "bigint"), ("task_id", "text"), ("task_path", "text"), ("links", "bytea"), ("form", "integer"),
    ("data", "bytea"), ("", "integer"), ("", "bytea"), ("idx", "bigint"), ("channel", "text"), ("", "text"),
    ("", "float8"), ("", "jsonb"),
)  # fmt: skip
_EPOCH_MASK = (1 << GENERATION_SHIFT) - 1
# So many rows of a kind are parameters of their own, which is quicker; more are sent as arrays, whatever their number.
_MOST_SINGLE = 4
_MOST_WITNESSES = 3
# What a statement says of the thread beside the put.
_NOTHING, _TOUCHED, _SETTLED, _ASKED = range(4)


class _Shape(NamedTuple):
    """What a statement does; two changes of one shape differ in their values alone."""

    # Whether it begins the thread; else whether it names a stamp.
    begins: bool
    is_stamped: bool
    witnesses: int
    is_leased: bool
    is_headed: bool
    noting: int
    # How many rows; all above _MOST_SINGLE are alike.
    chunks: int
    moved: int
    checkpoints: int
    adds: int
    replaces: int


class Put(NamedTuple):
    """A change that is one statement, and its values in the order in which the statement numbers them."""

    change: Change
    shape: _Shape
    values: list[Any]

    @property
    def can_wait(self) -> bool:
        """Whether it may be made in one transaction with changes to other pools."""
        shape = self.shape
        return (shape.begins or shape.is_stamped) and not shape.is_headed

    @property
    def order(self) -> tuple[int, int, str]:
        """Where it stands in a group: transactions that meet wait for each other in one direction only."""
        stamp = self.change.stamp
        return (0, 0, self.change.thread_id) if stamp is None else (1, stamp[0], "")

    @property
    def size(self) -> int:
        """How many bytes it brings."""
        return sum([len(value) for value in self.values if type(value) is bytes])


# Without the call of a named tuple's own constructor.
_new = tuple.__new__


def usual(change: Change, server_born: float, *, may_touch: bool) -> Put | None:
    """A change as one statement; None for one that needs several."""
    if (
        len(change.witnesses) > _MOST_WITNESSES
        or (len(change.checkpoints) > 1 and (change.stamp is None or change.head is not None))
        or change.firsts or change.joins is not None or change.founded is not None
    ):  # fmt: skip
        return None
    stamp, settles = change.stamp, change.settles
    asked = asked_at(change) if change.writes else None
    begins = stamp is None and change.continues is None
    if begins and (change.witnesses or (change.head is not None and change.head[1] is not None)):
        return None
    noting = _TOUCHED if may_touch else _NOTHING
    if begins:
        values: list[Any] = [change.thread_id, change.now, asked]
        noting = _NOTHING
    else:
        values = [change.thread_id]
        if stamp is not None:
            values += (stamp[0], stamp[1] & _EPOCH_MASK, server_born)
        for witness in change.witnesses:
            values += witness
    if change.lease is not None:
        values += (lease_key(change.thread_id), change.lease)
    is_headed = change.head is not None and not begins
    if is_headed:
        values += _head_of(change)
    if not begins and (settles is not None or asked is not None):
        if settles is not None and asked is not None:
            return None
        noting = _SETTLED if settles is not None else _ASKED
        values += (change.now, settles if settles is not None else asked)
    elif noting:
        values.append(change.now)
    chunks = _added(values, sorted(change.chunks), CHUNK_TYPES) if change.chunks else 0
    moved = _added(values, sorted(change.moved), CHUNK_TYPES) if change.moved else 0
    rows = change.checkpoints
    checkpoints = _added(values, latest(rows, 2) if len(rows) > 1 else rows, CHECKPOINT_TYPES, 1)
    adds = replaces = 0
    if change.writes:
        added, replaced = split_writes(change.writes)
        adds = _added(values, sorted(added), WRITE_TYPES)
        replaces = _added(values, latest(replaced, 4), WRITE_TYPES) if replaced else 0
    shape = _new(_Shape, (
        begins, stamp is not None, len(change.witnesses), change.lease is not None, is_headed, noting,
        chunks, moved, checkpoints, adds, replaces,
    ))  # fmt: skip
    return _new(Put, (change, shape, values))


def _head_of(change: Change) -> tuple[str, str | None, str | None]:
    """The namespace of a head, and which checkpoints may be the newest: what was seen, and what this change puts."""
    assert change.head is not None
    namespace, expected = change.head
    own = next((row.id for row in change.checkpoints if row.namespace == namespace), expected)
    return namespace, expected, own


def _added(values: list[Any], rows: Sequence[Sequence[Any]], types: Sequence[str], most: int = _MOST_SINGLE) -> int:
    """Add the values of rows; returns how many rows the statement takes, where all numbers above a few are alike."""
    if len(rows) <= most:
        for row in rows:
            values += row
        return len(rows)
    values += arrays(types, rows)
    return _MOST_SINGLE + 1


def latest(rows: Sequence[Any], key_columns: int) -> list[Any]:
    """Rows by their keys; of two under one key the later counts, as one statement cannot replace a row twice."""
    return sorted({row[:key_columns]: row for row in rows}.values())


class PutStatements:
    """The statements that only PostgreSQL has; those of a put are made when first needed."""

    def __init__(self, sql: Statements, lock_timeout: str) -> None:
        self._sql = sql
        self._made: dict[_Shape, Statement] = {}
        # What ends a wait for a lock, in this transaction.
        self.lock_timeout = f"set_config('lock_timeout', '{int(lock_timeout)}', true)"
        self.server_born = f"SELECT {SERVER_BORN}"
        living = f"FROM {sql.t} WHERE {{}} AND status <> 'deleted'"
        # A living thread whose row nobody deletes from, or that is held alone, until the transaction ends.
        one = f"SELECT {THREAD_COLUMNS} {living.format('thread_id = %s')}"
        self.held, self.held_alone = f"{one} FOR KEY SHARE", f"{one} FOR UPDATE"
        # Several, always in one order.
        several = f"SELECT serial {living.format('thread_id = ANY(%s)')} ORDER BY serial"
        self.all_held, self.all_held_alone = f"{several} FOR KEY SHARE", f"{several} FOR UPDATE"
        # The threads of a pool.
        self.pool_held_alone = f"SELECT serial {living.format('pool = %s')} ORDER BY serial FOR UPDATE"
        # A thread, alone, before a put looks at its head.
        self.held_for_head = Statement(
            f"SELECT FROM (SELECT {self.lock_timeout} OFFSET 0) AS s, {sql.t} t WHERE t.thread_id = $1::text "
            f"FOR UPDATE OF t"
        )
        self.chunks = Statement(
            f"SELECT {CHUNK_COLUMNS} FROM {sql.k} WHERE pool = $1::bigint AND digest = ANY($2::bytea[])"
        )
        self._read(sql)

    def _read(self, sql: Statements) -> None:
        """Statements that find a checkpoint, alone and with its writes below it: from one state of the database."""
        columns = CHECKPOINT_COLUMNS.split(", ")[1:]
        found = f"t.pool, t.epoch, {', '.join('c.' + column for column in columns)}"
        here = f"{sql.joined} t.thread_id = $1::text AND c.namespace = $2::text"
        written = ", ".join(f"w.{column}" if column else f"NULL::{kind}" for column, kind in _WRITE_IN_FOUND)
        below = (
            f"SELECT {written} FROM found f JOIN {sql.w} w ON w.pool = f.pool AND w.thread = f.thread "
            f"AND w.namespace = $2::text AND w.checkpoint_id = f.id"
        )
        self.find: dict[bool, Statement] = {}
        self.find_with_writes: dict[bool, Statement] = {}
        for is_newest, which in ((False, "AND c.id = $3::text"), (True, "ORDER BY c.id DESC LIMIT 1")):
            self.find[is_newest] = Statement(f"SELECT {found} {here} {which}")
            self.find_with_writes[is_newest] = Statement(
                f"WITH found AS MATERIALIZED (SELECT t.serial AS thread, {found} {here} {which}) "
                f"SELECT pool, epoch, {', '.join(columns)} FROM found UNION ALL {below}"
            )

    def of(self, shape: _Shape) -> Statement:
        """The statement of a shape: it gives a row if the change was made, else none.

        The row has the pool, the epoch and when the thread was last said to be in use, where that was not known.
        """
        made = self._made.get(shape)
        if made is None:
            made = self._made[shape] = self._make(shape)
        return made

    def _make(self, shape: _Shape) -> Statement:
        sql, mark = self._sql, Marks()
        live = self._begun(shape, mark) if shape.begins else self._live(shape, mark)
        parts = []
        if shape.noting:
            parts.append(self._noted(shape.noting, mark))
        for count, conflict in (
            (shape.chunks, "ON CONFLICT DO NOTHING"), (shape.moved, replacing(CHUNK_COLUMNS, CHUNK_KEY))
        ):  # fmt: skip
            if count:
                rows = _rows(mark, count, CHUNK_COLUMNS, CHUNK_TYPES)
                parts.append(
                    f"INSERT INTO {sql.k} (pool, {CHUNK_COLUMNS}) SELECT live.pool, n.* FROM {rows} {conflict}"
                )
        if shape.checkpoints:
            parts.append(self._checkpoints_put(shape.checkpoints, mark))
        for count, conflict in (
            (shape.adds, "ON CONFLICT DO NOTHING"), (shape.replaces, replacing(WRITE_COLUMNS, WRITE_KEY))
        ):  # fmt: skip
            if count:
                rows = _rows(mark, count, WRITE_COLUMNS, WRITE_TYPES)
                parts.append(
                    f"INSERT INTO {sql.w} (pool, thread, {WRITE_COLUMNS}) SELECT live.pool, live.serial, n.* "
                    f"FROM {rows} {conflict}"
                )
        named = [f"part{number} AS ({part})" for number, part in enumerate(reversed(parts))]
        given = "" if shape.is_stamped and not shape.noting else "pool, epoch, active "
        return Statement(f"WITH {', '.join([f'live AS MATERIALIZED ({live})', *named])} SELECT {given}FROM live")

    def _checkpoints_put(self, count: int, mark: Marks) -> str:
        """The insert of one checkpoint, or of many."""
        conflict = replacing(CHECKPOINT_COLUMNS, CHECKPOINT_KEY)
        into = f"INSERT INTO {self._sql.c} (pool, thread, {CHECKPOINT_COLUMNS}) SELECT live.pool, live.serial"
        if count == 1:
            return f"{into}, {', '.join(map(mark, CHECKPOINT_TYPES))}::jsonb FROM live {conflict}"
        rows = _rows(mark, count, CHECKPOINT_COLUMNS, CHECKPOINT_TYPES)
        return f"{into}, {given(CHECKPOINT_COLUMNS)} FROM {rows} {conflict}"

    def _begun(self, shape: _Shape, mark: Marks) -> str:
        """A thread that is made, unless there is one of that id."""
        thread_id, now, asked = mark("text"), mark("float8"), mark("text")
        row = f"{thread_id}, 0, 'active', {now}, {now}, '[]', {asked}"
        lease = f" FROM {self._sql.m} l WHERE {_leased(mark)} FOR SHARE OF l" if shape.is_leased else ""
        return (
            f"INSERT INTO {self._sql.t} (thread_id, epoch, status, created, active, tags, asked) SELECT {row}{lease} "
            f"ON CONFLICT DO NOTHING RETURNING serial, pool, epoch, active"
        )

    def _live(self, shape: _Shape, mark: Marks) -> str:
        """The thread, if it is as expected; locked, with what the change relies on."""
        sql = self._sql
        # Locked at once as it is needed: a stronger lock that is taken later can be waited for in a circle.
        tables, locks = [f"{sql.t} t"], [f"FOR {'NO KEY UPDATE' if shape.noting else 'KEY SHARE'} OF t SKIP LOCKED"]
        thread_id, pool, epoch, born = mark("text"), "t.pool", "", ""
        if shape.is_stamped:
            pool, epoch, born = mark("bigint"), mark("bigint"), mark("float8")
        where = expected_thread(thread_id, pool, epoch, born)
        for number in range(shape.witnesses):
            w = f"w{number}"
            tables.append(f"{sql.c} {w}")
            where.append(f"{w}.pool = {pool} AND {w}.thread = t.serial AND {w}.namespace = {mark('text')}")
            where.append(f"{w}.id = {mark('text')} AND {w}.created = {mark('float8')}")
            locks.append(f"FOR KEY SHARE OF {w} SKIP LOCKED")
        if shape.is_leased:
            tables.append(f"{sql.m} l")
            where.append(_leased(mark))
            locks.append("FOR SHARE OF l")
        if shape.is_headed:
            newest = f"SELECT max(h.id) FROM {sql.c} h WHERE h.pool = {pool} AND h.thread = t.serial"
            tables.append(f"LATERAL ({newest} AND h.namespace = {mark('text')}) AS head (newest)")
            where.append(f"(newest IS NOT DISTINCT FROM {mark('text')} OR newest = {mark('text')})")
            # The snapshot must be younger than the lock of the statement before.
            where.append("current_setting('transaction_isolation') = 'read committed'")
        return (
            f"SELECT t.serial, t.pool, t.epoch, t.active, {self.lock_timeout} FROM {', '.join(tables)} "
            f"WHERE {' AND '.join(where)} {' '.join(locks)}"
        )

    def _noted(self, noting: int, mark: Marks) -> str:
        """What the put says of its thread: that it is in use, that a question was asked, or that it was answered."""
        now = mark("float8")
        idle = f"t.active < {now} - {ACTIVITY_SECONDS}"
        sets, when = [f"active = CASE WHEN {idle} THEN {now} ELSE t.active END"], [idle]
        if noting == _SETTLED:
            settles = mark("text")
            sets.append(f"asked = CASE WHEN t.asked < {settles} THEN NULL ELSE t.asked END")
            when.append(f"t.asked < {settles}")
        elif noting == _ASKED:
            asked = mark("text")
            sets.append(f"asked = greatest(t.asked, {asked})")
            when += ["t.asked IS NULL", f"t.asked < {asked}"]
        return (
            f"UPDATE {self._sql.t} t SET {', '.join(sets)} FROM live WHERE t.serial = live.serial "
            f"AND ({' OR '.join(when)})"
        )


def expected_thread(thread_id: str, pool: str, epoch: str, server_born: str) -> list[str]:
    """The conditions under which a put may go on with a thread `t`; without an epoch it names no stamp."""
    # As in ports/rules.py; what may go on with a thread that was deleted once is found out the general way.
    where = [f"t.thread_id = {thread_id}", "t.status NOT IN ('deleted', 'archived') AND t.deleted_before IS NULL"]
    if epoch:
        # Not by `=`: without statistics the server would look for the thread among all of its pool.
        where += [f"t.pool IS NOT DISTINCT FROM {pool}", f"t.epoch = {epoch}"]
        where.append(f"pg_postmaster_start_time() = to_timestamp({server_born})")
    return where


class Marks:
    """Numbers the parameters of a statement, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, kind: str) -> str:
        self._count += 1
        return f"${self._count}::{kind}"


def _leased(mark: Marks) -> str:
    """A condition: the lease is that of a holder, by whose token its record begins."""
    name, token = mark("text"), mark("bytea")
    return f"l.name = {name} AND substring(l.value FROM 1 FOR length({token})) = {token}"


def _rows(mark: Marks, count: int, columns: str, types: Sequence[str]) -> str:
    """Rows beside the thread they go to."""
    if count > _MOST_SINGLE:
        return f"live, unnest({', '.join(mark(f'{kind}[]') for kind in types)}) AS n ({columns})"
    rows = ", ".join([f"({', '.join(map(mark, types))})" for _ in range(count)])
    return f"live, (VALUES {rows}) AS n ({columns})"


def split_found(rows: list[Any], namespace: str) -> tuple[Any, list[Any]]:
    """A checkpoint's row, and its writes, from what a query `find_with_writes` found."""
    if len(rows) == 1:
        return rows[0], []
    [found] = [row for row in rows if row[0] is not None]
    # In the order of WRITE_COLUMNS.
    writes = [
        (namespace, found[2], row[2], row[9], row[3], row[10], row[4], row[5], row[6]) for row in rows if row[0] is None
    ]
    return found, writes


def given(columns: str) -> str:
    """Columns as an insert takes them from arrays, in which JSON is text."""
    return ", ".join(f"{name}::jsonb" if name == "searchable" else name for name in columns.split(", "))


def replacing(columns: str, key: str) -> str:
    """The end of an insert that replaces the row under the same key."""
    keys = key.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ") if name not in keys)
    return f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
