"""MySQL and MariaDB: transactions with few round trips, and the backend over them.

A change is one packet where that can be (put.py). Otherwise statements whose answer does not matter travel with the
next one whose answer does, or with COMMIT: two round trips. A server stops at the first statement of a packet that
fails, so a COMMIT behind it is never reached.

Writes run in READ COMMITTED, so that rows that are read after a lock are as they are now. Reads of several statements
run on one snapshot; a read of a single statement needs no transaction. A put is as durable as the server's commit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pymysql import err
from pymysql.constants import ER

from ...errors import InvalidRequest, Unavailable
from ...ports.checkpoints import Applied, Change, Found, Stale, Stamp, ThreadRow
from ...ports.rules import ACTIVITY_SECONDS, GENERATION_SHIFT, own_words
from ...ports.storage import Space
from ..sql.backend import SqlBackend
from ..sql.changes import Changes, LastNoted
from ..sql.rows import Transaction, Work
from .binding import bound, bound_many, check_ids, with_text
from .errors import is_in_step
from .packed import PackedStatements, chunk_of, found_of
from .put import PutStatements
from .schema import MysqlTables, tables
from .statements import MysqlStatements
from .wire import Wire

if TYPE_CHECKING:
    from ..server import Lend, LendNow

__all__ = ["MysqlBackend", "MysqlDatabase", "MysqlTransaction"]

T = TypeVar("T")
_WRITING = (b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", b"START TRANSACTION")
_SNAPSHOT = (b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", b"START TRANSACTION READ ONLY")
# Rows of one insert stay below this, whatever a packet may hold.
_MOST_INSERT_BYTES = 4 * 1024 * 1024
# A writer that loses this often against others who begin and delete the same thread gives up for now.
_MOST_TURNS = 50
# What InnoDB adds to a row: its header, the key, and where long columns lie.
_ROW_BYTES = 80


class MysqlBackend(SqlBackend):
    """The common backend, with fewer round trips."""

    sql: MysqlStatements
    database: MysqlDatabase

    def __init__(self, database: MysqlDatabase, sql: MysqlStatements) -> None:
        super().__init__(database, sql, MysqlChanges(sql))
        self._put = PutStatements(sql)
        self._packed = PackedStatements(sql)
        self._noted = LastNoted()

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        for change in changes:
            check_ids(change)
        if len(changes) == 1 and not self.database.is_given:
            stamp = await self.database.lent(partial(self._apply_at_once, changes[0]))
            if stamp is not None:
                return [Applied(stamp)]
        return await super().apply(changes)

    def put_now(self, lend: LendNow, change: Change) -> Stamp | None:
        """Make a change on the calling thread; None where the general way has to be taken (`PutUsual`)."""
        if not self.database.tables.is_ready:
            return None
        check_ids(change)
        stamp: Stamp | None = lend(partial(self._apply_now, change))
        return stamp

    def _apply_now(self, change: Change, wire: Wire) -> Stamp | None:
        wire.most_bytes = self.database.tables.most_bytes
        made = self._packet(change, wire)
        return self._stamp_of(change, wire, wire.put_now(made) if made is not None else None)

    async def _apply_at_once(self, change: Change, wire: Wire) -> Stamp | None:
        """Make a change by one packet; returns where it is in, None where the general way has to be taken."""
        made = self._packet(change, wire)
        return self._stamp_of(change, wire, await wire.put(made) if made is not None else None)

    def _packet(self, change: Change, wire: Wire) -> list[bytes] | None:
        """A change as one packet; None where the general way has to be taken."""
        if change.stamp is None:
            return self._put.new(change)
        return self._put.known(change, wire.generation << GENERATION_SHIFT, touches=self._touches(change))

    def _stamp_of(self, change: Change, wire: Wire, serial: int | None) -> Stamp | None:
        if serial is None:
            return None
        if self._touches(change):
            self._noted[change.thread_id] = change.now
        return change.stamp or (serial, wire.generation << GENERATION_SHIFT)

    def _touches(self, change: Change) -> bool:
        return change.now - self._noted[change.thread_id] > ACTIVITY_SECONDS

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        query = self._packed.find(thread_id, namespace, checkpoint_id, with_writes=with_writes)
        rows, epoch_base = await self.database.query(query)
        with suppress(ValueError):
            return found_of(rows, thread_id, namespace, epoch_base)
        return await super().find(thread_id, namespace, checkpoint_id, with_writes=with_writes)

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        found: list[Any] = []
        for part in self.sql.batches(digests):
            rows, _ = await self.database.query(bound(*self.sql.chunks_in(self._packed.chunk, pool, part)))
            found += [packed for (packed,) in rows]
        return [chunk_of(packed) for packed in found] if None not in found else await super().chunks(pool, digests)

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        if own_words(before) != own_words(after):
            return await super().swap_thread(before, after)
        # A row that is set to what it was does not count as changed.
        now = await self.thread(before.thread_id)
        return now is not None and own_words(now) == own_words(before)


class MysqlChanges(Changes):
    """The general way, with rows for locks."""

    sql: MysqlStatements

    async def held(self, thread_id: str, tx: Transaction, *, exclusive: bool) -> ThreadRow | None:
        assert isinstance(tx, MysqlTransaction)
        for _ in range(_MOST_TURNS):
            pool, thread = await tx.held(thread_id, exclusive=exclusive)
            if thread is None or thread.status == "deleted" or thread.pool == pool:
                return thread
        raise Unavailable(
            f"thread {thread_id!r} was deleted and created again during {_MOST_TURNS} attempts to lock it; retry"
        )

    async def begin(self, change: Change, deleted: ThreadRow | None, tx: Transaction) -> ThreadRow | None:
        made = await super().begin(change, deleted, tx)
        if made is not None and change.joins is None:
            await tx.run(self.sql.add_pool, (made.pool,))
        return made


class MysqlDatabase:
    """The Database port of one half, over wires that are lent."""

    def __init__(self, lend: Lend, tables: MysqlTables, sql: MysqlStatements, *, is_given: bool) -> None:
        self._lend = lend
        self.tables = tables
        self._sql = sql
        # A connection of somebody else has settings of its own, and may be used by a transaction of theirs.
        self.is_given = is_given

    async def read(self, work: Work[T]) -> T:
        return await self._inside(work, _SNAPSHOT)

    async def read_once(self, work: Work[T]) -> T:
        if self.is_given:
            # It may not commit by itself: a query alone would begin a transaction and leave it open.
            return await self.read(work)
        return await self.lent(lambda wire: work(MysqlTransaction(wire, self._sql, ())))

    async def write(self, work: Work[T]) -> T:
        return await self._inside(work, _WRITING)

    async def query(self, statement: bytes) -> tuple[Sequence[Any], int]:
        """The rows of one query, and what is added to every epoch in them."""

        async def work(tx: Any) -> tuple[Sequence[Any], int]:
            return (await tx.result(statement)).rows, tx.epoch_base

        return await self.read_once(work)

    async def setup(self) -> None:
        await self._lend(self.tables.create)

    async def compact(self) -> None:
        await self.lent(lambda wire: wire.send([f"OPTIMIZE TABLE {', '.join(tables(self.tables.prefix))}".encode()]))

    async def trim(self) -> None:
        return None  # OPTIMIZE TABLE is all that there is, and writes the tables anew

    async def space(self) -> Space:
        # What the rows take. Files grow by megabytes, the server's own figures lag behind, and are of pages in use.
        answers = await self.lent(lambda wire: wire.send([each.encode() for each in self._sql.counts]))
        size = sum(int(answer.rows[0][0]) * _ROW_BYTES + int(answer.rows[0][1]) for answer in answers)
        return Space(size, size)

    async def _inside(self, work: Work[T], begin: Sequence[bytes]) -> T:
        async def act(wire: Wire) -> T:
            if self.is_given:
                wire.refuse_foreign_transaction()
            transaction = MysqlTransaction(wire, self._sql, begin)
            try:
                result = await work(transaction)
                await transaction.finish()
                return result
            except BaseException as error:
                if transaction.has_begun and is_in_step(error):
                    await wire.send([b"ROLLBACK"])
                raise

        return await self.lent(act)

    async def lent(self, act: Callable[[Wire], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a wire, on tables that are there."""

        async def on_tables(wire: Wire) -> T:
            if not self.tables.is_ready:
                await self._opened(wire)
            wire.most_bytes = self.tables.most_bytes
            return await act(wire)

        found: T = await self._lend(on_tables)
        return found

    async def _opened(self, wire: Wire) -> None:
        if self.is_given:
            wire.refuse_foreign_transaction()
        await self.tables.open(wire)
        if self.is_given:
            # Looking began a transaction where the connection does not commit by itself.
            await wire.send([b"ROLLBACK"])


class MysqlTransaction:
    """A transaction on a wire; begins with its first packet."""

    def __init__(self, wire: Wire, sql: MysqlStatements, begin: Sequence[bytes]) -> None:
        self._wire = wire
        self._sql = sql
        self._waiting = list(begin)
        self._waiting_bytes = sum(map(len, begin))
        self.epoch_base = wire.generation << GENERATION_SHIFT
        self.has_begun = False

    async def result(self, statement: bytes) -> Any:
        """The driver's result of a statement."""
        await self._add(statement)
        return (await self._flush())[-1]

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return with_text(await self.result(bound(statement, values)))

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        await self._add(bound(statement, values))
        if statement in self._sql.can_wait:
            return 0
        try:
            return int((await self._flush())[-1].affected_rows)
        except err.IntegrityError as error:
            if error.args[0] == ER.DUP_ENTRY:
                return 0  # only the statement is taken back
            raise

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        most = min(_MOST_INSERT_BYTES, self._wire.most_bytes)
        for each in bound_many(statement, values, most_bytes=most):
            await self._add(each)

    async def lock(self, pool: int) -> None:
        await self.rows(self._sql.hold, (pool,))

    async def held(self, thread_id: str, *, exclusive: bool) -> tuple[int | None, ThreadRow | None]:
        """The pool that is held now, and the thread as it is thereafter, in one go."""
        await self._add(bound(self._sql.hold_of[exclusive], (thread_id,)))
        await self._add(bound(self._sql.thread, (thread_id,)))
        answers = await self._flush()
        locked, threads = answers[-2].rows if len(answers) > 1 else (), with_text(answers[-1])
        return (locked[0][0] if locked else None), (ThreadRow(*threads[0]) if threads else None)

    async def finish(self) -> None:
        """Commit whatever there is."""
        if not (self.has_begun or self._waiting_bytes):
            return
        await self._add(b"COMMIT")
        await self._flush()
        self.has_begun = False

    async def _add(self, statement: bytes) -> None:
        if len(statement) > self._wire.most_bytes:
            raise InvalidRequest(
                f"a value takes {len(statement)} bytes to send, and the server accepts {self._wire.most_bytes} "
                f"(max_allowed_packet): raise that, nothing was written"
            )
        if self._waiting_bytes + len(statement) > self._wire.most_bytes:
            await self._flush()
        self._waiting.append(statement)
        self._waiting_bytes += len(statement) + 1

    async def _flush(self) -> list[Any]:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self.has_begun = True
        return await self._wire.send(waiting)
