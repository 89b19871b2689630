"""The Storage port: a store as a whole, with its checkpoints and its named records alike."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .marks import Scope, reads, writes

__all__ = ["Space", "Storage"]


class Space(NamedTuple):
    """Bytes in use, bytes taken from the system (all files), and bytes that are free within them."""

    held_bytes: int
    taken_bytes: int
    free_bytes: int = 0


class Storage(Protocol):
    """Operations on the whole store. Methods are coroutines, as in the other ports."""

    @writes(Scope.ANYONE, is_long=True)
    async def setup(self) -> None:
        """Create what is missing; safe from many processes at once."""

    @reads(Scope.ANYONE, is_long=True)
    async def forms(self) -> dict[int, int]:
        """Every form that some stored bytes have, also of records, and how many rows have it.

        A row of two forms counts for both.
        """

    @reads(Scope.ANYONE, is_long=True)
    async def space(self) -> Space:
        """What the whole store takes on disk or in memory."""

    @writes(Scope.STORE, is_long=True)
    async def compact(self) -> None:
        """Give the space of what was deleted back to the system, as far as the storage can."""

    @writes(Scope.STORE, is_long=True)
    async def trim(self) -> None:
        """Return free space to the system in small steps while writers continue; a no-op where the database cannot."""
