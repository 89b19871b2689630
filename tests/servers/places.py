"""A place of its own for each test on a shared server, and its removal.

On servers of the session each worker has a database, because some locks are a database's; on a server that the
environment names, the database of its URL is used as it is. Within it names are unique, so tests never meet.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from .shared import is_foreign, own_url, shared_url

__all__ = ["MysqlPlace", "PgbouncerPlace", "PostgresPlace", "RedisPlace", "mysql_arguments"]


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A schema. `url` opens connections in it; `server_url` is the same database without a choice of schema."""

    url: str
    schema: str
    server_url: str


@dataclass(frozen=True, slots=True)
class PgbouncerPlace:
    """A database behind PgBouncer, empty unless the environment names it; `server_url` leads past PgBouncer."""

    url: str
    table_prefix: str
    server_url: str | None


@dataclass(frozen=True, slots=True)
class MysqlPlace:
    """Tables that begin with a prefix nobody else has."""

    url: str
    table_prefix: str


@dataclass(frozen=True, slots=True)
class RedisPlace:
    """Keys that contain a word nobody else has; tests begin their keys with it."""

    url: str
    key_prefix: str


@contextlib.contextmanager
def postgres_place() -> Iterator[PostgresPlace]:
    import psycopg

    server_url = _worker_database("postgres")
    schema = _unique()
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    joint = "&" if "?" in server_url else "?"
    yield PostgresPlace(f"{server_url}{joint}options=-csearch_path%3D{schema}", schema, server_url)
    with psycopg.connect(server_url, autocommit=True) as connection:
        # A connection that a test left in a transaction would hold up the removal.
        connection.execute(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND l.pid <> pg_backend_pid()",
            [schema],
        )
        connection.execute("SET lock_timeout = '20s'")
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@contextlib.contextmanager
def pgbouncer_place() -> Iterator[PgbouncerPlace]:
    import psycopg

    url, prefix = shared_url("pgbouncer"), f"{_unique()}_"
    if is_foreign("pgbouncer"):
        yield PgbouncerPlace(url, prefix, None)
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE starts_with(tablename, %s)", [prefix])
            for (table,) in tables.fetchall():
                connection.execute(f"DROP TABLE {table} CASCADE")
        return
    # Not a schema: PgBouncer's connections outlive a test, and with them any search path.
    database, server_url = _unique(), own_url("postgres")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    yield PgbouncerPlace(with_database(url, database), prefix, with_database(server_url, database))
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")


@contextlib.contextmanager
def mysql_place() -> Iterator[MysqlPlace]:
    import pymysql

    url, prefix = _worker_database("mysql"), f"{_unique()}_"
    yield MysqlPlace(url, prefix)
    with contextlib.closing(pymysql.connect(**mysql_arguments(url), autocommit=True)) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION foreign_key_checks = 0, SESSION lock_wait_timeout = 1")
        cursor.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND LEFT(table_name, %s) = %s",
            [len(prefix), prefix],
        )
        tables = [table for (table,) in cursor.fetchall()]
        for table in tables:
            try:
                cursor.execute(f"DROP TABLE {table}")
            except pymysql.err.OperationalError:
                # Somebody is in a transaction. On a server of ours this database is one worker's, and that must
                # be a connection that a test left behind.
                if is_foreign("mysql"):
                    raise
                _kill_others(connection)
                cursor.execute(f"DROP TABLE {table}")


@contextlib.contextmanager
def redis_place(kind: str) -> Iterator[RedisPlace]:
    import redis

    url, prefix = shared_url(kind), f"{_unique()}_"
    yield RedisPlace(url, prefix)
    plain = url.replace("+cluster", "")
    with redis.Redis.from_url(plain) if kind == "redis" else redis.RedisCluster.from_url(plain) as client:
        # A key may begin with a bracket that keeps it together with others in a cluster.
        for key in client.scan_iter(match=f"*{prefix}*", count=1000):
            client.unlink(key)


def _kill_others(connection: Any) -> None:
    import pymysql

    cursor = connection.cursor()
    cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE()")
    for (number,) in cursor.fetchall():
        if number != connection.thread_id():
            # It may have ended since.
            with contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute("KILL %s", [number])


def mysql_arguments(url: str) -> dict[str, Any]:
    """What PyMySQL takes, from a URL."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": parts.path.lstrip("/") or None,
    }


def with_database(url: str, database: str) -> str:
    return urlsplit(url)._replace(path=f"/{database}").geturl()


_databases: dict[str, str] = {}


def _worker_database(kind: str) -> str:
    """The URL of the database that this worker's tests share."""
    url = shared_url(kind)
    if is_foreign(kind):
        return url
    # A forked or started process of the same worker must not ask for the same name again.
    name = f"worker_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}"
    made = with_database(url, name)
    if _databases.get(kind) != made:
        _create_database(kind, url, name)
        _databases[kind] = made
    return made


def _create_database(kind: str, url: str, name: str) -> None:
    if kind == "postgres":
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
    else:
        import pymysql

        with contextlib.closing(pymysql.connect(**mysql_arguments(url))) as connection:
            connection.cursor().execute(f"CREATE DATABASE {name}")


def _unique() -> str:
    # A letter first, and nothing that SQL, a key pattern or a table prefix would have to escape.
    return f"t{uuid.uuid4().hex[:12]}"
