"""The trash beside crashes and keys: nothing is lost at any moment, and what was begun is ended by the next sweep."""

import sqlite3
import time

import pytest
from fsck_store import STEPS, chunk_of, config, fill, flip_chunk, message, name, put, state

import threadline
from threadline import KeyRing
from threadline.core.context import Context, bound
from threadline.core.retention.policy import Policy
from threadline.core.retention.restore import tidy
from threadline.core.retention.sweep import prune
from threadline.core.retention.trash import trash_thread
from threadline.errors import InvalidRequest
from threadline.ports.rules import HIDDEN

LATER = 3600.0
WRITING = {"apply", "remove_checkpoints", "remove_thread", "swap_thread", "collect", "write_records"}


class Died(Exception):
    pass


class Dying:
    """A backend whose process dies before the given writing call."""

    def __init__(self, backend, calls):
        self.backend, self.left = backend, calls

    def __getattr__(self, verb):
        method = getattr(self.backend, verb)
        if verb not in WRITING:
            return method

        async def call(*args, **options):
            if self.left == 0:
                raise Died
            self.left -= 1
            return await method(*args, **options)

        return call


def everything(saver, thread_id="t"):
    """All that can be read of a thread."""
    saver.clear_cache()
    return [
        (one.config, one.parent_config, dict(one.checkpoint["channel_values"]), one.metadata, one.pending_writes)
        for one in saver.list(config(thread_id))
    ]


def run_until_it_dies(saver, calls, work):
    """Whether the work died before so many writing calls."""
    try:
        saver._engine.run(lambda backend: work(Dying(backend, calls)))
    except Died:
        return True
    return False


def settled(saver, now):
    saver._engine.run(bound(saver._tools, tidy, now))


def test_a_deletion_that_dies_anywhere_loses_nothing_and_is_ended_by_a_sweep(connect, half):
    calls = 0
    while True:
        saver = connect()
        thread_id = f"t{calls}"
        fill(saver, thread_id)
        saver.thread(thread_id).tag("good", name(3))
        before, info = everything(saver, thread_id), saver.thread(thread_id).info()

        def work(backend, saver=saver, thread_id=thread_id):
            return trash_thread(Context(backend, saver._tools), thread_id, 7 * 86_400, time.time())

        has_died = run_until_it_dies(saver, calls, work)
        if everything(saver, thread_id):
            assert everything(saver, thread_id) == before
        settled(saver, time.time() + LATER)
        entries = half.call(saver, "trash", prefix=thread_id)
        if entries:
            assert everything(saver, thread_id) == []
            half.call(saver, "restore_trash", thread_id)
        assert everything(saver, thread_id) == before
        again = saver.thread(thread_id).info()
        assert (again.status, again.tags, again.created) == (info.status, info.tags, info.created)
        assert saver._engine.run(lambda backend: backend.count_threads(HIDDEN)) == 0
        assert saver.fsck().ok
        if not has_died:
            break
        calls += 1
    assert calls >= 6


def test_a_prune_that_dies_anywhere_loses_nothing(connect):
    calls = 0
    policy = Policy(keep_last=3, drop_settled_writes=True, trash="7d")
    while True:
        saver = connect()
        thread_id = f"t{calls}"
        fill(saver, thread_id)
        before = everything(saver, thread_id)

        def work(backend, saver=saver, thread_id=thread_id):
            return prune(Context(backend, saver._tools), thread_id, policy, time.time())

        has_died = run_until_it_dies(saver, calls, work)
        settled(saver, time.time() + LATER)
        for entry in saver.trash(prefix=thread_id):
            saver.restore_trash(entry.id)
        assert everything(saver, thread_id) == before
        assert saver._engine.run(lambda backend: backend.count_threads(HIDDEN)) == 0
        if not has_died:
            break
        calls += 1
    assert calls >= 5


def test_a_thread_that_was_used_after_a_deletion_died_is_left_alone(connect):
    saver = connect()
    fill(saver)
    # It dies after the entry was begun, and before the thread is closed to writers.
    assert run_until_it_dies(
        saver, 2, lambda backend: trash_thread(Context(backend, saver._tools), "t", 60.0, time.time())
    )
    saver.put_writes(config("t", name(STEPS)), [("step", 99)], "later")
    before = everything(saver)
    settled(saver, time.time() + LATER)
    assert everything(saver) == before
    assert saver.trash() == []


def test_what_is_under_way_is_left_alone_by_a_sweep_at_the_same_time(connect):
    saver = connect()
    fill(saver)
    assert run_until_it_dies(
        saver, 4, lambda backend: trash_thread(Context(backend, saver._tools), "t", 60.0, time.time())
    )
    settled(saver, time.time())
    assert saver._engine.run(lambda backend: backend.count_threads(HIDDEN)) == 1
    # Who deletes it again ends what was begun, and the thread is restored as it was before all that.
    saver.thread("t").delete(trash="7d")
    [entry] = saver.trash()
    saver.restore_trash(entry.id)
    assert saver.thread("t").info().status == "active"


def test_the_trash_of_an_encrypted_store_is_sealed_anew_with_the_rest(tmp_path):
    old, new = KeyRing.generate(), KeyRing.generate()
    url = tmp_path / "sealed.db"
    with threadline.connect(url, encryption=KeyRing({"old": old})) as saver:
        fill(saver)
        saver.thread("t").create(metadata={"who": "ada"})
        before = everything(saver)
        saver.thread("t").delete(trash="7d")
    with threadline.connect(url, encryption=KeyRing({"new": new, "old": old}, current="new")) as saver:
        assert "old" in saver.keys_in_use()
        saver.rotate_keys()
        assert saver.keys_in_use() == {"new"}
    with threadline.connect(url, encryption=KeyRing({"new": new})) as saver:
        saver.restore_trash("t")
        assert everything(saver) == before
        assert saver.thread("t").info().metadata == {"who": "ada"}
        assert saver.fsck().ok


def test_nobody_can_name_what_the_store_hides(connect):
    saver = connect()
    with pytest.raises(InvalidRequest):
        saver.get_tuple(config(HIDDEN + "x"))
    with pytest.raises(InvalidRequest):
        saver.thread(HIDDEN)
    assert saver.get_tuple(config("\U0010ffff" * 15)) is None


def test_a_store_that_only_has_trash_still_holds_plaintext(connect, url):
    saver = connect()
    fill(saver)
    saver.thread("t").delete(trash="7d")
    with pytest.raises(InvalidRequest, match="plaintext"):
        threadline.connect(url, encryption=KeyRing({"a": KeyRing.generate()})).open()


# -- quarantine


@pytest.fixture
def damaged(tmp_path):
    """A thread whose newest checkpoint has one channel that cannot be read, and with it a write of the one before."""
    path = tmp_path / "agents.db"
    with threadline.connect(path) as saver:
        fill(saver)
        digest = chunk_of(saver, message(STEPS))
    flip_chunk(path, digest)
    with threadline.connect(path) as saver:
        yield saver


def test_a_damaged_channel_hides_only_itself(damaged, half):
    [bad] = {damage.channel for damage in damaged.fsck().damaged}
    found = half.call(damaged.thread("t"), "state", name(STEPS))
    with pytest.raises(threadline.Corrupt, match=bad):
        found[bad]
    for channel, value in state(STEPS).items():
        if channel != bad:
            assert found[channel] == value
    assert "[damaged]" in found._repr_html_()
    told = half.call(damaged.thread("t"), "diff", name(1), name(STEPS))
    kinds = {one.channel: one.kind for one in told.channels}
    assert kinds[bad] == "damaged"
    assert kinds["step"] == "changed"
    assert f"! {bad}: [damaged]" in str(told)
    assert "[damaged]" in told._repr_html_()
    assert len(half.call(damaged.thread("t"), "log").entries) == STEPS


def test_what_was_set_aside_goes_back_with_all_that_could_be_read(damaged, half):
    report = damaged.fsck()
    [bad] = {damage.channel for damage in report.damaged}
    before = {
        one.checkpoint_id: {
            channel: value for channel, value in state(int(one.checkpoint_id)).items() if channel != bad
        }
        for one in report.damaged
    }
    planned = half.call(damaged, "quarantine", report.damaged, dry_run=True)
    assert planned == len(before)
    assert damaged.fsck() == report
    assert half.call(damaged, "quarantine", report.damaged) == planned
    assert damaged.fsck().ok
    damaged.collect()
    aside = half.call(damaged, "quarantined")
    assert aside == half.call(damaged, "quarantined", "t")
    assert half.call(damaged, "quarantined", "other") == []
    assert {one.checkpoint_id for one in aside} == set(before)
    assert half.call(damaged, "unquarantine", aside) == len(aside)
    assert half.call(damaged, "quarantined") == []
    for checkpoint_id, values in before.items():
        found = damaged.thread("t").state(checkpoint_id)
        for channel, value in values.items():
            assert found[channel] == value
    assert {one.checkpoint_id for one in damaged.fsck().damaged} == set(before)
    assert damaged._engine.run(lambda backend: backend.count_threads(HIDDEN)) == 0
    with pytest.raises(threadline.NotFound):
        half.call(damaged, "unquarantine", aside)


def test_a_damaged_chunk_does_not_stay_for_what_was_set_aside(damaged):
    report = damaged.fsck()
    damaged.quarantine(report.damaged)
    # A put of the same content brings its chunks anew, and can be read.
    for number in range(1, STEPS + 1):
        if damaged.get_tuple(config("t", name(number))) is None:
            put(damaged, number)
            damaged.clear_cache()
            assert damaged.get_tuple(config("t", name(number))).checkpoint["channel_values"] == state(number)
    with pytest.raises(threadline.Conflict):
        damaged.unquarantine(damaged.quarantined())


def test_erasing_a_thread_erases_what_quarantine_has_of_it(damaged):
    damaged.quarantine(damaged.fsck().damaged)
    damaged.delete_thread("t")
    assert damaged.quarantined() == []
    assert damaged._engine.run(lambda backend: backend.count_threads(HIDDEN)) == 0
    assert damaged.fsck().leaked_pools == ()


def test_erasing_a_thread_erases_what_quarantine_has_of_a_checkpoint_without_chunks(connect, tmp_path):
    with threadline.connect(tmp_path / "small.db") as saver:
        for number in range(2):
            saver.thread("t").put({"n": number})
    with sqlite3.connect(tmp_path / "small.db") as db:
        newest = "(SELECT max(id) FROM threadline_checkpoints)"
        db.execute(f"UPDATE threadline_checkpoints SET document = x'00' WHERE id = {newest}")
    saver = connect(tmp_path / "small.db")
    assert saver.quarantine(saver.fsck().damaged) == 1
    saver.delete_thread("t")
    assert saver.quarantined() == []
    assert saver._engine.run(lambda backend: backend.count_threads(HIDDEN)) == 0
