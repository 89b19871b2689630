"""What it costs to see what waits on PostgreSQL, among 100,000 threads: rows that are read, and ways to the server."""

from typing import Any, NamedTuple

import psycopg
import pytest

import threadline
from threadline.backends.postgres.backend import PostgresDialect
from threadline.backends.sql.statements import Statements
from threadline.testing.making import checkpoint, place

THREADS = 100_000
ASKING = 20
# Threads like one that is there: with its checkpoints, and a question that was settled by the newer of them.
FILL = (
    "INSERT INTO threadline_threads (thread_id, epoch, status, created, active, tags) "
    "SELECT 'many-' || i, 0, 'active', 1.0, 1.0, '[]' FROM generate_series(1, %s) AS i",
    "INSERT INTO threadline_checkpoints SELECT t.serial, t.serial, c.namespace, c.id, c.parent, c.links, c.form, "
    "c.document, c.metadata_form, c.metadata, c.step, c.source, c.run_id, c.created, c.searchable "
    "FROM threadline_threads t, threadline_checkpoints c WHERE t.thread_id LIKE 'many-%%' AND c.thread = %s",
    "INSERT INTO threadline_writes SELECT t.serial, t.serial, w.namespace, w.checkpoint_id, w.task_id, w.idx, "
    "w.task_path, w.channel, w.links, w.form, w.data "
    "FROM threadline_threads t, threadline_writes w WHERE t.thread_id LIKE 'many-%%' AND w.thread = %s",
)


class Interrupt(NamedTuple):
    id: str
    value: Any


def put(saver, at, version):
    made = checkpoint({"turn": version}, {"turn": version})
    return saver.put(at, made, {"source": "loop", "step": version}, {"turn": version})


def ask(saver, config, name):
    saver.put_writes(config, [("__interrupt__", [Interrupt(name, "ok?")])], "task")


def fill(url, saver):
    for number in range(ASKING):
        ask(saver, put(saver, place(f"asking-{number:02d}"), 1), f"ask-{number}")
    asked = put(saver, place("settled"), 1)
    ask(saver, asked, "long ago")
    put(saver, asked, 2)
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT serial FROM threadline_threads WHERE thread_id = 'settled'")
        [serial] = found.fetchone()
        for statement, value in zip(FILL, (THREADS, serial, serial), strict=True):
            connection.execute(statement, (value,))


def rows_read(plan):
    """The rows that the scans of a plan looked at."""
    own = plan.get("Actual Rows", 0) + plan.get("Rows Removed by Filter", 0) if "Scan" in plan["Node Type"] else 0
    return own * plan.get("Actual Loops", 1) + sum(map(rows_read, plan.get("Plans", ())))


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_what_waits_is_found_without_looking_at_the_threads_that_do_not(postgres, is_analyzed):
    with threadline.connect(postgres.url) as saver:
        fill(postgres.url, saver)
        assert [one.interrupt_id for one in saver.interrupts()] == [f"ask-{number}" for number in range(ASKING)]
        assert len(list(saver.threads(status="suspended"))) == ASKING
    sql = Statements(PostgresDialect(), "threadline_")
    names = [f"asking-{number:02d}" for number in range(ASKING)]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        if is_analyzed:
            connection.execute("ANALYZE")
        for statement, values in (sql.threads("", "", 500, asking=True), sql.newest_writes_of(names)):
            [[[explained]]] = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).fetchall()
            assert rows_read(explained["Plan"]) <= 10 * ASKING, explained


def test_what_waits_is_read_in_a_few_ways_to_the_server(proxied_url, schema, proxy):
    with threadline.connect(proxied_url, schema=schema) as saver:
        for number in range(60):
            ask(saver, put(saver, place(f"t-{number:02d}"), 1), f"ask-{number}")
        before = proxy.trips
        assert len(list(saver.interrupts())) == 60
        assert proxy.trips - before <= 4
