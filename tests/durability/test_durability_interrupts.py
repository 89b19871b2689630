"""Ctrl-C at any moment: in a notebook the saver lives on, so an interrupted call must leave it usable."""

import signal
import threading
import time

import lives
import pytest
from test_durability_places import interrupted_at, lines_of

from threadline.backends.memory.backend import MemoryBackend
from threadline.backends.memory.rows import ThreadRows
from threadline.backends.shared_commit import SharedCommit
from threadline.backends.sqlite.commit import SqliteCommit
from threadline.backends.sqlite.connections import SqliteConnections
from threadline.errors import InvalidRequest

MOMENTS = [
    (owner, method, when)
    for owner, method in (
        (SqliteCommit, "_transact_one"),
        (SqliteCommit, "_do_other"),
        (SqliteConnections, "write"),
        (SqliteConnections, "_transact"),
    )
    for when in ("before", "after")
]


class TimeIsOver(Exception):
    """What the soft time limit of a worker raises: to the drivers an error like any other."""


IDS = [f"{when} {owner.__name__}.{method}" for owner, method, when in MOMENTS]


@pytest.fixture
def interrupt(monkeypatch):
    """Raises in the main thread, once, where a method of these objects begins or ends."""

    def arrange(targets, owner, method, when, kind=KeyboardInterrupt):
        original, pending = getattr(owner, method), [kind()]

        def strike(moment, target):
            is_main = threading.current_thread() is threading.main_thread()
            if moment == when and pending and is_main and target in targets:
                raise pending.pop()

        def interrupted(self, *args, **kwargs):
            strike("before", self)
            result = original(self, *args, **kwargs)
            strike("after", self)
            return result

        monkeypatch.setattr(owner, method, interrupted)

    return arrange


@pytest.mark.parametrize("moment", MOMENTS, ids=IDS)
def test_an_interrupted_put_leaves_a_saver_and_a_file_that_can_be_written(connect, database, interrupt, moment):
    saver, other = connect(database, timeout=1.0), connect(database, timeout=1.0)
    if moment[1] != "_do_other":  # which only the first put of a thread comes to
        saver.put(*lives.put_arguments("t", 0))
    interrupt((saver._engine._commit, saver._engine._connections), *moment)
    with pytest.raises(KeyboardInterrupt):
        saver.put(*lives.put_arguments("t", 1))
    saver.put(*lives.put_arguments("t", 1))
    other.put(*lives.put_arguments("t", 2))
    saver.put(*lives.put_arguments("t", 3))
    steps = [lives.check(found, "t") for found in other.list(lives.config("t"))]
    assert steps == ([3, 2, 1] if moment[1] == "_do_other" else [3, 2, 1, 0])


@pytest.fixture(params=["few", "many"])
def crowd(request, connect, database):
    """Four threads wait for a commit that may not begin yet: for their turns, or for the writer where they are many."""
    saver = connect(database, timeout=1.0)
    saver.put(*lives.put_arguments("t", 0))
    commit, outcomes = saver._engine._commit, {}
    commit._is_crowd = request.param == "many"

    def put(name):
        try:
            outcomes[name] = saver.put(*lives.put_arguments(name, 0))
        except Exception as error:
            outcomes[name] = error

    threads = [threading.Thread(target=put, args=(f"waiting-{n}",), daemon=True) for n in range(4)]
    commit._turn.acquire()  # as a thread does that commits alone
    for thread in threads:
        thread.start()
    while len(commit._queue) + len(commit._waiting) < 4:
        time.sleep(0.001)

    def check():
        for thread in threads:
            thread.join(10)
        assert len(outcomes) == 4
        for name, outcome in outcomes.items():
            assert not isinstance(outcome, Exception), outcome
            assert lives.check(connect(database).get_tuple(lives.config(name)), name) == 0
        deadline = time.monotonic() + 10
        while commit._turn.locked() and time.monotonic() < deadline:
            time.sleep(0.001)  # what was interrupted may be committed last
        assert not commit._turn.locked()
        assert not commit._door.locked()
        saver.put(*lives.put_arguments("t", 2))
        assert lives.check(connect(database).get_tuple(lives.config("t")), "t") == 2

    yield saver, commit, check
    if commit._turn.locked():
        commit._turn.release()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeIsOver])
def test_a_caller_that_is_interrupted_while_it_waits_disturbs_nobody(crowd, kind):
    saver, commit, check = crowd

    def interrupt(*_):
        raise kind

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(kind):
            saver.put(*lives.put_arguments("t", 1))
    finally:
        signal.signal(signal.SIGALRM, before)
    commit._turn.release()
    check()


LINES = [line for name in ("run", "_hand_in", "_ring") for line in lines_of(getattr(SharedCommit, name))]
LINE_IDS = [f"{code.co_name}:{text[:40]}" for code, _, text in LINES]


@pytest.mark.parametrize(("code", "line", "text"), LINES, ids=LINE_IDS)
def test_an_interrupt_at_any_line_of_a_caller_that_meets_others_disturbs_nobody(crowd, code, line, text):
    saver, commit, check = crowd
    threading.Timer(0.05, commit._turn.release).start()
    interrupted_at(code, line, lambda: saver.put(*lives.put_arguments("t", 1)))
    check()


@pytest.mark.parametrize(("code", "line", "text"), LINES, ids=LINE_IDS)
def test_an_interrupt_at_any_line_of_a_lone_caller_leaves_a_saver_that_can_be_written(
    connect, database, code, line, text
):
    saver = connect(database, timeout=1.0)
    saver.put(*lives.put_arguments("t", 0))
    interrupted_at(code, line, lambda: saver.put(*lives.put_arguments("t", 1)))
    assert not saver._engine._commit._turn.locked()
    saver.put(*lives.put_arguments("t", 2))
    connect(database).put(*lives.put_arguments("t", 3))
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 3


OWN_PARTS = ("write", "write_at_once", "_transact")
OWN_LINES = [line for name in OWN_PARTS for line in lines_of(getattr(SqliteConnections, name))]


@pytest.mark.parametrize(
    ("code", "line", "text"), OWN_LINES, ids=[f"{code.co_name}:{text[:40]}" for code, _, text in OWN_LINES]
)
def test_an_interrupt_at_any_line_of_a_transaction_leaves_a_saver_and_a_file_that_can_be_written(
    connect, database, code, line, text
):
    saver, other = connect(database, timeout=1.0), connect(database, timeout=1.0)
    saver.put(*lives.put_arguments("t", 0))
    there = saver.put(*lives.put_arguments("beside", 0))

    def put():
        saver.put_writes(there, [("count", 1)], "task")  # by one statement
        saver.put(*lives.put_arguments("t", 1))

    interrupted_at(code, line, put)
    saver.put(*lives.put_arguments("t", 1))
    other.put(*lives.put_arguments("t", 2))
    saver.put(*lives.put_arguments("t", 3))
    assert [lives.check(found, "t") for found in other.list(lives.config("t"))] == [3, 2, 1, 0]


MEMORY_PARTS = (
    (MemoryBackend, ("put_usual", "_apply", "_add", "remove_checkpoints", "collect")),
    (ThreadRows, ("place", "add_writes", "remove")),
)
MEMORY_LINES = [line for part, names in MEMORY_PARTS for name in names for line in lines_of(getattr(part, name))]


@pytest.mark.parametrize(
    ("code", "line", "text"), MEMORY_LINES, ids=[f"{code.co_name}:{text[:40]}" for code, _, text in MEMORY_LINES]
)
def test_an_interrupt_at_any_line_leaves_records_in_memory_that_agree(connect, code, line, text):
    saver = connect("memory://")
    for step in range(4):
        saver.put(*lives.put_arguments("t", step))
    thread = saver.thread("t")
    interrupted_at(code, line, lambda: saver.put(*lives.put_arguments("t", 4)))
    saver.put(*lives.put_arguments("t", 4))
    interrupted_at(code, line, lambda: thread.prune(keep_last=2))
    thread.prune(keep_last=2)
    # What was let go is not relied on by the next put.
    saver.put(*lives.put_arguments("t", 5))
    assert [lives.check(found, "t") for found in saver.list(lives.config("t"))] == [5, 4, 3]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_interrupts_at_random_moments_lose_nothing_and_disturb_no_other_thread(run_script, database, store):
    run_script("interrupted.py", "memory://" if store == "memory" else database)


def test_a_signal_handler_that_puts_in_the_middle_of_a_put_is_refused_and_nothing_hangs(connect, database, monkeypatch):
    saver = connect(database)
    for name in ("t", "handler"):
        saver.put(*lives.put_arguments(name, 0))
    transact, outcomes = SqliteConnections._transact, []

    def interrupted(self, *args):
        monkeypatch.setattr(SqliteConnections, "_transact", transact)
        try:
            saver.put(*lives.put_arguments("handler", 1))
        except InvalidRequest as error:
            outcomes.append(str(error))
        return transact(self, *args)

    monkeypatch.setattr(SqliteConnections, "_transact", interrupted)
    saver.put(*lives.put_arguments("t", 1))
    assert len(outcomes) == 1
    assert "signal handler" in outcomes[0]
    saver.put(*lives.put_arguments("handler", 1))
    for name in ("t", "handler"):
        assert lives.check(saver.get_tuple(lives.config(name)), name) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_just_after_a_lease_was_taken_gives_it_back(connect, database, monkeypatch, kind):
    saver, other = connect(database), connect(database)
    saver.put(*lives.put_arguments("t", 0))

    def interrupted(self):
        raise kind

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(kind), saver.lock("t", ttl=600):
            pytest.fail("it was not entered")
    assert other.locks() == []
    with other.lock("t", wait=0):
        pass
    saver.put(*lives.put_arguments("t", 1))
    assert lives.check(other.get_tuple(lives.config("t")), "t") == 1
