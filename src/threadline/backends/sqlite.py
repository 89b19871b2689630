"""SQLite: the dialect, the connections, and how work gets onto them.

A file has one connection that writes, behind the shared commit (backends/group.py), and a few that read;
`:memory:` and a given connection have one for both. Under asyncio an operation hops to a worker thread
once. An acknowledged put survives `kill -9` and a power cut: WAL with `synchronous=FULL`.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ..drive import run_now
from ..errors import Closed, Conflict, InvalidRequest, ReadOnly, StorageFull, Unavailable
from .sql.backend import Transaction
from .sqlite_errors import is_busy, translated
from .sqlite_file import DatabaseFile, absolute, uri_of
from .sqlite_room import Room

__all__ = ["SqliteConnections", "SqliteDialect", "SqliteTransaction"]

T = TypeVar("T")

COLUMN_TYPES = {
    "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "text": "TEXT",
    "key": "TEXT",
    "blob": "BLOB",
    "whole": "INTEGER",
    "real": "REAL",
    "rowless": " WITHOUT ROWID",
}
_MOST_READERS = 8
# How long SQLite's own busy handler waits for whoever locks a file against readers.
_READ_PATIENCE_SECONDS = 5.0
# A fork waits for reads under way, but not for one that hangs.
_LONGEST_READ_SECONDS = 10.0


class SqliteDialect:
    """The common SQL is SQLite's own; only upserts and JSON need a word."""

    name = "sqlite"
    most_values = 512
    share_lock = ""  # who writes holds the whole file

    def __init__(self, indexed: Sequence[str] = ()) -> None:
        self._indexed = frozenset(indexed)

    def text(self, statement: str) -> str:
        return statement

    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        marks = ", ".join("?" * len(columns.split(",")))
        verb = "REPLACE" if replace else "IGNORE"
        return f"INSERT OR {verb} INTO {table} ({columns}) VALUES ({marks})"

    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        if key in self._indexed:
            return f"{json_at(column, key)} = ?", [value]
        # A JSON path, quoted; the core passes only keys that need no escape.
        return f"json_extract({column}, ?) = ?", [f'$."{key}"', value]

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        return f"{column} IN ({', '.join('?' * len(values))})", list(values)


def json_at(column: str, key: str) -> str:
    """The expression of a key that has an index: part of the statement, or SQLite would not use the index."""
    return f"json_extract({column}, '$.\"{key}\"')"


class SqliteTransaction:
    """A connection inside a transaction; never suspends."""

    doubted = 0  # a file is not lost

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()
        # A given connection may make rows into something else; ours are tuples.
        self._cursor.row_factory = None

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._cursor.execute(statement, values).fetchall()

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._cursor.execute(statement, values).rowcount

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(statement, values)

    async def lock(self, pool: int, *, exclusive: bool) -> bool:
        return False  # who writes holds the whole file


class SqliteConnections:
    """The connections to one database, opened on first use and again after a fork."""

    def __init__(
        self,
        path: str | None,
        *,
        connection: sqlite3.Connection | None = None,
        prepare: Callable[[sqlite3.Connection], None],
        synchronous: str = "FULL",
        timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self.timeout = timeout
        self.read_only = read_only
        self.is_shared = connection is not None or path in (None, ":memory:", "")
        self._given = connection
        self._prepare = prepare
        self._synchronous = synchronous.upper()
        self._closed = False
        # Opened again after a fork, or by one more reader, it must be the same file, whatever the working directory.
        self._place = path if self.is_shared or path is None else absolute(path)
        self._file = DatabaseFile(None if self.is_shared else self._place)
        self._room = Room(None if self.is_shared or read_only else self._place)
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()  # opening, and all work on a connection that is shared
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._reading: set[object] = set()  # who reads, as objects: given up twice, after an interrupt, is once
        self._idle = threading.Lock()  # guards them

    def before_fork(self) -> None:
        """Close every connection and let nobody open one: SQLite's locks do not survive a fork.

        A connection that a child inherits, or opens beside an inherited one, takes no real locks. Both sides
        open new ones afterwards. A database in memory and a given connection cannot be opened again.
        """
        self._lock.acquire()
        self._idle.acquire()
        deadline = time.monotonic() + _LONGEST_READ_SECONDS
        while self._reading and time.monotonic() < deadline:
            self._idle.release()
            time.sleep(0.0005)
            self._idle.acquire()
        if not self.is_shared:
            self._close_all()

    def after_fork_in_parent(self) -> None:
        self._idle.release()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        if self.is_shared:
            self._lock, self._idle = threading.RLock(), threading.Lock()
        else:
            self._start()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one read, alone on it."""
        if self.is_shared:
            with self._lock, translated(self.path):
                connection = self.writer()
                self._file.check(connection)
                yield connection
            return
        with translated(self.path):
            self.writer()
            reader = object()
            try:
                with self._idle:
                    self._reading.add(reader)
                connection = self._idle_reader() or self._connect(patience=_READ_PATIENCE_SECONDS)
                try:
                    self._file.check(connection)
                    connection.execute("BEGIN")
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    if len(self._readers) < _MOST_READERS and not self._closed and not self._file.is_lost:
                        self._readers.append(connection)
                    else:
                        connection.close()
            finally:
                with self._idle:
                    self._reading.discard(reader)
                if self._file.is_lost and self._lock.acquire(blocking=False):  # else the thread that writes does it
                    try:
                        self._close_all()
                    finally:
                        self._lock.release()

    def write(self, work: Callable[[sqlite3.Connection], T], before_waiting: Callable[[], None] | None = None) -> T:
        """Work done on the connection that writes, inside a transaction that is committed when this returns."""
        if self.read_only:
            raise ReadOnly("this saver was opened with read_only=True")
        with self._lock, translated(self.path):
            try:
                connection = self.writer()
                result = self.transact(connection, work, before_waiting)
                self._room.keep(connection)
                return result
            finally:
                if self._file.is_lost:
                    # The last connection to close brings into the file what is in a `-wal` without a name.
                    self._close_all()

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, outside of any transaction; no put goes through it meanwhile."""
        with self._lock:
            yield self.writer()

    def make_room(self) -> int:
        """Let a deletion have what was held for it, and move the log into the file; by how much it failed to."""
        with self._lock, translated(self.path):
            connection = self.writer()
            if self.is_shared:
                return 0
            self._room.release()
            try:
                _patiently(connection, "PRAGMA wal_checkpoint(TRUNCATE)", self.timeout)
            except sqlite3.OperationalError:
                return self._room.debt_bytes(connection)
            return 0

    def file_bytes(self) -> int:
        """What `ls` says of the file and of the log beside it; 0 for a database that is in memory."""
        if self.is_shared or self._place is None:
            return 0
        return sum(os.stat(name).st_size for name in (self._place, f"{self._place}-wal") if os.path.exists(name))

    def compact(self) -> None:
        """Rewrite the file without its unused pages; readers go on meanwhile."""
        if self.read_only:
            raise ReadOnly("this saver was opened with read_only=True")
        with self._lock, translated(self.path):
            connection = self.writer()
            self._refuse_foreign_transaction(connection)
            self._file.check(connection)
            self.make_room()
            self._refuse_without_room(connection)
            _patiently(connection, "VACUUM", self.timeout)
            _patiently(connection, "PRAGMA wal_checkpoint(TRUNCATE)", self.timeout)

    def _refuse_without_room(self, connection: sqlite3.Connection) -> None:
        """Raise StorageFull when the disk has no room for the file to be written anew."""
        free = None if self.is_shared else self._room.free_bytes()
        pages, unused, page_bytes = (
            plain_rows(connection, f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
        )
        needed = (pages - unused) * page_bytes
        if free is not None and free < needed:
            raise StorageFull(
                f"compacting {self.path} writes its {needed:,} bytes anew beside the old ones, and {free:,} are free: "
                f"free some space, or run PRAGMA incremental_vacuum on it, which needs little"
            )

    def transact(
        self,
        connection: sqlite3.Connection,
        work: Callable[[sqlite3.Connection], T],
        before_waiting: Callable[[], None] | None = None,
    ) -> T:
        """Work inside a write transaction that commits at the end, or takes everything back."""
        self._refuse_foreign_transaction(connection)
        try:
            self._begin(connection, before_waiting)
            result = work(connection)
            self._file.check(connection)  # inside the transaction: nothing is acknowledged that nobody will find
            connection.commit()
        except BaseException as error:
            if connection.in_transaction:
                connection.rollback()
            if isinstance(error, sqlite3.Error):
                self._file.check(connection)  # SQLite calls a file without a name read-only, or a failed disk
            raise
        return result

    def check_open(self) -> None:
        """Raise Closed after `close`, and Unavailable once the file was lost."""
        if self._closed:
            raise Closed("this saver was closed; open a new one with threadline.connect()")
        self._file.check_not_lost()

    def writer(self) -> sqlite3.Connection:
        """The main connection; the first call opens the database and checks or creates its schema."""
        self.check_open()
        if self._writer is None:
            with self._lock, translated(self.path):
                if self._writer is None:
                    # A file that somebody closes or sets up at this moment is locked for a while, even to readers.
                    if self._given is not None:
                        self._file.opened(self._given)
                    connection = self._given or self._connect(patience=min(self.timeout, _READ_PATIENCE_SECONDS))
                    self._prepare(connection)
                    self._file.prepared(connection)
                    if connection is not self._given:
                        connection.execute("PRAGMA busy_timeout = 0")
                    self._writer = connection
        return self._writer

    def close(self) -> None:
        """Close what was opened here; a given connection stays open."""
        with self._lock:
            self._closed = True
            self._close_all()

    def _close_all(self) -> None:
        while (reader := self._idle_reader()) is not None:
            reader.close()
        if self._writer is not None and self._writer is not self._given:
            self._writer.close()
        self._writer = None

    def _idle_reader(self) -> sqlite3.Connection | None:
        try:
            return self._readers.pop()
        except IndexError:  # another thread may have taken the last one at this moment
            return None

    @property
    def is_closed(self) -> bool:
        return self._closed

    def _refuse_foreign_transaction(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction and getattr(connection, "autocommit", None) is not False:
            raise Conflict("the given connection is inside a transaction of yours: commit it before using the saver")

    def _begin(self, connection: sqlite3.Connection, before_waiting: Callable[[], None] | None) -> None:
        """Take the write lock. SQLite's own busy handler starves some writers; jittered retries do not.

        `before_waiting` is called while another process is writing.
        """
        if getattr(connection, "autocommit", None) is False:
            return  # such a connection is always inside a transaction; ours ends it with a commit
        deadline = time.monotonic() + self.timeout
        pause = 0.0005
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if before_waiting is not None:
                    before_waiting()
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"another process held the database's write lock for {self.timeout:g} s: {self.path}"
                    ) from error
            time.sleep(random.uniform(0, pause))
            pause = min(pause * 1.5, 0.02)

    def _connect(self, patience: float) -> sqlite3.Connection:
        """A new connection; one that writes will wait by our own retries, not by SQLite's busy handler."""
        path = self._place or ":memory:"
        if "\0" in path:
            raise InvalidRequest("the path of the database holds a NUL")
        self._file.check_name()
        if path == ":memory:" or path.startswith("file:"):
            return self._prepared(path, patience, is_uri=path.startswith("file:"))
        parent = os.path.dirname(path)
        if parent and not os.path.isdir(parent):
            raise InvalidRequest(f"the folder of the database does not exist: {parent}")
        if not self.read_only:
            return self._prepared(path, patience, is_uri=False)
        if not os.path.exists(path):
            raise InvalidRequest(f"there is no database at {path}, and read_only=True creates none")
        uri = uri_of(path) + "?mode=ro"
        try:
            connection = self._prepared(uri, patience, is_uri=True)
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            return connection
        except sqlite3.OperationalError:
            # WAL needs files beside the database; where none can be made, nobody can be writing either.
            return self._prepared(uri + "&immutable=1", patience, is_uri=True)

    def _prepared(self, path: str, patience: float, *, is_uri: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False, uri=is_uri, cached_statements=256
        )
        self._file.opened(connection)
        if not self.read_only:
            self._set_pragmas(connection)
        return connection

    def _set_pragmas(self, connection: sqlite3.Connection) -> None:
        if _patiently(connection, "PRAGMA page_count", self.timeout) == [(0,)]:
            _patiently(connection, "PRAGMA page_size = 8192", self.timeout)
            _patiently(connection, "PRAGMA auto_vacuum = INCREMENTAL", self.timeout)
        _patiently(connection, "PRAGMA journal_mode = WAL", self.timeout)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        # A long thread is read in the order of its digests: pages that do not stay are read again and again.
        connection.execute("PRAGMA cache_size = -8000")


def run_in(connection: sqlite3.Connection, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
    """Work on a connection that is inside a transaction."""
    return run_now(work(SqliteTransaction(connection)))


def plain_rows(connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of a query as tuples, whatever a given connection makes of its own."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, values).fetchall()


def _patiently(connection: sqlite3.Connection, statement: str, timeout: float) -> list[Any]:
    """Run a statement that many processes may run at once when they open the same new file."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return connection.execute(statement).fetchall()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))
