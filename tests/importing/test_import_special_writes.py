"""Writes keep the indexes that they have in the source, and are whole there."""

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import threadline
from threadline.transfer.importing import import_threads

CHECKPOINT = {
    "v": 4,
    "id": "1f000000-0000-6000-8000-000000000001",
    "ts": "2026-01-01T00:00:00+00:00",
    "channel_values": {"a": 1},
    "channel_versions": {"a": 1},
    "versions_seen": {},
    "updated_channels": None,
}
START = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.mark.parametrize("special", ["__error__", "__interrupt__", "__resume__"])
def test_a_special_write_beside_a_plain_one_is_brought_over_whole(tmp_path, special):
    old, new = tmp_path / "old.db", f"sqlite:///{tmp_path}/new.db"

    def come_over():
        assert import_threads(f"sqlite:///{old}", new).problems == []
        with threadline.connect(new) as saver:
            assert saver.fsck().ok
            return saver.get_tuple(START).pending_writes

    with SqliteSaver.from_conn_string(str(old)) as source:
        config = source.put(START, CHECKPOINT, {"step": 1, "source": "loop"}, {"a": 1})
        source.put_writes(config, [("a", 1), (special, "late")], "task")
        before = source.get_tuple(config).pending_writes
        assert sorted(come_over()) == sorted(before)
        source.put_writes(config, [("a", 2), ("b", 3)], "another task")
        before = source.get_tuple(config).pending_writes
        assert sorted(come_over()) == sorted(before)
