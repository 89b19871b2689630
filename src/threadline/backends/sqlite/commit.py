"""The group commit of SQLite: all that waits goes into one transaction of the connection that writes.

Puts of the usual kind go together in a few statements, and so do puts of records that have no condition. Other work
has a savepoint each, and takes back only itself when it fails.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...ports.checkpoints import Change
from ..shared_commit import Job, SharedCommit
from ..sql.records import PlainWrites
from .connections import SqliteConnections
from .dialect import run_in
from .errors import translated
from .put import put_one, put_together
from .seen import Seen

if TYPE_CHECKING:
    from ..sql.statements import Statements

__all__ = ["SqliteCommit"]


class SqliteCommit(SharedCommit):
    """Commits changes of the usual kind, and functions of a transaction."""

    def __init__(self, connections: SqliteConnections, statements: Statements, *, is_alone: bool = False) -> None:
        super().__init__(is_alone=is_alone)
        self._connections = connections
        self._statements = statements
        # None once somebody else may use the connection: not all that can be done with it shows.
        self._seen: Seen | None = Seen() if connections.is_own else None

    def show(self) -> None:
        """The connection that writes is handed out."""
        self._seen = None

    def _transact_one(self, work: Any) -> Any:
        if type(work) is Change:
            seen = self._seen
            made = self._connections.write(partial(put_one, self._statements, work, seen))
            if seen is not None:
                seen.confirm()
            return made
        return super()._transact_one(work)

    def _transact(self, group: list[Job], before_commit: Callable[[], None]) -> None:
        if len(group) == 1 and type(group[0].work) is Change:
            work = partial(put_one, self._statements, group[0].work, None)
            group[0].result = self._connections.write(work, before_commit)
            return
        has_begun = False

        def do(connection: sqlite3.Connection) -> None:
            nonlocal has_begun
            has_begun = True
            puts = [job for job in group if isinstance(job.work, Change)]
            known = [job for job in puts if job.work.stamp is not None]
            if known:
                made = put_together(connection, self._statements, [job.work for job in known])
                for job, result in zip(known, made, strict=True):
                    job.result = result
            for job in puts:
                if job.work.stamp is None:
                    job.result = put_one(self._statements, job.work, None, connection)
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
