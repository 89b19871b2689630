"""Rows whose columns hold what no writer stores: damage is named where it is, and ends nothing else."""

import sqlite3

import pytest

import threadline


@pytest.fixture
def saver(tmp_path):
    with threadline.connect(tmp_path / "agents.db") as opened:
        thread = opened.thread("t")
        for number in range(12):
            thread.put({"notes": [f"{n} " * 200 for n in range(number + 1)]})
        thread.put({"notes": [], "other": "text " * 100})
        yield opened


def alter(tmp_path, statement, *values):
    with sqlite3.connect(tmp_path / "agents.db") as database:
        assert database.execute(statement, values).rowcount
    database.close()


def test_a_form_that_says_cold_over_bytes_that_are_no_reference_is_damage_with_its_place(tmp_path, saver):
    [(digest,)] = saver.run(_largest)
    alter(tmp_path, "UPDATE threadline_chunks SET form = form | ? WHERE digest = ?", 1 << 30, digest)
    saver.clear_cache()
    report = saver.fsck()
    assert report.damaged
    assert all(damage.thread_id == "t" and damage.channel for damage in report.damaged)
    with pytest.raises(threadline.Corrupt, match=r"thread 't', checkpoint .*, channel 'notes': the chunk"):
        saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_id": report.damaged[0].checkpoint_id}})
    assert saver.thread("t").state()["other"] == "text " * 100


async def _largest(store):
    [pool] = await store.backend.pools(0, 10)
    sizes = await store.backend.chunk_sizes(pool, b"", 1000)
    return [max(((digest, size) for digest, _, _, size in sizes), key=lambda one: one[1])[:1]]


def test_links_that_are_no_bytes_do_not_keep_a_store_from_being_compacted(tmp_path, saver):
    config = saver.thread("t").at("head").config
    saver.put_writes(config, [("notes", ["more " * 100])], "task")
    alter(tmp_path, "UPDATE threadline_writes SET links = 'abc'")
    saver.compact()
    assert saver.thread("t").state()["other"] == "text " * 100
