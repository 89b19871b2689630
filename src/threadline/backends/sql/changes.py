"""A change, made inside a transaction by one statement after another: the general way, which every database has.

The order is that of all writers: the thread, its pool held, chunks, checkpoints, writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import Conflict, NotFound
from ...ports.checkpoints import Applied, Change, Stale, ThreadRow
from ...ports.rules import (
    ACTIVITY_SECONDS,
    asked_at,
    lease_key,
    needs_parent_row,
    no_parent_row,
    refuse_if_closed,
    refuse_if_head_moved,
    refuse_if_lease_lost,
    refuse_if_not_first,
    split_writes,
)
from .rows import Transaction, read_thread
from .statements import Statements

__all__ = ["Changes", "LastNoted", "Refused", "is_exclusive"]

# A thread can be begun by another writer, and deleted again, between two looks at it; not forever.
_MOST_BEGINNINGS = 16
# Of how many threads it is remembered when they were noted as used.
_MOST_NOTED = 100_000


class Changes:
    """Makes changes, and holds the threads that they go to."""

    def __init__(self, statements: Statements) -> None:
        self.sql = statements

    async def apply_all(self, changes: Sequence[Change], tx: Transaction) -> list[Applied | Stale]:
        return [await self.apply(change, tx) for change in changes]

    async def apply(self, change: Change, tx: Transaction) -> Applied:
        sql = self.sql
        thread = await self._opened(change, tx)
        stamp = (thread.pool, thread.epoch + tx.epoch_base)
        place = (thread.pool, thread.serial)
        if change.stamp is not None and (change.stamp != stamp or not await self._has_all(change, place, tx)):
            raise Refused(Stale(stamp))
        await self._refuse_if_overtaken(change, place, tx)
        await self._note(change, thread, tx)
        if change.chunks:
            await tx.many(sql.add_chunk, [(thread.pool, *chunk) for chunk in sorted(change.chunks)])
        if change.moved:
            await tx.many(sql.move_chunk, [(thread.pool, *chunk) for chunk in sorted(change.moved)])
        for checkpoint in change.checkpoints:
            await tx.run(sql.put_checkpoint, (*place, *checkpoint))
        writes = split_writes([*change.writes, *change.firsts], *place)
        for statement, rows in zip((sql.add_write, sql.replace_write), writes, strict=True):
            if rows:
                await tx.many(statement, rows)
        return Applied(stamp)

    async def begin(self, change: Change, deleted: ThreadRow | None, tx: Transaction) -> ThreadRow | None:
        """Make a new thread, in a pool of its own or in that of the thread it joins; None if another did."""
        sql = self.sql
        pool, epoch = 0, 0
        if change.joins is not None:
            origin = await self.held(change.joins, tx, exclusive=False)
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
        return await read_thread(self.sql, change.thread_id, tx)

    async def held(self, thread_id: str, tx: Transaction, *, exclusive: bool) -> ThreadRow | None:
        """A thread that nobody deletes or collects from until the transaction ends; `exclusive`: nor writes to.

        This is for a database whose writers exclude each other anyway.
        """
        return await read_thread(self.sql, thread_id, tx)

    async def held_with_pool(self, thread_id: str, tx: Transaction) -> ThreadRow | None:
        """A thread, with every thread of its pool held alone."""
        return await self.held(thread_id, tx, exclusive=True)

    async def _opened(self, change: Change, tx: Transaction) -> ThreadRow:
        """The thread that a change goes to, made when need be, with its pool held."""
        for _ in range(_MOST_BEGINNINGS):
            thread = await self.held(change.thread_id, tx, exclusive=is_exclusive(change))
            if thread is not None:
                refuse_if_closed(thread, change)
            if thread is not None and thread.status != "deleted":
                if needs_parent_row(thread, change):
                    at = (thread.pool, thread.serial, change.continues)
                    if not await tx.rows(self.sql.has_checkpoint, at):
                        raise no_parent_row(change)
                return thread
            made = await self.begin(change, thread, tx)
            if made is not None:
                return made
        raise Conflict(
            f"the thread {change.thread_id!r} was begun and deleted again and again, or there is one of that id "
            f"which this user may not see: try again, or choose another id"
        )

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


class LastNoted(dict[str, float]):
    """When threads were last noted as used, as far as this process knows: until that is long ago, no put looks."""

    def __missing__(self, thread_id: str) -> float:
        return -math.inf

    def __setitem__(self, thread_id: str, time: float) -> None:
        if len(self) >= _MOST_NOTED:
            self.clear()
        super().__setitem__(thread_id, time)


class Refused(Exception):
    """Ends a transaction whose change is stale."""

    def __init__(self, stale: Stale) -> None:
        self.stale = stale


def is_exclusive(change: Change) -> bool:
    """Whether the writer must be alone with its thread: who expects a head, or to be the first, must see the others."""
    return change.head is not None or bool(change.firsts)
