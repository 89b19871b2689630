"""The usual put, on the calling thread: what goes so, what leaves it, and connections that are lost around it."""

import pymysql
import pytest

from tests.usual_puts import UsualPuts, put, steps
from threadline import Closed
from threadline.backends.mysql.wire import Wire
from threadline.testing.making import place


@pytest.fixture
def lose(monkeypatch, root):
    """Ends the next connection that puts something, before the server gets it or before its answer is read."""

    def arrange(moment):
        original, pending = Wire._counted_now, [moment]

        def counted(self, packet):
            if not pending:
                return original(self, packet)
            pending.clear()
            if moment == "answered":
                original(self, packet)
            root.query(f"KILL {self.connection.thread_id()}")
            return original(self, b"DO SLEEP(10)")

        monkeypatch.setattr(Wire, "_counted_now", counted)

    return arrange


class TestUsualPuts(UsualPuts):
    """As for each server."""


def test_a_stale_stamp_leaves_the_usual_way_and_all_chunks_are_sent(connect, operations, root, prefix):
    saver = connect()
    at = put(saver, put(saver, None, 1), 2)
    root.query(f"DELETE FROM {prefix}chunks")
    root.query(f"UPDATE {prefix}threads SET epoch = epoch + 1")
    went = operations(saver)
    at = put(saver, at, 3)
    assert went
    went.clear()
    put(saver, at, 4)
    assert not went
    assert len(connect().get(place("t"))["channel_values"]["messages"]) == 4


def test_a_layer_between_and_connections_that_were_given_have_no_such_way(connect, root):
    assert connect()._engine.put_usual is not None
    assert connect(read_only=True, setup=False)._engine.put_usual is None
    assert connect(None, connection=root)._engine.put_usual is None
    saver = connect()
    saver._engine.add_layer(lambda backend, is_of_loop: backend)
    assert saver._engine.put_usual is None


class InPieces:
    """Shows a few bytes of what was read at a time."""

    def __init__(self, answers):
        self.answers, self.size = answers, 3

    def peek(self):
        return self.answers.peek()[: self.size]

    def read(self, count):
        return self.answers.read(count)

    def close(self):
        self.answers.close()


def test_answers_in_pieces_and_errors_behind_them_are_read_as_they_are(connect):
    saver = connect()
    at = put(saver, None, 1)
    [wire] = [line.connection for line in saver._engine.blocking._idle]
    answers = wire.connection._rfile = InPieces(wire.connection._rfile)
    at = put(saver, at, 2)
    for answers.size in (3, 11, 12, 25):
        assert wire._counted_now(b"DO 1;DO 2;DO 3") == 0
        with pytest.raises(pymysql.err.MySQLError, match="nowhere"):
            wire._counted_now(b"DO 1;INSERT INTO nowhere VALUES (1);DO 2")
        at = put(saver, at, answers.size)
    assert steps(saver) == [25, 12, 11, 3, 2, 1]


def test_a_closed_saver_says_so(connect):
    saver = connect()
    at = put(saver, None, 1)
    saver.close()
    with pytest.raises(Closed):
        put(saver, at, 2)
