"""An engine runs operations on a backend, for both halves of a saver. Clones of a saver share one.

An operation is a function from a backend to a coroutine. `run` drives it here and now; `arun` awaits it
with at most one hop to another thread; `awrite` is for puts, which wait for a shared commit instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from .checkpoints import Backend, Change, Found, Stamp

__all__ = ["AputUsual", "Engine", "FindNow", "Operation", "PutUsual", "Shortcuts"]

T = TypeVar("T")
Operation = Callable[[Backend], Coroutine[Any, Any, T]]
# Makes a change on the calling thread that the caller has found to be of a usual kind (`is_quick` in ports/rules.py),
# and returns the stamp of its pool. None where its thread is not as expected: then nothing was changed, and `apply`
# says why.
PutUsual = Callable[[Change], Stamp | None]
# The same, awaited.
AputUsual = Callable[[Change], Awaitable[Stamp | None]]
# Finds a checkpoint with its writes on the calling thread, as `find` of the backend does.
FindNow = Callable[[str, str, str | None], Found | None]


class Shortcuts:
    """An engine's shorter ways: each None where a layer is between, and where the backend has none."""

    # Puts without a coroutine.
    put_usual: PutUsual | None = None
    # The same from an event loop.
    aput_usual: AputUsual | None = None
    # Finds without a coroutine.
    find_now: FindNow | None = None


class Engine(Protocol):
    """Where and how operations run."""

    url: str
    # Whether opening on the calling thread is quick and allowed, even inside an event loop.
    opens_inline: bool
    # Whether stored bytes live as objects in this process, so that caching them again is a waste.
    is_in_memory: bool
    # Whether several puts in one transaction cost less than one in each, and any thread may make them.
    prefers_batches: bool
    # As `Shortcuts` has them.
    put_usual: PutUsual | None
    aput_usual: AputUsual | None
    find_now: FindNow | None

    def run(self, operation: Operation[T]) -> T:
        """The result, on the calling thread."""

    async def arun(self, operation: Operation[T]) -> T:
        """The result, without blocking the event loop."""

    async def awrite(self, operation: Operation[T]) -> T:
        """The result of a put; many that wait at once share one commit where that pays."""

    def close(self) -> None:
        """Release connections and threads; later use raises Closed."""

    async def aclose(self) -> None:
        """`close`, from an event loop."""
