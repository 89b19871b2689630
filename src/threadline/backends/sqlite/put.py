"""What SQLite does its own way: many puts of the usual kind in a few statements, and deletions on a full disk.

Each row that is bound costs little, each statement much. A deletion that finds no room uses the reserve (room.py) and
goes in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...errors import StorageFull
from ...ports.checkpoints import (
    Applied,
    Change,
    CheckpointKey,
    CheckpointKeys,
    Found,
    Guard,
    Query,
    Stale,
    Stamp,
    ThreadRow,
    WriteRow,
)
from ...ports.records import RecordChange
from ...ports.rules import ACTIVITY_SECONDS, is_quick
from ..sql.backend import SqlBackend
from ..sql.rows import found_row, ordered_writes
from ..sql.statements import WRITE_COLUMNS
from .dialect import plain_cursor
from .records import AskingDatabase, SqliteRecords
from .schema import LateIndexes, RoomyDatabase
from .vectors import SqliteVectors

if TYPE_CHECKING:
    import sqlite3

    from ..sql.statements import Statements
    from .commit import Seen, SqliteCommit

__all__ = ["SqliteBackend", "find_one", "put_one", "put_together"]

T = TypeVar("T")
K = TypeVar("K")
_new, _replaces = tuple.__new__, itemgetter(-1)
# The stamp of a thread, its serial, and when it was last noted as used.
_Place = tuple[Stamp, int, float]
# A statement that adds more writes than these is not worth keeping.
_MOST_AT_ONCE = 8
# How many checkpoints of a thread are deleted at a time where there is no room for all.
_PART = 100
# Matches no row: a change without witnesses binds this.
_NOBODY = ("", "", 0.0)
_ALL = 1 << 62
# Statements exist for these numbers of threads; the last thread is repeated up to the next number.
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
# Statements exist for these numbers of rows; and which of them is the largest for so many.
_ROWS = (32, 8, 4, 2, 1)
_LARGEST = (0, *[next(size for size in _ROWS if size <= count) for count in range(1, _ROWS[0] + 1)])


class PuttingDatabase(AskingDatabase, RoomyDatabase, Protocol):
    """A database that commits puts of the usual kind together."""

    # What commits, and what reads, on the calling thread without a coroutine; None beside an event loop.
    blocking: SqliteCommit | None
    read_now: Callable[[Callable[[sqlite3.Connection], Any]], Any] | None

    async def put(self, change: Change) -> Stamp | None:
        """The stamp under which the change was made; None if its thread is not what the change was prepared for."""

    async def ask_in_one(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a few short queries that see one state."""

    async def make_room(self) -> int:
        """Release the reserve for a deletion; how many bytes were still missing."""


class SqliteBackend(SqliteRecords, SqliteVectors, SqlBackend):
    """The common backend, with a shorter way for most puts, and deletions that work on a full disk."""

    database: PuttingDatabase

    def __init__(self, database: PuttingDatabase, statements: Statements) -> None:
        super().__init__(database, statements)
        self._indexes = LateIndexes(database, statements)

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        if len(changes) == 1:
            [change] = changes
            if is_quick(change):
                blocking = self.database.blocking
                stamp = blocking.run(change) if blocking is not None else await self.database.put(change)
                if stamp is not None:
                    return [_new(Applied, (stamp,))]
        return await super().apply(changes)

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        query = partial(find_one, self.sql, thread_id, namespace, checkpoint_id, with_writes)
        read_now = self.database.read_now
        return read_now(query) if read_now is not None else await self.database.ask_in_one(query)

    async def page(self, query: Query) -> list[Found]:
        if query.thread_id is None and query.run_ids is None:
            await self._indexes.by_age()
        return await super().page(query)

    async def children(self, thread_id: str, keys: CheckpointKeys) -> list[Found]:
        await self._indexes.by_parent(thread_id)
        return await super().children(thread_id, keys)

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        try:
            return await SqlBackend.remove_thread(self, thread_id, deleted_before, now)
        except StorageFull:
            await self.database.make_room()
        # One transaction may need more room than there is: most rows are deleted before it, in parts.
        rows = Query(thread_id=thread_id, as_they_lie=True, limit=_PART, with_writes=False)
        while page := await self.page(rows):
            await self.remove_checkpoints(thread_id, [one.key for one in page])
        thread = await self.thread(thread_id)
        if thread is not None:
            chunks = await self.chunk_sizes(thread.pool, b"", _ALL)
            await self.collect(thread.pool, [digest for digest, *_ in chunks], set())
        return await self._with_room(lambda: SqlBackend.remove_thread(self, thread_id, deleted_before, now))

    async def remove_checkpoints(
        self, thread_id: str, keys: CheckpointKeys, settled: CheckpointKeys = (), guard: Guard | None = None
    ) -> int | None:
        async def remove(part: Sequence[tuple[CheckpointKey, bool]]) -> int | None:
            going = [key for key, goes in part if goes]
            emptied = [key for key, goes in part if not goes]
            return await SqlBackend.remove_checkpoints(self, thread_id, going, emptied, guard)

        if guard is not None:
            await self._indexes.by_parent(thread_id)
        return await self._in_parts(remove, [*((key, True) for key in keys), *((key, False) for key in settled)])

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        async def collect(part: Sequence[bytes]) -> int | None:
            return await SqlBackend.collect(self, pool, part, reachable.copy())  # each part marks anew

        return await self._in_parts(collect, candidates) or 0

    # A deletion notes before and after it: the lease of a sweep, which checkpoints are no heads any more.

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        return await self._with_room(lambda: SqlBackend.swap_thread(self, before, after))

    async def swap_lease(self, thread_id: str, before: bytes | None, after: bytes | None) -> bool:
        return await self._with_room(lambda: SqlBackend.swap_lease(self, thread_id, before, after))

    async def write_records(self, changes: Sequence[RecordChange]) -> int | None:
        if any(change.record is not None for change in changes):
            return await SqlBackend.write_records(self, changes)
        return await self._with_room(lambda: SqlBackend.write_records(self, changes))

    async def _with_room(self, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of work that may use the reserve."""
        try:
            return await act()
        except StorageFull:
            missing = await self.database.make_room()
        try:
            return await act()
        except StorageFull as full:
            if not missing:
                raise
            raise StorageFull(f"{full}. To delete from it, free {missing:,} bytes more") from None

    async def _in_parts(
        self, act: Callable[[Sequence[K]], Coroutine[Any, Any, int | None]], values: Sequence[K]
    ) -> int | None:
        """The sum of what work on some values returns: on all of them, or by halves where there is no room for that."""
        if len(values) <= 1:
            return await self._with_room(lambda: act(values))
        try:
            return await act(values)
        except StorageFull:
            await self.database.make_room()
        half = -(-len(values) // 2)
        first = await self._in_parts(act, values[:half])
        second = None if first is None else await self._in_parts(act, values[half:])
        return None if first is None or second is None else first + second


def find_one(
    sql: Statements,
    thread_id: str,
    namespace: str,
    checkpoint_id: str | None,
    with_writes: bool,
    connection: sqlite3.Connection,
) -> Found | None:
    """A checkpoint with its writes, inside a transaction."""
    cursor = plain_cursor(connection)
    if checkpoint_id is None:
        row = cursor.execute(sql.newest, (thread_id, namespace)).fetchone()
    else:
        row = cursor.execute(sql.find, (thread_id, namespace, checkpoint_id)).fetchone()
    if row is None:
        return None
    found = found_row(row, 0)
    if not with_writes:
        return found
    writes = cursor.execute(sql.writes, (row[1], row[-1], namespace, row[4])).fetchall()
    return _new(Found, (*found[:4], ordered_writes(writes))) if writes else found


def put_one(sql: Statements, change: Change, seen: Seen | None, connection: sqlite3.Connection) -> Stamp | None:
    """Make one change of the usual kind, inside a write transaction; None if its thread was not as expected."""
    cursor = seen.cursor(connection) if seen is not None else plain_cursor(connection)
    execute, chunks = cursor.execute, change.chunks
    if seen is not None:
        seen.renew(connection, execute)
    if change.stamp is None:
        place = _begin(cursor, sql, change, seen)
    else:
        held = seen.find(change) if seen is not None else None
        place = (held.stamp, held.serial, held.active) if held is not None else _look(cursor, sql, change)
    if place is None:
        return None
    stamp, serial, active = place
    pool = stamp[0]
    if len(chunks) == 1:
        digest, links, form, data = chunks[0]
        # Python's driver looks for an adapter of every bytes object, and of no bytearray.
        execute(sql.add_chunk, (pool, bytearray(digest), bytearray(links), form, bytearray(data)))
    elif chunks:
        _insert(cursor, sql.add_chunk, [(pool, *chunk) for chunk in sorted(chunks)])
    if change.moved:
        _insert(cursor, sql.move_chunk, [(pool, *chunk) for chunk in sorted(change.moved)])
    for row in change.checkpoints:
        execute(sql.put_checkpoint, (pool, serial, *row))
    if change.writes:
        adds = [write for write in change.writes if not write[-1]]
        if adds:
            _insert(cursor, sql.add_write, _write_values(pool, serial, adds))
        if len(adds) < len(change.writes):
            replaces = [write for write in change.writes if write[-1]]
            _insert(cursor, sql.replace_write, _write_values(pool, serial, replaces))
    if change.now - active > ACTIVITY_SECONDS:
        execute(sql.touch, (change.now, change.thread_id))
        active = change.now
    if seen is not None:
        seen.note(change, serial, stamp, active, connection)
        seen.spare = cursor
    return stamp


def is_one_statement(change: Change) -> bool:
    """Whether a change to a known thread adds rows to one table, in few columns: `put_at_once` makes it."""
    if change.stamp is None or change.chunks or change.moved or len(change.witnesses) > 1:
        return False
    if change.checkpoints:
        return not change.writes and len(change.checkpoints) == 1
    return 0 < len(change.writes) <= _MOST_AT_ONCE and not any(map(_replaces, change.writes))


def put_at_once(sql: Statements, change: Change, seen: Seen, connection: sqlite3.Connection) -> Stamp | None:
    """Make a change by one statement, which is a transaction by itself; None, or an error, if it added nothing."""
    serial = seen.serial_of(change)
    if serial is None:
        return None
    (pool, epoch), writes = change.stamp, change.writes  # type: ignore[misc]
    values: list[Any] = [change.thread_id, serial, pool, epoch, change.now - ACTIVITY_SECONDS]
    for witness in change.witnesses:
        values += witness
    before, cursor, has_witness = connection.total_changes, seen.cursor(connection), bool(change.witnesses)
    if writes:
        values.append(serial)  # in place of the first pool is the query
        for *place, links, form, data, _ in writes:
            values += (*place, bytearray(links), form, bytearray(data), pool, serial)  # see `put_one`
        del values[-2:]
        added = cursor.execute(_adding(sql, len(writes), has_witness), values).rowcount
    else:
        values += (serial, *change.checkpoints[0])
        added = cursor.execute(_placing(sql, has_witness), values).rowcount
    seen.spare = cursor
    if added <= 0:
        return None
    seen.follow(change, added, before, connection)
    return change.stamp


# The pool of the first row is a query, which gives NULL where the thread is not as expected: no column takes that, and
# nothing is added. An INSERT of a SELECT would take longer, and copy what it reads of the table that it writes.


@lru_cache(maxsize=64)
def _adding(sql: Statements, count: int, has_witness: bool) -> str:
    """What adds so many writes to a thread that is as expected, but for those that are there."""
    marks = ", ".join("?" * (WRITE_COLUMNS.count(",") + 2))
    rows = [f"({_pool_as_expected(sql, has_witness)}, {marks})", *[f"(?, {marks})"] * (count - 1)]
    # Not OR IGNORE, which would pass over NULL as well.
    return f"INSERT INTO {sql.w} (pool, thread, {WRITE_COLUMNS}) VALUES {', '.join(rows)} ON CONFLICT DO NOTHING"


@lru_cache(maxsize=64)
def _placing(sql: Statements, has_witness: bool) -> str:
    """What puts a checkpoint into a thread that is as expected."""
    head, _, marks = sql.put_checkpoint.rpartition(" VALUES ")
    return f"{head} VALUES ({_pool_as_expected(sql, has_witness)}, {', '.join('?' * (marks.count('?') - 1))})"


def _pool_as_expected(sql: Statements, has_witness: bool) -> str:
    """The pool of a thread to which a change may be made without a closer look."""
    witness = (
        f" AND EXISTS (SELECT 1 FROM {sql.c} w WHERE w.pool = t.pool AND w.thread = t.serial AND w.namespace = ? "
        f"AND w.id = ? AND w.created = ?)"
    )
    return (
        f"(SELECT t.pool FROM {sql.t} t WHERE t.thread_id = ? AND t.serial = ? AND t.pool = ? AND t.epoch = ? "
        f"AND t.status = 'active' AND t.deleted_before IS NULL AND t.active >= ?{witness * has_witness})"
    )


def _look(cursor: sqlite3.Cursor, sql: Statements, change: Change) -> _Place | None:
    """Where a change of a known thread goes; None if the thread, or a witness, is not as the change expects."""
    first = change.witnesses[0] if change.witnesses else _NOBODY
    thread = cursor.execute(sql.thread_and_witness, (*first, change.thread_id)).fetchone()
    if thread is None or not _is_expected(thread, change) or not _has_witnesses(cursor, sql, thread, change):
        return None
    return (thread[1], thread[2]), thread[0], thread[5]


def _begin(cursor: sqlite3.Cursor, sql: Statements, change: Change, seen: Seen | None) -> _Place | None:
    """Make a thread, with its serial for its pool; or take the one that there is, of writes that overtook their put.

    None where that is closed, or was deleted at any time.
    """
    if not cursor.execute(_beginning(sql.t), (change.thread_id, change.now, change.now)).rowcount:
        thread = cursor.execute(sql.thread_and_witness, (*_NOBODY, change.thread_id)).fetchone()
        return ((thread[1], thread[2]), thread[0], thread[5]) if thread is not None and _is_open(thread) else None
    serial = cursor.lastrowid or 0
    place = (serial, 0), serial, change.now
    if seen is not None and seen.is_in_sequence:
        return place
    if cursor.execute(f"SELECT pool FROM {sql.t} WHERE serial = ?", (serial,)).fetchone() != (serial,):
        cursor.execute(sql.own_pool, (change.thread_id,))  # somebody has altered the sequence
    elif seen is not None:
        seen.is_in_sequence = True
    return place


@lru_cache(maxsize=64)
def _beginning(table: str) -> str:
    """What makes a thread; the sequence of the table says which serial it gets."""
    return (
        f"INSERT OR IGNORE INTO {table} (thread_id, pool, epoch, status, created, active, tags) VALUES (?, "
        f"(SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = '{table}'), 0, 'active', ?, ?, '[]')"
    )


def put_together(
    sql: Statements, changes: Sequence[Change], seen: Seen | None, connection: sqlite3.Connection
) -> list[Stamp | None]:
    """Make changes of the usual kind, inside a write transaction; None for each whose thread was not as expected."""
    cursor = plain_cursor(connection)
    if seen is not None:
        seen.renew(connection, cursor.execute)
    places = _places(cursor, sql, changes, seen)
    chunks: list[Any] = []
    moved: list[Any] = []
    checkpoints: list[Any] = []
    adds: list[Any] = []
    replaces: list[Any] = []
    made = [(change, *place) for place, change in zip(places, changes, strict=True) if place is not None]
    for change, (pool, _), serial, active in made:
        chunks += [(pool, bytearray(a), bytearray(b), form, bytearray(c)) for a, b, form, c in change.chunks]
        if change.moved:
            moved += [(pool, *chunk) for chunk in change.moved]
        checkpoints += [(pool, serial, *row) for row in change.checkpoints]
        if change.writes:
            adds += _write_values(pool, serial, [write for write in change.writes if not write[-1]])
            replaces += _write_values(pool, serial, [write for write in change.writes if write[-1]])
        if change.now - active > ACTIVITY_SECONDS:
            cursor.execute(sql.touch, (change.now, change.thread_id))
    for statement, rows in (
        (sql.add_chunk, sorted(chunks)),
        (sql.move_chunk, sorted(moved)),
        (sql.put_checkpoint, checkpoints),
        (sql.add_write, adds),
        (sql.replace_write, replaces),
    ):
        if rows:
            _insert(cursor, statement, rows)
    if seen is not None:
        for change, stamp, serial, active in made:
            noted = change.now if change.now - active > ACTIVITY_SECONDS else active
            seen.note(change, serial, stamp, noted, connection)
    return [place[0] if place is not None else None for place in places]


def _places(
    cursor: sqlite3.Cursor, sql: Statements, changes: Sequence[Change], seen: Seen | None
) -> list[_Place | None]:
    """Where each change goes; None where its thread, or a witness, is not as it expects."""
    places: list[_Place | None] = [None] * len(changes)
    unknown: list[int] = []
    for at, change in enumerate(changes):
        held = seen.find(change) if seen is not None else None
        if held is not None:
            places[at] = (held.stamp, held.serial, held.active)
        elif change.stamp is not None:
            unknown.append(at)
    for at, thread in _threads(cursor, sql, changes, unknown):
        change, stamp = changes[at], changes[at].stamp
        if stamp is not None and _is_expected(thread, change) and _has_witnesses(cursor, sql, thread, change):
            places[at] = (stamp, thread[0], thread[5])
    for at, change in enumerate(changes):
        if change.stamp is None:
            places[at] = _begin(cursor, sql, change, seen)
    return places


def _write_values(pool: int, serial: int, writes: Sequence[WriteRow]) -> list[list[Any]]:
    """What is bound for writes that are added to a thread."""
    return [  # of bytearrays: see `put_one`
        [pool, serial, *place, bytearray(links), form, bytearray(data)] for *place, links, form, data, _ in writes
    ]


def _insert(cursor: sqlite3.Cursor, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows by as few statements as possible.

    Python's driver releases the interpreter for each statement, and waits to get it back. `executemany` would do so
    for every row.
    """
    if len(rows) == 1:
        cursor.execute(statement, rows[0])
        return
    start = 0
    while start < len(rows):
        size = _LARGEST[min(len(rows) - start, _ROWS[0])]
        batch = rows[start : start + size]
        cursor.execute(_for_rows(statement, size), list(chain.from_iterable(batch)))
        start += size


@lru_cache(maxsize=64)
def _for_rows(statement: str, count: int) -> str:
    """An insert of one row, made for several."""
    head, _, marks = statement.rpartition(" VALUES ")
    return f"{head} VALUES {', '.join([marks] * count)}"


def _threads(
    cursor: sqlite3.Cursor, sql: Statements, changes: Sequence[Change], unknown: Sequence[int]
) -> list[tuple[int, Any]]:
    """The threads of these of the changes, and whether the first witness of each is there, in one look."""
    looks = [
        (at, changes[at].thread_id, *(changes[at].witnesses[0] if changes[at].witnesses else _NOBODY)) for at in unknown
    ]
    if not looks:
        return []
    size = next(size for size in _SIZES if len(looks) <= size)
    looks += looks[-1:] * (size - len(looks))
    rows = cursor.execute(_looking(sql.t, sql.c, size), list(chain.from_iterable(looks))).fetchall()
    return list({at: thread for at, *thread in rows}.items())


@lru_cache(maxsize=64)
def _looking(threads: str, checkpoints: str, count: int) -> str:
    """What looks for so many threads and witnesses."""
    witness = f"SELECT 1 FROM {checkpoints} w WHERE w.pool = t.pool AND w.thread = t.serial"
    return (
        f"WITH v (at, thread_id, namespace, id, created) AS (VALUES {', '.join(['(?, ?, ?, ?, ?)'] * count)}) "
        f"SELECT v.at, t.serial, t.pool, t.epoch, t.status, t.deleted_before, t.active, "
        f"EXISTS ({witness} AND w.namespace = v.namespace AND w.id = v.id AND w.created = v.created) "
        f"FROM v CROSS JOIN {threads} t ON t.thread_id = v.thread_id"
    )


def _is_expected(thread: Sequence[Any], change: Change) -> bool:
    return (thread[1], thread[2]) == change.stamp and _is_open(thread)


def _is_open(thread: Sequence[Any]) -> bool:
    # A thread that was begun anew may refuse a change that descends from before: the general way looks closer.
    return thread[3] not in ("deleted", "archived") and thread[4] is None


def _has_witnesses(cursor: sqlite3.Cursor, sql: Statements, thread: Sequence[Any], change: Change) -> bool:
    """Whether the rows that the change relies on are there."""
    if not change.witnesses:
        return True
    serial, pool, *_, has_first = thread
    if not has_first:
        return False
    for witness in change.witnesses[1:]:
        if cursor.execute(sql.has_witness, (pool, serial, *witness)).fetchone() is None:
            return False
    return True
