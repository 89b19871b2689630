"""Many puts of the usual kind in a few statements: each row that is bound costs little, each statement much."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..errors import StorageFull
from .port import Applied, Change, CheckpointKey, CheckpointKeys, Stale, ThreadRow
from .rules import ACTIVITY_SECONDS, is_usual
from .sql.backend import SqlBackend
from .sql.reader import Database

if TYPE_CHECKING:
    import sqlite3

    from .sql.statements import Statements

__all__ = ["SqliteBackend", "put_together"]

T = TypeVar("T")
K = TypeVar("K")
# How many checkpoints of a thread go at a time where there is no room for all.
_PART = 100
_ALL = 1 << 62
# Statements are made for these many threads; the rest is filled up.
_SIZES = (1, 4, 16, 128)
# Statements are made for these many rows.
_ROWS = (32, 8, 4, 2, 1)


class PuttingDatabase(Database, Protocol):
    """A database that takes puts of the usual kind together."""

    async def put(self, change: Change) -> bool:
        """Whether the change was made; if not, its thread is not what the change was prepared for."""

    async def make_room(self) -> int:
        """Let a deletion use the room that is held for it; how many bytes were still missing."""


class SqliteBackend(SqlBackend):
    """The common backend, with a shorter way for most puts, and deletions that work on a full disk."""

    database: PuttingDatabase

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        if len(changes) == 1:
            [change] = changes
            if change.stamp is not None and is_usual(change) and await self.database.put(change):
                return [Applied(change.stamp)]
        return await super().apply(changes)

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        try:
            return await SqlBackend.remove_thread(self, thread_id, deleted_before, now)
        except StorageFull:
            await self.database.make_room()
        # One transaction may need more room than there is: most of it goes before, in parts.
        while page := await self.walk(thread_id, None, _PART):
            await self.remove_checkpoints(thread_id, [CheckpointKey(one.row.namespace, one.row.id) for one in page])
        thread = await self.thread(thread_id)
        if thread is not None:
            await self.collect(thread.pool, await self.pool_digests(thread.pool, b"", _ALL), set())
        return await self._pressed(lambda: SqlBackend.remove_thread(self, thread_id, deleted_before, now))

    async def remove_checkpoints(
        self,
        thread_id: str,
        keys: CheckpointKeys,
        settled: CheckpointKeys = (),
        *,
        seen: CheckpointKeys | None = None,
        guarded: CheckpointKeys = (),
    ) -> int | None:
        async def remove(part: Sequence[tuple[CheckpointKey, bool]]) -> int | None:
            going = [key for key, goes in part if goes]
            emptied = [key for key, goes in part if not goes]
            return await SqlBackend.remove_checkpoints(self, thread_id, going, emptied, seen=seen, guarded=guarded)

        return await self._by_halves(remove, [*((key, True) for key in keys), *((key, False) for key in settled)])

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        async def collect(part: Sequence[bytes]) -> int | None:
            return await SqlBackend.collect(self, pool, part, reachable)

        return await self._by_halves(collect, candidates) or 0

    # What is noted before and after a deletion: the lease of a sweep, which checkpoints are no heads any more.

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        return await self._pressed(lambda: SqlBackend.swap_thread(self, before, after))

    async def swap_meta(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        return await self._pressed(lambda: SqlBackend.swap_meta(self, key, before, after))

    async def _pressed(self, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of work that may use the room held for deletions."""
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

    async def _by_halves(
        self, act: Callable[[Sequence[K]], Coroutine[Any, Any, int | None]], values: Sequence[K]
    ) -> int | None:
        """The sum of what work on some values comes to: on all at once, or where there is no room on fewer."""
        try:
            return await act(values)
        except StorageFull:
            if len(values) <= 1:
                return await self._pressed(lambda: act(values))
            await self.database.make_room()
        half, total = -(-len(values) // 2), 0
        for part in (values[:half], values[half:]):
            done = await self._by_halves(act, part)
            if done is None:
                return None
            total += done
        return total


def put_together(connection: sqlite3.Connection, sql: Statements, changes: Sequence[Change]) -> list[bool]:
    """Make changes of the usual kind, inside a write transaction; tells whose thread was as expected."""
    cursor = connection.cursor()
    cursor.row_factory = None
    threads = {row[0]: row for row in _threads(cursor, sql, [change.thread_id for change in changes])}
    lost = _lost(cursor, sql, changes, threads)
    chunks: list[Any] = []
    checkpoints: list[Any] = []
    adds: list[Any] = []
    replaces: list[Any] = []
    made: list[bool] = []
    for position, change in enumerate(changes):
        thread = threads.get(change.thread_id)
        made.append(thread is not None and position not in lost and _is_expected(thread, change))
        if thread is None or not made[-1]:
            continue
        _, serial, pool, _, _, _, active = thread
        chunks += [(pool, *chunk) for chunk in change.chunks]
        checkpoints += [(pool, serial, *row) for row in change.checkpoints]
        for write in change.writes:
            (replaces if write.replaces else adds).append((pool, serial, *write[:-1]))
        if change.now - active > ACTIVITY_SECONDS:
            cursor.execute(sql.touch, (change.now, change.thread_id))
    for statement, rows in (
        (sql.add_chunk, sorted(chunks)),
        (sql.put_checkpoint, checkpoints),
        (sql.add_write, adds),
        (sql.replace_write, replaces),
    ):
        if rows:
            _insert(cursor, statement, rows)
    return made


def _insert(cursor: sqlite3.Cursor, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows by as few statements as can be.

    Python's driver lets other threads run while a statement does, and waits for them afterwards: a row a
    statement, as `executemany` does it, would stop and go on for every row.
    """
    if len(rows) == 1:
        cursor.execute(statement, rows[0])
        return
    start = 0
    while start < len(rows):
        size = next(size for size in _ROWS if size <= len(rows) - start)
        batch = rows[start : start + size]
        cursor.execute(_for_rows(statement, size), list(chain.from_iterable(batch)))
        start += size


@lru_cache(maxsize=64)
def _for_rows(statement: str, count: int) -> str:
    """An insert of one row, made for several."""
    head, _, marks = statement.rpartition(" VALUES ")
    return f"{head} VALUES {', '.join([marks] * count)}"


def _threads(cursor: sqlite3.Cursor, sql: Statements, thread_ids: list[str]) -> list[Any]:
    size = next(size for size in _SIZES if len(thread_ids) <= size)
    values = thread_ids + thread_ids[-1:] * (size - len(thread_ids))
    columns = "thread_id, serial, pool, epoch, status, deleted_before, active"
    marks = ", ".join("?" * size)
    return cursor.execute(f"SELECT {columns} FROM {sql.t} WHERE thread_id IN ({marks})", values).fetchall()


def _lost(cursor: sqlite3.Cursor, sql: Statements, changes: Sequence[Change], threads: dict[str, Any]) -> set[int]:
    """The positions of the changes that rely on a row which is not there."""
    lost: set[int] = set()
    for position, change in enumerate(changes):
        thread = threads.get(change.thread_id)
        if thread is not None:
            _, serial, pool, *_ = thread
            for witness in change.witnesses:
                if cursor.execute(sql.has_witness, (pool, serial, *witness)).fetchone() is None:
                    lost.add(position)
    return lost


def _is_expected(thread: Sequence[Any], change: Change) -> bool:
    _, _, pool, epoch, status, deleted_before, _ = thread
    # A thread that was begun anew may refuse what descends from before: the general way looks closer.
    return (pool, epoch) == change.stamp and status not in ("deleted", "archived") and deleted_before is None
