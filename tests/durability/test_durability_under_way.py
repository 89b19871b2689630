"""A read from an event loop waits for the puts of its thread that were begun before it, and for no others."""

import asyncio

import pytest

from threadline.background import UnderWay


def test_a_read_waits_for_what_was_begun_before_it_and_for_nothing_later():
    async def run():
        under_way = UnderWay()
        first, second, other = under_way.begin("t"), under_way.begin("t"), under_way.begin("u")
        reads = [asyncio.create_task(under_way.settle("t")) for _ in range(2)]
        await asyncio.sleep(0)
        later = under_way.begin("t")
        under_way.end(first)
        await asyncio.sleep(0)
        assert not any(read.done() for read in reads)
        under_way.end(second)
        await asyncio.wait_for(asyncio.gather(*reads), 10)
        under_way.end(later)
        under_way.end(other)
        await asyncio.wait_for(under_way.settle("t"), 10)
        assert not under_way._puts

    asyncio.run(run())


def test_a_put_that_is_ended_while_a_read_begins_to_wait_is_not_waited_for(monkeypatch):
    """As the finalizer of an abandoned put ends it, at whatever moment."""

    async def run():
        under_way = UnderWay()
        puts = [under_way.begin("t"), under_way.begin("t")]
        loop, make = asyncio.get_running_loop(), asyncio.get_running_loop().create_future

        def ending():
            while puts:
                under_way.end(puts.pop())
            return make()

        async def read():
            monkeypatch.setattr(loop, "create_future", ending)  # only now: to wait for this makes a future, too
            await under_way.settle("t")

        await asyncio.wait_for(read(), 5)
        assert not puts

    asyncio.run(run())


def test_a_read_that_is_cancelled_disturbs_no_put():
    async def run():
        under_way = UnderWay()
        put = under_way.begin("t")
        read = asyncio.create_task(under_way.settle("t"))
        await asyncio.sleep(0)
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        under_way.end(put)
        await asyncio.wait_for(under_way.settle("t"), 10)

    asyncio.run(run())
