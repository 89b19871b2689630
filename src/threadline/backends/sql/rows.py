"""What the driver of a SQL database provides, and the rows that it reads as values of the ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from ...ports.checkpoints import CheckpointRow, ChunkRow, Found, ThreadRow, WriteRow
from ...ports.rules import write_order
from ...ports.storage import Space
from ...ports.whole import Whole
from .statements import Statements

__all__ = [
    "Database", "Transaction", "Work", "found_row", "ordered_writes", "read_thread", "rows_up_to", "wholes_of",
]  # fmt: skip

T = TypeVar("T")
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

    async def lock(self, pool: int) -> None:
        """Hold a pool alone until the end; nothing where writers exclude each other anyway."""


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


async def read_thread(sql: Statements, thread_id: str, tx: Transaction) -> ThreadRow | None:
    """A thread as a transaction sees it; what a connection adds to its epoch is not in it."""
    rows = await tx.rows(sql.thread, (thread_id,))
    return ThreadRow(*rows[0]) if rows else None


async def rows_up_to(limit: int, statements: Sequence[tuple[str, list[Any]]], tx: Transaction) -> list[Any]:
    """The rows of statements one after another; each binds also how many are still wanted."""
    rows: list[Any] = []
    for statement, values in statements:
        if len(rows) < limit:
            rows += await tx.rows(statement, [*values, limit - len(rows)])
    return rows


def found_row(row: Sequence[Any], epoch_base: int) -> Found:
    """A checkpoint from a row of `find` and its like, without its writes."""
    checkpoint = _new(CheckpointRow, row[3:16])
    return _new(Found, (row[0], row[1], row[2] + epoch_base, checkpoint, []))


def wholes_of(
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
