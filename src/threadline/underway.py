"""Puts of the async half that have begun and have not ended: a read of the same thread waits for them.

LangGraph does not always wait for the last writes of a run, such as the error of one that was cancelled. Its own
savers work off what they are asked in order, so that a read finds those writes. Puts of different tasks go side by
side here, and a read looks for the ones that were begun before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["UnderWay"]


class UnderWay:
    """Which puts are under way, by event loop and thread of the store; each loop sees its own."""

    def __init__(self) -> None:
        self._ends: dict[tuple[asyncio.AbstractEventLoop, str], set[asyncio.Future[None]]] = {}

    def begin(self, thread_id: str) -> asyncio.Future[None]:
        """Note that a put begins; what is returned belongs to `end`."""
        import asyncio  # nobody who stays in the sync half loads it

        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._ends.setdefault((loop, thread_id), set()).add(ended)
        return ended

    def end(self, thread_id: str, ended: asyncio.Future[None]) -> None:
        """Note that a put is over, however it ended."""
        loop = ended.get_loop()
        ends = self._ends.get((loop, thread_id))
        if ends is not None:
            ends.discard(ended)
            if not ends:
                self._ends.pop((loop, thread_id), None)
        # A loop that was closed in the middle of a put has nobody who waits.
        if not ended.done() and not loop.is_closed():
            ended.set_result(None)

    async def settle(self, thread_id: str) -> None:
        """Wait for the puts of a thread that this loop has begun; how they ended is their callers' affair."""
        if not self._ends:
            return
        import asyncio

        ends = self._ends.get((asyncio.get_running_loop(), thread_id))
        if ends:
            await asyncio.wait(tuple(ends))
