"""Files that cannot be used: read-only, full, no database, not there, of a newer format."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import threadline

HERE = Path(__file__).parent


@pytest.fixture
def limited(half):
    """Runs a scenario of limited.py; the last line it printed."""
    package_root = Path(threadline.__file__).resolve().parents[1]

    def run(limit, scenario, path):
        # Another user may not be able to write the byte code of this one's files.
        environment = {**os.environ, "PYTHONPATH": str(package_root), "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = [sys.executable, str(HERE / "limited.py"), limit, scenario, str(path), half.name]
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.splitlines()

    return run


@pytest.fixture
def filled(database, connect, make):
    """A file with one checkpoint of the thread `kept`, closed."""
    saver = connect(database)
    saver.put(make.config("kept"), make.checkpoint(1), {"step": 1}, {"text": 1})
    saver.close()
    return database


@pytest.fixture
def open_folder(tmp_path):
    """Lets other users come as far as the test's folder."""
    before = {folder: folder.stat() for folder in (tmp_path, *tmp_path.parents)}
    changed = [folder for folder, was in before.items() if was.st_uid == os.getuid() and not was.st_mode & 0o001]
    for folder in changed:
        folder.chmod(before[folder].st_mode | 0o055)
    yield tmp_path
    for folder in changed:
        folder.chmod(before[folder].st_mode)


def test_a_saver_that_only_reads_reads_and_writes_nothing(filled, connect, half, make):
    before = filled.read_bytes()
    saver = connect(filled, read_only=True)
    assert half.call(saver, "get_tuple", make.config("kept")).checkpoint == make.checkpoint(1)
    assert len(half.listed(saver, None)) == 1
    for verb, *arguments in (
        ("put", make.config("kept"), make.checkpoint(2), {"step": 2}, {"text": 2}),
        ("put_writes", make.config("kept", "00000001"), [("text", 1)], "task"),
        ("delete_thread", "kept"),
        ("copy_thread", "kept", "copy"),
        ("delete_checkpoint", make.config("kept", "00000001")),
        ("setup",),
    ):
        with pytest.raises(threadline.ReadOnly, match="read_only"):
            half.call(saver, verb, *arguments)
    saver.close()
    assert filled.read_bytes() == before


def test_a_saver_that_only_reads_sees_what_others_write(filled, connect, half, make):
    reader, writer = connect(filled, read_only=True), connect(filled)
    for number in (2, 3):
        half.call(writer, "put", make.config("kept"), make.checkpoint(number), {"step": number}, {"text": number})
        assert half.call(reader, "get_tuple", make.config("kept")).checkpoint == make.checkpoint(number)


def test_only_reading_a_store_in_memory_writes_nothing_either(connect, tmp_path, half, make):
    name = f"memory://{tmp_path}"
    connect(name).put(make.config("kept"), make.checkpoint(1), {"step": 1}, {"text": 1})
    saver = connect(name, read_only=True)
    assert half.call(saver, "get_tuple", make.config("kept")).checkpoint == make.checkpoint(1)
    with pytest.raises(threadline.ReadOnly, match="read_only"):
        half.call(saver, "put", make.config("kept"), make.checkpoint(2), {"step": 2}, {"text": 2})


def test_only_reading_creates_no_file(database, connect, half, make):
    with pytest.raises(threadline.InvalidRequest, match=database.name):
        half.call(connect(database, read_only=True), "get_tuple", make.config("kept"))
    assert not database.exists()


def test_a_file_opened_with_mode_ro_can_be_read_and_says_that_it_is_read_only(filled, connect, half, make):
    saver = connect(f"file:{filled}?mode=ro")
    assert half.call(saver, "get_tuple", make.config("kept")).checkpoint == make.checkpoint(1)
    with pytest.raises(threadline.ReadOnly, match=filled.name):
        half.call(saver, "put", make.config("kept"), make.checkpoint(2), {"step": 2}, {"text": 2})


def test_a_user_without_rights_to_the_file_is_told_that_it_is_read_only(filled, open_folder, limited):
    filled.chmod(0o644)
    open_folder.chmod(0o777)
    [said] = limited("nobody", "put", filled)
    assert said.startswith("ReadOnly")
    assert filled.name in said


def test_a_user_without_rights_to_the_folder_is_told_so(filled, open_folder, limited):
    filled.chmod(0o644)
    open_folder.chmod(0o755)
    [said] = limited("nobody", "put", filled)
    assert said.startswith(("ReadOnly", "Unavailable"))
    assert filled.name in said
    [said] = limited("nobody", "put", filled.with_name("new.db"))
    assert said.startswith(("ReadOnly", "Unavailable"))
    assert "new.db" in said
    assert not filled.with_name("new.db").exists()


def test_a_user_who_may_only_read_reads(filled, open_folder, limited):
    """Neither file nor folder may be written; that is what read_only=True is for."""
    filled.chmod(0o644)
    open_folder.chmod(0o755)
    assert limited("nobody", "read_only", filled) == ["no error"]


def test_a_file_that_may_not_grow_loses_nothing(database, limited, connect, make):
    """A bound on the size of files behaves like a full disk: an error that is also an OSError, and whole puts."""
    count, said = limited("size:1500000", "fill", database)
    assert said.startswith(("StorageFull", "Unavailable"))
    assert database.name in said
    listed = list(connect(database).list(make.config("filling")))
    assert len(listed) == int(count) > 5
    assert all(len(found.checkpoint["channel_values"]["text"]) == 30_000 for found in listed)


def test_a_full_database_is_said_to_be_full_and_loses_nothing(database, connect, half, make):
    from threadline.langgraph import SqliteSaver

    connection = sqlite3.connect(database, check_same_thread=False)
    saver = SqliteSaver(connection)
    half.call(saver, "put", make.config("kept"), make.checkpoint(1), {"step": 1}, {"text": 1})
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    put = make.checkpoint(2, text=os.urandom(200_000))
    with pytest.raises(threadline.StorageFull, match="room") as caught:
        half.call(saver, "put", make.config("kept", "00000001"), put, {"step": 2}, {"text": 2})
    assert isinstance(caught.value, OSError)
    assert not connection.in_transaction
    assert half.call(saver, "get_tuple", make.config("kept")).checkpoint == make.checkpoint(1)
    connection.execute("PRAGMA max_page_count = 100000")
    half.call(saver, "put", make.config("kept", "00000001"), put, {"step": 2}, {"text": 2})
    assert half.call(connect(database), "get_tuple", make.config("kept")).checkpoint == put
    connection.close()


@pytest.mark.parametrize(
    "content",
    [b"This is no database. " * 200, b"xy", b"SQLite format 3\0" + b"\xff" * 5000],
    ids=["text", "two bytes", "header"],
)
def test_a_file_that_is_no_database_is_left_as_it_is(database, connect, half, make, content):
    database.write_bytes(content)
    for verb, *arguments in (
        ("put", make.config("t"), make.checkpoint(1), {"step": 1}, {"text": 1}),
        ("get_tuple", make.config("t")),
        ("open",),
        ("setup",),
    ):
        with pytest.raises((threadline.InvalidRequest, threadline.Corrupt), match=database.name):
            half.call(connect(database), verb, *arguments)
    with pytest.raises((threadline.InvalidRequest, threadline.Corrupt), match=database.name):
        half.listed(connect(database), None)
    assert database.read_bytes() == content


def test_an_empty_file_becomes_a_database(database, connect, half, make):
    database.touch()
    half.call(connect(database), "put", make.config("t"), make.checkpoint(1), {"step": 1}, {"text": 1})
    assert half.call(connect(database), "get_tuple", make.config("t")).checkpoint == make.checkpoint(1)


def test_a_database_cut_short_is_corrupt_and_never_a_wrong_value(filled, connect, half, make):
    content = filled.read_bytes()
    for kept in (100, 4096, len(content) // 2, len(content) - 4096):
        filled.write_bytes(content[:kept])
        saver = connect(filled, timeout=1.0)
        try:
            found = half.call(saver, "get_tuple", make.config("kept"))
        except (threadline.Corrupt, threadline.InvalidRequest):
            continue
        assert found.checkpoint == make.checkpoint(1)


@pytest.mark.parametrize("path", ["", "folder", "missing/threads.db", "missing/deeper/threads.db"])
def test_a_path_that_cannot_be_a_file_is_named(tmp_path, connect, half, make, path):
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for verb, *arguments in (("put", make.config("t"), make.checkpoint(1), {}, {}), ("get_tuple", make.config("t"))):
        with pytest.raises(threadline.ThreadlineError) as caught:
            half.call(connect(tmp_path / path), verb, *arguments)
        assert str((tmp_path / path).parent if "missing" in path else tmp_path / path) in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def set_format(database, value):
    connection = sqlite3.connect(database)
    connection.execute("UPDATE threadline_meta SET value = ? WHERE name = 'format'", (value,))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("setup", ["create", "migrate", False])
def test_a_newer_format_is_refused_and_left_alone(filled, connect, half, make, setup):
    set_format(filled, b"99")
    before = filled.read_bytes()
    for verb, *arguments in (
        ("put", make.config("kept"), make.checkpoint(2), {"step": 2}, {"text": 2}),
        ("get_tuple", make.config("kept")),
        ("delete_thread", "kept"),
        ("setup",),
    ):
        with pytest.raises(threadline.NewerFormat, match="99"):
            half.call(connect(filled, setup=setup), verb, *arguments)
    assert filled.read_bytes() == before


@pytest.mark.parametrize("value", [b"", b"one", b"\xff", b"-1", b"0", b"1.5", "text", None, 2.5], ids=repr)
def test_a_format_that_is_no_number_of_ours_is_refused(filled, connect, half, make, value):
    set_format(filled, value)
    with pytest.raises(threadline.ThreadlineError, match="format"):
        half.call(connect(filled), "get_tuple", make.config("kept"))


def test_without_setup_an_empty_database_stays_empty(database, connect, half, make):
    for verb, *arguments in (
        ("put", make.config("t"), make.checkpoint(1), {"step": 1}, {"text": 1}),
        ("get_tuple", make.config("t")),
    ):
        with pytest.raises(threadline.InvalidRequest, match=r"setup\(\)"):
            half.call(connect(database, setup=False), verb, *arguments)
    connection = sqlite3.connect(database)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()


def test_without_setup_the_tables_are_made_by_setup_alone(database, connect, half, make):
    saver = connect(database, setup=False)
    half.call(saver, "setup")
    half.call(saver, "put", make.config("t"), make.checkpoint(1), {"step": 1}, {"text": 1})
    assert half.call(connect(database, setup=False), "get_tuple", make.config("t")).checkpoint == make.checkpoint(1)


def test_a_locked_database_is_busy_for_as_long_as_the_timeout_says(filled, connect, half, make):
    blocker = sqlite3.connect(filled, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    saver = connect(filled, timeout=0.2)
    started = time.monotonic()
    with pytest.raises(threadline.Unavailable, match=filled.name) as caught:
        half.call(saver, "put", make.config("kept"), make.checkpoint(2), {"step": 2}, {"text": 2})
    assert time.monotonic() - started < 2
    assert isinstance(caught.value, ConnectionError)
    assert half.call(saver, "get_tuple", make.config("kept")).checkpoint == make.checkpoint(1)
    blocker.execute("ROLLBACK")
    blocker.close()
    half.call(saver, "put", make.config("kept"), make.checkpoint(2), {"step": 2}, {"text": 2})
