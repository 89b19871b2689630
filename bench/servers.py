"""The sides of a comparison on a server: a place is a database of its own, or on Redis a prefix of its own.

Servers are those of the tests, started for a section and removed after it, with the sizes that they have by default:
the tests' own are small. Each is asked whether it flushes before it acknowledges. The driver packages and LangGraph's
savers are imported when asked for, so that a machine without them measures the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.arena import Skipped
from bench.checks import check
from bench.savers import NO_THREAD, Ours, Peer, Saver

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

POOL_SIZE = 10  # what both sides get for many tasks or OS threads
# What the servers take by default, where those of the tests are kept small.
POSTGRES = {"shared_buffers": "128MB", "autovacuum": "on", "wal_level": "replica"}
MARIADB = (
    "--innodb-buffer-pool-size=128M",
    "--innodb-log-file-size=96M",
    # The peer reads a state as one JSON_ARRAYAGG, which MariaDB cuts off here, by default at 1 MB.
    "--group-concat-max-len=1G",
)


class Postgres:
    """PostgreSQL, and the databases made on it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._made: set[str] = set()
        with self._connected(server.url) as connection:
            settings = [connection.execute(f"SHOW {name}").fetchone()[0] for name in ("fsync", "synchronous_commit")]
        check(settings == ["on", "on"], f"PostgreSQL runs with fsync, synchronous_commit = {settings}")

    def url(self, place: Path) -> str:
        """The URL of a place, whose database is made when it is first asked for."""
        name = _name(place)
        if name not in self._made:
            with self._connected(self._server.url) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            self._made.add(name)
        return str(self._server.url_of(name))

    def bytes_of(self, place: Path) -> int:
        """All tables with their indexes and what is stored beside them, once vacuumed."""
        with self._connected(self.url(place)) as connection:
            connection.execute("VACUUM")
            total = "SELECT coalesce(sum(pg_total_relation_size(relid)), 0) FROM pg_stat_user_tables"
            return int(connection.execute(total).fetchone()[0])

    @staticmethod
    def _connected(url: str) -> Any:
        import psycopg

        return psycopg.connect(url, autocommit=True)


class Mariadb:
    """MariaDB, and the databases made on it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._made: set[str] = set()
        [(flushes,)] = self._rows(server.url, "SELECT @@innodb_flush_log_at_trx_commit")
        check(flushes == 1, f"MariaDB runs with innodb_flush_log_at_trx_commit = {flushes}")

    def url(self, place: Path) -> str:
        name = _name(place)
        if name not in self._made:
            self._rows(self._server.url, f"CREATE DATABASE {name}")
            self._made.add(name)
        return str(self._server.url_of(name))

    def bytes_of(self, place: Path) -> int:
        """What InnoDB counts for all tables and their indexes, counted anew."""
        url = self.url(place)
        here = "FROM information_schema.tables WHERE table_schema = DATABASE()"
        tables = [table for (table,) in self._rows(url, f"SELECT table_name {here}")]
        self._rows(url, f"ANALYZE TABLE {', '.join(tables)}")
        [(total,)] = self._rows(url, f"SELECT sum(data_length + index_length) {here}")
        return int(total)

    @staticmethod
    def _rows(url: str, statement: str) -> list[Any]:
        import pymysql

        from tests.servers.places import mysql_arguments

        with closing(pymysql.connect(**mysql_arguments(url), autocommit=True)) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall())


class Redis:
    """Redis, and the prefixes in use on it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        check("always" in server.ask("CONFIG", "GET", "appendfsync"), "Redis does not flush before it acknowledges")

    @property
    def url(self) -> str:
        return str(self._server.url)

    def bytes_of(self, place: Path) -> int:
        """The memory of all keys of a place, every element counted."""
        import redis

        with redis.Redis.from_url(self.url) as client:
            keys = list(client.scan_iter(match=f"*{key_prefix(place)}*", count=1_000))
            return sum(client.memory_usage(key, samples=0) or 0 for key in keys)


class OnServer:
    """What all sides on a server have in common."""

    server: Postgres | Mariadb | Redis

    def bytes_of(self, place: Path) -> int:
        return self.server.bytes_of(place)

    def growth_of(self, place: Path) -> Callable[[], int] | None:
        return None  # asking means vacuuming or counting

    def is_durable(self, place: Path) -> bool:
        return True  # the server was asked when it had started


class OursOnServer(OnServer, Ours):
    """Threadline on PostgreSQL, or on MySQL and MariaDB."""

    def __init__(self, server: Postgres | Mariadb) -> None:
        self.server: Postgres | Mariadb = server

    def connection(self, place: Path) -> dict[str, Any]:
        return {"url": self.server.url(place), "pool_size": POOL_SIZE}


class OursOnRedis(OnServer, Ours):
    """Threadline on Redis."""

    def __init__(self, server: Redis) -> None:
        self.server: Redis = server

    def connection(self, place: Path) -> dict[str, Any]:
        return {"url": self.server.url, "key_prefix": key_prefix(place), "pool_size": POOL_SIZE}


class PostgresPeer(OnServer, Peer):
    """LangGraph's PostgresSaver and AsyncPostgresSaver: one connection, or a pool for many."""

    def __init__(self, server: Postgres) -> None:
        self.server: Postgres = server

    @contextmanager
    def open(self, place: Path, *, trust_identity: bool = False, share_decoded: bool = False) -> Iterator[Saver]:
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(self.server.url(place)) as saver:
            saver.setup()
            saver.get_tuple(NO_THREAD)
            yield saver

    @contextmanager
    def open_for_threads(self, place: Path) -> Iterator[Saver]:
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg_pool import ConnectionPool

        with ConnectionPool(self.server.url(place), **_pool_options()) as pool:
            pool.wait()
            saver = PostgresSaver(pool)
            saver.setup()
            saver.get_tuple(NO_THREAD)
            yield saver

    @asynccontextmanager
    async def open_for_tasks(self, place: Path) -> AsyncIterator[Saver]:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg_pool import AsyncConnectionPool

        async with AsyncConnectionPool(self.server.url(place), **_pool_options()) as pool:
            await pool.wait()
            saver = AsyncPostgresSaver(pool)
            await saver.setup()
            await saver.aget_tuple(NO_THREAD)
            yield saver


class MysqlPeer(OnServer, Peer):
    """LangGraph's PyMySQLSaver on one connection, and AIOMySQLSaver on a pool."""

    def __init__(self, server: Mariadb) -> None:
        self.server: Mariadb = server

    @contextmanager
    def open(self, place: Path, *, trust_identity: bool = False, share_decoded: bool = False) -> Iterator[Saver]:
        from langgraph.checkpoint.mysql.pymysql import PyMySQLSaver

        with PyMySQLSaver.from_conn_string(self.server.url(place)) as saver:
            saver.setup()
            saver.get_tuple(NO_THREAD)
            yield saver

    def open_for_threads(self, place: Path) -> AbstractContextManager[Saver]:
        return self.open(place)

    @asynccontextmanager
    async def open_for_tasks(self, place: Path) -> AsyncIterator[Saver]:
        import aiomysql
        from langgraph.checkpoint.mysql.aio import AIOMySQLSaver

        _mend_aiomysql()
        named = AIOMySQLSaver.parse_conn_string(self.server.url(place))
        async with aiomysql.create_pool(minsize=POOL_SIZE, maxsize=POOL_SIZE, autocommit=True, **named) as pool:
            saver = AIOMySQLSaver(conn=pool)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that its table of migrations exists
                await saver.setup()
            await saver.aget_tuple(NO_THREAD)
            yield saver


@contextmanager
def postgres() -> Iterator[Postgres]:
    from tests.servers import PostgresServer

    with _started(lambda: PostgresServer(durable=True, **POSTGRES)) as server:
        yield Postgres(server)


@contextmanager
def mariadb() -> Iterator[Mariadb]:
    from tests.servers import MariadbServer

    with _started(lambda: MariadbServer(durable=True, options=MARIADB)) as server:
        yield Mariadb(server)


@contextmanager
def redis() -> Iterator[Redis]:
    from tests.servers import RedisServer

    with _started(RedisServer) as server:
        yield Redis(server)


def key_prefix(place: Path) -> str:
    # Ends in a letter, so that no prefix is the beginning of another.
    return f"{_name(place)}x"


@contextmanager
def _started(make: Callable[[], Any]) -> Iterator[Any]:
    """A server that runs inside the block. One that cannot be had, or whose driver is missing, skips the section."""
    from tests.servers import StartFailed

    try:
        server = make().start()
    except StartFailed as failure:
        raise Skipped(str(failure).splitlines()[0]) from failure
    try:
        yield server
    except ImportError as missing:
        raise Skipped(f"the package {missing.name} is not installed") from missing
    finally:
        server.remove()


def _mend_aiomysql() -> None:
    """PyMySQL 1.2 withdrew what aiomysql 0.3 escapes bytes with; without it the peer could not put anything."""
    import aiomysql.connection
    import pymysql.converters

    if not callable(aiomysql.connection.escape_bytes_prefixed):
        aiomysql.connection.escape_bytes_prefixed = pymysql.converters.escape_bytes


def _name(place: Path) -> str:
    return place.stem.replace("-", "_")


def _pool_options() -> dict[str, Any]:
    from psycopg.rows import dict_row

    connection = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    return {"min_size": POOL_SIZE, "max_size": POOL_SIZE, "kwargs": connection, "open": False}
