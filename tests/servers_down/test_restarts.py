"""Servers that crash under eight writers: what was acknowledged is there and whole, all else is whole or absent.

A writer that is told `Unavailable` counts its put as not acknowledged and goes on with the next step, whose parent may
then be missing. Some writers never try again by themselves, the others do, so that a put may be applied by a try whose
answer was lost.
"""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import lives
import pytest

import threadline
from tests.servers import PostgresServer
from tests.servers.plugin import require_programs
from threadline import Unavailable

RESTARTS, SOAK_RESTARTS = 10, 100
NAMES = ("sync-a", "sync-b", "sync-c", "sync-d", "async-a", "async-b", "async-c", "async-d")
# How many calls must have been answered between two crashes, so that each meets work under way.
BETWEEN = 30


class Crowd:
    """Eight writers on one server; what they were told is kept here, and so outlives every crash."""

    def __init__(self, url):
        self.url = url
        self.stop = threading.Event()
        self.puts = {name: set() for name in NAMES}
        self.tried = {name: set() for name in NAMES}
        self.writes = {name: set() for name in NAMES}
        self.refused = 0
        self.answered = 0
        self._savers = [threadline.connect(url, pool_size=4, retry=retry) for retry in (1, 5, 1, 5)]

    def run(self, crashes):
        """Write until `crashes` returns."""
        sync_once, sync_often, async_once, async_often = self._savers
        with ThreadPoolExecutor(6) as threads:
            running = [
                *(threads.submit(self._write, sync_once, name) for name in NAMES[:2]),
                *(threads.submit(self._write, sync_often, name) for name in NAMES[2:4]),
                threads.submit(asyncio.run, self._awrite_all(async_once, NAMES[4:6])),
                threads.submit(asyncio.run, self._awrite_all(async_often, NAMES[6:])),
            ]
            try:
                crashes(lambda: [one.result() for one in running if one.done()])
            finally:
                self.stop.set()
            for one in running:
                one.result(timeout=120)
        for saver in self._savers:
            saver.close()

    def _write(self, saver, name):
        for step, verb, arguments in calls(name):
            if self.stop.is_set():
                return
            self.tried[name].add(step)
            try:
                getattr(saver, verb)(*arguments)
            except Unavailable:
                self.refused += 1
                time.sleep(0.02)
            else:
                self._acknowledge(name, step, verb, arguments)

    async def _awrite_all(self, saver, names):
        await asyncio.gather(*(self._awrite(saver, name) for name in names))
        await saver.aclose()

    async def _awrite(self, saver, name):
        for step, verb, arguments in calls(name):
            if self.stop.is_set():
                return
            self.tried[name].add(step)
            try:
                await getattr(saver, "a" + verb)(*arguments)
            except Unavailable:
                self.refused += 1
                await asyncio.sleep(0.02)
            else:
                self._acknowledge(name, step, verb, arguments)

    def _acknowledge(self, name, step, verb, arguments):
        if verb == "put":
            self.puts[name].add(step)
        else:
            self.writes[name].add((step, arguments[2]))
        self.answered += 1


def calls(name):
    """The calls of one writer, for ever: puts, and writes before and after their checkpoint."""
    step = 0
    while True:
        if step % 2:
            yield step, "put_writes", lives.write_arguments(name, step, "task-a")
        yield step, "put", lives.put_arguments(name, step)
        yield step, "put_writes", lives.write_arguments(name, step, "task-b")
        step += 1


def crash_again_and_again(server, crowd, restarts):
    dice = random.Random(7)

    def crashes(raise_if_ended):
        for _ in range(restarts):
            answered, deadline = crowd.answered, time.monotonic() + 60
            while crowd.answered < answered + BETWEEN:
                raise_if_ended()
                assert time.monotonic() < deadline, "nobody could write any more\n" + server.log[-2000:]
                time.sleep(0.005)
            time.sleep(dice.uniform(0, 0.1))
            server.stop_hard()
            time.sleep(dice.uniform(0, 0.1))
            server.start()

    crowd.run(crashes)


def check_everything(crowd):
    with threadline.connect(crowd.url) as saver:
        for name in NAMES:
            tasks = {}
            for found in saver.list(lives.config(name)):
                step = lives.check(found, name)
                tasks[step] = lives.check_writes(found.pending_writes, name, step)
            assert crowd.puts[name] <= tasks.keys() <= crowd.tried[name]
            assert not {(step, task) for step, task in crowd.writes[name] if step in tasks and task not in tasks[step]}
            for step in sorted(tasks)[-3:]:  # `list` decodes lazily, `get_tuple` at once
                assert lives.check(saver.get_tuple(lives.config(name, lives.id_of(step))), name) == step
        assert saver.fsck().ok
        # The server serves as before.
        for name in NAMES:
            saver.put(*lives.put_arguments(name, max(crowd.tried[name]) + 1))


def crash(server, restarts):
    crowd = Crowd(server.url)
    crash_again_and_again(server, crowd, restarts)
    check_everything(crowd)
    assert crowd.refused, "no crash was noticed by anybody"
    assert min(len(steps) for steps in crowd.puts.values()) > 0


@pytest.fixture(params=["postgres", "mysql", "redis"])
def server(request):
    if request.param == "postgres":
        # After a crash, a PostgreSQL that flushes begins by flushing every file it has. Nothing is lost without:
        # the system goes on, and what the server has written is the system's.
        require_programs("postgres")
        with PostgresServer(durable=False) as careless:
            yield careless
    else:
        yield request.getfixturevalue(f"private_{request.param}")


@pytest.fixture(params=["postgres", "mysql", "redis"])
def durable_server(request):
    return request.getfixturevalue(f"private_{request.param}")


def test_what_was_acknowledged_survives_ten_crashes_of_the_server(server):
    crash(server, RESTARTS)


@pytest.mark.soak
def test_what_was_acknowledged_survives_a_hundred_crashes_of_the_server(durable_server):
    crash(durable_server, SOAK_RESTARTS)
