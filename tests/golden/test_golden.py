"""Databases of format 1, written once: every later version must read them, and go on from them."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

import threadline

sys.path.insert(0, str(Path(__file__).parent))
from contents import FOLDER, KEY, STEPS, THREAD, Note, checkpoint_id, messages, values

STORES = {"format-1.db": {}, "format-1-sealed.db": {"encryption": KEY}}


FORMAT_PAGE = FOLDER.parent.parent / "docs" / "format.md"


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
    # Equal content has the same name as ever: only the new message and the root are new.
    assert saver.stats().chunks - before <= 4
    saver.prune([THREAD])
    saver.clear_cache()
    assert saver.get_tuple(stored).checkpoint["channel_values"] == checkpoint["channel_values"]
    assert saver.get_tuple({"configurable": {"thread_id": "golden/fork"}}).checkpoint["channel_values"] == values(
        STEPS - 1
    )


def page_reader() -> dict[str, Any]:
    """What the example of the format page defines that has `read`: a reader that uses nothing of Threadline."""
    found = re.findall(
        r"^<!-- run -->\n```python\n(.*?)^```$", FORMAT_PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    defined: dict[str, Any] = {}
    exec(next(block for block in found if "\ndef read(" in block), defined)
    return defined


def as_page_reads(value: Any) -> Any:
    if isinstance(value, Note):
        return ("golden.Note", vars(value))
    return [as_page_reads(item) for item in value] if type(value) is list else value


@pytest.mark.parametrize("thread_id", [THREAD, "golden/fork"])
def test_the_reader_of_the_format_page_reads_every_checkpoint_of_the_golden_database(thread_id):
    read = page_reader()["read"]
    for step in range(STEPS):
        _, found = read(FOLDER / "format-1.db", thread_id, checkpoint_id(step))
        assert found.pop("kinds")
        assert found == {name: as_page_reads(value) for name, value in values(step).items() if name != "kinds"}


def test_the_golden_database_has_every_shape_that_the_format_has():
    unwrap = page_reader()["unwrap"]
    packs, plain, trees = 0, 0, []
    with sqlite3.connect(FOLDER / "format-1.db") as db:
        rows = db.execute("SELECT links, form, data FROM threadline_chunks").fetchall()
    pointers = [data for links, _, data in rows if len(links) == 16 and len(data) == 9]
    for links, form, data in rows:
        content = unwrap(form, data)
        packs += content[0] == 0xC1
        if links and data not in pointers:
            node = ormsgpack.unpackb(content)
            if isinstance(node, list):
                is_tree = isinstance(node[0], int)
                trees += [node] if is_tree else []
                plain += not is_tree
    assert packs > 20
    assert len(pointers) > 20
    assert plain
    assert max(len(counts) for _, counts, _ in trees) >= 2
    assert {kind for kind, _, _ in trees} == {0, 1}
    with sqlite3.connect(FOLDER / "format-1-sealed.db") as db:
        # 9 bytes, and what a seal adds.
        query = "SELECT count(*) FROM threadline_chunks WHERE length(links) = 16 AND length(data) = 9 + 28"
        assert db.execute(query).fetchone()[0] > 20
