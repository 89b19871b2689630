"""An engine runs operations on a backend, for both halves of a saver. Clones of a saver share one.

An operation is a function from a backend to a coroutine. `run` drives it here and now; `arun` awaits it
with at most one hop to another thread; `awrite` is for puts, which wait for a shared commit instead.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ..drive import run_now
from ..errors import Closed
from .layers import ReadOnlyLayer
from .memory import MemoryBackend
from .port import Backend

__all__ = ["Engine", "MemoryEngine", "Operation", "ViewEngine", "named_memory"]

T = TypeVar("T")
Operation = Callable[[Backend], Coroutine[Any, Any, T]]


class Engine(Protocol):
    """Where and how operations run."""

    url: str
    # Whether opening on the calling thread is quick and allowed, even inside an event loop.
    opens_inline: bool
    # Whether stored bytes live as objects in this process, so that caching them again is a waste.
    is_in_memory: bool

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


class MemoryEngine:
    """Operations on records in this process; nothing ever waits."""

    opens_inline = True
    is_in_memory = True

    def __init__(self, backend: Backend | None = None, url: str = "memory://") -> None:
        self.url = url
        self._held: Backend | None = backend or MemoryBackend()

    @property
    def _backend(self) -> Backend:
        if self._held is None:
            raise Closed("this saver was closed; open a new one with threadline.connect()")
        return self._held

    def run(self, operation: Operation[T]) -> T:
        return run_now(operation(self._backend))

    async def arun(self, operation: Operation[T]) -> T:
        return await operation(self._backend)

    async def awrite(self, operation: Operation[T]) -> T:
        return await operation(self._backend)

    def close(self) -> None:
        self._held = None

    async def aclose(self) -> None:
        self.close()


class ViewEngine:
    """Another engine, seen through a layer; closing the view leaves the engine open."""

    def __init__(self, inner: Engine, layer: Callable[[Backend], Any]) -> None:
        self.url = inner.url
        self.opens_inline = inner.opens_inline
        self.is_in_memory = inner.is_in_memory
        self._inner = inner
        self._layer = layer

    def run(self, operation: Operation[T]) -> T:
        return self._inner.run(lambda backend: operation(self._layer(backend)))

    async def arun(self, operation: Operation[T]) -> T:
        return await self._inner.arun(lambda backend: operation(self._layer(backend)))

    async def awrite(self, operation: Operation[T]) -> T:
        return await self._inner.awrite(lambda backend: operation(self._layer(backend)))

    def close(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


_named: dict[str, MemoryBackend] = {}


def named_memory(name: str, *, read_only: bool = False) -> MemoryEngine:
    """The records of `memory://name`, shared by everyone in the process who asks for that name."""
    backend: Backend = _named.setdefault(name, MemoryBackend()) if name else MemoryBackend()
    return MemoryEngine(ReadOnlyLayer(backend) if read_only else backend, f"memory://{name}")
