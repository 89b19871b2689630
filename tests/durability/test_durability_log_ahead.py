"""Zeros behind the end of a growing `-wal`: nothing is lost by them, and nothing depends on them."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

import threadline
from tests.stores import savers
from threadline.backends.sqlite import room as sqlite_room

pytestmark = pytest.mark.skipif(not sqlite_room._IS_POSSIBLE, reason="this system has no pwrite")

FRAME = 24 + 4096


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agents.db"


@pytest.fixture
def saver(path):
    with savers(f"sqlite:///{path}") as opening:
        yield opening()


def put(saver, number, size=100):
    saver.thread("t").put({"number": number, "text": "x" * size})


def numbers(saver):
    return [saver.thread("t").state(one)["number"] for one in reversed(list(saver.thread("t").log()))]


def log_of(path):
    return path.with_name(path.name + "-wal")


def frames_used(path):
    """How many frames of the log have the salts of its header."""
    log = log_of(path).read_bytes()
    count = 0
    while log[32 + count * FRAME + 8 : 32 + count * FRAME + 16] == log[16:24]:
        count += 1
    return count


def test_a_log_that_grows_has_zeros_behind_its_last_frame(saver, path):
    for number in range(12):
        put(saver, number)
    log, used = log_of(path).read_bytes(), 32 + frames_used(path) * FRAME
    assert len(log) > used + sqlite_room._LOW_BYTES // 2
    assert not any(log[used:])
    assert numbers(saver) == list(range(12))


def test_a_process_that_commits_twice_writes_nothing_ahead(path):
    with savers(f"sqlite:///{path}") as opening:
        opening().setup()
    with savers(f"sqlite:///{path}") as opening:
        saver = opening()
        put(saver, 0)
        put(saver, 1)
        assert log_of(path).stat().st_size == 32 + frames_used(path) * FRAME


def test_the_log_never_becomes_longer_than_sqlite_uses_it(saver, path):
    for number in range(120):
        put(saver, number, size=60_000)
    assert log_of(path).stat().st_size < sqlite_room._ENOUGH_BYTES + sqlite_room._STEP_BYTES + 40 * FRAME


def test_another_program_reads_and_writes_the_database(saver, path):
    for number in range(8):
        put(saver, number)
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    before = other.execute("SELECT count(*) FROM threadline_checkpoints").fetchone()
    assert before == (8,)
    other.execute("CREATE TABLE notes (text)")
    other.execute("INSERT INTO notes VALUES ('theirs')")
    other.commit()
    for number in range(8, 16):
        put(saver, number)
    assert other.execute("SELECT text FROM notes").fetchall() == [("theirs",)]
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(16, 24):
        put(saver, number)
    other.close()
    assert numbers(saver) == list(range(24))


def test_files_that_were_copied_under_way_are_recovered(saver, path, tmp_path):
    """Without the `-shm`, SQLite reads the log from its beginning, as after a loss of power."""
    for number in range(15):
        put(saver, number)
    copied = tmp_path / "copied" / path.name
    copied.parent.mkdir()
    shutil.copy(path, copied)
    shutil.copy(log_of(path), log_of(copied))
    with savers(f"sqlite:///{copied}") as opening:
        assert numbers(opening()) == list(range(15))


def test_a_log_that_was_cut_anywhere_in_the_zeros_is_recovered(saver, path, tmp_path):
    for number in range(6):
        put(saver, number)
    used = 32 + frames_used(path) * FRAME
    for more in (0, 1, 24, FRAME - 1, FRAME, sqlite_room._STEP_BYTES // 2):
        copied = tmp_path / f"cut-{more}" / path.name
        copied.parent.mkdir()
        shutil.copy(path, copied)
        log_of(copied).write_bytes(log_of(path).read_bytes()[: used + more])
        with savers(f"sqlite:///{copied}") as opening:
            assert numbers(opening()) == list(range(6))


def test_a_writer_that_is_killed_loses_nothing(path):
    program = (
        "import sys, threadline\n"
        "saver = threadline.connect(sys.argv[1])\n"
        "for number in range(10_000):\n"
        "    saver.thread('t').put({'number': number, 'text': 'x' * 100})\n"
        "    print(number, flush=True)\n"
    )
    for turn in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", program, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True
        )
        acknowledged = [int(process.stdout.readline()) for _ in range(10 + 7 * turn)][-1]
        process.send_signal(signal.SIGKILL)
        acknowledged = [acknowledged, *map(int, process.stdout.read().split())][-1]
        process.wait()
        process.stdout.close()
        with savers(f"sqlite:///{path}") as opening:
            found = numbers(opening())
            assert acknowledged in found
            assert opening().fsck().ok
            opening().delete_thread("t")


def test_a_log_that_begins_anew_is_written_ahead_again(saver, path):
    for number in range(8):
        put(saver, number)
    other = sqlite3.connect(path)
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    for number in range(8, 16):
        put(saver, number)
    assert log_of(path).stat().st_size > 32 + frames_used(path) * FRAME
    assert numbers(saver) == list(range(16))


def test_a_disk_with_little_room_is_left_alone(saver, path, monkeypatch):
    monkeypatch.setattr(sqlite_room, "_LEFT_BYTES", 1 << 62)
    for number in range(12):
        put(saver, number)
    assert log_of(path).stat().st_size == 32 + frames_used(path) * FRAME


def test_a_log_that_cannot_be_written_ahead_is_as_long_as_before(saver, path, monkeypatch):
    put(saver, 0)
    real, sizes = os.pwrite, []

    def half(file, content, at):
        sizes.append(at)
        real(file, content[: len(content) // 2], at)
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(sqlite_room.os, "pwrite", half)
    for number in range(1, 12):
        put(saver, number)
    monkeypatch.undo()
    assert sizes
    assert log_of(path).stat().st_size == 32 + frames_used(path) * FRAME
    assert numbers(saver) == list(range(12))


def test_no_descriptor_of_the_log_stays_open(saver, path):
    put(saver, 0)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    for number in range(1, 40):
        put(saver, number)
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_log_of_another_database_under_the_name_is_left_alone(saver, path, tmp_path):
    """As after a restore beside a running process: what was opened by its name is not what SQLite has open."""
    put(saver, 0)
    file = saver._engine._connections._file
    other = tmp_path / "other.db"
    with savers(f"sqlite:///{other}") as opening:
        theirs = opening()
        for number in range(6):
            put(theirs, number)
        before = log_of(other).read_bytes()

        class Misled:
            wal_name = str(log_of(other))
            is_wal = file.is_wal

        for _ in range(3):
            sqlite_room.LogAhead().before_commit(Misled())
        ahead = sqlite_room.LogAhead()
        for _ in range(12):
            ahead.before_commit(Misled())
        assert log_of(other).read_bytes() == before


def test_a_given_connection_is_left_alone(path):
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    saver = threadline.connect(connection=connection)
    for number in range(12):
        put(saver, number)
    assert log_of(path).stat().st_size == 32 + frames_used(path) * FRAME
    connection.close()
