"""URLs and options that cannot be right are refused when the saver is made, and nothing is opened."""

import asyncio
import logging
import sqlite3
import traceback

import pytest

import threadline
from threadline.langgraph import AsyncSqliteSaver, Checkpointer, SqliteSaver
from threadline.transfer import import_threads

WRONG_OPTIONS = {
    "table_prefix": [5, None, b"x", ["x"]],
    "setup": [True, "yes", None, "CREATE", 5],
    "synchronous": ["sometimes", 5, None, "FULL; DROP TABLE x"],
    "timeout": ["5", -1, float("nan"), [5]],
    "compression": ["gzip", 5, True],
    "cache_bytes": ["64", None, -1, 1.5],
    "encryption": ["secret", b"k" * 32, {"a": b"k" * 32}, 5],
    "allowed_types": ["everything", 5, [5], True],
    "serde": [5, "json", object],
    "index_metadata": ["user_id", 5, [5]],
}
CASES = [(name, value) for name, values in WRONG_OPTIONS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES, ids=[f"{name}={value!r}" for name, value in CASES])
def test_an_option_with_an_impossible_value_is_refused_by_name(database, name, value):
    with pytest.raises(threadline.InvalidRequest, match=name):
        threadline.connect(database, **{name: value})
    assert not database.exists()


@pytest.mark.parametrize("name", ["tabel_prefix", "pool", "echo", "isolation_level", "check_same_thread", "Setup"])
def test_an_unknown_option_is_refused_by_name(url, database, name):
    with pytest.raises(threadline.InvalidRequest, match=name):
        threadline.connect(url, **{name: 1})
    assert not database.exists()


@pytest.mark.parametrize(
    "given",
    [
        "http://x",
        "ftp://x/y",
        "sqlite3:///x.db",
        "SQLITE:///x.db",
        "mongodb://x",
        "://x",
        "",
        "   ",
        None,
        b"x.db",
        5,
        ["x.db"],
    ],
    ids=repr,
)
def test_a_url_that_no_backend_serves_is_refused(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(threadline.InvalidRequest, match=r"URL|url|backend|://"):
        threadline.connect(given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["nul\0.db", "sqlite:///nul\0.db", "lone \ud800.db"], ids=repr)
def test_a_path_that_no_file_can_have_is_refused(given, tmp_path, monkeypatch, half, make):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(threadline.ThreadlineError):
        half.call(threadline.connect(given), "get_tuple", make.config("t"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["a b.db", "100%.db", "what?.db", "hash#.db", "ü🙂.db", "semi;colon.db", "'quote'.db", "%20.db"]
)
def test_odd_file_names_are_taken_as_they_are(tmp_path, connect, half, make, name):
    # In a URL a question mark would begin a query; a path has none.
    urls = [f"sqlite:///{tmp_path / name}"] if "?" not in name else []
    for path in (str(tmp_path / name), tmp_path / name, *urls):
        half.call(connect(path), "put", make.config("t"), make.checkpoint(1), {"step": 1}, {"text": 1})
        reader = connect(path, read_only=True)
        assert half.call(reader, "get_tuple", make.config("t")).checkpoint == make.checkpoint(1)
    assert {one.name.removesuffix("-wal").removesuffix("-shm") for one in tmp_path.iterdir()} == {name}


# Addresses of servers that look like the name of a file.
ADDRESSES = [
    "host=db.example.com user=me password=hunter2 dbname=agents",
    "password=hunter2",
    "dbname=hunter2",
    "user = me password = 'hunter2'",
    "user=me\npassword=hunter2",
    "Server=db;Uid=me;Pwd=hunter2",
    "me:hunter2@db.example.com/agents",
    "me:hun/ter2@db.example.com",
    ":hunter2@db.example.com:6379",
    "postgresql:me:hunter2@db.example.com/agents",
    "postgres:/me:hunter2@db.example.com/agents",
    "sqlite://me:hunter2@db.example.com/agents",
    "sqlite:///me:hunter2@agents.db",
    "sqlite:///host=db password=hunter2",
    "sqlite://host=db password=hunter2",
    "//me:hunter2@db.example.com/agents",
    "postgres//me:hunter2@db.example.com/agents",
    "file:agents.db?password=hunter2",
    "memory://me:hunter2@db",
]


@pytest.mark.parametrize("given", ADDRESSES)
def test_the_address_of_a_server_is_not_taken_for_the_name_of_a_file(given, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THREADLINE_URL", given)
    for open_it in (
        lambda: threadline.connect(given),
        lambda: SqliteSaver.from_conn_string(given).__enter__(),
        lambda: asyncio.run(AsyncSqliteSaver.from_conn_string(given).__aenter__()),
        lambda: Checkpointer.from_env(),
        lambda: import_threads(given),
    ):
        with pytest.raises(threadline.InvalidRequest, match="postgresql://") as caught:
            open_it()
        assert "ter2" not in "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["me@home.db", "./me:pw@home.db", "./host=db", "a=b.db", "ghost=1.db", "C:\\data\\me@home.db", "at:noon.db"]
)
def test_a_name_that_is_no_address_is_the_name_of_a_file(name, tmp_path, monkeypatch, connect):
    monkeypatch.chdir(tmp_path)
    connect(name).open()
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis", "rediss", "redis+cluster"])
@pytest.mark.parametrize(
    "password", ["12/34hunter2", "12?34hunter2", "12#34hunter2", "12@34hunter2", "[hunter2", "%hunter2"]
)
@pytest.mark.parametrize("end", ["", "/db", ":1/db"])
def test_no_password_with_odd_characters_is_shown_wherever_a_url_is_cut(scheme, password, end, caplog):
    shown = ""
    try:
        saver = threadline.connect(f"{scheme}://user:{password}@127.0.0.1{end}", retry=None, timeout=1)
        shown = repr(saver)
        with saver:
            saver.get_tuple({"configurable": {"thread_id": "t"}})
    except threadline.ThreadlineError as error:
        shown += "".join(traceback.format_exception(error))
    assert "hunter2" not in shown + caplog.text


def test_no_password_of_a_url_is_repeated_in_an_error():
    for given in ("nosuch://user:hunter2@host/db", "http://user:hunter2@host"):
        with pytest.raises(threadline.ThreadlineError) as caught:
            threadline.connect(given)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis", "rediss", "redis+cluster"])
def test_no_password_is_repeated_when_a_server_cannot_be_reached(scheme, caplog):
    saver = threadline.connect(f"{scheme}://user:hunter2@127.0.0.1:1/db", retry=None, timeout=2)
    with pytest.raises(threadline.ThreadlineError) as caught:
        saver.get_tuple({"configurable": {"thread_id": "t"}})
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__} {saver!r} {caplog.text}"
    saver.close()


@pytest.fixture
def langgraph_file(database):
    """A file with a thread of LangGraph's own saver."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(database)) as theirs:
        config = theirs.put(
            {"configurable": {"thread_id": "old", "checkpoint_ns": ""}}, empty_checkpoint(), {"step": 1}, {}
        )
        theirs.put_writes(config, [("a", "b")], "task")
    return database


def their_rows(database):
    connection = sqlite3.connect(database)
    found = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("checkpoints", "writes")]
    schema = connection.execute("SELECT sql FROM sqlite_master WHERE name IN ('checkpoints', 'writes')").fetchall()
    connection.close()
    return found, schema


def test_threads_of_langgraphs_own_saver_are_pointed_out_and_untouched(langgraph_file, connect, half, make, caplog):
    before = their_rows(langgraph_file)
    with caplog.at_level(logging.WARNING, logger="threadline"):
        saver = connect(langgraph_file)
        assert half.call(saver, "get_tuple", make.config("old")) is None
    [warning] = [record.getMessage() for record in caplog.records]
    assert "threadline import" in warning
    assert langgraph_file.name in warning
    half.call(saver, "put", make.config("old"), make.checkpoint(1), {"step": 1}, {"text": 1})
    half.call(saver, "delete_thread", "old")
    half.call(saver, "prune", ["old"])
    assert their_rows(langgraph_file) == before


def test_nothing_is_said_when_threads_of_ours_are_there_or_none_of_theirs(langgraph_file, connect, half, make, caplog):
    half.call(connect(langgraph_file), "put", make.config("old"), make.checkpoint(1), {"step": 1}, {"text": 1})
    caplog.clear()
    assert half.call(connect(langgraph_file), "get_tuple", make.config("old")) is not None
    assert caplog.records == []
    connection = sqlite3.connect(langgraph_file)
    connection.execute("DELETE FROM checkpoints")
    connection.execute("DELETE FROM threadline_threads")
    connection.commit()
    connection.close()
    assert half.call(connect(langgraph_file), "count_threads") == 0
    assert caplog.records == []


def test_a_prefix_that_would_meet_langgraphs_tables_is_refused_and_harms_nothing(langgraph_file, connect, half, make):
    before = their_rows(langgraph_file)
    with pytest.raises(threadline.InvalidRequest, match=r"table_prefix|checkpoints"):
        half.call(connect(langgraph_file, table_prefix=""), "get_tuple", make.config("old"))
    assert their_rows(langgraph_file) == before


def test_tables_of_a_stranger_under_our_names_are_refused_and_left_alone(database, connect, half, make):
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE threadline_meta (mine)")
    connection.execute("INSERT INTO threadline_meta VALUES ('precious')")
    connection.commit()
    with pytest.raises(threadline.ThreadlineError, match=r"threadline_meta|table_prefix"):
        half.call(connect(database), "get_tuple", make.config("t"))
    assert connection.execute("SELECT * FROM threadline_meta").fetchall() == [("precious",)]
    connection.close()
