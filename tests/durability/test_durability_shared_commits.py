"""Puts that wait at the same time share a commit, and nothing else: no failure, no delay of a reader, no mix-up."""

import asyncio
import sqlite3
import threading
import time
from contextlib import suppress

import lives
import pytest

import threadline
from threadline.backends.sqlite.connections import SqliteConnections
from threadline.errors import Unavailable

TASKS, OS_THREADS = 64, 16


class NoForm:
    """An object that nothing says how to store."""


def archive(database, thread_id):
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE threadline_threads SET status = 'archived' WHERE thread_id = ?", (thread_id,))
    connection.close()


def check_thread(saver, thread_id, steps):
    assert [lives.check(found, thread_id) for found in saver.list(lives.config(thread_id))] == list(
        reversed(range(steps))
    )


async def aput_steps(saver, thread_id, steps):
    for step in range(steps):
        await saver.aput(*lives.put_arguments(thread_id, step))
        await saver.aput_writes(*lives.write_arguments(thread_id, step, "task-a"))


def test_sixty_four_tasks_put_at_once_and_all_is_there(connect, url):
    saver = connect(url)

    async def main():
        await asyncio.gather(*(aput_steps(saver, f"task-{n}", 5) for n in range(TASKS)))

    asyncio.run(main())
    for n in range(TASKS):
        check_thread(connect(url), f"task-{n}", 5)


def test_sixteen_os_threads_put_at_once_and_all_is_there(connect, url, in_threads, switch_often):
    saver = connect(url)

    def write(thread_id):
        for step in range(12):
            saver.put(*lives.put_arguments(thread_id, step))
            saver.put_writes(*lives.write_arguments(thread_id, step, "task-a"))

    in_threads(*(lambda n=n: write(f"thread-{n}") for n in range(OS_THREADS)))
    for n in range(OS_THREADS):
        check_thread(connect(url), f"thread-{n}", 12)


def test_tasks_of_two_loops_and_os_threads_share_one_saver(connect, url, in_threads):
    saver = connect(url)

    def loop(name):
        async def main():
            await asyncio.gather(*(aput_steps(saver, f"{name}-{n}", 6) for n in range(12)))

        asyncio.run(main())

    def write(name):
        for step in range(20):
            saver.put(*lives.put_arguments(name, step))

    in_threads(lambda: loop("loop-1"), lambda: loop("loop-2"), lambda: write("os-1"), lambda: write("os-2"))
    for name in ("loop-1", "loop-2"):
        for n in range(12):
            check_thread(saver, f"{name}-{n}", 6)
    for name in ("os-1", "os-2"):
        check_thread(saver, name, 20)


def test_a_put_that_fails_in_a_group_fails_alone(connect, database):
    """Conflicts (archived, deleted), a value without a stored form, and a bad request among good puts."""
    saver = connect(database)
    for name in ("archived", "deleted"):
        saver.put(*lives.put_arguments(name, 0))
    archive(database, "archived")
    saver.delete_thread("deleted")
    bad_value = lives.put_arguments("unstorable", 0)
    bad_value[1]["channel_values"]["messages"][0]["id"] = NoForm()
    bad_request = lives.put_arguments("nameless", 0)
    bad_request[0]["configurable"].pop("thread_id")
    expected = [
        (lives.put_arguments("archived", 1), threadline.Conflict, "'archived'"),
        (lives.put_arguments("deleted", 1), threadline.Conflict, "'deleted'"),
        (bad_value, threadline.NotSerializable, "messages[0]['id']"),
        (bad_request, threadline.InvalidRequest, "thread_id"),
    ]

    async def main():
        good = [saver.aput(*lives.put_arguments(f"good-{n}", 0)) for n in range(20)]
        bad = [saver.aput(*arguments) for arguments, _, _ in expected]
        mixed = [*good[:7], bad[0], *good[7:14], bad[1], bad[2], *good[14:], bad[3]]
        await asyncio.gather(*mixed, return_exceptions=True)
        return [await asyncio.gather(saver.aput(*arguments), return_exceptions=True) for arguments, _, _ in expected]

    outcomes = asyncio.run(main())
    for (_, kind, words), [outcome] in zip(expected, outcomes, strict=True):
        assert type(outcome) is kind
        assert words in str(outcome)
    for n in range(20):
        check_thread(saver, f"good-{n}", 1)
    assert saver.get_tuple(lives.config("deleted")) is None
    assert saver.get_tuple(lives.config("unstorable")) is None


def test_a_put_that_fails_in_a_group_of_os_threads_fails_alone(connect, database, in_threads):
    saver = connect(database)
    saver.put(*lives.put_arguments("archived", 0))
    archive(database, "archived")
    gate = threading.Barrier(OS_THREADS)
    refused = []

    def good(name):
        gate.wait()
        for step in range(10):
            saver.put(*lives.put_arguments(name, step))

    def bad():
        gate.wait()
        for step in range(1, 11):
            with pytest.raises(threadline.Conflict, match="archived"):
                saver.put(*lives.put_arguments("archived", step))
            refused.append(step)

    in_threads(*(lambda n=n: good(f"good-{n}") for n in range(OS_THREADS - 2)), bad, bad)
    assert len(refused) == 20
    for n in range(OS_THREADS - 2):
        check_thread(saver, f"good-{n}", 10)
    check_thread(saver, "archived", 1)


def test_a_batch_with_one_bad_put_stores_none_of_it(connect, url, half):
    saver = connect(url)
    half.call(saver, "put", *lives.put_arguments("t", 0))
    spoiled = lives.put_arguments("other", 0)
    spoiled[1]["channel_values"]["count"] = NoForm()
    with pytest.raises(threadline.NotSerializable, match="count"):
        half.call(saver, "put_many", [lives.put_arguments("t", 1), spoiled])
    half.call(saver, "delete_thread", "gone")
    saver.put(*lives.put_arguments("gone", 0))
    saver.delete_thread("gone")
    with pytest.raises(threadline.Conflict, match="'gone'"):
        half.call(saver, "put_many", [lives.put_arguments("t", 1), lives.put_arguments("gone", 1)])
    check_thread(saver, "t", 1)
    assert [info.thread_id for info in saver.threads()] == ["t"]


def test_a_cancelled_put_is_whole_or_absent_and_disturbs_nobody(connect, url):
    saver = connect(url)

    async def main():
        for turn in range(40):
            doomed = asyncio.create_task(saver.aput(*lives.put_arguments(f"cancelled-{turn}", 0)))
            others = [asyncio.create_task(aput_steps(saver, f"kept-{turn}-{n}", 1)) for n in range(3)]
            for _ in range(turn % 8):
                await asyncio.sleep(0)
            doomed.cancel()
            with suppress(asyncio.CancelledError):
                await doomed
            await asyncio.wait_for(asyncio.gather(*others), 20)
        # The saver goes on as if nothing had happened, also on the threads that were cancelled.
        await asyncio.gather(*(aput_steps(saver, f"cancelled-{turn}", 2) for turn in range(40)))

    asyncio.run(main())
    for turn in range(40):
        check_thread(saver, f"cancelled-{turn}", 2)
        check_thread(saver, f"kept-{turn}-0", 1)


def test_a_loop_that_ends_with_puts_in_flight_leaves_a_saver_that_works(connect, url):
    saver = connect(url)

    async def leave():
        for n in range(20):
            asyncio.get_running_loop().create_task(saver.aput(*lives.put_arguments(f"left-{n}", 0)))
        await asyncio.sleep(0)

    asyncio.run(leave())

    async def come_back():
        await asyncio.wait_for(asyncio.gather(*(aput_steps(saver, f"left-{n}", 2) for n in range(20))), 20)

    asyncio.run(come_back())
    for n in range(20):
        check_thread(saver, f"left-{n}", 2)


def test_closing_under_puts_in_flight_finishes_or_refuses_each_of_them(connect, database):
    saver = connect(database)
    saver.open()

    async def main():
        puts = [asyncio.create_task(saver.aput(*lives.put_arguments(f"t-{n}", 0))) for n in range(30)]
        await asyncio.sleep(0)
        await saver.aclose()
        return await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), 20)

    outcomes = asyncio.run(main())
    fresh = connect(database)
    for n, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            assert type(outcome) is threadline.Closed
        else:
            check_thread(fresh, f"t-{n}", 1)


def test_sync_calls_inside_a_running_loop_work(connect, url):
    saver = connect(url)

    async def main():
        waiting = [asyncio.create_task(aput_steps(saver, f"async-{n}", 3)) for n in range(8)]
        for step in range(5):
            saver.put(*lives.put_arguments("sync", step))
            assert lives.check(saver.get_tuple(lives.config("sync")), "sync") == step
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        assert len(list(saver.list(lives.config("sync")))) == 5

    asyncio.run(main())
    for n in range(8):
        check_thread(saver, f"async-{n}", 3)


def test_operations_that_wait_for_a_commit_leave_a_thread_for_whoever_commits(connect, url):
    """More operations than there are workers, all waiting for the commit that a task's put has the lead of."""
    saver = connect(url)

    async def crowd():
        for number in range(12):
            await saver.aput(*lives.put_arguments(f"t{number}", 0))
        for step in range(1, 20):
            pins = [saver.thread(f"t{number}").apin() for number in range(12)]
            puts = [saver.aput(*lives.put_arguments(f"t{number}", step)) for number in range(3)]
            await asyncio.wait_for(asyncio.gather(*pins, *puts), 60)

    asyncio.run(crowd())
    check_thread(saver, "t0", 20)


def test_work_begins_no_more_while_it_is_paused_and_goes_on_thereafter(connect, database):
    """A fork pauses the work of all threads, however busy they are."""
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    commit, stop, puts = saver._engine._commit, threading.Event(), [0] * 4
    other = sqlite3.connect(database)

    def stored():
        return other.execute("SELECT count(*) FROM threadline_checkpoints").fetchone()

    def put_on(number):
        while not stop.is_set():
            saver.put(*lives.put_arguments(f"t{number}", puts[number]))
            puts[number] += 1

    threads = [threading.Thread(target=put_on, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        pause = commit.paused([None])
        next(pause)
        at_first = stored()
        time.sleep(0.005)
        assert stored() == at_first
        before = list(puts)
        pause.close()
        while sum(puts) < sum(before) + 8:
            assert any(thread.is_alive() for thread in threads)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    other.close()
    for number in range(4):
        check_thread(saver, f"t{number}", puts[number])


def test_before_a_write_waits_for_another_process_those_who_need_not_wait_are_told(connect, database):
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    told = []

    def told_once():
        if not told:
            other.execute("ROLLBACK")
        told.append(True)

    assert saver._engine._connections.write(lambda connection: "written", told_once) == "written"
    assert told == [True]
    other.close()


def test_callers_that_wait_together_for_another_process_wait_once(connect, database, monkeypatch):
    """The timeout is over for all of them at once, and not for one after the other."""
    saver = connect(database, timeout=0.2)
    for number in range(6):
        saver.put(*lives.put_arguments(f"t{number}", 0))
    begun, begin = [], SqliteConnections._begin
    monkeypatch.setattr(SqliteConnections, "_begin", lambda self, *args: (begun.append(1), begin(self, *args)))
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def main():
        puts = [saver.aput(*lives.put_arguments(f"t{number}", 1)) for number in range(6)]
        return await asyncio.gather(*puts, return_exceptions=True)

    outcomes = asyncio.run(main())
    other.close()
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 6
    assert len(begun) <= 2  # a writer that wakes early may take the first one alone
    for number in range(6):
        saver.put(*lives.put_arguments(f"t{number}", 1))
        check_thread(saver, f"t{number}", 2)
