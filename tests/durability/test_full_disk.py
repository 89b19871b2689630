"""A disk that is full can be pruned: room is held for deleting, and deleting makes do with little.

A small file system shows it as it is; only root may mount one. Everybody sees the rest: a database that may not grow
(`PRAGMA max_page_count`), which is full as a disk is but has room for its log, and a storage that refuses large
transactions.
"""

import contextlib
import os
import shutil
import subprocess
import time

import pytest

import threadline
from tests.stores import Half, savers
from threadline import Policy, StorageFull
from threadline.backends.sql.backend import SqlBackend
from threadline.backends.sqlite import room as sqlite_room

THREAD = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture(params=["sync", "async"])
def half(request):
    return Half(request.param)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MB, for as long as the test lasts."""
    place = tmp_path / "disk"
    place.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("only root may mount a small file system: what it would show is tested on bounded files instead")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def put(half, saver, at, number, size=3000):
    made = threadline.empty_checkpoint()
    made["channel_values"] = {"bytes": os.urandom(size), "number": number}
    made["channel_versions"] = dict.fromkeys(made["channel_values"], number + 1)
    return half.call(saver, "put", at, made, {"source": "loop", "step": number}, made["channel_versions"])


def fill(half, saver, size=3000, at=THREAD):
    """Put until there is no room; the configs of what is there."""
    configs, sync = [], Half("sync")
    with pytest.raises(StorageFull, match="room"):
        for number in range(100_000):
            configs.append(put(sync, saver, configs[-1] if configs else at, number, size))
    with pytest.raises(StorageFull, match="room"):
        put(half, saver, configs[-1], 0, 100_000)
    return configs


def by_policy(half, saver, configs):
    half.call(saver.thread("t"), "prune", Policy(keep_last=5))
    return configs[-5:]


def to_the_latest(half, saver, configs):
    half.call(saver, "prune", ["t"])
    return configs[-1:]


def by_a_sweep(half, saver, configs):
    half.call(saver, "sweep", Policy(keep_last=5))
    return configs[-5:]


def one_by_one(half, saver, configs):
    for config in configs[:20]:
        half.call(saver, "delete_checkpoint", config)
    half.call(saver, "collect")
    return configs[20:]


PRUNES = [by_policy, to_the_latest, by_a_sweep, one_by_one]


# Small values by the saver that filled the disk, large ones by another; the other way round in the soak.
@pytest.mark.parametrize(
    ("size", "reopens"),
    [
        (3000, False),
        (60_000, True),
        *(pytest.param(*one, marks=pytest.mark.soak) for one in [(3000, True), (60_000, False)]),
    ],
)
@pytest.mark.parametrize("prune", PRUNES)
def test_a_full_disk_can_be_pruned_and_written_again(small_disk, half, prune, reopens, size):
    with savers(f"sqlite:///{small_disk / 'threads.db'}") as opening:
        saver = opening()
        configs = fill(half, saver, size)
        if reopens:
            saver.close()
            saver = opening()
        left = prune(half, saver, configs)
        assert [found.config for found in half.listed(saver, THREAD)] == left[::-1]
        last = put(half, saver, left[-1], 7, 300)
        assert half.call(saver, "get_tuple", last).checkpoint["channel_values"]["number"] == 7
        assert half.call(saver, "fsck").ok


def test_a_thread_can_be_deleted_from_a_full_disk(small_disk, half):
    with savers(f"sqlite:///{small_disk / 'threads.db'}") as opening:
        saver = opening()
        put(half, saver, {"configurable": {"thread_id": "other", "checkpoint_ns": ""}}, 0)
        fill(half, saver)
        half.call(saver, "delete_thread", "t")
        assert half.call(saver, "get_tuple", THREAD) is None
        put(half, saver, THREAD, 0)
        assert half.call(saver, "count_threads") == 2
        assert half.call(saver, "fsck").ok


def test_a_disk_that_others_filled_can_be_pruned(small_disk, half):
    """The store is far smaller than the disk, and something else takes the last of its room."""
    with savers(f"sqlite:///{small_disk / 'threads.db'}") as opening:
        saver = opening()
        config = THREAD
        for number in range(300):
            config = put(half, saver, config, number)
        with contextlib.suppress(OSError), (small_disk / "log").open("wb", buffering=0) as log:
            while log.write(bytes(4096)):
                pass
        with pytest.raises(StorageFull):
            for number in range(1000):
                config = put(half, saver, config, number)
        half.call(saver.thread("t"), "prune", Policy(keep_last=2))
        assert len(half.listed(saver, THREAD)) == 2
        put(half, saver, config, 1)


def test_compacting_without_room_says_how_much_it_needs(small_disk, half):
    with savers(f"sqlite:///{small_disk / 'threads.db'}") as opening:
        saver = opening()
        configs = fill(half, saver)
        with pytest.raises(StorageFull, match=r"writes its [\d,]+ bytes anew.* [\d,]+ are free"):
            half.call(saver, "compact")
        by_policy(half, saver, configs)
        half.call(saver, "compact")
        assert os.path.getsize(small_disk / "threads.db") < 1_000_000


@pytest.mark.parametrize("prune", PRUNES)
def test_a_database_that_may_not_grow_can_be_pruned(database, half, prune):
    with savers(f"sqlite:///{database}", synchronous="OFF") as opening:
        saver = opening()
        saver.count_threads()
        saver._engine.writing_connection().execute("PRAGMA max_page_count = 200")
        configs = fill(half, saver)
        left = prune(half, saver, configs)
        assert [found.config for found in half.listed(saver, THREAD)] == left[::-1]
        put(half, saver, left[-1], 7, 300)
        assert half.call(saver, "fsck").ok


@pytest.mark.parametrize("most", [1, 7])
def test_where_there_is_room_for_little_little_is_deleted_at_a_time(database, half, monkeypatch, most):
    released = []

    def bounded(name, at):
        inner = getattr(SqlBackend, name)

        async def call(self, *args, **options):
            if len(args[at]) > most:
                raise StorageFull("no room left for this many")
            return await inner(self, *args, **options)

        monkeypatch.setattr(SqlBackend, name, call)

    with savers(f"sqlite:///{database}", synchronous="OFF") as opening:
        saver, config = opening(), THREAD
        configs = []
        for number in range(40):
            config = put(half, saver, config, number)
            configs.append(config)
        bounded("remove_checkpoints", 1)
        bounded("collect", 1)
        monkeypatch.setattr(sqlite_room.Room, "release", lambda self: released.append(self.reserve))
        half.call(saver, "prune", ["t"])
        assert [found.config for found in half.listed(saver, THREAD)] == configs[-1:]
        assert half.call(saver, "collect") == 0
        assert set(released) == {f"{database}-reserve"}
        assert half.call(saver, "fsck").ok


def test_the_room_for_deleting_is_held_as_soon_as_there_is_much_to_delete(database, half):
    with savers(f"sqlite:///{database}", synchronous="OFF") as opening:
        saver = opening()
        config = put(half, saver, THREAD, 0)
        reserve = database.with_name(database.name + "-reserve")
        assert not reserve.exists()
        config = put(half, saver, config, 1, 20_000_000)
        time.sleep(2 * sqlite_room._PAUSE_SECONDS)
        put(half, saver, config, 2)
        held = reserve.stat()
        assert held.st_size == 1024 * 1024
        assert held.st_blocks * 512 >= held.st_size
        assert held.st_mode & 0o077 == 0
