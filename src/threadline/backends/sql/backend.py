"""The Backend port over any SQL database: what is asked, in which transaction, in which order.

`Database` is what a driver provides: run a function inside a read or a write transaction. The functions
are coroutines over a `Transaction`; a blocking driver finishes them without suspending. A write
transaction excludes other writers of the pool (SQLite: of the file) from its first statement on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...errors import Conflict, NotFound
from ..port import (
    Applied,
    Change,
    CheckpointKey,
    CheckpointRow,
    ChunkRow,
    Stale,
    ThreadRow,
    WriteRow,
)
from ..rules import ACTIVITY_SECONDS, mark, needs_parent_row, refuse_if_closed
from .reader import Database, SqlReader, Transaction

__all__ = ["Database", "SqlBackend", "Transaction"]


class SqlBackend(SqlReader):
    """Records in the tables of one SQL database."""

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
        thread = await self._thread(change.thread_id, tx)
        if thread is not None:
            refuse_if_closed(thread, change)
        if thread is None or thread.status == "deleted":
            thread = await self._begin(change, thread, tx)
        elif needs_parent_row(thread, change):
            at = (thread.pool, thread.serial, change.continues)
            if not await tx.rows(sql.has_checkpoint, at):
                raise Conflict(f"the thread {change.thread_id!r} was deleted while this run was going on")
        stamp = (thread.pool, thread.epoch)
        if change.stamp is not None and change.stamp != stamp:
            raise _Refused(Stale(stamp))
        place = (thread.pool, thread.serial)
        if change.chunks:
            await tx.many(sql.add_chunk, [(thread.pool, *chunk) for chunk in sorted(change.chunks)])
        for checkpoint in change.checkpoints:
            await tx.run(sql.put_checkpoint, (*place, *checkpoint))
        if change.writes:
            await self._write_writes(place, change.writes, tx)
        if change.now - thread.active > ACTIVITY_SECONDS:
            await tx.run(sql.touch, (change.now, change.thread_id))
        return Applied(stamp)

    async def _begin(self, change: Change, deleted: ThreadRow | None, tx: Transaction) -> ThreadRow:
        """Make a new thread, in a pool of its own or in that of the thread it joins."""
        sql = self.sql
        if deleted is not None:
            await tx.run(sql.drop_thread, (change.thread_id,))
        pool, epoch = 0, 0
        if change.joins is not None:
            origin = await self._thread(change.joins, tx)
            if origin is None or origin.status == "deleted":
                raise NotFound(f"there is no thread {change.joins!r}")
            pool, epoch = origin.pool, origin.epoch
        before = deleted.deleted_before if deleted else None
        row = (change.thread_id, pool, epoch, before, change.joins, change.now, change.now)
        await tx.run(sql.new_thread, row)
        if change.joins is None:
            await tx.run(sql.own_pool, (change.thread_id,))
        made = await self._thread(change.thread_id, tx)
        assert made is not None
        return made

    async def _write_writes(self, place: tuple[int, int], writes: Sequence[WriteRow], tx: Transaction) -> None:
        for replaces, statement in ((False, self.sql.add_write), (True, self.sql.replace_write)):
            rows = [(*place, *write[:-1]) for write in writes if write.replaces is replaces]
            if rows:
                await tx.many(statement, rows)

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        async def work(tx: Transaction) -> None:
            sql = self.sql
            thread = await self._thread(thread_id, tx)
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
        self, thread_id: str, keys: Sequence[CheckpointKey], settled: Sequence[CheckpointKey] = ()
    ) -> int:
        async def work(tx: Transaction) -> int:
            thread = await self._thread(thread_id, tx)
            if thread is None or thread.status == "deleted":
                return 0
            places = [(thread.pool, thread.serial, *key) for key in keys]
            emptied = [(thread.pool, thread.serial, *key) for key in settled]
            await tx.many(self.sql.drop_writes_at, places + emptied)
            removed = 0
            for place in places:
                removed += await tx.run(self.sql.drop_checkpoint, place)
            return removed

        return await self.database.write(work)

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        async def work(tx: Transaction) -> int:
            await mark(await self._pool_links(pool, tx), reachable, partial(self._links, pool, tx=tx))
            doomed = [digest for digest in candidates if digest not in reachable]
            if doomed:
                await tx.many(self.sql.drop_chunk, [(pool, digest) for digest in doomed])
                await tx.run(self.sql.raise_epoch, (pool,))
            return len(doomed)

        return await self.database.write(work)

    async def swap_meta(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        async def work(tx: Transaction) -> bool:
            rows = await tx.rows(self.sql.meta, (key,))
            if (bytes(rows[0][0]) if rows else None) != before:
                return False
            if after is None:
                await tx.run(self.sql.drop_meta, (key,))
            else:
                await tx.run(self.sql.set_meta, (key, after))
            return True

        return await self.database.write(work)

    async def rewrap_chunks(self, pool: int, rows: Sequence[tuple[ChunkRow, ChunkRow]]) -> None:
        values = [(new.form, new.data, pool, old.digest, old.form, old.data) for old, new in rows]
        await self.database.write(lambda tx: tx.many(self.sql.rewrap_chunk, values))

    async def rewrap_rows(
        self,
        thread_id: str,
        checkpoints: Sequence[tuple[CheckpointRow, CheckpointRow]],
        writes: Sequence[tuple[WriteRow, WriteRow]],
    ) -> None:
        async def work(tx: Transaction) -> None:
            thread = await self._thread(thread_id, tx)
            if thread is None:
                return
            place = (thread.pool, thread.serial)
            await tx.many(
                self.sql.rewrap_checkpoint,
                [
                    (
                        new.form,
                        new.document,
                        new.metadata_form,
                        new.metadata,
                        *place,
                        old.namespace,
                        old.id,
                        old.document,
                    )
                    for old, new in checkpoints
                ],
            )
            await tx.many(
                self.sql.rewrap_write,
                [
                    (new.form, new.data, *place, old.namespace, old.checkpoint_id, old.task_id, old.idx, old.data)
                    for old, new in writes
                ],
            )

        await self.database.write(work)


class _Refused(Exception):
    """Ends a transaction whose change is stale."""

    def __init__(self, stale: Stale) -> None:
        self.stale = stale
