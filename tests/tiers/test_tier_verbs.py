"""The cold tier on every backend: what moves stays what it was, whatever is done to it."""

from __future__ import annotations

import random
import threading

import pytest
from tier_stores import converse, object_names, object_paths, read, text_of

from threadline import InvalidRequest, KeyRing, ReadOnly, TierPolicy, Unavailable
from threadline.core.tiering.shapes import PackUse, chosen_to_rewrite

NOW = "0s"


def test_a_tiered_thread_reads_as_before_and_comes_back(opened, half, cold):
    saver = opened()
    said = converse(saver)
    plan = half.call(saver, "tier_plan", NOW)
    assert plan.threads == ("t",)
    assert plan.bytes > 10_000
    assert object_names(cold) == set()
    done = half.call(saver, "tier", NOW)
    assert (done.chunks, done.bytes) == (plan.chunks, plan.bytes)
    status = half.call(saver, "tier_status")
    assert (status.cold_chunks, status.cold_bytes) == (done.chunks, done.bytes)
    assert len(object_names(cold)) == done.objects == status.objects
    assert read(saver) == {"messages": said, "turn": 12}
    assert read(saver, at="head~5")["messages"] == said[: 7 * 4]
    saver.clear_cache()
    state = half.call(saver.thread("t"), "state")
    assert state["messages"] == said
    assert half.call(saver, "fsck").ok
    assert half.call(saver, "tier_plan", NOW).chunks == 0
    back = half.call(saver, "tier_restore")
    assert (back.chunks, back.lost) == (done.chunks, 0)
    assert saver.tier_status().cold_chunks == 0
    assert read(saver)["messages"] == said


def test_every_verb_works_on_a_tiered_thread(opened, cold):
    saver = opened()
    said = converse(saver)
    saver.tier(NOW)
    saver.clear_cache()
    thread = saver.thread("t")
    more = [*said, {"role": "user", "content": text_of(7)}]
    thread.put({"messages": more, "turn": 13})
    assert read(saver) == {"messages": more, "turn": 13}
    thread.fork("head~3", to="f")
    saver.thread("f").put({"messages": [*said[:40], {"role": "user", "content": "else"}], "turn": 0})
    assert len(read(saver, "f")["messages"]) == 41
    assert thread.diff("head~2", "head").channels
    saver.thread("f").delete(trash="1d")
    saver.tier(NOW)
    [trashed] = saver.trash()
    saver.restore_trash(trashed.id)
    assert len(read(saver, "f")["messages"]) == 41
    thread.prune(keep_last=1)
    saver.collect()
    saver.tier(NOW, grace=NOW)
    assert read(saver) == {"messages": more, "turn": 13}
    report = saver.fsck()
    assert report.ok, report


def test_an_edited_item_moves_out_of_its_pack_wherever_the_pack_is(opened):
    saver = opened()
    said = converse(saver, turns=40)
    saver.tier(NOW)
    saver.clear_cache()
    changed = [*said]
    changed[5] = {**said[5], "content": "edited"}
    saver.thread("t").put({"messages": changed, "turn": 41})
    saver.tier(NOW)
    assert read(saver)["messages"] == changed
    assert read(saver, at="head~1")["messages"] == said
    saver.thread("t").prune(keep_last=1)
    saver.collect()
    saver.tier(NOW, grace=NOW)
    assert read(saver)["messages"] == changed
    assert saver.fsck().ok


def test_keys_are_rotated_whatever_tier_a_chunk_is_in(opened):
    old, new = b"o" * 32, b"n" * 32
    saver = opened(encryption=KeyRing({"old": old}))
    said = converse(saver)
    saver.tier(NOW)
    assert saver.keys_in_use() == {"old"}
    rotated = opened(encryption=KeyRing({"new": new, "old": old}))
    assert rotated.keys()[0].rows > 0
    rotated.rotate_keys()
    assert rotated.keys_in_use() == {"new"}
    rotated.tier(NOW, grace=NOW)
    assert rotated.tier_status().cold_chunks > 0
    alone = opened(encryption=KeyRing({"new": new}))
    assert read(alone)["messages"] == said
    assert alone.fsck().ok


def test_packs_with_too_much_that_is_dead_are_written_anew_and_leave_nothing_behind(opened, cold):
    saver = opened()
    converse(saver, "t", turns=30)
    saver.thread("t").fork("head~20", to="short")
    saver.tier(NOW)
    before = object_names(cold)
    kept = read(saver, "short")
    saver.thread("t").delete()
    saver.collect()
    plan = saver.tier_plan(NOW)
    assert set(plan.rewrites) == before
    assert plan.dead_bytes > 0
    done = saver.tier(NOW)
    assert done.rewritten == len(before)
    # Nothing needs the old objects, but a database that is set back to before does.
    assert before <= object_names(cold)
    assert saver.tier_status().orphans == len(before)
    saver.tier(NOW, grace=NOW)
    assert not before & object_names(cold)
    status = saver.tier_status()
    assert (status.dead_bytes, status.orphans, status.objects) == (0, 0, len(object_names(cold)))
    assert read(saver, "short") == kept


@pytest.mark.parametrize("fate", ["is gone", "was altered or cut short"])
def test_a_pack_that_cannot_be_read_is_not_counted_as_written_anew(opened, half, cold, fate):
    saver = opened()
    for number in range(2):
        converse(saver, f"t{number}", turns=30, seed=number)
        saver.thread(f"t{number}").fork("head~20", to=f"short{number}")
    saver.tier(NOW)
    for number in range(2):
        saver.thread(f"t{number}").delete()
    saver.collect()
    path, kept = object_paths(cold)[0], object_paths(cold)[0].read_bytes()
    path.unlink() if fate == "is gone" else path.write_bytes(kept[:200])
    done = half.call(saver, "tier", NOW)
    assert done.rewritten == 1
    assert done.problems == (f"the object {path.name} of {cold} {fate}: it could not be written anew",)
    path.write_bytes(kept)
    done = half.call(saver, "tier", NOW)
    assert (done.rewritten, done.problems) == (1, ())
    assert saver.fsck().ok


def test_the_objects_of_a_deleted_thread_go_after_the_grace(opened, cold):
    saver = opened()
    converse(saver)
    saver.tier(NOW)
    saver.thread("t").delete()
    assert saver.tier(NOW).deleted == 0
    assert saver.tier_plan(NOW, grace=NOW).deletes == tuple(sorted(object_names(cold)))
    assert saver.tier(NOW, grace=NOW).deleted == 1
    assert object_names(cold) == set()
    assert saver.tier_status().objects == 0


def test_without_the_cold_tier_a_value_is_unavailable_and_the_rest_is_there(opened, place):
    saver = opened()
    converse(saver)
    saver.tier(NOW)
    bare = opened(cold=None)
    with pytest.raises(Unavailable, match=r"object [0-9a-f]{32}.*cold="):
        read(bare)
    assert len(bare.thread("t").log()) == 12
    with pytest.raises(InvalidRequest, match="cold="):
        bare.tier(NOW)
    # A put needs no object.
    bare.thread("t").put({"messages": ["new"], "turn": 99})
    assert read(bare)["messages"] == ["new"]


def test_an_object_that_is_gone_cut_or_altered_is_told_and_the_rest_stays_readable(opened, cold):
    saver = opened()
    said = {name: converse(saver, name, seed=at) for at, name in enumerate(("gone", "cut", "altered", "sound"))}
    for name in said:
        saver.tier(thread_ids=[name])
        object_paths(cold)[-1].touch()
    by_thread = {}
    for name in said:
        report = saver.fsck([name])
        assert report.ok
    for name in ("gone", "cut", "altered"):
        for path in object_paths(cold):
            kept = path.read_bytes()
            path.unlink()
            if not saver.fsck([name]).ok:
                by_thread[name] = path
            path.write_bytes(kept)
    by_thread["gone"].unlink()
    by_thread["cut"].write_bytes(by_thread["cut"].read_bytes()[:100])
    content = by_thread["altered"].read_bytes()
    by_thread["altered"].write_bytes(bytes(byte ^ 1 for byte in content))
    saver.clear_cache()
    report = saver.fsck()
    assert {damage.thread_id for damage in report.damaged} == {"gone", "cut", "altered"}
    assert by_thread["gone"].name in str(report)
    assert read(saver, "sound")["messages"] == said["sound"]
    for name in ("gone", "cut", "altered"):
        saver.clear_cache()
        with pytest.raises(Exception, match=by_thread[name].name):
            read(saver, name)
    # Nothing is half moved: what is there can go on, what is lost is counted.
    assert saver.tier_restore(["sound"]).lost == 0
    assert saver.tier_restore().lost > 0
    assert read(saver, "sound")["messages"] == said["sound"]


def test_an_object_that_comes_back_makes_its_values_readable_again(opened, cold):
    saver = opened()
    said = converse(saver)
    saver.tier(NOW)
    [path] = object_paths(cold)
    content = path.read_bytes()
    path.unlink()
    saver.clear_cache()
    assert not saver.fsck().ok
    path.write_bytes(content)
    saver.clear_cache()
    assert saver.fsck().ok
    assert read(saver)["messages"] == said


def test_which_threads_are_due(opened):
    saver = opened()
    for name in ("idle", "archived", "busy"):
        converse(saver, name, turns=3, seed=len(name))
    saver.thread("archived").archive()
    assert saver.tier_plan("7d").threads == ("archived",)
    assert saver.tier_plan(TierPolicy(after="7d", archived=False)).threads == ()
    assert set(saver.tier_plan(NOW).threads) == {"idle", "archived", "busy"}
    assert saver.tier_plan("7d", thread_ids=["idle"]).threads == ("idle",)
    saver.tier(thread_ids=["idle"])
    assert saver.tier_plan("7d", thread_ids=["idle"]).chunks == 0


def test_large_values_go_at_once_and_small_ones_stay(opened):
    saver = opened()
    blob = text_of(3, 400_000)
    saver.thread("t").put({"messages": ["small " * 40], "turn": blob})
    policy = TierPolicy(after="7d", large_bytes=2048)
    plan = saver.tier_plan(policy)
    assert plan.threads == ()
    assert plan.bytes > 64 * 1024
    saver.tier(policy)
    status = saver.tier_status()
    assert status.hot_bytes < 10_000
    assert read(saver) == {"messages": ["small " * 40], "turn": blob}


def test_chunks_that_a_busy_fork_needs_stay(opened):
    saver = opened()
    said = converse(saver)
    saver.thread("t").fork(to="f")
    assert saver.tier(thread_ids=["t"]).chunks == 0 or saver.tier_status().hot_chunks > 0
    bare = opened(cold=None)
    assert read(bare, "f")["messages"] == said


def test_a_view_of_some_threads_reads_cold_values_and_leaves_the_tier_alone(opened):
    saver = opened()
    said = converse(saver, "team/t")
    saver.tier(NOW)
    view = saver.within("team/")
    assert read(view, "team/t")["messages"] == said
    for act in (view.tier, view.tier_plan, view.tier_restore, view.tier_status):
        with pytest.raises(InvalidRequest, match="whole store"):
            act()


def test_a_saver_that_may_only_read_reads_cold_values_and_plans(opened):
    said = converse(opened())
    opened().tier(NOW)
    reader = opened(read_only=True)
    assert read(reader)["messages"] == said
    assert reader.tier_plan(NOW).chunks == 0
    for act in (reader.tier, reader.tier_restore):
        with pytest.raises(ReadOnly):
            act()


def test_what_a_policy_rejects():
    for wrong in ({"after": None}, {"after": "soon"}, {"large_bytes": 0}, {"large_after": None}):
        with pytest.raises(InvalidRequest):
            TierPolicy(**wrong)


def test_packs_above_a_quarter_dead_are_chosen_and_the_worst_while_more_than_a_twentieth_is():
    def pack(name, dead, chunk_bytes=10_000_000):
        return PackUse(name=name, pool=1, chunk_bytes=chunk_bytes, live_bytes=int(chunk_bytes * (1 - dead)))

    def chosen(*packs):
        return [one.name for one in chosen_to_rewrite(list(packs))]

    assert chosen(pack("a", 0.3), *(pack(f"p{n}", 0.0) for n in range(9))) == ["a"]
    assert chosen(pack("a", 0.2), *(pack(f"p{n}", 0.0) for n in range(9))) == []
    assert chosen(pack("a", 0.2), pack("b", 0.1)) == ["a", "b"]
    assert chosen(pack("a", 1.0), pack("b", 0.0)) == []  # an orphan, which is deleted
    assert chosen(*(pack(f"s{n}", 0.0, 1000) for n in range(9))) == [f"s{n}" for n in range(9)]
    assert chosen(*(pack(f"s{n}", 0.0, 1000) for n in range(8))) == []


def test_a_run_gives_the_room_of_what_it_moved_back_while_others_write(connect, cold, tmp_path):
    path = tmp_path / "large.db"
    saver, beside = (connect(path, cold=cold, synchronous="OFF") for _ in range(2))
    chance = random.Random(3)
    files = [chance.randbytes(300_000) for _ in range(20)]
    for file in files:
        saver.thread("large").put({"file": file})
    saver.thread("busy").put({"n": 0})
    before = saver.run(lambda store: store.backend.space()).taken_bytes
    stop = threading.Event()

    def write():
        while not stop.wait(0.002):
            beside.thread("busy").put({"n": 1})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        saver.tier(NOW, thread_ids=["large"])
    finally:
        stop.set()
        writer.join()
    connect(path).close()  # the log goes into the file
    assert path.stat().st_size < before / 3
    assert saver.run(lambda store: store.backend.space()).free_bytes < 1_500_000
    saver.clear_cache()
    assert saver.thread("large").state()["file"] == files[-1]
    assert saver.fsck().ok
