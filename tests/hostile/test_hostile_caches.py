"""A cache that cannot be used fails no node: it is a miss, and a warning says why."""

import asyncio
import socket
import time

import psycopg
import pytest

import redis
import threadline
from threadline import Closed, InvalidRequest, KeyRing

KEY = (("n",), "k")
RING = KeyRing({"k1": b"k" * 32})


def missing_folder(tmp_path, request):
    return threadline.Cache(tmp_path / "no" / "such" / "folder" / "cache.db")


def folder(tmp_path, request):
    return threadline.Cache(tmp_path)


def no_database(tmp_path, request):
    (tmp_path / "cache.db").write_bytes(b"this is no database" * 1000)
    return threadline.Cache(tmp_path / "cache.db")


def filled(tmp_path, **options):
    with threadline.Cache(tmp_path / "cache.db", **options) as cache:
        cache.set({KEY: (1, None)})
    return tmp_path / "cache.db"


def other_key(tmp_path, request):
    return threadline.Cache(filled(tmp_path, encryption=RING), encryption=KeyRing({"k2": b"x" * 32}))


def no_key(tmp_path, request):
    return threadline.Cache(filled(tmp_path, encryption=RING))


def a_key_too_many(tmp_path, request):
    return threadline.Cache(filled(tmp_path), encryption=RING)


def read_only(tmp_path, request):
    return threadline.Cache(filled(tmp_path), read_only=True)


def nobody_listens(tmp_path, request):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return threadline.Cache(f"redis://127.0.0.1:{port}/0")


def missing_database(tmp_path, request):
    url = request.getfixturevalue("postgres").url
    return threadline.Cache(url.rpartition("/")[0] + "/no_such_database")


def refused_role(tmp_path, request):
    place = request.getfixturevalue("private_postgres")
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        database = connection.info.dbname
        connection.execute(f'GRANT CONNECT ON DATABASE "{database}" TO poor')
    role = place.url.partition("//")[2].partition("@")[0]
    return threadline.Cache(place.url.replace(f"//{role}@", "//poor@"))


def key_of_another_type(tmp_path, request):
    place = request.getfixturevalue("redis_server")
    with redis.Redis.from_url(place.url) as client:
        client.set(f"{place.key_prefix}:{{records}}:cache", "text")
        client.set(f"{place.key_prefix}:{{records}}:cache:names", "text")
    return threadline.Cache(place.url, key_prefix=place.key_prefix)


PLACES = (
    missing_folder,
    folder,
    no_database,
    other_key,
    no_key,
    a_key_too_many,
    read_only,
    nobody_listens,
    missing_database,
    refused_role,
    key_of_another_type,
)


@pytest.mark.parametrize("make", PLACES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_cache_that_cannot_be_used_is_a_miss(make, half, tmp_path, request, caplog):
    cache = make(tmp_path, request)

    async def use():
        await cache.aset({(("n",), "new"): (2, None)})
        return await cache.aget([KEY, (("n",), "new")])

    if half == "async":
        found = asyncio.run(use())
    else:
        cache.set({(("n",), "new"): (2, None)})
        found = cache.get([KEY, (("n",), "new")])
    assert (("n",), "new") not in found
    assert caplog.records, "nothing was said"
    for wrong in ({"k": (1, None)}, {KEY: (1, "soon")}):
        with pytest.raises(InvalidRequest):
            cache.set(wrong)
    with pytest.raises(InvalidRequest):
        cache.get(["k"])


@pytest.mark.parametrize("half", ["sync", "async"])
def test_nodes_do_not_wait_again_and_again_for_a_cache_that_is_away(half, tmp_path, request, caplog):
    cache = nobody_listens(tmp_path, request)

    async def use():
        await cache.aget([KEY])
        began = time.monotonic()
        for _ in range(20):
            await cache.aset({KEY: (1, None)})
            assert await cache.aget([KEY]) == {}
        return time.monotonic() - began

    if half == "async":
        took = asyncio.run(use())
    else:
        cache.get([KEY])
        began = time.monotonic()
        for _ in range(20):
            cache.set({KEY: (1, None)})
            assert cache.get([KEY]) == {}
        took = time.monotonic() - began
    assert took < 1
    assert len([one for one in caplog.records if one.name == "threadline.cache"]) == 1


def test_a_cache_is_asked_again_after_a_while(redis_server, monkeypatch):
    cache = threadline.Cache(redis_server.url, key_prefix=redis_server.key_prefix, retry=None)
    cache.set({KEY: (1, None)})
    run = cache._engine.run

    def away(_):
        raise threadline.Unavailable("away")

    monkeypatch.setattr("threadline.cache._REST_SECONDS", 0.2)
    monkeypatch.setattr(cache._engine, "run", away)
    assert cache.get([KEY]) == {}
    monkeypatch.setattr(cache._engine, "run", run)
    assert cache.get([KEY]) == {}
    time.sleep(0.25)
    assert cache.get([KEY]) == {KEY: 1}


def test_a_cache_that_was_closed_says_so(tmp_path):
    with threadline.Cache(tmp_path / "cache.db") as cache:
        cache.set({KEY: (1, None)})
        assert cache.get([KEY]) == {KEY: 1}
    with pytest.raises(Closed):
        cache.get([KEY])

    async def use():
        async with threadline.Cache(tmp_path / "cache.db") as cache:
            assert await cache.aget([KEY]) == {KEY: 1}
        with pytest.raises(Closed):
            await cache.aget([KEY])

    asyncio.run(use())
