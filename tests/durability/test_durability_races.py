"""Prune, collect, fork and delete against writers and readers of one pool, from OS threads of one process."""

import time

import lives
import pytest

import threadline

SECONDS, SOAK_SECONDS = 1.5, 40


class Race:
    """Threads of one pool under one name each, until the clock runs out."""

    def __init__(self, open_saver, seconds):
        self.open_saver = open_saver
        self.until = time.monotonic() + seconds
        self.acknowledged = {}
        saver = open_saver()
        saver.put(*lives.put_arguments("origin", 0))
        for name in ("kept", "pruned", "shrunk"):
            saver.copy_thread("origin", name)

    @property
    def goes_on(self):
        return time.monotonic() < self.until

    def write(self, name):
        saver, step = self.open_saver(), 0
        while self.goes_on:
            step += 1
            config, *rest = lives.put_arguments("origin", step)
            config["configurable"]["thread_id"] = name
            saver.put(config, *rest)
            self.acknowledged[name] = step
            config, *rest = lives.write_arguments("origin", step, "task-b")
            config["configurable"]["thread_id"] = name
            saver.put_writes(config, *rest)

    def prune(self):
        saver = self.open_saver()
        while self.goes_on:
            saver.prune(["pruned"])

    def shrink(self):
        """Delete single checkpoints, never the newest."""
        saver = self.open_saver()
        while self.goes_on:
            for found in list(saver.list(lives.config("shrunk"), limit=8))[2:]:
                saver.delete_checkpoint(found.config)

    def fork(self):
        saver, turn = self.open_saver(), 0
        while self.goes_on:
            turn += 1
            saver.copy_thread(("kept", "pruned", "shrunk")[turn % 3], f"fork-{turn}")
            self.read_all(saver, f"fork-{turn}")
            saver.delete_thread(f"fork-{turn - 2}")

    def read(self):
        saver = self.open_saver(cache_bytes=0)  # every chunk is asked for again, at the worst of moments
        while self.goes_on:
            for name in ("kept", "pruned", "shrunk"):
                assert lives.check_copy(saver.get_tuple(lives.config(name)), "origin") >= 0
                self.read_named(saver, name)

    def read_named(self, saver, name):
        """A checkpoint named by its id is whole, or gone."""
        for found in saver.list(lives.config(name), limit=3):
            try:
                again = saver.get_tuple(found.config)
            except threadline.NotFound:
                continue
            if again is not None:
                lives.check_copy(again, "origin")

    def read_all(self, saver, name):
        return [lives.check_copy(found, "origin") for found in saver.list(lives.config(name))]

    def run(self, in_threads):
        in_threads(
            lambda: self.write("kept"),
            lambda: self.write("pruned"),
            lambda: self.write("shrunk"),
            self.prune,
            self.shrink,
            self.fork,
            self.read,
        )
        fresh = self.open_saver()
        fresh.clear_cache()
        kept = self.read_all(fresh, "kept")
        assert kept == list(range(self.acknowledged["kept"], -1, -1))
        for name in ("pruned", "shrunk"):
            assert self.read_all(fresh, name)[0] == self.acknowledged[name]
        for info in fresh.threads():
            assert self.read_all(fresh, info.thread_id)


@pytest.fixture(params=["one saver", "a saver each"])
def open_saver(request, connect, url):
    if request.param == "a saver each":
        return lambda **options: connect(url, **options)
    shared = connect(url)
    return lambda **options: shared


def test_prune_fork_and_delete_leave_nothing_of_the_pool_unreadable(open_saver, in_threads, switch_often):
    Race(open_saver, SECONDS).run(in_threads)


@pytest.mark.soak
def test_minutes_of_prune_fork_and_delete_leave_nothing_unreadable(open_saver, in_threads, switch_often):
    Race(open_saver, SOAK_SECONDS).run(in_threads)
