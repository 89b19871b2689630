"""The Backend port over any SQL database: what is asked, in which transaction, in which order.

`Database` is what a driver provides: run a function inside a read or a write transaction. The functions
are coroutines over a `Transaction`; a blocking driver finishes them without suspending. Writers and forks
hold their pool shared, deletion and collection exclusive (SQLite: every writer holds the file); what was
read before the lock was granted is read again. Work may be run again from its start after a transient fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...base.checkpoint import INTERRUPT
from ...base.namespaces import ROOT
from ...errors import Conflict, NotFound
from ...ports.checkpoints import (
    Applied,
    Change,
    CheckpointKey,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Guard,
    Pairs,
    Stale,
    ThreadRow,
    WriteRow,
)
from ...ports.rules import (
    ACTIVITY_SECONDS,
    asked_at,
    lease_key,
    mark,
    needs_parent_row,
    no_parent_row,
    own_words,
    refuse_if_closed,
    refuse_if_head_moved,
    refuse_if_lease_lost,
    refuse_if_not_first,
)
from .reader import Database, SqlReader, Transaction
from .records import RecordStatements, SqlRecords
from .statements import Statements

__all__ = ["Database", "SqlBackend", "Transaction"]

# A thread can be begun by another writer, and deleted again, between two looks at it; not forever.
_MOST_BEGINNINGS = 16


class SqlBackend(SqlReader, SqlRecords):
    """All ports over the tables of one SQL database."""

    def __init__(self, database: Database, statements: Statements) -> None:
        SqlReader.__init__(self, database, statements)
        SqlRecords.__init__(self, database, RecordStatements(statements.dialect, statements.prefix))

    async def setup(self) -> None:
        await self.database.setup()

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        try:
            return await self.database.write(partial(self._apply_all, changes))
        except _Refused as refused:
            return [refused.stale for _ in changes]

    async def _apply_all(self, changes: Sequence[Change], tx: Transaction) -> list[Applied | Stale]:
        return [await self._apply(change, tx) for change in changes]

    async def _apply(self, change: Change, tx: Transaction) -> Applied:
        sql = self.sql
        thread = await self._opened(change, tx)
        stamp = (thread.pool, thread.epoch + tx.epoch_base)
        place = (thread.pool, thread.serial)
        if change.stamp is not None and (change.stamp != stamp or not await self._has_all(change, place, tx)):
            raise _Refused(Stale(stamp))
        await self._refuse_if_overtaken(change, place, tx)
        await self._note(change, thread, tx)
        if change.chunks:
            await tx.many(sql.add_chunk, [(thread.pool, *chunk) for chunk in sorted(change.chunks)])
        if change.moved:
            await tx.many(sql.move_chunk, [(thread.pool, *chunk) for chunk in sorted(change.moved)])
        for checkpoint in change.checkpoints:
            await tx.run(sql.put_checkpoint, (*place, *checkpoint))
        if change.writes or change.firsts:
            await self._write_writes(place, [*change.writes, *change.firsts], tx)
        return Applied(stamp)

    async def _note(self, change: Change, thread: ThreadRow, tx: Transaction) -> None:
        """What a change says of its thread, before anything that others may wait for: all writers keep this order."""
        sql = self.sql
        if change.settles is not None:
            await tx.run(sql.settle, (change.thread_id, change.settles))
        asked = asked_at(change)
        if asked is not None:
            await tx.run(sql.ask, (asked, change.thread_id, asked))
        if change.now - thread.active > ACTIVITY_SECONDS:
            await tx.run(sql.touch, (change.now, change.thread_id))

    async def _opened(self, change: Change, tx: Transaction) -> ThreadRow:
        """The thread that a change goes to, made when need be, with its pool held."""
        # Writers who expect the same head, or to be the first, must not pass each other: one has to see the other.
        exclusive = change.head is not None or bool(change.firsts)
        for _ in range(_MOST_BEGINNINGS):
            thread = await self._held(change.thread_id, tx, exclusive=exclusive)
            if thread is not None:
                refuse_if_closed(thread, change)
            if thread is not None and thread.status != "deleted":
                if needs_parent_row(thread, change):
                    at = (thread.pool, thread.serial, change.continues)
                    if not await tx.rows(self.sql.has_checkpoint, at):
                        raise no_parent_row(change)
                return thread
            made = await self._begin(change, thread, tx)
            if made is not None:
                return made
        raise Conflict(
            f"the thread {change.thread_id!r} was begun and deleted again and again, or there is one of that id "
            f"which this user may not see: try again, or choose another id"
        )

    async def _begin(self, change: Change, deleted: ThreadRow | None, tx: Transaction) -> ThreadRow | None:
        """Make a new thread, in a pool of its own or in that of the thread it joins; None if another did."""
        sql = self.sql
        pool, epoch = 0, 0
        if change.joins is not None:
            origin = await self._held(change.joins, tx, exclusive=False)
            if origin is None or origin.status == "deleted":
                raise NotFound(f"there is no thread {change.joins!r}")
            pool, epoch = origin.pool, origin.epoch
        if deleted is not None and not await tx.run(sql.drop_thread, (change.thread_id, deleted.serial)):
            return None
        before = deleted.deleted_before if deleted else None
        forked_from, created = change.beginning
        row = (change.thread_id, pool, epoch, "active", before, forked_from, created, change.now, "[]")
        if not await tx.run(sql.new_thread, row):
            return None
        if change.joins is None and sql.own_pool:
            await tx.run(sql.own_pool, (change.thread_id,))
        return await self._thread(change.thread_id, tx)

    async def _held(self, thread_id: str, tx: Transaction, *, exclusive: bool) -> ThreadRow | None:
        """A thread with its pool held, as it is now that nobody else can delete or collect there."""
        thread = await self._thread(thread_id, tx)
        while thread is not None and await tx.lock(thread.pool, exclusive=exclusive):
            again = await self._thread(thread_id, tx)
            if again is None or again.pool == thread.pool:
                return again
            thread = again
        return thread

    async def _held_with_pool(self, thread_id: str, tx: Transaction) -> ThreadRow | None:
        """A thread, with every thread of its pool held alone."""
        return await self._held(thread_id, tx, exclusive=True)

    async def _has_all(self, change: Change, place: tuple[int, int], tx: Transaction) -> bool:
        """Whether the rows by which the writer knows of chunks are there."""
        return all([await tx.rows(self.sql.has_witness, (*place, *witness)) for witness in change.witnesses])

    async def _refuse_if_overtaken(self, change: Change, place: tuple[int, int], tx: Transaction) -> None:
        """What a writer asked to be refused for: a head that moved, a lease that was lost, a write that was made."""
        if change.head is not None:
            [(newest,)] = await tx.rows(self.sql.newest_id, (*place, change.head[0]))
            refuse_if_head_moved(change, newest)
        if change.lease is not None:
            rows = await tx.rows(self.sql.held_meta, (lease_key(change.thread_id),))
            refuse_if_lease_lost(change, bytes(rows[0][0]) if rows else None)
        for write in change.firsts:
            key = (write.namespace, write.checkpoint_id, write.task_id, write.idx)
            rows = await tx.rows(self.sql.write_data, (*place, *key))
            refuse_if_not_first(write, bytes(rows[0][0]) if rows else None)

    async def _write_writes(self, place: tuple[int, int], writes: Sequence[WriteRow], tx: Transaction) -> None:
        for replaces, statement in ((False, self.sql.add_write), (True, self.sql.replace_write)):
            rows = [(*place, *write[:-1]) for write in writes if write.replaces is replaces]
            if rows:
                await tx.many(statement, rows)

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        async def work(tx: Transaction) -> None:
            sql = self.sql
            thread = await self._held_with_pool(thread_id, tx)
            if thread is None or thread.status == "deleted":
                return
            place = (thread.pool, thread.serial)
            await tx.run(sql.drop_writes, place)
            await tx.run(sql.drop_checkpoints, place)
            await tx.run(sql.bury, (deleted_before, now, thread_id))
            [(mates,)] = await tx.rows(sql.pool_mates, (thread.pool,))
            if not mates:
                await tx.run(sql.drop_pool, (thread.pool,))
                await tx.run(sql.raise_epoch, (thread.pool,))

        await self.database.write(work)

    async def remove_checkpoints(
        self, thread_id: str, keys: CheckpointKeys, settled: CheckpointKeys = (), guard: Guard | None = None
    ) -> int | None:
        known = frozenset(guard.seen if guard is not None else ())

        async def work(tx: Transaction) -> int | None:
            # Held, so that nobody goes on from one of these between the look and the deletion.
            thread = await self._held(thread_id, tx, exclusive=True)
            if thread is None or thread.status == "deleted":
                return 0
            place = (thread.pool, thread.serial)
            if guard is not None:
                heirs = await self._child_keys(place, [*keys, *settled, *guard.staying], tx)
                if not known.issuperset(heirs):
                    return None
            await self._drop_named(self.sql.w, "checkpoint_id", place, [*keys, *settled], tx)
            removed = await self._drop_named(self.sql.c, "id", place, keys, tx)
            if any(key.namespace == ROOT for key in (*keys, *settled)):
                await tx.run(self.sql.ask_again, (*place, INTERRUPT, *place, thread_id))
            return removed

        return await self.database.write(work)

    async def _child_keys(self, place: tuple[int, int], keys: CheckpointKeys, tx: Transaction) -> list[CheckpointKey]:
        """The checkpoints that have one of these for their parent."""
        return [
            CheckpointKey(namespace, child)
            for namespace, part in self._parts(keys)
            for (child,) in await tx.rows(*self.sql.child_ids((*place, namespace), part))
        ]

    async def _drop_named(
        self, table: str, column: str, place: tuple[int, int], keys: CheckpointKeys, tx: Transaction
    ) -> int:
        """Delete the rows of these checkpoints, many in a statement: each is a way to a server and back."""
        return sum(
            [
                await tx.run(*self.sql.drop_among(table, column, (*place, namespace), part))
                for namespace, part in self._parts(keys)
            ]
        )

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        async def work(tx: Transaction) -> int:
            await tx.lock(pool, exclusive=True)
            await mark(await self._roots(pool, tx), reachable, partial(self._links, pool, tx=tx))
            doomed = [digest for digest in candidates if digest not in reachable]
            if doomed:
                for part in self._batches(doomed):
                    await tx.run(*self.sql.drop_chunks(pool, part))
                await tx.run(self.sql.raise_epoch, (pool,))
            return len(doomed)

        return await self.database.write(work)

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        return await self.database.write(lambda tx: self._swap_thread(before, after, tx))

    async def swap_threads(self, swaps: Sequence[tuple[ThreadRow, ThreadRow]]) -> list[bool]:
        # In one order: two that swap the same threads wait for each other in one direction only.
        order = sorted(range(len(swaps)), key=lambda at: swaps[at][0].serial)

        async def work(tx: Transaction) -> list[bool]:
            made = {at: await self._swap_thread(*swaps[at], tx) for at in order}
            return [made[at] for at in range(len(swaps))]

        return await self.database.write(work)

    async def _swap_thread(self, before: ThreadRow, after: ThreadRow, tx: Transaction) -> bool:
        serial, *was = own_words(before)
        status, expires, tags, metadata = was
        values = (*own_words(after)[1:], before.thread_id, serial, status, expires, tags, b"", metadata)
        if await tx.run(self.sql.swap_thread, values):
            return True
        # It may be what it should become: this very swap was made before, and its answer lost.
        thread = await self._thread(before.thread_id, tx)
        return thread is not None and own_words(thread) == own_words(after)

    async def swap_lease(self, thread_id: str, before: bytes | None, after: bytes | None) -> bool:
        key = lease_key(thread_id)

        async def work(tx: Transaction) -> bool:
            sql = self.sql
            if before == after:
                changed = 0
            elif before is None:
                changed = await tx.run(sql.add_meta, (key, after))
            elif after is None:
                changed = await tx.run(sql.drop_meta, (key, before))
            else:
                changed = await tx.run(sql.swap_meta, (after, key, before))
            if changed:
                return True
            # A lease that is already what it should become: this very swap was made before, and its answer lost.
            rows = await tx.rows(sql.meta, (key,))
            return (bytes(rows[0][0]) if rows else None) == after

        return await self.database.write(work)

    async def compact(self) -> None:
        await self.database.compact()

    async def trim(self) -> None:
        await self.database.trim()

    async def rewrap(
        self,
        pool: int,
        chunks: Pairs[ChunkRow] = (),
        *,
        thread: int = 0,
        checkpoints: Pairs[CheckpointRow] = (),
        writes: Pairs[WriteRow] = (),
    ) -> None:
        sql, place = self.sql, (pool, thread)
        steps = (
            (sql.rewrap_chunk, [(*new[1:], pool, old.digest, old.form, old.data) for old, new in chunks]),
            (sql.rewrap_checkpoint, [(*new[4:8], *place, *old.key, old.document) for old, new in checkpoints]),
            (
                sql.rewrap_write,
                [(new.form, new.data, *place, *old.key, old.task_id, old.idx, old.data) for old, new in writes],
            ),
        )

        async def work(tx: Transaction) -> None:
            for statement, values in steps:
                if values:
                    await tx.many(statement, values)

        await self.database.write(work)


class _Refused(Exception):
    """Ends a transaction whose change is stale."""

    def __init__(self, stale: Stale) -> None:
        self.stale = stale
