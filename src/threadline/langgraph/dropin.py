"""LangGraph's savers under their own names, with their own constructors: only the import line of a program
changes.

A saver made from a URL serves `invoke` and `ainvoke`; one that was given a connection or a pool serves the half that
this belongs to. Options of `threadline.connect` are taken as well.

The shallow savers keep the newest checkpoint of a namespace only: a put is followed by a prune of its thread. Tagged
and pinned checkpoints stay, and so does the chain that a delta channel is replayed from.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..connect import check_driver, is_pool, make_engine, split_options
from ..core.requests import place_of
from ..errors import InvalidRequest
from .checkpointer import Checkpointer, make_tools
from .records import Records, blobs_of, storage_of, writes_of

if TYPE_CHECKING:
    import aiosqlite

    from ..core.context import Context


__all__ = [
    "AIOMySQLSaver",
    "AsyncMySaver",
    "AsyncPostgresSaver",
    "AsyncRedisSaver",
    "AsyncShallowPostgresSaver",
    "AsyncShallowRedisSaver",
    "AsyncSqliteSaver",
    "InMemorySaver",
    "MemorySaver",
    "PostgresSaver",
    "PyMySQLSaver",
    "RedisSaver",
    "ShallowAIOMySQLSaver",
    "ShallowAsyncMySaver",
    "ShallowPostgresSaver",
    "ShallowPyMySQLSaver",
    "ShallowRedisSaver",
    "SqliteSaver",
]


class InMemorySaver(Checkpointer):
    """Checkpoints in this process, as `langgraph.checkpoint.memory.InMemorySaver`."""

    def __init__(self, *, serde: Any = None, factory: Any = None, **options: Any) -> None:
        if factory is not None:
            raise InvalidRequest("InMemorySaver keeps bytes, not dicts: for a file use SqliteSaver instead of factory=")
        super().__init__("memory://", serde=serde, **options)

    @property
    def storage(self) -> Records:
        """The checkpoints, as the dict that LangGraph's has: by thread, namespace and id. A read-only view."""
        return storage_of(self)

    @property
    def writes(self) -> Records:
        """The pending writes, as the dict that LangGraph's has. A read-only view."""
        return writes_of(self)

    @property
    def blobs(self) -> Records:
        """The values by channel and version, as the dict that LangGraph's has. A read-only view."""
        return blobs_of(self)

    # LangGraph's own stays usable after its `with` block; so does this.
    def __exit__(self, *_: object) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


MemorySaver = InMemorySaver


class SqliteSaver(Checkpointer):
    """Checkpoints in SQLite, as `langgraph.checkpoint.sqlite.SqliteSaver`; its async half works too."""

    def __init__(self, conn: sqlite3.Connection, *, serde: Any = None, **options: Any) -> None:
        if not isinstance(conn, sqlite3.Connection):
            raise InvalidRequest("SqliteSaver takes a sqlite3.Connection; for a path use SqliteSaver.from_conn_string")
        engine_options, tool_options = split_options({**options, "serde": serde})
        self.conn = conn
        engine = make_engine(connection=conn, **engine_options)
        self._start(engine, make_tools(engine, **tool_options))

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, **options: Any) -> Iterator[SqliteSaver]:
        """A saver for a path or `:memory:`, closed at the end of the `with` block."""
        saver = cls.__new__(cls)
        Checkpointer.__init__(saver, conn_string, **options)
        with saver:
            saver.conn = saver._engine.writing_connection()  # type: ignore[attr-defined]
            yield saver

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """A cursor of the connection that writes, alone on it; what was done is committed unless told otherwise."""
        with self._engine.alone() as connection:  # type: ignore[attr-defined]
            cursor = connection.cursor()
            try:
                yield cursor
            finally:
                if transaction:
                    connection.commit()
                cursor.close()

    def _limit(self, limit: int | None) -> int | None:
        return _sqlite_limit(limit)


class AsyncSqliteSaver(Checkpointer):
    """Checkpoints in SQLite, as `langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver`."""

    def __init__(self, conn: aiosqlite.Connection, *, serde: Any = None, **options: Any) -> None:
        engine_options, tool_options = split_options({**options, "serde": serde})
        engine_options.pop("ttl", None)  # SQLite expires nothing by itself; a sweep does
        self.conn = conn
        from ..backends.sqlite.given import AiosqliteEngine

        engine = AiosqliteEngine(conn, **engine_options)
        self._start(engine, make_tools(engine, **tool_options))

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string: str, **options: Any) -> AsyncIterator[AsyncSqliteSaver]:
        """A saver for a path or `:memory:`, closed at the end of the `async with` block."""
        saver = cls.__new__(cls)
        Checkpointer.__init__(saver, conn_string, **options)
        async with saver:
            yield saver

    async def setup(self) -> None:  # type: ignore[override]
        """Create the tables now; awaited, as in the original."""
        await self.asetup()

    def _limit(self, limit: int | None) -> int | None:
        return _sqlite_limit(limit)


def _sqlite_limit(limit: int | None) -> int | None:
    """SQLite takes a negative LIMIT for none at all."""
    return None if type(limit) is int and limit < 0 else limit


S = TypeVar("S", bound="_ServerSaver")


class _ServerSaver(Checkpointer):
    """A saver that is given a connection or a pool of its driver, or made from a connection string."""

    _schemes: tuple[str, ...] = ()

    def __init__(self, conn: Any, pipe: Any = None, serde: Any = None, **options: Any) -> None:
        if isinstance(conn, str):
            raise InvalidRequest(f"{type(self).__name__} takes a connection or a pool; for a URL use from_conn_string")
        # A pipeline of the caller's is his connection's; puts are single round trips without one.
        given = {"pool": conn} if is_pool(conn) else {"connection": conn}
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
        from ..backends.postgres.url import url_of_keywords

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


async def _keep_newest(ctx: Context, thread_id: str) -> None:
    # Retention loads much that no other saver needs.
    from ..core.retention.sweep import keep_newest

    await keep_newest(ctx, thread_id)


class _Shallow(Checkpointer):
    """The newest checkpoint of each namespace, and no parents. A config that names an older one means the newest."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        made = super().put(config, checkpoint, metadata, new_versions)
        thread_id = made["configurable"]["thread_id"]
        self._run(_keep_newest, thread_id)
        return made

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        made = await super().aput(config, checkpoint, metadata, new_versions)
        thread_id = made["configurable"]["thread_id"]
        await self._arun(_keep_newest, thread_id)
        return made

    def get_tuple(self, config: Any) -> Any:
        return _without_parent(super().get_tuple(_newest(config)))

    async def aget_tuple(self, config: Any) -> Any:
        return _without_parent(await super().aget_tuple(_newest(config)))

    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None) -> Iterator[Any]:
        for found in super().list(config, filter=filter, before=before, limit=limit):
            yield _without_parent(found)

    async def alist(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[Any]:
        async for found in super().alist(config, filter=filter, before=before, limit=limit):
            yield _without_parent(found)


class ShallowPostgresSaver(_Shallow, PostgresSaver):
    """As `langgraph.checkpoint.postgres.shallow.ShallowPostgresSaver`."""


class AsyncShallowPostgresSaver(_Shallow, AsyncPostgresSaver):
    """As `langgraph.checkpoint.postgres.shallow.AsyncShallowPostgresSaver`."""


class ShallowPyMySQLSaver(_Shallow, PyMySQLSaver):
    """As `langgraph.checkpoint.mysql.pymysql.ShallowPyMySQLSaver`."""


class ShallowAIOMySQLSaver(_Shallow, AIOMySQLSaver):
    """As `langgraph.checkpoint.mysql.aio.ShallowAIOMySQLSaver`."""


class ShallowAsyncMySaver(_Shallow, AsyncMySaver):
    """As `langgraph.checkpoint.mysql.asyncmy.ShallowAsyncMySaver`."""


class ShallowRedisSaver(_Shallow, RedisSaver):
    """As `langgraph.checkpoint.redis.ShallowRedisSaver`."""


class AsyncShallowRedisSaver(_Shallow, AsyncRedisSaver):
    """As `langgraph.checkpoint.redis.AsyncShallowRedisSaver`."""


def _newest(config: Any) -> Any:
    place = place_of(config)
    return {"configurable": {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}}


def _without_parent(found: Any) -> Any:
    return None if found is None else found._replace(parent_config=None)
