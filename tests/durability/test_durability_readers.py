"""A reader never sees half a put: not of a checkpoint, not of a task's writes, not of a batch."""

import asyncio
import signal
import threading
import time

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


class Interrupted(BaseException):
    """What a signal handler raises, as Ctrl-C does."""


@pytest.fixture
def interrupts():
    """Raises Interrupted in the main thread, again and again, while the block runs."""

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_puts_interrupted_like_by_ctrl_c_are_whole_or_absent_and_disturb_no_other_thread(saver, interrupts):
    """The main thread is interrupted at any point of a put, also while it commits for others."""
    is_over, errors, written = threading.Event(), [], {}

    def keep_writing(name):
        step = 0
        while not is_over.is_set():
            try:
                saver.put(*lives.put_arguments(name, step))
            except Exception as error:
                errors.append(error)
                return
            written[name] = step
            step += 1

    others = [threading.Thread(target=keep_writing, args=(f"other-{n}",)) for n in range(3)]
    for other in others:
        other.start()
    interrupted, step, deadline = 0, 0, time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            interrupts(0.0003 + 0.00037 * (step % 7))
            saver.put(*lives.put_arguments("main", step))
            interrupts(0)
            step += 1
        except Interrupted:
            interrupted += 1
    interrupts(0)
    is_over.set()
    for other in others:
        other.join(20)
    assert not any(other.is_alive() for other in others)
    unexpected = [error for error in errors if "interrupted" not in str(error)]
    assert not unexpected
    assert interrupted > 20
    for name, last in written.items():
        steps = [lives.check(found, name) for found in saver.list(lives.config(name))]
        assert steps[0] >= last
    saver.put(*lives.put_arguments("main", step))
    assert lives.check(saver.get_tuple(lives.config("main")), "main") == step
