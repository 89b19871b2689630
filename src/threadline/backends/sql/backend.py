"""The Backend port over any SQL database: what is asked, in which transaction, in which order.

`Database` is what a driver provides: run a function inside a read or a write transaction. The functions
are coroutines over a `Transaction`; a blocking driver finishes them without suspending. A write
transaction excludes other writers of the pool (SQLite: of the file) from its first statement on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ...errors import Conflict, NotFound
from ..port import (
    Applied,
    Change,
    CheckpointKey,
    CheckpointRow,
    ChunkRow,
    Found,
    PoolSummary,
    Query,
    Stale,
    ThreadRow,
    WriteRow,
)
from ..rules import ACTIVITY_SECONDS, mark, needs_parent_row, refuse_if_closed, write_order
from .search import page_statement
from .statements import Statements

__all__ = ["Database", "SqlBackend", "Transaction"]

T = TypeVar("T")


class Transaction(Protocol):
    """One transaction of a driver."""

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute; returns the number of rows changed."""

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute once for each set of values."""


class Database(Protocol):
    """Runs work in transactions."""

    async def read(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        """The result of work that only reads, on one consistent state."""

    async def write(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        """The result of work that writes; durable when this returns. Work that raises changes nothing."""

    async def size_bytes(self) -> int:
        """What the database takes on disk."""

    async def setup(self) -> None:
        """Create or migrate the schema."""


class SqlBackend:
    """Records in the tables of one SQL database."""

    def __init__(self, database: Database, statements: Statements) -> None:
        self.database = database
        self.sql = statements

    async def setup(self) -> None:
        await self.database.setup()

    # -- writing

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

    async def forms(self) -> set[int]:
        async def work(tx: Transaction) -> set[int]:
            return {form for statement in self.sql.forms for (form,) in await tx.rows(statement)}

        return await self.database.read(work)

    # -- reading

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        async def work(tx: Transaction) -> Found | None:
            if checkpoint_id is None:
                rows = await tx.rows(self.sql.newest, (thread_id, namespace))
            else:
                rows = await tx.rows(self.sql.find, (thread_id, namespace, checkpoint_id))
            if not rows:
                return None
            found = _found(rows[0])
            if with_writes:
                place = (found.pool, rows[0][-1], namespace, found.row.id)
                return found._replace(writes=_ordered(await tx.rows(self.sql.writes, place)))
            return found

        return await self.database.read(work)

    async def page(self, query: Query) -> list[Found]:
        async def work(tx: Transaction) -> list[Found]:
            statement, values = page_statement(self.sql, query)
            rows = await tx.rows(statement, values)
            found = [_found(row) for row in rows]
            if query.with_writes:
                await self._add_writes(rows, found, tx)
            return found

        return await self.database.read(work)

    async def _add_writes(self, rows: Sequence[Any], found: list[Found], tx: Transaction) -> None:
        """Fill in the writes of a page: one query for each namespace of each thread in it."""
        ids: dict[tuple[int, int, str], list[str]] = defaultdict(list)
        for row, one in zip(rows, found, strict=True):
            ids[one.pool, row[-1], one.row.namespace].append(one.row.id)
        writes: dict[tuple[int, str, str], list[Any]] = defaultdict(list)
        for (pool, serial, namespace), inside in ids.items():
            reach = (pool, serial, namespace, min(inside), max(inside))
            for row in await tx.rows(self.sql.writes_between, reach):
                writes[serial, namespace, row[1]].append(row)
        for position, (row, one) in enumerate(zip(rows, found, strict=True)):
            own = writes.get((row[-1], one.row.namespace, one.row.id))
            if own:
                found[position] = one._replace(writes=_ordered(own))

    async def chain(self, thread_id: str, namespace: str, checkpoint_id: str, limit: int) -> list[Found]:
        async def work(tx: Transaction) -> list[Found]:
            thread = await self._thread(thread_id, tx)
            if thread is None:
                return []
            place = (thread.pool, thread.serial, namespace)
            rows = await tx.rows(self.sql.chain, (*place, checkpoint_id, *place, limit - 1, *place))
            head = (thread_id, thread.pool, thread.epoch)
            found = [_found((*head, *row)) for row in rows]
            await self._add_writes([(*head, *row, thread.serial) for row in rows], found, tx)
            return found

        return await self.database.read(work)

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, tuple[bytes, int, bytes]]:
        async def work(tx: Transaction) -> dict[bytes, tuple[bytes, int, bytes]]:
            found: dict[bytes, tuple[bytes, int, bytes]] = {}
            for part in self._batches(digests):
                rows = await tx.rows(self.sql.chunks_in("digest, links, form, data", len(part)), (pool, *part))
                found.update((digest, (links, form, data)) for digest, links, form, data in rows)
            return found

        return await self.database.read(work)

    async def missing(self, pool: int, digests: Sequence[bytes]) -> set[bytes]:
        return set(digests) - (await self.links(pool, digests)).keys()

    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self.database.read(lambda tx: self._links(pool, digests, tx=tx))

    async def _links(self, pool: int, digests: Sequence[bytes], *, tx: Transaction) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for part in self._batches(digests):
            found.update(await tx.rows(self.sql.chunks_in("digest, links", len(part)), (pool, *part)))
        return found

    async def pool_links(self, pool: int) -> list[bytes]:
        return await self.database.read(lambda tx: self._pool_links(pool, tx))

    async def _pool_links(self, pool: int, tx: Transaction) -> list[bytes]:
        rows = await tx.rows(self.sql.checkpoint_links, (pool,)) + await tx.rows(self.sql.write_links, (pool,))
        return [links for (links,) in rows if links]

    async def pool_digests(self, pool: int, after: bytes, limit: int) -> list[bytes]:
        rows = await self.database.read(lambda tx: tx.rows(self.sql.digests, (pool, after, limit)))
        return [digest for (digest,) in rows]

    async def thread(self, thread_id: str) -> ThreadRow | None:
        return await self.database.read(lambda tx: self._thread(thread_id, tx))

    async def _thread(self, thread_id: str, tx: Transaction) -> ThreadRow | None:
        rows = await tx.rows(self.sql.thread, (thread_id,))
        return ThreadRow(*rows[0]) if rows else None

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        values = (after, prefix, _end_of(prefix), limit)
        rows = await self.database.read(lambda tx: tx.rows(self.sql.threads, values))
        return [ThreadRow(*row) for row in rows]

    async def count_threads(self, prefix: str = "") -> int:
        rows = await self.database.read(lambda tx: tx.rows(self.sql.count_threads, (prefix, _end_of(prefix))))
        return int(rows[0][0])

    async def get_meta(self, key: str) -> bytes | None:
        rows = await self.database.read(lambda tx: tx.rows(self.sql.meta, (key,)))
        return bytes(rows[0][0]) if rows else None

    async def summary(self, now: float) -> PoolSummary:
        async def work(tx: Transaction) -> PoolSummary:
            sql = self.sql
            [(threads,)] = await tx.rows(sql.count_threads, ("", _end_of("")))
            [(checkpoints, checkpoint_bytes)] = await tx.rows(sql.count_checkpoints)
            [(writes, write_bytes)] = await tx.rows(sql.count_writes)
            [(chunks, chunk_bytes)] = await tx.rows(sql.count_chunks)
            hours: dict[int, int] = defaultdict(int)
            for (created,) in await tx.rows(sql.recent, (now - 24 * 3600,)):
                hours[int((now - created) // 3600)] += 1
            return PoolSummary(
                threads=threads,
                checkpoints=checkpoints,
                writes=writes,
                chunks=chunks,
                chunk_bytes=int(chunk_bytes),
                row_bytes=int(checkpoint_bytes + write_bytes),
                recent_hours=dict(hours),
                busiest=[(thread_id, count) for thread_id, count in await tx.rows(sql.busiest)],
            )

        return await self.database.read(work)

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int]]:
        return await self.database.read(lambda tx: tx.rows(self.sql.chunk_sizes, (pool, after, limit)))

    async def root_sizes(self, pool: int) -> list[tuple[bytes, int]]:
        return await self.database.read(lambda tx: tx.rows(self.sql.root_sizes, (pool,)))

    async def size_bytes(self) -> int:
        return await self.database.size_bytes()

    def _batches(self, digests: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Digests in parts of a few fixed sizes, the last one padded, so that statements stay prepared."""
        position = 0
        while position < len(digests):
            left = len(digests) - position
            size = next((size for size in (1, 8, 64) if left <= size), self.sql.dialect.most_values)
            part = list(digests[position : position + size])
            yield part + part[-1:] * (size - len(part))
            position += size


class _Refused(Exception):
    """Ends a transaction whose change is stale."""

    def __init__(self, stale: Stale) -> None:
        self.stale = stale


def _found(row: Sequence[Any]) -> Found:
    return Found(row[0], row[1], row[2], CheckpointRow(*row[3:16]), [])


def _ordered(rows: Sequence[Sequence[Any]]) -> list[WriteRow]:
    writes = [WriteRow(*row) for row in rows]
    writes.sort(key=lambda write: write_order(write.task_path, write.task_id, write.idx))
    return writes


def _end_of(prefix: str) -> str:
    """The first text after everything that starts with the prefix, in code point order."""
    return prefix + "\U0010ffff" * 3
