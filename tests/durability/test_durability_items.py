"""Writers of items killed with SIGKILL at random moments: what was acknowledged is there, and batches are whole."""

import asyncio
import json
import sqlite3

import pytest
from item_writer import KEYS

import threadline


def kill_writers(run_script, folder, kills, seed, url, **options):
    acks = folder / "acks"
    run_script("item_writer.py", url, acks, kills, seed, json.dumps(options), seconds=60 + 3 * kills)
    told = dict.fromkeys(KEYS, -1)
    for line in acks.read_text().splitlines():
        key, number = line.split()
        told[key] = max(told[key], int(number))
    assert min(told.values()) >= 0
    with threadline.Store(url, keep_versions=3, index_fields=("n",), **options) as store:
        for key in KEYS:
            number = store.get(("numbers",), key).value["n"]
            # A put whose answer a kill took may be there as well, and so the next life begins after it.
            assert told[key] <= number <= told[key] + kills
            assert store.get(("copies", key), "same").value["n"] == number
            assert [item.key for item in store.search(("numbers",), filter={"n": number})].count(key) == 1
            history = store.history(("numbers",), key)
            assert [one.value["n"] for one in history] == list(range(number, max(number - 4, -1), -1))


def kill_writers_of_a_file(run_script, database, kills, seed):
    kill_writers(run_script, database.parent, kills, seed, str(database))
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.fixture(params=["postgres", "mysql", "redis_server"])
def server_place(request):
    """A URL on a server, and the options that keep this test to itself there."""
    place = request.getfixturevalue(request.param)
    named = {name: getattr(place, name) for name in ("table_prefix", "key_prefix") if hasattr(place, name)}
    return place.url, named


def test_acknowledged_items_survive_a_hundred_kills(run_script, database):
    kill_writers_of_a_file(run_script, database, 100, seed=11)


@pytest.mark.soak
def test_acknowledged_items_survive_a_thousand_kills(run_script, database):
    kill_writers_of_a_file(run_script, database, 1000, seed=12)


def test_acknowledged_items_survive_kills_on_a_server(run_script, tmp_path, server_place):
    url, options = server_place
    kill_writers(run_script, tmp_path, 10, 13, url, **options)


@pytest.mark.soak
def test_acknowledged_items_survive_a_hundred_kills_on_a_server(run_script, tmp_path, server_place):
    url, options = server_place
    kill_writers(run_script, tmp_path, 100, 14, url, **options)


def test_puts_of_one_item_that_share_a_commit_each_raise_its_version(tmp_path):
    async def work():
        async with threadline.Store(f"sqlite:///{tmp_path / 'items.db'}") as store:
            await asyncio.gather(*(store.aput(("shared",), "k", {"n": number}) for number in range(64)))
            return await store.aget(("shared",), "k")

    item = asyncio.run(work())
    assert item.version == 64
    assert item.value["n"] in range(64)
