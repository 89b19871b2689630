"""Threads of LangGraph brought into an encrypted store: names of chunks are bound to pools that do not exist yet."""

from langgraph.checkpoint.sqlite import SqliteSaver

import threadline
from threadline import KeyRing
from threadline.testing.making import checkpoint, place
from threadline.transfer import import_sqlite

RING = {"encryption": KeyRing({"k": bytes(range(32))})}


def words(turn):
    return [f"word {number} " * 40 for number in range(turn + 10)]


def test_checkpoints_that_share_chunks_are_all_whole(tmp_path):
    source, target = tmp_path / "old.db", tmp_path / "new.db"
    with SqliteSaver.from_conn_string(str(source)) as old:
        at = place("talk")
        for turn in range(30):
            made = checkpoint({"words": words(turn), "turn": turn}, {"words": turn + 1, "turn": turn + 1})
            at = old.put(at, made, {"source": "loop", "step": turn}, made["channel_versions"])
            old.put_writes(at, [("words", words(turn)[-1])], "task")
    assert import_sqlite(source, target, **RING).is_complete
    with threadline.connect(target, **RING) as saver:
        found = list(saver.list(place("talk")))
        assert [one.checkpoint["channel_values"] for one in found] == [
            {"words": words(turn), "turn": turn} for turn in reversed(range(30))
        ]
        assert [one.pending_writes for one in found] == [
            [("task", "words", words(turn)[-1])] for turn in reversed(range(30))
        ]
        assert saver.fsck().ok
