"""Records in the memory of this process: both halves run an operation at once."""

from __future__ import annotations

from typing import Any, TypeVar

from ...base.drive import run_now
from ...errors import Closed
from ...ports.checkpoints import Backend
from ...ports.engine import Operation, Shortcuts
from ...ports.records import RecordSpace
from ..layers.layer import Layering
from ..layers.read_only import ReadOnlyLayer
from .backend import MemoryBackend

__all__ = ["MemoryEngine", "named_memory"]

T = TypeVar("T")


class MemoryEngine(Shortcuts):
    """Operations on records in this process; nothing ever waits."""

    opens_inline = True
    is_in_memory = True
    prefers_batches = True

    def __init__(self, backend: Any = None, url: str = "memory://") -> None:
        self.url = url
        self._held: Backend | None = backend or MemoryBackend()
        # The same, as an event loop sees it: a layer may wait there for something else.
        self._on_loop: Any = self._held
        # The records themselves, for callers that need not wait; None where a layer is between, and once closed.
        bare = self._held if isinstance(self._held, MemoryBackend) else None
        self.held_items = bare.held(RecordSpace.ITEM) if bare is not None else None
        self.held_entries = bare.held(RecordSpace.CACHE) if bare is not None else None
        if bare is not None:
            self.put_usual, self.find_now = bare.put_usual, bare.find_now

    @property
    def _backend(self) -> Backend:
        if self._held is None:
            raise Closed
        return self._held

    @property
    def _loop_backend(self) -> Backend:
        return self._on_loop if self._held is not None else self._backend

    def add_layer(self, layer: Layering) -> None:
        """See the backend through one more layer; to be called before the first use."""
        self._held, self._on_loop = layer(self._backend, False), layer(self._on_loop, True)
        self.held_items = self.held_entries = self.put_usual = self.find_now = None

    def run(self, operation: Operation[T]) -> T:
        return run_now(operation(self._held or self._backend))

    async def arun(self, operation: Operation[T]) -> T:
        return await operation(self._loop_backend)

    async def awrite(self, operation: Operation[T]) -> T:
        return await operation(self._loop_backend)

    def close(self) -> None:
        self._held = self.held_items = self.held_entries = self.put_usual = self.find_now = None

    async def aclose(self) -> None:
        self.close()


_named: dict[str, MemoryBackend] = {}


def named_memory(name: str, *, read_only: bool = False) -> MemoryEngine:
    """The records of `memory://name`, shared by everyone in the process who asks for that name."""
    backend: Backend = _named.setdefault(name, MemoryBackend()) if name else MemoryBackend()
    return MemoryEngine(ReadOnlyLayer(backend) if read_only else backend, f"memory://{name}")
