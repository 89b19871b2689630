"""Group commit: work of several threads and tasks that waits at the same time goes into one transaction.

A lone caller commits on its own thread, because a hand-over to another thread costs more than a small put. So do a few
who meet: they wait for their turn. Once they are a crowd, one writer thread per store takes all that waits, commits it
together, and tells the callers. Python runs signal handlers on the main thread only, so KeyboardInterrupt never reaches
the writer. A caller that is interrupted or cancelled stops waiting; its work is then stored as a whole, or not at all.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest

if TYPE_CHECKING:
    import asyncio

__all__ = ["Job", "SharedCommit"]

# Callers that were told usually hand in again at once. For so long the writer waits for as many as it told.
_LINGER_SECONDS = 0.001
# For fewer it does not wait, and so many wait for their turn without it: a graph that puts a checkpoint beside the
# writes of its tasks is no crowd, and has other things to do than to put.
_CROWD = 4
# The writer thread ends when nothing came for so long: a store that nobody closed keeps no thread.
_IDLE_SECONDS = 5.0
# How long closing and the end of the interpreter wait for the writer thread.
_FINISH_SECONDS = 10.0


class Job:
    """One piece of work, and its result or error. `future` is set for a task, `wake` for a thread that waits."""

    __slots__ = ("began", "error", "future", "result", "wake", "work")

    def __init__(self, work: Any, future: asyncio.Future[Any] | None = None) -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None
        self.wake: threading.Lock | None = None
        # When it was handed in; only where somebody watches.
        self.began: float


class SharedCommit(ABC):
    """The queue of one store, and the thread that commits it."""

    # How much goes into one transaction; with more, the first caller would wait for the last.
    most_together = 128

    def __init__(self, *, is_alone: bool = False) -> None:
        # Every caller commits on its own thread: another one may not use the connection.
        self._is_alone = is_alone
        self._is_ending = False
        self.restart()

    @abstractmethod
    def _transact(self, group: list[Job], before_commit: Callable[[], None]) -> None:
        """Do the work of a group in one transaction, and note the result or the error of each job.

        Raises if the transaction as a whole fails, perhaps because of one job; nothing of it is stored then. Calls
        `before_commit` when the rows are written, and before waiting for another process.
        """

    def _transact_one(self, work: Any) -> Any:
        """The result of work in a transaction of its own, for a caller that commits alone."""
        job = Job(work)
        self._transact([job], _nothing)
        return job.result

    def restart(self) -> None:
        """Begin with an empty queue and without a writer thread: both stay with the parent of a fork."""
        self._queue: deque[Job] = deque()
        # Its holder may commit. Plain locks, taken by `with` alone: KeyboardInterrupt cannot come between taking such a
        # lock and the block that releases it.
        self._turn = threading.Lock()
        # Id of the caller's thread that commits alone; 0 if the writer thread commits or no commit is running.
        self._lone = 0
        # Ids of the callers' threads that wait, or waited, to commit alone. A hint: more that meet may get in.
        self._waiting: set[int] = set()
        # Whether the last commit that callers shared was one of many.
        self._is_crowd = False
        # Guards the queue against a writer that is about to end. Held while the process forks.
        self._door = threading.Lock()
        # Locked until as many jobs wait as the writer waits for.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._expected = 1
        self._writer: threading.Thread | None = None

    def run(self, work: Any) -> Any:
        """The result of work, once it is committed; the calling thread waits."""
        thread = get_ident()  # not under the lock: a signal handler may run after any call
        if self._queue or self._turn.locked():
            self._refuse_nested()
            if self._is_alone or not (self._queue or self._is_crowd or len(self._waiting) >= _CROWD):
                self._waiting.add(thread)
            else:
                job = Job(work)
                job.wake = threading.Lock()
                job.wake.acquire()
                if self._hand_in(job):
                    job.wake.acquire()
                    if job.error is not None:
                        raise job.error
                    return job.result
        try:
            with self._turn:
                try:
                    self._lone = thread
                    return self._transact_one(work)
                finally:
                    self._lone = 0
        finally:
            self._waiting.discard(thread)

    async def arun(self, work: Any) -> Any:
        """The result of work, once it is committed; the calling task waits."""
        import asyncio

        future = asyncio.get_running_loop().create_future()
        job = Job(work, future)
        return await future if self._hand_in(job) else self.run(work)

    def watch(self, note: Callable[[int, float | None], None]) -> None:
        """Have `note` told of each shared commit: how many jobs it has, and for how many seconds the first one waited.

        Two methods are replaced on this object alone, so that a store that nobody watches pays nothing for it.
        """
        hand_in, commit = self._hand_in, self._commit

        def noted_hand_in(job: Job) -> bool:
            job.began = time.monotonic()
            return hand_in(job)

        def noted_commit(group: list[Job], tell: Callable[[], None]) -> None:
            note(len(group), time.monotonic() - group[0].began)
            commit(group, tell)

        self._hand_in, self._commit = noted_hand_in, noted_commit  # type: ignore[method-assign]

    def paused(self, inner: Iterable[None]) -> Generator[None, None, None]:
        """Between the steps of `inner` no commit is under way, and none begins: the process is about to fork.

        A generator, so that an interrupt at any line gives all locks back, and its state tells whether they are held.
        """
        with self._door, self._turn:
            yield from inner

    def end(self) -> None:
        """Have the writer thread end as soon as nothing waits."""
        self._is_ending = True
        with self._door:
            self._ring()

    def finish(self) -> None:
        """Wait until the writer thread has committed what was handed in, but not for callers that never stop."""
        self.end()
        writer = self._writer
        if writer is not None:
            writer.join(_FINISH_SECONDS)

    def _refuse_nested(self) -> None:
        """Signal handlers and finalizers run on the thread that they interrupt, whose commit would never end."""
        if self._turn.locked() and self._lone == get_ident():
            raise InvalidRequest(
                "this thread is in the middle of a commit: a signal handler or a finalizer that interrupts it cannot "
                "write. Let it note what to do, and write when the interrupted call has returned"
            )

    def _hand_in(self, job: Job) -> bool:
        """Leave a job to the writer thread; False if no thread can be started."""
        with self._door:
            if self._writer is None:
                writer = threading.Thread(target=self._serve, name="threadline-writer", daemon=True)
                try:
                    writer.start()
                except RuntimeError:  # the interpreter ends, or the system has no more threads
                    return False
                self._writer = writer
            self._queue.append(job)
            if len(self._queue) >= self._expected:
                self._ring()
        return True

    def _ring(self) -> None:
        if self._bell.locked():
            self._bell.release()

    def _serve(self) -> None:
        """The writer thread."""
        done: list[Job] = []
        told, told_at = 1, 0.0

        def tell() -> None:
            nonlocal told, told_at
            if done:
                told, told_at = len(done), time.monotonic()
                _tell(done)
                done.clear()

        while self._has_work(tell):
            if told >= _CROWD:
                self._linger(told, told_at + _LINGER_SECONDS)
            if self._turn.locked() or self._door.locked():
                tell()  # a lone caller commits, or the process forks: nobody waits for that
            with self._door:
                pass  # a fork that waits goes first
            with self._turn:
                self._lone = 0
                group = [self._queue.popleft() for _ in range(min(len(self._queue), self.most_together))]
                self._commit(group, tell)
            self._is_crowd = len(group) >= _CROWD
            # Callers that are told go on at once and compete for the interpreter. Told just before the next commit,
            # they run while the disk is busy.
            done += group

    def _has_work(self, tell: Callable[[], None]) -> bool:
        """Wait until something waits; False when the writer thread is to end."""
        if not self._queue:
            tell()
        while not self._queue:
            is_needed = not self._is_ending and self._bell.acquire(timeout=_IDLE_SECONDS)
            with self._door:
                if not self._queue and (self._is_ending or not is_needed):
                    self._writer = None
                    return False
        return True

    def _linger(self, expected: int, deadline: float) -> None:
        """Wait until so many jobs wait: while callers prepare their puts, each statement waits for the interpreter."""
        self._expected = expected
        while len(self._queue) < expected and (left := deadline - time.monotonic()) > 0:
            self._bell.acquire(timeout=left)
        self._expected = 1

    def _commit(self, group: list[Job], tell: Callable[[], None]) -> None:
        """Commit a group; if the transaction as a whole fails, each job alone, so that each has its own outcome."""
        try:
            self._transact(group, tell)
        except BaseException as error:
            tell()
            if len(group) == 1:
                group[0].error = error
                return
            for job in group:
                job.result = job.error = None
                self._commit([job], tell)


def _nothing() -> None:
    """Nobody is to be told."""


def _tell(jobs: list[Job]) -> None:
    """Wake the threads that wait; the tasks of an event loop are told by one call into it."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if job.wake is not None:
            job.wake.release()
        elif job.future is not None:
            loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, of_loop in loops.items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits there
            loop.call_soon_threadsafe(_resolve, of_loop)


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future is None or job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
