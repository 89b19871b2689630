"""What is read from any SQL database, and the ports that its drivers provide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from ...ports.checkpoints import (
    Asking,
    CheckpointKey,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Found,
    Query,
    ThreadRow,
    Weight,
    Weights,
    WriteRow,
)
from ...ports.rules import lease_key, write_order
from ...ports.storage import Space
from ...ports.whole import Outline, Whole
from .search import page_statements
from .statements import Statements

__all__ = ["Database", "SqlReader", "Transaction", "Work", "found_row", "ordered_writes"]

T = TypeVar("T")
# Statements exist for these numbers of values, and for the most that a dialect takes. SQLite parses and binds each
# value that pads a statement: a list of 69 packs, padded to 512, took a third of the time of its query.
_SIZES = (1, 8, 16, 32, 64, 128, 256)
Work = Callable[["Transaction"], Coroutine[Any, Any, T]]


class Transaction(Protocol):
    """One transaction of a driver."""

    # The generation of its connection, shifted by GENERATION_SHIFT: what is added to every epoch that is read here.
    epoch_base: int

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute; returns the number of rows changed."""

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute once for each set of values."""

    async def lock(self, pool: int, *, exclusive: bool) -> bool:
        """Hold a pool until the end; tells whether others may have changed what was read before.

        A database whose writers exclude each other anyway has nothing to do here.
        """


class Database(Protocol):
    """Runs work in transactions."""

    async def read(self, work: Work[T]) -> T:
        """The result of work that only reads, on one consistent state."""

    async def read_once(self, work: Work[T]) -> T:
        """The result of work each of whose queries is consistent by itself: a server needs no transaction for it."""

    async def write(self, work: Work[T]) -> T:
        """The result of work that writes; durable when this returns. Work that raises changes nothing."""

    async def space(self) -> Space:
        """What the database takes on disk."""

    async def setup(self) -> None:
        """Create or migrate the schema."""

    async def compact(self) -> None:
        """Give unused space back."""

    async def trim(self) -> None:
        """Give unused space back in small steps while writers go on; nothing where the server does that by itself."""


_new = tuple.__new__


class SqlReader:
    """The half of the Backend port that only reads."""

    def __init__(self, database: Database, statements: Statements) -> None:
        self.database = database
        self.sql = statements

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
                return _new(Found, (*found[:4], ordered_writes(await tx.rows(self.sql.writes, place))))
            return found

        return await (self.database.read(work) if with_writes else self.database.read_once(work))

    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        async def work(tx: Transaction) -> list[Found]:
            found: list[Found] = []
            for part in self._batches(thread_ids):
                rows = await tx.rows(*self.sql.heads(part, namespace))
                found += [found_row(row, tx.epoch_base) for row in rows]
            return found

        return await self.database.read_once(work)

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        async def work(tx: Transaction) -> list[Asking]:
            rows = [ThreadRow(*row) for row in await tx.rows(*self.sql.threads(after, prefix, limit, asking=True))]
            writes: dict[int, list[Any]] = defaultdict(list)
            for part in self._batches([row.thread_id for row in rows]):
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
            rows: list[Any] = []
            for statement, values in statements:
                if len(rows) < query.limit:
                    rows += await tx.rows(statement, [*values, query.limit - len(rows)])
            found = [found_row(row, tx.epoch_base) for row in rows]
            if query.with_writes:
                await self._add_writes(rows, found, tx)
            return found

        is_one_query = len(statements) == 1 and not query.with_writes
        return await (self.database.read_once(work) if is_one_query else self.database.read(work))

    async def outline(self, thread_id: str, after: CheckpointKey | None, limit: int) -> list[Outline]:
        statements = (self.sql.outline, self.sql.outline_on, self.sql.outline_over)
        return await self.database.read(lambda tx: _walked(statements, thread_id, after, limit, tx))

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
            thread = await self._thread(thread_id, tx)
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
            thread = await self._thread(thread_id, tx)
            if thread is None:
                return []
            head, place = (thread_id, thread.pool, thread.epoch), (thread.pool, thread.serial)
            return [
                found_row((*head, *row), tx.epoch_base)
                for namespace, part in self._parts(keys)
                for row in await tx.rows(*self.sql.children((*place, namespace), part))
            ]

        return await self.database.read(work)

    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        async def work(tx: Transaction) -> list[WriteRow]:
            thread = await self._thread(thread_id, tx)
            if thread is None:
                return []
            rows = await tx.rows(self.sql.thread_writes, (thread.pool, thread.serial))
            return [WriteRow(*row) for row in rows]

        return await self.database.read(work)

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        async def work(tx: Transaction) -> list[tuple[bytes, bytes, int, bytes]]:
            found: list[tuple[bytes, bytes, int, bytes]] = []
            for part in self._batches(digests):
                found += await tx.rows(*self.sql.chunks_in("digest, links, form, data", pool, part))
            return found

        return await self.database.read_once(work)

    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self.database.read_once(lambda tx: self._links(pool, digests, tx=tx))

    async def _links(self, pool: int, digests: Sequence[bytes], *, tx: Transaction) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for part in self._batches(digests):
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
            row = await self._thread(thread_id, tx)
            return row._replace(epoch=row.epoch + tx.epoch_base) if row is not None else None

        return await self.database.read_once(work)

    async def _thread(self, thread_id: str, tx: Transaction) -> ThreadRow | None:
        rows = await tx.rows(self.sql.thread, (thread_id,))
        return ThreadRow(*rows[0]) if rows else None

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        async def work(tx: Transaction) -> list[ThreadRow]:
            rows = await tx.rows(*self.sql.threads(after, prefix, limit))
            found = [ThreadRow(*row) for row in rows]
            return [row._replace(epoch=row.epoch + tx.epoch_base) for row in found] if tx.epoch_base else found

        return await self.database.read_once(work)

    async def wholes(self, thread_ids: Sequence[str]) -> list[Whole] | None:
        return await self.database.read(lambda tx: self._wholes(list(dict.fromkeys(thread_ids)), tx))

    async def _wholes(self, thread_ids: Sequence[str], tx: Transaction) -> list[Whole]:
        found: list[Whole] = []
        for part in self._batches(thread_ids):
            threads, checkpoints, writes = [await tx.rows(*one) for one in self.sql.wholes(part)]
            named = [ThreadRow(*row) for row in threads]
            chunks: list[Any] = []
            for pools in self._batches(list({row.pool for row in named if row.status != "deleted"})):
                chunks += await tx.rows(*self.sql.chunks_of(pools))
            found += _wholes(named, checkpoints, writes, chunks, tx.epoch_base)
        return found

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
            for part in self._batches(list(dict.fromkeys(pools))):
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

    def _parts(self, keys: CheckpointKeys) -> Iterator[tuple[str, Sequence[str]]]:
        """Checkpoints by namespace, in parts that one statement names."""
        ids: dict[str, list[str]] = defaultdict(list)
        for namespace, checkpoint_id in keys:
            ids[namespace].append(checkpoint_id)
        for namespace, inside in ids.items():
            for part in self._batches(inside):
                yield namespace, part

    def _batches(self, values: Sequence[T]) -> Iterator[Sequence[T]]:
        """Values in parts of a few fixed sizes, the last one padded, so that statements stay prepared."""
        position = 0
        while position < len(values):
            left = len(values) - position
            size = next((size for size in _SIZES if left <= size), self.sql.dialect.most_values)
            part = list(values[position : position + size])
            yield part + part[-1:] * (size - len(part))
            position += size


async def _walked(
    statements: tuple[str, str, str], thread_id: str, after: CheckpointKey | None, limit: int, tx: Transaction
) -> list[Any]:
    """Rows of a thread as they lie: from the first, or on in a namespace and over to the next."""
    first, on, over = statements
    if after is None:
        return await tx.rows(first, (thread_id, limit))
    rows = await tx.rows(on, (thread_id, *after, limit))
    if len(rows) < limit:
        rows += await tx.rows(over, (thread_id, after.namespace, limit - len(rows)))
    return rows


def found_row(row: Sequence[Any], epoch_base: int) -> Found:
    """A checkpoint from a row of `find` and its like, without its writes."""
    checkpoint = _new(CheckpointRow, row[3:16])
    return _new(Found, (row[0], row[1], row[2] + epoch_base, checkpoint, []))


def _wholes(
    threads: list[ThreadRow], checkpoints: list[Any], writes: list[Any], chunks: list[Any], epoch_base: int
) -> Iterator[Whole]:
    """Threads with all that belongs to them, from the rows of each kind."""
    of_thread: dict[int, tuple[list[CheckpointRow], list[WriteRow]]] = defaultdict(lambda: ([], []))
    of_pool: dict[int, list[ChunkRow]] = defaultdict(list)
    for serial, *row in checkpoints:
        of_thread[serial][0].append(_new(CheckpointRow, row))
    for serial, *row in writes:
        of_thread[serial][1].append(_new(WriteRow, (*row, False)))
    for pool, *row in chunks:
        of_pool[pool].append(_new(ChunkRow, row))
    for thread in threads:
        held = of_thread[thread.serial]
        yield Whole(thread._replace(epoch=thread.epoch + epoch_base), *held, of_pool[thread.pool])


def ordered_writes(rows: Sequence[Sequence[Any]]) -> list[WriteRow]:
    """Pending writes in the order in which they are replayed."""
    writes = [_new(WriteRow, (*row, False)) for row in rows]
    if len(writes) > 1:
        writes.sort(key=write_order)
    return writes
