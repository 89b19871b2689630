"""The shared commit: puts that wait at the same time go into one transaction, a savepoint each.

Any number of OS threads and tasks hand in work. Whoever gets the writer's lock takes everything that
waits, runs it, commits once, and tells the others. Work that fails takes back only itself; if the
transaction as a whole is lost (a full disk), each piece of work is tried again alone, so that nobody is
told of a success or a failure that belongs to another.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import Unavailable
from .sql.backend import Transaction
from .sqlite import SqliteConnections, run_in, translated

if TYPE_CHECKING:
    import asyncio
    import sqlite3

__all__ = ["GroupCommit"]

# More than this in one transaction makes the first wait for the last.
_MOST_TOGETHER = 128

Work = Callable[[Transaction], Coroutine[Any, Any, Any]]


class _Job:
    """One piece of work and what became of it."""

    __slots__ = ("done", "error", "future", "result", "work")

    def __init__(self, work: Work, future: asyncio.Future[Any] | None = None) -> None:
        self.work = work
        self.future = future
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class GroupCommit:
    """Runs work in shared transactions on one writing connection."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections
        self.restart()

    def restart(self) -> None:
        """Forget what was waiting; after a fork it belongs to the parent."""
        self._waiting: deque[_Job] = deque()
        self._turn = threading.Lock()
        self._door = threading.Lock()  # guards whether somebody is on the way to drain
        self._is_drained = False

    def pause(self) -> None:
        """Let the group under way finish, and no other begin."""
        self._turn.acquire()

    def resume(self) -> None:
        self._turn.release()

    def run(self, work: Work) -> Any:
        """The result of work, once it is committed."""
        job = _Job(work)
        self._waiting.append(job)
        # Whoever waits here either finds its work done by the one before, or leads the next group.
        with self._turn:
            if not job.done:
                self._lead(until=job)
        return job.outcome()

    def submit(self, work: Work, future: asyncio.Future[Any]) -> bool:
        """Hand in work whose future will be resolved; True when the caller must have `drain` called."""
        with self._door:
            self._waiting.append(_Job(work, future))
            must_call, self._is_drained = not self._is_drained, True
        return must_call

    def drain(self) -> None:
        """Work off what waits; runs on a worker thread."""
        while True:
            with self._turn:
                self._lead(until=None)
            with self._door:
                if not self._waiting:
                    self._is_drained = False
                    return

    def _lead(self, until: _Job | None) -> None:
        while self._waiting and (until is None or not until.done):
            group: list[_Job] = []
            try:
                while self._waiting and len(group) < _MOST_TOGETHER:
                    group.append(self._waiting.popleft())
                self._commit(group)
            finally:
                # An interrupt may come between any two lines; whoever waits must hear of it.
                untold = [job for job in group if not job.done]
                for job in untold:
                    job.error = job.error or Unavailable("the process was interrupted while it committed; try again")
                if untold:
                    _tell(untold)

    def _commit(self, group: list[_Job]) -> None:
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
        _tell(group)

    def _attempt(self, job: _Job, connection: sqlite3.Connection, *, alone: bool) -> None:
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


def _tell(group: list[_Job]) -> None:
    """Mark all as done; tasks are told by one call into each of their loops."""
    loops: dict[Any, list[_Job]] = {}
    for job in group:
        job.done = True
        if job.future is not None:
            loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in loops.items():
        with suppress(RuntimeError):  # that loop was closed; nobody is waiting any more
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        assert job.future is not None
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
