"""Whatever stops a copy or a backup, nothing is half moved: what is there is readable, a second run completes it."""

import errno
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from house import config, furnish, grow, is_sound, picture, put

import threadline
from tests.stores import Half
from threadline import StorageFull, Unavailable
from threadline.core.context import Context
from threadline.core.moving.carrier import Carrier, WentStale
from threadline.core.moving.copy import _Copy
from threadline.core.moving.small import SmallThreads
from threadline.core.moving.threads import ThreadCopy
from threadline.core.paging import thread_rows
from threadline.core.retention.sweep import collect

PROGRAM = Path(__file__).parent / "killed_copy.py"


def _killed_after(seconds, source, target):
    """Start a copy and kill it so long after it has begun; whether it was killed before its end."""
    command = [sys.executable, str(PROGRAM), str(source), str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout.readline() == "begin\n"
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return "end" not in process.stdout.read()


def _check_a_prefix(whole, target):
    """Each thread of the target is what its original was at some time: its newest checkpoint has all that it needs."""
    assert is_sound(target)
    shown = picture(target)
    for name, (_, found, _) in shown[0].items():
        own = {str(one[0]): one for one in whole[name][1]}
        for one in found:
            assert one == own[str(one[0])]
        ids = [one[0]["checkpoint_id"] for one in found if one[0]["checkpoint_ns"] == ""]
        every = [one[0]["checkpoint_id"] for one in whole[name][1] if one[0]["checkpoint_ns"] == ""]
        assert ids == every[len(every) - len(ids) :]
    return shown


def _kill_again_and_again(tmp_path, times, steps):
    with threadline.connect(tmp_path / "old.db", synchronous="OFF") as old:
        furnish(old, steps=steps)
        chance, killed, whole = random.Random(7), 0, picture(old)
        for _ in range(times):
            killed += _killed_after(chance.random() * 0.25, tmp_path / "old.db", tmp_path / "new.db")
            with threadline.connect(tmp_path / "new.db") as new:
                if _check_a_prefix(whole[0], new) == whole:
                    new.close()
                    for path in tmp_path.glob("new.db*"):
                        path.unlink()
        assert killed
        with threadline.connect(tmp_path / "new.db") as new:
            assert old.copy_to(new).is_complete
            assert picture(new) == picture(old)
            assert is_sound(new)


def test_a_killed_copy_leaves_readable_threads_and_is_completed(tmp_path):
    _kill_again_and_again(tmp_path, 4, 300)


@pytest.mark.soak
def test_a_hundred_killed_copies(tmp_path):
    """A copy that is killed at any moment leaves a readable prefix of each thread."""
    _kill_again_and_again(tmp_path, 100, 600)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, for as long as the test lasts."""
    place = tmp_path / "disk"
    place.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def large(connect, tmp_path):
    saver = connect(tmp_path / "large.db", synchronous="OFF")
    for step in range(60):
        put(saver, config("t"), {"bytes": os.urandom(100_000)}, step)
    return saver


def test_a_full_disk_in_the_middle_of_a_copy_leaves_what_can_be_read_and_completed(large, connect, small_disk):
    with threadline.connect(small_disk / "new.db") as new:
        with pytest.raises(StorageFull, match=r"free some space\. Whole threads .*: 0; .* goes on from") as raised:
            large.copy_to(new)
        assert "nothing was written" not in str(raised.value)
        there = len(list(new.list(config("t"))))
        assert there < 60
        assert is_sound(new)
        subprocess.run(["mount", "-o", "remount,size=30m", str(small_disk)], check=True)
        report = large.copy_to(new)
        assert report.checkpoints.present == there
        assert picture(new) == picture(large)


def test_a_full_disk_leaves_no_part_of_a_file(large, half, small_disk):
    for verb in ("export", "backup"):
        with pytest.raises(StorageFull, match="nothing was kept"):
            half.call(large, verb, small_disk / "x.tla")
        assert os.listdir(small_disk) == []


@pytest.mark.parametrize("missing", [1, 40, 71, 72, 73, 400])
def test_a_disk_that_fills_within_the_last_bytes_of_a_file_leaves_nothing(house, half, tmp_path, monkeypatch, missing):
    saver = house("sqlite")
    grow(saver, config("t"), 0, 5)
    whole = half.call(saver, "export", tmp_path / "whole.tla").size_bytes
    written, left = os.write, [whole - missing]

    def write(file, content):
        """As a disk does that has some room left: it takes a part, and nothing at the next try."""
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = written(file, content[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageFull, match="nothing was kept"):
        half.call(saver, "export", tmp_path / "cut.tla")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.glob("*cut.tla*")] == []


def test_a_file_of_which_bytes_were_lost_gets_no_name(house, half, tmp_path, monkeypatch):
    saver = house("sqlite")
    grow(saver, config("t"), 0, 5)
    monkeypatch.setattr(os, "write", lambda _, content: len(content))  # a file system that only says it took them
    with pytest.raises(Unavailable, match="the file system has 0 of"):
        half.call(saver, "export", tmp_path / "cut.tla")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.glob("*cut.tla*")] == []


@pytest.mark.parametrize(("kind", "name"), [("sqlite", "sync"), ("postgres", "async")])
def test_a_backup_while_eight_writers_write_has_all_that_was_acknowledged_before(house, connect, tmp_path, kind, name):
    saver, half = house(kind), Half(name)
    grow(saver, config("w0"), 0, 3)
    acknowledged, stop = [], threading.Event()

    def write(number):
        at, step = config(f"w{number}"), 3
        while not stop.is_set():
            at = put(saver, at, {"words": [f"{number} {n} " + "x" * 200 for n in range(step)]}, step)
            acknowledged.append(at)
            saver.put_writes(at, [("words", [step])], f"task{step}")
            below = put(
                saver,
                config(f"w{number}", "child:1"),
                {"n": step},
                step,
                parents={"": at["configurable"]["checkpoint_id"]},
            )
            acknowledged.append(below)
            step += 1
            time.sleep(0.03)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for one in writers:
        one.start()
    try:
        time.sleep(1)
        before = list(acknowledged)
        first = half.call(saver, "backup", tmp_path / "1.tla")
        between = list(acknowledged)
        second = half.call(saver, "backup", tmp_path / "2.tla", base=tmp_path / "1.tla")
    finally:
        stop.set()
        for one in writers:
            one.join()
    assert first.is_complete
    assert second.is_complete
    assert len(before) > 16
    for path, known in ((tmp_path / "1.tla", before), (tmp_path / "2.tla", between)):
        file, restored = connect(f"archive:///{path}"), house("sqlite")
        assert file.copy_to(restored).is_complete
        assert is_sound(restored)
        for at in known:
            assert restored.get_tuple(at).checkpoint == saver.get_tuple(at).checkpoint
        for info in restored.threads():
            found = list(restored.list({"configurable": {"thread_id": info.thread_id}}))
            ids = {str(one.config["configurable"]) for one in found}
            # Whole: the ancestors of everything are there, from the newest on.
            assert all(one.parent_config is None or str(one.parent_config["configurable"]) in ids for one in found)


def test_chunks_that_are_collected_in_the_target_meanwhile_are_sent_again(house, monkeypatch):
    """Garbage collection of the target, between any two calls of a copy, takes nothing that the copy relies on."""
    old, new = furnish(house("sqlite"), steps=60), house("sqlite")
    old.copy_to(new)
    # Their chunks are still there, and nothing refers to them any more.
    keys = [found.key for found in new.run(thread_rows, "a")]
    new._engine.run(lambda backend: backend.remove_checkpoints("a", keys))
    forgotten, run, calls = [], new._engine.run, itertools.count(1)
    forget = Carrier.forget
    monkeypatch.setattr(Carrier, "forget", lambda self, stamp: (forgotten.append(stamp), forget(self, stamp)))

    def collecting(operation):
        if next(calls) == 12:
            run(lambda backend: collect(Context(backend, new._tools), None, time.time()))
        return run(operation)

    monkeypatch.setattr(new._engine, "run", collecting)
    report = old.copy_to(new)
    assert forgotten
    assert report.is_complete
    assert picture(new) == picture(old)
    assert is_sound(new)


def test_a_target_that_is_pruned_meanwhile_is_told_and_costs_no_other_thread(house, monkeypatch):
    """Retention of the target may delete a checkpoint before it is read back, or chunks before each change."""
    old, new = furnish(house("sqlite"), steps=60), house("sqlite")
    verify, send, pruned = ThreadCopy._verify_rows, Carrier.send, []

    async def pruning(self, page, rows):
        if self.target_id == "a" and not pruned:
            pruned.append(min(rows))
            new._engine.run(lambda backend: backend.remove_checkpoints("a", pruned))
        await verify(self, page, rows)

    async def stale(self, change):
        if change.thread_id == "b":
            self.forget(self.stamp)
            raise WentStale("chunks were deleted from the target meanwhile")
        await send(self, change)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SmallThreads, "copy", _copy_none)
        patched.setattr(ThreadCopy, "_verify_rows", pruning)
        patched.setattr(Carrier, "send", stale)
        report = old.copy_to(new)
    lost, its_write, other = report.problems
    for told in (lost, its_write):
        assert pruned[0].id in told
        assert "not in the target any more" in told
    assert other.startswith("thread 'b': chunks were deleted")
    assert is_sound(new)
    assert old.copy_to(new).is_complete
    assert picture(new) == picture(old)


@pytest.mark.parametrize("moment", ["chosen", "looked at", "read"])
def test_a_thread_that_is_deleted_and_begun_anew_meanwhile_is_not_mixed_with_the_other(house, moment):
    """Rows are read by the id of their thread: those of the next thread of that id must not come among its own."""
    old, new = furnish(house("sqlite"), steps=60), house("sqlite")
    grow(old, config("long"), 0, 90)
    ids = {found.config["configurable"]["checkpoint_id"] for found in old.list(config("long"))}
    old.copy_to(new, threads=["long"], until=min(ids))
    done = []

    def after(when, method):
        async def acting(self, *args):
            thread = getattr(self, "thread", None) or args[0]
            if when == moment and not done and thread.thread_id == "long":
                done.append(old.delete_thread("long"))
                grow(old, config("long"), 0, 70)
            return await method(self, *args)

        return acting

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SmallThreads, "copy", _copy_none)
        patched.setattr(_Copy, "_destination", after("chosen", _Copy._destination))
        patched.setattr(ThreadCopy, "_look_at_target", after("looked at", ThreadCopy._look_at_target))
        patched.setattr(ThreadCopy, "_send_all", after("read", ThreadCopy._send_all))
        report = old.copy_to(new)
    assert done
    told = "thread 'long': it was deleted and begun anew while it was copied; run the copy again"
    assert report.problems == ([told] if moment == "chosen" else [])
    assert {found.config["configurable"]["checkpoint_id"] for found in new.list(config("long"))} <= ids
    assert is_sound(new)


async def _copy_none(self, threads):
    return set()
