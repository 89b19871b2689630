"""Tasks whose work is done together: each hears of its own, whoever is cancelled on the way."""

import asyncio

import pytest

from threadline import Unavailable
from threadline.backends.gather import LoopGather


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
