"""Metadata keys that `index_metadata` names have an index in PostgreSQL; what is found is the same without it."""

import uuid

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import threadline
from tests.history.test_filter_index import VALUES, found, put
from threadline.backends.postgres.backend import PostgresDialect
from threadline.backends.sql.search import page_statements
from threadline.backends.sql.statements import Statements, index_name, indexed_keys
from threadline.ports.checkpoints import Query

NAME = index_name("threadline_", "user_id")


def has_index(admin, schema):
    there = "SELECT 1 FROM pg_indexes WHERE schemaname = %s AND indexname = %s"
    return admin.execute(there, [schema, NAME]).fetchone() is not None


def test_a_filter_on_a_named_key_is_served_by_its_index_in_the_order_of_the_page(connect, admin):
    put(connect(index_metadata=("user_id",)), "one", user_id="ann")
    sql = Statements(PostgresDialect(indexed_keys(("user_id",))), "threadline_")
    [(statement, values)] = page_statements(sql, Query(equals=(("user_id", "ann"),), limit=10))
    # So small a table would be read whole.
    admin.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    plan = "\n".join(line for (line,) in admin.execute(f"EXPLAIN {statement}", [*values, 10]))
    assert f"Index Scan Backward using {NAME}" in plan
    assert "Index Cond: ((searchable -> 'user_id'::text) = " in plan


@pytest.mark.parametrize("options", [{}, {"partitions": 2}])
def test_what_is_found_is_the_same_with_and_without_an_index(connect, options):
    saver = connect(**options)
    for number, value in enumerate(VALUES):
        put(saver, f"thread-{number}", key=value, other=value)
    put(saver, "without")
    plain = [found(saver, key=value) for value in VALUES]
    assert all(plain)
    indexed = connect(index_metadata=("key",), **options)
    assert [found(indexed, key=value) for value in VALUES] == plain
    assert [found(indexed, other=value) for value in VALUES] == plain
    later = put(indexed, "later", key="ann")
    assert found(indexed, key="ann") == [later, *plain[0]]


def test_a_store_gets_the_index_when_the_key_is_first_named(connect, admin, schema):
    put(connect(), "one", user_id="ann")
    for options in ({"setup": False}, {"read_only": True}):
        assert len(found(connect(index_metadata=("user_id",), **options), user_id="ann")) == 1
        assert not has_index(admin, schema)
    for _ in range(2):
        assert len(found(connect(index_metadata=("user_id",)), user_id="ann")) == 1
        assert has_index(admin, schema)


def test_a_role_that_may_make_no_index_searches_without_one(connect, admin, schema, postgres_url, caplog):
    put(connect(), "one", user_id="ann")
    role = f"reader_{uuid.uuid4().hex[:12]}"
    admin.execute(f"CREATE ROLE {role} LOGIN")
    admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    try:
        url = make_conninfo(postgres_url, user=role)
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            pytest.skip("this server lets no new role in")
        with psycopg.connect(url, autocommit=True) as connection:
            saver = threadline.connect(connection=connection, schema=schema, index_metadata=("user_id",))
            assert len(found(saver, user_id="ann")) == 1
            put(saver, "two", user_id="ann")
            assert len(found(saver, user_id="ann")) == 2
    finally:
        admin.execute(f"DROP OWNED BY {role}")
        admin.execute(f"DROP ROLE {role}")
    assert "may not make the indexes" in caplog.text
    assert not has_index(admin, schema)
