"""LangGraph's savers for database servers, under their own names and with their own constructors.

Each serves `invoke` and `ainvoke` when it was made from a URL; one that was given a connection or a pool
serves the half that this belongs to. Options of `threadline.connect` are taken as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from ..connecting import check_driver, make_engine, split_options
from ..errors import InvalidRequest
from .checkpointer import Checkpointer, make_tools

__all__ = [
    "AIOMySQLSaver",
    "AsyncMySaver",
    "AsyncPostgresSaver",
    "AsyncRedisSaver",
    "PostgresSaver",
    "PyMySQLSaver",
    "RedisSaver",
]

S = TypeVar("S", bound="_ServerSaver")


class _ServerSaver(Checkpointer):
    """A saver that is given a connection or a pool of its driver, or made from a connection string."""

    _schemes: tuple[str, ...] = ()

    def __init__(self, conn: Any, pipe: Any = None, serde: Any = None, **options: Any) -> None:
        if isinstance(conn, str):
            raise InvalidRequest(f"{type(self).__name__} takes a connection or a pool; for a URL use from_conn_string")
        # A pipeline of the caller's is his connection's; puts are single round trips without one.
        given = {"pool": conn} if _is_pool(conn) else {"connection": conn}
        engine_options, tool_options = split_options({**options, **given, "serde": serde})
        self.conn = conn
        engine = make_engine(None, **engine_options)
        self._start(engine, make_tools(engine, **tool_options))

    @classmethod
    def _from_url(cls: type[S], conn_string: str, options: dict[str, Any]) -> S:
        options.pop("pipeline", None)
        saver = cls.__new__(cls)
        conn_string = cls._url_of(conn_string)
        scheme = conn_string.partition("://")[0] if "://" in conn_string else ""
        if scheme not in cls._schemes:
            raise InvalidRequest(f"{cls.__name__} takes a URL that begins with {cls._schemes[0]}://")
        Checkpointer.__init__(saver, conn_string, **options)
        saver.conn = None
        return saver

    @classmethod
    def _url_of(cls, conn_string: str) -> str:
        """What `from_conn_string` was given, as a URL."""
        return conn_string

    def _limit(self, limit: int | None) -> int | None:
        if type(limit) is int and limit < 0:
            raise InvalidRequest("limit must not be negative: no server takes that")
        return limit


class _Sync(_ServerSaver):
    @classmethod
    @contextmanager
    def from_conn_string(cls: type[S], conn_string: str, **options: Any) -> Iterator[S]:
        """A saver for a URL, closed at the end of the `with` block."""
        with cls._from_url(conn_string, options) as saver:
            yield saver


class _Async(_ServerSaver):
    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls: type[S], conn_string: str, **options: Any) -> AsyncIterator[S]:
        """A saver for a URL, closed at the end of the `async with` block."""
        async with cls._from_url(conn_string, options) as saver:
            yield saver

    async def setup(self) -> None:  # type: ignore[override]
        """Create the tables now; awaited, as in the original."""
        await self.asetup()


class _PostgresSaver(_ServerSaver):
    _schemes = ("postgresql", "postgres", "postgresql+psycopg")

    @classmethod
    def _url_of(cls, conn_string: str) -> str:
        if "://" in conn_string.partition("=")[0]:
            return conn_string
        check_driver("postgresql")
        from ..backends.postgres_engine import url_of_keywords

        return url_of_keywords(conn_string)


class PostgresSaver(_PostgresSaver, _Sync):
    """Checkpoints in PostgreSQL, as `langgraph.checkpoint.postgres.PostgresSaver`."""


class AsyncPostgresSaver(_PostgresSaver, _Async):
    """Checkpoints in PostgreSQL, as `langgraph.checkpoint.postgres.aio.AsyncPostgresSaver`."""


class _MysqlSaver(_ServerSaver):
    _schemes = ("mysql", "mariadb", "mysql+pymysql", "mysql+aiomysql", "mysql+asyncmy")

    # The originals have no pipeline: their second argument is the serializer.
    def __init__(self, conn: Any, serde: Any = None, **options: Any) -> None:
        super().__init__(conn, serde=serde, **options)


class PyMySQLSaver(_MysqlSaver, _Sync):
    """Checkpoints in MySQL or MariaDB, as `langgraph.checkpoint.mysql.pymysql.PyMySQLSaver`."""


class AIOMySQLSaver(_MysqlSaver, _Async):
    """Checkpoints in MySQL or MariaDB, as `langgraph.checkpoint.mysql.aio.AIOMySQLSaver`."""


class AsyncMySaver(AIOMySQLSaver):
    """Checkpoints in MySQL or MariaDB, as `langgraph.checkpoint.mysql.asyncmy.AsyncMySaver`; aiomysql is the driver."""

    def __init__(self, conn: Any, serde: Any = None, **options: Any) -> None:
        if type(conn).__module__.partition(".")[0] == "asyncmy":
            raise InvalidRequest(
                f"{type(self).__name__} has no use for a connection or pool of asyncmy: give it one of aiomysql, or "
                f"make it with from_conn_string"
            )
        super().__init__(conn, serde, **options)


class _RedisSaver(_ServerSaver):
    _schemes = ("redis", "rediss", "valkey", "valkeys", "redis+cluster", "rediss+cluster")

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: Any = None,
        connection_args: Mapping[str, Any] | None = None,
        ttl: Any = None,
        **options: Any,
    ) -> None:
        if connection_args:
            raise InvalidRequest("give connection options in the URL, or a redis_client= made with them")
        options = {**options, **_ttl(ttl)}
        if redis_client is not None:
            super().__init__(redis_client, **options)
        elif redis_url is not None:
            Checkpointer.__init__(self, redis_url, **options)
            self.conn = None
        else:
            raise InvalidRequest("give redis_url= or redis_client=")


class RedisSaver(_RedisSaver):
    """Checkpoints in plain Redis or Valkey, as `langgraph.checkpoint.redis.RedisSaver`; no modules needed."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Iterator[RedisSaver]:
        """A saver for a URL, closed at the end of the `with` block."""
        with cls(redis_url, **options) as saver:
            yield saver


class AsyncRedisSaver(_RedisSaver):
    """Checkpoints in plain Redis or Valkey, as `langgraph.checkpoint.redis.aio.AsyncRedisSaver`."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> AsyncIterator[AsyncRedisSaver]:
        """A saver for a URL, closed at the end of the `async with` block."""
        async with cls(redis_url, **options) as saver:
            yield saver

    async def setup(self) -> None:  # type: ignore[override]
        """Check the server now; awaited, as in the original."""
        await self.asetup()


def _ttl(ttl: Any) -> dict[str, Any]:
    """The original takes `{"default_ttl": minutes}`; a number is seconds, as everywhere in Threadline."""
    if isinstance(ttl, Mapping):
        minutes = ttl.get("default_ttl")
        return {} if minutes is None else {"ttl": float(minutes) * 60}
    return {} if ttl is None else {"ttl": ttl}


def _is_pool(given: Any) -> bool:
    return type(given).__module__.startswith("psycopg_pool") or type(given).__name__ == "Pool"
