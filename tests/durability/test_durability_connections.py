"""Connections that users bring along, databases in memory, and many savers on one file."""

import asyncio
import sqlite3
import threading

import aiosqlite
import lives
import pytest

import threadline
from threadline.langgraph import AsyncSqliteSaver, SqliteSaver


def as_dict(cursor, row):
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.fixture
def given(database):
    connection = sqlite3.connect(database, check_same_thread=False)
    yield connection
    connection.close()


def write_and_check(half, saver, thread_id="t", steps=3):
    for step in range(steps):
        half.call(saver, "put", *lives.put_arguments(thread_id, step))
        half.call(saver, "put_writes", *lives.write_arguments(thread_id, step, "task-a"))
        assert lives.check(half.call(saver, "get_tuple", lives.config(thread_id)), thread_id) == step
    listed = half.listed(saver, lives.config(thread_id))
    assert [lives.check(found, thread_id) for found in listed] == list(reversed(range(steps)))


@pytest.mark.parametrize("row_factory", [None, sqlite3.Row, as_dict], ids=["none", "Row", "dict"])
def test_a_given_connection_may_make_its_rows_into_anything(given, connect, database, half, row_factory):
    given.row_factory = row_factory
    saver = SqliteSaver(given)
    write_and_check(half, saver)
    assert half.call(saver, "stats").checkpoints == 3
    assert half.call(saver, "health").ok
    assert given.row_factory is row_factory
    write_and_check(half, connect(database), "other")


def test_a_given_connection_that_makes_text_into_bytes_works_or_is_refused_by_name(given, half):
    given.text_factory = bytes
    try:
        write_and_check(half, SqliteSaver(given))
    except threadline.InvalidRequest as refused:
        assert "text_factory" in str(refused)  # noqa: PT017 - either is right, a TypeError from within is not
    assert given.text_factory is bytes


@pytest.mark.parametrize("isolation_level", ["", None, "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_a_given_connection_may_have_any_isolation_level(database, half, isolation_level):
    connection = sqlite3.connect(database, isolation_level=isolation_level, check_same_thread=False)
    write_and_check(half, SqliteSaver(connection))
    assert not connection.in_transaction
    connection.close()


def test_a_given_connection_inside_a_transaction_is_a_conflict_and_stays_its_owners(given, half, connect, database):
    saver = SqliteSaver(given)
    half.call(saver, "put", *lives.put_arguments("t", 0))
    given.execute("CREATE TABLE mine (x)")
    given.commit()
    given.execute("INSERT INTO mine VALUES (1)")
    assert given.in_transaction
    with pytest.raises(threadline.Conflict, match="transaction"):
        half.call(saver, "put", *lives.put_arguments("t", 1))
    with pytest.raises(threadline.Conflict, match="transaction"):
        half.call(saver, "delete_thread", "t")
    assert given.in_transaction
    given.rollback()
    assert given.execute("SELECT count(*) FROM mine").fetchone() == (0,)
    half.call(saver, "put", *lives.put_arguments("t", 1))
    assert lives.check(half.call(connect(database), "get_tuple", lives.config("t")), "t") == 1


def test_a_first_use_inside_a_transaction_is_a_conflict_too(given, half):
    given.execute("CREATE TABLE mine (x)")
    given.execute("INSERT INTO mine VALUES (1)")
    with pytest.raises(threadline.Conflict, match="transaction"):
        half.call(SqliteSaver(given), "put", *lives.put_arguments("t", 0))
    given.commit()
    assert given.execute("SELECT x FROM mine").fetchall() == [(1,)]
    write_and_check(half, SqliteSaver(given))


def test_a_given_connection_is_not_closed_by_its_saver(given, half):
    saver = SqliteSaver(given)
    write_and_check(half, saver)
    half.call(saver, "close")
    with pytest.raises(threadline.Closed):
        half.call(saver, "get_tuple", lives.config("t"))
    assert given.execute("SELECT count(*) FROM threadline_checkpoints").fetchone() == (3,)


def test_a_given_connection_that_was_closed_is_said_to_be(given, half):
    saver = SqliteSaver(given)
    write_and_check(half, saver)
    given.close()
    with pytest.raises(threadline.Closed, match="closed"):
        half.call(saver, "get_tuple", lives.config("t"))
    with pytest.raises(threadline.Closed, match="closed"):
        half.call(saver, "put", *lives.put_arguments("t", 3))


def test_a_given_connection_bound_to_its_thread_says_so_elsewhere(database):
    connection = sqlite3.connect(database)
    saver = SqliteSaver(connection)
    saver.put(*lives.put_arguments("t", 0))
    raised = []

    def elsewhere():
        with pytest.raises(threadline.InvalidRequest, match="thread") as caught:
            saver.put(*lives.put_arguments("t", 1))
        raised.append(caught.value)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert raised
    write_and_check(_Sync(), saver)
    connection.close()


def test_os_threads_share_a_given_connection(given, in_threads, switch_often):
    saver = SqliteSaver(given)
    in_threads(*(lambda n=n: write_and_check(_Sync(), saver, f"t-{n}", 5) for n in range(6)))


def test_a_given_aiosqlite_connection_serves_many_tasks(connect, database):
    async def write(saver, thread_id):
        for step in range(4):
            await saver.aput(*lives.put_arguments(thread_id, step))
            await saver.aput_writes(*lives.write_arguments(thread_id, step, "task-a"))
            assert lives.check(await saver.aget_tuple(lives.config(thread_id)), thread_id) == step

    async def main():
        async with aiosqlite.connect(database) as connection:
            connection.row_factory = aiosqlite.Row
            saver = AsyncSqliteSaver(connection)
            await asyncio.gather(*(write(saver, f"t-{n}") for n in range(8)))
            await connection.execute("CREATE TABLE mine (x)")
            await connection.execute("INSERT INTO mine VALUES (1)")
            with pytest.raises(threadline.Conflict, match="transaction"):
                await saver.aput(*lives.put_arguments("t-0", 4))
            await connection.rollback()
            await saver.aclose()
            with pytest.raises(threadline.Closed):
                await saver.aget_tuple(lives.config("t-0"))
            async with connection.execute("SELECT count(*) FROM threadline_checkpoints") as cursor:
                assert (await cursor.fetchone())[0] == 32

    asyncio.run(main())
    reader = connect(database)
    for n in range(8):
        assert [lives.check(found, f"t-{n}") for found in reader.list(lives.config(f"t-{n}"))] == [3, 2, 1, 0]


def test_the_sync_half_over_aiosqlite_works_elsewhere_and_refuses_to_wait_for_itself(database):
    async def main():
        async with aiosqlite.connect(database) as connection:
            saver = AsyncSqliteSaver(connection)
            await saver.aput(*lives.put_arguments("t", 0))
            with pytest.raises(threadline.InvalidRequest, match="wait for itself"):
                saver.get_tuple(lives.config("t"))
            found = await asyncio.get_running_loop().run_in_executor(None, saver.get_tuple, lives.config("t"))
            assert lives.check(found, "t") == 0

    asyncio.run(main())


def test_a_database_in_memory_belongs_to_one_saver_and_serves_all_threads(connect, in_threads, half, switch_often):
    for url in (":memory:", "sqlite://", "sqlite:///:memory:"):
        saver, stranger = connect(url), connect(url)
        in_threads(*(lambda n=n: write_and_check(half, saver, f"t-{n}", 3) for n in range(4)))  # noqa: B023
        assert half.call(stranger, "get_tuple", lives.config("t-0")) is None
        assert half.call(saver, "count_threads") == 4


def test_memory_with_a_name_is_shared_and_without_one_is_private(connect, half, tmp_path):
    name = f"memory://{tmp_path.name}-{half.name}"
    first, second, private = connect(name), connect(name), connect("memory://")
    write_and_check(half, first)
    assert lives.check(half.call(second, "get_tuple", lives.config("t")), "t") == 2
    assert half.call(private, "get_tuple", lives.config("t")) is None
    first.close()
    with pytest.raises(threadline.Closed):
        half.call(first, "get_tuple", lives.config("t"))
    half.call(second, "put", *lives.put_arguments("t", 3))
    assert lives.check(half.call(connect(name), "get_tuple", lives.config("t")), "t") == 3


def test_twenty_savers_of_one_file_write_one_thread_in_turn(connect, database, half):
    savers = [connect(database) for _ in range(20)]
    for step in range(40):
        half.call(savers[step % 20], "put", *lives.put_arguments("t", step))
    for saver in savers:
        assert [lives.check(found, "t") for found in saver.list(lives.config("t"))] == list(reversed(range(40)))


def test_savers_of_one_file_with_different_prefixes_do_not_meet(connect, database, half):
    one, other = connect(database, table_prefix="one_"), connect(database, table_prefix="other_")
    half.call(one, "put", *lives.put_arguments("t", 0))
    assert half.call(other, "get_tuple", lives.config("t")) is None
    write_and_check(half, other)
    assert [lives.check(found, "t") for found in one.list(lives.config("t"))] == [0]


class _Sync:
    """The sync half, for tests that are about it."""

    def call(self, owner, verb, *args, **kwargs):
        return getattr(owner, verb)(*args, **kwargs)

    def listed(self, owner, *args, **kwargs):
        return list(owner.list(*args, **kwargs))
