"""How long a call waits: for a lock that another holds, and for a server or a pooler that says nothing."""

import asyncio
import threading

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import threadline
from tests.servers.mute import LONG_SECONDS, Mute
from threadline import Unavailable
from threadline.backends.layers.retry import Retry, RetryLayer
from threadline.base.drive import run_now
from threadline.testing.making import checkpoint, place

HALVES = pytest.mark.parametrize("half", ["sync", "async"])


def arguments(at, step, thing="some text"):
    made = checkpoint({"messages": [f"{thing} {step}"]}, {"messages": step})
    return at, made, {"source": "loop", "step": step}, {"messages": step}


def run(saver, half, method, *args):
    """A call of either half; the connections of a loop end with it."""
    if half == "sync":
        return getattr(saver, method)(*args)

    async def call():
        try:
            return await getattr(saver, f"a{method}")(*args)
        finally:
            await saver._engine.aclose_loop()

    return asyncio.run(call())


@pytest.fixture
def held(postgres_url, schema, connect):
    """A thread whose row another session has locked, alone, for longer than anybody should wait."""
    saver = connect()
    at = saver.put(*arguments(place("t"), 1))
    with psycopg.connect(postgres_url) as other:
        other.execute(f'SELECT 1 FROM "{schema}".threadline_threads FOR UPDATE')
        end = threading.Timer(LONG_SECONDS, other.close)
        end.start()
        yield at
        end.cancel()


@HALVES
def test_a_put_does_not_wait_for_a_lock_for_longer_than_timeout(connect, held, half):
    saver = connect(timeout=0.5, retry=None)
    with pytest.raises(Unavailable, match="lock was not granted in time"):
        run(saver, half, "put", *arguments(held, 2))


@HALVES
def test_a_deletion_does_not_wait_for_a_lock_for_longer_than_timeout(connect, held, half):
    saver = connect(timeout=0.5, retry=None)
    with pytest.raises(Unavailable, match="lock was not granted in time"):
        run(saver, half, "delete_thread", "t")


@pytest.fixture
def mute(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        host, port = connection.info.host, connection.info.port
    proxy = Mute(host if not host.startswith("/") else "127.0.0.1", port)
    yield proxy
    proxy.close()


@pytest.fixture
def mute_url(postgres_url, mute):
    parts = conninfo_to_dict(postgres_url)
    password = f":{parts['password']}" if "password" in parts else ""
    user = f"{parts.get('user', 'postgres')}{password}"
    return f"postgresql://{user}@127.0.0.1:{mute.port}/{parts.get('dbname', 'postgres')}?sslmode=disable"


def test_a_put_does_not_wait_for_ever_for_a_server_that_says_nothing(mute, mute_url, schema):
    saver = threadline.connect(mute_url, schema=schema, timeout=0.5, retry=None)
    at = saver.put(*arguments(place("t"), 1))
    mute.mute()
    with pytest.raises(Unavailable, match="did not answer in time"):
        saver.put(*arguments(at, 2))
    mute.unmute()
    saver.put(*arguments(at, 2))
    assert saver.get(place("t"))["channel_values"]["messages"] == ["some text 2"]
    saver.close()


def test_an_async_put_does_not_wait_for_ever_for_a_server_that_says_nothing(mute, mute_url, schema):
    saver = threadline.connect(mute_url, schema=schema, timeout=0.5, retry=None)

    async def puts():
        at = await saver.aput(*arguments(place("t"), 1))
        mute.mute()
        with pytest.raises(Unavailable, match="did not answer in time"):
            await saver.aput(*arguments(at, 2))
        mute.unmute()
        await saver.aput(*arguments(at, 2))
        found = await saver.aget(place("t"))
        await saver.aclose()
        return found

    assert asyncio.run(puts())["channel_values"]["messages"] == ["some text 2"]


@HALVES
def test_a_put_that_does_not_fit_into_the_buffers_of_the_way_is_sent_whole(connect, half):
    saver = connect()
    at = run(saver, half, "put", *arguments(place("t"), 1))
    text = "".join(chr(0x4E00 + n % 20_000) for n in range(3_000_000))
    run(saver, half, "put", *arguments(at, 2, text))
    assert saver.get(place("t"))["channel_values"]["messages"] == [f"{text} 2"]


class _Clock:
    """Tells the time that attempts are said to have taken."""

    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds


class _Slow:
    """Fails a few times, each time after as long as an attempt may take."""

    def __init__(self, clock, failures):
        self.calls, self._clock, self._failures = 0, clock, failures

    async def find(self):
        self.calls += 1
        self._clock.time += 120
        if self.calls <= self._failures:
            raise Unavailable("not now")
        return "found"

    def __getattr__(self, name):
        """The other methods of the ports, which a layer wraps as well."""
        return self.find


def test_what_was_lost_is_tried_once_more_however_long_it_took():
    clock = _Clock()
    slow = _Slow(clock, failures=1)
    assert run_now(RetryLayer(slow, Retry(), clock).find()) == "found"
    assert slow.calls == 2


def test_what_was_lost_twice_is_not_tried_for_longer_than_the_policy_says():
    clock = _Clock()
    slow = _Slow(clock, failures=9)
    with pytest.raises(Unavailable):
        run_now(RetryLayer(slow, Retry(), clock).find())
    assert slow.calls == 2


def test_a_policy_of_one_try_has_one_try():
    clock = _Clock()
    slow = _Slow(clock, failures=9)
    with pytest.raises(Unavailable):
        run_now(RetryLayer(slow, Retry(tries=1), clock).find())
    assert slow.calls == 1
