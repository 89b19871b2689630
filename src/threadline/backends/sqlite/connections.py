"""The connections to one SQLite database: opened on first use, lent for a read or a write, closed around a fork.

A file has one connection that writes and a few that read; `:memory:` and a given connection have one for both. An
acknowledged put survives `kill -9` and a power cut: WAL with `synchronous=FULL`.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from ...base.drive import run_now
from ...errors import Closed, Conflict, InvalidRequest, StorageFull, Unavailable
from ...ports.storage import Space
from .dialect import page_counts
from .errors import is_busy, translated, translated_error
from .file import DatabaseFile, absolute, uri_of
from .room import LogAhead, Room, size_of
from .schema import Opened, SqliteSchema

__all__ = ["SqliteConnections"]

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_MOST_READERS = 8
# How long SQLite's own busy handler waits for a process that locks the file against readers.
_READ_PATIENCE_SECONDS = 5.0
# Unused pages that are worth giving back; they are moved from the end of the file by a transaction for each part.
_LEAST_TRIMMED_BYTES = 1024 * 1024
_LEAST_TRIMMED_SHARE = 0.1
_PAGES_TRIMMED_AT_ONCE = 500
# A fork waits for reads under way, but not for one that hangs.
_LONGEST_READ_SECONDS = 10.0
# What `_read_here` returns for no result.
_NOT_READ: Any = object()


class SqliteConnections:
    """The connections of one engine."""

    def __init__(
        self,
        path: str | None,
        schema: SqliteSchema,
        *,
        connection: sqlite3.Connection | None = None,
        synchronous: str = "FULL",
        timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._schema = schema
        self._given = connection
        self._synchronous = synchronous.upper()
        self._timeout = timeout
        self._read_only = read_only  # how the file is opened: who must not write is refused by a layer
        self._is_closed = False
        # One connection for reads and writes, which cannot be opened again.
        self._is_single = connection is not None or path in (None, ":memory:", "")
        # Whether a program may use the connection that writes by itself: then nothing is read on it.
        self._is_shown = False
        # Absolute: connections that are opened later must have the same file, whatever the working directory is then.
        self._place = ":memory:" if self._is_single or path is None else absolute(path)
        file = None if self._is_single else self._place
        self._file = DatabaseFile(file)
        self._room = Room(None if read_only else file)
        self._ahead = LogAhead()
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()  # held to open, to write, and for all work on a single connection
        self._idle = threading.RLock()  # guards the readers; a signal handler may read in the middle of a read
        self._writer: sqlite3.Connection | None = None
        self._execute: Callable[[str], Any] | None = None  # what begins and ends its transactions
        self._is_reading_here = False  # whether a read has a transaction on the connection that writes
        self._readers: list[sqlite3.Connection] = []
        self._reading: set[object] = set()

    @property
    def is_own(self) -> bool:
        """Whether all connections are opened here, to a file."""
        return not self._is_single

    def show(self) -> None:
        """The connection that writes is handed out; a read that is under way on it ends first."""
        with self._lock:
            self._is_shown = True

    def look_for_the_file_every(self, seconds: float) -> None:
        """Check the names of the files at most this often, and not at each read and each commit."""
        self._file.pause_seconds = seconds

    # A fork: SQLite's locks do not survive it. A connection that a child inherits, or opens beside an inherited one,
    # takes no real locks. So every connection is closed before, and both sides open new ones.

    def closed_to_fork(self) -> Iterator[None]:
        """From the first step of this generator to its end no connection is open, and none is opened."""
        with self._lock:
            yield from self._without_readers(time.monotonic() + _LONGEST_READ_SECONDS)

    def _without_readers(self, deadline: float) -> Iterator[None]:
        while True:
            with self._idle:
                if not self._reading or time.monotonic() > deadline:
                    if not self._is_single:
                        self._close_all()
                    yield
                    return
            time.sleep(0.0005)

    def after_fork_in_child(self) -> None:
        writer = self._writer
        self._start()
        if self._is_single:
            self._writer = writer

    def read(self, work: Work[T], *, in_transaction: bool = True) -> T:
        """The result of work on a connection of its own; inside a transaction all its queries see one state."""
        try:
            if self._is_single:
                with self._lock:
                    connection = self.writer()
                    self._file.check(connection)
                    return work(connection)
            if self._writer is None or self._is_closed or self._file.lost is not None:
                self.writer()
            reader = object()
            try:
                with self._idle:
                    self._reading.add(reader)
                return self._read(work, in_transaction)
            finally:
                with self._idle:
                    self._reading.discard(reader)
                if self._file.lost is not None:
                    self._let_go()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise translated_error(error, self.path) from error

    def read_briefly(self, work: Work[T]) -> T:
        """`read` for work of a moment: on the connection that writes, where that is free and nobody else reads.

        The pages that were written last are in its cache, and in no other one. Nobody waits for it here; a writer may
        wait for this. Of many who read without a pause, a writer would always have to wait for one.
        """
        lock, found = self._lock, _NOT_READ
        if self._is_single or self._is_shown or self._reading or lock._is_owned():  # type: ignore[attr-defined]
            return self.read(work)  # also for a signal handler in the middle of a write, whose lock this is
        try:
            if lock.acquire(False):
                found = self._read_here(work)
        finally:
            # Not behind a question whether it was acquired: an interrupt could come after the answer.
            try:
                lock.release()
            except RuntimeError:
                found = _NOT_READ  # another thread has it
        if found is _NOT_READ:
            return self.read(work)
        return found  # type: ignore[no-any-return]

    def write(self, work: Work[T], before_waiting: Callable[[], None] | None = None) -> T:
        """The result of work on the connection that writes, committed when this returns, or taken back as a whole.

        `before_waiting` is called when another process is writing.
        """
        with self._lock:
            try:
                connection = self._writer
                if connection is None or self._is_closed or self._file.lost is not None:
                    connection = self.writer()
                result = self._transact(connection, work, before_waiting)
                if time.monotonic() >= self._room.looks_again:
                    self._room.keep(connection)
                return result
            except (sqlite3.Error, UnicodeEncodeError) as error:
                raise translated_error(error, self.path) from error
            finally:
                if self._file.lost is not None:
                    self._let_go()

    def write_at_once(self, work: Work[T]) -> T | None:
        """The result of work of one statement, which commits by itself.

        None where that needs more, or went wrong: then nothing is committed, or it is and may be written again, and
        `write` says what is wrong.
        """
        with self._lock:
            connection = self._writer
            if connection is None or connection.in_transaction or self._is_closed or self._file.lost:
                return None
            if time.monotonic() >= self._room.looks_again or self._ahead.is_due():
                return None
            try:
                self._file.check(connection)  # before the commit: see `_transact`
                return work(connection)
            except (sqlite3.Error, UnicodeEncodeError):
                return None
            finally:
                if self._file.lost is not None:
                    self._let_go()

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, outside of any transaction; no put goes through it meanwhile."""
        with self._lock:
            yield self._held_writer()

    def has_room(self) -> bool:
        """Whether the disk has plenty of room, more than all that is stored takes."""
        return self._room.is_plenty()

    def make_room(self) -> int:
        """Release the reserve and move the log into the file, for a deletion; how many bytes were still missing."""
        with self._lock, translated(self.path):
            connection = self._held_writer()
            if self._is_single:
                return 0
            self._room.release()
            try:
                self._patiently(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.OperationalError:
                return self._room.debt_bytes(connection)
            return 0

    def compact(self) -> None:
        """Rewrite the file without its unused pages; readers go on meanwhile."""
        with self._lock, translated(self.path):
            connection = self._held_writer()
            self._refuse_foreign_transaction(connection)
            self._file.check(connection)
            self.make_room()
            pages, unused, page_bytes = page_counts(connection)
            needed, free = (pages - unused) * page_bytes, None if self._is_single else self._room.free_bytes()
            if free is not None and free < needed:
                raise StorageFull(
                    f"compacting {self.path} writes its {needed:,} bytes anew beside the old ones, and {free:,} are "
                    f"free: free some space, or run PRAGMA incremental_vacuum on it, which needs little"
                )
            self._patiently(connection, "VACUUM")
            self._patiently(connection, "PRAGMA wal_checkpoint(TRUNCATE)")

    def trim(self) -> None:
        """Give unused pages back, some at a time: writers go on in between. A given connection is left alone.

        Where there is no room for that, or others hold the file for too long, the rest stays for `compact`.
        """
        with suppress(StorageFull, Unavailable):
            while not self._is_single and self._trim_some():
                pass

    def _trim_some(self) -> bool:
        """Give some pages back; whether there may be more."""
        with self._lock, translated(self.path):
            connection = self._held_writer()
            self._file.check(connection)
            pages, unused, page_bytes = page_counts(connection)
            if unused * page_bytes < _LEAST_TRIMMED_BYTES or unused < pages * _LEAST_TRIMMED_SHARE:
                return False  # the next puts use them
            self._patiently(connection, f"PRAGMA incremental_vacuum({_PAGES_TRIMMED_AT_ONCE})")
            self._patiently(connection, "PRAGMA wal_checkpoint(PASSIVE)")
            # A file that others made may not allow it: then nothing went.
            return page_counts(connection)[1] < unused

    def space(self) -> Space:
        """The bytes of all pages in use, of the file and the log beside it, and how many of them are unused."""
        pages, unused, page_bytes = self.read(page_counts)
        on_disk = 0 if self._is_single else size_of(self._place) + size_of(f"{self._place}-wal")
        return Space((pages - unused) * page_bytes, on_disk or pages * page_bytes, unused * page_bytes)

    def set_up(self) -> None:
        """Create or migrate the schema; safe from many processes at once, and while others close this or fork."""
        self._schema.allow_changes()
        with self._lock, translated(self.path):
            run_now(self._schema.create(Opened(self._held_writer(), self.write)))

    def check_open(self) -> None:
        """Raise Closed after `close`, and Unavailable once the file was lost."""
        if self._is_closed:
            raise Closed
        self._file.check_not_lost()

    def writer(self) -> sqlite3.Connection:
        """The connection that writes; the first call opens the database and checks or creates its schema."""
        self.check_open()
        if self._writer is None:
            with self._lock, translated(self.path):
                if self._writer is None:
                    self._writer = self._open_writer()
        return self._writer

    def _held_writer(self) -> sqlite3.Connection:
        """`writer`, for who holds the lock; a read of this very thread that a signal handler interrupted is ended."""
        connection = self.writer()
        if self._is_reading_here and connection.in_transaction:
            connection.rollback()
        return connection

    def close(self) -> None:
        """Close all connections but a given one."""
        with self._lock:
            self._is_closed = True
            self._close_all()

    def _open_writer(self) -> sqlite3.Connection:
        connection = self._given
        if connection is None:
            # While another process opens or closes the file, it is locked for a moment, even to readers.
            connection = self._connect(patience=min(self._timeout, _READ_PATIENCE_SECONDS))
        else:
            self._file.opened(connection)
        run_now(self._schema.open(Opened(connection, partial(self._transact, connection))))
        self._file.prepared(connection)
        if connection is not self._given:
            connection.execute("PRAGMA busy_timeout = 0")  # `_patiently` waits instead
        self._execute = connection.cursor().execute
        return connection

    def _close_all(self) -> None:
        with suppress(IndexError):  # another thread may take the last one at this moment
            while self._readers:
                self._readers.pop().close()
        self._ahead.release()
        if self._writer is not None and self._writer is not self._given:
            self._writer.close()
            self._file.released()
        self._writer = self._execute = None

    def _let_go(self) -> None:
        """Close what is open: the last connection to close brings a `-wal` that has no name any more into the file."""
        with self._lock:
            self._close_all()

    def _read(self, work: Work[T], in_transaction: bool) -> T:
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._connect(patience=_READ_PATIENCE_SECONDS)
        try:
            self._file.check(connection)
            if in_transaction:
                connection.execute("BEGIN")
            return work(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if len(self._readers) < _MOST_READERS and not self._is_closed and self._file.lost is None:
                self._readers.append(connection)
            else:
                connection.close()

    def _read_here(self, work: Work[T]) -> Any:
        """The result of work on the connection that writes, whose lock is held; _NOT_READ where it has no result."""
        connection: Any = self._writer
        execute = self._execute
        # A signal handler may read in the middle of a write, or of such a read, of its own thread.
        if connection is None or execute is None or connection.in_transaction:
            return _NOT_READ
        try:
            self._file.check(connection)
            self._is_reading_here = True
            execute("BEGIN")
            found = work(connection)
            # Unless a signal handler wrote, or closed the saver, in the middle.
            return found if connection.in_transaction else _NOT_READ
        except (sqlite3.Error, UnicodeEncodeError):
            return _NOT_READ  # `read` says what is wrong
        finally:
            is_open = connection is self._writer  # a signal handler may close it, or fork
            if is_open and connection.in_transaction:
                execute("ROLLBACK")
            self._is_reading_here = False
            if self._file.lost is not None:
                self._let_go()

    def _transact(
        self, connection: sqlite3.Connection, work: Work[T], before_waiting: Callable[[], None] | None = None
    ) -> T:
        if connection.in_transaction:
            self._refuse_foreign_transaction(self._held_writer() if self._is_reading_here else connection)
        self._is_reading_here = False  # an interrupt may have left it
        execute = (self._execute if connection is self._writer else None) or connection.cursor().execute
        try:
            try:
                execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                self._begin(connection, before_waiting)
            result = work(connection)
            self._file.check(connection)  # before the commit: a put into a file that nobody finds is not acknowledged
            if self._is_single:
                connection.commit()
            else:
                self._ahead.before_commit(self._file)
                execute("COMMIT")  # a statement that stays prepared: `commit()` would prepare it each time
        except BaseException as error:
            if connection.in_transaction:
                connection.rollback()
            if isinstance(error, sqlite3.Error):
                self._file.check(connection)  # SQLite calls a file without a name read-only, or a failed disk
            raise
        return result

    def _begin(self, connection: sqlite3.Connection, before_waiting: Callable[[], None] | None) -> None:
        """Begin where that failed: another process has the file, or the connection is inside a transaction always."""
        if getattr(connection, "autocommit", None) is False:
            return  # such a connection is always inside a transaction; ours ends it with a commit
        try:
            self._patiently(connection, "BEGIN IMMEDIATE", before_waiting)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            raise Unavailable(
                f"another process held the database's write lock for {self._timeout:g} s: {self.path}"
            ) from error

    def _patiently(
        self, connection: sqlite3.Connection, statement: str, before_waiting: Callable[[], None] | None = None
    ) -> list[Any]:
        """Run a statement, and again while another process has the file, until the timeout.

        SQLite's own busy handler starves some of many writers; retries at random moments do not.
        """
        deadline, pause = time.monotonic() + self._timeout, 0.0005
        while True:
            try:
                return connection.execute(statement).fetchall()
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if before_waiting is not None:
                    before_waiting()
                if time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0, pause))
            pause = min(pause * 1.5, 0.02)

    def _refuse_foreign_transaction(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction and getattr(connection, "autocommit", None) is not False:
            raise Conflict("the given connection is inside a transaction of yours: commit it before using the saver")

    def _connect(self, patience: float) -> sqlite3.Connection:
        """A new connection, for which SQLite's own busy handler waits up to `patience` seconds."""
        path = self._place
        if "\0" in path:
            raise InvalidRequest("the path of the database holds a NUL")
        self._file.check_name()
        if path == ":memory:" or path.startswith("file:"):
            return self._prepared(path, patience, is_uri=path.startswith("file:"))
        parent = os.path.dirname(path)
        if parent and not os.path.isdir(parent):
            raise InvalidRequest(f"the folder of the database does not exist: {parent}")
        if not self._read_only:
            return self._prepared(path, patience, is_uri=False)
        if not os.path.exists(path):
            raise InvalidRequest(f"there is no database at {path}, and read_only=True creates none")
        uri = uri_of(path) + "?mode=ro"
        try:
            connection = self._prepared(uri, patience, is_uri=True)
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            return connection
        except sqlite3.OperationalError:
            # WAL needs files beside the database; where none can be made, no process can be writing either.
            return self._prepared(uri + "&immutable=1", patience, is_uri=True)

    def _prepared(self, path: str, patience: float, *, is_uri: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False, uri=is_uri, cached_statements=256
        )
        self._file.opened(connection)
        if self._read_only:
            return connection
        if self._patiently(connection, "PRAGMA page_count") == [(0,)]:
            self._patiently(connection, "PRAGMA page_size = 4096")
            self._patiently(connection, "PRAGMA auto_vacuum = INCREMENTAL")
        self._patiently(connection, "PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        # A long thread is read in the order of its digests: pages that do not stay are read again and again.
        connection.execute("PRAGMA cache_size = -8000")
        return connection
