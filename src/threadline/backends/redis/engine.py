"""The engine of Redis and Valkey: the ports over one client for each process and event loop."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ...base.drive import BlockingClock, Clock, LoopClock, run_now
from ...errors import InvalidRequest
from ..layers.layer import MARKS, Call, Layering
from ..layers.read_only import ReadOnlyLayer
from ..layers.retry import RetryLayer, retry_policy
from ..lending import Pool, PoolFigures
from ..server import PerLoop, ServerEngine
from .backend import RedisBackend
from .directory import Directory
from .keys import Keys
from .reader import RedisReader
from .records import RedisRecords
from .scans import RedisScans
from .setup import RedisSetup
from .url import target_of
from .wire import Link

__all__ = ["RedisEngine"]


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
        self._target = target_of(url, connection, pool, pool_size, timeout)
        self.url = self._target.shown
        self._keys = Keys(key_prefix)
        self._ttl = ttl
        self._policy = retry_policy(retry)
        self._read_only = read_only
        self._setup = RedisSetup(self._keys, self.url, setup, ttl, read_only=read_only)
        # Every half is seen through them, the last one outermost.
        self._layers: list[Layering] = []
        # The pools in which living threads were last seen, for all halves.
        self._pools: dict[str, int] = {}
        self._lock = threading.Lock()
        self._blocking: Half | None = None
        self._loops: PerLoop[Half] = PerLoop(self._make_loop_half)
        super().__init__()

    def blocking_backend(self) -> Any:
        return self.blocking_half().backend

    def loop_backend(self) -> Any:
        return None if self._target.only_half == "sync" else self.loop_half().backend

    def blocking_half(self) -> Half:
        half = self._blocking
        if half is None:
            if self._target.only_half == "async":
                raise InvalidRequest(
                    "a client of redis.asyncio serves the async methods only: give a redis.Redis, or a URL"
                )
            with self._lock:
                half = self._blocking
                if half is None:
                    make = partial(self._target.blocking_client, self.identity)
                    half = self._blocking = self._half(make, BlockingClock(), is_of_loop=False)
        return half

    def loop_half(self) -> Half:
        """The half of the running event loop."""
        return self._loops.here()

    def add_layer(self, layer: Layering) -> None:
        self._layers.append(layer)

    def connections(self) -> dict[str, PoolFigures]:
        source = self._blocking.link.source if self._blocking is not None else None
        return {"sync": source.figures()} if isinstance(source, Pool) else {}

    def close_blocking(self) -> None:
        if self._blocking is not None:
            run_now(self._blocking.link.aclose())

    def close_loops(self) -> None:
        import asyncio

        for loop, half in self._loops.take_all().items():
            if loop.is_running():
                with suppress(RuntimeError):
                    asyncio.run_coroutine_threadsafe(half.link.aclose(), loop)

    async def aclose_loop(self) -> None:
        half = self._loops.take_here()
        if half is not None:
            await half.link.aclose()

    def abandon(self) -> list[Any]:
        held = [self._blocking, *self._loops.take_all().items()]
        self._lock = threading.Lock()
        self._blocking = None
        return held

    def _make_loop_half(self) -> Half:
        make = partial(self._target.loop_client, self.identity)
        return self._half(make, LoopClock(), is_of_loop=True)

    def _half(self, make: Any, clock: Clock, *, is_of_loop: bool) -> Half:
        target, source = self._target, self._target.source(is_of_loop=is_of_loop)
        link = Link(make, self.identity, source, is_of_loop=is_of_loop, is_cluster=target.is_cluster, where=self.url)
        directory = Directory(link, self._keys, self._pools, partial(self._setup.open, link))
        reader, records = RedisReader(link, self._keys, directory), RedisRecords(link, self._keys, directory)
        scans = RedisScans(link, self._keys, directory, records)
        writer = RedisBackend(link, self._keys, directory, reader, scans, clock=clock, ttl=self._ttl)
        ports: Any = _Ports(link, self._setup, reader, scans, writer, records)
        ports = RetryLayer(ports, self._policy, clock, self.note_retry)
        ports = ReadOnlyLayer(ports) if self._read_only else ports
        for layer in self._layers:
            ports = layer(ports, is_of_loop)
        return Half(link, directory, ports)


class Half(NamedTuple):
    """The objects that serve one process, or one event loop."""

    link: Link
    directory: Directory
    backend: Any


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
