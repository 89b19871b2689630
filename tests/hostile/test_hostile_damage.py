"""Bytes that were altered, cut short or removed in the database: never a wrong or partial value.

A read of a damaged checkpoint raises Corrupt and names thread, checkpoint and (where it is one) channel, or
gives exactly what was put. A list goes on past it.
"""

import random
import sqlite3
from itertools import pairwise

import pytest

import threadline

BLOBS = {
    "threadline_checkpoints": ("document", "metadata", "links"),
    "threadline_writes": ("data", "links"),
    "threadline_chunks": ("data", "links", "digest"),
}
FORMS = {
    "threadline_checkpoints": ("form", "metadata_form"),
    "threadline_writes": ("form",),
    "threadline_chunks": ("form",),
}
COLUMNS = [(table, column) for table, columns in BLOBS.items() for column in columns]
COUNT = 3


def state(number):
    """Values of every stored kind: inline, one chunk, compressed, a tree, and a value in pieces."""
    return {
        "small": number,
        "word": f"word {number}",
        "text": f"{number} text " * 40,
        "repeated": "same again " * 1000,
        "list": [{"n": n, "text": f"{n} of {number} " * 20} for n in range(80)],
        "dict": {f"key {n}": f"{n} in {number} " * 20 for n in range(80)},
        "large": random.Random(number).randbytes(90_000),
    }


def writes(number):
    return [
        ("small", number),
        ("text", f"written {number} " * 40),
        ("list", [f"{n} {number} " * 30 for n in range(40)]),
    ]


@pytest.fixture
def pristine(database, connect, make):
    """A file with a few checkpoints, each with values and writes of all kinds; and what was put."""
    saver = connect(database, synchronous="OFF")
    for number in range(1, COUNT + 1):
        parent = f"{number - 1:08d}" if number > 1 else None
        put = make.checkpoint(number, **state(number))
        saver.put(make.config("kept", parent), put, {"step": number, "note": f"note {number}"}, put["channel_versions"])
        saver.put_writes(make.config("kept", f"{number:08d}"), writes(number), "task")
    saver.close()
    return database


def expected(number, make):
    return (
        make.checkpoint(number, **state(number)),
        {"step": number, "note": f"note {number}"},
        [("task", channel, value) for channel, value in writes(number)],
    )


def check_read(half, saver, make, number):
    """The checkpoint is what was put, or Corrupt says which one is not; True when it could be read."""
    try:
        found = half.call(saver, "get_tuple", make.config("kept", f"{number:08d}"))
    except threadline.Corrupt as damage:
        said = str(damage)
    else:
        said = None
    if said is not None:
        assert "'kept'" in said
        assert f"{number:08d}" in said
        return False
    assert (found.checkpoint, found.metadata, found.pending_writes) == expected(number, make)
    return True


def check_list(half, saver, make, readable):
    """A list has every checkpoint that can be read, and of the others nothing that is wrong."""
    listed = {int(found.checkpoint["id"]): found for found in half.listed(saver, make.config("kept"))}
    assert set(readable) <= set(listed)
    for number, found in listed.items():
        put, metadata, written = expected(number, make)
        assert found.metadata == metadata
        assert found.pending_writes == written
        for name, value in put.pop("channel_values").items():
            try:
                assert found.checkpoint["channel_values"][name] == value
            except threadline.Corrupt as damage:
                said = str(damage)
            else:
                continue
            assert number not in readable
            assert f"{number:08d}" in said
            assert f"'{name}'" in said
        assert {key: found.checkpoint[key] for key in put} == put


def check_all(half, connect, database, make):
    saver = connect(database)
    readable = [number for number in range(1, COUNT + 1) if check_read(half, saver, make, number)]
    check_list(half, saver, make, readable)
    saver.close()
    return readable


def rows(database, table, columns="*"):
    connection = sqlite3.connect(database)
    found = connection.execute(f"SELECT {columns} FROM {table}").fetchall()
    connection.close()
    return found


def alter(database, statement, values=()):
    connection = sqlite3.connect(database)
    changed = connection.execute(statement, values).rowcount
    connection.commit()
    connection.close()
    assert changed


def flipped(content, dice):
    """The content with one bit or byte changed."""
    position = dice.randrange(len(content))
    changed = content[position] ^ dice.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
    return content[:position] + bytes([changed]) + content[position + 1 :]


DAMAGE = {
    "a byte flipped": flipped,
    "cut short": lambda content, dice: content[: dice.randrange(len(content))],
    "made longer": lambda content, dice: content + b"\0",
    "emptied": lambda content, dice: b"",
    "zeroed": lambda content, dice: bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[f"{table}.{column}" for table, column in COLUMNS])
def test_altered_bytes_are_never_a_wrong_value(pristine, connect, half, make, table, column, damage):
    dice = random.Random(f"{table} {column} {damage}")
    # `rowid` is the key of no table without one; each has some column that tells its rows apart.
    key = {"threadline_checkpoints": "id", "threadline_writes": "checkpoint_id || idx", "threadline_chunks": "rowid"}[
        table
    ]
    candidates = [(name, content) for name, content in rows(pristine, table, f"{key}, {column}") if content]
    for name, content in dice.sample(candidates, min(len(candidates), 4)):
        for _ in range(2 if damage == "a byte flipped" else 1):
            alter(pristine, f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (DAMAGE[damage](content, dice), name))
            check_all(half, connect, pristine, make)
            if column == "digest":
                alter(pristine, f"UPDATE {table} SET digest = ? WHERE rowid = ?", (content, name))
            else:
                alter(pristine, f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (content, name))
    assert check_all(half, connect, pristine, make) == [1, 2, 3]


@pytest.mark.parametrize("value", [1, 2, 3, 8, -1, 255, 2**40])
def test_an_altered_form_is_never_a_wrong_value(pristine, connect, half, make, value):
    for table, columns in FORMS.items():
        for column in columns:
            copy = pristine.with_name(f"{table}-{column}.db")
            copy.write_bytes(pristine.read_bytes())
            alter(copy, f"UPDATE {table} SET {column} = ?", (value,))
            check_all(half, connect, copy, make)


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[f"{table}.{column}" for table, column in COLUMNS])
@pytest.mark.parametrize("other", ["'text in place of bytes'", "7", "1.5"])
def test_another_type_in_place_of_bytes_is_never_a_wrong_value(pristine, connect, half, make, table, column, other):
    alter(pristine, f"UPDATE {table} SET {column} = {other} WHERE rowid = 2" if table == "threadline_chunks" else
          f"UPDATE {table} SET {column} = {other}")  # fmt: skip
    check_all(half, connect, pristine, make)


def test_rows_exchanged_with_each_other_are_never_a_wrong_value(pristine, connect, half, make):
    """Whole and well formed, but in another's place."""
    (first,), (second,) = rows(pristine, "threadline_checkpoints", "document")[:2]
    alter(pristine, "UPDATE threadline_checkpoints SET document = ? WHERE id = '00000001'", (second,))
    check_all(half, connect, pristine, make)
    alter(pristine, "UPDATE threadline_checkpoints SET document = ? WHERE id = '00000001'", (first,))
    described = rows(pristine, "threadline_checkpoints", "metadata")
    alter(pristine, "UPDATE threadline_checkpoints SET metadata = ? WHERE id = '00000001'", described[1])
    check_all(half, connect, pristine, make)
    alter(pristine, "UPDATE threadline_checkpoints SET metadata = ? WHERE id = '00000001'", described[0])
    chunks = rows(pristine, "threadline_chunks", "data, links, form, rowid")
    for (data, links, form, _), (*_, rowid) in pairwise(chunks[:6]):
        alter(
            pristine,
            "UPDATE threadline_chunks SET data = ?, links = ?, form = ? WHERE rowid = ?",
            (data, links, form, rowid),
        )
        check_all(half, connect, pristine, make)


def test_a_chunk_that_is_gone_spoils_only_what_needs_it(pristine, connect, half, make):
    chunks = rows(pristine, "threadline_chunks", "rowid, pool, digest, links, form, data")
    lost = 0
    for rowid, *chunk in random.Random(5).sample(chunks, 6):
        alter(pristine, "DELETE FROM threadline_chunks WHERE rowid = ?", (rowid,))
        lost += COUNT - len(check_all(half, connect, pristine, make))
        alter(pristine, "INSERT INTO threadline_chunks VALUES (?, ?, ?, ?, ?)", chunk)
    assert lost
    assert check_all(half, connect, pristine, make) == [1, 2, 3]
    alter(pristine, "DELETE FROM threadline_chunks")
    assert check_all(half, connect, pristine, make) == []


def test_damage_is_named_down_to_the_channel(pristine, connect, half, make):
    alter(pristine, "DELETE FROM threadline_chunks")
    with pytest.raises(threadline.Corrupt) as caught:
        half.call(connect(pristine), "get_tuple", make.config("kept", "00000003"))
    for word in ("thread 'kept'", "checkpoint 00000003", "channel '"):
        assert word in str(caught.value)


def test_a_damaged_checkpoint_does_not_keep_others_from_being_put_pruned_or_deleted(pristine, connect, half, make):
    alter(pristine, "UPDATE threadline_checkpoints SET document = x'00' WHERE id = '00000002'")
    saver = connect(pristine)
    put = make.checkpoint(5, **state(5))
    half.call(saver, "put", make.config("kept", "00000003"), put, {"step": 5}, put["channel_versions"])
    assert half.call(saver, "get_tuple", make.config("kept")).checkpoint == put
    half.call(saver, "delete_checkpoint", make.config("kept", "00000002"))
    assert [found.checkpoint["id"][-1] for found in half.listed(saver, make.config("kept"))] == ["5", "3", "1"]
    half.call(saver, "delete_thread", "kept")
    assert half.call(saver, "count_threads") == 0
