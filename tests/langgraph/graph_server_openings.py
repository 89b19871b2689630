"""Every way to make a saver of a server under its drop-in name, each as an `async with` block for one test body.

The sync ones never wait for a loop, so `run_now` drives the body through them.
"""

import contextlib

import aiomysql
import psycopg
import psycopg_pool
import pymysql
import redis.asyncio
from psycopg.rows import dict_row

import redis
from tests.servers.places import mysql_arguments
from threadline.langgraph import (
    AIOMySQLSaver,
    AsyncPostgresSaver,
    AsyncRedisSaver,
    PostgresSaver,
    PyMySQLSaver,
    RedisSaver,
)

# As LangGraph's documentation tells people to make theirs.
PSYCOPG = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


@contextlib.asynccontextmanager
async def postgres_url(place):
    with PostgresSaver.from_conn_string(place.url) as saver:
        yield saver


@contextlib.asynccontextmanager
async def postgres_connection(place):
    with psycopg.connect(place.url, **PSYCOPG) as connection:
        yield PostgresSaver(connection)


@contextlib.asynccontextmanager
async def postgres_pool(place):
    with psycopg_pool.ConnectionPool(place.url, min_size=1, max_size=3, kwargs=PSYCOPG, open=True) as pool:
        yield PostgresSaver(pool)


@contextlib.asynccontextmanager
async def async_postgres_url(place):
    async with AsyncPostgresSaver.from_conn_string(place.url) as saver:
        yield saver


@contextlib.asynccontextmanager
async def async_postgres_connection(place):
    async with await psycopg.AsyncConnection.connect(place.url, **PSYCOPG) as connection:
        yield AsyncPostgresSaver(connection)


@contextlib.asynccontextmanager
async def async_postgres_pool(place):
    made = psycopg_pool.AsyncConnectionPool(place.url, min_size=1, max_size=3, kwargs=PSYCOPG, open=False)
    async with made as pool:
        yield AsyncPostgresSaver(pool)


@contextlib.asynccontextmanager
async def mysql_url(place):
    with PyMySQLSaver.from_conn_string(place.url, table_prefix=place.table_prefix) as saver:
        yield saver


@contextlib.asynccontextmanager
async def mysql_connection(place):
    with pymysql.connect(**mysql_arguments(place.url), autocommit=True) as connection:
        yield PyMySQLSaver(connection, table_prefix=place.table_prefix)


@contextlib.asynccontextmanager
async def async_mysql_url(place):
    async with AIOMySQLSaver.from_conn_string(place.url, table_prefix=place.table_prefix) as saver:
        yield saver


@contextlib.asynccontextmanager
async def async_mysql_connection(place):
    connection = await aiomysql.connect(**_aiomysql(place), autocommit=True)
    try:
        yield AIOMySQLSaver(connection, table_prefix=place.table_prefix)
    finally:
        await connection.ensure_closed()


@contextlib.asynccontextmanager
async def async_mysql_pool(place):
    async with aiomysql.create_pool(**_aiomysql(place), autocommit=True, minsize=1, maxsize=3) as pool:
        yield AIOMySQLSaver(pool, table_prefix=place.table_prefix)


@contextlib.asynccontextmanager
async def redis_url(place):
    with RedisSaver.from_conn_string(place.url, key_prefix=place.key_prefix) as saver:
        yield saver


@contextlib.asynccontextmanager
async def redis_client(place):
    with redis.Redis.from_url(place.url) as client:
        yield RedisSaver(redis_client=client, key_prefix=place.key_prefix)


@contextlib.asynccontextmanager
async def async_redis_url(place):
    async with AsyncRedisSaver.from_conn_string(place.url, key_prefix=place.key_prefix) as saver:
        yield saver


@contextlib.asynccontextmanager
async def async_redis_client(place):
    async with redis.asyncio.Redis.from_url(place.url) as client:
        yield AsyncRedisSaver(redis_client=client, key_prefix=place.key_prefix)


def _aiomysql(place):
    arguments = mysql_arguments(place.url)
    database = arguments.pop("database")
    return {**arguments, "db": database}


OPENINGS = {
    "postgres": (postgres_url, postgres_connection, postgres_pool),
    "async postgres": (async_postgres_url, async_postgres_connection, async_postgres_pool),
    "mysql": (mysql_url, mysql_connection),
    "async mysql": (async_mysql_url, async_mysql_connection, async_mysql_pool),
    "redis_server": (redis_url, redis_client),
    "async redis_server": (async_redis_url, async_redis_client),
}
