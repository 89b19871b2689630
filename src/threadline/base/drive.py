"""Where sync meets async: one coroutine, two ways to run it.

Every operation is written once as `async def` and awaits only ports. A blocking port never suspends, so
one `send(None)` carries the coroutine to its end: the sync half needs no event loop and no thread.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol, TypeVar

__all__ = ["BlockingClock", "Clock", "LoopClock", "run_now", "settled"]

T = TypeVar("T")


def run_now(operation: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose ports all block; raises RuntimeError if one of them suspends."""
    try:
        operation.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    operation.close()
    raise RuntimeError("a blocking port suspended: this operation was given an async port")


async def settled(outcome: Awaitable[T] | T) -> T:
    """Await the outcome if it is awaitable (asyncio driver), else return it (blocking driver).

    So code over a driver is written once for both halves. A result that is itself awaitable has no place here.
    """
    if isinstance(outcome, Awaitable):
        return await outcome
    return outcome


class Clock(Protocol):
    """Time, as a port: what waits on it can be run by either half."""

    def now(self) -> float:
        """Seconds that never step back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class BlockingClock:
    """Waits on the calling thread."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class LoopClock(BlockingClock):
    """Waits on the event loop."""

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)
