"""Threads as the connection that writes has seen them: while nothing was changed since, a put need not look again.

SQLite tells whether anything was. `PRAGMA data_version` changes with each commit of another connection, also of another
process; asked inside a write transaction, after which there is no other commit before this one. `total_changes` grows
with each row that this very connection changes, whoever does it, and does not shrink when that is taken back. What is
remembered here holds while both are what they were after the last put, on the same connection. So it ends with a
deletion, a collection, a restored backup, a commit that failed, or a group commit, whichever thread they concern.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from ...ports.checkpoints import Change, Stamp

__all__ = ["Seen"]

# The connection, and what SQLite says of changes.
_Moment = tuple[sqlite3.Connection, int, int]

_MOST_THREADS = 1_000
_MOST_ROWS = 8


class _Thread:
    """What a put asks of a thread: its serial, when it was last noted as used, and the rows that may be witnesses."""

    __slots__ = ("active", "rows", "serial", "stamp")

    def __init__(self, serial: int, stamp: Stamp) -> None:
        self.serial = serial
        self.stamp = stamp
        self.active = 0.0
        # (namespace, id) -> when the row was put.
        self.rows: dict[tuple[str, str], float] = {}


class Seen:
    """What is remembered of one database. Used by one thread at a time, the one that commits."""

    __slots__ = ("_moment", "_next", "_threads", "_version", "is_in_sequence")

    def __init__(self) -> None:
        self._moment: _Moment | None = None  # None while a put is under way, and after one that failed
        self._next: _Moment | None = None
        self._version = 0
        self._threads: dict[str, _Thread] = {}
        # Whether a new thread was found to have its serial for its pool: so has the next one, then.
        self.is_in_sequence = False

    def renew(self, connection: sqlite3.Connection, execute: Callable[..., Any]) -> None:
        """Forget everything if anything was changed. Each put begins with this, inside its transaction."""
        self._version = execute("PRAGMA data_version").fetchone()[0]
        moment = (connection, self._version, connection.total_changes)
        if moment != self._moment:
            self._threads.clear()
            self.is_in_sequence = False
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

    def note(self, change: Change, serial: int, stamp: Stamp, active: float, connection: sqlite3.Connection) -> None:
        """Remember what `find` or a look has told, and what the change adds, once it is confirmed."""
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

    def confirm(self) -> None:
        """The put is committed: what was noted holds."""
        self._moment = self._next
