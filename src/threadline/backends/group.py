"""The shared commit of SQLite: what waits at the same time goes into one transaction.

Puts of the usual kind go together, other work has a savepoint each and takes back only itself when it fails. If
the transaction as a whole is lost (a full disk), each piece of work is tried again alone, so that nobody is told
of a success or a failure that belongs to another.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from .gather import Gather, Job
from .lending import is_of_work
from .port import Change
from .sqlite import SqliteConnections, run_in
from .sqlite_errors import translated
from .sqlite_put import put_together

if TYPE_CHECKING:
    from .sql.statements import Statements

__all__ = ["GroupCommit"]

# What SQLite and Python say of values that cannot be stored.
_OF_WORK = (sqlite3.Error, ValueError, TypeError, OverflowError, MemoryError)


class GroupCommit(Gather):
    """Runs work on one writing connection: changes of the usual kind, and functions of a transaction."""

    def __init__(self, connections: SqliteConnections, statements: Statements) -> None:
        super().__init__()
        self._connections = connections
        self._statements = statements

    def _commit(self, group: list[Job]) -> None:
        try:
            self._connections.write(lambda connection: self._do(connection, group), self._tell_earlier)
        except Exception as error:
            if not is_of_work(error, *_OF_WORK):
                raise  # of a signal handler: the leader's alone
            self._tell_earlier()
            if len(group) > 1 and not self._connections.is_closed:
                for job in group:
                    job.result = job.error = None
                    self._commit([job])
                return
            for job in group:
                job.error = error
        self._tell_later(group)

    def _do(self, connection: sqlite3.Connection, group: list[Job]) -> None:
        puts = [job for job in group if isinstance(job.work, Change)]
        if puts:
            made = put_together(connection, self._statements, [job.work for job in puts])
            for job, result in zip(puts, made, strict=True):
                job.result = result
        self._tell_earlier()
        if len(puts) < len(group):
            for job in group:
                if not isinstance(job.work, Change):
                    self._attempt(job, connection, alone=len(group) == 1)

    def _attempt(self, job: Job, connection: sqlite3.Connection, *, alone: bool) -> None:
        if alone:
            job.result = run_in(connection, job.work)
            return
        connection.execute("SAVEPOINT job")
        try:
            with translated(self._connections.path):
                job.result = run_in(connection, job.work)
        except Exception as error:
            if not connection.in_transaction or not is_of_work(error, *_OF_WORK):
                raise  # the driver gave up the whole transaction: nothing of the group is stored
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")
