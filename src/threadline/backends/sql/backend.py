"""The ports of checkpoints, upkeep, wholes and storage over any SQL database; how a change is made is in changes.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...base.checkpoint import INTERRUPT
from ...base.namespaces import ROOT
from ...ports.checkpoints import (
    Applied,
    Asking,
    Change,
    CheckpointKey,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Found,
    Guard,
    Pairs,
    Query,
    Stale,
    ThreadRow,
    Weight,
    Weights,
    WriteRow,
)
from ...ports.rules import lease_key, mark, own_words
from ...ports.storage import Space
from ...ports.whole import Outline, Whole
from .changes import Changes, Refused
from .records import RecordStatements, SqlRecords
from .rows import Database, Transaction, found_row, ordered_writes, read_thread, rows_up_to, wholes_of
from .search import page_statements, walk_statements
from .statements import CHUNK_COLUMNS, Statements

__all__ = ["Database", "SqlBackend", "Transaction"]


class SqlBackend(SqlRecords):
    """All ports over the tables of one SQL database."""

    def __init__(self, database: Database, statements: Statements, changes: Changes | None = None) -> None:
        super().__init__(database, RecordStatements(statements.dialect, statements.prefix))
        self.sql = statements
        self.changes = changes or Changes(statements)

    async def setup(self) -> None:
        await self.database.setup()

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        try:
            return await self.database.write(partial(self.changes.apply_all, changes))
        except Refused as refused:
            return [refused.stale for _ in changes]

    async def forms(self) -> dict[int, int]:
        async def work(tx: Transaction) -> dict[int, int]:
            found: dict[int, int] = defaultdict(int)
            for statement in self.sql.forms:
                for form, other, count in await tx.rows(statement):
                    for one in {form, other}:
                        found[one] += count
            return dict(found)

        return await self.database.read(work)

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
            found = found_row(rows[0], tx.epoch_base)
            if with_writes:
                place = (found.pool, rows[0][-1], namespace, found.row.id)
                return found._replace(writes=ordered_writes(await tx.rows(self.sql.writes, place)))
            return found

        return await (self.database.read(work) if with_writes else self.database.read_once(work))

    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        async def work(tx: Transaction) -> list[Found]:
            found: list[Found] = []
            for part in self.sql.batches(thread_ids):
                rows = await tx.rows(*self.sql.heads(part, namespace))
                found += [found_row(row, tx.epoch_base) for row in rows]
            return found

        return await self.database.read_once(work)

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        async def work(tx: Transaction) -> list[Asking]:
            rows = [ThreadRow(*row) for row in await tx.rows(*self.sql.threads(after, prefix, limit, asking=True))]
            writes: dict[int, list[Any]] = defaultdict(list)
            for part in self.sql.batches([row.thread_id for row in rows]):
                for *write, serial in await tx.rows(*self.sql.newest_writes_of(part)):
                    writes[serial].append(write)
            return [
                Asking(row._replace(epoch=row.epoch + tx.epoch_base), ordered_writes(writes[row.serial]))
                for row in rows
            ]

        return await self.database.read(work)

    async def page(self, query: Query) -> list[Found]:
        statements = page_statements(self.sql, query)

        async def work(tx: Transaction) -> list[Found]:
            rows = await rows_up_to(query.limit, statements, tx)
            found = [found_row(row, tx.epoch_base) for row in rows]
            if query.with_writes:
                await self._add_writes(rows, found, tx)
            return found

        is_one_query = len(statements) == 1 and not query.with_writes
        return await (self.database.read_once(work) if is_one_query else self.database.read(work))

    async def outline(self, thread_id: str, after: CheckpointKey | None, limit: int) -> list[Outline]:
        statements = walk_statements(self.sql.outlines, thread_id, after)
        return await self.database.read(lambda tx: rows_up_to(limit, statements, tx))

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
                found[position] = one._replace(writes=ordered_writes(own))

    async def chain(self, thread_id: str, namespace: str, checkpoint_id: str, limit: int) -> list[Found]:
        async def work(tx: Transaction) -> list[Found]:
            thread = await read_thread(self.sql, thread_id, tx)
            if thread is None:
                return []
            place = (thread.pool, thread.serial, namespace)
            rows = await tx.rows(self.sql.chain, (*place, checkpoint_id, *place, limit - 1, *place))
            head = (thread_id, thread.pool, thread.epoch)
            found = [found_row((*head, *row), tx.epoch_base) for row in rows]
            await self._add_writes([(*head, *row, thread.serial) for row in rows], found, tx)
            return found

        return await self.database.read(work)

    async def children(self, thread_id: str, keys: CheckpointKeys) -> list[Found]:
        async def work(tx: Transaction) -> list[Found]:
            thread = await read_thread(self.sql, thread_id, tx)
            if thread is None:
                return []
            head, place = (thread_id, thread.pool, thread.epoch), (thread.pool, thread.serial)
            return [
                found_row((*head, *row), tx.epoch_base)
                for namespace, part in self.sql.parts(keys)
                for row in await tx.rows(*self.sql.children((*place, namespace), part))
            ]

        return await self.database.read(work)

    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        async def work(tx: Transaction) -> list[WriteRow]:
            thread = await read_thread(self.sql, thread_id, tx)
            if thread is None:
                return []
            rows = await tx.rows(self.sql.thread_writes, (thread.pool, thread.serial))
            return [WriteRow(*row) for row in rows]

        return await self.database.read(work)

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        async def work(tx: Transaction) -> list[tuple[bytes, bytes, int, bytes]]:
            found: list[tuple[bytes, bytes, int, bytes]] = []
            for part in self.sql.batches(digests):
                found += await tx.rows(*self.sql.chunks_in(CHUNK_COLUMNS, pool, part))
            return found

        return await self.database.read_once(work)

    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self.database.read_once(lambda tx: self._links(pool, digests, tx=tx))

    async def _links(self, pool: int, digests: Sequence[bytes], *, tx: Transaction) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for part in self.sql.batches(digests):
            found.update(await tx.rows(*self.sql.chunks_in("digest, links", pool, part)))
        return found

    async def roots(self, pool: int) -> dict[bytes, int]:
        return await self.database.read_once(lambda tx: self._roots(pool, tx))

    async def _roots(self, pool: int, tx: Transaction) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for links, count in await tx.rows(self.sql.roots, (pool, pool)):
            if links:
                found[links] = found.get(links, 0) + count
        return found

    async def pools(self, after: int, limit: int) -> list[int]:
        rows = await self.database.read_once(lambda tx: tx.rows(self.sql.pools, (after, limit)))
        return [pool for (pool,) in rows]

    async def thread(self, thread_id: str) -> ThreadRow | None:
        async def work(tx: Transaction) -> ThreadRow | None:
            row = await read_thread(self.sql, thread_id, tx)
            return row._replace(epoch=row.epoch + tx.epoch_base) if row is not None else None

        return await self.database.read_once(work)

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        async def work(tx: Transaction) -> list[ThreadRow]:
            rows = await tx.rows(*self.sql.threads(after, prefix, limit))
            found = [ThreadRow(*row) for row in rows]
            return [row._replace(epoch=row.epoch + tx.epoch_base) for row in found] if tx.epoch_base else found

        return await self.database.read_once(work)

    async def wholes(self, thread_ids: Sequence[str]) -> list[Whole] | None:
        async def work(tx: Transaction) -> list[Whole]:
            found: list[Whole] = []
            if self.sql.before_wholes:
                await tx.rows(self.sql.before_wholes)
            for part in self.sql.batches(list(dict.fromkeys(thread_ids))):
                threads, checkpoints, writes = [await tx.rows(*one) for one in self.sql.wholes(part)]
                named = [ThreadRow(*row) for row in threads]
                chunks: list[Any] = []
                for pools in self.sql.batches(list({row.pool for row in named if row.status != "deleted"})):
                    chunks += await tx.rows(*self.sql.chunks_of(pools))
                found += wholes_of(named, checkpoints, writes, chunks, tx.epoch_base)
            return found

        return await self.database.read(work)

    async def count_threads(self, prefix: str = "") -> int:
        [(count,)] = await self.database.read_once(lambda tx: tx.rows(*self.sql.count_threads(prefix)))
        return int(count)

    async def leases(self, thread_id: str | None = None) -> list[bytes]:
        if thread_id is not None:
            statement, names = self.sql.meta, [lease_key(thread_id)]
        else:
            statement, names = self.sql.meta_values, [lease_key(""), lease_key("")[:-1] + ";"]  # what follows a colon
        rows = await self.database.read_once(lambda tx: tx.rows(statement, names))
        return [bytes(value) for (value,) in rows]

    async def weights(self, pools: Sequence[int], since: float | None = None) -> Weights:
        async def work(tx: Transaction) -> Weights:
            found = Weights([], [], [], [])
            for part in self.sql.batches(list(dict.fromkeys(pools))):
                for kind, statement in zip(found[:3], self.sql.weights(part), strict=True):
                    rows = await tx.rows(*statement)
                    kind.extend(Weight(pool, thread, count, int(size)) for pool, thread, count, size in rows)
                if since is not None:
                    found.recent.extend(created for (created,) in await tx.rows(*self.sql.recent(part, since)))
            return found

        return await self.database.read(work)

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int, int]]:
        return await self.database.read_once(lambda tx: tx.rows(self.sql.chunk_sizes, (pool, after, limit)))

    async def space(self) -> Space:
        return await self.database.space()

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        async def work(tx: Transaction) -> None:
            sql = self.sql
            thread = await self.changes.held_with_pool(thread_id, tx)
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
            thread = await self.changes.held(thread_id, tx, exclusive=True)
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
            for namespace, part in self.sql.parts(keys)
            for (child,) in await tx.rows(*self.sql.child_ids((*place, namespace), part))
        ]

    async def _drop_named(
        self, table: str, column: str, place: tuple[int, int], keys: CheckpointKeys, tx: Transaction
    ) -> int:
        """Delete the rows of these checkpoints, many in a statement: each is a way to a server and back."""
        return sum(
            [
                await tx.run(*self.sql.drop_among(table, column, (*place, namespace), part))
                for namespace, part in self.sql.parts(keys)
            ]
        )

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        async def work(tx: Transaction) -> int:
            await tx.lock(pool)
            await mark(await self._roots(pool, tx), reachable, partial(self._links, pool, tx=tx))
            doomed = [digest for digest in candidates if digest not in reachable]
            if doomed:
                for part in self.sql.batches(doomed):
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
        thread = await read_thread(self.sql, before.thread_id, tx)
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
