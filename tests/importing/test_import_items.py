"""Items of LangGraph's own stores come over with their times, and as often as they change."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

pytest.importorskip("langgraph.store.postgres", reason="the sources are written by LangGraph's own stores")
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from postgres_cases import execute, write_thread

import threadline
from tests.servers import places
from threadline.transfer import Counts, import_threads

ANN, DEEP = ("users", "ann"), ("a", "b", "c")
VALUE = {"text": 'é " %_', "n": 2**53 + 1, "half": 0.5, "no": None, "list": [1, {"deep": [True]}], "empty": {}}


class Old:
    """A database that LangGraph's own store writes to."""

    def __init__(self, url: str, opened: Callable[[], AbstractContextManager[Any]], run: Callable[..., Any]) -> None:
        self.url, self.run = url, run
        self._opened = opened

    @contextmanager
    def store(self) -> Iterator[Any]:
        with self._opened() as store:
            store.setup()
            yield store

    def rows(self) -> Any:
        return self.run("SELECT * FROM store ORDER BY prefix, key")


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    if request.param == "sqlite":
        path = tmp_path / "old.db"

        def run(statement: str) -> Any:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                return connection.execute(statement).fetchall()

        yield Old(str(path), lambda: SqliteStore.from_conn_string(str(path)), run)
    else:
        with places.postgres_place() as place:
            url = place.url
            yield Old(url, lambda: PostgresStore.from_conn_string(url), lambda statement: execute(url, statement))


@pytest.fixture
def filled(old: Old) -> Old:
    with old.store() as store:
        store.put(ANN, "all", VALUE)
        store.put(ANN, "soon", {"n": 1}, ttl=30)
        store.put(DEEP, "k", {"n": 2})
    return old


def _seconds(item: Any) -> list[float]:
    return [item.created_at.timestamp(), item.updated_at.timestamp()]


def test_every_item_is_what_langgraphs_store_gives(filled: Old, target: Path) -> None:
    before = filled.rows()
    report = import_threads(filled.url, target)
    assert (report.items, report.problems, report.threads) == (Counts(copied=3), [], 0)
    assert filled.rows() == before
    with filled.store() as theirs, threadline.Store(target) as ours:
        for namespace, key in [(ANN, "all"), (ANN, "soon"), (DEEP, "k")]:
            wanted, found = theirs.get(namespace, key, refresh_ttl=False), ours.get(namespace, key, refresh_ttl=False)
            assert (found.namespace, found.value, found.version) == (namespace, wanted.value, 1)
            assert _seconds(found) == pytest.approx([_utc(wanted.created_at), _utc(wanted.updated_at)], abs=1e-5)
        assert ours.get(ANN, "all").expires_at is None
        left = ours.get(ANN, "soon", refresh_ttl=False).expires_at.timestamp() - time.time()
        assert 28 * 60 < left <= 30 * 60
        assert {tuple(item.namespace) for item in ours.search(("users",))} == {ANN}


def _utc(moment: datetime) -> float:
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).timestamp()


def test_of_two_times_of_expiry_the_later_holds(filled: Old, target: Path) -> None:
    import_threads(filled.url, target)
    filled.run("UPDATE store SET expires_at = '2040-01-01 00:00:00' WHERE key = 'soon'")
    assert import_threads(filled.url, target).items == Counts(present=2, renewed=1)
    with threadline.Store(target) as ours:
        assert ours.get(ANN, "soon", refresh_ttl=False).expires_at.year in (2039, 2040)
    # As if the item had been read here since.
    filled.run("UPDATE store SET expires_at = '2039-01-01 00:00:00' WHERE key = 'soon'")
    assert import_threads(filled.url, target).items == Counts(present=3)


def test_a_second_run_brings_what_is_new_or_changed(filled: Old, target: Path) -> None:
    import_threads(filled.url, target)
    assert import_threads(filled.url, target).items == Counts(present=3)
    with filled.store() as store:
        store.put(DEEP, "k", {"n": 3})
        store.put(DEEP, "new", {"n": 4})
        store.delete(ANN, "all")
    assert import_threads(filled.url, target).items == Counts(copied=1, present=1, renewed=1)
    with threadline.Store(target) as ours:
        changed = ours.get(DEEP, "k")
        assert (changed.value, changed.version) == ({"n": 3}, 2)
        assert ours.get(DEEP, "new").value == {"n": 4}
        # What is no longer in the source stays.
        assert ours.get(ANN, "all").value == VALUE


def test_an_item_that_is_newer_in_the_store_stays(filled: Old, target: Path) -> None:
    import_threads(filled.url, target)
    with threadline.Store(target) as ours:
        ours.put(DEEP, "k", {"n": "mine"})
        ours.delete(ANN, "all")
    report = import_threads(filled.url, target)
    assert report.items == Counts(copied=1, present=1, kept=1)
    assert report.is_complete
    with threadline.Store(target) as ours:
        assert ours.get(DEEP, "k").value == {"n": "mine"}
        assert ours.get(ANN, "all").value == VALUE


def test_expired_items_are_left_out_and_counted(filled: Old, target: Path) -> None:
    filled.run("UPDATE store SET expires_at = '2020-01-01 00:00:00' WHERE key = 'soon'")
    report = import_threads(filled.url, target)
    assert (report.items, report.expired_items, report.problems) == (Counts(copied=2), 1, [])


def test_pages_are_brought_one_after_the_other(old: Old, target: Path) -> None:
    with old.store() as store:
        for number in range(250):
            store.put(("many", f"ns{number % 7}"), f"k{number}", {"n": number})
    seen: list[tuple[int, int]] = []
    assert import_threads(old.url, target, progress=lambda *at: seen.append(at)).items == Counts(copied=250)
    assert seen == [(100, 250), (200, 250), (250, 250)]
    with threadline.Store(target) as ours:
        found = ours.search(("many",), limit=1000)
    assert sorted(item.value["n"] for item in found) == list(range(250))


def test_a_run_that_was_stopped_goes_on(old: Old, target: Path) -> None:
    with old.store() as store:
        for number in range(150):
            store.put(("many",), f"k{number}", {"n": number})

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_threads(old.url, target, progress=stop)
    assert import_threads(old.url, target).items == Counts(copied=50, present=100)


def test_a_row_that_is_no_item_is_named_and_the_rest_comes(filled: Old, target: Path) -> None:
    for prefix, value in [("list", "[1]"), ("", '{"n": 1}'), ("a..b", '{"n": 1}')]:
        filled.run(f"INSERT INTO store (prefix, key, value) VALUES ('{prefix}', 'odd', '{value}')")
    report = import_threads(filled.url, target)
    assert report.items == Counts(copied=3)
    assert not report.is_complete
    assert sorted(report.problems) == [
        "item 'odd' in '': a label of the namespace ('',) is empty",
        "item 'odd' in 'a..b': a label of the namespace ('a', '', 'b') is empty",
        "item 'odd' in 'list': its value is no JSON object",
    ]


def test_values_and_times_of_sqlite_that_cannot_be_read_are_named(tmp_path: Path, target: Path) -> None:
    path = tmp_path / "old.db"
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        store.put(ANN, "good", {"n": 1})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO store (prefix, key, value) VALUES ('x', 'text', '{\"secret')")
        connection.execute("INSERT INTO store (prefix, key, value) VALUES ('x', 'bytes', x'ff00ff')")
        connection.execute(
            "INSERT INTO store (prefix, key, value, expires_at) VALUES ('x', 'time', '{}', 'the day after')"
        )
    report = import_threads(path, target)
    assert report.items == Counts(copied=1)
    told = "\n".join(report.problems)
    assert "item 'text' in 'x': its value is no JSON" in told
    assert "item 'bytes' in 'x': its value is no JSON" in told
    assert "item 'time' in 'x': its times cannot be read" in told
    assert "secret" not in told


def test_tables_from_before_times_to_live_are_read(old: Old, target: Path) -> None:
    with old.store() as store:
        store.put(ANN, "k", {"n": 1})
    old.run("DROP INDEX idx_store_expires_at")
    old.run("ALTER TABLE store DROP COLUMN expires_at")
    old.run("ALTER TABLE store DROP COLUMN ttl_minutes")
    assert import_threads(old.url, target).items == Counts(copied=1)
    with threadline.Store(target) as ours:
        assert ours.get(ANN, "k").expires_at is None


def test_into_the_same_database_beside_threads(filled: Old) -> None:
    if filled.url.startswith("postgresql"):
        write_thread(filled.url)
    else:
        with SqliteSaver.from_conn_string(filled.url) as saver:
            saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
    before = filled.rows()
    report = import_threads(filled.url)
    assert (report.threads, report.checkpoints, report.items) == (1, Counts(copied=1), Counts(copied=3))
    again = import_threads(filled.url)
    assert (again.checkpoints, again.items) == (Counts(present=1), Counts(present=3))
    assert filled.rows() == before
    with threadline.Store(filled.url) as ours:
        assert ours.get(ANN, "all").value == VALUE


def test_a_table_of_another_meaning_is_left_alone(old: Old, target: Path) -> None:
    old.run("CREATE TABLE store (name text, city text)")
    with pytest.raises(threadline.InvalidRequest, match="and no items"):
        import_threads(old.url, target)


@pytest.mark.parametrize("kind", ["postgres", "mysql", "redis_server"])
def test_into_every_kind_of_server_and_again(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        store.put(ANN, "all", VALUE)
        store.put(ANN, "soon", {"n": 1}, ttl=30)
    place = request.getfixturevalue(kind)
    options = {name: getattr(place, name) for name in ("table_prefix", "key_prefix") if hasattr(place, name)}
    assert import_threads(path, place.url, **options).items == Counts(copied=2)
    assert import_threads(path, place.url, **options).items == Counts(present=2)
    with threadline.Store(place.url, **options) as ours:
        assert ours.get(ANN, "all").value == VALUE


def test_an_encrypted_store_seals_what_it_is_given(filled: Old, target: Path) -> None:
    ring = threadline.KeyRing({"k1": b"k" * 32})
    assert import_threads(filled.url, target, encryption=ring).items == Counts(copied=3)
    assert import_threads(filled.url, target, encryption=ring).items == Counts(present=3)
    with threadline.Store(target, encryption=ring) as ours:
        assert ours.get(ANN, "all").value == VALUE
    assert b"deep" not in target.read_bytes()


def test_a_history_in_the_store_goes_on(filled: Old, target: Path) -> None:
    with threadline.Store(target, keep_versions=True) as ours:
        ours.put(DEEP, "gone", {"n": 0})
    import_threads(filled.url, target)
    with threadline.Store(target, keep_versions=True) as ours:
        ours.put(ANN, "all", {"n": "newer"})
        ours.delete(ANN, "all")
    with filled.store() as store:
        store.put(DEEP, "gone", {"n": 1})
    filled.run("UPDATE store SET updated_at = '2040-01-01 00:00:00' WHERE key = 'gone'")
    assert import_threads(filled.url, target).items == Counts(copied=1, present=2, renewed=1)
    with threadline.Store(target, keep_versions=True) as ours:
        assert [past.value for past in ours.history(ANN, "all")] == [VALUE, None, {"n": "newer"}, VALUE]
        assert [past.version for past in ours.history(ANN, "all")] == [4, 3, 2, 1]
        assert [past.value for past in ours.history(DEEP, "gone")] == [{"n": 1}, {"n": 0}]
        assert [past.version for past in ours.history(DEEP, "gone")] == [2, 1]


def test_embeddings_are_not_copied_and_those_of_a_replaced_value_go(tmp_path: Path, target: Path) -> None:
    pytest.importorskip("sqlite_vec")
    index: Any = {"dims": 2, "embed": lambda texts: [[len(text), 1.0] for text in texts], "fields": ["text"]}
    path = tmp_path / "old.db"
    try:
        with SqliteStore.from_conn_string(str(path), index=index) as store:
            store.setup()
            store.put(ANN, "k", {"text": "old"})
    except (AttributeError, sqlite3.Error):
        # This interpreter loads no extensions: the table as LangGraph's store makes it, and one row.
        with SqliteStore.from_conn_string(str(path)) as store:
            store.setup()
            store.put(ANN, "k", {"text": "old"})
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("CREATE TABLE store_vectors (prefix text, key text, field_name text, embedding BLOB)")
            connection.execute("INSERT INTO store_vectors VALUES ('users.ann', 'k', 'text', x'00')")
    report = import_threads(path, target)
    assert (report.items, report.embeddings) == (Counts(copied=1), 1)
    with threadline.Store(target, index=index) as ours:
        assert [item.score for item in ours.search(ANN, query="old")] == [None]
        ours.put(ANN, "k", {"text": "mine"})
        assert ours.search(ANN, query="mine")[0].score == pytest.approx(1.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE store SET updated_at = '2040-01-01 00:00:00'")
    assert import_threads(path, target).items == Counts(renewed=1)
    with threadline.Store(target, index=index) as ours:
        assert [(item.value, item.score) for item in ours.search(ANN, query="old")] == [({"text": "old"}, None)]


def test_the_command_tells_of_items(filled: Old, target: Path, run_import: Callable[..., Any]) -> None:
    filled.run("UPDATE store SET expires_at = '2020-01-01 00:00:00' WHERE key = 'soon'")
    told = run_import(filled.url, "--to", target).stdout
    assert "items           2 (2 copied, 0 there already)\n" in told
    assert "1 whose time to live was over: left out" in told
    assert "verified        2 read back and the same as in the source" in told
    with threadline.Store(target) as ours:
        ours.put(DEEP, "k", {"n": "mine"})
    assert "1 left alone, because they are newer in the store" in run_import(filled.url, "--to", target).stdout
    report = json.loads(run_import(filled.url, "--to", target, "--json").stdout)
    assert report["items"] == {"copied": 0, "present": 1, "renewed": 0, "kept": 1}
    assert (report["expired_items"], report["embeddings"], report["is_complete"]) == (1, 0, True)
