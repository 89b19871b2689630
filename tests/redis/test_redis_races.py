"""Several writers at once: threads are begun once, and nothing is lost, unreadable or left behind."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import lives
import pytest
from crowd_checks import check_puts, check_race, run_crowd
from redis_tools import keys_of

import threadline
from threadline.base.drive import run_now


def directory_of(saver):
    return saver._engine.blocking_half().directory


def pools_with_chunks(saver):
    return saver._engine.run(lambda backend: backend.pools(0, 10_000))


def pools_of_threads(saver):
    async def pools(backend):
        return {row.pool for row in await backend.threads("", 10_000)}

    return saver._engine.run(pools)


def test_eight_os_threads_begin_one_thread_and_share_its_pool(connect):
    savers = [connect() for _ in range(8)]

    def begin(number):
        savers[number].put(*lives.put_arguments("one", 0, f"namespace-{number}"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(begin, range(8)))
    assert [info.thread_id for info in savers[0].threads()] == ["one"]
    assert savers[0].count_threads() == 1
    for number in range(8):
        found = savers[0].get_tuple(lives.config("one", namespace=f"namespace-{number}"))
        assert lives.check(found, "one") == 0
    assert len(pools_with_chunks(savers[0])) == 1


def test_tasks_that_begin_and_delete_the_same_threads_leave_no_pool_behind(connect):
    saver = connect()

    async def churn(worker):
        for turn in range(12):
            name = f"thread-{turn % 3}"
            try:
                config, *rest = lives.put_arguments("origin", 0)
                config["configurable"]["thread_id"] = name
                await saver.aput(config, *rest)
            except threadline.Conflict:
                pass  # deleted by another between its read and its write
            if (turn + worker) % 4 == 0:
                await saver.adelete_thread(name)

    async def all_of_them():
        await asyncio.gather(*(churn(worker) for worker in range(8)))
        await saver.aclose()

    asyncio.run(all_of_them())
    other = connect()
    for info in other.threads():
        assert lives.check_copy(other.get_tuple(lives.config(info.thread_id)), "origin") == 0
    assert set(pools_with_chunks(other)) == pools_of_threads(other)


def test_prune_fork_and_delete_in_other_processes_leave_nothing_unreadable(connect, url, prefix, tmp_path):
    path = tmp_path / "acks"
    run_crowd("race", url, path, 4, key_prefix=prefix)
    saver = connect()
    check_race(saver, path, at_least=5)
    assert set(pools_with_chunks(saver)) <= pools_of_threads(saver)


def test_processes_put_their_own_threads_and_one_that_all_share(connect, url, prefix):
    run_crowd("puts", url, 50, seconds=240, key_prefix=prefix)
    check_puts(connect(), 50)


def test_a_writer_that_stops_between_directory_and_first_put_blocks_nobody(connect, client, prefix):
    saver = connect()
    saver.setup()
    entry = run_now(directory_of(saver).enter("orphan"))
    assert list(saver.threads()) == []
    assert saver.get_tuple(lives.config("orphan")) is None
    assert saver.count_threads() == 0
    saver.put(*lives.put_arguments("orphan", 0))
    assert [info.thread_id for info in saver.threads()] == ["orphan"]
    assert pools_with_chunks(saver) == [entry.pool]
    assert len([key for key in keys_of(client, prefix) if b":dir:" in key]) == 1


def test_a_writer_that_wakes_up_after_its_thread_moved_is_sent_to_the_new_place(connect):
    """Between its look into the directory and its put, the thread was made, deleted and begun anew."""
    late, other = connect(), connect()
    late.setup()

    entry = run_now(directory_of(late).enter("thread"))
    for step in (0, 1):
        other.put(*lives.put_arguments("thread", step))
    other.delete_thread("thread")
    other.put(*lives.put_arguments("thread", 0))
    now = other._engine.run(lambda backend: backend.thread("thread"))
    assert now.pool != entry.pool
    config, *rest = lives.put_arguments("thread", 0, "late")
    late.put(config, *rest)
    assert lives.check(late.get_tuple(lives.config("thread", namespace="late")), "thread") == 0
    assert lives.check(other.get_tuple(lives.config("thread")), "thread") == 0
    assert set(pools_with_chunks(other)) == {now.pool}


def test_a_deletion_is_remembered_though_the_rebirth_stopped_halfway(connect):
    saver, other = connect(), connect()
    for step in (0, 1):
        saver.put(*lives.put_arguments("thread", step))
    other.delete_thread("thread")

    async def stop_halfway(directory):
        entry = await directory.entry("thread")
        left = await directory.leave("thread", entry)
        await directory.enter("thread", before=left.before, instead_of=entry)

    run_now(stop_halfway(directory_of(other)))
    assert other.get_tuple(lives.config("thread")) is None
    assert list(other.threads()) == []
    with pytest.raises(threadline.Conflict):
        saver.put(*lives.put_arguments("thread", 2))
    saver.put(*lives.put_arguments("thread", 0))
    assert lives.check(other.get_tuple(lives.config("thread")), "thread") == 0


def test_collecting_goes_on_under_a_writer_that_never_rests(connect):
    saver, other = connect(), connect()
    saver.put(*lives.put_arguments("thread", 0))
    pool = saver._engine.run(lambda backend: backend.thread("thread")).pool
    junk = b"j" * 16
    half = other._engine.blocking_half()
    run_now(half.link.command("HSET", other._engine._keys.of(pool, "chunks"), junk, b"\0" * 8))
    step = 0

    def before_each_collect(call):
        async def hooked(script, keys, args=(), **options):
            nonlocal step
            if script == "collect" and step < 3:
                step += 1
                saver.put(*lives.put_arguments("thread", step))
            return await call(script, keys, args, **options)

        return hooked

    half.link.call = before_each_collect(half.link.call)
    assert other._engine.run(lambda backend: backend.collect(pool, [junk], set())) == 1
    assert step == 3
    assert [lives.check(found, "thread") for found in saver.list(lives.config("thread"))] == [3, 2, 1, 0]
