"""Databases of format 1, written once: every later version must read them, and go on from them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import threadline

sys.path.insert(0, str(Path(__file__).parent))
from contents import FOLDER, KEY, STEPS, THREAD, checkpoint_id, messages, values

STORES = {"format-1.db": {}, "format-1-sealed.db": {"encryption": KEY}}


@pytest.fixture(params=STORES)
def saver(request, tmp_path):
    shutil.copy(FOLDER / request.param, tmp_path / "golden.db")
    with threadline.connect(tmp_path / "golden.db", **STORES[request.param]) as opened:
        yield opened


@pytest.mark.parametrize("thread_id", [THREAD, "golden/fork"])
def test_every_checkpoint_of_the_golden_database_reads_as_it_was_put(saver, thread_id):
    for step in range(STEPS):
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id(step)}}
        found = saver.get_tuple(config)
        assert found.checkpoint["channel_values"] == values(step)
        assert [*map(type, found.checkpoint["channel_values"]["kinds"])] == [*map(type, values(step)["kinds"])]
        assert found.metadata == {"source": "loop", "step": step, "user": f"u{step % 3}"}
        assert found.pending_writes == [
            ("task", "__interrupt__", "?"),
            ("task", "messages", messages(step + 1)[-1:]),
        ]
    assert len(list(saver.list({"configurable": {"thread_id": thread_id}}))) == STEPS


def test_the_golden_database_knows_its_threads(saver):
    assert [info.thread_id for info in saver.threads()] == [THREAD, "golden/fork"]
    assert saver.get_tuple({"configurable": {"thread_id": "golden/deleted"}}) is None
    assert len(list(saver.list(None, filter={"user": "u1"}))) == 2 * STEPS // 3


def test_a_thread_of_the_golden_database_goes_on(saver):
    head = saver.get_tuple({"configurable": {"thread_id": THREAD}})
    before = saver.stats().chunks
    checkpoint = threadline.copy_checkpoint(head.checkpoint)
    checkpoint["id"] = checkpoint_id(STEPS)
    checkpoint["channel_values"]["messages"].append({"role": "user", "text": "one more" * 40})
    checkpoint["channel_versions"]["messages"] += 1
    stored = saver.put(head.config, checkpoint, {"source": "loop", "step": STEPS}, {"messages": STEPS + 1})
    saver.clear_cache()
    assert saver.get_tuple(stored).checkpoint["channel_values"] == checkpoint["channel_values"]
    # Equal content has the same name as ever: only the new message and its path are new.
    assert saver.stats().chunks - before <= 4
    saver.prune([THREAD])
    saver.clear_cache()
    assert saver.get_tuple(stored).checkpoint["channel_values"] == checkpoint["channel_values"]
    assert saver.get_tuple({"configurable": {"thread_id": "golden/fork"}}).checkpoint["channel_values"] == values(
        STEPS - 1
    )
