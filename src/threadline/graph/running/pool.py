"""Threads for tasks that run side by side.

Rules: a pool starts a thread only when a job waits and no thread is idle, and never has more than its limit at work. A
job that waits for another job of the same pool (`waiting`) does not count while it waits, so jobs may call jobs to any
depth without starving. A forked child starts with an empty pool.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

__all__ = ["WorkerPool", "shared_pool"]

# An idle thread ends after so many seconds.
IDLE_SECONDS = 10.0
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
Job = Callable[[], None]


class WorkerPool:
    """Runs jobs on OS threads; jobs must not raise."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        _pools.add(self)
        self.renew()

    def renew(self) -> None:
        """Forget all threads: they exist only in the process that this one was forked from."""
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        # Idle threads, each behind a queue of its own: a hand-over wakes exactly one, without a condition variable.
        self._idle: list[SimpleQueue[Job | None]] = []
        self._at_work = 0
        self._closed = False

    def submit(self, job: Job) -> None:
        """Run a job soon."""
        with self._lock:
            if self._idle and self._has_room():
                self._at_work += 1
                self._idle.pop().put(job)
            else:
                self._jobs.append(job)
                self._start_one()

    def close(self) -> None:
        """End the threads when the jobs that were submitted are done."""
        with self._lock:
            self._closed = True
            for inbox in self._idle:
                inbox.put(None)
            self._idle = []

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the body waits for another job, its thread does not count as being at work."""
        with self._lock:
            self._at_work -= 1
            if self._jobs and self._idle:
                self._at_work += 1
                self._idle.pop().put(self._jobs.popleft())
            elif self._jobs:
                self._start_one()
        try:
            yield
        finally:
            with self._lock:
                self._at_work += 1

    def _has_room(self) -> bool:
        return self._limit is None or self._at_work < self._limit

    def _start_one(self) -> None:
        if self._has_room():
            self._at_work += 1
            threading.Thread(target=self._work, name="threadline-task", daemon=True).start()

    def _work(self) -> None:
        inbox: SimpleQueue[Job | None] = SimpleQueue()
        while (job := self._next(inbox)) is not None:
            job()
            del job  # what it refers to must not live as long as an idle thread

    def _next(self, inbox: SimpleQueue[Job | None]) -> Job | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            self._at_work -= 1
            if self._closed:
                return None
            self._idle.append(inbox)
        try:
            return inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return None
            return inbox.get()  # a job was handed over at the last moment


_shared: WorkerPool | None = None


def shared_pool() -> WorkerPool:
    """The pool for blocking nodes of runs that await; their number is bounded by the runs."""
    global _shared
    if _shared is None:
        _shared = WorkerPool()
    return _shared


def _renew_all() -> None:
    for pool in list(_pools):
        pool.renew()


os.register_at_fork(after_in_child=_renew_all)
