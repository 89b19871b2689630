"""Which server is meant by a URL, or by a client that the caller gave; and how clients to it are made."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis.asyncio
from redis.asyncio.retry import Retry as LoopRetry
from redis.backoff import NoBackoff
from redis.retry import Retry as BlockingRetry

import redis

from ...base.drive import run_now, settled
from ...errors import InvalidRequest
from ..lending import Given, LoopPlaces, Places, Pool
from ..server import ServerIdentity, exhausted
from .errors import AnotherServer
from .wire import ClientPool, Turn, TurnDriver, TurnPool

__all__ = ["Target", "target_of"]

_SCHEMES = {"valkey": "redis", "valkeys": "rediss", "redis+cluster": "redis", "rediss+cluster": "rediss"}
_MOST_CONNECT_SECONDS = 10.0


class Target(ABC):
    """A server or cluster, and its clients."""

    shown = "redis://(given)"  # the URL without a password
    is_cluster = False
    is_given = False
    # The only half that a given client serves: "sync" or "async"; None for both.
    only_half: str | None = None

    @abstractmethod
    def source(self, identity: ServerIdentity, *, is_of_loop: bool) -> Pool | Given:
        """What lends each call of a client its turn."""


def target_of(url: str | None, connection: Any, pool: Any, pool_size: int, timeout: float) -> Target:
    """The server that the options of an engine name."""
    if connection is None and pool is None:
        return _ByUrl(url or "", pool_size, timeout)
    return _Given(connection, pool)


class _ByUrl(Target):
    """Clients are ours: made and closed by the engine."""

    def __init__(self, url: str, pool_size: int, timeout: float) -> None:
        scheme, _, rest = url.partition("://")
        self.is_cluster = scheme.endswith("+cluster")
        self._url = f"{_SCHEMES.get(scheme, scheme)}://{rest}"
        self.shown = _without_password(url)
        self._pool_size = pool_size
        self._seconds = timeout or None
        self._options: dict[str, Any] = {
            "socket_timeout": self._seconds,
            "socket_connect_timeout": min(timeout or _MOST_CONNECT_SECONDS, _MOST_CONNECT_SECONDS),
            "protocol": 2,
            "decode_responses": False,
        }
        try:
            redis.connection.parse_url(self._url)  # type: ignore[no-untyped-call]
        except ValueError:
            raise InvalidRequest(
                f"{self.shown} is no URL of a Redis server: give redis://user:password@host:6379/0"
            ) from None

    def _blocking_client(self, identity: ServerIdentity) -> Any:
        # The retry layer alone counts tries; those of the driver would multiply them.
        options = {"retry": BlockingRetry(NoBackoff(), 0), **self._options}
        if self.is_cluster:
            return redis.cluster.RedisCluster.from_url(self._url, connection_pool_class=TurnPool, **options)
        greet = partial(_greet_now, identity)
        return redis.Redis(connection_pool=TurnPool.from_url(self._url, redis_connect_func=greet, **options))

    def _loop_client(self, identity: ServerIdentity) -> Any:
        options = {"retry": LoopRetry(NoBackoff(), 0), "max_connections": 2 * self._pool_size, **self._options}
        if self.is_cluster:
            return redis.asyncio.RedisCluster.from_url(self._url, **options)
        # The driver's plain pool makes an error of its limit, which the URL may lower, and in many versions it connects
        # under a lock: while one task connects, no other one gets a connection.
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            self._url, timeout=self._seconds, redis_connect_func=partial(_greet, identity), **options
        )
        return redis.asyncio.Redis.from_pool(pool)

    def source(self, identity: ServerIdentity, *, is_of_loop: bool) -> Pool | Given:
        make = partial(self._loop_client if is_of_loop else self._blocking_client, identity)
        out_of_turns = partial(exhausted, self._pool_size, self.shown, self._seconds or 0.0)
        # An interrupt may meet the blocking client of a cluster while it learns about its nodes.
        driver = TurnDriver(make, renews_client=self.is_cluster and not is_of_loop)
        kind = ClientPool if is_of_loop else Pool
        return kind(driver, self._pool_size, self._seconds, out_of_turns, is_of_loop=is_of_loop)


class _Given(Target):
    """A client, or a pool, that the caller gave: it counts its connections, and stays open."""

    is_given = True

    def __init__(self, connection: Any, pool: Any) -> None:
        kinds = type(connection if connection is not None else pool).__mro__
        is_async = any(one.__module__.startswith("redis.asyncio") for one in kinds)
        if connection is None:
            connection = (redis.asyncio.Redis if is_async else redis.Redis)(connection_pool=pool)
        encoder = connection.get_encoder() if hasattr(connection, "get_encoder") else None
        if getattr(encoder, "decode_responses", False):
            raise InvalidRequest("the given client decodes what it reads: open it with decode_responses=False")
        self._client = connection
        self.only_half = "async" if is_async else "sync"
        self.is_cluster = any(one.__name__ == "RedisCluster" for one in kinds)

    def source(self, identity: ServerIdentity, *, is_of_loop: bool) -> Pool | Given:
        turn = Turn(TurnDriver(lambda: self._client))
        return Given(LoopPlaces(math.inf) if is_of_loop else Places(math.inf), lambda: turn)


async def _greet(identity: ServerIdentity, connection: Any) -> None:
    """Ask a server at each new connection which run of it this is."""
    await settled(connection.on_connect())
    await settled(connection.send_command("INFO", "server"))
    try:
        answer = await settled(connection.read_response())
    except redis.ResponseError:
        identity.lose()  # the server does not say which run this is: it may be another one
        return
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    run = next((line for line in text.splitlines() if line.startswith("run_id:")), None)
    if run is not None and identity.saw(run) is not None:
        # The driver reconnects on its own, and would send the command in its hands, which may rely on the former run.
        raise AnotherServer


def _greet_now(identity: ServerIdentity, connection: Any) -> None:
    run_now(_greet(identity, connection))


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
