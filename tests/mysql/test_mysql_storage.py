"""What is stored: long and odd ids and texts, large values, the schema and the rights it needs."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import lives
import pytest

import threadline
from threadline.backends.mysql.binding import bound, key_of
from threadline.backends.mysql.schema import tables
from threadline.base.drive import run_now
from threadline.errors import Corrupt, InvalidRequest, NewerFormat, ReadOnly
from threadline.ports.checkpoints import Change, CheckpointRow, ChunkRow, Query, WriteRow

ODD = [
    "nul\0inside",
    "\ud800 lone",
    "quote ' and \\ and \" and ; -- %s ?",
    "Köln 💬",
    "trailing  ",
    "\x1a\n\r\t",
    "A",
    "a",
]


def backend_of(saver):
    saver.open()
    return saver._engine._blocking


def row(namespace, id, parent=None, **more):
    values = {
        "links": b"",
        "form": 0,
        "document": b"d\0'\\",
        "metadata_form": 0,
        "metadata": b"\xff\xfe",
        "step": 1,
        "source": "loop",
        "run_id": None,
        "created": 1767323045.6789012,
        "searchable": None,
    }
    return CheckpointRow(namespace, id, parent, **{**values, **more})


@pytest.mark.parametrize("odd", ODD)
def test_any_text_comes_back_as_it_was(connect, odd):
    backend = backend_of(connect())
    made = row(odd, odd, odd, source=odd, run_id=odd, searchable='{"a":1}')
    write = WriteRow(odd, odd, odd, -3, odd, odd, b"", 1, b"\0\xff'\\")
    run_now(backend.apply([Change(thread_id=odd, now=1.5, checkpoints=[made], writes=[write])]))
    found = run_now(backend.find(odd, odd, odd))
    assert found.thread_id == odd
    assert found.row == made
    assert found.writes == [write]
    assert [one.row for one in run_now(backend.page(Query(thread_id=odd, namespace=odd, run_ids=(odd,))))] == [made]
    assert [one.row.id for one in run_now(backend.heads([odd, "none"], odd))] == [odd]
    assert run_now(backend.thread(odd)).thread_id == odd
    assert run_now(backend.swap_lease(odd, None, b"l"))
    assert run_now(backend.leases(odd)) == [b"l"]


def test_text_that_differs_in_case_or_trailing_space_is_different(connect):
    saver = connect()
    names = ["a", "A", "a ", "á", "a\0"]
    for name in names:
        saver.put(*lives.put_arguments(name, 0))
    assert [info.thread_id for info in saver.threads()] == sorted(names, key=str.encode)
    assert [info.thread_id for info in saver.threads(prefix="a")] == ["a", "a\0", "a "]


LENGTHS = [399, 400, 499, 500, 501, 1000, 1015, 1016, 5000, 70_000]


@pytest.mark.parametrize("letter", ["n", "💬"])
def test_thread_ids_namespaces_and_task_ids_have_any_length(connect, letter):
    saver = connect()
    for length in LENGTHS:
        for end in ("x", "y"):
            thread_id = namespace = letter * (length - 1) + end
            config, *rest = lives.put_arguments(thread_id, 0, namespace)
            at = saver.put(config, *rest)
            saver.put_writes(at, [("a", end)], "t" * length + end)
            saver.put_writes(at, [("a", end)], "t" * length + "other")
    saver.clear_cache()
    seen = []
    for length in LENGTHS:
        for end in ("x", "y"):
            name = letter * (length - 1) + end
            found = saver.get_tuple(lives.config(name, namespace=name))
            assert found.config["configurable"]["thread_id"] == name
            assert found.config["configurable"]["checkpoint_ns"] == name
            assert sorted(task for task, _, _ in found.pending_writes) == sorted(
                ["t" * length + end, "t" * length + "other"]
            )
            seen.append(name)
    assert sorted(info.thread_id for info in saver.threads()) == sorted(seen)
    assert len(list(saver.list(None))) == len(seen)
    saver.copy_thread(seen[-1], "copy")
    saver.delete_thread(seen[-1])
    assert saver.get_tuple(lives.config(seen[-1], namespace=seen[-1])) is None
    assert saver.get_tuple(lives.config("copy", namespace=seen[-1])) is not None
    with saver.lock(seen[-2], wait=0):
        pass


def test_a_key_is_never_taken_for_another_text():
    long = b"n" * 2000
    assert key_of("namespace", b"n" * 499) == b"n" * 499
    assert len(key_of("namespace", long)) == 500
    assert key_of("namespace", key_of("namespace", long)) != key_of("namespace", long)


def test_checkpoint_ids_are_ordered_exactly_and_refused_when_too_long(connect):
    saver = connect()
    ids = ["i" * length for length in (1, 36, 999, 1000)] + ["i" * 998 + end for end in ("a", "z")]
    for id in ids:
        config, checkpoint, *rest = lives.put_arguments("ids", 0)
        saver.put(config, {**checkpoint, "id": id}, *rest)
    listed = [one.checkpoint["id"] for one in saver.list(lives.config("ids"))]
    assert listed == sorted(ids, reverse=True)
    config, checkpoint, *rest = lives.put_arguments("ids", 0)
    with pytest.raises(InvalidRequest, match="1000 bytes"):
        saver.put(config, {**checkpoint, "id": "i" * 1001}, *rest)


def test_a_packet_above_the_limit_is_refused_before_it_is_sent(connect, root):
    with root.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        [limit] = cursor.fetchone()
    saver = connect()
    backend = backend_of(saver)
    chunk = ChunkRow(b"d" * 16, b"", 0, b"x" * limit)
    with pytest.raises(InvalidRequest, match="max_allowed_packet") as caught:
        run_now(backend.apply([Change(thread_id="large", now=1.0, chunks=[chunk])]))
    assert str(limit - 64) in str(caught.value)
    assert "xxx" not in str(caught.value)
    assert run_now(backend.thread("large")) is None
    # Many that fit one by one travel in several packets.
    rows = [ChunkRow(bytes([n]) * 16, b"", 0, bytes([n]) * (limit // 3)) for n in range(8)]
    run_now(backend.apply([Change(thread_id="large", now=1.0, chunks=rows)]))
    pool = run_now(backend.thread("large")).pool
    for chunk in rows:
        assert run_now(backend.chunks(pool, [chunk.digest])) == [tuple(chunk)]


def test_values_cannot_end_a_literal():
    assert bound("SELECT ?", ("it's",)) == b"SELECT X'69742773'"
    with pytest.raises(InvalidRequest):
        bound("SELECT ?", (float("nan"),))


def test_a_newer_store_is_refused(connect, root, prefix):
    connect().open()
    root.query(f"UPDATE {prefix}meta SET value = '99' WHERE name = 'format'")
    with pytest.raises(NewerFormat, match="99"):
        connect().open()
    with pytest.raises(NewerFormat, match="99"):
        connect().setup()
    root.query(f"UPDATE {prefix}meta SET value = 'x' WHERE name = 'format'")
    with pytest.raises(Corrupt):
        connect().open()


def test_an_older_store_is_migrated_only_when_told_to(connect, root, prefix):
    connect().put(*lives.put_arguments("old", 0))
    root.query(f"UPDATE {prefix}meta SET value = '0' WHERE name = 'format'")
    with pytest.raises(InvalidRequest, match="migrate"):
        connect().open()
    assert lives.check(connect(setup="migrate").get_tuple(lives.config("old")), "old") == 0
    assert connect().get_tuple(lives.config("old")) is not None


def test_a_store_that_is_not_there_is_not_made_unasked(connect, root, prefix):
    for options in ({"setup": False}, {"read_only": True}):
        with pytest.raises(InvalidRequest, match="setup"):
            connect(**options).get_tuple(lives.config("any"))
    with root.cursor() as cursor:
        assert cursor.execute("SHOW TABLES LIKE %s", (prefix.replace("_", r"\_") + "%",)) == 0


def test_half_a_setup_is_finished_by_the_next(connect, root, prefix):
    connect().open()
    root.query(f"DROP TABLE {prefix}chunks, {prefix}writes")
    root.query(f"DELETE FROM {prefix}meta")
    saver = connect()
    saver.put(*lives.put_arguments("half", 0))
    assert lives.check(saver.get_tuple(lives.config("half")), "half") == 0


def test_the_printed_ddl_makes_a_whole_store(connect, root, prefix):
    saver = connect(setup=False)
    for statement in saver._engine.ddl().split(";\n"):
        if statement.strip():
            root.query(statement)
    saver.put(*lives.put_arguments("printed", 0))
    assert lives.check(saver.get_tuple(lives.config("printed")), "printed") == 0


def test_tables_dropped_under_a_running_saver_are_named(connect, root, prefix):
    saver = connect(retry=None)
    saver.put(*lives.put_arguments("dropped", 0))
    root.query(f"DROP TABLE {', '.join(tables(prefix))}")
    with pytest.raises(InvalidRequest, match="setup"):
        saver.put(*lives.put_arguments("dropped", 1))


def test_rights_that_are_missing_are_named(connect, root, prefix, mysql_url):
    connect().put(*lives.put_arguments("rights", 0))
    database = urlsplit(mysql_url).path[1:]
    user = f"u{prefix}"[:30]
    root.query(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'a-pass-word-1A!'")
    try:
        root.query(f"GRANT SELECT ON {database}.* TO '{user}'@'%'")
        host = urlsplit(mysql_url).netloc.rpartition("@")[2]
        url = f"mysql://{user}:a-pass-word-1A!@{host}/{database}"
        saver = connect(url, retry=None)
        assert lives.check(saver.get_tuple(lives.config("rights")), "rights") == 0
        with pytest.raises(InvalidRequest, match="GRANT") as caught:
            saver.put(*lives.put_arguments("rights", 1))
        assert "a-pass-word" not in str(caught.value)
        reader = connect(url, read_only=True)
        assert lives.check(reader.get_tuple(lives.config("rights")), "rights") == 0
        with pytest.raises(ReadOnly):
            reader.put(*lives.put_arguments("rights", 1))
    finally:
        root.query(f"DROP USER '{user}'@'%'")


def test_threads_of_langgraph_in_the_same_database_are_pointed_out(connect, root, caplog):
    root.query(
        "CREATE TABLE checkpoints (thread_id VARCHAR(99), checkpoint_ns VARCHAR(99), parent_checkpoint_id VARCHAR(99))"
    )
    try:
        connect().open()
        assert "threadline import" not in caplog.text
        root.query("INSERT INTO checkpoints VALUES ('t', '', NULL)")
        connect().open()
        assert "threadline import" in caplog.text
    finally:
        root.query("DROP TABLE checkpoints")


def test_compacting_and_sizes_work(connect):
    saver = connect()
    backend = backend_of(saver)
    empty = run_now(backend.space()).held_bytes
    for step in range(20):
        saver.put(*lives.put_arguments("sized", step))
    full = run_now(backend.space()).held_bytes
    assert full > empty
    saver.delete_thread("sized")
    run_now(backend.compact())
    assert run_now(backend.space()).held_bytes < full


def test_importing_threadline_loads_no_driver_of_mysql():
    import subprocess

    script = "import sys, threadline; print('pymysql' in sys.modules or 'aiomysql' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(threadline.__file__).resolve().parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
