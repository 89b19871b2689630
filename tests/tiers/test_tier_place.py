"""The place of a store's objects: noted by the first run, and no run works with another one."""

import shutil
from pathlib import Path

import pytest
from tier_stores import converse, object_names, read

from threadline import InvalidRequest
from threadline.core.store_records import change_record, read_record

NOW = "0s"


@pytest.fixture
def typo(tmp_path):
    (tmp_path / "cdlo").mkdir()
    return f"file://{tmp_path}/cdlo"


def test_a_run_at_another_place_does_nothing(opened, half, cold, typo):
    saver = opened()
    for number in range(4):
        converse(saver, f"t{number}", turns=5, seed=number)
    saver.tier(NOW)
    before = object_names(cold)
    for number in range(2):
        saver.thread(f"t{number}").delete()
    fresh = converse(saver, "fresh", turns=5, seed=9)
    wrong = opened(cold=typo)
    with pytest.raises(InvalidRequest, match=r"are at file://.*/cold, and not at file://.*/cdlo.*--moved"):
        half.call(wrong, "tier", NOW, grace=NOW)
    assert (object_names(cold), object_names(typo)) == (before, set())
    assert saver.tier_status().objects == 4
    assert saver.locks() == []
    with pytest.raises(InvalidRequest, match="none of the 2 objects that this store needs is at"):
        half.call(wrong, "tier", NOW, grace=NOW, moved=True)
    assert half.call(saver, "tier", NOW, grace=NOW).deleted == 2
    assert read(saver, "fresh")["messages"] == fresh
    assert saver.fsck().ok


def test_objects_that_were_moved_are_gone_on_with(opened, half, cold, typo):
    saver = opened()
    said = converse(saver, turns=5)
    saver.tier(NOW)
    Path(typo.removeprefix("file://")).rmdir()
    shutil.move(cold.removeprefix("file://"), typo.removeprefix("file://"))
    there = opened(cold=typo)
    more = converse(there, "u", turns=5, seed=1)
    assert half.call(there, "tier", NOW, moved=True).objects == 1
    assert half.call(there, "tier", NOW).objects == 0
    assert (read(there)["messages"], read(there, "u")["messages"]) == (said, more)
    with pytest.raises(InvalidRequest, match="cdlo, and not at"):
        saver.tier(NOW)


def test_a_store_whose_objects_all_went_may_have_another_place(opened, cold, typo):
    saver = opened()
    converse(saver, turns=5)
    saver.tier(NOW)
    saver.tier_restore()
    saver.tier("7d", grace=NOW)
    assert object_names(cold) == set()
    there = opened(cold=typo)
    assert there.tier(NOW).objects == 1
    assert len(object_names(typo)) == 1


def test_a_store_that_was_tiered_before_places_were_noted_is_looked_at(opened, cold, typo):
    saver = opened()
    converse(saver, turns=5)
    saver.tier(NOW)
    saver.run(lambda store: change_record(store.backend, "tier", lambda _: None, "a test"))
    with pytest.raises(InvalidRequest, match="none of the 1 objects"):
        opened(cold=typo).tier(NOW)
    saver.tier(NOW)
    assert saver.run(lambda store: read_record(store.backend, "tier")) == cold.encode()
