"""Columns of records that hold what no put wrote: SQLite keeps anything in any column."""

import asyncio
import sqlite3

import pytest

import threadline

# A column, what it is made to hold, and whether it is a part of an entry that a cache reads.
DAMAGE = [
    ("form", "'x'", True),
    ("form", "7", True),
    ("form", "-3", True),
    ("form", "x'00'", True),
    ("value", "'text'", True),
    ("value", "5", True),
    ("value", "x''", True),
    ("expires", "'soon'", True),
    ("created", "'then'", False),
    ("updated", "x'0102'", False),
]


def damage(path, column, value):
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE threadline_records SET {column} = {value}")
    connection.close()


@pytest.mark.parametrize(("column", "value", "is_read"), DAMAGE)
def test_an_item_with_a_damaged_column_is_corrupt_and_never_a_value(tmp_path, column, value, is_read):
    path = tmp_path / "items.db"
    with threadline.Store(path) as store:
        store.put(("users",), "ada", {"n": 1})
        store.put(("users",), "bob", {"n": 2})
        assert store.get(("users",), "ada").value == {"n": 1}
        damage(path, column, value)
        gets = [threadline.GetOp(("users",), key) for key in ("ada", "bob")]
        for read in (
            lambda: store.get(("users",), "ada"),
            lambda: asyncio.run(store.aget(("users",), "ada")),
            lambda: store.batch(gets),
        ):
            with pytest.raises(threadline.Corrupt, match="damaged"):
                read()
        # A put replaces what is there.
        store.put(("users",), "ada", {"n": 3})
        if column != "created":
            assert store.get(("users",), "ada").value == {"n": 3}


@pytest.mark.parametrize(("column", "value", "is_read"), DAMAGE)
def test_an_entry_with_a_damaged_column_is_a_miss_and_fails_no_node(tmp_path, caplog, column, value, is_read):
    path = tmp_path / "cache.db"
    cache = threadline.Cache(path)
    keys = [(("nodes",), "one"), (("nodes",), "two")]
    cache.set(dict.fromkeys(keys, ("result", 600)))
    assert cache.get(keys[:1]) == {keys[0]: "result"}
    damage(path, column, value)
    expected = {} if is_read else dict.fromkeys(keys, "result")
    assert cache.get(keys) == expected
    assert cache.get(keys[:1]) == {key: expected[key] for key in keys[:1] if key in expected}
    assert asyncio.run(cache.aget(keys[:1])) == {key: expected[key] for key in keys[:1] if key in expected}
    assert ("counts as missing" in caplog.text) == is_read
    cache.set({keys[0]: ("again", 600)})
    assert cache.get(keys[:1]) == {keys[0]: "again"}
    cache.close()


def test_an_end_that_no_calendar_has_is_shown_as_the_last_moment(tmp_path):
    path = tmp_path / "items.db"
    with threadline.Store(path) as store:
        store.put(("users",), "ada", {"n": 1}, ttl=5)
        damage(path, "expires", "6e16")
        assert store.get(("users",), "ada", refresh_ttl=False).expires_at.year == 9999
        assert [item.value for item in store.search(("users",))] == [{"n": 1}]
