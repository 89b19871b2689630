"""The writer thread of a group commit: whom it serves, when it tells them, and how it begins and ends."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import lives
import pytest

import threadline
from threadline.backends import shared_commit
from threadline.backends.shared_commit import SharedCommit


class Committing(SharedCommit):
    """Work in two parts, as a database has them; each part waits until it may end."""

    def __init__(self):
        self.events, self.gates, self.told = [], {}, []
        super().__init__()

    def gate(self, event):
        return self.gates.setdefault(event, threading.Event())

    def pass_through(self, event):
        self.events.append(event)
        if not self.gate(event).wait(10):
            raise TimeoutError(event)

    def _transact(self, group, before_commit):
        names = "".join(sorted(job.work for job in group))
        self.pass_through(f"rows {names}")
        if "x" in names:
            raise OSError("the transaction failed")
        before_commit()
        self.pass_through(f"commit {names}")
        for job in group:
            job.result = f"done {job.work}"

    def hand_in(self, work):
        def run():
            try:
                self.told.append(self.run(work).removeprefix("done "))
            except OSError as error:
                self.told.append(str(error))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def wait_behind(self, *works):
        for number, work in enumerate(works, 1):
            self.hand_in(work)
            until(lambda number=number: len(self._waiting) == number)

    def hand_in_behind(self, *works):
        for work in works:
            self.hand_in(work)
            until(lambda work=work: any(job.work == work for job in list(self._queue)))

    def proceed(self, *events):
        for event in events:
            until(lambda event=event: event in self.events)
            self.gate(event).set()


class Crowd(Committing):
    """Callers who meet are many."""

    _is_crowd = property(lambda self: True, lambda self, was_one: None)


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "what was expected does not come"
        time.sleep(0.0005)


@pytest.fixture
def committing():
    """`a` committed alone, on its own thread; the writer commits `b`, `c` and `d` together."""
    doing = Crowd()
    doing.hand_in("a")
    until(lambda: doing.events)
    doing.hand_in_behind("b", "c", "d")
    doing.proceed("rows a", "commit a", "rows bcd")
    until(lambda: "commit bcd" in doing.events)
    assert doing.told == ["a"]
    return doing


def test_a_lone_caller_commits_on_its_own_thread():
    doing = Committing()
    for event in ("rows a", "commit a"):
        doing.gate(event).set()
    assert doing.run("a") == "done a"
    assert doing._writer is None


def test_few_callers_who_meet_wait_for_their_turn_and_need_no_writer():
    doing = Committing()
    doing.hand_in("a")
    until(lambda: doing.events)
    doing.wait_behind("b", "c")
    doing.proceed("rows a", "commit a")
    for event in ("rows b", "commit b", "rows c", "commit c"):
        doing.gate(event).set()
    until(lambda: len(doing.told) == 3)
    assert doing._writer is None
    until(lambda: not doing._waiting)


def test_the_fifth_caller_who_meets_others_hands_in_and_a_crowd_does_so_at_once():
    doing = Committing()
    doing.hand_in("a")
    until(lambda: doing.events)
    doing.wait_behind("b", "c", "d", "e")
    doing.hand_in_behind("f", "g", "h", "i")
    assert not doing._is_crowd
    doing.proceed("rows a", "commit a")
    for work in ("b", "c", "d", "e"):
        for event in ("rows", "commit"):
            doing.gate(f"{event} {work}").set()
    doing.proceed("rows fghi", "commit fghi")
    until(lambda: len(doing.told) == 9)
    assert doing._is_crowd
    doing.hand_in("j")
    until(lambda: "rows j" in doing.events)
    doing.hand_in_behind("k")
    doing.proceed("rows j", "commit j", "rows k", "commit k")
    until(lambda: len(doing.told) == 11)
    assert not doing._is_crowd


def test_a_group_is_told_before_the_next_one_commits(committing):
    committing.hand_in_behind("e")
    committing.proceed("commit bcd")
    until(lambda: "rows e" in committing.events)
    assert committing.told == ["a"]
    committing.proceed("rows e")
    until(lambda: len(committing.told) == 4)
    assert sorted(committing.told) == ["a", "b", "c", "d"]  # while `e` is still on its way to the disk
    committing.proceed("commit e")
    until(lambda: committing.told[-1] == "e")


def test_a_group_is_told_at_once_where_nobody_waits(committing):
    committing.proceed("commit bcd")
    until(lambda: len(committing.told) == 4)


def test_a_group_is_told_where_the_next_one_may_not_begin(committing):
    """A fork is about to happen: nobody is left waiting for what is done."""
    committing.hand_in_behind("e")
    pause = committing.paused([None])
    pausing = threading.Thread(target=next, args=(pause,), daemon=True)
    pausing.start()
    until(committing._door.locked)
    committing.proceed("commit bcd")
    pausing.join(10)
    until(lambda: len(committing.told) == 4)
    assert "rows e" not in committing.events
    pause.close()
    committing.proceed("rows e", "commit e")
    until(lambda: committing.told[-1] == "e")


def test_where_a_transaction_fails_as_a_whole_each_is_tried_alone(committing):
    committing.hand_in_behind("e", "x", "f")
    committing.proceed("commit bcd", "rows efx", "rows e", "commit e", "rows x", "rows f", "commit f")
    until(lambda: len(committing.told) == 7)
    assert sorted(committing.told) == ["a", "b", "c", "d", "e", "f", "the transaction failed"]


def test_the_writer_ends_when_nothing_comes_and_another_begins_when_it_is_needed(committing, monkeypatch):
    monkeypatch.setattr(shared_commit, "_IDLE_SECONDS", 0.01)
    committing.proceed("commit bcd")
    until(lambda: len(committing.told) == 4)
    committing.end()
    until(lambda: committing._writer is None)
    committing.hand_in("g")
    until(lambda: "rows g" in committing.events)
    committing.hand_in_behind("h")
    assert committing._writer is not None
    committing.proceed("rows g", "commit g", "rows h", "commit h")
    until(lambda: committing.told[4:] == ["g", "h"])
    committing.finish()
    assert committing._writer is None


@pytest.fixture
def no_new_threads(monkeypatch):
    """From when it is called: a system that has no more threads, or an interpreter that is ending."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    return lambda: monkeypatch.setattr(threading.Thread, "start", refuse)


def test_where_no_thread_can_be_started_a_thread_commits_alone(no_new_threads):
    doing = Committing()
    doing.hand_in("a")
    until(lambda: doing.events)
    threading.Timer(0.05, lambda: doing.proceed("rows a", "commit a")).start()
    for event in ("rows b", "commit b"):
        doing.gate(event).set()
    no_new_threads()
    assert doing.run("b") == "done b"
    assert doing.events == ["rows a", "commit a", "rows b", "commit b"]
    assert doing._writer is None


def test_where_no_thread_can_be_started_a_task_commits_alone(no_new_threads, connect, database):
    saver = connect(database)
    saver.open()

    async def write():
        no_new_threads()
        await saver._engine._commit_on_loop(_make_note)
        return await saver._engine._commit_on_loop(_read_note)

    assert asyncio.run(write()) == [(b"kept",)]


async def _make_note(tx):
    await tx.run("INSERT INTO threadline_meta (name, value) VALUES ('note', ?)", (b"kept",))


async def _read_note(tx):
    return await tx.rows("SELECT value FROM threadline_meta WHERE name = 'note'")


def test_a_store_that_nobody_closed_keeps_neither_thread_nor_connection(database, monkeypatch):
    monkeypatch.setattr(shared_commit, "_IDLE_SECONDS", 0.05)
    saver = threadline.connect(database)
    asyncio.run(saver.aput(*lives.put_arguments("t", 0)))
    gone, writer = weakref.ref(saver._engine), saver._engine._commit._writer
    del saver

    def is_gone():
        gc.collect()
        return gone() is None

    until(is_gone)
    until(lambda: not writer.is_alive())


EXITING = """
import asyncio, sys, threading
import lives, threadline

saver = threadline.connect(sys.argv[1])

def write(name):
    for step in range(20):
        saver.put(*lives.put_arguments(name, step))

threads = [threading.Thread(target=write, args=(f"thread-{n}",)) for n in range(4)]
for thread in threads:
    thread.start()

async def main():
    await asyncio.gather(*(saver.aput(*lives.put_arguments(f"task-{n}", 0)) for n in range(20)))

asyncio.run(main())
"""


def test_a_program_that_ends_without_closing_leaves_everything_acknowledged_and_ends(connect, database):
    where = os.path.dirname(lives.__file__)
    path = os.pathsep.join([where, *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", EXITING, str(database)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    saver = connect(database)
    for n in range(4):
        assert lives.check(saver.get_tuple(lives.config(f"thread-{n}")), f"thread-{n}") == 19
    for n in range(20):
        assert lives.check(saver.get_tuple(lives.config(f"task-{n}")), f"task-{n}") == 0


def test_a_forked_child_has_no_writer_and_begins_its_own(database):
    saver = threadline.connect(database)
    asyncio.run(saver.aput(*lives.put_arguments("t", 0)))
    assert saver._engine._commit._writer is not None
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert saver._engine._commit._writer is None
            asyncio.run(saver.aput(*lives.put_arguments("t", 1)))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    asyncio.run(saver.aput(*lives.put_arguments("t", 2)))
    assert [lives.check(found, "t") for found in saver.list(lives.config("t"))] == [2, 1, 0]
    saver.close()
