"""The shared commit: puts that wait at the same time go into one transaction, a savepoint each.

Any number of OS threads and tasks hand in work. Whoever gets the writer's lock takes everything that
waits, runs it, commits once, and tells the others. Work that fails takes back only itself; if the
transaction as a whole is lost (a full disk), each piece of work is tried again alone, so that nobody is
told of a success or a failure that belongs to another.
"""

from __future__ import annotations

import threading
import time
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

    __slots__ = ("done", "error", "future", "leads", "result", "wake", "work")

    def __init__(self, work: Work, future: asyncio.Future[Any] | None = None) -> None:
        self.work = work
        self.future = future
        self.done = False
        self.leads = False
        self.result: Any = None
        self.error: BaseException | None = None
        # A thread waits here; it is let through when its work is done, or when it is its turn to lead.
        self.wake = threading.Lock()
        self.wake.acquire()

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class GroupCommit:
    """Runs work in shared transactions on one writing connection.

    At any time at most one thread leads: it takes what waits and commits it. A thread that finds a leader
    waits for its own work alone; when the leader's own work is done it passes the lead to the next thread
    that waits. Work of tasks is led by a worker thread.
    """

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections
        self.restart()

    def restart(self) -> None:
        """Forget what was waiting; after a fork it belongs to the parent."""
        self._waiting: deque[_Job] = deque()
        # Guards the queue and who leads. A plain lock: an interrupt cannot come between taking it and the
        # block that gives it back, as it can with one that is written in Python.
        self._door = threading.Lock()
        self._is_led = False

    def pause(self) -> None:
        """Let the work under way finish and no other begin, by taking the lead."""
        while True:
            with self._door:
                if not self._is_led:
                    self._is_led = True
                    return
            time.sleep(0.0005)

    def resume(self) -> None:
        self._pass_on()

    def run(self, work: Work) -> Any:
        """The result of work, once it is committed."""
        job = _Job(work)
        try:
            if not self._enter(job):
                job.wake.acquire()
            while not job.done:
                self._lead()
        except BaseException:
            self._leave(job)
            raise
        finally:
            # An interrupt may come anywhere, here too; the lead must never be lost with it.
            try:
                if job.leads:
                    self._pass_on()
            except BaseException:
                self._pass_on()
                raise
        return job.outcome()

    def submit(self, work: Work, future: asyncio.Future[Any]) -> bool:
        """Hand in work whose future will be resolved; True when the caller must have `drain` called."""
        return self._enter(_Job(work, future))

    def drain(self) -> None:
        """Work off what waits; runs on a worker thread."""
        try:
            while self._waiting:
                self._lead()
        finally:
            self._pass_on()

    def _enter(self, job: _Job) -> bool:
        """Join the queue; True for the one who must lead it."""
        with self._door:
            job.leads, self._is_led = not self._is_led, True
            self._waiting.append(job)
        return job.leads

    def _leave(self, job: _Job) -> None:
        """Give up work that was interrupted before anybody took it."""
        with self._door, suppress(ValueError):
            self._waiting.remove(job)

    def _pass_on(self) -> None:
        """Give up the lead: to the next thread that waits, after the work of tasks before it, or to nobody."""
        while True:
            with self._door:
                if not self._waiting:
                    self._is_led = False
                    return
                following = self._waiting[0]
                if following.future is None:
                    following.leads = True
                    # Led twice, after an interrupt, is harmless: the connection has a lock of its own.
                    with suppress(RuntimeError):
                        following.wake.release()
                    return
            self._lead()

    def _lead(self) -> None:
        """Commit one group."""
        group: list[_Job] = []
        try:
            while self._waiting and len(group) < _MOST_TOGETHER:
                group.append(self._waiting[0])  # first noted, then taken: an interrupt in between loses nobody
                self._waiting.popleft()
            if group:
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
        if job.future is None:
            if job.wake.locked():
                job.wake.release()
        else:
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
