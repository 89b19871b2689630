"""The usual put, on the calling thread: what goes so, what leaves it, and connections that are lost around it."""

import os

import psycopg
import pytest

import threadline
from tests.usual_puts import UsualPuts, put, steps
from threadline import Closed, Conflict
from threadline.backends.postgres.wire import Session
from threadline.ports.checkpoints import Change, CheckpointRow
from threadline.testing.making import place


@pytest.fixture
def lose(monkeypatch, admin):
    """Ends the next connection that asks something, before the server gets it or before its answer is read."""

    def arrange(moment):
        original, pending = Session._asked_at_once, [moment]

        def asked(self, name, values):
            if not pending:
                return original(self, name, values)
            pending.clear()
            if moment == "answered":
                original(self, name, values)
            admin.execute("SELECT pg_terminate_backend(%s)", (self.connection.info.backend_pid,))
            return original(self, b"nothing", [])

        monkeypatch.setattr(Session, "_asked_at_once", asked)

    return arrange


class TestUsualPuts(UsualPuts):
    """As for each server."""


def test_a_stale_stamp_leaves_the_usual_way_and_all_chunks_are_sent(connect, operations, admin):
    saver = connect()
    at = put(saver, put(saver, None, 1), 2)
    admin.execute("DELETE FROM threadline_chunks")
    admin.execute("UPDATE threadline_threads SET epoch = epoch + 1")
    went = operations(saver)
    at = put(saver, at, 3)
    assert went
    went.clear()
    put(saver, at, 4)
    assert not went
    assert len(connect().get(place("t"))["channel_values"]["messages"]) == 4


@pytest.mark.parametrize("status", ["archived", "deleted"])
def test_a_thread_that_was_closed_meanwhile_refuses(connect, status):
    saver, other = connect(), connect()
    at = put(saver, put(saver, None, 1), 2)
    thread = other.thread("t")
    thread.archive() if status == "archived" else thread.delete()
    with pytest.raises(Conflict, match=status):
        put(saver, at, 3)
    with pytest.raises(Conflict, match=status):
        saver.put_writes(at, [("messages", 1)], "task")


def test_fences_and_leases_are_checked_by_operations(connect, operations):
    saver = connect(fencing=True)
    with saver.lock("t"):
        at = put(saver, None, 1)
        went = operations(saver)
        put(saver, at, 2)
        assert len(went) == 1
    other = connect(fencing=True)
    other.get(place("t"))
    put(saver, None, 1, "u")
    with pytest.raises(Conflict):
        put(other, at, 3)


def test_a_layer_between_and_connections_that_were_given_have_no_such_way(connect, postgres_url, schema):
    assert connect()._engine.put_usual is not None
    assert connect(metrics=True)._engine.put_usual is not None  # which counts them itself
    assert connect(read_only=True, setup=False)._engine.put_usual is None
    saver = connect()
    saver._engine.add_layer(lambda backend, is_of_loop: backend)
    assert saver._engine.put_usual is None
    with psycopg.connect(postgres_url, autocommit=True) as given:
        given.execute(f'SET search_path = "{schema}"')
        saver = threadline.connect(connection=given)
        assert saver._engine.put_usual is None
        put(saver, None, 1)
        assert steps(saver) == [1]


def test_metrics_count_usual_puts(connect, operations):
    saver = connect(metrics=True)
    at = put(saver, None, 1)
    went = operations(saver)
    put(saver, at, 2)
    assert not went
    assert 'threadline_commit_group_size_count{db_system_name="postgresql"} 2' in saver.metrics.exposition()


def test_a_closed_saver_says_so_and_a_change_to_no_tables_is_left_to_the_general_way(connect):
    saver = connect()
    row = CheckpointRow("", "1", None, b"", 0, b"document", 0, b"metadata", 0, "loop", None, 1.0, None)
    assert saver._engine.put_usual(Change(thread_id="s", now=1.0, checkpoints=[row])) is None
    saver.open()
    change = Change(thread_id="t", now=1.0, checkpoints=[row])
    assert saver._engine.put_usual(change) is not None
    assert saver._engine.put_usual(change) is None  # it is there: somebody else's, for all that is known
    saver.close()
    with pytest.raises(Closed):
        saver._engine.put_usual(Change(thread_id="u", now=1.0, checkpoints=[row]))


def test_a_forked_child_puts_on_a_connection_of_its_own(connect, admin):
    saver = connect()
    at = put(saver, None, 1)
    pid = os.fork()
    if pid == 0:
        try:
            put(saver, at, 2)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    put(saver, at, 3)
    assert steps(saver) == [3, 2, 1]
