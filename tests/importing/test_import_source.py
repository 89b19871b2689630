"""Sources of every age and kind: older tables, other tags, encrypted, damaged, or no source at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from import_cases import original, rows_of, tuples_of
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Send

import threadline
from threadline.langgraph import Checkpointer
from threadline.transfer import Counts, import_sqlite

KEY = b"0123456789abcdef"


def write_thread(path: Path, serde: Any = None, thread_id: str = "t", **values: Any) -> Any:
    """One checkpoint with one pending write, by LangGraph's saver; returns its config."""
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection, serde=serde)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [HumanMessage("hello", id="1")], **values}
        checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], f"{1:032d}.{0.25:016f}")
        place = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        config = saver.put(place, checkpoint, {"source": "input", "step": -1}, checkpoint["channel_versions"])
        saver.put_writes(config, [("messages", AIMessage("hi", id="2")), ("note", None)], "task-1", "~path")
        return config


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "other.db: no such file"),
        (
            lambda path: path.write_text("Dear diary, today I wrote no SQL." * 40),
            "is no export of Threadline, and no database",
        ),
        (lambda path: execute(path, "CREATE TABLE recipes (name TEXT)"), "holds no threads of langgraph-checkpoint"),
        (lambda path: execute(path, "CREATE TABLE checkpoints (id INTEGER, state BLOB)"), "holds no threads of langgr"),
        (
            lambda path: execute(path, "CREATE TABLE checkpoints (thread_id TEXT, thread_ts TEXT, checkpoint BLOB)"),
            "from before langgraph-checkpoint-sqlite 1.0",
        ),
        (lambda path: threadline.connect(path).setup(), "is a Threadline store"),
    ],
)
def test_what_is_no_source_is_named_and_nothing_is_made(
    tmp_path: Path, target: Path, import_here: Callable[..., Any], make: Callable[[Path], Any], words: str
) -> None:
    source = tmp_path / "other.db"
    make(source)
    done = import_here(source, "--to", target, status=2 if source.exists() else 1)
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not target.exists()


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "redis://:secret@host", "memory://", "sqlite://", ""])
def test_what_cannot_be_a_source_is_refused(target: Path, import_here: Callable[..., Any], url: str) -> None:
    told = import_here(url, "--to", target, status=2).stderr
    assert "secret" not in told
    assert not target.exists()


def test_a_database_from_before_task_path_is_read_as_langgraph_reads_it(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    write_thread(source)
    execute(source, "UPDATE writes SET task_path = ''", "ALTER TABLE writes DROP COLUMN task_path")
    columns = [row[1] for row in sqlite3.connect(source).execute("PRAGMA table_info(writes)")]
    assert "task_path" not in columns
    report = import_sqlite(source, target)
    assert report.writes == Counts(copied=2)
    assert [row[1] for row in sqlite3.connect(source).execute("PRAGMA table_info(writes)")] == columns
    with Checkpointer(target) as saver:
        found = tuples_of(saver)
    assert found == original(source)  # which adds the column, so it comes last


def test_a_database_without_writes_is_imported(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    write_thread(source)
    execute(source, "DROP TABLE writes")
    assert import_sqlite(source, target).checkpoints == Counts(copied=1)


def test_an_empty_source_is_no_error(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    write_thread(source)
    execute(source, "DELETE FROM checkpoints", "DELETE FROM writes")
    report = import_sqlite(source, target)
    assert (report.threads, report.checkpoints.total, report.is_complete) == (0, 0, True)


def test_values_with_every_tag_are_read(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    config = write_thread(source)
    with SqliteSaver.from_conn_string(str(source)) as saver:
        writes = [("a", b"\x00raw"), ("b", bytearray(b"more")), ("c", None), ("d", {"plain": [1, 2.5]})]
        saver.put_writes(config, writes, "task-2")
    said = json.dumps({"text": "gruß", "n": [1, None, True]}).encode()
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("UPDATE writes SET type = 'json', value = ? WHERE channel = 'd'", (said,))
        connection.commit()
    tags = {row[0] for row in sqlite3.connect(source).execute("SELECT DISTINCT type FROM writes")}
    assert tags == {"bytes", "bytearray", "null", "json", "msgpack"}
    assert import_sqlite(source, target).is_complete
    with Checkpointer(target) as saver:
        found = tuples_of(saver)
        assert type(dict((c, v) for _, c, v in saver.get_tuple(config).pending_writes)["b"]) is bytearray
    assert found == original(source)


def test_checkpoints_in_langgraphs_first_json_form_are_read(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    config = write_thread(source)

    def made(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        *module, cls = name.split(".")
        return {"lc": 2, "type": "constructor", "id": [*module, cls], "args": list(args), "kwargs": kwargs}

    message = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "HumanMessage"],
        "kwargs": {"content": "hello", "type": "human", "id": "1"},
    }
    checkpoint = {
        "v": 1,
        "id": config["configurable"]["checkpoint_id"],
        "ts": "2024-07-01T10:00:00+00:00",
        "channel_values": {
            "messages": [message],
            "when": made("datetime.datetime", "2024-07-01T10:00:00+00:00"),
            "clock": made("datetime.time", hour=9, minute=30, second=0, microsecond=0, tzinfo=None, fold=0),
            "raw": made("builtins.bytes", "00ff"),
            "seen": made("builtins.set", [1, 2]),
        },
        "channel_versions": {"messages": 3, "when": 2, "clock": 2, "raw": 2, "seen": 2},
        "versions_seen": {"__start__": {"messages": 1}},
        "pending_sends": [made("langgraph.constants.Send", node="tool", arg={"n": 1})],
    }
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("UPDATE checkpoints SET type = 'json', checkpoint = ?", (json.dumps(checkpoint).encode(),))
        connection.commit()
    report = import_sqlite(source, target)
    assert report.problems == []
    with Checkpointer(target) as saver:
        found = saver.get(config)
    values = found["channel_values"]
    assert values["messages"] == [HumanMessage("hello", id="1")]
    assert values["when"].isoformat() == "2024-07-01T10:00:00+00:00"
    assert values["clock"].isoformat() == "09:30:00"
    assert (values["raw"], values["seen"]) == (b"\x00\xff", {1, 2})
    assert found["pending_sends"] == [Send("tool", {"n": 1})]
    assert found["channel_versions"]["messages"] == 3


def test_an_encrypted_source_says_what_to_do_before_anything_is_written(
    tmp_path: Path, target: Path, import_here: Callable[..., Any]
) -> None:
    source = tmp_path / "old.db"
    write_thread(source, EncryptedSerializer.from_pycryptodome_aes(key=KEY))
    told = import_here(source, "--to", target, status=2).stderr
    assert "'msgpack+aes'" in told
    assert "cipher=" in told
    assert len(told.splitlines()) == 1
    assert not target.exists()


def test_an_encrypted_source_is_imported_with_its_cipher(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    serde = EncryptedSerializer.from_pycryptodome_aes(key=KEY)
    config = write_thread(source, serde, note="a secret")
    ring = threadline.KeyRing({"2026": bytes(range(32))})
    for _ in range(2):
        report = import_sqlite(source, target, cipher=serde.cipher, encryption=ring)
        assert report.is_complete
    assert report.checkpoints == Counts(present=1)
    assert b"a secret" not in target.read_bytes()
    with Checkpointer(target, encryption=ring) as saver:
        found = saver.get_tuple(config)
    with closing(sqlite3.connect(source)) as connection:
        wanted = SqliteSaver(connection, serde=serde).get_tuple(config)
    assert found == wanted


def test_a_wrong_key_is_a_problem_of_each_row_and_copies_nothing(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    write_thread(source, EncryptedSerializer.from_pycryptodome_aes(key=KEY))
    other = EncryptedSerializer.from_pycryptodome_aes(key=b"x" * 16)
    report = import_sqlite(source, target, cipher=other.cipher)
    assert len(report.problems) == 1
    assert report.checkpoints.total == 0


def test_pickles_are_refused_unread(tmp_path: Path, target: Path, import_here: Callable[..., Any]) -> None:
    source = tmp_path / "old.db"
    write_thread(source, JsonPlusSerializer(pickle_fallback=True), odd=object)
    told = import_here(source, "--to", target, status=1).stderr
    assert "pickle" in told
    assert not target.exists()


def test_an_unknown_tag_is_refused(tmp_path: Path, target: Path, import_here: Callable[..., Any]) -> None:
    source = tmp_path / "old.db"
    write_thread(source)
    execute(source, "UPDATE writes SET type = 'yaml' WHERE channel = 'note'")
    assert "'yaml'" in import_here(source, "--to", target, status=1).stderr
    assert not target.exists()


def test_a_damaged_row_is_named_and_the_rest_is_imported(
    tmp_path: Path, target: Path, import_here: Callable[..., Any]
) -> None:
    source = tmp_path / "old.db"
    for name in ("whole", "cut", "emptied", "unnamed"):
        write_thread(source, thread_id=name)
    execute(
        source,
        "UPDATE checkpoints SET checkpoint = substr(checkpoint, 1, 60) WHERE thread_id = 'cut'",
        "UPDATE checkpoints SET metadata = '{' WHERE thread_id = 'unnamed'",
    )
    with closing(sqlite3.connect(source)) as connection:
        packed = ormsgpack.packb({"v": 4, "ts": "now"})
        connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE thread_id = 'emptied'", (packed,))
        connection.commit()
    before = rows_of(source)
    done = import_here(source, "--to", target, status=1)
    assert [line.split(",")[0] for line in done.stderr.splitlines()] == [
        "threadline: thread 'cut'",
        "threadline: thread 'emptied'",
        "threadline: thread 'unnamed'",
    ]
    assert "1 (1 copied, 0 there already)" in done.stdout
    with threadline.connect(target) as saver:
        assert [thread.thread_id for thread in saver.threads()] == ["whole"]
    assert rows_of(source) == before


def test_writes_of_checkpoints_that_were_never_stored_are_left_out_and_counted(
    tmp_path: Path, target: Path, import_here: Callable[..., Any]
) -> None:
    source = tmp_path / "old.db"
    config = write_thread(source)
    lost = {"configurable": {**config["configurable"], "checkpoint_id": "never-stored"}}
    with SqliteSaver.from_conn_string(str(source)) as saver:
        saver.put_writes(lost, [("a", 1), ("b", 2)], "task-9")
    told = import_here(source, "--to", target).stdout
    assert "2 of checkpoints that were never stored: left out" in told


def test_indexes_of_writes_are_kept_where_they_have_gaps(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    config = write_thread(source)
    with SqliteSaver.from_conn_string(str(source)) as saver:
        saver.put_writes(config, [("__interrupt__", ("?",)), ("a", 1), ("__resume__", ["!"]), ("b", 2)], "task-2")
    import_sqlite(source, target)

    def indexes(path: Path, table: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(f"SELECT task_id, idx, channel, task_path FROM {table} ORDER BY 1, 2").fetchall()

    assert indexes(target, "threadline_writes") == indexes(source, "writes")


def test_strange_ids_and_metadata_come_through(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "old.db"
    for name in ("a/b:{c}*%", "ñ" * 300, "7"):
        write_thread(source, thread_id=name)
    said = json.dumps({"source": "loop", "step": 1, "writes": {"n": [1.5, None]}, "big": 2**80, "nan": float("inf")})
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("UPDATE checkpoints SET metadata = ?", (said.encode(),))
        connection.execute("UPDATE checkpoints SET metadata = NULL WHERE thread_id = '7'")
        connection.commit()
    assert import_sqlite(source, target).is_complete
    with Checkpointer(target) as saver:
        assert tuples_of(saver) == original(source)


def test_serializers_of_others_are_not_taken(source: Path, target: Path) -> None:
    with pytest.raises(threadline.InvalidRequest, match="serde="):
        import_sqlite(source, target, serde=JsonPlusSerializer())
    assert not target.exists()


def test_bytes_before_and_after_are_told(source: Path, target: Path, import_here: Callable[..., Any]) -> None:
    content = sum(
        len(cell) for rows in rows_of(source).values() for row in rows for cell in row if isinstance(cell, bytes)
    )
    told = import_here(source, "--to", target, "--json").stdout
    report = json.loads(told)
    assert report["bytes_before"] == content
    assert 0 < report["bytes_after"] * 8 < content
    assert f"bytes before    {content:,} (" in import_here(source, "--to", target).stdout
