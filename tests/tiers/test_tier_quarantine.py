"""Quarantine of what a lost object had: it is given back whole when the object comes back."""

import pytest
from tier_stores import converse, object_names, object_paths, read

from threadline import Corrupt, KeyRing

NOW = "0s"


def all_of(saver, thread):
    saver.clear_cache()
    found = saver.list({"configurable": {"thread_id": thread}})
    return [(one.config, one.checkpoint, one.metadata, one.parent_config) for one in found]


def lose_object_of(saver, thread, cold):
    """Remove the object that a thread needs; returns its path, and what it held."""
    for path in object_paths(cold):
        content = path.read_bytes()
        path.unlink()
        saver.clear_cache()
        if not saver.fsck([thread]).ok:
            return path, content
        path.write_bytes(content)
    raise AssertionError("no object has chunks of it")


@pytest.mark.parametrize("is_swept", [False, True], ids=["at once", "after a run of the tier"])
def test_what_a_lost_object_had_comes_back_with_the_object(opened, half, cold, is_swept):
    saver = opened()
    for at, name in enumerate("ab"):
        converse(saver, name, turns=6, seed=at)
    saver.thread("b").fork("head~2", to="f")
    before = {name: all_of(saver, name) for name in "abf"}
    saver.tier(NOW)
    path, content = lose_object_of(saver, "b", cold)
    report = half.call(saver, "fsck")
    assert half.call(saver, "quarantine", report.damaged) == 7
    assert saver.fsck().ok
    path.write_bytes(content)
    if is_swept:
        plan = saver.tier_plan("7d", grace=NOW)
        assert (plan.orphans, plan.deletes) == ((), ())
        saver.tier("7d", grace=NOW)
        saver.collect()
        saver.tier("7d", grace=NOW)
        assert saver.tier_status().orphans == 0
    assert path.name in object_names(cold)
    assert half.call(saver, "unquarantine", saver.quarantined()) == 7
    saver.clear_cache()
    assert saver.fsck().ok
    assert {name: all_of(saver, name) for name in "abf"} == before


def test_a_put_of_what_was_lost_is_stored_anew(opened, cold):
    saver = opened()
    said = converse(saver, turns=6)
    saver.tier(NOW)
    path, content = lose_object_of(saver, "t", cold)
    saver.quarantine(saver.fsck().damaged)
    saver.thread("t").put({"messages": said, "turn": 9})
    assert read(saver) == {"messages": said, "turn": 9}
    # Put back without the object they are what they were: unreadable, and the new one stays readable.
    saver.unquarantine(saver.quarantined())
    assert read(saver) == {"messages": said, "turn": 9}
    path.write_bytes(content)
    saver.clear_cache()
    assert saver.fsck().ok


def test_what_is_put_back_before_the_object_is_as_it_was(opened, cold):
    saver = opened()
    said = converse(saver, turns=6)
    saver.tier(NOW)
    path, content = lose_object_of(saver, "t", cold)
    damaged = saver.fsck().damaged
    saver.quarantine(damaged)
    saver.unquarantine(saver.quarantined())
    saver.clear_cache()
    assert saver.fsck().damaged == damaged
    with pytest.raises(Corrupt, match=path.name):
        read(saver)
    path.write_bytes(content)
    assert read(saver)["messages"] == said


def test_what_was_set_aside_from_an_encrypted_store_names_the_key_of_the_object(opened, cold):
    old, new = b"o" * 32, b"n" * 32
    saver = opened(encryption=KeyRing({"old": old}))
    converse(saver)
    before = all_of(saver, "t")
    saver.tier(NOW)
    path, content = lose_object_of(saver, "t", cold)
    saver.quarantine(saver.fsck().damaged)
    rotated = opened(encryption=KeyRing({"new": new, "old": old}))
    rotated.rotate_keys()
    # The bytes in the object are under the old key, and could not be sealed anew.
    assert rotated.keys_in_use() == {"new", "old"}
    path.write_bytes(content)
    rotated.unquarantine(rotated.quarantined())
    assert all_of(rotated, "t") == before
    rotated.rotate_keys()
    assert rotated.keys_in_use() == {"new"}
    assert opened(encryption=KeyRing({"new": new})).fsck().ok


def test_the_objects_of_what_was_set_aside_go_with_its_thread(opened, cold):
    saver = opened()
    converse(saver, "t", turns=6)
    saver.tier(NOW)
    path, content = lose_object_of(saver, "t", cold)
    saver.quarantine(saver.fsck().damaged)
    path.write_bytes(content)
    saver.tier(NOW, grace=NOW)
    assert path.name in object_names(cold)
    saver.thread("t").delete()
    saver.tier(NOW, grace=NOW)
    assert object_names(cold) == set()
    assert saver.quarantined() == []


def test_no_object_is_deleted_while_a_record_of_quarantine_cannot_be_read(opened, cold):
    from threadline.core.store_records import change_record

    saver = opened()
    converse(saver, "t", turns=6)
    saver.tier(NOW)
    saver.thread("t").delete()
    name = f"quarantine:{'0' * 32}"
    saver.run(lambda store: change_record(store.backend, name, lambda _: b"\x93", "a test"))
    saver.tier(NOW, grace=NOW)
    assert len(object_names(cold)) == 1
    saver.run(lambda store: change_record(store.backend, name, lambda _: None, "a test"))
    saver.tier(NOW, grace=NOW)
    assert object_names(cold) == set()
