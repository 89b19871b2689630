"""Connections: given ones, lost ones, busy ones, those of a forked process and of several event loops."""

import asyncio
import itertools
import os
import threading

import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row

import threadline
from threadline import Closed, Conflict, InvalidRequest, Unavailable
from threadline.testing.making import checkpoint, place

VERSIONS = itertools.count(1)


def arguments(at, values):
    made = checkpoint(values, dict.fromkeys(values, next(VERSIONS)))
    return at, made, {"source": "input", "step": -1}, made["channel_versions"]


def put(saver, thread="t", **values):
    return saver.put(*arguments(place(thread), values or {"messages": ["a"]}))


def kill_all(admin, name="threadline-test"):
    """End every connection with this name, and wait until they are gone."""
    rows = admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s", (name,)
    ).fetchall()
    return len(rows)


@pytest.fixture
def named_url(postgres_url, schema):
    return f"{postgres_url}?application_name={schema[:20]}"


@pytest.mark.parametrize("options", [{}, {"autocommit": True}, {"autocommit": True, "row_factory": dict_row}])
def test_a_given_connection_is_used_as_it_is(options, postgres_url, schema):
    with psycopg.connect(postgres_url, **options) as given:
        saver = threadline.connect(connection=given, schema=schema)
        at = put(saver)
        saver.put(*arguments(at, {"messages": ["a", "b"]}))
        assert saver.get(place("t"))["channel_values"] == {"messages": ["a", "b"]}
        assert given.autocommit is options.get("autocommit", False)
        assert given.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        saver.close()
        assert not given.closed
        assert given.execute("SELECT 1 AS one").fetchone() in ((1,), {"one": 1})
        with pytest.raises(Closed):
            saver.get(place("t"))


def test_a_given_connection_serves_several_threads_one_at_a_time(postgres_url, schema):
    with psycopg.connect(postgres_url, autocommit=True) as given:
        saver = threadline.connect(connection=given, schema=schema)
        workers = [threading.Thread(target=lambda n=n: [put(saver, f"t{n}") for _ in range(5)]) for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert saver.count_threads() == 4


def test_a_given_connection_inside_a_transaction_is_refused(postgres_url, schema):
    with psycopg.connect(postgres_url) as given:
        saver = threadline.connect(connection=given, schema=schema)
        given.execute("SELECT 1")
        with pytest.raises(Conflict, match="commit"):
            put(saver)
        given.rollback()
        put(saver)


def test_a_given_connection_that_was_closed_is_named(postgres_url, schema):
    given = psycopg.connect(postgres_url)
    saver = threadline.connect(connection=given, schema=schema)
    put(saver)
    given.close()
    with pytest.raises(Closed, match="given"):
        put(saver)


def test_a_given_pool_is_used_and_left_open(postgres_url, schema):
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=2, open=True) as given:
        saver = threadline.connect(pool=given, schema=schema)
        put(saver)
        assert saver.get(place("t")) is not None
        saver.close()
        with given.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.autocommit is False


@pytest.mark.parametrize("kind", ["connection", "pool"])
def test_what_is_given_for_the_async_half_serves_it_alone(kind, postgres_url, schema):
    async def use():
        if kind == "pool":
            given = psycopg_pool.AsyncConnectionPool(postgres_url, min_size=1, max_size=2, open=False)
            await given.open()
        else:
            given = await psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
        saver = threadline.connect(**{kind: given}, schema=schema)
        await asyncio.gather(*[saver.aput(*arguments(place(f"t{n}"), {"n": n})) for n in range(4)])
        found = [(await saver.aget(place(f"t{n}")))["channel_values"] for n in range(4)]
        with pytest.raises(InvalidRequest, match="sync half"):
            saver.get(place("t0"))
        await saver.aclose()
        assert not given.closed
        await given.close()
        return found

    assert asyncio.run(use()) == [{"n": n} for n in range(4)]


def test_what_is_given_for_the_sync_half_does_not_serve_the_other(postgres_url, schema):
    with psycopg.connect(postgres_url) as given:
        saver = threadline.connect(connection=given, schema=schema)
        with pytest.raises(InvalidRequest, match="async half"):
            asyncio.run(saver.aget(place("t")))


def test_both_halves_of_one_saver_see_the_same(connect):
    saver = connect()
    put(saver)

    async def read():
        found = await saver.aget(place("t"))
        await saver.aput(*arguments(place("u"), {"x": 1}))
        return found

    assert asyncio.run(read())["channel_values"] == {"messages": ["a"]}
    assert saver.get(place("u"))["channel_values"] == {"x": 1}


def test_one_saver_serves_several_event_loops(connect):
    saver = connect()
    for turn in range(3):
        asyncio.run(saver.aput(*arguments(place(f"t{turn}"), {"x": turn})))
    found = [asyncio.run(saver.aget(place(f"t{turn}")))["channel_values"] for turn in range(3)]
    assert found == [{"x": 0}, {"x": 1}, {"x": 2}]
    results = []
    workers = [
        threading.Thread(target=lambda n=n: results.append(asyncio.run(saver.aget(place(f"t{n}"))))) for n in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found["channel_values"]["x"] for found in results) == [0, 1, 2]


def test_more_tasks_than_connections_take_turns(connect):
    saver = connect(pool_size=2)

    async def put_all():
        await asyncio.gather(*[saver.aput(*arguments(place(f"t{n}"), {"x": n})) for n in range(30)])
        count = await saver.acount_threads()
        await saver.aclose()
        return count

    assert asyncio.run(put_all()) == 30


def test_a_cancelled_put_leaves_its_connection_usable(connect):
    saver = connect(pool_size=1)

    async def cancel_some():
        await saver.aput(*arguments(place("t"), {"x": 0}))
        for turn in range(10):
            task = asyncio.create_task(saver.aput(*arguments(place(f"u{turn}"), {"x": ["a" * 1000] * 500})))
            await asyncio.sleep(0.001 * turn)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        found = await saver.aget(place("t"))
        await saver.aclose()
        return found

    assert asyncio.run(cancel_some())["channel_values"] == {"x": 0}


def test_a_forked_process_opens_connections_of_its_own(connect, admin):
    saver = connect()
    put(saver)
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            put(saver, "child")
            os.write(writable, repr(saver.get(place("t"))["channel_values"]).encode())
        finally:
            os._exit(0)
    os.close(writable)
    put(saver, "parent")
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(readable, 1000) == b"{'messages': ['a']}"
    put(saver, "after")
    assert sorted(info.thread_id for info in saver.threads()) == ["after", "child", "parent", "t"]


def test_connections_that_the_server_ended_are_replaced(named_url, schema, admin):
    saver = threadline.connect(named_url, schema=schema)
    at = put(saver)
    for step in range(5):
        assert kill_all(admin, schema[:20]) >= 1
        at = saver.put(*arguments(at, {"messages": ["a"] * (step + 2)}))
        kill_all(admin, schema[:20])
        assert len(saver.get(place("t"))["channel_values"]["messages"]) == step + 2
    assert len(list(saver.list(place("t")))) == 6
    saver.close()


def test_async_connections_that_the_server_ended_are_replaced(named_url, schema, admin):
    async def work():
        saver = threadline.connect(named_url, schema=schema)
        at = await saver.aput(*arguments(place("t"), {"messages": ["a"]}))
        for step in range(5):
            assert kill_all(admin, schema[:20]) >= 1
            at = await saver.aput(*arguments(at, {"messages": ["a"] * (step + 2)}))
        found = [one async for one in saver.alist(place("t"))]
        await saver.aclose()
        return found

    assert len(asyncio.run(work())) == 6


def test_a_put_whose_connection_dies_while_it_waits_is_made_once(named_url, schema, admin, connect):
    saver = threadline.connect(named_url, schema=schema, pool_size=1)
    at = put(saver)
    admin.execute("BEGIN; SELECT 1 FROM threadline_threads FOR UPDATE")
    writer = threading.Thread(target=lambda: saver.put(*arguments(at, {"messages": ["a", "b"]})))
    writer.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    while admin.execute(waiting, (schema[:20],)).fetchone() != (1,):
        pass
    kill_all(admin, schema[:20])
    admin.execute("COMMIT")
    writer.join(60)
    assert not writer.is_alive()
    assert len(list(saver.list(place("t")))) == 2
    assert connect().get(place("t"))["channel_values"] == {"messages": ["a", "b"]}
    saver.close()


def test_chunks_lost_with_the_server_are_sent_again(named_url, schema, admin, connect):
    """What a server acknowledged and lost in a failover must not be relied on by the next put."""
    saver = threadline.connect(named_url, schema=schema)
    messages = [f"message {n} " * 40 for n in range(50)]
    at = put(saver, messages=messages)
    admin.execute("DELETE FROM threadline_chunks")
    kill_all(admin, schema[:20])
    at = saver.put(*arguments(at, {"messages": [*messages, "one more"]}))
    assert connect().get(at)["channel_values"]["messages"] == [*messages, "one more"]
    saver.close()


def test_chunks_lost_with_another_server_behind_a_proxy_are_sent_again(named_url, schema, admin, connect):
    saver = threadline.connect(named_url, schema=schema)
    messages = [f"message {n} " * 40 for n in range(50)]
    at = put(saver, messages=messages)
    admin.execute("DELETE FROM threadline_chunks")
    saver._engine.identity.server -= 1.0  # as if the server had been started since
    at = saver.put(*arguments(at, {"messages": [*messages, "one more"]}))
    assert connect().get(at)["channel_values"]["messages"] == [*messages, "one more"]
    saver.close()


def test_a_pool_that_is_too_small_is_named(named_url, schema, admin):
    saver = threadline.connect(named_url, schema=schema, pool_size=1, timeout=0.2, retry=None)
    put(saver)
    # Whoever reads waits for this lock for longer than for a connection.
    admin.execute("BEGIN; LOCK TABLE threadline_checkpoints IN ACCESS EXCLUSIVE MODE")
    reader = threading.Thread(target=lambda: saver.get(place("t")))
    reader.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    while admin.execute(waiting, (schema[:20],)).fetchone() != (1,):
        pass
    try:
        with pytest.raises(Unavailable, match="pool_size"):
            saver.get(place("t"))
    finally:
        admin.execute("COMMIT")
        reader.join(60)
    assert saver.get(place("t")) is not None
    saver.close()


def test_a_closed_saver_says_so(connect):
    saver = connect()
    put(saver)
    saver.close()
    saver.close()
    with pytest.raises(Closed):
        saver.get(place("t"))
    with pytest.raises(Closed):
        asyncio.run(saver.aget(place("t")))


def test_no_connection_is_left_behind(named_url, schema, admin):
    saver = threadline.connect(named_url, schema=schema)
    put(saver)

    async def use():
        await saver.aget(place("t"))
        await saver.aclose()

    asyncio.run(use())
    here = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    for _ in range(100):
        if admin.execute(here, (schema[:20],)).fetchone() == (0,):
            break
        threading.Event().wait(0.05)
    assert admin.execute(here, (schema[:20],)).fetchone() == (0,)


class TimeIsOver(Exception):
    """What the soft time limit of a worker raises."""


def test_an_interrupt_that_psycopg_takes_for_a_wrong_number_stays_an_interrupt(connect, monkeypatch):
    def interrupted(_):
        raise TimeIsOver

    saver = connect()
    with monkeypatch.context() as patched:
        patched.setattr(psycopg.conninfo, "float", interrupted, raising=False)
        with pytest.raises(TimeIsOver):
            saver.get_tuple({"configurable": {"thread_id": "t"}})
    assert saver.get_tuple({"configurable": {"thread_id": "t"}}) is None
