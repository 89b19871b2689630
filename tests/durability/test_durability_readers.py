"""A reader never sees half a put: not of a checkpoint, not of a task's writes, not of a batch."""

import asyncio
import threading

import lives
import pytest
from test_durability_places import interrupted_at, lines_of

import threadline
from threadline.backends.sqlite.connections import SqliteConnections
from threadline.errors import Closed

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
                await asyncio.sleep(0)  # memory never waits by itself

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


# A get reads on the connection that writes, whose cache has what was written, unless somebody writes.


@pytest.fixture
def counted(monkeypatch):
    """The connections of savers that read a checkpoint with a connection of its own."""
    reads, read = [], SqliteConnections._read

    def counting(self, work, in_transaction):
        if in_transaction:
            reads.append(self)
        return read(self, work, in_transaction)

    monkeypatch.setattr(SqliteConnections, "_read", counting)
    return reads


@pytest.fixture
def in_the_middle(monkeypatch):
    """Lets something happen once, on the same thread, between the two queries of a get: as a signal handler does."""
    from threadline.backends.sqlite import put

    def arrange(act):
        acts, found_row = [act], put.found_row

        def interrupted(*args):
            if acts:
                acts.pop()()
            return found_row(*args)

        monkeypatch.setattr(put, "found_row", interrupted)

    return arrange


def test_a_read_uses_the_connection_that_writes_where_nobody_has_it(connect, database, counted):
    saver, other = connect(database), connect(database)
    saver.put(*lives.put_arguments("t", 0))
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 0
    other.put(*lives.put_arguments("t", 1))
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 1
    in_another_thread(lambda: saver.put(*lives.put_arguments("t", 2)))
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 2
    assert saver._engine._connections not in counted
    found = []
    with saver._engine._connections.alone():
        in_another_thread(lambda: found.append(lives.check(saver.get_tuple(lives.config("t")), "t")))
    assert found == [2]
    assert saver._engine._connections in counted


def test_of_several_who_read_none_takes_the_connection_that_writes(connect, database, counted):
    """A writer would wait for one of them all the time."""
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    begun, over = threading.Event(), threading.Event()

    def read_for_long(_):
        begun.set()
        over.wait(10)

    thread = threading.Thread(target=lambda: saver._engine._connections.read(read_for_long))
    thread.start()
    assert begun.wait(10)
    counted.clear()
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 0
    assert counted == [saver._engine._connections]
    over.set()
    thread.join(10)
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 0
    assert len(counted) == 1


def in_another_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_read_never_waits_for_a_write_of_another_thread(connect, database):
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    held, over = threading.Event(), threading.Event()

    def hold():
        with saver._engine.alone():
            held.set()
            over.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 0
    assert not over.is_set()
    over.set()
    thread.join()
    saver.put(*lives.put_arguments("t", 1))


@pytest.mark.parametrize("when", ["put", "delete", "get", "setup"])
def test_a_signal_handler_may_use_a_saver_in_the_middle_of_a_read(connect, database, in_the_middle, when):
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    acts = {
        "put": lambda: saver.put(*lives.put_arguments("t", 1)),
        "delete": lambda: saver.delete_thread("t"),
        "get": lambda: saver.get_tuple(lives.config("t")),
        "setup": saver.setup,
    }
    in_the_middle(acts[when])
    found = saver.get_tuple(lives.config("t"))
    assert found is None if when == "delete" else lives.check(found, "t") == (1 if when == "put" else 0)
    assert not saver._engine.writing_connection().in_transaction
    saver.put(*lives.put_arguments("u", 0))
    assert lives.check(saver.get_tuple(lives.config("u")), "u") == 0


def test_a_signal_handler_may_close_a_saver_in_the_middle_of_a_read(connect, database, in_the_middle):
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    in_the_middle(saver.close)
    with pytest.raises(Closed):
        saver.get_tuple(lives.config("t"))
    assert lives.check(connect(database).get_tuple(lives.config("t")), "t") == 0


READ_LINES = [
    line
    for name in ("read_briefly", "_read_here")
    for line in lines_of(getattr(SqliteConnections, name))
    if line[2] != "lock.release()"  # the first thing that a `finally` does: only tracing can come in between
]


@pytest.mark.parametrize(
    ("code", "line", "text"), READ_LINES, ids=[f"{code.co_name}:{text[:40]}" for code, _, text in READ_LINES]
)
def test_an_interrupt_at_any_line_of_a_read_leaves_a_saver_that_can_be_written(connect, database, code, line, text):
    saver = connect(database, timeout=1.0)
    saver.put(*lives.put_arguments("t", 0))
    interrupted_at(code, line, lambda: saver.get_tuple(lives.config("t")))
    in_another_thread(lambda: saver.put(*lives.put_arguments("t", 1)))
    connect(database).put(*lives.put_arguments("t", 2))
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 2


def test_nothing_is_read_on_a_connection_that_was_handed_out(tmp_path):
    """The program's own cursor on it holds an older state, and its own rows must not be taken back."""
    from threadline.langgraph import SqliteSaver

    with SqliteSaver.from_conn_string(f"{tmp_path}/a.db") as saver:
        for step in range(5):
            saver.put(*lives.put_arguments("t", step))
        cursor = saver.conn.execute("SELECT * FROM threadline_checkpoints")
        assert cursor.fetchone() is not None
        with threadline.connect(f"sqlite:///{tmp_path}/a.db") as other:
            other.put(*lives.put_arguments("t", 5))
        assert saver.get_tuple(lives.config("t")).config["configurable"]["checkpoint_id"] == lives.id_of(5)


def test_a_put_that_is_refused_in_the_middle_of_a_transaction_stays_refused(tmp_path):
    import sqlite3

    from threadline.langgraph import SqliteSaver

    connection = sqlite3.connect(f"{tmp_path}/a.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.put(*lives.put_arguments("t", 0))
    connection.execute("CREATE TABLE own (a)")
    connection.execute("INSERT INTO own VALUES (1)")
    with pytest.raises(threadline.Conflict, match="transaction of yours"):
        saver.put(*lives.put_arguments("t", 1))
    connection.commit()
    with pytest.raises(threadline.Conflict, match="refused"):
        saver.put_writes(*lives.write_arguments("t", 1, "task"))
    connection.close()
