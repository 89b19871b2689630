"""Bulk reads: many small threads with all their rows, or one long thread without documents and metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .marks import Scope, reads, writes

if TYPE_CHECKING:
    from .checkpoints import CheckpointKey, CheckpointRow, ChunkRow, Found, Query, ThreadRow, WriteRow

__all__ = ["Outline", "Whole", "Wholes", "WithoutOutlines", "WithoutWholes"]

# Of a checkpoint: namespace, id, parent, step, source, created. A plain tuple, because the garbage collector leaves
# those alone, and a thread may have a hundred thousand.
Outline = tuple[str, str, "str | None", "int | None", "str | None", float]


class Whole(NamedTuple):
    """Everything that there is of a thread; the chunks are those of its pool, which other threads may share."""

    thread: ThreadRow
    # By namespace and id.
    checkpoints: list[CheckpointRow]
    writes: list[WriteRow]
    # As they are stored: of a cold one its reference.
    chunks: list[ChunkRow]


class Wholes(Protocol):
    """What a copy of many small threads needs, and the drawing of a long one."""

    @reads(Scope.THREADS)
    async def wholes(self, thread_ids: Sequence[str]) -> list[Whole] | None:
        """Those of these threads that there are, deleted ones included, all from one state of the store.

        All of it is in memory at once: `weights` tells before how much that is. None where the storage cannot give it.
        """

    @writes(Scope.ROWS)
    async def swap_threads(self, swaps: Sequence[tuple[ThreadRow, ThreadRow]]) -> list[bool]:
        """What `swap_thread` does and says, for each of these; in one transaction where the storage has that."""

    @reads(Scope.THREAD)
    async def outline(self, thread_id: str, after: CheckpointKey | None, limit: int) -> list[Outline]:
        """The next checkpoints of a thread by namespace and id, without what they hold."""


class WithoutWholes:
    """The part of a backend whose threads are read one by one."""

    if TYPE_CHECKING:

        async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool: ...

    async def wholes(self, thread_ids: Sequence[str]) -> list[Whole] | None:
        return None

    async def swap_threads(self, swaps: Sequence[tuple[ThreadRow, ThreadRow]]) -> list[bool]:
        return [await self.swap_thread(before, after) for before, after in swaps]


class WithoutOutlines:
    """The part of a backend that reads a checkpoint whole or not at all."""

    if TYPE_CHECKING:

        async def page(self, query: Query) -> list[Found]: ...

    async def outline(self, thread_id: str, after: CheckpointKey | None, limit: int) -> list[Outline]:
        from .checkpoints import Query  # which names this module's protocol

        cursor = (after.id, thread_id, after.namespace) if after is not None else None
        page = Query(thread_id=thread_id, as_they_lie=True, after=cursor, limit=limit, with_writes=False)
        rows = [found.row for found in await self.page(page)]
        return [(row.namespace, row.id, row.parent, row.step, row.source, row.created) for row in rows]
