"""A put as one statement: what it writes, what it refuses, what it locks, and who waits for it."""

import asyncio
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import threadline
from threadline import Conflict
from threadline.backends.postgres.put import PutStatements
from threadline.backends.postgres.wire import Statement
from threadline.ports.checkpoints import Applied, Change, CheckpointRow, ChunkRow, Stale, Witness, WriteRow
from threadline.testing.making import checkpoint, place

LEASE = b"a" * 16


def row(id, links=b"", created=1.0, namespace=""):
    return CheckpointRow(namespace, id, None, links, 0, b"document", 0, b"metadata", 0, "loop", None, created, None)


def chunk(number, data=b"x", links=b""):
    return ChunkRow(bytes([number]) * 16, links, 0, data)


def write(index, channel="c", data=b"d", replaces=False, checkpoint_id="1"):
    return WriteRow("", checkpoint_id, "task", index, "", channel, b"", 0, data, replaces)


def ask(saver, method, *args):
    return saver._engine.run(lambda backend: getattr(backend, method)(*args))


def digests_in(saver, pool):
    return [digest for digest, *_ in ask(saver, "chunk_sizes", pool, b"", 100)]


def apply(saver, *changes):
    return ask(saver, "apply", changes)


def change(applied, **parts):
    return Change(**{"thread_id": "t", "now": 1.0, "stamp": applied.stamp, **parts})


@pytest.fixture
def saver(connect):
    return connect()


@pytest.fixture
def applied(saver):
    [applied] = apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("0")]))
    return applied


@pytest.fixture
def general(saver, monkeypatch):
    """Counts the changes that did not go as one statement."""
    went = []
    database = saver._engine._backends[0].database
    written = database.write

    async def write(work):
        went.append(work)
        return await written(work)

    monkeypatch.setattr(database, "write", write)
    return went


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 40])
def test_rows_of_any_number_are_written_by_one_statement(saver, applied, general, count):
    chunks = [chunk(number, b"%d" % number) for number in range(count)]
    writes = [write(index, data=b"%d" % index) for index in range(count)]
    made = change(applied, chunks=chunks[::-1], checkpoints=[row("1")], writes=writes[::-1])
    assert apply(saver, made) == [applied]
    assert not general
    assert sorted(ask(saver, "chunks", applied.stamp[0], [one.digest for one in chunks])) == chunks
    assert ask(saver, "find", "t", "", "1").writes == writes


@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_write_that_replaces_does_and_another_does_not(saver, applied, general, count):
    apply(saver, change(applied, writes=[write(index) for index in range(count)]))
    apply(saver, change(applied, writes=[write(index, data=b"second") for index in range(count)]))
    assert {one.data for one in ask(saver, "thread_writes", "t")} == {b"d"}
    twice = [write(index, data=data, replaces=True) for index in range(count) for data in (b"third", b"fourth")]
    apply(saver, change(applied, writes=twice))
    assert [one.data for one in ask(saver, "thread_writes", "t")] == [b"fourth"] * count
    assert not general


@pytest.mark.parametrize("count", [1, 4, 5, 40])
@pytest.mark.parametrize("together", [False, True])
def test_a_chunk_that_moved_takes_the_place_of_its_row(saver, applied, general, count, together):
    there = [chunk(number) for number in range(count)]
    apply(saver, change(applied, chunks=there))
    moved = [chunk(number, b"pointer", b"l" * 16) for number in range(count + 1)]
    again = change(applied, chunks=[chunk(200), chunk(201)], moved=moved[::-1], checkpoints=[row("1")])
    # Several changes are one transaction of several statements.
    assert set(apply(saver, again, *[change(applied)] * together)) == {applied}
    assert bool(general) is together
    digests = [one.digest for one in (*moved, chunk(200))]
    assert sorted(ask(saver, "chunks", applied.stamp[0], digests)) == [*moved, chunk(200)]
    # Added, not moved: the row that is there stays.
    apply(saver, change(applied, chunks=there))
    assert sorted(ask(saver, "chunks", applied.stamp[0], digests[:count])) == moved[:count]


def test_a_stale_change_moves_nothing(saver, applied, admin):
    apply(saver, change(applied, chunks=[chunk(1)]))
    admin.execute("UPDATE threadline_threads SET epoch = epoch + 1")
    [stale] = apply(saver, change(applied, moved=[chunk(1, b"pointer")]))
    assert isinstance(stale, Stale)
    assert ask(saver, "chunks", applied.stamp[0], [chunk(1).digest]) == [chunk(1)]


def test_a_witness_that_goes_between_the_snapshot_and_the_lock_is_missed(saver, applied, admin, monkeypatch):
    """A deletion of checkpoints raises no epoch, and leaves the row of the thread as it is."""
    make = PutStatements.of

    def slow(self, shape):
        # Where the row of the thread is read, before it is locked.
        return Statement(make(self, shape).text.decode().replace(" FOR ", " AND pg_sleep(1) IS NOT NULL FOR ", 1))

    apply(saver, change(applied, checkpoints=[row("parent", created=7.0)]))
    monkeypatch.setattr(PutStatements, "of", slow)
    put = change(applied, witnesses=[Witness("", "parent", 7.0)], checkpoints=[row("child")])
    with ThreadPoolExecutor() as others:
        answer = others.submit(apply, saver, put)
        time.sleep(0.3)
        with admin.transaction():  # as every deletion does it
            admin.execute("SELECT 1 FROM threadline_threads FOR UPDATE")
            assert admin.execute("DELETE FROM threadline_checkpoints WHERE id = 'parent'").rowcount == 1
        assert not answer.done()
        assert answer.result() == [Stale(applied.stamp)]
    assert ask(saver, "find", "t", "", "child") is None


def rows_read_by_index(admin, table):
    """How many entries the indexes of a table have given to sessions that have ended."""
    admin.execute("SELECT pg_stat_clear_snapshot()")
    asked = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = current_schema() AND relname = %s"
    return admin.execute(asked, [table]).fetchone()[0]


def test_a_put_reads_no_more_of_a_long_thread_where_the_server_has_no_statistics(connect, admin):
    """Without them several indexes look alike to the server: one that begins as the primary key does would be read
    through, all of the thread for each put."""
    count, saver = 300, connect()
    [applied] = apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("000", created=0.0)]))
    for number in range(1, count):
        before = Witness("", f"{number - 1:03}", float(number - 1))
        made = change(applied, witnesses=[before], checkpoints=[row(f"{number:03}", created=float(number))])
        assert apply(saver, made) == [applied]
    saver.close()
    deadline = time.monotonic() + 10
    while (read := rows_read_by_index(admin, "threadline_checkpoints")) < count - 1 and time.monotonic() < deadline:
        time.sleep(0.05)  # the server adds up what a session read when that has ended
    assert count - 1 <= read <= 4 * count
    assert rows_read_by_index(admin, "threadline_threads") <= 4 * count


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_all_witnesses_are_looked_for(saver, applied, general, count):
    for number in range(count):
        apply(saver, change(applied, checkpoints=[row(f"w{number}", created=float(number))]))
    witnesses = [Witness("", f"w{number}", float(number)) for number in range(count)]
    assert apply(saver, change(applied, witnesses=witnesses, checkpoints=[row("1")])) == [applied]
    assert len(general) == (count > 3)
    another = witnesses[-1]._replace(created=99.0)
    [stale] = apply(saver, change(applied, witnesses=[*witnesses[:-1], another], checkpoints=[row("2")]))
    assert stale == Stale(applied.stamp)
    assert ask(saver, "find", "t", "", "2") is None


def test_an_expected_head_needs_no_general_way_and_is_checked(saver, applied, general):
    [again] = apply(saver, change(applied, checkpoints=[row("1")], head=("", "0")))
    assert again == applied
    apply(saver, change(applied, checkpoints=[row("1")], head=("", "0")))  # the same, whose answer was lost
    apply(saver, change(applied, checkpoints=[row("1", namespace="n")], head=("n", None)))
    apply(saver, Change(thread_id="new", now=1.0, checkpoints=[row("1")], head=("", None)))
    assert not general
    with pytest.raises(Conflict, match="moved on"):
        apply(saver, change(applied, checkpoints=[row("2")], head=("", "0")))
    with pytest.raises(Conflict, match="moved on"):
        apply(saver, Change(thread_id="newer", now=1.0, checkpoints=[row("2")], head=("", "0")))
    assert ask(saver, "thread", "newer") is None


@pytest.mark.parametrize("stamped", [True, False])
def test_a_lease_is_checked_by_the_statement(saver, applied, general, stamped):
    assert ask(saver, "swap_lease", "t", None, LEASE + b"until then")
    general.clear()
    parts = {"lease": LEASE, "stamp": applied.stamp if stamped else None, "continues": "0"}
    assert apply(saver, change(applied, checkpoints=[row("1")], **parts)) == [applied]
    assert not general
    assert ask(saver, "swap_lease", "t", LEASE + b"until then", b"b" * 16)
    with pytest.raises(Conflict, match="lease"):
        apply(saver, change(applied, checkpoints=[row("2")], **parts))
    assert ask(saver, "find", "t", "", "2") is None


def test_a_new_thread_under_a_lease(saver, general):
    assert ask(saver, "swap_lease", "t", None, LEASE + b"until then")
    general.clear()
    assert apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("1")], lease=LEASE))
    assert not general
    with pytest.raises(Conflict, match="lease"):
        apply(saver, Change(thread_id="u", now=1.0, checkpoints=[row("1")], lease=LEASE))
    assert ask(saver, "thread", "u") is None


def test_a_thread_that_is_there_needs_no_stamp(saver, applied, general):
    later = Change(thread_id="t", now=1.0, continues="0", writes=[write(0, checkpoint_id="0")])
    assert apply(saver, later) == [applied]
    assert not general


def asked(admin):
    return dict(admin.execute("SELECT thread_id, asked FROM threadline_threads"))


def test_questions_are_noted_and_settled_by_the_statement(saver, applied, general, admin):
    question = write(-3, "__interrupt__", replaces=True)
    apply(saver, change(applied, checkpoints=[row("1")]))
    apply(saver, change(applied, writes=[question]))
    apply(saver, change(applied, writes=[question._replace(checkpoint_id="0")]))
    apply(saver, Change(thread_id="new", now=1.0, checkpoints=[row("1")], writes=[question]))
    assert asked(admin) == {"t": "1", "new": "1"}
    apply(saver, change(applied, checkpoints=[row("1")], settles="1"))
    assert asked(admin)["t"] == "1"
    apply(saver, change(applied, checkpoints=[row("2")], settles="2"))
    assert asked(admin) == {"t": None, "new": "1"}
    assert not general


def test_that_a_thread_is_in_use_is_noted_once_a_minute(saver, applied, general, connect):
    other = connect()
    seen = []
    for now in (30.0, 61.0, 62.0, 100.0, 121.0, 122.5):
        apply(other if now == 100.0 else saver, change(applied, now=now, checkpoints=[row(f"{now}")]))
        seen.append(ask(saver, "thread", "t").active)
    assert seen == [1.0, 1.0, 62.0, 62.0, 62.0, 122.5]
    assert not general


def waits(admin, count=1):
    """Wait until so many sessions wait for a lock."""
    here = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    schema = admin.execute("SELECT current_schema()").fetchone()[0]
    while admin.execute(here, (f"%{schema}%",)).fetchone()[0] < count:
        threading.Event().wait(0.01)


def test_a_collection_waits_for_a_put_under_way_and_spares_its_chunks(saver, applied, connect, admin, postgres_url):
    apply(saver, change(applied, chunks=[chunk(1), chunk(2)]))
    pool = applied.stamp[0]
    put = change(applied, checkpoints=[row("1", chunk(1).digest + chunk(3).digest)], chunks=[chunk(3)])
    with ThreadPoolExecutor(2) as threads, psycopg.connect(postgres_url) as holder:
        # The put meets a chunk that another transaction is about to store.
        schema = admin.execute("SELECT current_schema()").fetchone()[0]
        holder.execute(
            f'INSERT INTO "{schema}".threadline_chunks VALUES (%s, %s, %s, 0, %s)', (pool, chunk(3).digest, b"", b"x")
        )
        putting = threads.submit(apply, saver, put)
        waits(admin)
        collecting = threads.submit(ask, connect(), "collect", pool, [chunk(1).digest, chunk(2).digest], set())
        waits(admin, 2)
        holder.rollback()
        assert putting.result(30) == [applied]
        assert collecting.result(30) == 1
    assert digests_in(saver, pool) == [chunk(1).digest, chunk(3).digest]


def test_a_put_beside_a_collection_sees_the_new_epoch(saver, applied, connect, admin, postgres_url):
    apply(saver, change(applied, chunks=[chunk(1)]))
    with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url) as collecting:
        schema = admin.execute("SELECT current_schema()").fetchone()[0]
        collecting.execute(f'SET search_path = "{schema}"')
        collecting.execute("SELECT 1 FROM threadline_threads FOR UPDATE")
        putting = threads.submit(apply, saver, change(applied, checkpoints=[row("1", chunk(1).digest)]))
        waits(admin)
        collecting.execute("DELETE FROM threadline_chunks")
        collecting.execute("UPDATE threadline_threads SET epoch = epoch + 1")
        collecting.commit()
        [stale] = putting.result(30)
    assert stale == Stale((applied.stamp[0], applied.stamp[1] + 1))
    assert ask(saver, "find", "t", "", "1") is None


def test_a_fork_that_joins_while_a_collection_waits_keeps_its_chunks(saver, applied, admin, postgres_url):
    apply(saver, change(applied, chunks=[chunk(1), chunk(2)]))
    pool = applied.stamp[0]
    with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url) as forking:
        schema = admin.execute("SELECT current_schema()").fetchone()[0]
        forking.execute(f'SET search_path = "{schema}"')
        forking.execute("SELECT 1 FROM threadline_threads FOR KEY SHARE")
        [serial] = forking.execute(
            "INSERT INTO threadline_threads (thread_id, joined, epoch, status, created, active, tags) "
            "VALUES ('fork', %s, 0, 'active', 1, 1, '[]') RETURNING serial",
            (pool,),
        ).fetchone()
        collecting = threads.submit(ask, saver, "collect", pool, [chunk(1).digest, chunk(2).digest], set())
        waits(admin)
        forking.execute(
            "INSERT INTO threadline_checkpoints SELECT pool, %s, namespace, id, parent, %s, form, document, "
            "metadata_form, metadata, step, source, run_id, created, searchable FROM threadline_checkpoints",
            (serial, chunk(1).digest),
        )
        forking.commit()
        assert collecting.result(30) == 1
    assert digests_in(saver, pool) == [chunk(1).digest]
    assert admin.execute("SELECT DISTINCT epoch FROM threadline_threads").fetchall() == [(1,)]


def test_forks_puts_collections_and_deletions_never_lock_each_other_out(connect, admin):
    """Every deadlock would be a second of waiting, and an error that is tried again."""
    database = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    [before] = admin.execute(database).fetchone()
    savers = [connect(pool_size=2) for _ in range(6)]
    apply(savers[0], Change(thread_id="origin", now=1.0, checkpoints=[row("0")]))
    pool = ask(savers[0], "thread", "origin").pool
    numbers = itertools.count()

    def work(n):
        saver = savers[n]
        for turn in range(25):
            name = f"{n}-{turn}"
            chunks = [chunk(digit) for digit in range(6)][:: 1 if n % 2 else -1]
            fork = Change(
                thread_id=name, now=1.0, joins="origin", checkpoints=[row("1", chunk(1).digest)], chunks=chunks
            )
            stamp = apply(saver, fork)[0].stamp
            for thread_id in ("origin", name):
                put = Change(thread_id=thread_id, now=100.0 * next(numbers), stamp=stamp, chunks=chunks)
                put.checkpoints = [row("2", chunk(2).digest)]
                apply(saver, put)
            both = [Change(thread_id=one, now=1e6, checkpoints=[row("3")]) for one in (name, "origin")]
            apply(saver, *both[:: 1 if turn % 2 else -1])
            if turn % 5 == n % 5:
                ask(saver, "collect", pool, [one.digest for one in chunks], set())
            if turn % 2:
                ask(saver, "remove_thread", name, "9", 1.0)
                apply(saver, Change(thread_id=name, now=1.0, joins="origin", checkpoints=[row("91")]))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))
    assert admin.execute(database).fetchone() == (before,)
    assert {chunk(1).digest, chunk(2).digest} <= set(digests_in(savers[0], pool))


def test_a_given_connection_may_forget_what_was_prepared(postgres_url, schema):
    with psycopg.connect(postgres_url, autocommit=True) as given:
        saver = threadline.connect(connection=given, schema=schema)
        at = place("t")
        for step in range(1, 5):
            made = checkpoint({"n": step}, {"n": step})
            at = saver.put(at, made, {"source": "loop", "step": step}, {"n": step})
            assert saver.get(place("t"))["channel_values"] == {"n": step}
            if step % 2 == 0:
                given.execute("DISCARD ALL")
        assert len(list(saver.list(place("t")))) == 4


@pytest.mark.parametrize("half", ["sync", "async"])
def test_what_the_server_refuses_leaves_the_connection_usable(connect, admin, half):
    saver = connect(pool_size=1, retry=None)
    apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("0")]))
    admin.execute("ALTER TABLE threadline_checkpoints ADD CONSTRAINT refused CHECK (id <> 'bad')")
    good, bad = (Change(thread_id="t", now=1.0, continues="0", checkpoints=[row(id)]) for id in ("good", "bad"))

    def put(change):
        if half == "sync":
            return apply(saver, change)

        async def call():
            try:
                return await saver._engine.arun(lambda backend: backend.apply([change]))
            finally:
                await saver._engine.aclose_loop()

        return asyncio.run(call())

    for _ in range(2):
        with pytest.raises(threadline.InvalidRequest, match="refused"):
            put(bad)
        assert isinstance(put(good)[0], Applied)


def test_of_tasks_that_put_together_one_that_is_refused_harms_no_other(connect, admin):
    saver = connect()
    apply(saver, Change(thread_id="t", now=1.0, checkpoints=[row("0")]))
    admin.execute("ALTER TABLE threadline_checkpoints ADD CONSTRAINT refused CHECK (id <> 'bad')")

    async def put_all():
        changes = [Change(thread_id=f"t{n}", now=1.0, checkpoints=[row("bad" if n == 7 else "1")]) for n in range(20)]
        puts = [saver._engine.arun(lambda backend, one=one: backend.apply([one])) for one in changes]
        told = await asyncio.gather(*puts, return_exceptions=True)
        await saver.aclose()
        return told

    told = asyncio.run(put_all())
    assert [n for n, one in enumerate(told) if isinstance(one, threadline.InvalidRequest)] == [7]
    assert admin.execute("SELECT count(*) FROM threadline_checkpoints").fetchone() == (20,)
