"""A program whose calls are interrupted at random moments, many times, while others write beside it.

    python many_interrupts.py signals|given|cancels URL COUNT [OPTIONS AS JSON]

`signals`: a signal handler raises in the main thread, as Ctrl-C does in a notebook or the time limit of a worker.
`given`: the same, and the connections are those of a driver's own pool.
`cancels`: tasks of an event loop are cancelled.

Exits with 0 when nobody else was disturbed, all connections can be lent, no lock is held, everything acknowledged is
there, and the saver goes on working. Nothing is tried again by the retry layer.
"""

import asyncio
import faulthandler
import json
import random
import signal
import sys
import threading
import time

import lives

import threadline
from threadline.base.drive import run_now

POOL_SIZE = 3


class Stopped(BaseException):
    """What some signal handlers raise."""


class TimeIsOver(Exception):
    """What the soft time limit of a worker raises."""


KINDS = (KeyboardInterrupt, Stopped, TimeIsOver)


class Interrupts:
    """Raises in the main thread a moment after it is armed, and never when it is not."""

    def __init__(self):
        self.is_armed = False
        signal.signal(signal.SIGALRM, self.interrupt)

    def interrupt(self, *_):
        if self.is_armed:
            self.is_armed = False
            raise random.choice(KINDS)

    def arm(self, seconds):
        self.is_armed = True
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))

    def disarm(self):
        self.is_armed = False


def calls(saver, step, prefix=""):
    """What a graph does at a step."""
    return [
        lambda: getattr(saver, f"{prefix}put")(*lives.put_arguments("main", step)),
        lambda: getattr(saver, f"{prefix}put_writes")(*lives.write_arguments("main", step, "task-a")),
        lambda: getattr(saver, f"{prefix}get_tuple")(lives.config("main")),
    ]


def keep_writing(saver, name, is_over, written, errors):
    step = 0
    while not is_over.is_set():
        try:
            saver.put(*lives.put_arguments(name, step))
        except BaseException as error:
            errors.append(error)
            return
        written[name] = step
        step += 1
        time.sleep(0.002)


def interrupted_calls(saver, count):
    """Interrupts calls of the main thread so many times; the last step that was put."""
    began, interrupts, interrupted, step = time.perf_counter(), Interrupts(), 0, 30
    for warm in range(step):
        for call in calls(saver, warm):
            call()
    usual = (time.perf_counter() - began) / (3 * step)
    while interrupted < count:
        for call in calls(saver, step):
            is_done = False
            while not is_done and interrupted < count:
                try:
                    interrupts.arm(random.uniform(0, 1.5) * usual)
                    call()
                    interrupts.disarm()
                    is_done = True
                except KINDS:
                    interrupted += 1
        step += 1
    interrupts.disarm()
    saver.put(*lives.put_arguments("main", step - 1))
    return step - 1


def signals(saver, count):
    is_over, written, errors = threading.Event(), {}, []
    others = [
        threading.Thread(target=keep_writing, args=(saver, f"other-{n}", is_over, written, errors)) for n in range(2)
    ]
    for other in others:
        other.start()
    try:
        step = interrupted_calls(saver, count)
    finally:
        is_over.set()
        for other in others:
            other.join()
    assert not errors, errors
    check_given_pool() if GIVEN else check_connections(saver._engine)
    check(saver, {**written, "main": step})


def check(saver, written):
    """Everything acknowledged is there, and the saver works."""
    for name, last in written.items():
        for found in saver.list(lives.config(name), limit=50):
            lives.check(found, name)
        steps = [lives.step_of(found.checkpoint["id"]) for found in saver.list(lives.config(name))]
        expected = list(reversed(range(last + 1)))
        assert steps == expected, (name, last, set(steps) ^ set(expected), len(steps))
        saver.put(*lives.put_arguments(name, last + 1))
        assert lives.check(saver.get_tuple(lives.config(name)), name) == last + 1


def check_connections(engine):
    """As many connections as there may be are lent at once, and nobody holds anything."""
    kind = type(engine).__name__
    if kind == "SqliteEngine":
        assert not engine._connections._reading
        for lock in (
            engine._commit._turn,
            engine._commit._door,
            engine._connections._idle,
            engine._connections._lock,
        ):
            assert lock.acquire(timeout=1)
            lock.release()
    lend = {
        "PostgresEngine": lambda act: run_now(engine.blocking.lend(lambda _: act())),
        "MysqlEngine": lambda act: run_now(engine.blocking.lend(lambda _: act())),
        "RedisEngine": lambda act: run_now(engine.blocking.lend(lambda _: act())),
    }.get(kind)
    if lend is None:
        return
    together, met = threading.Barrier(POOL_SIZE), []

    async def meet():
        met.append(together.wait(10))

    threads = [threading.Thread(target=lend, args=(meet,)) for _ in range(POOL_SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(met) == POOL_SIZE


async def keep_putting(saver, name, is_over, written):
    step = 0
    while not is_over.is_set():
        await saver.aput(*lives.put_arguments(name, step))
        written[name] = step
        step += 1
        await asyncio.sleep(0.002)


async def cancelled_calls(saver, count):
    began, cancelled, step = time.perf_counter(), 0, 30
    for warm in range(step):
        for call in calls(saver, warm, "a"):
            await call()
    usual = (time.perf_counter() - began) / (3 * step)
    while cancelled < count:
        for call in calls(saver, step, "a"):
            is_done = False
            while not is_done and cancelled < count:
                task = asyncio.ensure_future(call())
                # Some before they begin: a call that never waits for anything cannot be cancelled later.
                if random.random() < 0.9:
                    await asyncio.sleep(random.choice((0, random.uniform(0, 1.5) * usual)))
                task.cancel()
                is_done = (await asyncio.gather(task, return_exceptions=True))[0] is None or not task.cancelled()
                if task.cancelled():
                    cancelled += 1
                elif task.exception() is not None:
                    raise task.exception()
        step += 1
    await saver.aput(*lives.put_arguments("main", step - 1))
    return step - 1


async def cancels(saver, count):
    is_over, written = asyncio.Event(), {}
    others = [asyncio.create_task(keep_putting(saver, f"other-{n}", is_over, written)) for n in range(2)]
    step = await cancelled_calls(saver, count)
    is_over.set()
    await asyncio.gather(*others)
    await check_loop_connections(saver._engine)
    # As many calls at once as there are connections, and more: each comes back.
    found = await asyncio.gather(*[saver.aget_tuple(lives.config("main")) for _ in range(3 * POOL_SIZE)])
    assert [lives.check(one, "main") for one in found] == [step] * len(found)
    await saver.aclose()
    return {**written, "main": step}


async def check_loop_connections(engine):
    """As many connections of the loop as there may be are lent at once."""
    kind = type(engine).__name__
    if kind == "RedisEngine" and not engine.blocking_half().link.is_cluster:
        assert not engine.loops.here()._driver.client.connection_pool._in_use_connections
    lend = {
        "PostgresEngine": lambda act: engine.loops.here().lend(lambda _: act()),
        "MysqlEngine": lambda act: engine.loops.here().lend(lambda _: act()),
        "RedisEngine": lambda act: engine.loops.here().lend(lambda _: act()),
    }.get(kind)
    if lend is None:
        return
    inside, all_inside = [], asyncio.Event()

    async def meet():
        inside.append(1)
        if len(inside) == POOL_SIZE:
            all_inside.set()
        await asyncio.wait_for(all_inside.wait(), 10)

    await asyncio.gather(*[lend(meet) for _ in range(POOL_SIZE)])


GIVEN = []


def on_given_pool(url, *, pool_size, timeout, **options):
    """A saver on the pool of a driver."""
    if url.startswith("redis"):
        import redis

        pool = redis.BlockingConnectionPool.from_url(url, max_connections=pool_size, timeout=timeout)
        GIVEN.append((pool.get_connection, pool.release))
    else:
        import psycopg_pool

        pool = psycopg_pool.ConnectionPool(url, min_size=pool_size, max_size=pool_size, timeout=timeout, open=True)
        GIVEN.append((pool.getconn, pool.putconn))
    return threadline.connect(pool=pool, **options)


def check_given_pool():
    """All connections of a given pool can be lent at once."""
    [(take, give_back)] = GIVEN
    for connection in [take() for _ in range(POOL_SIZE)]:
        give_back(connection)


def main():
    kind, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    options = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    seed = random.randrange(10**6)
    print("seed", seed, file=sys.stderr)
    random.seed(seed)
    # One that meets a finalizer is printed and forgotten by the interpreter.
    sys.unraisablehook = lambda told: None if isinstance(told.exc_value, KINDS) else sys.__unraisablehook__(told)
    faulthandler.dump_traceback_later(60 + count / 5, exit=True)
    if "://" in url and not url.startswith(("memory", "sqlite")):
        options = {"pool_size": POOL_SIZE, "retry": None, **options}
    if not url.startswith("memory"):
        options = {"timeout": 5.0, **options}
    saver = on_given_pool(url, **options) if kind == "given" else threadline.connect(url, **options)
    if kind in ("signals", "given"):
        saver.open()
        signals(saver, count)
        saver.close()
    else:
        written = asyncio.run(cancels(saver, count))
        with threadline.connect(url, **options) as again:
            check(again, written)


if __name__ == "__main__":
    main()
