"""Puts to several threads as one statement: they write what they write one by one, and each is refused by itself."""

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.postgres.test_postgres_puts import ask, chunk, row, rows_read_by_index, waits
from threadline.backends.postgres.put import usual
from threadline.backends.postgres.together import SeveralStatements, runs
from threadline.backends.postgres.wire import Session, Statement
from threadline.base.drive import run_now
from threadline.ports.checkpoints import Change, Witness, WriteRow

COUNT = 12
ODD = "n\0ul \1 ü"
TABLES = ("checkpoints", "writes", "chunks")


def name_of(number):
    return f"{ODD}-{number:02}"


def write(index, checkpoint_id):
    return WriteRow("", checkpoint_id, f"task {ODD}", index, "path", "channel", b"l" * 16, 0, b"%d" % index, False)


@pytest.fixture
def saver(connect):
    return connect()


def begun(saver, count=COUNT):
    """The stamp of each of some new threads, which have a checkpoint `parent`."""
    stamps = []
    for number in range(count):
        begins = Change(thread_id=name_of(number), now=1.0, checkpoints=[row("parent", created=float(number))])
        [applied] = ask(saver, "apply", [begins])
        stamps.append(applied.stamp)
    return stamps


def following(number, stamp, **parts):
    """A put to such a thread: a checkpoint, more chunks the later the thread, and writes to every other."""
    checkpoint = row("child", created=2.0)._replace(parent=None if number % 3 else "parent", searchable='{"step": 3}')
    return Change(
        **{
            "thread_id": name_of(number),
            "now": 1.0,
            "stamp": stamp,
            "witnesses": [Witness("", "parent", float(number))],
            "chunks": [chunk(each, b"%d of %d" % (each, number)) for each in range(number % 5)][::-1],
            "checkpoints": [checkpoint],
            "writes": [write(index, "child") for index in range(number % 2 * 3)][::-1],
            **parts,
        }
    )


def works_of(saver, changes):
    server = saver._engine._backends[0]._identity.server
    return [usual(change, server, may_touch=False) for change in changes]


def put_all(saver, works):
    """What a group of tasks has made in one transaction."""
    return run_now(saver._engine._backends[0].put_all(works))


def held_in(admin):
    """All rows but those of threads, which have numbers of their own."""
    return {table: sorted(map(repr, admin.execute(f"SELECT * FROM threadline_{table}"))) for table in TABLES}


@pytest.fixture
def statements(monkeypatch):
    """How many statements each transaction of puts has."""
    counts = []
    one, several = Session.asked, Session.ask_all

    def asked(self, statement, values):
        counts.append(1)
        return one(self, statement, values)

    async def ask_all(self, questions):
        counts.append(len(questions))
        return await several(self, questions)

    monkeypatch.setattr(Session, "asked", asked)
    monkeypatch.setattr(Session, "ask_all", ask_all)
    return counts


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"chunks": []},
        {"writes": []},
        {"checkpoints": [], "chunks": []},
        {"checkpoints": [row("b"), row("a"), row("b", links=b"later")]},
    ],
    ids=["all", "without chunks", "without writes", "writes alone", "many checkpoints"],
)
def test_together_they_write_what_they_write_one_by_one(saver, admin, statements, parts):
    stamps = begun(saver)
    works = [
        work for work in works_of(saver, [following(n, stamp, **parts) for n, stamp in enumerate(stamps)])
        if work.change.checkpoints or work.change.writes or work.change.chunks
    ]  # fmt: skip
    expected = [work.change.stamp for work in works]
    statements.clear()
    assert put_all(saver, works) == expected
    assert sum(statements) <= 2  # one, and perhaps once more to prepare it
    together = held_in(admin)
    for table in TABLES:
        admin.execute(f"DELETE FROM threadline_{table}" + " WHERE id <> 'parent'" * (table == "checkpoints"))
    assert [put_all(saver, [work]) for work in works] == [[stamp] for stamp in expected]
    assert held_in(admin) == together


def test_each_that_is_not_as_expected_is_refused_by_itself(saver, admin, postgres_url):
    stamps = begun(saver)
    changes = [following(number, stamp) for number, stamp in enumerate(stamps)]
    changes[1].stamp = (stamps[1][0], stamps[1][1] + 1)
    changes[2].stamp = (stamps[3][0], stamps[2][1])
    changes[4].thread_id = "nobody"
    changes[5].witnesses = [Witness("", "another", 5.0)]
    changes[6].witnesses = [Witness("", "parent", 6.5)]
    changes[7].witnesses = [Witness("namespace", "parent", 7.0)]
    for number, what in ((8, "status = 'deleted'"), (9, "status = 'archived'"), (10, "deleted_before = 'a'")):
        admin.execute(f"UPDATE threadline_threads SET {what} WHERE serial = %s", [serial_of(admin, number)])
    refused = {1, 2, 4, 5, 6, 7, 8, 9, 10}
    made = put_all(saver, works_of(saver, changes))
    assert made == [None if number in refused else stamp for number, stamp in enumerate(stamps)]
    for number in range(COUNT):
        found = ask(saver, "find", name_of(number), "", "child")
        assert (found is None) is (number in refused), number
    with_writes = [number for number in range(COUNT) if number % 2 and number not in refused]
    assert len(held_in(admin)["writes"]) == 3 * len(with_writes)
    assert len(held_in(admin)["chunks"]) == sum(number % 5 for number in range(COUNT) if number not in refused)


def serial_of(admin, number):
    """The number of a thread; they were begun in order."""
    return admin.execute(
        "SELECT serial FROM threadline_threads ORDER BY serial OFFSET %s LIMIT 1", [number]
    ).fetchone()[0]


def test_another_server_is_noticed(saver):
    works = works_of(saver, [following(number, stamp) for number, stamp in enumerate(begun(saver))])
    works = [work._replace(values=[*work.values[:3], 1.5, *work.values[4:]]) for work in works]
    assert put_all(saver, works) == [None] * COUNT
    # Puts that expect different servers are no group.
    works[5] = work = works[5]._replace(values=[*works[5].values[:3], 2.5, *works[5].values[4:]])
    assert [len(run) for run in runs(works)] == [5, 1, 6]
    assert list(runs(works))[1] == [work]


def test_what_is_locked_against_it_is_skipped_and_the_rest_made(saver, admin, postgres_url):
    stamps = begun(saver)
    works = works_of(saver, [following(number, stamp) for number, stamp in enumerate(stamps)])
    schema = admin.execute("SELECT current_schema()").fetchone()[0]
    with psycopg.connect(postgres_url) as other:
        other.execute(f'SET search_path = "{schema}"')
        other.execute("SELECT 1 FROM threadline_threads WHERE serial = %s FOR UPDATE", [serial_of(admin, 3)])
        gone = other.execute("DELETE FROM threadline_checkpoints WHERE thread = %s", [serial_of(admin, 7)])
        assert gone.rowcount == 1
        made = put_all(saver, works)
        other.rollback()
    assert [number for number, stamp in enumerate(made) if stamp is None] == [3, 7]
    assert ask(saver, "find", name_of(7), "", "child") is None
    assert put_all(saver, [works[3], works[7]]) == [stamps[3], stamps[7]]


@pytest.mark.parametrize(
    "meanwhile",
    [
        "DELETE FROM threadline_checkpoints WHERE thread = {serial}",
        "UPDATE threadline_threads SET epoch = epoch + 1 WHERE serial = {serial}",
        "UPDATE threadline_threads SET status = 'deleted' WHERE serial = {serial}",
    ],
)
def test_what_changes_between_the_snapshot_and_the_lock_is_missed(saver, admin, monkeypatch, meanwhile):
    make = SeveralStatements._of

    def slow(self, kinds):
        # Where the rows of a thread and its witness are read, before they are locked.
        text = make(self, kinds).text.decode()
        return Statement(text.replace(" FOR ", " AND (g.at <> 6 OR pg_sleep(1) IS NOT NULL) FOR ", 1))

    stamps = begun(saver)
    works = works_of(saver, [following(number, stamp) for number, stamp in enumerate(stamps)])
    serial = serial_of(admin, 5)
    monkeypatch.setattr(SeveralStatements, "_of", slow)
    with ThreadPoolExecutor() as others:
        answer = others.submit(put_all, saver, works)
        time.sleep(0.3)
        with admin.transaction():  # as every deletion does it
            admin.execute("SELECT 1 FROM threadline_threads WHERE serial = %s FOR UPDATE", [serial])
            assert admin.execute(meanwhile.format(serial=serial)).rowcount == 1
        assert not answer.done()
        assert answer.result() == [None if number == 5 else stamp for number, stamp in enumerate(stamps)]
    written = "SELECT count(*) FROM threadline_checkpoints WHERE id = 'child' AND thread = %s"
    assert admin.execute(written, [serial]).fetchone() == (0,)


def test_a_collection_waits_for_puts_that_go_together(saver, admin, postgres_url, connect):
    """Each thread is held until the end, so that no chunk goes that one of the puts has left out."""
    stamps = begun(saver)
    [stored] = {put_all(saver, works_of(saver, [following(4, stamps[4])]))[0]}
    works = works_of(saver, [following(n, stamp, chunks=[chunk(9)]) for n, stamp in enumerate(stamps)])
    schema = admin.execute("SELECT current_schema()").fetchone()[0]
    with ThreadPoolExecutor(2) as threads, psycopg.connect(postgres_url) as holder:
        # The last of the puts meets a chunk that another transaction is about to store.
        digest = chunk(9).digest
        holder.execute(
            f'INSERT INTO "{schema}".threadline_chunks VALUES (%s, %s, %s, 0, %s)', (stamps[-1][0], digest, b"", b"x")
        )
        putting = threads.submit(put_all, saver, works)
        waits(admin)
        collecting = threads.submit(ask, connect(), "collect", stored[0], [chunk(0).digest], set())
        waits(admin, 2)
        holder.rollback()
        assert putting.result(30) == stamps
        assert collecting.result(30) == 1


def test_the_order_stays_and_what_does_more_goes_alone(saver):
    stamps = begun(saver)
    changes = [following(number, stamp) for number, stamp in enumerate(stamps)]
    changes[0].stamp, changes[0].witnesses, changes[0].thread_id = None, [], "new"
    changes[5].moved = [chunk(5, b"pointer", b"l" * 16)]
    changes[6].writes = [write(0, "child")._replace(replaces=True)]
    changes[8].witnesses = []
    works = works_of(saver, changes)
    assert [work for run in runs(works) for work in run] == works
    assert [len(run) for run in runs(works)] == [1, 4, 1, 1, 1, 1, 3]
    made = put_all(saver, works)
    assert made[1:] == stamps[1:]
    assert made[0] is not None
    assert all(ask(saver, "find", change.thread_id, "", "child") for change in changes)


def test_they_read_no_more_of_long_threads_where_the_server_has_no_statistics(connect, admin):
    steps, saver = 40, connect()
    stamps = begun(saver)
    for step in range(steps):
        changes = [
            following(
                number, stamp, chunks=[], writes=[], checkpoints=[row(f"{step:03}", created=float(step))],
                witnesses=[Witness("", f"{step - 1:03}", step - 1.0) if step else Witness("", "parent", float(number))],
            )
            for number, stamp in enumerate(stamps)
        ]  # fmt: skip
        assert put_all(saver, works_of(saver, changes)) == stamps
    saver.close()
    puts, deadline = steps * COUNT, time.monotonic() + 10
    while (read := rows_read_by_index(admin, "threadline_checkpoints")) < puts and time.monotonic() < deadline:
        time.sleep(0.05)  # the server adds up what a session read when that has ended
    assert puts <= read <= 4 * puts
    assert rows_read_by_index(admin, "threadline_threads") <= 4 * puts
    scans = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname = %s"
    for table in ("threadline_checkpoints", "threadline_threads"):
        assert admin.execute(scans, [table]).fetchone()[0] <= 10 * COUNT
