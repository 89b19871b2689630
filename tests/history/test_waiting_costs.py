"""What it costs to see what waits, in a store of 100,000 threads: counted in steps of the database, never in time."""

import sqlite3
from typing import Any, NamedTuple

import pytest

from threadline.testing.making import checkpoint, place

THREADS = 100_000
ASKING = 20

# Threads like one that is there: with a checkpoint, and a question that was settled by it.
MORE_THREADS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO threadline_threads (thread_id, pool, epoch, status, created, active, tags)
SELECT printf('many-%07d', i), 1000000 + i, 0, 'active', 1.0, 1.0, '[]' FROM n
"""
THEIR_POOLS = "UPDATE threadline_threads SET pool = serial WHERE pool > 1000000"
THEIR_CHECKPOINTS = """
INSERT INTO threadline_checkpoints
SELECT t.serial, t.serial, c.namespace, c.id, c.parent, c.links, c.form, c.document, c.metadata_form, c.metadata,
       c.step, c.source, c.run_id, c.created, c.searchable
FROM threadline_threads t JOIN threadline_checkpoints c ON c.thread = ? WHERE t.thread_id LIKE 'many-%'
"""
THEIR_WRITES = """
INSERT INTO threadline_writes
SELECT t.serial, t.serial, w.namespace, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.channel, w.links, w.form,
       w.data FROM threadline_threads t JOIN threadline_writes w ON w.thread = ? WHERE t.thread_id LIKE 'many-%'
"""


class Interrupt(NamedTuple):
    id: str
    value: Any


class Counted:
    """A connection whose steps are counted: each is an instruction of SQLite's machine."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.steps = 0
        self.connection.set_progress_handler(self._step, 100)

    def _step(self):
        self.steps += 100


@pytest.fixture
def store(connect, tmp_path):
    """A saver on a connection whose steps are counted; some of its threads ask, and some have asked."""
    counted = Counted(tmp_path / "threads.db")
    saver = connect(connection=counted.connection)
    for number in range(ASKING):
        config = put(saver, place(f"asking-{number:02d}"), 1)
        ask(saver, config, f"ask-{number}")
    asked = put(saver, place("settled"), 1)
    ask(saver, asked, "long ago")
    put(saver, asked, 2)
    yield saver, counted
    saver.close()
    counted.connection.close()


def put(saver, at, version):
    made = checkpoint({"turn": version}, {"turn": version})
    return saver.put(at, made, {"source": "loop", "step": version}, {"turn": version})


def ask(saver, config, name):
    saver.put_writes(config, [("__interrupt__", [Interrupt(name, {"why": "x" * 300})])], "task")


def steps(counted, act):
    before = counted.steps
    result = act()
    return counted.steps - before, result


def fill(counted):
    execute = counted.connection.execute
    [(serial,)] = execute("SELECT serial FROM threadline_threads WHERE thread_id = 'settled'").fetchall()
    execute(MORE_THREADS, (THREADS,))
    execute(THEIR_POOLS)
    execute(THEIR_CHECKPOINTS, (serial,))
    execute(THEIR_WRITES, (serial,))


def test_what_waits_costs_as_much_as_there_is_however_many_threads_there_are(store):
    saver, counted = store
    ways = {
        "interrupts": lambda: [one.interrupt_id for one in saver.interrupts()],
        "suspended": lambda: [info.thread_id for info in saver.threads(status="suspended")],
        "some": lambda: [info.thread_id for info in saver.threads(status="suspended", prefix="asking-1")],
        "info": lambda: [saver.thread(name).info().status for name in ("asking-03", "settled")],
        "latest": lambda: len(list(saver.threads(status="suspended", limit=5))),
    }
    few = {name: steps(counted, way) for name, way in ways.items()}
    assert few["interrupts"][1] == [f"ask-{number}" for number in range(ASKING)]
    assert few["info"][1] == ["suspended", "active"]
    fill(counted)
    assert saver.count_threads() == THREADS + ASKING + 1
    many = {name: steps(counted, way) for name, way in ways.items()}
    for name in ways:
        assert many[name][1] == few[name][1]
        assert many[name][0] <= 2 * few[name][0] + 1000, name


def test_a_question_that_was_settled_is_not_looked_at_again(store):
    saver, counted = store
    noted = "SELECT thread_id FROM threadline_threads WHERE asked IS NOT NULL ORDER BY thread_id"
    asking = [f"asking-{number:02d}" for number in range(ASKING)]
    assert [name for (name,) in counted.connection.execute(noted)] == asking
    # Who goes on after reading the question notes that it is settled.
    put(saver, saver.get_tuple(place("asking-00")).config, 2)
    assert [name for (name,) in counted.connection.execute(noted)] == asking[1:]


def test_a_put_without_a_question_makes_no_more_statements(store):
    saver, counted = store
    config, said = put(saver, place("plain"), 1), []
    counted.connection.set_trace_callback(said.append)
    put(saver, config, 2)
    assert not [statement for statement in said if "asked" in statement]
