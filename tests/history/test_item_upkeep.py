"""Indexes of items are used, keys of items rotate, fsck reads items, a sweep of the saver takes what has expired."""

import contextlib
import sqlite3
import time
import uuid
from datetime import timedelta

import psycopg
import pytest

import threadline
from threadline import Corrupt, KeyRing, NotFound, PutOp
from threadline.backends.postgres.backend import PostgresDialect
from threadline.backends.sql.records import RecordStatements
from threadline.backends.sqlite.dialect import SqliteDialect
from threadline.ports.records import RecordSpace, Scan, pack_name

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


def fill(store, count=3000):
    for start in range(0, count, 500):
        ops = [
            PutOp(("users", str(n % 7)), str(n), {"user_id": f"u{n % 1000}", "user": {"plan": n % 900}})
            for n in range(start, min(start + 500, count))
        ]
        store.batch(ops)


def scan_of(key, value, prefix=("users",)):
    return Scan(prefix=pack_name(prefix), equals=((key, value),), now=0.0, newest_first=True, limit=500)


@pytest.mark.parametrize(("key", "value"), [("user_id", "u7"), ("user.plan", 7)])
def test_a_filter_on_an_indexed_field_is_an_index_look_up_on_sqlite(tmp_path, key, value):
    path = tmp_path / "items.db"
    with threadline.Store(path, index_fields=("user_id", "user.plan")) as store:
        fill(store)
        assert len(store.search((), filter={key: value})) in (3, 4)
    statements = RecordStatements(SqliteDialect(), "threadline_")
    statements.indexed.add(key)
    statement, values = statements.scan(RecordSpace.ITEM, scan_of(key, value))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [plan] = [
            row[3]
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            if row[3].startswith(("SEARCH", "SCAN"))
        ]
    assert plan.startswith("SEARCH threadline_records USING INDEX threadline_items_by_"), plan
    assert "(<expr>=? AND path>? AND path<?)" in plan


@pytest.mark.parametrize("is_analysed", [False, True])
@pytest.mark.parametrize(("key", "value"), [("user_id", "u7"), ("user.plan", 7)])
def test_a_filter_on_an_indexed_field_is_an_index_look_up_on_postgresql(private_postgres, key, value, is_analysed):
    prefix = f"x{uuid.uuid4().hex[:8]}_"
    with threadline.Store(private_postgres.url, table_prefix=prefix, index_fields=("user_id", "user.plan")) as store:
        fill(store)
        assert len(store.search((), filter={key: value})) in (3, 4)
    statements = RecordStatements(PostgresDialect(), prefix)
    statements.indexed.add(key)
    statement, values = statements.scan(RecordSpace.ITEM, scan_of(key, value))
    with psycopg.connect(private_postgres.url, autocommit=True) as connection:
        if is_analysed:
            connection.execute(f"ANALYZE {prefix}records")
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {statement}", values))
    assert f"{prefix}items_by_" in plan, plan


def test_a_store_that_may_not_make_indexes_searches_without_them(tmp_path):
    path = tmp_path / "items.db"
    with threadline.Store(path) as store:
        fill(store, 50)
    with threadline.Store(path, index_fields=("user_id",), read_only=True) as store:
        assert [item.key for item in store.search((), filter={"user_id": "u7"})] == ["7"]
    with threadline.Store(path, index_fields=("user_id",), setup=False) as store:
        assert [item.key for item in store.search((), filter={"user_id": "u7"})] == ["7"]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        named = "SELECT count(*) FROM sqlite_master WHERE name LIKE '%items_by%'"
        assert connection.execute(named).fetchone() == (0,)


INDEX = {"dims": 1, "embed": lambda texts: [[1.0] for _ in texts]}


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "redis_server"])
def where(request, tmp_path):
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}", {}
    if request.param == "sqlite":
        return str(tmp_path / "items.db"), {}
    name = f"u{uuid.uuid4().hex[:8]}_"
    server = request.getfixturevalue(request.param)
    return server.url, {"key_prefix": name} if request.param == "redis_server" else {"table_prefix": name}


def test_keys_of_items_and_cached_results_rotate(where):
    url, options = where
    entry = (("n",), "k")
    with threadline.connect(url, encryption=KeyRing({"old": OLD}), **options) as saver:
        store = saver.store(keep_versions=True, index=INDEX)
        store.put(("users",), "ann", {"n": 1})
        store.put(("users",), "ann", {"n": 2})
        saver.cache().set({entry: ("result", None)})
        before = store.get(("users",), "ann")
        history = store.history(("users",), "ann")
        assert saver.keys_in_use() == {"old"}
        # The item, two versions, its embedding, and the cached result.
        assert saver.keys()[0].rows == 5

        with threadline.connect(url, encryption=KeyRing({"new": NEW, "old": OLD}), **options) as rotating:
            assert rotating.rotate_keys() == 5
            assert rotating.rotate_keys() == 0
            assert rotating.keys_in_use() == {"new"}

        with threadline.connect(url, encryption=KeyRing({"new": NEW}), **options) as later:
            again = later.store(keep_versions=True, index=INDEX)
            assert again.get(("users",), "ann") == before
            assert again.history(("users",), "ann") == history
            assert [item.score for item in again.search(("users",), query="x")] == [1.0]
            assert later.cache().get([entry]) == {entry: "result"}
            assert later.fsck().records == 5
        with pytest.raises(NotFound):
            store.get(("users",), "ann")


def test_fsck_tells_of_damaged_records(tmp_path):
    path = tmp_path / "items.db"
    with threadline.connect(path) as saver:
        store = saver.store(keep_versions=True, index=INDEX)
        for key in ("ann", "bob"):
            store.put(("users",), key, {"n": 1})
        saver.cache().set({(("n",), "k"): ("result", None)})
        report = saver.fsck()
        assert report.ok
        assert "7 records: ok" in str(report)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            damaged = "CAST(value || x'00' AS BLOB) WHERE instr(path, x'626f62') > 0 OR space = 4"
            connection.execute(f"UPDATE threadline_records SET value = {damaged}")
            connection.commit()
        report = saver.fsck()
        assert not report.ok
        assert [one.partition(":")[0] for one in report.damaged_records] == [
            "item 'bob' in ('users',)",
            "a former value of item 'bob' in ('users',)",
            "the embeddings of item 'bob' in ('users',)",
            "cached result 'k' in ('n',)",
        ]
        with pytest.raises(Corrupt, match="bob"):
            store.get(("users",), "bob")
        assert saver.fsck([]).records == 0


@pytest.mark.parametrize("server", [None, "postgres", "mysql", "redis_server"])
def test_a_sweep_of_the_saver_takes_expired_items_versions_and_results(server, tmp_path, request, half):
    options = {}
    url = tmp_path / "items.db"
    if server is not None:
        place = request.getfixturevalue(server)
        name = f"w{uuid.uuid4().hex[:8]}_"
        url, options = place.url, {"key_prefix" if server == "redis_server" else "table_prefix": name}
    with threadline.connect(url, **options) as saver:
        store, kept = saver.store(), saver.store(keep_versions=timedelta(seconds=0.1))
        short = timedelta(seconds=0.1)
        for number in range(3):
            store.put(("n",), str(number), {"n": number}, ttl=short)
            kept.put(("kept",), "k", {"n": number})
        saver.cache().set({(("c",), str(number)): (number, 0.1) for number in range(2)})
        saver.cache().set({(("c",), "stays"): (1, 3600)})
        time.sleep(0.2)
        forecast = half.call(saver, "sweep", dry_run=True)
        assert (forecast.items, forecast.cached) == (3, 2)
        part = half.call(saver, "sweep", prefix="some")
        assert (part.items, part.cached) == (0, 0)
        swept = half.call(saver, "sweep")
        assert (swept.items, swept.cached) == (3, 2)
        again = half.call(saver, "sweep")
        assert (again.items, again.cached) == (0, 0)

        async def left(backend):
            return [await backend.count_records(space, b"") for space in (1, 2, 4)]

        assert saver._engine.run(left) == [1, 1, 1]


def test_a_sweeper_in_the_background_takes_expired_items(tmp_path):
    with threadline.connect(tmp_path / "items.db") as saver:
        saver.store().put(("n",), "k", {"n": 1}, ttl=timedelta(seconds=0.05))
        with saver.sweeper(every="0.05s"):
            deadline = time.monotonic() + 10
            with contextlib.closing(sqlite3.connect(tmp_path / "items.db")) as connection:
                count = "SELECT count(*) FROM threadline_records WHERE space = 1"
                while connection.execute(count).fetchone() != (0,) and time.monotonic() < deadline:
                    time.sleep(0.02)
                assert connection.execute(count).fetchone() == (0,)
