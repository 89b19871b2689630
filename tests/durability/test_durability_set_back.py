"""Stores that are set back to an earlier state under a running client: a restored dump, a lost tail, an empty server.

Pool and epoch are then what the client knew, and chunks that it knows of are gone. Whatever it is told of as stored
afterwards must be whole for somebody who has never seen the store.
"""

import random
import sqlite3
import subprocess
from contextlib import closing
from urllib.parse import urlsplit

import lives
import pytest

import threadline
from tests.stores import savers
from threadline import KeyRing

KEY = bytes(range(32))


class SqliteStore:
    def __init__(self, folder):
        self.url, self.options = f"sqlite:///{folder / 'live.db'}", {}
        self._live, self._saved = folder / "live.db", folder / "saved.db"

    def save(self):
        self._copy(self._live, self._saved)

    def restore(self):
        self._copy(self._saved, self._live)

    def _copy(self, source, target):
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)


class PostgresStore:
    def __init__(self, place, folder):
        self.url, self.options = place.url, {}
        self._place, self._dump = place, folder / "saved.dump"

    def save(self):
        where = ("--schema", self._place.schema, "--dbname", self._place.server_url)
        _run("pg_dump", "-Fc", "--file", str(self._dump), *where)

    def restore(self):
        _run("pg_restore", "--clean", "--if-exists", "--dbname", self._place.server_url, str(self._dump))


class MysqlStore:
    def __init__(self, place, folder):
        self.url, self.options = place.url, {"table_prefix": place.table_prefix}
        parts = urlsplit(place.url)
        self._login = ["-h", parts.hostname, "-P", str(parts.port), "-u", parts.username or "root"]
        self._database, self._dump = parts.path.strip("/"), folder / "saved.sql"
        self._prefix, self._password = place.table_prefix, parts.password

    def save(self):
        names = _run("mariadb", *self._access(), "-N", "-e", f"SHOW TABLES LIKE '{self._prefix}%'").split()
        self._dump.write_text(_run("mysqldump", *self._login_only(), "--hex-blob", self._database, *names))

    def restore(self):
        _run("mariadb", *self._access(), stdin=self._dump.read_text())

    def _login_only(self):
        return [*self._login, *([f"-p{self._password}"] if self._password else [])]

    def _access(self):
        return [*self._login_only(), self._database]


class RedisStore:
    def __init__(self, place, folder):
        import redis

        self.url, self.options = place.url, {"key_prefix": place.key_prefix}
        self._server, self._prefix = redis.Redis.from_url(place.url), place.key_prefix
        self._saved = {}

    def save(self):
        self._saved = {key: self._server.dump(key) for key in self._keys()}

    def restore(self):
        # One transaction: nobody sees half of it.
        with self._server.pipeline() as pipeline:
            for key in self._keys():
                pipeline.delete(key)
            for key, value in self._saved.items():
                pipeline.restore(key, 0, value)
            pipeline.execute()

    def empty(self):
        self._saved = {}
        self.restore()

    def _keys(self):
        return list(self._server.scan_iter(f"{self._prefix}*", count=1000))


def _run(*words, stdin=None):
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


STORES = {
    "sqlite": lambda request, folder: SqliteStore(folder),
    "postgres": lambda request, folder: PostgresStore(request.getfixturevalue("postgres"), folder),
    "mysql": lambda request, folder: MysqlStore(request.getfixturevalue("mysql"), folder),
    "redis": lambda request, folder: RedisStore(request.getfixturevalue("redis_server"), folder),
}


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    return STORES[request.param](request, tmp_path)


@pytest.fixture(params=["plain", "sealed"])
def connect(request, store):
    sealing = {"encryption": KeyRing({"k": KEY})} if request.param == "sealed" else {}
    with savers(store.url, **store.options, **sealing) as opening:
        yield opening


def put(saver, half, name, step):
    try:
        half.call(saver, "put", *lives.put_arguments(name, step))
    except threadline.Conflict as refusal:
        # A value was to be taken over from a parent that is gone: nothing was stored, and the error says what to do.
        if "put the checkpoint again" not in str(refusal):
            raise
        half.call(saver, "put", *lives.put_arguments(name, step))


def steps_of(saver, name):
    """The steps that a saver finds whole, each read by its id and listed."""
    found = [lives.check(one, name) for one in saver.list(lives.config(name))]
    for step in found:
        assert lives.check(saver.get_tuple(lives.config(name, lives.id_of(step))), name) == step
    return found


def test_what_is_put_after_an_older_state_was_restored_is_whole(store, connect, half):
    saver = connect()
    for step in range(5):
        put(saver, half, "talk", step)
    store.save()
    for step in range(5, 10):
        put(saver, half, "talk", step)
        half.call(saver, "put_writes", *lives.write_arguments("talk", step, "task-a"))
    store.restore()
    # The client knows nothing of it, and goes on from a checkpoint that is gone.
    for step in range(10, 13):
        put(saver, half, "talk", step)
        half.call(saver, "put_writes", *lives.write_arguments("talk", step, "task-a"))
    reader = connect()
    assert steps_of(reader, "talk") == [12, 11, 10, 4, 3, 2, 1, 0]
    for step in range(10, 13):
        found = reader.get_tuple(lives.config("talk", lives.id_of(step)))
        assert lives.check_writes(found.pending_writes, "talk", step)
    assert steps_of(saver, "talk") == [12, 11, 10, 4, 3, 2, 1, 0]


def test_pending_writes_after_an_older_state_was_restored_are_whole(store, connect, half):
    saver = connect()
    for step in range(5):
        put(saver, half, "talk", step)
    store.save()
    for step in range(5, 8):
        put(saver, half, "talk", step)
    store.restore()
    values = lives.values("talk", 7)["messages"]
    half.call(saver, "put_writes", lives.config("talk", lives.id_of(4)), [("messages", values)], "task")
    [(_, _, stored)] = connect().get_tuple(lives.config("talk", lives.id_of(4))).pending_writes
    assert stored == values


def test_a_run_that_reads_again_goes_on_from_the_restored_state(store, connect, half):
    saver = connect()
    for step in range(5):
        put(saver, half, "talk", step)
    store.save()
    for step in range(5, 10):
        put(saver, half, "talk", step)
    store.restore()
    assert lives.check(half.call(saver, "get_tuple", lives.config("talk")), "talk") == 4
    for step in range(5, 10):
        put(saver, half, "talk", step)
    assert steps_of(connect(), "talk") == list(range(9, -1, -1))


def test_a_thread_that_was_begun_after_the_saved_state_begins_again(store, connect, half):
    saver = connect()
    put(saver, half, "before", 0)
    store.save()
    for name in ("one", "two"):
        for step in range(3):
            put(saver, half, name, step)
    store.restore()
    # Numbers of pools are given again: what was known of one thread must not be taken for another's.
    for name in ("two", "one"):
        put(saver, half, name, 3)
        put(saver, half, name, 4)
    reader = connect()
    assert steps_of(reader, "one") == steps_of(reader, "two") == [4, 3]
    assert steps_of(reader, "before") == [0]


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_store_that_is_set_back_again_while_a_refused_put_tries_again(store, connect, half, monkeypatch):
    from threadline.core import put as checkpoints

    saver = connect()
    for step in range(6):
        if step in (1, 5):
            store._saved = store._live.with_name(f"{step}.db")
            store.save()
        put(saver, half, "talk", step)
    store.restore()
    store._saved = store._live.with_name("1.db")
    refresh, again = checkpoints._refresh, [store.restore]

    async def refresh_and_set_back(*arguments):
        await refresh(*arguments)
        while again:
            again.pop()()

    monkeypatch.setattr(checkpoints, "_refresh", refresh_and_set_back)
    # The values are those of before, which the first of the two states has, and the second has not.
    _, _, metadata, _ = lives.put_arguments("talk", 4)
    older = {**lives.put_arguments("talk", 4)[1], "id": lives.id_of(9)}
    half.call(saver, "put", lives.config("talk"), older, metadata, older["channel_versions"])
    assert not again
    found = connect().get_tuple(lives.config("talk", lives.id_of(9)))
    assert found.checkpoint["channel_values"] == older["channel_values"]


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_saves_restores_and_puts_leaves_every_acknowledged_put_whole(store, connect, half, seed):
    chance = random.Random(seed)
    clients = [connect(), connect()]
    names = ["a", "b"]
    at = dict.fromkeys(names, 0)
    stored, saved = {name: set() for name in names}, None
    for _ in range(40):
        act = chance.random()
        if act < 0.08 and any(stored.values()):
            store.save()
            saved = {name: set(steps) for name, steps in stored.items()}
        elif act < 0.16 and saved is not None:
            store.restore()
            stored = {name: set(steps) for name, steps in saved.items()}
        else:
            name = chance.choice(names)
            put(chance.choice(clients), half, name, at[name])
            stored[name].add(at[name])
            at[name] += 1
    reader = connect()
    for name in names:
        assert set(steps_of(reader, name)) == stored[name]


@pytest.mark.parametrize("store", ["redis"], indirect=True)
@pytest.mark.parametrize("first", ["the client that was running", "somebody new"])
def test_a_server_that_comes_back_empty_is_a_new_store_that_all_can_read(store, connect, half, first):
    saver = connect()
    for step in range(5):
        put(saver, half, "talk", step)
    store.empty()
    begun = []
    if first == "somebody new":
        put(connect(), half, "other", 0)
        begun = [0]
    for step in range(5, 8):
        put(saver, half, "talk", step)
        half.call(saver, "put_writes", *lives.write_arguments("talk", step, "task-a"))
    reader = connect()
    assert steps_of(reader, "talk") == [7, 6, 5]
    assert steps_of(reader, "other") == steps_of(saver, "other") == begun
    put(reader, half, "other", 1)
    assert steps_of(saver, "other") == [1, *begun]
    assert steps_of(saver, "talk") == [7, 6, 5]


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_lost_record_of_the_store_is_written_again_and_no_number_is_given_twice(store, connect, half):
    saver = connect()
    for name in ("one", "two"):
        put(saver, half, name, 0)
    store._server.delete(f"{store._prefix}:meta")
    put(saver, half, "three", 0)
    put(saver, half, "one", 1)
    reader = connect()
    assert steps_of(reader, "one") == [1, 0]
    assert steps_of(reader, "two") == steps_of(reader, "three") == [0]


def test_an_emptied_store_that_must_not_be_created_refuses(redis_server):
    store = RedisStore(redis_server, None)
    with closing(threadline.connect(store.url, **store.options)) as made:
        made.setup()
    with closing(threadline.connect(store.url, setup=False, **store.options)) as saver:
        saver.put(*lives.put_arguments("talk", 0))
        store.empty()
        with pytest.raises(threadline.InvalidRequest, match="setup"):
            saver.put(*lives.put_arguments("another", 0))
    assert store._keys() == []
