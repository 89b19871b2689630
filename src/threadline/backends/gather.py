"""Work that waits at the same time is done together: by threads of this process, or by tasks of an event loop.

Whoever finds fewer leaders than there may be leads: it takes what waits, has it done in one go, and tells the
others. Who does the work, and what happens to the others when it fails, is up to the owner of the queue.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..errors import Unavailable

if TYPE_CHECKING:
    import asyncio

__all__ = ["Gather", "Job", "LoopGather"]


class Job:
    """One piece of work and what became of it."""

    __slots__ = ("done", "error", "future", "leads", "result", "wake", "work")

    def __init__(self, work: Any, future: asyncio.Future[Any] | None = None) -> None:
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


class Gather:
    """A queue of work of this process's threads.

    A thread that finds enough leaders waits for its own work alone; when a leader's own work is done it passes
    the lead to the next thread that waits. Work of tasks is led by a worker thread.
    """

    # How much is done in one go; more makes the first wait for the last.
    most_together = 128

    def __init__(self, most_leaders: int = 1) -> None:
        self._most_leaders = most_leaders
        self.restart()

    def _commit(self, group: list[Job]) -> None:
        """Do the work of a group, note what became of each, and `_tell`."""
        raise NotImplementedError

    def _fits(self, group: list[Job], job: Job) -> bool:
        """Whether a job may be done together with those before it."""
        return True

    def restart(self) -> None:
        """Forget what was waiting; after a fork it belongs to the parent."""
        self._waiting: deque[Job] = deque()
        # Guards the queue and who leads. A plain lock: an interrupt cannot come between taking it and the
        # block that gives it back, as it can with one that is written in Python.
        self._door = threading.Lock()
        # Whoever leads, as an object: given up twice, after an interrupt, is given up once.
        self._leaders: set[object] = set()

    def pause(self) -> None:
        """Let the work under way finish and no other begin, by taking every lead."""
        while True:
            with self._door:
                if not self._leaders:
                    self._leaders.update(range(self._most_leaders))
                    return
            time.sleep(0.0005)

    def resume(self) -> None:
        for number in range(self._most_leaders):
            self._pass_on(number)

    def run(self, work: Any) -> Any:
        """The result of work, once it is done."""
        job = Job(work)
        try:
            if not self._enter(job):
                job.wake.acquire()
            while not job.done:
                if not self._lead():
                    # Another leader has this very work in hand.
                    self._pass_on(job)
                    job.wake.acquire()
        except BaseException:
            self._leave(job)
            raise
        finally:
            # An interrupt may come anywhere, here too; the lead must never be lost with it.
            try:
                if job.leads:
                    self._pass_on(job)
            except BaseException:
                self._pass_on(job)
                raise
        return job.outcome()

    def submit(self, work: Any, future: asyncio.Future[Any]) -> Job | None:
        """Hand in work whose future will be resolved; the caller must `drain` with the job it gets, if any."""
        job = Job(work, future)
        return job if self._enter(job) else None

    def drain(self, leader: Job) -> None:
        """Work off what waits; runs on a worker thread."""
        try:
            while self._waiting:
                self._lead()
        finally:
            self._pass_on(leader)

    def _enter(self, job: Job) -> bool:
        """Join the queue; True for the one who must lead it."""
        with self._door:
            if len(self._leaders) < self._most_leaders:
                job.leads = True
                self._leaders.add(job)
            self._waiting.append(job)
        return job.leads

    def _leave(self, job: Job) -> None:
        """Give up work that was interrupted before anybody took it."""
        with self._door, suppress(ValueError):
            self._waiting.remove(job)

    def _pass_on(self, leader: object) -> None:
        """Give up the lead: to the next thread that waits, after the work of tasks before it, or to nobody."""
        while True:
            with self._door:
                following = self._waiting[0] if self._waiting else None
                if following is None or following.future is None:
                    self._leaders.discard(leader)
                if following is None:
                    return
                if following.future is None:
                    self._leaders.add(following)
                    following.leads = True
                    # Led twice, after an interrupt, is harmless: who does the work excludes others by itself.
                    with suppress(RuntimeError):
                        following.wake.release()
                    return
            self._lead()

    def _lead(self) -> bool:
        """Do one group; False when nothing waits."""
        group: list[Job] = []
        try:
            with self._door:
                while self._waiting and len(group) < self.most_together:
                    if group and not self._fits(group, self._waiting[0]):
                        break
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
                self._tell(untold)
        return bool(group)

    def _tell(self, group: list[Job]) -> None:
        """Mark all as done; tasks are told by one call into each of their loops."""
        loops: dict[Any, list[Job]] = {}
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


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        assert job.future is not None
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


class LoopGather:
    """A queue of work of the tasks of each event loop.

    `do` does the work of a group and gives the result of each. When it fails with `Unavailable`, everybody in the
    group may try again; when it fails otherwise, each piece of work is tried alone.
    """

    most_together = 64

    def __init__(
        self,
        do: Callable[[list[Any]], Coroutine[Any, Any, list[Any]]],
        fits: Callable[[list[Any], Any], bool],
        most_leaders: int,
    ) -> None:
        self._do = do
        self._fits = fits
        self._most_leaders = most_leaders
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = WeakKeyDictionary()

    async def run(self, work: Any) -> Any:
        """The result of work, once it is done."""
        import asyncio

        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            here = self._loops[loop] = _OfLoop()
        if here.leading >= self._most_leaders:
            future: asyncio.Future[Any] = loop.create_future()
            here.waiting.append((work, future))
            return await future
        here.leading += 1
        try:
            return (await self._do([work]))[0]
        finally:
            here.leading -= 1
            self._go_on(loop, here)

    def _go_on(self, loop: asyncio.AbstractEventLoop, here: _OfLoop) -> None:
        """Have what waits done by a task of its own: who waits may be cancelled, the others' work may not."""
        if here.waiting and here.leading < self._most_leaders:
            here.leading += 1
            task = loop.create_task(self._drain(here))
            here.tasks.add(task)
            task.add_done_callback(here.tasks.discard)

    async def _drain(self, here: _OfLoop) -> None:
        group: list[tuple[Any, asyncio.Future[Any]]] = []
        try:
            while here.waiting:
                group = self._taken(here)
                if group:
                    await self._resolve(group)
        finally:
            here.leading -= 1
            for _, future in group:
                if not future.done():
                    future.cancel()

    def _taken(self, here: _OfLoop) -> list[tuple[Any, asyncio.Future[Any]]]:
        group: list[tuple[Any, asyncio.Future[Any]]] = []
        while here.waiting and len(group) < self.most_together:
            work, future = here.waiting[0]
            if group and not self._fits([one for one, _ in group], work):
                break
            here.waiting.popleft()
            if not future.done():
                group.append((work, future))
        return group

    async def _resolve(self, group: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        try:
            results = await self._do([work for work, _ in group])
        except Exception as error:
            if len(group) > 1 and not isinstance(error, Unavailable):
                for one in group:
                    await self._resolve([one])
                return
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(group, results, strict=True):
                if not future.done():
                    future.set_result(result)


class _OfLoop:
    """What waits on one event loop, and who leads there."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self.leading = 0
        self.tasks: set[asyncio.Task[None]] = set()
