"""The digests of many chunks at once are those of each by itself."""

from __future__ import annotations

import random
from hashlib import blake2b

import pytest

import threadline
from threadline.base import hashing
from threadline.base.native import native
from threadline.chunks.digest import Digester
from threadline.errors import Corrupt

SIZES = (0, 1, 60, 123, 124, 125, 127, 128, 129, 252, 256, 257, 384, 1_000, 70_000)

needs_lanes = pytest.mark.skipif(not getattr(native, "LANES", 0), reason="the native module has no lanes here")


@needs_lanes
@pytest.mark.parametrize("key", [b"", b"k" * 32, b"k" * 64])
@pytest.mark.parametrize("prefix", [b"", bytes(4), b"p" * 64])
def test_each_digest_is_that_of_blake2b(key: bytes, prefix: bytes) -> None:
    chance = random.Random(len(key) + len(prefix))
    for count in range(20):
        contents = [chance.randbytes(chance.choice(SIZES)) for _ in range(count)]
        expected = [blake2b(prefix + one, digest_size=16, key=key, person=b"node").digest() for one in contents]
        assert hashing.blake2b_each(contents, prefix, key, b"node", 16) == expected


@needs_lanes
def test_what_cannot_be_hashed_is_refused() -> None:
    assert native is not None
    for arguments in (
        ([b""], bytes(65), b"", b"", 16),
        ([b""], b"", bytes(65), b"", 16),
        ([b""], b"", b"", bytes(17), 16),
        ([b""], b"", b"", b"", 65),
        ([b""], b"", b"", b"", 0),
    ):
        with pytest.raises(ValueError, match="hashed"):
            native.hashed(*arguments)
    with pytest.raises(TypeError):
        native.hashed([b"", bytearray(b"x")], b"", b"", b"", 16)


@pytest.mark.parametrize("key", [b"", bytes(32)])
def test_names_do_not_depend_on_what_they_are_asked_with(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    digester, contents = Digester(key), [b"", b"one", b"two" * 100]
    for _ in range(2):
        assert digester.items(contents) == [digester.item(one) for one in contents]
        assert digester.leaves(contents) == [digester.node(b"", one) for one in contents]
        assert digester.items(contents[:1]) == [digester.item(b"")]
        assert digester.leaves([]) == []
        monkeypatch.setattr(hashing, "_hashed", None)


def test_one_altered_chunk_among_many_is_found(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Whichever it is, and whether the chunks are looked at together or one by one."""
    import sqlite3

    from langgraph.checkpoint.base import empty_checkpoint

    path = tmp_path / "a.db"
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with threadline.connect(f"sqlite:///{path}") as saver:
        messages: list[str] = []
        for step in range(60):
            messages.append(f"{step}:" + "x" * 200)
            checkpoint = {
                **empty_checkpoint(),
                "channel_values": {"m": list(messages)},
                "channel_versions": {"m": step},
            }
            config = saver.put(config, checkpoint, {"step": step}, {"m": step})
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        document = saver.get_tuple(config).checkpoint["channel_values"]["m"]
        assert document == messages
    with threadline.connect(f"sqlite:///{path}") as saver:
        packed = [
            row[0] for row in sqlite3.connect(path).execute("SELECT rowid FROM threadline_chunks WHERE links = x''")
        ]
    found = 0
    for together in (True, False):
        if not together:
            monkeypatch.setattr(hashing, "_hashed", None)
        for rowid in packed:
            with sqlite3.connect(path) as database:
                [(form, data)] = database.execute("SELECT form, data FROM threadline_chunks WHERE rowid = ?", (rowid,))
                other = data[:-1] + bytes([data[-1] ^ 1]) if not form else data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
                database.execute("UPDATE threadline_chunks SET data = ? WHERE rowid = ?", (other, rowid))
            with threadline.connect(f"sqlite:///{path}") as saver:
                try:
                    assert saver.get_tuple(config).checkpoint["channel_values"]["m"] == messages
                except Corrupt:
                    found += 1
            with sqlite3.connect(path) as database:
                database.execute("UPDATE threadline_chunks SET data = ? WHERE rowid = ?", (data, rowid))
    assert found >= 4
    assert found % 2 == 0
