"""A put is one packet, and one that is refused leaves nothing behind; rows come back from few columns as they were."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import lives
import pymysql
import pytest

from threadline.backends.mysql.backend import MysqlDatabase
from threadline.backends.mysql.binding import bound
from threadline.backends.mysql.errors import is_useless
from threadline.backends.mysql.packed import PackedStatements
from threadline.backends.mysql.put import PutStatements
from threadline.backends.mysql.schema import tables
from threadline.backends.mysql.wire import _read_count
from threadline.base.drive import run_now
from threadline.errors import Conflict
from threadline.ports.checkpoints import Applied, Change, CheckpointRow, ChunkRow, Query, Stale, Witness, WriteRow


@pytest.fixture
def backend(connect):
    saver = connect()
    saver.open()
    return saver._engine._blocking


@pytest.fixture
def packets(monkeypatch):
    """The statements of every packet that a blocking connection sends."""
    sent, send = [], pymysql.connections.Connection._execute_command

    def noting(connection, command, sql):
        sent.append(bytes(sql).split(b";") if not isinstance(sql, str) else [sql])
        return send(connection, command, sql)

    monkeypatch.setattr(pymysql.connections.Connection, "_execute_command", noting)
    return sent


def row(id, parent=None, **more):
    values = {"links": b"", "form": 0, "document": b"d", "metadata_form": 0, "metadata": b"m", "step": -1}
    others = {"source": None, "run_id": None, "created": 1767323045.6789012, "searchable": None}
    return CheckpointRow("", id, parent, **{**values, **others, **more})


def write(id, index, data=b"w"):
    return WriteRow("", id, "task", index, "", "channel", b"", 0, data)


def chunk(letter, data=b"x"):
    return ChunkRow(letter * 16, b"", 0, data)


def begun(backend, **more):
    """A thread with a checkpoint, and the stamp under which its chunk is known."""
    change = Change(thread_id="t", now=1.0, chunks=[chunk(b"a")], checkpoints=[row("1")], **more)
    [applied] = run_now(backend.apply([change]))
    return applied.stamp


def after(stamp, **more):
    """A change that brings something for every table."""
    values = {
        "now": 2.0,
        "chunks": [chunk(b"b"), chunk(b"c")],
        "moved": [chunk(b"a", b"pointer")],
        "checkpoints": [row("2")],
        "writes": [write("2", 0), write("2", 1)],
        "witnesses": [Witness("", "1", 1767323045.6789012)],
    }
    return Change(thread_id="t", stamp=stamp, **{**values, **more})


def contents(root, prefix):
    """Everything that is stored."""
    found = {}
    with root.cursor() as cursor:
        for table in tables(prefix):
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = sorted(map(repr, cursor.fetchall()))
    return found


def test_a_put_a_write_a_get_and_a_first_put_are_one_packet_each(connect, packets):
    saver = connect()
    saver.open()
    saver.get_tuple(lives.config("counted"))
    for step in range(3):
        packets.clear()
        saver.put(*lives.put_arguments("counted", step))
        assert len(packets) == 1
        assert packets[0][0] == b"START TRANSACTION"
        assert packets[0][-1] == b"COMMIT"
        packets.clear()
        saver.put_writes(*lives.write_arguments("counted", step, "task"))
        assert len(packets) == 1
        assert lives.check(saver.get_tuple(lives.config("counted")), "counted") == step
        packets.clear()
        saver.get_tuple(lives.config("counted"))
        assert [len(one) for one in packets] == [1]


def test_a_put_of_a_leased_thread_with_a_head_is_one_packet(backend, packets):
    stamp = begun(backend)
    assert run_now(backend.swap_lease("t", None, b"0123456789abcdef and more"))
    packets.clear()
    change = after(stamp, lease=b"0123456789abcdef", head=("", "1"))
    assert run_now(backend.apply([change])) == [Applied(stamp)]
    assert len(packets) == 1


REFUSED = {
    "the epoch has passed": lambda stamp: {"stamp": (stamp[0], stamp[1] + 1)},
    "another pool": lambda stamp: {"stamp": (stamp[0] + 1, stamp[1])},
    "another generation": lambda stamp: {"stamp": (stamp[0], stamp[1] + (1 << 48))},
    "a witness that was put again": lambda stamp: {"witnesses": [Witness("", "1", 1767323045.0)]},
    "a witness that is gone": lambda stamp: {
        "witnesses": [Witness("", "1", 1767323045.6789012), Witness("", "0", 1.0)]
    },
    "a head that moved": lambda stamp: {"head": ("", "0")},
    "a head where none was expected": lambda stamp: {"head": ("", None)},
    "a lease that was lost": lambda stamp: {"lease": b"0123456789abcdef"},
}


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("only_writes", [False, True], ids=["put", "writes"])
def test_a_refused_change_writes_nothing(backend, root, prefix, why, only_writes):
    stamp = begun(backend)
    run_now(backend.swap_lease("t", None, b"fedcba9876543210"))
    before = contents(root, prefix)
    less = {"chunks": [], "moved": [], "checkpoints": []} if only_writes else {}
    change = after(stamp, **less)
    for name, value in REFUSED[why](stamp).items():
        setattr(change, name, value)
    if change.head is not None or change.lease is not None:
        with pytest.raises(Conflict):
            run_now(backend.apply([change]))
    else:
        assert run_now(backend.apply([change])) == [Stale(stamp)]
    assert contents(root, prefix) == before
    # The connection is as good as before.
    assert run_now(backend.apply([after(stamp)])) == [Applied(stamp)]


# What comes first in a packet. Chunks and writes decide in their first row, before a checkpoint a query does.
FIRST = {
    "chunks": {},
    "moved chunks": {"chunks": []},
    "a checkpoint": {"chunks": [], "moved": []},
    "writes": {"chunks": [], "moved": [], "checkpoints": []},
    "a head": {"head": ("", "1")},
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize(
    "meanwhile", ["raises the epoch", "deletes the witness", "archives the thread", "changes nothing"]
)
def test_what_is_committed_while_a_put_waits_for_its_pool_is_seen(backend, root, prefix, first, meanwhile):
    stamp = begun(backend)
    what = {
        "raises the epoch": f"UPDATE {prefix}threads SET epoch = epoch + 1",
        "deletes the witness": f"DELETE FROM {prefix}checkpoints",
        "archives the thread": f"UPDATE {prefix}threads SET status = 'archived'",
        "changes nothing": "DO 1",
    }[meanwhile]
    if first == "a head" and meanwhile == "deletes the witness":
        pytest.skip("the head is gone with it")
    root.begin()
    root.query(f"SELECT pool FROM {prefix}pools FOR UPDATE")
    change = after(stamp, **FIRST[first])
    with ThreadPoolExecutor(1) as threads:
        putting = threads.submit(lambda: run_now(backend.apply([change])))
        time.sleep(0.3)
        assert not putting.done()
        root.query(what)
        root.commit()
        if meanwhile == "archives the thread":
            with pytest.raises(Conflict, match="archived"):
                putting.result(30)
            return
        [outcome] = putting.result(30)
    assert isinstance(outcome, Applied if meanwhile == "changes nothing" else Stale)
    assert (run_now(backend.find("t", "", "2")) is None) is (meanwhile != "changes nothing" or first == "writes")


def test_writes_alone_are_one_statement(backend, packets):
    stamp = begun(backend)
    run_now(backend.apply([after(stamp, now=100.0)]))  # which notes that the thread is in use
    packets.clear()
    change = after(stamp, chunks=[], moved=[], checkpoints=[], now=101.0)
    assert run_now(backend.apply([change])) == [Applied(stamp)]
    assert [len(one) for one in packets] == [1]
    assert run_now(backend.find("t", "", "2")).writes == [write("2", 0), write("2", 1)]


def test_many_who_note_at_once_that_a_thread_is_in_use_wait_for_each_other_in_one_direction(connect):
    savers = [connect(retry=None) for _ in range(6)]
    backends = [saver.open()._engine._blocking for saver in savers]
    stamp = begun(backends[0])

    def put(number):
        for turn in range(10):
            change = after(stamp, checkpoints=[row(f"{number}-{turn}")], now=100.0 * (turn + 1))
            assert run_now(backends[number].apply([change])) == [Applied(stamp)]

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(put, range(6)))


@pytest.mark.parametrize("status", ["archived", "deleted"])
def test_a_closed_thread_takes_nothing(backend, root, prefix, status):
    stamp = begun(backend)
    root.query(f"UPDATE {prefix}threads SET status = '{status}', deleted_before = '9'")
    before = contents(root, prefix)
    with pytest.raises(Conflict):
        run_now(backend.apply([after(stamp, continues="1")]))
    assert contents(root, prefix) == before


def test_a_thread_that_was_begun_anew_refuses_what_continues_its_former_life(backend, root, prefix):
    stamp = begun(backend)
    root.query(f"UPDATE {prefix}threads SET deleted_before = '5'")
    with pytest.raises(Conflict):
        run_now(backend.apply([after(stamp, continues="3")]))
    assert run_now(backend.apply([after(stamp, continues="7")])) == [Applied(stamp)]


def test_a_row_that_fails_in_the_middle_takes_the_rest_back(backend, root, prefix):
    stamp = begun(backend)
    root.query(f"ALTER TABLE {prefix}writes MODIFY channel VARBINARY(3) NOT NULL")
    before = contents(root, prefix)
    with pytest.raises(Exception, match="longer than its column"):
        run_now(backend.apply([after(stamp)]))
    assert contents(root, prefix) == before


def test_two_first_puts_of_one_thread_both_arrive(backend, root, prefix):
    one = Change(thread_id="t", now=1.0, chunks=[chunk(b"a")], checkpoints=[row("1")])
    two = Change(thread_id="t", now=2.0, chunks=[chunk(b"b")], checkpoints=[row("2")])
    [first], [second] = run_now(backend.apply([one])), run_now(backend.apply([two]))
    assert first.stamp == second.stamp
    assert {found.row.id for found in run_now(backend.page(Query(thread_id="t", as_they_lie=True)))} == {"1", "2"}
    assert run_now(backend.thread("t")).active == 1.0
    with root.cursor() as cursor:
        cursor.execute(f"SELECT pool, serial FROM {prefix}threads")
        assert cursor.fetchall() == ((first.stamp[0], first.stamp[0]),)
        cursor.execute(f"SELECT pool FROM {prefix}pools")
        assert cursor.fetchall() == ((first.stamp[0],),)


def test_the_same_change_again_is_harmless(backend):
    stamp = begun(backend)
    change = after(stamp)
    for _ in range(3):
        assert run_now(backend.apply([change])) == [Applied(stamp)]
    assert [one.row.id for one in run_now(backend.page(Query(thread_id="t", as_they_lie=True)))] == ["1", "2"]
    assert run_now(backend.find("t", "", "2")).writes == [write("2", 0), write("2", 1)]


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_a_moved_chunk_takes_the_place_of_its_row_or_is_added(backend, together):
    stamp = begun(backend)
    moved = [chunk(b"a", b"pointer"), chunk(b"n", b"new")]
    change = Change(thread_id="t", now=2.0, stamp=stamp, moved=moved, checkpoints=[row("2")])
    other = Change(thread_id="t", now=2.0, checkpoints=[row("3")])
    run_now(backend.apply([change, other] if together else [change]))
    found = run_now(backend.chunks(stamp[0], [b"a" * 16, b"n" * 16, b"none" * 4]))
    assert sorted(found) == sorted(map(tuple, moved))


def test_a_thread_is_noted_as_used_once_a_minute(backend):
    stamp = begun(backend)
    for now, noted in ((30.0, 1.0), (100.0, 100.0), (130.0, 100.0), (161.0, 161.0), (5.0, 161.0)):
        change = Change(thread_id="t", now=now, stamp=stamp, checkpoints=[row(f"at-{now}")])
        run_now(backend.apply([change]))
        assert run_now(backend.thread("t")).active == noted


def test_rows_that_the_server_leaves_out_of_few_columns_are_read_from_many(backend, monkeypatch):
    stamp = begun(backend)
    run_now(backend.apply([after(stamp)]))
    known = run_now(backend.find("t", "", None)), run_now(backend.chunks(stamp[0], [b"b" * 16]))
    query = MysqlDatabase.query

    async def left_out(database, statement):
        rows, epoch_base = await query(database, statement)
        return [(*one[:-1], None) for one in rows], epoch_base

    monkeypatch.setattr(MysqlDatabase, "query", left_out)
    assert (run_now(backend.find("t", "", None)), run_now(backend.chunks(stamp[0], [b"b" * 16]))) == known


def test_the_newest_checkpoint_is_found_without_reading_others(connect, root, prefix):
    """By age, those of all other threads would come first; by its highest id, those of the whole thread."""
    saver = connect()
    saver.open()
    backend, sql = saver._engine._blocking, saver._engine.sql
    for thread_id, ids in (("long", range(300)), ("newer", range(1000, 1300))):
        rows = [row(f"{id:06}", parent=f"{id - 1:06}") for id in ids]
        run_now(backend.apply([Change(thread_id=thread_id, now=1.0, checkpoints=rows)]))
    stamp = run_now(backend.thread("long")).stamp
    witness = Witness("", "000299", 1767323045.6789012)
    change = Change(thread_id="long", now=2.0, stamp=stamp, checkpoints=[row("000300")], witnesses=[witness])
    change.head = ("", "000299")
    put = PutStatements(sql).known(change, 0, touches=True)
    queries = [
        [PackedStatements(sql).find("long", "", None, with_writes=True)],
        [PackedStatements(sql).find("long", "", "000200", with_writes=True)],
        [bound(*sql.heads(["long"], ""))],
        [bound(*sql.newest_writes_of(["long"]))],
        put,
    ]
    with root.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {prefix}checkpoints, {prefix}threads, {prefix}writes")
        for statements in queries:
            cursor.execute("FLUSH STATUS")
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            assert sum(int(count) for _, count in cursor.fetchall()) < 100, statements
    assert run_now(backend.find("long", "", None)).row.id == "000300"
    newest = run_now(backend.heads(["long", "newer", "none"], ""))
    assert sorted(found.row.id for found in newest) == ["000300", "001299"]


@pytest.mark.parametrize("half", ["sync", "async"])
def test_every_session_of_ours_is_strict(connect, half):
    """A refused change relies on it: several rows with NULL would be taken otherwise."""
    engine, seen = connect()._engine, []

    async def look(wire):
        [modes] = await wire.send([b"SELECT @@sql_mode"])
        seen.append(modes.rows[0][0])

    async def on_loop():
        await engine.lent(engine.loops.here(), look)
        await engine.aclose()

    asyncio.run(on_loop()) if half == "async" else run_now(engine.lent(engine.blocking, look))
    assert "STRICT_ALL_TABLES" in seen[0]


def test_a_given_connection_that_is_not_strict_refuses_as_well(connect, root, prefix):
    root.query("SET SESSION sql_mode = ''")
    backend = connect(None, connection=root)._engine._blocking
    stamp = begun(backend)
    before = contents(root, prefix)
    change = after((stamp[0], stamp[1] + 1), chunks=[], moved=[], checkpoints=[])
    assert run_now(backend.apply([change])) == [Stale(stamp)]
    assert contents(root, prefix) == before
    assert run_now(backend.apply([after(stamp)])) == [Applied(stamp)]
    found = run_now(backend.find("t", "", None))
    assert (found.row, found.writes) == (row("2"), [write("2", 0), write("2", 1)])


def test_the_async_half_sends_the_same(connect, root, prefix):
    saver = connect()

    async def puts():
        for step in range(3):
            await saver.aput(*lives.put_arguments("loop", step))
            await saver.aput_writes(*lives.write_arguments("loop", step, "task"))
        found = await saver.aget_tuple(lives.config("loop"))
        await saver.aclose()
        return found

    found = asyncio.run(puts())
    assert lives.check(found, "loop") == 2
    assert found.pending_writes


@pytest.mark.parametrize("serial", [250, 251, 65_535, 65_536, 2**24, 2**40])
def test_the_key_of_a_new_thread_is_read_whatever_its_size(connect, root, prefix, serial):
    saver = connect()
    saver.open()
    root.query(f"ALTER TABLE {prefix}threads AUTO_INCREMENT = {serial}")
    for step in range(2):
        saver.put(*lives.put_arguments("t", step))
    with root.cursor() as cursor:
        cursor.execute(f"SELECT serial, pool FROM {prefix}threads")
        assert cursor.fetchall() == ((serial, serial),)
    assert lives.check(saver.get_tuple(lives.config("t")), "t") == 1


def test_a_count_is_read_from_what_the_server_says():
    assert _read_count(b"\0\1\2\x08\0\0\0") == (2, 8)
    assert _read_count(b"\0\xfc\1\1\xfd\1\0\1\x0a\1\0\0 words") == (0x010001, 0x010A)
    assert _read_count(b"\0\0\xfe\1\0\0\0\0\0\0\x80\2\0\0\0") == (2**63 + 1, 2)


@pytest.mark.parametrize("answer", [b"", b"\1", b"\0", b"\0\0\0\2", b"\0\xfc\1", b"\0\xfb\0\0\0\0\0", b"\xfbfile"])
def test_what_is_no_count_ends_the_connection(answer):
    with pytest.raises(pymysql.err.OperationalError) as raised:
        _read_count(answer)
    assert is_useless(raised.value)
