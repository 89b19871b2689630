"""The engine of Redis and Valkey: the ports over one client for each process and event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...base.drive import BlockingClock, LoopClock
from ...errors import InvalidRequest, StorageFull, ThreadlineError, Unavailable
from ...ports.checkpoints import Backend
from ..layers.layer import MARKS, Call
from ..lending import Given, Pool
from ..server import Lend, ServerEngine
from .backend import RedisBackend
from .directory import Directory
from .errors import AnotherServer, NewGeneration, translate
from .keys import Keys
from .reader import RedisReader
from .records import RedisRecords
from .scans import RedisScans
from .setup import RedisSetup
from .url import target_of
from .wire import Link

__all__ = ["RedisEngine"]

T = TypeVar("T")


class RedisEngine(ServerEngine):
    """Operations on the keys of one prefix."""

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: Any = None,
        pool: Any = None,
        key_prefix: str = "threadline",
        pool_size: int = 16,
        ttl: float | None = None,
        retry: int | tuple[int, float] | None = 5,
        timeout: float = 30.0,
        setup: str | bool = "create",
        read_only: bool = False,
    ) -> None:
        super().__init__()
        self._target = target_of(url, connection, pool, pool_size, timeout)
        self.url = self._target.shown
        self._keys = Keys(key_prefix)
        self._ttl = ttl
        self._setup = RedisSetup(self._keys, self.url, setup, ttl, read_only=read_only)
        # The pools in which living threads were last seen, for both halves.
        self._pools: dict[str, int] = {}
        self._halves: dict[bool, Half] = {}
        self.start(retry, read_only=read_only)

    def blocking_backend(self) -> Backend:
        if self._target.only_half == "async":
            raise InvalidRequest(
                "a client of redis.asyncio serves the async methods only: give a redis.Redis, or a URL"
            )
        return super().blocking_backend()

    def loop_backend(self) -> Backend | None:
        return None if self._target.only_half == "sync" else super().loop_backend()

    def blocking_half(self) -> Half:
        """The parts of the sync half."""
        self.blocking_backend()  # where there is one
        return self._halves[False]

    def source(self, *, is_of_loop: bool) -> Pool | Given:
        return self._target.source(self.identity, is_of_loop=is_of_loop)

    def backend(self, lend: Lend, *, is_of_loop: bool) -> Backend:
        target, has_lines = self._target, not is_of_loop and not self._target.is_given
        link = Link(
            lend, self.identity, self.translated, has_lines=has_lines, is_cluster=target.is_cluster, where=self.url
        )
        directory = Directory(link, self._keys, self._pools, partial(self._setup.open, link))
        self._halves[is_of_loop] = Half(link, directory)
        reader, records = RedisReader(link, self._keys, directory), RedisRecords(link, self._keys, directory)
        scans = RedisScans(link, self._keys, directory, records)
        clock = LoopClock() if is_of_loop else BlockingClock()
        writer = RedisBackend(link, self._keys, directory, reader, scans, clock=clock, ttl=self._ttl)
        ports: Any = _Ports(link, self._setup, reader, scans, writer, records)
        return ports  # type: ignore[no-any-return]

    def lent(self, source: Pool | Given, act: Callable[[Any], Coroutine[Any, Any, T]]) -> Coroutine[Any, Any, T]:
        return source.lend(act)  # the link translates errors: some are answers

    def translated(self, error: Exception) -> ThreadlineError:
        """An error of the driver as one of our tree; where the server did not answer, a new generation begins.

        The link raises it without its cause: the driver's words may hold what was sent.
        """
        if isinstance(error, ThreadlineError):
            return error
        if isinstance(error, UnicodeError):
            return InvalidRequest("ids and names must be text that UTF-8 can hold")
        made = NewGeneration() if isinstance(error, AnotherServer) else translate(error, self.url)
        if isinstance(made, Unavailable) and not isinstance(made, StorageFull):
            self.identity.lose()
        return made


class Half(NamedTuple):
    """Parts of one half, for those who look below the ports."""

    link: Link
    directory: Directory


class _Ports:
    """One object with the methods of all ports, each that of the part which has it; the first call opens the store."""

    def __init__(self, link: Link, setup: RedisSetup, *parts: Any) -> None:
        self._opening = setup, link
        for name in MARKS:
            call = next(getattr(part, name) for part in parts if hasattr(part, name))
            setattr(self, name, partial(self._opened, name == "setup", call))

    async def _opened(self, is_asked: bool, call: Call, *args: Any, **options: Any) -> Any:
        setup, link = self._opening
        if not setup.is_ready:
            await setup.open(link, is_asked=is_asked)
        return await call(*args, **options)
