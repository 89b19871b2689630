"""The statements that people run by themselves make a store, and do not lower the number of a newer one."""

import sqlite3

import pytest

import threadline
from threadline.errors import NewerFormat


def run(path, text):
    with sqlite3.connect(path) as connection:
        connection.executescript(text)
    connection.close()


def test_what_is_printed_makes_a_store_and_leaves_the_number_of_a_newer_one(tmp_path):
    path = tmp_path / "store.db"
    text = threadline.connect(f"sqlite:///{tmp_path / 'other.db'}")._engine.ddl()
    run(path, text)
    with threadline.connect(f"sqlite:///{path}", setup=False) as saver:
        assert saver.get_tuple({"configurable": {"thread_id": "nobody"}}) is None
    run(path, "UPDATE threadline_meta SET value = CAST('2' AS BLOB) WHERE name = 'format'")
    run(path, text)
    with pytest.raises(NewerFormat):
        threadline.connect(f"sqlite:///{path}").get_tuple({"configurable": {"thread_id": "nobody"}})
