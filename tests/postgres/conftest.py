"""A real PostgreSQL server, and a schema of its own for each test."""

import os
import uuid

import psycopg
import pytest

import threadline


@pytest.fixture(scope="session")
def postgres_url():
    url = os.environ.get("THREADLINE_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL server: {error}")
    return url


@pytest.fixture
def schema(postgres_url):
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE SCHEMA "{name}"')
        yield name
        admin.execute(f'DROP SCHEMA "{name}" CASCADE')


@pytest.fixture
def admin(postgres_url, schema):
    """A connection that may do everything, and finds the schema's tables without naming it."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'SET search_path = "{schema}"')
        yield connection


@pytest.fixture
def connect(postgres_url, schema):
    """Opens savers on the schema of this test; all are closed at its end."""
    opened = []

    def make(**options):
        saver = threadline.connect(postgres_url, **{"schema": schema, "pool_size": 4, **options})
        opened.append(saver)
        return saver

    yield make
    for saver in opened:
        saver.close()
