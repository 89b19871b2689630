"""Ids that `text` cannot hold: stored reversibly, in the same order."""

import random

import psycopg
import pytest

from threadline.backends.postgres.binary import escape, unescape
from threadline.testing.making import checkpoint, place

ALPHABET = ["\0", "\1", "\2", "a", "b", "é", "\U0001f600", ""]


def texts(seed, count=3000):
    dice = random.Random(seed)
    return ["".join(dice.choices(ALPHABET, k=dice.randrange(6))) for _ in range(count)]


def test_every_text_comes_back_and_keeps_its_place():
    made = sorted(texts(1))
    escaped = [escape(text) for text in made]
    assert [unescape(text) for text in escaped] == made
    assert not any("\0" in text for text in escaped)
    assert sorted(escaped) == escaped


def test_the_server_orders_as_python_does(postgres_url):
    made = sorted({escape(text) for text in texts(2, 300)})
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute('SELECT t FROM unnest(%s::text[]) AS t ORDER BY t COLLATE "C"', (made,)).fetchall()
    assert [text for (text,) in rows] == made


@pytest.mark.parametrize("half", ["sync", "async"])
def test_threads_with_such_ids_are_listed_in_order(half, connect):
    import asyncio

    saver = connect()
    names = sorted({"t" + text for text in texts(3, 40)})
    for name in names:
        made = checkpoint({"x": name})
        saver.put(place(name, None, name), made, {"source": "input", "step": -1}, made["channel_versions"])
        saver.put_writes(place(name, made["id"], name), [(name, 1)], name, name)
    if half == "sync":
        found = [info.thread_id for info in saver.threads()]
    else:

        async def listed():
            return [info.thread_id async for info in saver.athreads()]

        found = asyncio.run(listed())
    assert found == names
    for name in names:
        read = saver.get_tuple(place(name, None, name))
        assert read.checkpoint["channel_values"] == {"x": name}
        assert read.pending_writes == [(name, name, 1)]
        assert [info.thread_id for info in saver.threads(prefix=name)] == [n for n in names if n.startswith(name)]
