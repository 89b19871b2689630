"""The group commit of SQLite: all that waits goes into one transaction of the connection that writes.

Puts of the usual kind go together in a few statements, and so do puts of records that have no condition. Other work
has a savepoint each, and takes back only itself when it fails.

A commit of puts remembers what was seen of their threads (`Seen`), and the next does not look again while nothing was
changed. SQLite tells whether anything was. `PRAGMA data_version` changes with each commit of another connection, also
of another process; asked inside a write transaction, after which there is no other commit before this one.
`total_changes` grows with each row that this very connection changes, whoever does it, and does not shrink when that is
taken back. What is remembered here holds while both are what they were after the last puts, on the same connection. So
it ends with a deletion, a collection, a restored backup, a commit that failed, or any other work that was committed,
whichever thread that concerns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...ports.checkpoints import Change, Stamp
from ..shared_commit import Job, SharedCommit
from ..sql.records import PlainWrites
from .connections import SqliteConnections
from .dialect import plain_cursor, run_in
from .errors import translated
from .put import is_one_statement, put_at_once, put_one, put_together

if TYPE_CHECKING:
    from ..sql.statements import Statements

__all__ = ["Seen", "SqliteCommit"]

# The connection, and what SQLite says of changes.
_Moment = tuple[sqlite3.Connection, int, int]

# Of so many threads it is remembered; a put names one witness, and seldom two or three.
_MOST_THREADS = 1_000
_MOST_ROWS = 8
_TRIGGERS = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN (?, ?, ?, ?)"


class SqliteCommit(SharedCommit):
    """Commits changes of the usual kind, and functions of a transaction."""

    def __init__(self, connections: SqliteConnections, statements: Statements, *, is_alone: bool = False) -> None:
        super().__init__(is_alone=is_alone)
        self._connections = connections
        self._statements = statements
        # None once somebody else may use the connection: not all that can be done with it shows.
        self._seen: Seen | None = (
            Seen((statements.t, statements.c, statements.w, statements.k)) if connections.is_own else None
        )

    def show(self) -> None:
        """The connection that writes is handed out."""
        self._seen = None

    def _transact_one(self, work: Any, before_waiting: Callable[[], None] | None = None) -> Any:
        if type(work) is not Change:
            return super()._transact_one(work)
        seen = self._seen
        if seen is not None and is_one_statement(work):
            stamp = self._connections.write_at_once(partial(put_at_once, self._statements, work, seen))
            if stamp is not None:
                return stamp
        made = self._connections.write(partial(put_one, self._statements, work, seen), before_waiting)
        if seen is not None:
            seen.confirm()
        return made

    def _transact(self, group: list[Job], before_commit: Callable[[], None]) -> None:
        if len(group) == 1 and type(group[0].work) is Change:
            before_commit()
            group[0].result = self._transact_one(group[0].work, before_commit)
            return
        has_begun, seen = False, self._seen
        puts = [job for job in group if type(job.work) is Change]

        def do(connection: sqlite3.Connection) -> None:
            nonlocal has_begun
            has_begun = True
            if puts:
                made = put_together(self._statements, [job.work for job in puts], seen, connection)
                for job, result in zip(puts, made, strict=True):
                    job.result = result
            writes = [job for job in group if isinstance(job.work, PlainWrites) and job.work.are_puts]
            if writes:
                first, others = writes[0].work, [job.work for job in writes[1:]]
                run_in(connection, first.joined(others) if others else first)
            if len(puts) + len(writes) < len(group):
                done = {*puts, *writes}
                for job in group:
                    if job not in done:
                        self._do_other(connection, job, is_alone=len(group) == 1)
            before_commit()

        try:
            self._connections.write(do, before_commit)
            if puts and seen is not None:
                seen.confirm()
        except Exception as error:
            if has_begun or len(group) == 1:
                raise
            # Another process has the file, or the store was closed: that is no job's fault, and one after the other
            # would wait for the same time once more.
            for job in group:
                job.error = error

    def _do_other(self, connection: sqlite3.Connection, job: Job, *, is_alone: bool) -> None:
        if is_alone:
            job.result = run_in(connection, job.work)
            return
        connection.execute("SAVEPOINT job")
        try:
            with translated(self._connections.path):
                job.result = run_in(connection, job.work)
        except Exception as error:
            if not connection.in_transaction:
                raise  # SQLite gave up the whole transaction: nothing of the group is stored
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")


class Seen:
    """What is remembered of the threads of one database. Used by one OS thread at a time, the one that commits."""

    __slots__ = ("_has_triggers", "_moment", "_next", "_tables", "_threads", "_version", "is_in_sequence", "spare")

    def __init__(self, tables: tuple[str, ...]) -> None:
        # Python's driver notes each cursor of a connection: one serves all puts.
        self.spare: sqlite3.Cursor | None = None
        # Those that a put writes to. A trigger on them changes rows within a put, so nothing is remembered then.
        self._tables = tables
        self._has_triggers = False
        self._moment: _Moment | None = None  # None while a put is under way, and after one that failed
        self._next: _Moment | None = None
        self._version = 0
        self._threads: dict[str, _Thread] = {}
        # Whether a new thread was found to have its serial for its pool: so has the next one, then.
        self.is_in_sequence = False

    def cursor(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        """A cursor of the connection, which gives rows as they are: the spare one, which comes back behind a put.

        One that a put was broken off with does not: a statement that still has rows holds a state of the file.
        """
        cursor, self.spare = self.spare, None
        return cursor if cursor is not None and cursor.connection is connection else plain_cursor(connection)

    def renew(self, connection: sqlite3.Connection, execute: Callable[..., Any]) -> None:
        """Forget everything if anything was changed. Each put begins with this, inside its transaction."""
        self._version = execute("PRAGMA data_version").fetchone()[0]
        moment = (connection, self._version, connection.total_changes)
        if moment != self._moment:
            self._threads.clear()
            self.is_in_sequence = False
            self._has_triggers = execute(_TRIGGERS, self._tables).fetchone() is not None
        self._moment = self._next = None

    def find(self, change: Change) -> _Thread | None:
        """The thread of a change, if it is as the change expects it; None where that must be looked up."""
        thread = self._threads.get(change.thread_id)
        if thread is None or thread.stamp != change.stamp:
            return None
        for namespace, checkpoint_id, created in change.witnesses:
            if thread.rows.get((namespace, checkpoint_id)) != created:
                return None
        return thread

    def serial_of(self, change: Change) -> int | None:
        """The serial of a change's thread under the stamp that the change names; None where it was not seen."""
        thread = self._threads.get(change.thread_id)
        return thread.serial if thread is not None and thread.stamp == change.stamp else None

    def note(self, change: Change, serial: int, stamp: Stamp, active: float, connection: sqlite3.Connection) -> None:
        """Remember what `find` or a look has told, and what the change adds, once it is confirmed."""
        if self._has_triggers:
            return
        threads = self._threads
        thread = threads.get(change.thread_id)
        if thread is None or thread.stamp != stamp:
            if len(threads) >= _MOST_THREADS:
                threads.clear()
            thread = threads[change.thread_id] = _Thread(serial, stamp)
        thread.active, rows = active, thread.rows
        if len(rows) > _MOST_ROWS:
            rows.clear()
        for namespace, checkpoint_id, created in change.witnesses:
            rows[namespace, checkpoint_id] = created
        for row in change.checkpoints:
            rows[row[0], row[1]] = row[11]
        self._next = connection, self._version, connection.total_changes

    def follow(self, change: Change, added: int, before: int, connection: sqlite3.Connection) -> None:
        """Remember on, behind one statement that added so many rows of a change, and made sure of its thread by itself.

        Another connection that committed before it shows at the next look: the version is still that of the last put.
        """
        moment, total = self._moment, connection.total_changes
        if moment is None or moment[0] is not connection or moment[2] != before or total != before + added:
            return
        thread = self._threads.get(change.thread_id)
        if thread is not None and thread.stamp == change.stamp:
            for row in change.checkpoints:
                thread.rows[row[0], row[1]] = row[11]
        self._moment = connection, moment[1], total

    def confirm(self) -> None:
        """The put is committed: what was noted holds."""
        self._moment = self._next


class _Thread:
    """What a put asks of a thread: its serial, when it was last noted as used, and the rows that may be witnesses."""

    __slots__ = ("active", "rows", "serial", "stamp")

    def __init__(self, serial: int, stamp: Stamp) -> None:
        self.serial = serial
        self.stamp = stamp
        self.active = 0.0
        # (namespace, id) -> when the row was put.
        self.rows: dict[tuple[str, str], float] = {}
