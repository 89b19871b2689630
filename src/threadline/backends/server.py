"""What every engine of a server has in common: two halves, resources per event loop, closing, life after a fork.

The sync half runs an operation on the calling thread over a blocking driver. The async half awaits the same operation
over an asyncio driver; its connections belong to one event loop, so there is one set of them for each loop. A forked
child inherits connections that its parent goes on using: it never touches them, and opens new ones.

`ServerIdentity` counts *generations*. Every connection that is lost, and every connection that turns out to lead to
another server or another run of it, begins a new generation: a server that comes back may lack what it acknowledged.
Every stamp that is read carries the generation of its connection, so whatever was known before a loss is asked again.
"""

from __future__ import annotations

import atexit
import os
import select
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..base.drive import BlockingClock, LoopClock, run_now
from ..errors import Closed, ThreadlineError, Unavailable
from ..ports.checkpoints import Backend
from ..ports.engine import Operation, Shortcuts
from ..ports.rules import GENERATION_SHIFT
from .layers.layer import Layering
from .layers.patience import UnhurriedLayer
from .layers.read_only import ReadOnlyLayer
from .layers.retry import RetryLayer, retry_policy
from .lending import Given, Pool, PoolFigures

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "GENERATION_SHIFT",
    "Lend",
    "LendNow",
    "PerLoop",
    "ServerDriver",
    "ServerEngine",
    "ServerIdentity",
    "exhausted",
    "has_input",
    "watching",
]

T = TypeVar("T")
# Lends a wire to an act, and translates what its driver raises.
Lend = Callable[[Callable[[Any], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]
# The same on the calling thread, for an act that is no coroutine.
LendNow = Callable[[Callable[[Any], Any]], Any]

# A connection that was idle for longer is asked for a sign of life: firewalls forget silent ones without a word.
_RESTED_SECONDS = 30.0
_engines: weakref.WeakSet[ServerEngine] = weakref.WeakSet()
# Connections that a forked child inherited. To close one would end the parent's, so they are kept and never used.
_inherited: list[Any] = []


class ServerEngine(Shortcuts, ABC):
    """Operations over lent connections: of a pool for all threads and one for each event loop, or given ones.

    A subclass calls `start` at the end of its constructor. A *wire* is a connection as its backend uses it: sources
    lend wires, which know the generation that they were made in.
    """

    opens_inline = False
    is_in_memory = False
    prefers_batches = True
    url = ""
    # What the driver raises when the server, or the way to it, fails.
    driver_errors: tuple[type[Exception], ...] = ()

    def __init__(self) -> None:
        self.is_closed = False
        self.identity = ServerIdentity()
        # How many calls were tried again.
        self.retries = 0

    def start(self, retry: int | tuple[int, float] | None, *, read_only: bool) -> None:
        """Make both halves; nothing is connected yet."""
        self.blocking = self.source(is_of_loop=False)
        self.loops: PerLoop[Pool | Given] = PerLoop(self._source_of_loop)
        policy = retry_policy(retry)

        def layered(backend: Any, clock: BlockingClock) -> Any:
            retried = RetryLayer(UnhurriedLayer(backend), policy, clock, self.note_retry)
            return ReadOnlyLayer(retried) if read_only else retried

        # Found at each call: a forked child has another pool.
        lend_blocking: Lend = lambda act: self.lent(self.blocking, act)  # noqa: E731
        lend_on_loop: Lend = lambda act: self.lent(self.loops.here(), act)  # noqa: E731
        blocking: Any = self.backend(lend_blocking, is_of_loop=False)
        self._blocking = layered(blocking, BlockingClock())
        put_now = getattr(blocking, "put_now", None)  # of backends that have a shorter way
        if put_now is not None and isinstance(self.blocking, Pool) and not read_only:
            self.put_usual = self._blocking.put(partial(put_now, self._lent_now))
        self._on_loop = layered(self.backend(lend_on_loop, is_of_loop=True), LoopClock())
        _engines.add(self)  # only now: one whose options were refused has nothing to close

    def _source_of_loop(self) -> Pool | Given:
        self.check_open()  # an operation that goes on after `close` must not connect anew: nobody would close that
        return self.source(is_of_loop=True)

    @abstractmethod
    def source(self, *, is_of_loop: bool) -> Pool | Given:
        """Where the connections of the sync half, or of the running event loop, come from."""

    @abstractmethod
    def backend(self, lend: Lend, *, is_of_loop: bool) -> Backend:
        """The backend over wires that are lent."""

    @abstractmethod
    def translated(self, error: Exception) -> ThreadlineError:
        """The error of our tree for one of the driver; `identity` is told of a lost connection."""

    async def lent(self, source: Pool | Given, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a wire, whose driver's errors are translated."""
        try:
            return await source.lend(act)
        except self.driver_errors as error:
            if isinstance(error, ThreadlineError):
                raise
            raise self.translated(error) from error

    def _lent_now(self, act: Callable[[Any], T]) -> T:
        """The same of the pool of the sync half, for work that is no coroutine."""
        self.check_open()
        try:
            return self.blocking.lend_now(act)  # type: ignore[union-attr]
        except self.driver_errors as error:
            if isinstance(error, ThreadlineError):
                raise
            raise self.translated(error) from error

    def blocking_backend(self) -> Backend:
        """The backend of the sync half; raises InvalidRequest where only the async half is served."""
        return self._blocking  # type: ignore[no-any-return]

    def loop_backend(self) -> Backend | None:
        """The backend of the running event loop; None where a thread must wait for a given blocking connection."""
        return self._on_loop  # type: ignore[no-any-return]

    def run(self, operation: Operation[T]) -> T:
        self.check_open()
        return run_now(operation(self.blocking_backend()))

    async def arun(self, operation: Operation[T]) -> T:
        self.check_open()
        backend = self.loop_backend()
        if backend is None:
            import asyncio

            return await asyncio.to_thread(self.run, operation)
        return await operation(backend)

    async def awrite(self, operation: Operation[T]) -> T:
        return await self.arun(operation)

    def add_layer(self, layer: Layering) -> None:
        """See the backends of both halves through one more layer; to be called before the first use."""
        self._blocking, self._on_loop = layer(self._blocking, False), layer(self._on_loop, True)
        self.put_usual = None

    def note_retry(self) -> None:
        """A call is tried again."""
        self.retries += 1

    def connections(self) -> dict[str, PoolFigures]:
        """The connections of the sync half, and those of all event loops together, where a pool of ours counts them."""
        halves = {"sync": [self.blocking], "async": self.loops.held()}
        found = {half: [one.figures() for one in held if isinstance(one, Pool)] for half, held in halves.items()}
        return {half: PoolFigures(*map(sum, zip(*pools, strict=True))) for half, pools in found.items() if pools}

    def check_open(self) -> None:
        """Raise Closed after `close`."""
        if self.is_closed:
            raise Closed

    def close(self) -> None:
        self.is_closed = True
        self.close_blocking()
        for loop, source in self.loops.take_all().items():
            # A loop that runs closes its connections itself; one that does not run has no task that could use them.
            if loop.is_running():
                with suppress(RuntimeError):  # it was closed at this moment
                    loop.call_soon_threadsafe(source.shut)
            else:
                source.shut()

    async def aclose(self) -> None:
        self.is_closed = True
        await self.aclose_loop()
        self.close()

    async def aclose_loop(self) -> None:
        """Close the connections of the running event loop."""
        source = self.loops.take_here()
        if source is not None:
            await source.aclose()

    def close_blocking(self) -> None:
        """Close the connections of the sync half; a given one stays open."""
        run_now(self.blocking.aclose())

    def abandon(self) -> list[Any]:
        """In a forked child: forget all connections and locks; returns the connections, which are the parent's."""
        inherited = [self.blocking, *self.loops.take_all().values()]
        self.blocking = self.source(is_of_loop=False)
        return inherited


class PerLoop(Generic[T]):
    """One resource for each event loop, made on first use; those of loops that were closed are let go."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self) -> T:
        """The resource of the running loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            # Another thread may add its loop meanwhile: one atomic step for each.
            for ended in [one for one in list(self._held) if one.is_closed()]:
                self._held.pop(ended, None)
            held = self._held[loop] = self._make()
        return held

    def held(self) -> list[T]:
        """The resources of all loops."""
        return list(self._held.values())

    def take_here(self) -> T | None:
        """Take the resource of the running loop out, to close it."""
        import asyncio

        return self._held.pop(asyncio.get_running_loop(), None)

    def take_all(self) -> dict[asyncio.AbstractEventLoop, T]:
        """Take all resources out."""
        held, self._held = self._held, {}
        return held


class ServerIdentity:
    """Which server this process knows, and how often it was lost."""

    def __init__(self) -> None:
        self.generation = 0
        # Which run of which server answered last.
        self.server: Any = None

    def lose(self) -> int:
        """A connection was lost, or led to another server: begin a new generation, and return its number."""
        self.generation += 1
        return self.generation

    def saw(self, server: Any) -> int | None:
        """A connection leads to this run of this server; returns the generation that begins if it is another one."""
        begun = None
        if self.server is not None and self.server != server:
            # Before the new server is noted: a put that is prepared between the two must not pass as one that knows it.
            begun = self.lose()
        self.server = server
        return begun

    def met(self, server: Any, generation: int) -> int:
        """A new connection leads to this run of this server; returns the generation that it is of.

        `generation` is the one in which connecting began: a loss in the meantime makes the connection an old one.
        """
        begun = self.saw(server)
        return generation if begun is None else begun


class ServerDriver(ABC):
    """A driver's connections, as wires, for a pool to lend them: what is alike on all servers."""

    def __init__(self, identity: ServerIdentity) -> None:
        self.identity = identity

    def is_good(self, wire: Any, idle_seconds: float) -> bool | Awaitable[bool]:
        # One of an older generation may lead to a former server.
        if wire.generation != self.identity.generation:
            return False
        if self.has_ended(wire):
            self.identity.lose()
            return False
        return idle_seconds <= _RESTED_SECONDS or self._still_answers(wire)

    async def _still_answers(self, wire: Any) -> bool:
        is_there = await self.answers(wire)
        if not is_there:
            self.identity.lose()
        return is_there

    @abstractmethod
    def has_ended(self, wire: Any) -> bool:
        """Whether an idle connection is closed, or the server has said something unasked. Sends nothing."""

    @abstractmethod
    async def answers(self, wire: Any) -> bool:
        """Whether the server answers."""


def watching(descriptor: Any) -> Callable[[int], Any]:
    """A function that waits for so many milliseconds, and tells whether something can be read.

    On an idle connection that is mostly the server's farewell.
    """
    if not hasattr(select, "poll"):
        return lambda milliseconds: select.select([descriptor], [], [], milliseconds / 1000)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll


def has_input(descriptor: Any) -> bool:
    """Whether something can be read."""
    return bool(watching(descriptor)(0))


def exhausted(size: int, where: object, timeout: float) -> Unavailable:
    """All connections were in use for as long as a caller waits for one."""
    return Unavailable(f"all {size} connections to {where} were in use for {timeout:g} s: raise pool_size, or timeout")


def _after_fork_in_child() -> None:
    for engine in list(_engines):
        _inherited.extend(engine.abandon())


def _close_at_exit() -> None:
    """Tell the servers of engines that were not closed that their connections end."""
    for engine in list(_engines):
        engine.close_blocking()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_at_exit)
