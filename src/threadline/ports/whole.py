"""Whole threads, many in one go: for who moves many small threads, and would wait for each of them otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .marks import reads

if TYPE_CHECKING:
    from .checkpoints import CheckpointRow, ChunkRow, ThreadRow, WriteRow

__all__ = ["Whole", "Wholes", "WithoutWholes"]


class Whole(NamedTuple):
    """Everything that there is of a thread; the chunks are those of its pool, which other threads may share."""

    thread: ThreadRow
    # By namespace and id.
    checkpoints: list[CheckpointRow]
    writes: list[WriteRow]
    # As they are stored: of a cold one its reference.
    chunks: list[ChunkRow]


class Wholes(Protocol):
    """What a copy of many small threads needs."""

    @reads()
    async def wholes(self, thread_ids: Sequence[str]) -> list[Whole] | None:
        """Those of these threads that there are, deleted ones included, all from one state of the store.

        All of it is in memory at once: `weights` tells before how much that is. None where the storage cannot give it.
        """


class WithoutWholes:
    """The same of a backend whose threads are read one by one."""

    async def wholes(self, thread_ids: Sequence[str]) -> list[Whole] | None:
        return None
