"""Puts of tasks that wait at the same time: made together, and each hears of its own, whoever is cancelled."""

import asyncio

import pytest

from threadline import Unavailable
from threadline.backends.postgres.put import usual
from threadline.backends.postgres.together import Together
from threadline.ports.checkpoints import Change


def one(name, pool=None):
    """A change to a thread, which is new unless it has a pool."""
    change = Change(thread_id=name, now=1.0, stamp=None if pool is None else (pool, 0))
    return usual(change, 0.0, may_touch=False)


class Making:
    """Makes puts after a while, in groups that are noted."""

    def __init__(self):
        self.groups = []
        self.is_over = asyncio.Event()  # for a put that is slow
        self.together = Together(self._make)

    async def _make(self, puts):
        self.groups.append([put.change.thread_id for put in puts])
        await asyncio.sleep(0.01)
        if any(put.change.thread_id == "slow" for put in puts):
            await self.is_over.wait()
        if any(put.change.thread_id == "bad" for put in puts):
            raise Unavailable("the puts failed")
        return [(len(put.change.thread_id), 7) for put in puts]

    def tasks(self, *puts):
        return [asyncio.create_task(self.together.put(put)) for put in puts]


def test_two_are_made_at_once_and_those_behind_them_together():
    async def play():
        making = Making()
        made = await asyncio.gather(*making.tasks(*map(one, ("a", "bb", "c", "dd", "e"))))
        assert making.groups == [["a"], ["bb"], ["c", "dd", "e"]]
        assert made == [(1, 7), (2, 7), (1, 7), (2, 7), (1, 7)]
        assert await making.together.put(one("f")) == (1, 7)

    asyncio.run(play())


def test_threads_of_one_pool_and_a_thread_twice_are_not_made_together():
    async def play():
        making = Making()
        waiting = [one("d", 4), one("c", 3), one("e", 4), one("x"), one("x")]
        await asyncio.gather(*making.tasks(one("a", 1), one("b", 2), *waiting))
        assert making.groups == [["a"], ["b"], ["c", "d"], ["x", "e"], ["x"]]

    asyncio.run(play())


def test_much_at_once_is_divided():
    async def play():
        making = Making()
        large = [one(name) for name in "cde"]
        for put in large:
            put.values.append(b"x" * 3_000_000)
        await asyncio.gather(*making.tasks(one("a"), one("b"), *large, *[one(f"{n:02}") for n in range(40)]))
        assert [len(group) for group in making.groups] == [1, 1, 1, 1, 32, 9]

    asyncio.run(play())


def test_a_group_that_fails_is_told_so_and_the_next_goes_on():
    async def play():
        making = Making()
        tasks = making.tasks(one("a"), one("b"), one("bad"), one("c", 1), one("d", 1))
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(each) for each in told] == ["(1, 7)", "(1, 7)", "the puts failed", "the puts failed", "(1, 7)"]

    asyncio.run(play())


def test_a_task_that_is_cancelled_takes_nobody_along():
    async def play():
        making = Making()
        tasks = making.tasks(*map(one, "abcde"))
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[3].cancel()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in told] == [asyncio.CancelledError, tuple, tuple, asyncio.CancelledError, tuple]

    asyncio.run(play())


@pytest.mark.parametrize("moment", ["before it began", "in the middle"])
def test_a_group_that_is_cancelled_may_try_again_and_those_behind_it_are_served(moment):
    async def play():
        making = Making()
        tasks = making.tasks(one("a"), one("slow"), one("c", 1), one("d", 2), one("e", 2))
        while not making.together._tasks:
            await asyncio.sleep(0)
        [group] = making.together._tasks
        while moment == "in the middle" and ["c", "d"] not in making.groups:
            await asyncio.sleep(0)
        group.cancel()
        making.is_over.set()
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert [type(each) for each in told] == [tuple, tuple, Unavailable, Unavailable, tuple]
        assert await asyncio.wait_for(making.together.put(one("f")), 10) == (1, 7)

    asyncio.run(play())


def test_a_loop_that_ends_in_the_middle_leaves_no_task_behind(recwarn):
    async def play():
        making = Making()
        tasks = making.tasks(*map(one, "abcdef"))
        while not making.together._tasks:
            await asyncio.sleep(0)
        assert not tasks[-1].done()

    asyncio.run(play())
    assert not recwarn.list
