"""A reader never sees half a put: not of a checkpoint, not of a task's writes, not of a batch."""

import asyncio
import threading

import lives
import pytest

STEPS = 60


@pytest.fixture(params=["same saver", "other saver"])
def reader(request, connect, url, saver):
    return saver if request.param == "same saver" else connect(url)


@pytest.fixture
def saver(connect, url):
    return connect(url)


class Watch:
    """Reads until it is told to stop; what it saw must have been whole and never older than before."""

    def __init__(self, read):
        self.read = read
        self.is_over = threading.Event()
        self.seen = []

    def __call__(self):
        while not self.is_over.is_set():
            step = self.read()
            assert not self.seen or step is None or step >= self.seen[-1]
            if step is not None:
                self.seen.append(step)


def test_a_reader_never_sees_half_a_put(saver, reader, in_threads, switch_often):
    def read():
        found = reader.get_tuple(lives.config("t"))
        return None if found is None else lives.check(found, "t")

    watch = Watch(read)

    def write():
        for step in range(STEPS):
            saver.put(*lives.put_arguments("t", step))
            for task_id in lives.TASKS:
                saver.put_writes(*lives.write_arguments("t", step, task_id))
        watch.is_over.set()

    in_threads(write, watch)
    assert watch.seen


def test_an_async_reader_never_sees_half_a_put(saver, reader):
    async def write():
        for step in range(STEPS):
            await saver.aput(*lives.put_arguments("t", step))
            for task_id in lives.TASKS:
                await saver.aput_writes(*lives.write_arguments("t", step, task_id))
                await asyncio.sleep(0)  # memory never waits by itself

    async def watch(writing):
        seen = []
        while not writing.done():
            found = await reader.aget_tuple(lives.config("t"))
            if found is not None:
                seen.append(lives.check(found, "t"))
            async for one in reader.alist(lives.config("t"), limit=5):
                lives.check(one, "t")
            await asyncio.sleep(0)
        assert seen == sorted(seen)
        return seen

    async def main():
        writing = asyncio.create_task(write())
        seen = await watch(writing)
        await writing
        return seen

    assert asyncio.run(main())


def test_a_reader_never_sees_half_a_batch(saver, reader, in_threads, switch_often):
    """Two namespaces are always put together, so a list shows both at one step."""
    namespaces = ("left", "right")

    def read():
        listed = list(reader.list({"configurable": {"thread_id": "t"}}, limit=2))
        steps = [lives.step_of(found.checkpoint["id"]) for found in listed]
        places = {found.config["configurable"]["checkpoint_ns"] for found in listed}
        assert not listed or (steps[0] == steps[1] and places == set(namespaces))
        return steps[0] if steps else None

    watch = Watch(read)

    def write():
        for step in range(STEPS):
            saver.put_many([lives.put_arguments("t", step, namespace) for namespace in namespaces])
        watch.is_over.set()

    in_threads(write, watch)
    assert watch.seen


def test_what_was_put_is_seen_by_every_saver_at_once(connect, url, half):
    savers = [connect(url) for _ in range(6)]
    for step in range(12):
        half.call(savers[step % 6], "put", *lives.put_arguments("t", step))
        for saver in savers:
            assert lives.check(half.call(saver, "get_tuple", lives.config("t")), "t") == step
