"""Tasks and OS threads whose work is done together: each hears of its own, whoever is cancelled on the way."""

import asyncio
import threading
import time
from collections import deque

import pytest

from threadline import Unavailable
from threadline.backends.gather import Gather, LoopGather


class Doing:
    """Work that takes a while, done in groups that are noted."""

    def __init__(self, most_together=3, most_leaders=1, admits=lambda work: True):
        self.groups = []
        self.gather = LoopGather(self._do, lambda: admits, most_leaders=most_leaders, most_together=most_together)

    async def _do(self, works):
        self.groups.append(works)
        await asyncio.sleep(0.01)
        if "bad" in works:
            raise Unavailable("the work failed")
        return [f"done {work}" for work in works]

    def tasks(self, *works):
        return [asyncio.create_task(self.gather.run(work)) for work in works]

    def drains(self):
        return [task for here in self.gather._loops.values() for task in here.tasks]


def test_what_waits_is_done_together_and_each_hears_of_its_own():
    async def play():
        doing = Doing()
        assert await asyncio.gather(*doing.tasks(*"abcdef")) == [f"done {work}" for work in "abcdef"]
        assert doing.groups == [["a"], ["b", "c", "d"], ["e", "f"]]
        assert await doing.gather.run("g") == "done g"

    asyncio.run(play())


def test_what_is_not_admitted_waits_for_the_next_group():
    async def play():
        doing = Doing(admits=lambda work: work != "c" or doing.groups[-1] != ["a"])
        assert await asyncio.gather(*doing.tasks(*"abcd")) == [f"done {work}" for work in "abcd"]
        assert doing.groups == [["a"], ["b"], ["c", "d"]]

    asyncio.run(play())


def test_a_group_that_fails_is_told_so_and_the_next_goes_on():
    async def play():
        doing = Doing()
        told = await asyncio.gather(*doing.tasks("a", "b", "bad", "c", "d"), return_exceptions=True)
        assert [str(one) for one in told] == ["done a", *["the work failed"] * 3, "done d"]

    asyncio.run(play())


def test_who_gives_up_takes_nobody_along():
    async def play():
        doing = Doing()
        tasks = doing.tasks(*"abcde")
        await asyncio.sleep(0)
        tasks[2].cancel()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(told.pop(2), asyncio.CancelledError)
        assert told == ["done a", "done b", "done d", "done e"]

    asyncio.run(play())


@pytest.mark.parametrize("moment", ["before it began", "in the middle"])
def test_a_cancelled_group_may_try_again_and_those_behind_it_are_served(moment):
    async def play():
        doing = Doing()
        tasks = doing.tasks(*"abcdef")
        while not doing.drains():
            await asyncio.sleep(0)
        if moment == "in the middle":
            await asyncio.sleep(0.002)
        doing.drains()[0].cancel()
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert [type(one) for one in told[1:4]] == [Unavailable] * 3
        assert [told[0], *told[4:]] == ["done a", "done e", "done f"]
        assert await asyncio.wait_for(doing.gather.run("g"), 10) == "done g"

    asyncio.run(play())


def test_a_loop_that_ends_leaves_nothing_behind():
    doing = Doing()

    async def play():
        doing.tasks(*"abcdef")
        await asyncio.sleep(0.002)

    asyncio.run(play())

    async def again():
        return await asyncio.gather(*doing.tasks("x", "y"))

    assert asyncio.run(again()) == ["done x", "done y"]


class Committing(Gather):
    """Work of OS threads in two parts, as a database has them; each part waits until it may end."""

    def __init__(self):
        self.events, self.gates, self.told = [], {}, []
        super().__init__()

    def gate(self, event):
        return self.gates.setdefault(event, threading.Event())

    def pass_through(self, event):
        self.events.append(event)
        if not self.gate(event).wait(10):
            raise TimeoutError(event)

    def _commit(self, group):
        names = "".join(job.work for job in group)
        self.pass_through(f"rows {names}")
        if "x" in names:
            raise KeyboardInterrupt
        self._tell_earlier()
        self.pass_through(f"commit {names}")
        self._tell_later(group)

    def hand_in(self, work):
        def run():
            try:
                self.run(work)
                self.told.append(work)
            except BaseException as error:
                self.told.append(type(error).__name__)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def hand_in_behind(self, *works):
        threads = []
        for work in works:
            threads.append(self.hand_in(work))
            until(lambda work=work: any(job.work == work for job in list(self._waiting)))
        return threads

    def proceed(self, event):
        until(lambda: event in self.events)
        self.gate(event).set()


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "what was expected does not come"
        time.sleep(0.0005)


@pytest.fixture
def committing():
    """`a` is done; `b`, `c` and `d` are committed together, and `e` waits behind them."""
    doing = Committing()
    doing.hand_in("a")
    until(lambda: doing.events)
    doing.hand_in_behind("b", "c", "d")
    for event in ("rows a", "commit a", "rows bcd"):
        doing.proceed(event)
    until(lambda: "commit bcd" in doing.events)
    assert doing.told == ["a"]
    return doing


def test_a_group_is_told_before_the_next_one_commits_but_its_leader_at_once(committing):
    committing.hand_in_behind("e")
    committing.proceed("commit bcd")
    until(lambda: "rows e" in committing.events and "b" in committing.told)
    assert committing.told == ["a", "b"]
    committing.proceed("rows e")
    until(lambda: len(committing.told) == 4)
    assert sorted(committing.told) == ["a", "b", "c", "d"]  # while `e` is still on its way to the disk
    committing.proceed("commit e")
    until(lambda: committing.told[-1] == "e")
    assert (committing._leaders, committing._untold) == (set(), [])


def test_a_group_is_told_at_once_where_nobody_waits(committing):
    committing.proceed("commit bcd")
    until(lambda: len(committing.told) == 4)
    assert (committing._leaders, committing._untold) == (set(), [])


def test_a_group_is_told_where_the_next_one_is_interrupted(committing):
    committing.hand_in_behind("x")
    committing.proceed("commit bcd")
    committing.proceed("rows x")
    until(lambda: len(committing.told) == 5)
    assert sorted(committing.told) == ["KeyboardInterrupt", "a", "b", "c", "d"]
    assert (committing._leaders, committing._untold) == (set(), [])


def test_a_group_is_told_where_the_next_one_may_not_begin(committing):
    """A fork is about to happen: nobody leads from now on, and nobody is left waiting for what is done."""
    committing.hand_in_behind("e")
    pausing = threading.Thread(target=committing.pause, daemon=True)
    pausing.start()
    until(lambda: committing._is_paused)
    committing.proceed("commit bcd")
    until(lambda: len(committing.told) == 4)
    pausing.join(10)
    assert "rows e" not in committing.events
    committing.gate("rows e").set()
    committing.gate("commit e").set()
    committing.resume()
    until(lambda: committing.told[-1] == "e")


class Striking(deque):
    """A queue that is interrupted once between two lines: what was noted is not taken out."""

    pending = True

    def popleft(self):
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt
        return super().popleft()


@pytest.mark.parametrize("before", [0, 1, 2])
def test_work_that_was_told_of_an_interrupt_is_given_no_lead(before):
    """It still stands in the queue, but whoever handed it in is gone."""
    doing = Committing()
    doing.hand_in("a")
    until(lambda: doing.events)
    doing.hand_in_behind("b", "c", "d")
    waiting = Striking(doing._waiting)
    waiting.pending = False
    doing._waiting = waiting
    taken = iter(range(10))
    strike = waiting.popleft

    def counted():
        if next(taken) == before:
            waiting.pending = True
        return strike()

    waiting.popleft = counted
    for names in ("a", "bcd", "cd", "d", "e"):
        doing.gate(f"rows {names}").set()
        doing.gate(f"commit {names}").set()
    until(lambda: len(doing.told) == 4)
    doing.hand_in("e")
    until(lambda: doing.told[-1] == "e")
    assert doing._leaders == set()
