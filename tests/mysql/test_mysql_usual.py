"""The usual put, on the calling thread: what goes so, what leaves it, and connections that are lost around it."""

import pymysql
import pytest

from threadline import Closed
from threadline.backends.mysql.wire import Wire
from threadline.errors import Unavailable
from threadline.testing.making import checkpoint, place


def put(saver, at, step, thread_id="t"):
    """The step's checkpoint, whose list is that of the one before and an item."""
    values = {"messages": [f"message {number} " * 20 for number in range(step)]}
    made = checkpoint(values, {"messages": step})
    return saver.put(at or place(thread_id), made, {"source": "loop", "step": step, "parents": {}}, {"messages": step})


def steps(saver, thread_id="t"):
    return [found.metadata["step"] for found in saver.list(place(thread_id))]


@pytest.fixture
def operations(monkeypatch):
    """Notes what a saver's engine runs as an operation instead."""

    def watched(saver):
        went, run = [], saver._engine.run

        def noted(operation):
            went.append(operation)
            return run(operation)

        monkeypatch.setattr(saver._engine, "run", noted)
        return went

    return watched


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


def test_usual_puts_and_writes_are_no_operations(connect, operations):
    saver = connect()
    saver.open()
    went = operations(saver)
    at = put(saver, None, 1)
    for step in range(2, 6):
        saver.put_writes(at, [("messages", step)], "task")
        at = put(saver, at, step)
    assert not went
    assert steps(saver) == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("moment", ["asked", "answered"])
@pytest.mark.parametrize("verb", ["put", "put_writes", "first put"])
def test_a_connection_that_is_lost_around_a_put_leaves_it_made_once(connect, lose, verb, moment):
    saver = connect()
    at = put(saver, put(saver, None, 1), 2)
    generation = saver._engine.identity.generation
    lose(moment)
    if verb == "put":
        put(saver, at, 3)
    elif verb == "put_writes":
        saver.put_writes(at, [("messages", "written")], "task")
    else:
        put(saver, None, 1, "new")
    assert saver._engine.identity.generation > generation
    assert saver._engine.retries == 1
    assert steps(saver) == ([3, 2, 1] if verb == "put" else [2, 1])
    assert steps(saver, "new") == ([1] if verb == "first put" else [])
    found = connect().get_tuple(at)
    assert [value for *_, value in found.pending_writes] == (["written"] if verb == "put_writes" else [])


@pytest.mark.parametrize("moment", ["asked", "answered"])
def test_without_retries_a_lost_connection_is_an_error_and_the_put_can_be_made_again(connect, lose, moment):
    saver = connect(retry=None)
    at = put(saver, put(saver, None, 1), 2)
    lose(moment)
    with pytest.raises(Unavailable):
        put(saver, at, 3)
    put(saver, at, 4)
    assert steps(saver) == ([4, 3, 2, 1] if moment == "answered" else [4, 2, 1])


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
