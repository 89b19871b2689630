"""The shared commit of SQLite: puts that wait at the same time go into one transaction, a savepoint each.

Work that fails takes back only itself; if the transaction as a whole is lost (a full disk), each piece of
work is tried again alone, so that nobody is told of a success or a failure that belongs to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .gather import Gather, Job
from .sqlite import SqliteConnections, run_in, translated

if TYPE_CHECKING:
    import sqlite3

__all__ = ["GroupCommit"]


class GroupCommit(Gather):
    """Runs work, functions of a transaction, on one writing connection."""

    def __init__(self, connections: SqliteConnections) -> None:
        super().__init__()
        self._connections = connections

    def _commit(self, group: list[Job]) -> None:
        try:
            with self._connections.writing() as connection:
                for job in group:
                    self._attempt(job, connection, alone=len(group) == 1)
        except Exception as error:
            if len(group) > 1 and not self._connections.is_closed:
                for job in group:
                    job.result = job.error = None
                    self._commit([job])
                return
            for job in group:
                job.error = error
        self._tell(group)

    def _attempt(self, job: Job, connection: sqlite3.Connection, *, alone: bool) -> None:
        if alone:
            job.result = run_in(connection, job.work)
            return
        connection.execute("SAVEPOINT job")
        try:
            with translated(self._connections.path):
                job.result = run_in(connection, job.work)
        except Exception as error:
            if not connection.in_transaction:
                raise  # the driver gave up the whole transaction: nothing of the group is stored
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")
