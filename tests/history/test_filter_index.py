"""Metadata keys that `index_metadata` names have an index in SQLite; what is found is the same without it."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

import threadline
from threadline import KeyRing
from threadline.backends.sql.search import page_statements
from threadline.backends.sql.statements import Statements, index_name, indexed_keys
from threadline.backends.sqlite.dialect import SqliteDialect
from threadline.base.ids import uuid6
from threadline.ports.checkpoints import Query

VALUES = ["ann", "bob", "", "1", 1, 1.0, True, 0, False, 2.5, -3, 2**60, None, ["ann"], "x" * 600, "ä€😀", "it's"]


def put(saver, thread_id, **metadata):
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    checkpoint = {
        "v": 4,
        "ts": "2025-01-01T00:00:00+00:00",
        "id": str(uuid6()),
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
    }
    saver.put(config, checkpoint, {"source": "loop", "step": 0, "parents": {}, **metadata}, {})
    return checkpoint["id"]


def found(saver, **filter):
    return [one.config["configurable"]["checkpoint_id"] for one in saver.list(None, filter=filter)]


def indexes(path):
    with sqlite3.connect(path) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agents.db"


def test_a_filter_on_a_named_key_is_served_by_its_index_in_the_order_of_the_page(path):
    with threadline.connect(path, index_metadata=("user_id",)) as saver:
        put(saver, "one", user_id="ann")
    sql = Statements(SqliteDialect(indexed_keys(("user_id",))), "threadline_")
    for before in (None, "9"):
        [(statement, values)] = page_statements(sql, Query(equals=(("user_id", "ann"),), before=before, limit=10))
        with sqlite3.connect(path) as connection:
            plan = str(connection.execute(f"EXPLAIN QUERY PLAN {statement}", [*values, 10]).fetchall())
        assert f"{index_name('threadline_', 'user_id')} (<expr>=?" in plan
        assert "SCAN c" not in plan


def test_what_is_found_is_the_same_with_and_without_an_index(path):
    with threadline.connect(path) as saver:
        for number, value in enumerate(VALUES):
            put(saver, f"thread-{number}", key=value, other=value)
        put(saver, "without")
        plain = [found(saver, key=value) for value in VALUES]
    assert all(plain)
    with threadline.connect(path, index_metadata=("key",)) as saver:
        assert [found(saver, key=value) for value in VALUES] == plain
        assert [found(saver, other=value) for value in VALUES] == plain
        later = put(saver, "later", key="ann")
        assert found(saver, key="ann") == [later, *plain[0]]


def test_a_store_gets_the_index_when_the_key_is_first_named(path):
    with threadline.connect(path) as saver:
        put(saver, "one", user_id="ann")
    name = index_name("threadline_", "user_id")
    for options in ({"setup": False}, {"read_only": True}):
        with threadline.connect(path, index_metadata=("user_id",), **options) as saver:
            assert len(found(saver, user_id="ann")) == 1
        assert name not in indexes(path)
    with threadline.connect(path, index_metadata=("user_id",)) as saver:
        assert len(found(saver, user_id="ann")) == 1
    assert name in indexes(path)


def test_keys_that_cannot_stand_in_a_statement_are_found_without_an_index(path):
    odd = ("a b", "a.b", "it's", '"', "a'); DROP TABLE threadline_threads; --", "é", "", "step", "source", "run_id")
    assert indexed_keys(odd) == ()
    before = None
    for named in ((), odd):
        with threadline.connect(path, index_metadata=named) as saver:
            put(saver, "one", **{"a b": "x", "run_id": "r"})
            assert found(saver, **{"a b": "x"}) == found(saver, run_id="r") != []
        assert before in (None, indexes(path))
        before = indexes(path)


def test_a_key_of_any_length_has_an_index_of_its_own():
    keys = ["k" * 199, "k" * 200, "k-1", "k_1"]
    assert len({index_name("p" * 41, key) for key in indexed_keys(keys)}) == len(keys)
    assert all(len(index_name("p" * 41, key)) <= 63 for key in keys)
    assert indexed_keys(["k" * 201]) == ()


def test_many_that_open_at_once_make_the_index_once(path):
    with threadline.connect(path) as saver:
        for number in range(50):
            put(saver, f"thread-{number}", user_id=f"user-{number % 5}")

    def look(number):
        with threadline.connect(path, index_metadata=("user_id",)) as saver:
            return len(found(saver, user_id="user-3"))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(look, range(8))) == [10] * 8
    assert index_name("threadline_", "user_id") in indexes(path)


def test_an_encrypted_store_has_the_index_too(path):
    with threadline.connect(path, encryption=KeyRing({"k": b"k" * 32}), index_metadata=("user_id",)) as saver:
        put(saver, "one", user_id="ann", tenant="hidden")
        assert len(found(saver, user_id="ann")) == len(found(saver, tenant="hidden")) == 1
    assert index_name("threadline_", "user_id") in indexes(path)
