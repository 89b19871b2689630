"""Connections: dropped, killed, given, exhausted, inherited by a fork; and logins that are refused."""

import asyncio
import gc
import itertools
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import aiomysql
import lives
import pymysql
import pytest
from pymysql.constants import CLIENT

import threadline
from threadline.backends.lending import Pool
from threadline.backends.mysql.pools import MysqlDriver
from threadline.backends.mysql.wire import ServerRun, Wire
from threadline.backends.server import ServerIdentity, exhausted, watching
from threadline.base.drive import run_now
from threadline.errors import Closed, Conflict, InvalidRequest, Unavailable
from threadline.langgraph import PyMySQLSaver

SECRET = "s3cret/p@ss"


def parameters(url):
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": parts.username or "root",
        "password": parts.password or "",
    }


def kill_all(root):
    """End every other connection to this database; returns how many there were."""
    with root.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
        found = cursor.fetchall()
        for (number,) in found:
            with suppress(pymysql.err.OperationalError):  # gone by itself meanwhile
                cursor.execute(f"KILL {number}")
    return len(found)


def test_idle_connections_that_the_server_dropped_are_replaced(connect, root):
    saver = connect(retry=None)
    saver.put(*lives.put_arguments("idle", 0))
    for step in range(1, 4):
        assert kill_all(root)
        threading.Event().wait(0.05)
        saver.put(*lives.put_arguments("idle", step))
        assert kill_all(root)
        threading.Event().wait(0.05)
        assert lives.check(saver.get_tuple(lives.config("idle")), "idle") == step


def test_idle_connections_that_the_server_dropped_are_replaced_on_a_loop(connect, root):
    saver = connect(retry=None)

    async def use():
        await saver.aput(*lives.put_arguments("idle", 0))
        for step in range(1, 4):
            assert kill_all(root)
            await asyncio.sleep(0.05)
            await saver.aput(*lives.put_arguments("idle", step))
            assert kill_all(root)
            await asyncio.sleep(0.05)
            assert lives.check(await saver.aget_tuple(lives.config("idle")), "idle") == step
        await saver.aclose()

    asyncio.run(use())


@pytest.mark.parametrize("half", ["sync", "async"])
def test_connections_killed_in_the_middle_lose_nothing_and_apply_nothing_twice(connect, root, half):
    saver = connect(retry=(20, 60))
    saver.open()
    done, went_on, kills = threading.Event(), threading.Event(), []

    def killing():
        # A put takes as long as the machine lets it: each is killed some times, and none for ever.
        while not done.wait(0.02):
            kill_all(root)
            kills.append(1)
            if len(kills) % 5 == 0:
                went_on.clear()
                went_on.wait(5)

    def steps():
        # However fast the machine is: until some of them were killed.
        yield from range(60)
        yield from itertools.takewhile(lambda _: len(kills) < 10, itertools.count(60))

    async def put_all():
        for step in steps():
            await saver.aput(*lives.put_arguments("killed", step))
            went_on.set()
        await saver.aclose()

    killer = threading.Thread(target=killing)
    killer.start()
    try:
        if half == "async":
            asyncio.run(put_all())
        else:
            for step in steps():
                saver.put(*lives.put_arguments("killed", step))
                went_on.set()
    finally:
        done.set()
        went_on.set()
        killer.join()
    assert len(kills) >= 10
    found = [lives.check(one, "killed") for one in connect().list(lives.config("killed"))]
    assert len(found) >= 60
    assert found == list(range(len(found) - 1, -1, -1))


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("change", ["another server", "a restart", "killed connections"])
def test_what_was_known_before_a_server_was_lost_is_asked_again(connect, root, half, change):
    """Chunks that a former server acknowledged are not left out of a put to the one that took over."""
    saver = connect(pool_size=2)
    put = {"sync": saver.put, "async": lambda *args: asyncio.run(saver.aput(*args))}[half]
    put(*lives.put_arguments("t", 0))
    identity, chunks = saver._engine.identity, f"{saver._engine.prefix}chunks"
    with root.cursor() as cursor:
        cursor.execute(f"SELECT digest FROM {chunks}")
        replicated = [digest for (digest,) in cursor.fetchall()]
        put(*lives.put_arguments("t", 1))
        # The second put had not reached the replica.
        cursor.execute(f"DELETE FROM {chunks} WHERE digest NOT IN %s", (replicated,))
        assert cursor.rowcount > 0
        cursor.execute(f"DELETE FROM {saver._engine.prefix}checkpoints WHERE id = %s", (lives.id_of(1),))
        assert cursor.rowcount == 1
        root.commit()
    if change == "another server":
        identity.server = ServerRun(("elsewhere", 3306, 7), identity.server.started)
    elif change == "a restart":
        identity.server = ServerRun(identity.server.name, identity.server.started - 3600)
    if change == "killed connections" and half == "sync":
        kill_all(root)
        threading.Event().wait(0.05)
    elif change == "killed connections":
        identity.lose()  # as another loop would have noticed
    else:
        saver._engine.blocking.drop_idle()
    put(*lives.put_arguments("t", 1))
    assert identity.generation > 0
    assert lives.check(connect().get_tuple(lives.config("t", lives.id_of(1))), "t") == 1


def test_an_exhausted_pool_names_its_size(connect):
    saver = connect(pool_size=1, timeout=0.2, retry=None)
    saver.open()

    async def meanwhile(connection):
        with pytest.raises(Unavailable, match="pool_size"):
            saver.get_tuple(lives.config("any"))

    run_now(saver._engine.blocking.lend(meanwhile))
    assert saver.get_tuple(lives.config("any")) is None


def test_an_exhausted_pool_names_its_size_on_a_loop(connect):
    saver = connect(pool_size=1, timeout=0.2, retry=None)

    async def use():
        async def meanwhile(connection):
            with pytest.raises(Unavailable, match="pool_size"):
                await saver.aget_tuple(lives.config("any"))

        await saver.aopen()
        await saver._engine.loops.here().lend(meanwhile)
        assert await saver.aget_tuple(lives.config("any")) is None
        await saver.aclose()

    asyncio.run(use())


def test_a_task_that_was_cancelled_leaves_no_connection_behind(connect):
    saver = connect(pool_size=1, retry=None)

    async def use():
        await saver.aput(*lives.put_arguments("cancelled", 0))
        for step in range(1, 30):
            task = asyncio.create_task(saver.aput(*lives.put_arguments("cancelled", step)))
            for _ in range(step % 10):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await saver.aput(*lives.put_arguments("cancelled", step))
        found = [lives.check(one, "cancelled") async for one in saver.alist(lives.config("cancelled"))]
        assert found == list(range(29, -1, -1))
        await saver.aclose()

    asyncio.run(use())


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_function_that_gives_connections_is_asked_for_each_piece_of_work(mysql_url, prefix, half):
    """As the `connect` of a pool: what it gave is closed after use, which a pool takes for given back."""
    given = []

    def give():
        given.append(pymysql.connect(**parameters(mysql_url), database=urlsplit(mysql_url).path[1:], autocommit=True))
        return given[-1]

    saver = PyMySQLSaver(give, table_prefix=prefix)
    if half == "sync":
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda step: saver.put(*lives.put_arguments("t", step)), range(8)))
    else:

        async def put_all():
            await asyncio.gather(*(saver.aput(*lives.put_arguments("t", step)) for step in range(8)))

        asyncio.run(put_all())
    assert [lives.check(found, "t") for found in saver.list(lives.config("t"))] == list(range(7, -1, -1))
    assert len(given) > 8
    assert not any(connection.open for connection in given)
    saver.close()
    with pytest.raises(Closed):
        saver.get_tuple(lives.config("t"))


def test_a_connection_and_a_pool_are_too_much():
    given = pymysql.connect(host="127.0.0.1", defer_connect=True)
    with pytest.raises(InvalidRequest, match="not both"):
        threadline.connect(connection=given, pool=lambda: given)


@pytest.mark.parametrize("flags", [0, CLIENT.MULTI_STATEMENTS, CLIENT.FOUND_ROWS])
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_given_connection_is_used_and_left_open(mysql_url, prefix, flags, autocommit):
    database = urlsplit(mysql_url).path[1:]
    given = pymysql.connect(
        **parameters(mysql_url),
        database=database,
        autocommit=autocommit,
        client_flag=flags,
        cursorclass=pymysql.cursors.DictCursor,
        init_command="SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
    )
    saver = threadline.connect(connection=given, table_prefix=prefix)
    for step in range(5):
        saver.put(*lives.put_arguments("it's \\ 'given'", step))
        saver.put_writes(*lives.write_arguments("it's \\ 'given'", step, "task-a"))
    assert [lives.check(one, "it's \\ 'given'") for one in saver.list(lives.config("it's \\ 'given'"))] == [
        4,
        3,
        2,
        1,
        0,
    ]
    thread = saver.thread("it's \\ 'given'")
    assert asyncio.run(saver.aget_tuple(lives.config("it's \\ 'given'"))) is not None
    assert thread is not None
    saver.delete_thread("it's \\ 'given'")
    saver.close()
    with pytest.raises(Closed):
        saver.get_tuple(lives.config("any"))
    assert given.open
    with given.cursor() as cursor:
        cursor.execute("SELECT 1 AS one")
        assert cursor.fetchone() == {"one": 1}
    given.close()


@pytest.mark.parametrize("method", ["_read_query_result", "_execute_command"])
def test_a_given_connection_that_was_interrupted_between_question_and_answer_is_closed(
    mysql_url, prefix, monkeypatch, method
):
    """The answer of one call must never be taken for that of the next."""
    given = pymysql.connect(**parameters(mysql_url), database=urlsplit(mysql_url).path[1:], autocommit=True)
    saver = threadline.connect(connection=given, table_prefix=prefix)
    for thread_id in ("a", "b"):
        saver.put(*lives.put_arguments(thread_id, 0))
    original = getattr(pymysql.connections.Connection, method)

    def interrupted(self, *args, **options):
        if method == "_execute_command":
            original(self, *args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pymysql.connections.Connection, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            saver.get_tuple(lives.config("a"))
    with pytest.raises(Closed):
        saver.get_tuple(lives.config("b"))
    assert not given.open


def test_a_given_connection_inside_a_transaction_is_refused(mysql_url, prefix, connect):
    connect().open()
    given = pymysql.connect(**parameters(mysql_url), database=urlsplit(mysql_url).path[1:], autocommit=True)
    saver = threadline.connect(connection=given, table_prefix=prefix)
    saver.open()
    given.begin()
    with pytest.raises(Conflict, match="commit it"):
        saver.put(*lives.put_arguments("given", 0))
    given.rollback()
    saver.put(*lives.put_arguments("given", 0))
    given.close()
    with pytest.raises(Closed):
        saver.get_tuple(lives.config("given"))


@pytest.mark.parametrize("kind", ["connection", "pool"])
def test_what_aiomysql_made_is_used_on_its_loop_and_left_open(mysql_url, prefix, kind):
    async def use():
        database = urlsplit(mysql_url).path[1:]
        if kind == "pool":
            given = await aiomysql.create_pool(**parameters(mysql_url), db=database, maxsize=2)
        else:
            given = await aiomysql.connect(**parameters(mysql_url), db=database, cursorclass=aiomysql.DictCursor)
        saver = threadline.connect(**{kind: given}, table_prefix=prefix)
        for step in range(3):
            await saver.aput(*lives.put_arguments("given", step))
        await asyncio.gather(*[saver.aget_tuple(lives.config("given")) for _ in range(5)])
        assert [lives.check(one, "given") async for one in saver.alist(lives.config("given"))] == [2, 1, 0]
        with pytest.raises(InvalidRequest, match="async"):
            saver.get_tuple(lives.config("given"))
        await saver.aclose()
        assert not given._closed if kind == "pool" else not given.closed
        given.close()
        if kind == "pool":
            await given.wait_closed()

    asyncio.run(use())


def test_one_saver_serves_several_loops_and_threads(connect):
    saver = connect()
    for step in range(3):
        asyncio.run(saver.aput(*lives.put_arguments("loops", 2 * step)))
        saver.put(*lives.put_arguments("loops", 2 * step + 1))
    assert [lives.check(one, "loops") for one in saver.list(lives.config("loops"))] == [5, 4, 3, 2, 1, 0]


def test_a_forked_process_opens_connections_of_its_own(connect):
    saver = connect()
    saver.put(*lives.put_arguments("parent", 0))
    children = []
    for n in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                for step in range(5):
                    saver.put(*lives.put_arguments(f"child-{n}", step))
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(pid)
    for step in range(1, 10):
        saver.put(*lives.put_arguments("parent", step))
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]
    assert lives.check(saver.get_tuple(lives.config("parent")), "parent") == 9
    for n in range(3):
        assert lives.check(saver.get_tuple(lives.config(f"child-{n}")), f"child-{n}") == 4


def attempt(saver, half):
    if half == "sync":
        return saver.get_tuple(lives.config("any"))
    return asyncio.run(saver.aget_tuple(lives.config("any")))


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize(
    ("change", "error", "hint"),
    [
        ({"netloc": "nobody:s3cret%2Fp%40ss@{host}"}, InvalidRequest, "password"),
        ({"netloc": "root:s3cret%2Fp%40ss@127.0.0.1:1"}, Unavailable, "server"),
        ({"path": "/no_such_database_here"}, InvalidRequest, "database"),
    ],
    ids=["wrong password", "no server", "no database"],
)
def test_what_cannot_be_reached_is_named_without_the_password(mysql_url, change, error, hint, half):
    parts = urlsplit(mysql_url)
    host = parts.netloc.rpartition("@")[2]
    url = parts._replace(**{name: value.format(host=host) for name, value in change.items()}).geturl()
    saver = threadline.connect(url, retry=None, timeout=2)
    assert SECRET not in repr(saver)
    with pytest.raises(error, match=hint) as caught:
        attempt(saver, half)
    shown = "".join(map(str, (caught.value, caught.value.__cause__, saver)))
    assert SECRET not in shown
    assert "s3cret" not in shown
    saver.close()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:s3cret@host",
        "mysql://root:s3cret@host/",
        "mysql://root:s3cret@host:port/db",
        "mysql://root:s3cret@host:99999/db",
        "mysql://root:s3cret@host/a/b",
        "mysql://root:s3cret@host/db?colour=blue",
        "mysql://root:s3cret@host/db?ssl_mode=sometimes",
        "mysql://root:s3cret@host/db?read_timeout=soon",
        "mysql://root:s3cret@[host/db",
    ],
)
def test_a_wrong_url_is_refused_without_showing_it(url):
    with pytest.raises(InvalidRequest) as caught:
        threadline.connect(url)
    assert "s3cret" not in str(caught.value)


def test_tls_files_that_are_not_there_are_named(mysql_url, tmp_path):
    saver = threadline.connect(f"{mysql_url}?ssl_ca={tmp_path}/none.pem", retry=None)
    with pytest.raises(InvalidRequest, match="TLS"):
        saver.get_tuple(lives.config("any"))


def test_options_of_other_backends_are_refused(mysql_url):
    with pytest.raises(InvalidRequest, match="synchronous"):
        threadline.connect(mysql_url, synchronous="FULL")


def test_loops_that_end_leave_no_connections_and_say_nothing(connect, root, recwarn):
    saver = connect()
    for step in range(12):
        asyncio.run(saver.aput(*lives.put_arguments("ended", step)))
    gc.collect()
    saver.open()
    threading.Event().wait(0.2)
    with root.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()")
        [open_ones] = cursor.fetchone()
    assert open_ones <= 4
    assert not [each for each in recwarn if "ignored" in str(each.message)]


class Line:
    """A connection that only knows whether it is open."""

    client_flag = 0

    def __init__(self):
        self.open = True
        self._sock, self._peer = socket.socketpair()

    def _force_close(self):
        self.open = False
        self._sock.close()
        self._peer.close()

    close = _force_close


@pytest.mark.parametrize("method", ["take_now", "leave", "_take", "connect", "_give_back", "the work"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_call_takes_no_connection_of_the_pool_with_it(monkeypatch, method, when):
    made = []

    class Driver(MysqlDriver):
        async def connect(self):
            made.append(Line())
            wire = Wire(made[-1])
            wire.waits = watching(made[-1]._sock)
            return wire

    driver, pending = Driver(None, ServerIdentity(), 1.0, None, is_of_loop=False), [KeyboardInterrupt()]
    pool = Pool(driver, 1, 1.0, lambda: exhausted(1, "here", 1.0))

    def strike():
        if pending:
            raise pending.pop()

    def interrupted(original):
        def call(*args):
            if when == "before":
                strike()
            result = original(*args)
            strike()
            return result

        return call

    async def work(wire):
        strike()
        assert wire.connection.open

    def interrupted_coroutine(original):
        async def call(*args):
            if when == "before":
                strike()
            result = await original(*args)
            strike()
            return result

        return call

    owner = {"take_now": pool._places, "leave": pool._places, "connect": driver}.get(method, pool)
    if method in ("connect", "_take"):
        monkeypatch.setattr(owner, method, interrupted_coroutine(getattr(owner, method)))
    elif method != "the work":
        monkeypatch.setattr(owner, method, interrupted(getattr(owner, method)))
    with pytest.raises(KeyboardInterrupt):
        run_now(pool.lend(work))
    for _ in range(3):
        run_now(pool.lend(work))
    pool.shut()
    assert [line.open for line in made] in ([False], [False, False]) or (method, when) == ("connect", "after")
    assert (pool._places._inside, pool._idle) == (set(), [])
