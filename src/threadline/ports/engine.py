"""An engine runs operations on a backend, for both halves of a saver. Clones of a saver share one.

An operation is a function from a backend to a coroutine. `run` drives it here and now; `arun` awaits it
with at most one hop to another thread; `awrite` is for puts, which wait for a shared commit instead.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from .checkpoints import Backend

__all__ = ["Engine", "Operation"]

T = TypeVar("T")
Operation = Callable[[Backend], Coroutine[Any, Any, T]]


class Engine(Protocol):
    """Where and how operations run."""

    url: str
    # Whether opening on the calling thread is quick and allowed, even inside an event loop.
    opens_inline: bool
    # Whether stored bytes live as objects in this process, so that caching them again is a waste.
    is_in_memory: bool
    # Whether several puts in one transaction cost less than one in each, and any thread may make them.
    prefers_batches: bool

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
