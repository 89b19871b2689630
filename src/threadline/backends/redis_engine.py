"""The engine of Redis and Valkey: clients for both halves, one for each process and event loop."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry as DriverRetry

import redis

from ..drive import BlockingClock, Clock, LoopClock, run_now
from ..errors import Closed, InvalidRequest
from .engine import Operation
from .layers import ReadOnlyLayer
from .port import Backend
from .redis.backend import RedisBackend
from .redis.directory import Directory
from .redis.layout import Keys
from .redis.link import BlockingLink, LoopLink, Sight
from .redis.opening import open_store
from .redis.turns import TurnPool, Turns
from .retry import Retry, RetryLayer

__all__ = ["RedisEngine"]

T = TypeVar("T")
_SCHEMES = {"valkey": "redis", "valkeys": "rediss", "redis+cluster": "redis", "rediss+cluster": "rediss"}
_MOST_CONNECT_SECONDS = 10.0


class RedisEngine:
    """Operations on the keys of one prefix."""

    opens_inline = False
    is_in_memory = False

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
        self._given, self._given_is_async = _given(connection, pool)
        self._target = _Target(url, pool_size, timeout) if self._given is None else None
        self.url = self._target.shown if self._target is not None else "redis://(given)"
        self._is_cluster = self._target.is_cluster if self._target is not None else _is_cluster(self._given)
        self._keys = Keys(key_prefix)
        self._pool_size = pool_size
        self._ttl = ttl
        self._policy = _policy(retry)
        self._setup_mode = setup
        self._read_only = read_only
        self._sight = Sight()
        self._cache: dict[str, int] = {}
        self.is_open = False
        self._is_closed = False
        self._lock = threading.Lock()
        self._blocking: _Half | None = None
        self._loops: weakref.WeakKeyDictionary[Any, _Half] = weakref.WeakKeyDictionary()
        self._inherited: list[Any] = []
        os.register_at_fork(after_in_child=_ForkHook(self))

    def run(self, operation: Operation[T]) -> T:
        return run_now(operation(self._sync_half().backend))

    async def arun(self, operation: Operation[T]) -> T:
        self._check_open()
        if self._given is not None and not self._given_is_async:
            import asyncio

            return await asyncio.to_thread(self.run, operation)
        return await operation(self._loop_half().backend)

    async def awrite(self, operation: Operation[T]) -> T:
        return await self.arun(operation)

    async def open(self, link: BlockingLink, *, creating: bool) -> None:
        """Check the store on its first use, and create it where that is wanted."""
        may_create = creating or (self._setup_mode is not False and not self._read_only)
        await open_store(link, self._keys, may_create=may_create, ttl=self._ttl, is_ours=self.is_open)
        self.is_open = True

    def close(self) -> None:
        """Close what was opened here; a given client stays open."""
        self._is_closed = True
        if self._given is not None:
            return
        if self._blocking is not None and self._blocking.link.made is not None:
            self._blocking.link.made.close()
        for loop, half in list(self._loops.items()):
            if loop.is_running() and half.link.made is not None:
                import asyncio

                with suppress(RuntimeError):
                    asyncio.run_coroutine_threadsafe(half.link.made.aclose(), loop)
        self._loops.clear()

    async def aclose(self) -> None:
        import asyncio

        half = self._loops.pop(asyncio.get_running_loop(), None)
        if half is not None and half.link.made is not None and self._given is None:
            await half.link.made.aclose()
        self.close()

    def forked(self) -> None:
        """Connections of the parent are its own: a child opens others."""
        # Kept and never used: to let go of them would tell the parent's event loops to forget their sockets.
        self._inherited.append((self._blocking, list(self._loops.items())))
        self._lock = threading.Lock()
        self._blocking = None
        self._loops = weakref.WeakKeyDictionary()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("this saver was closed; open a new one with threadline.connect()")

    def _sync_half(self) -> _Half:
        self._check_open()
        half = self._blocking
        if half is None:
            with self._lock:
                if self._blocking is None:
                    if self._given is not None and self._given_is_async:
                        raise InvalidRequest(
                            "a client of redis.asyncio serves the async methods only: give a redis.Redis, or a URL"
                        )
                    link = self._link(BlockingLink, self._blocking_client, self._turns())
                    self._blocking = self._half(link, BlockingClock())
                half = self._blocking
        return half

    def _loop_half(self) -> _Half:
        import asyncio

        loop = asyncio.get_running_loop()
        half = self._loops.get(loop)
        if half is None:
            # A half holds its client, the client its loop: what ended is let go here, or it never is.
            for ended in [one for one in list(self._loops) if one.is_closed()]:
                self._loops.pop(ended, None)
            turns = asyncio.Semaphore(self._pool_size) if self._is_cluster and self._given is None else None
            link = self._link(LoopLink, self._loop_client, turns)
            half = self._loops[loop] = self._half(link, LoopClock())
        return half

    def _turns(self) -> Turns | None:
        """For connections of ours; those of a given client are counted by its own pool."""
        return Turns(self._pool_size, self._target.waits) if self._target is not None else None

    def _link(self, kind: type[BlockingLink], make: Callable[[], Any], turns: Any) -> BlockingLink:
        return kind(make, self._sight, is_cluster=self._is_cluster, where=self.url, turns=turns)

    def _half(self, link: BlockingLink, clock: Clock) -> _Half:
        directory = Directory(link, self._keys, self._cache, partial(self.open, link, creating=False))
        inner = RedisBackend(link, self._keys, directory, clock=clock, ttl=self._ttl)
        backend: Any = _OpeningLayer(inner, link, self)
        if self._policy is not None:
            backend = RetryLayer(backend, self._policy, clock)
        if self._read_only:
            backend = ReadOnlyLayer(backend)
        return _Half(link, backend)

    def _blocking_client(self) -> Any:
        return self._given if self._target is None else self._target.blocking(self._sight)

    def _loop_client(self) -> Any:
        return self._given if self._target is None else self._target.on_loop(self._sight)


class _Half(NamedTuple):
    """What one half works with: in this process, or on one event loop."""

    link: BlockingLink
    backend: Any


class _OpeningLayer:
    """A backend whose store is checked or created before its first call; `setup` creates it in any case."""

    def __init__(self, inner: Backend, link: BlockingLink, engine: RedisEngine) -> None:
        self._inner = inner
        self._link = link
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if self._engine.is_open:
            return method

        async def opened(*args: Any, **options: Any) -> Any:
            await self._engine.open(self._link, creating=name == "setup")
            return await method(*args, **options)

        return opened


class _ForkHook:
    """Tells an engine of a fork without keeping it alive."""

    def __init__(self, engine: RedisEngine) -> None:
        self._engine = weakref.ref(engine)

    def __call__(self) -> None:
        engine = self._engine()
        if engine is not None:
            engine.forked()


class _Target:
    """Where a URL leads, and how clients to it are made."""

    def __init__(self, url: str | None, pool_size: int, timeout: float) -> None:
        scheme, _, rest = (url or "").partition("://")
        self.is_cluster = scheme.endswith("+cluster")
        self._url = f"{_SCHEMES.get(scheme, scheme)}://{rest}"
        self.shown = _without_password(url or "")
        waits = timeout or None
        self._options: dict[str, Any] = {
            "socket_timeout": waits,
            "socket_connect_timeout": min(timeout or _MOST_CONNECT_SECONDS, _MOST_CONNECT_SECONDS),
            "protocol": 2,
            "decode_responses": False,
        }
        self._pool_size = pool_size
        self.waits = waits
        try:
            redis.connection.parse_url(self._url)  # type: ignore[no-untyped-call]
        except ValueError:
            raise InvalidRequest(
                f"{self.shown} is no URL of a Redis server: give redis://user:password@host:6379/0"
            ) from None

    def blocking(self, sight: Sight) -> Any:
        if self.is_cluster:
            return redis.cluster.RedisCluster.from_url(
                self._url,
                retry=_no_retries(),
                connection_pool_class=TurnPool,
                **self._options,
            )
        pool = TurnPool.from_url(
            self._url,
            retry=_no_retries(),
            redis_connect_func=_Greeting(sight),
            **self._options,
        )
        return redis.Redis(connection_pool=pool)

    def on_loop(self, sight: Sight) -> Any:
        from redis.asyncio.retry import Retry as LoopRetry

        if self.is_cluster:
            return redis.asyncio.RedisCluster.from_url(
                self._url, retry=LoopRetry(NoBackoff(), 0), max_connections=2 * self._pool_size, **self._options
            )
        greeting = _Greeting(sight)

        async def greet(connection: Any) -> None:
            await greeting.on_loop(connection)

        pool = redis.asyncio.BlockingConnectionPool.from_url(
            self._url,
            max_connections=self._pool_size,
            timeout=self.waits,
            retry=LoopRetry(NoBackoff(), 0),
            redis_connect_func=greet,
            **self._options,
        )
        return redis.asyncio.Redis(connection_pool=pool)


class _Greeting:
    """Asks a server at each new connection which run of it this is."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def __call__(self, connection: Any) -> None:
        connection.on_connect()
        connection.send_command("INFO", "server")
        try:
            self._note(connection.read_response())
        except redis.ResponseError:
            self._sight.doubts += 1  # it does not say which: it may be any

    async def on_loop(self, connection: Any) -> None:
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        try:
            self._note(await connection.read_response())
        except redis.ResponseError:
            self._sight.doubts += 1

    def _note(self, answer: Any) -> None:
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
        runs = [line for line in text.splitlines() if line.startswith("run_id:")]
        self._sight.meet(runs[0] if runs else "")


def _no_retries() -> DriverRetry:
    # Tries are counted at one place, the retry layer; the driver's would multiply them.
    return DriverRetry(NoBackoff(), 0)


def _given(connection: Any, pool: Any) -> tuple[Any, bool]:
    """A client that the caller gave, and whether it belongs to an event loop."""
    given = connection if connection is not None else pool
    if given is None:
        return None, False
    is_async = any(one.__module__.startswith("redis.asyncio") for one in type(given).__mro__)
    if connection is None:
        given = (redis.asyncio.Redis if is_async else redis.Redis)(connection_pool=pool)
    encoder = given.get_encoder() if hasattr(given, "get_encoder") else None
    if getattr(encoder, "decode_responses", False):
        raise InvalidRequest("the given client decodes what it reads: open it with decode_responses=False")
    return given, is_async


def _is_cluster(client: Any) -> bool:
    return any(one.__name__ == "RedisCluster" for one in type(client).__mro__)


def _policy(retry: Any) -> Retry | None:
    if retry is None or retry is False:
        return None
    return Retry(tries=retry) if isinstance(retry, int) else Retry(*retry)


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        user = parts.username
    except ValueError:
        return url.partition("://")[0] + "://…"
    if "@" in parts.path + parts.query + parts.fragment:
        raise InvalidRequest("the URL has a / ? or # in its user or password: percent-encode it (%2F, %3F, %23)")
    # A query may hold a password too.
    return urlunsplit((parts.scheme, f"{user}@{host}" if user else host, parts.path, "", ""))
