"""Turns of an event loop, and first use by many at once: nobody is cut off, refused or warned of for others' sake."""

import asyncio
import logging
import threading

import lives
import pytest
from redis_tools import DURABLE, client_of

import threadline
from threadline.errors import Closed, InvalidRequest

pytestmark = pytest.mark.usefixtures("servers")


@pytest.fixture(scope="module")
def own(servers):
    return servers(*DURABLE)


def test_calls_under_way_end_before_the_client_of_their_loop_is_closed(own):
    saver, others = threadline.connect(own.url, key_prefix="under-way", retry=None), client_of(own.url)
    before = len(others.client_list())

    async def use():
        for number in range(3):
            await saver.aput(*lives.put_arguments(f"t{number}", 0))
        others.execute_command("CLIENT", "PAUSE", "300", "ALL")
        running = [asyncio.create_task(saver.aput(*lives.put_arguments(f"t{number}", 1))) for number in range(3)]
        await asyncio.sleep(0.05)
        await saver.aclose()
        await asyncio.gather(*running)
        for _ in range(100):
            await asyncio.sleep(0.02)
            if len(others.client_list()) <= before:
                return
        pytest.fail("connections of the closed saver are still open")

    asyncio.run(use())


def test_an_operation_that_goes_on_after_close_opens_no_connection(own):
    saver, others = threadline.connect(own.url, key_prefix="goes-on"), client_of(own.url)
    before = len(others.client_list())

    async def use():
        await saver.aput(*lives.put_arguments("known", 0))
        others.execute_command("CLIENT", "PAUSE", "200", "ALL")
        # The first put of a thread is several calls of the server.
        running = [asyncio.create_task(saver.aput(*lives.put_arguments(f"new-{number}", 0))) for number in range(3)]
        await asyncio.sleep(0.05)
        await saver.aclose()
        for outcome in await asyncio.gather(*running, return_exceptions=True):
            assert isinstance(outcome, Closed | dict), outcome
        await asyncio.sleep(0.2)
        assert len(others.client_list()) <= before

    asyncio.run(use())


def test_fewer_connections_in_the_url_are_waited_for(own):
    saver = threadline.connect(f"{own.url}?max_connections=2", key_prefix="few", retry=None)

    async def use():
        await asyncio.gather(*[saver.aput(*lives.put_arguments(f"t{number}", 0)) for number in range(16)])
        await saver.aclose()

    asyncio.run(use())


def test_many_threads_that_use_a_new_store_at_once_hear_of_no_loss(own, caplog):
    caplog.set_level(logging.WARNING, logger="threadline")
    for number in range(20):
        saver = threadline.connect(own.url, key_prefix=f"new-{number}")
        threads = [threading.Thread(target=saver.put, args=lives.put_arguments(f"t{thread}", 0)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        saver.close()
    assert not [record for record in caplog.records if "lost the format" in record.getMessage()]


def test_migrating_brings_an_older_number_to_this_one(own):
    with threadline.connect(own.url, key_prefix="older") as saver:
        saver.put(*lives.put_arguments("thread", 0))
    others = client_of(own.url)
    [meta] = [key for key in others.scan_iter(match="older*") if b"meta" in key]
    others.hset(meta, "format", b"0")
    with pytest.raises(InvalidRequest, match="setup='migrate'"):
        threadline.connect(own.url, key_prefix="older").get_tuple(lives.config("thread"))
    for options in ({"setup": "migrate"}, {}):
        with threadline.connect(own.url, key_prefix="older", **options) as saver:
            assert saver.get_tuple(lives.config("thread")) is not None
    assert others.hget(meta, "format") == b"1"
