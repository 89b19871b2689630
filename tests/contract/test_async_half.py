"""What only the async half can promise: that a put holds the values of the moment it began."""

import asyncio

import pytest

import threadline

METADATA = {"source": "loop", "step": 0, "parents": {}}


@pytest.fixture(params=["memory://", "sqlite"])
def saver(request, tmp_path):
    url = request.param if "://" in request.param else f"sqlite:///{tmp_path / 'threads.db'}"
    with threadline.connect(url) as saver:
        yield saver


def config(thread_id, **more):
    return {"configurable": {"thread_id": thread_id, **more}}


def checkpoint(checkpoint_id, values):
    return {
        "v": 4, "id": checkpoint_id, "ts": "2026-01-01", "versions_seen": {},
        "channel_values": values, "channel_versions": dict.fromkeys(values, 1),
    }  # fmt: skip


def test_a_put_is_encoded_before_it_first_waits(saver):
    """A graph goes on while its checkpoint is being stored, and changes the very same objects."""

    async def main():
        words = ["x" * 200 for _ in range(50)]
        going = asyncio.create_task(saver.aput(config("t"), checkpoint("1", {"words": words}), METADATA, {"words": 1}))
        writing = asyncio.create_task(saver.aput_writes(config("t", checkpoint_id="1"), [("words", words)], "task"))
        await asyncio.sleep(0)
        words.clear()
        await asyncio.gather(going, writing)
        return await saver.aget_tuple(config("t"))

    found = asyncio.run(main())
    assert found.checkpoint["channel_values"] == {"words": ["x" * 200] * 50}
    assert found.pending_writes == [("task", "words", ["x" * 200] * 50)]


def test_a_cancelled_put_is_stored_whole_or_not_at_all_and_the_saver_goes_on(saver):
    async def main():
        for at in range(30):
            values = {"words": [f"{at} " * 50] * 30}
            going = asyncio.create_task(saver.aput(config(f"t-{at}"), checkpoint("1", values), METADATA, {"words": 1}))
            for _ in range(at % 4):
                await asyncio.sleep(0)
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
            found = await saver.aget_tuple(config(f"t-{at}"))
            assert found is None or found.checkpoint["channel_values"] == values
            again = await saver.aput(config(f"t-{at}"), checkpoint("2", values), METADATA, {"words": 1})
            await saver.aclear_cache()
            assert (await saver.aget(again))["channel_values"] == values

    asyncio.run(main())


def test_one_saver_serves_one_loop_after_another(saver):
    async def step(at):
        await saver.aput(config("t"), checkpoint(f"{at}", {"n": at}), METADATA, {"n": 1})
        return [found.checkpoint["channel_values"]["n"] async for found in saver.alist(config("t"))]

    for at in range(5):
        assert asyncio.run(step(at)) == [*range(at, -1, -1)]
