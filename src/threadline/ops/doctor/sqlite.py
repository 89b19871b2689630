"""A SQLite file: its journal, its room, the log beside it, and whether locks on its file system really lock."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from ...backends.sqlite.file import uri_of
from ...show.figures import readable_bytes
from .findings import Finding, checked, note, ok, problem, warning

__all__ = ["examine_sqlite"]

_LARGE_LOG_BYTES = 64_000_000
_LEAST_FREE_BYTES = 1_000_000_000
# Checking every page of a larger file takes longer than somebody waits at night.
_QUICK_BYTES = 500_000_000
# File systems whose locks do not reach other machines, or not reliably.
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.s3fs")
# Tries to write to a database that its parent has locked.
_INTRUDER = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    print("locked")
"""


def examine_sqlite(engine: Any) -> list[Finding]:
    """What the file and its surroundings say."""
    path = engine.url.removeprefix("sqlite:///")
    if engine.url == "sqlite://" or path == ":memory:":
        return [note("backend", "SQLite in the memory of this process", "name a file for what should last")]
    path = os.path.realpath(path)
    found = checked("backend", lambda: _settings(engine))
    if not os.path.exists(path):
        return found
    for subject, check in (
        ("room", lambda: _room(path)),
        ("log", lambda: _log(engine, path)),
        ("file system", lambda: _file_system(path)),
        ("locks", lambda: _locks(path)),
        ("pages", lambda: _pages(path)),
    ):
        found += checked(subject, check)
    return found


def _settings(engine: Any) -> Iterable[Finding]:
    with engine.alone() as connection:
        [[journal]] = connection.execute("PRAGMA journal_mode").fetchall()
        [[level]] = connection.execute("PRAGMA synchronous").fetchall()
    named = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}.get(level, str(level))
    told = f"SQLite {sqlite3.sqlite_version}, journal {journal}, synchronous {named} in this process"
    if journal != "wal":
        yield warning("backend", told, "without WAL readers wait for writers: open it once with threadline.connect()")
    elif level < 2:
        yield problem("backend", told, "a power cut may take the last puts: open savers with synchronous='FULL'")
    else:
        yield ok("backend", told)


def _room(path: str) -> Iterable[Finding]:
    free, size = shutil.disk_usage(os.path.dirname(path)).free, os.path.getsize(path)
    told = f"{readable_bytes(free)} free beside a file of {readable_bytes(size)}"
    if free < _LEAST_FREE_BYTES / 10:
        yield problem("room", told, "make room now: without any, nothing can be put; `threadline prune` still works")
    elif free < max(_LEAST_FREE_BYTES, size):
        yield warning("room", told, "make room: `threadline compact` needs as much as the file holds")
    else:
        yield ok("room", told)


def _log(engine: Any, path: str) -> Iterable[Finding]:
    """The write-ahead log grows for as long as a reader keeps an old state open."""
    size = os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0
    with engine.alone() as connection:
        [[_, pages, moved]] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    told = f"{readable_bytes(size)} in the log, {max(pages - moved, 0):,} pages of it not yet moved into the file"
    if size <= _LARGE_LOG_BYTES:
        yield ok("log", told)
    elif pages > moved:
        yield warning("log", told, "a reader keeps an old state open: end the process that reads for so long")
    else:
        yield note("log", told, "it shrinks when the last process closes the file; `threadline compact` shrinks it now")


def _file_system(path: str) -> Iterable[Finding]:
    kind = _kind_of_mount(path)
    if kind is None:
        return
    if kind in _REMOTE:
        yield problem(
            "file system",
            f"the file is on a network file system ({kind})",
            "SQLite's locks do not hold there, and the file will be damaged: move it to a local disk, or use a server",
        )
    else:
        yield ok("file system", kind)


def _kind_of_mount(path: str) -> str | None:
    """The type of the file system that a path is on; None where the system does not list them."""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
            rows = [line.split() for line in mounts]
    except OSError:
        return None
    fitting = [row for row in rows if len(row) > 2 and _is_below(path, row[1].replace("\\040", " "))]
    return max(fitting, key=lambda row: len(row[1]))[2] if fitting else None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _locks(path: str) -> Iterable[Finding]:
    """Lock a small database beside the file, and let another process try to write to it."""
    folder = os.path.dirname(path)
    if not os.access(folder, os.W_OK):
        yield note("locks", "could not be tried: the folder cannot be written to", "run the doctor as the application")
        return
    with tempfile.TemporaryDirectory(prefix=".threadline-doctor-", dir=folder) as scratch:
        name = os.path.join(scratch, "locks.db")
        connection = sqlite3.connect(name, isolation_level=None)
        try:
            connection.execute("CREATE TABLE t (x)")
            connection.execute("BEGIN IMMEDIATE")
            done = subprocess.run(
                [sys.executable, "-I", "-c", _INTRUDER, name], capture_output=True, text=True, timeout=60
            )
        finally:
            connection.close()
    if done.stdout.strip() == "locked":
        yield ok("locks", "another process was kept from writing, as it should be")
    else:
        yield problem(
            "locks",
            "another process could write at the same time",
            "the file system's locks do not lock: move the file to a local disk, or use a server",
        )


def _pages(path: str) -> Iterable[Finding]:
    size = os.path.getsize(path)
    if size > _QUICK_BYTES:
        yield note("pages", f"not checked: {readable_bytes(size)} take a while", "run PRAGMA quick_check on a copy")
        return
    try:
        # A connection of its own: the engine opens none to a file whose tables it cannot read.
        with closing(sqlite3.connect(f"{uri_of(path)}?mode=ro", uri=True)) as connection:
            told = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        told = [str(error)]
    if told == ["ok"]:
        yield ok("pages", "the structure of the file is sound")
    else:
        yield problem(
            "pages",
            f"the file is damaged: {'; '.join(told)}",
            "stop all writers, keep a copy, and restore a backup; docs/repair.md says what can be saved",
        )
