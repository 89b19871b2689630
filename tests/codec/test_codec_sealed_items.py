"""An encrypted store of items: nothing is readable, keys are needed, a record opens under its own name only."""

import contextlib
import sqlite3

import pytest

import threadline
from threadline import Corrupt, InvalidRequest, KeyRing

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SET_BOB = "UPDATE threadline_records SET value = ? WHERE space = ? AND instr(path, x'626f62') > 0"
SECRET = "the secret of ann"
INDEX = {"dims": 2, "embed": lambda texts: [[1.0, 0.123456789] for _ in texts], "fields": ["text"]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "items.db"


def sealed(path, keys=None, **options):
    return threadline.Store(path, encryption=KeyRing(keys or {"old": OLD}), **options)


def change(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(statement, values).rowcount
        connection.commit()
    return changed


def fill(path):
    with sealed(path, keep_versions=True, index=INDEX, index_fields=("user",)) as store:
        store.put(("users",), "ann", {"text": SECRET, "user": "visible"})
        store.put(("users",), "bob", {"text": f"{SECRET} and of bob"})
        store.put(("users",), "bob", {"text": f"{SECRET} and of bob, again"})
    with threadline.connect(path, encryption=KeyRing({"old": OLD})) as saver:
        saver.cache().set({(("n",), "k"): (SECRET, None)})


def test_nothing_of_a_value_is_readable_in_the_file(path):
    fill(path)
    stored = b"".join(file.read_bytes() for file in path.parent.glob("items.db*"))
    assert SECRET.encode() not in stored
    assert b"visible" in stored  # index_fields are, as the page says
    import struct

    assert struct.pack("<2f", 1.0, 0.123456789) not in stored


def test_the_keys_are_needed(path):
    fill(path)
    for wrong in ({}, {"encryption": KeyRing({"old": NEW})}):
        with pytest.raises((InvalidRequest, Corrupt)), threadline.Store(path, **wrong) as store:
            store.get(("users",), "ann")
    with sealed(path) as store:
        assert store.get(("users",), "ann").value["text"] == SECRET


def test_a_store_that_holds_items_is_not_encrypted_afterwards(path):
    with threadline.Store(path) as store:
        store.put(("a",), "k", {"n": 1})
    with pytest.raises(InvalidRequest, match="plaintext"), sealed(path) as store:
        store.get(("a",), "k")
    with threadline.Store(path) as store:
        assert store.get(("a",), "k").value == {"n": 1}


@pytest.mark.parametrize("space", [1, 2, 3])
def test_a_record_under_another_name_is_refused(path, space):
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT path, value FROM threadline_records WHERE space = ?", (space,)).fetchall()
    ann = next(value for name, value in rows if b"ann" in name)
    assert change(
        path, "UPDATE threadline_records SET value = ? WHERE space = ? AND instr(path, x'626f62') > 0", ann, space
    )
    with sealed(path, keep_versions=True, index=INDEX) as store, pytest.raises(Corrupt, match="damaged"):
        if space == 1:
            store.get(("users",), "bob")
        elif space == 2:
            store.history(("users",), "bob")
        else:
            store.search(("users",), query="x")


def test_a_former_value_does_not_pass_for_the_present_one(path):
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [(former,)] = connection.execute(
            "SELECT value FROM threadline_records WHERE space = 2 AND instr(path, x'626f62') > 0 ORDER BY path LIMIT 1"
        ).fetchall()
    assert (
        change(path, "UPDATE threadline_records SET value = ? WHERE space = 1 AND instr(path, x'626f62') > 0", former)
        == 1
    )
    with sealed(path) as store, pytest.raises(Corrupt):
        store.get(("users",), "bob")
