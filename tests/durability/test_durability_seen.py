"""A lone writer does not look at its thread again, unless anybody has changed anything: then it finds out."""

import asyncio
import os
import sqlite3
from contextlib import closing

import lives
import pytest

from threadline.backends.shared_commit import Job
from threadline.backends.sqlite import commit, put
from threadline.backends.sqlite.commit import Seen, SqliteCommit
from threadline.backends.sqlite.room import LogAhead
from threadline.errors import Conflict
from threadline.ports.checkpoints import Change


def plain_writes(step):
    """Writes of a subgraph, whose interrupts ask nobody outside."""
    return lives.write_arguments("t", step, "task-a", "child")


@pytest.fixture
def looks(monkeypatch):
    """The threads that a put looked at."""
    found, look = [], put._look

    def looking(cursor, sql, change):
        found.append(change.thread_id)
        return look(cursor, sql, change)

    monkeypatch.setattr(put, "_look", looking)
    return found


@pytest.fixture
def saver(connect, database, looks):
    """A saver that has put so much that it need not look."""
    saver = connect(database)
    for name in ("t", "u"):
        for step in range(3):
            saver.put(*lives.put_arguments(name, step))
    saver.put_writes(*plain_writes(2))
    looks.clear()
    saver.put(*lives.put_arguments("t", 3))
    assert not looks
    return saver


def check_goes_on(saver, connect, database, looks):
    """The next put looks, the one behind it does not, and all is there."""
    saver.put(*lives.put_arguments("t", 4))
    assert looks == ["t"]
    saver.put_writes(*plain_writes(4))
    saver.put(*lives.put_arguments("t", 5))
    assert looks == ["t"]
    found = list(connect(database).list(lives.config("t")))
    assert [lives.check(one, "t") for one in found] == [5, 4, 3, 2, 1, 0]


def test_threads_take_turns_without_a_look(saver, looks):
    for step in range(4, 8):
        saver.put(*lives.put_arguments("t", step))
        saver.put_writes(*plain_writes(step))
        saver.put(*lives.put_arguments("u", step - 1))
    assert looks == []


def put_together(saver, *steps):
    """Steps of threads, each by a task; some of them share a commit."""

    async def act():
        await asyncio.gather(*(saver.aput(*lives.put_arguments(name, step)) for name, step in steps))

    asyncio.run(act())


def test_puts_that_share_a_commit_need_no_look_and_neither_do_those_behind_them(saver, monkeypatch, looks):
    shared, threads, transact = [], put._threads, SqliteCommit._transact

    def noted(cursor, sql, changes, unknown):
        looks.extend(changes[at].thread_id for at in unknown)
        return threads(cursor, sql, changes, unknown)

    def counted(commit, group, before_commit):
        shared.append(len(group))
        return transact(commit, group, before_commit)

    monkeypatch.setattr(put, "_threads", noted)
    monkeypatch.setattr(SqliteCommit, "_transact", counted)
    names = [f"beside-{number}" for number in range(8)]
    put_together(saver, *((name, 0) for name in names))
    put_together(saver, *((name, 1) for name in names), ("t", 4))
    assert max(shared) > 1
    saver.put(*lives.put_arguments("t", 5))
    saver.put(*lives.put_arguments("beside-3", 2))
    assert looks == []


def test_other_work_in_a_shared_commit_is_a_reason_to_look(saver, connect, database, looks):
    async def tag(tx):
        await tx.run("UPDATE threadline_threads SET tags = '[]' WHERE thread_id = 'u'")

    commit = saver._engine._commit
    empty = Change(thread_id="t", now=0.0, stamp=commit._seen._threads["t"].stamp)
    group = [Job(empty), Job(tag)]
    commit._transact(group, lambda: None)
    assert [job.error for job in group] == [None, None]
    assert group[0].result == empty.stamp
    check_goes_on(saver, connect, database, looks)


def test_what_another_saver_put_is_a_reason_to_look(saver, connect, database, looks):
    connect(database).put(*lives.put_arguments("another", 0))
    check_goes_on(saver, connect, database, looks)


@pytest.mark.parametrize("act", ["tag", "delete another", "collect", "together"])
def test_what_this_saver_does_besides_is_a_reason_to_look(saver, connect, database, looks, act):
    if act == "tag":
        saver.thread("u").pin()
    elif act == "delete another":
        saver.delete_thread("u")
    elif act == "collect":
        saver.thread("u").prune(keep_last=1)
        saver.collect()
    else:
        saver.put_many([lives.put_arguments("u", 3), lives.put_arguments("new", 0)])
    looks.clear()
    check_goes_on(saver, connect, database, looks)


def test_a_put_whose_thread_was_archived_by_somebody_else_is_refused(saver, database):
    with closing(sqlite3.connect(database)) as other:
        other.execute("UPDATE threadline_threads SET status = 'archived' WHERE thread_id = 't'")
        other.commit()
    with pytest.raises(Conflict, match="archived"):
        saver.put(*lives.put_arguments("t", 4))


@pytest.mark.parametrize("by", ["another connection", "the saver's own connection", "the connection that it lent"])
def test_a_put_whose_witness_is_gone_is_refused(saver, database, by):
    drop, empty = "DELETE FROM threadline_checkpoints", "DELETE FROM threadline_chunks"
    with closing(sqlite3.connect(database)) as other:
        if by == "another connection":
            connection = other
        elif by == "the saver's own connection":
            connection = saver._engine.writing_connection()
        else:
            with saver._engine.alone() as connection:
                pass
        connection.execute(drop)
        connection.execute(empty)
        connection.commit()
    with pytest.raises(Conflict, match="was deleted while"):
        saver.put(*lives.put_arguments("t", 4))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
def test_what_a_put_added_that_was_taken_back_is_not_relied_on(saver, connect, database, looks, monkeypatch, kind):
    with monkeypatch.context() as patch:
        patch.setattr(LogAhead, "before_commit", lambda *_: exec("raise kind", {"kind": kind}))
        with pytest.raises(kind):
            saver.put(*lives.put_arguments("t", 4))
    looks.clear()
    check_goes_on(saver, connect, database, looks)


def test_a_checkpoint_that_was_put_again_is_another_witness(saver, connect, database):
    other = connect(database)
    assert lives.check(other.get_tuple(lives.config("t")), "t") == 3
    saver.put(*lives.put_arguments("t", 3))
    saver.put(*lives.put_arguments("t", 4))
    other.put(*lives.put_arguments("t", 4))
    saver.put(*lives.put_arguments("t", 5))
    assert [lives.check(one, "t") for one in connect(database).list(lives.config("t"))] == [5, 4, 3, 2, 1, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_connection_that_was_opened_anew_has_seen_nothing(saver, connect, database, looks):
    child = os.fork()
    if child == 0:
        try:
            saver.put(*lives.put_arguments("t", 4))
            os._exit(0 if looks == ["t"] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    check_goes_on(saver, connect, database, looks)


def test_two_connections_are_never_taken_for_one_another(database):
    change = Change(thread_id="t", now=1.0, stamp=(1, 0))
    seen = Seen(("threadline_threads", "threadline_checkpoints", "threadline_writes", "threadline_chunks"))
    with closing(sqlite3.connect(database)) as one, closing(sqlite3.connect(database)) as other:
        seen.renew(one, one.execute)
        assert seen.find(change) is None
        for _ in range(2):
            seen.note(change, 1, (1, 0), 1.0, one)
            seen.confirm()
            seen.renew(one, one.execute)
            assert seen.find(change) is not None
        seen.note(change, 1, (1, 0), 1.0, one)
        seen.confirm()
        assert one.execute("PRAGMA data_version").fetchone() == other.execute("PRAGMA data_version").fetchone()
        assert one.total_changes == other.total_changes
        seen.renew(other, other.execute)
        assert seen.find(change) is None


def test_the_first_put_of_a_thread_is_seen_as_any(saver, looks):
    saver.put(*lives.put_arguments("new", 0))
    saver.put(*lives.put_arguments("new", 1))
    saver.put(*lives.put_arguments("t", 4))
    assert looks == []


@pytest.mark.parametrize("by", ["another connection", "the saver's own connection"])
def test_a_sequence_that_was_altered_gives_no_thread_the_pool_of_another(saver, connect, database, by):
    saver.put(*lives.put_arguments("new", 0))
    with closing(sqlite3.connect(database)) as other:
        connection = other if by == "another connection" else saver._engine.writing_connection()
        connection.execute("UPDATE sqlite_sequence SET seq = 0")
        connection.commit()
    for name in ("a", "b"):
        saver.put(*lives.put_arguments(name, 0))
    with closing(sqlite3.connect(database)) as other:
        threads = other.execute("SELECT serial, pool FROM threadline_threads").fetchall()
    assert len(threads) == 5
    assert all(serial == pool for serial, pool in threads)


def test_nothing_is_remembered_beside_a_trigger(saver, database, connect):
    """It may change a thread within the very put."""
    with closing(sqlite3.connect(database)) as other, other:
        other.execute(
            "CREATE TRIGGER closes AFTER INSERT ON threadline_checkpoints "
            "BEGIN UPDATE threadline_threads SET status = 'archived' WHERE serial = new.thread; END"
        )
    saver.put(*lives.put_arguments("t", 4))
    with pytest.raises(Conflict, match="archived"):
        saver.put(*lives.put_arguments("t", 5))


@pytest.fixture
def alone(monkeypatch):
    """The changes that were made by one statement, and what came of each."""
    made, put_at_once = [], commit.put_at_once

    def noting(sql, change, seen, connection):
        made.append(None)
        made[-1] = put_at_once(sql, change, seen, connection)
        return made[-1]

    monkeypatch.setattr(commit, "put_at_once", noting)
    monkeypatch.setattr(LogAhead, "is_due", lambda self: False)
    return made


def small(saver, step, parent=None):
    """A put without chunks, which is one statement."""
    made = checkpoint(step, {"count": step}, {"count": step})
    config = parent or {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}
    return saver.put(config, made, {"step": step}, {"count": step})


def checkpoint(step, values, versions):
    usual = {"v": 4, "id": lives.id_of(step), "ts": "2026-01-01T00:00:00+00:00", "versions_seen": {}}
    return {**usual, "channel_values": values, "channel_versions": versions, "updated_channels": [*values]}


def test_rows_of_one_table_are_one_statement_and_what_was_seen_holds_on(saver, looks, alone, connect, database):
    there = small(saver, 1, small(saver, 0))
    saver.put_writes(there, [("count", 7), ("other", None)], "task")
    assert len(alone) == 2
    assert all(alone)
    looks.clear()
    saver.put(*lives.put_arguments("t", 4))  # has chunks; nobody else has written since
    assert not looks
    found = connect(database).get_tuple(there)
    assert found.checkpoint["channel_values"] == {"count": 1}
    assert sorted(found.pending_writes) == [("task", "count", 7), ("task", "other", None)]
    saver.put_writes(there, [("count", 8)], "task")  # the first one counts
    assert sorted(connect(database).get_tuple(there).pending_writes) == sorted(found.pending_writes)


@pytest.mark.parametrize("kind", ["put", "put_writes"])
@pytest.mark.parametrize("change", ["deleted", "archived", "collected", "begun anew"])
def test_one_statement_changes_nothing_where_its_thread_is_not_as_expected(
    saver, alone, connect, database, kind, change
):
    """Another process has deleted, archived or collected it since."""
    there, other = small(saver, 0), connect(database)
    if change == "archived":
        other.thread("s").archive()
    elif change == "collected":
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("UPDATE threadline_threads SET epoch = epoch + 1 WHERE thread_id = 's'")
    else:
        other.delete_thread("s")
    if change == "begun anew":
        small(other, 5)

    def act():
        return small(saver, 1, there) if kind == "put" else saver.put_writes(there, [("count", 7)], "task")

    if change == "collected":
        act()
        found = connect(database).get_tuple({"configurable": {"thread_id": "s"}})
        assert found.checkpoint["channel_values"] == {"count": int(kind == "put")}
    else:
        with pytest.raises(Conflict):
            act()
    assert alone[0] is None
    assert not any(alone) or change == "collected"


def test_a_put_that_is_broken_off_holds_no_state_of_the_file(saver, database, monkeypatch):
    """An interrupt may come between a question and its answer: the log could not be brought into the file then."""
    there, answers = small(saver, 0), []

    def interrupted(cursor, sql, change):
        answers.append(cursor.execute("SELECT 1 FROM threadline_checkpoints").fetchone())
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(put, "_look", interrupted)
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("UPDATE threadline_threads SET active = active + 1")  # so that the next put looks
        with pytest.raises(KeyboardInterrupt) as interrupt:
            saver.put(*lives.put_arguments("t", 4))
        del interrupt  # with the frames it names
    assert answers == [(1,)]
    with closing(sqlite3.connect(database)) as other:
        other.execute("PRAGMA busy_timeout = 0")
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert saver.get_tuple(small(saver, 1, there)).checkpoint["channel_values"] == {"count": 1}


def test_nothing_is_remembered_beside_a_trigger_on_any_table_of_a_put(saver, looks, alone, database):
    there = small(saver, 0)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER meddling AFTER INSERT ON threadline_writes BEGIN "
            "UPDATE threadline_threads SET tags = tags; END"
        )
    saver.put(*lives.put_arguments("t", 4))
    looks.clear()
    saver.put_writes(there, [("count", 7)], "task")
    saver.put(*lives.put_arguments("t", 5))
    assert looks == ["s", "t"]
    assert not any(alone)
