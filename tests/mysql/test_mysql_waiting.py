"""How long a call waits: for a lock that another holds, and for a server that says nothing."""

import asyncio
import threading
from urllib.parse import urlsplit

import lives
import pytest

from tests.servers.mute import LONG_SECONDS, Mute
from threadline.errors import Unavailable


@pytest.fixture
def mute(mysql_url):
    parts = urlsplit(mysql_url)
    proxy = Mute(parts.hostname, parts.port or 3306)
    yield proxy
    proxy.close()


@pytest.fixture
def mute_saver(mysql_url, mute, connect, prefix):
    parts = urlsplit(mysql_url)
    user = parts.netloc.rpartition("@")[0]
    url = parts._replace(netloc=f"{user}@127.0.0.1:{mute.port}", query="ssl_mode=DISABLED").geturl()
    return connect(url, table_prefix=prefix, timeout=0.5, retry=None)


def test_a_put_does_not_wait_for_ever_for_a_server_that_says_nothing(mute, mute_saver):
    mute_saver.put(*lives.put_arguments("t", 0))
    mute.mute()
    with pytest.raises(Unavailable):
        mute_saver.put(*lives.put_arguments("t", 1))
    assert mute.unmute()
    mute_saver.put(*lives.put_arguments("t", 1))
    assert lives.check(mute_saver.get_tuple(lives.config("t")), "t") == 1


def test_an_async_put_does_not_wait_for_ever_for_a_server_that_says_nothing(mute, mute_saver):
    async def puts():
        await mute_saver.aput(*lives.put_arguments("t", 0))
        mute.mute()
        with pytest.raises(Unavailable):
            await mute_saver.aput(*lives.put_arguments("t", 1))
        assert mute.unmute()
        await mute_saver.aput(*lives.put_arguments("t", 1))
        found = await mute_saver.aget_tuple(lives.config("t"))
        await mute_saver.aclose()
        return found

    assert lives.check(asyncio.run(puts()), "t") == 1


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_put_does_not_wait_for_a_lock_for_longer_than_timeout(connect, root, prefix, half):
    saver = connect(timeout=1, retry=None)
    saver.put(*lives.put_arguments("t", 0))
    root.begin()
    root.query(f"SELECT * FROM {prefix}pools FOR UPDATE")
    is_ended = []
    end = threading.Timer(LONG_SECONDS, lambda: is_ended.append(root.rollback()))
    end.start()

    async def aput():
        try:
            await saver.aput(*lives.put_arguments("t", 1))
        finally:
            await saver.aclose()

    with pytest.raises(Unavailable, match="in the way"):
        asyncio.run(aput()) if half == "async" else saver.put(*lives.put_arguments("t", 1))
    end.cancel()
    assert not is_ended
    root.rollback()
