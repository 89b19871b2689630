"""Indexes of checkpoints that SQLite makes when they are first needed; what is found is the same without them."""

import contextlib
import sqlite3

import pytest

import threadline
from threadline import Policy
from threadline.backends.sqlite import schema
from threadline.base.ids import uuid6
from threadline.ports.checkpoints import CheckpointKey

THREADS, STEPS = 3, 6
EVERY = {"threadline_checkpoints_by_age", "threadline_checkpoints_by_parent"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "agents.db"
    with threadline.connect(path) as saver:
        for _ in range(STEPS):
            for thread in range(THREADS):
                put(saver, f"thread-{thread}")
    return path


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(schema, "_FEW_ROWS", 3)


def put(saver, thread_id, checkpoint_id=None, parent=None):
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    head = saver.get_tuple(config) if parent is None else None
    if parent is not None or head is not None:
        config["configurable"]["checkpoint_id"] = parent or head.checkpoint["id"]
    checkpoint = {
        "v": 4,
        "ts": "2025-01-01T00:00:00+00:00",
        "id": checkpoint_id or str(uuid6()),
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
    }
    return saver.put(config, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {})


def late_indexes(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return EVERY & {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}


def ids(saver):
    return [found.checkpoint["id"] for found in saver.list(None)]


def test_a_small_store_needs_no_index(path):
    with threadline.connect(path) as saver:
        assert len(ids(saver)) == THREADS * STEPS
        saver.thread("thread-0").prune(Policy(keep_last=2))
        assert len(ids(saver)) == (THREADS - 1) * STEPS + 2
    assert late_indexes(path) == set()


def test_a_listing_of_all_threads_makes_one_and_a_deletion_the_other(path, few_rows):
    with threadline.connect(path) as saver:
        found = ids(saver)
        assert found == sorted(found, reverse=True)
        assert late_indexes(path) == {"threadline_checkpoints_by_age"}
        saver.thread("thread-0").prune(Policy(keep_last=2))
        assert late_indexes(path) == EVERY
        put(saver, "thread-1")
        assert len(ids(saver)) == (THREADS - 1) * STEPS + 3
        assert saver.fsck().ok


@pytest.mark.parametrize("options", [{"setup": False}, {"read_only": True}])
def test_a_store_that_may_make_none_answers_the_same(path, few_rows, options):
    with threadline.connect(path, **options) as saver:
        found = ids(saver)
    assert late_indexes(path) == set()
    with threadline.connect(path) as saver:
        assert ids(saver) == found


def test_a_listing_does_without_where_another_process_writes(path, few_rows):
    with (
        threadline.connect(path, timeout=0.05) as saver,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        assert len(ids(saver)) == THREADS * STEPS
    assert late_indexes(path) == set()


@pytest.mark.parametrize("few", [3, 1_000])
def test_a_child_is_found_whatever_its_id_and_however_late_it_came(path, monkeypatch, few):
    monkeypatch.setattr(schema, "_FEW_ROWS", few)
    with threadline.connect(path) as saver:
        parent = saver.get_tuple({"configurable": {"thread_id": "thread-0"}}).checkpoint["id"]
        later = [put(saver, "thread-0")["configurable"]["checkpoint_id"] for _ in range(STEPS)]
        children = {later[0]} | {
            put(saver, "thread-0", child, parent)["configurable"]["checkpoint_id"] for child in ("0", "z")
        }
        key = CheckpointKey("", parent)
        found = saver._engine.run(lambda backend: backend.children("thread-0", [key]))
    assert {one.row.id for one in found} == children
