"""A put that leaves out a chunk which somebody collected meanwhile is refused by its epoch, and sends it then.

The row by which the writer knows of its chunks stays, so that nothing but the epoch tells of the collection.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.stores import savers
from threadline.testing.making import checkpoint, place

TEXTS = [f"text {number} " * 40 for number in range(8)]


@pytest.fixture
def connect(database):
    with savers(f"sqlite:///{database}") as opening:
        yield opening


def put_arguments(at, step, values):
    versions = dict.fromkeys(values, step + 1)
    return at, checkpoint(values, versions), {"source": "loop", "step": step, "parents": {}}, versions


def prepared_threads(saver, names):
    """Threads whose first checkpoint alone has a text, which the writer knows to be stored."""
    heads = []
    for name, text in zip(names, TEXTS, strict=True):
        first = saver.put(*put_arguments(place(name), 0, {"text": text}))
        heads.append(saver.put(*put_arguments(first, 1, {"text": "short"})))
    return heads


@pytest.mark.parametrize("half", ["one", "threads", "tasks"])
def test_a_shared_put_is_refused_when_its_epoch_has_passed(connect, half):
    writer, other, names = connect(), connect(), [f"thread {number}" for number in range(8)]
    heads = prepared_threads(writer, names)
    other.prune(names)  # the first checkpoints go, and their texts with them; the heads stay
    assert other.stats().chunks == 0
    puts = [put_arguments(head, 2, {"text": text}) for head, text in zip(heads, TEXTS, strict=True)]

    async def all_at_once():
        await asyncio.gather(*[writer.aput(*arguments) for arguments in puts])

    if half == "one":
        for arguments in puts:
            writer.put(*arguments)
    elif half == "threads":
        with ThreadPoolExecutor(len(puts)) as pool:
            for put in [pool.submit(writer.put, *arguments) for arguments in puts]:
                put.result(timeout=60)
    else:
        asyncio.run(all_at_once())
    reader = connect()
    found = [reader.get_tuple(place(name)).checkpoint["channel_values"] for name in names]
    assert found == [{"text": text} for text in TEXTS]
