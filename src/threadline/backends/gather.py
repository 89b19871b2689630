"""Work that waits at the same time is done together: by threads of this process, or by tasks of an event loop.

Whoever finds fewer leaders than there may be leads: it takes what waits, has it done in one go, and tells the
others. Who does the work, and what happens to the others when it fails, is up to the owner of the queue.

What must be given back is given back by a function without loops. From Python 3.12 on an interrupt that comes at the
jump back of a loop passes by the `with` and the `finally` around that loop in the same function.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..errors import Unavailable

if TYPE_CHECKING:
    import asyncio

__all__ = ["Admits", "Gather", "Job", "LoopGather"]

# Whether one more piece of work goes into a group.
Admits = Callable[[Any], bool]


class Job:
    """One piece of work and what became of it."""

    __slots__ = ("done", "error", "future", "is_given_up", "leads", "result", "wake", "work")

    def __init__(self, work: Any, future: asyncio.Future[Any] | None = None) -> None:
        self.work = work
        self.future = future
        self.done = False
        self.leads = False
        # Whoever handed it in was interrupted, and waits for it no more.
        self.is_given_up = False
        self.result: Any = None
        self.error: BaseException | None = None
        # A thread waits here; it is let through when its work is done, or when it is its turn to lead.
        self.wake = threading.Lock()
        self.wake.acquire()

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it: told of an interrupt, it may still stand in the queue."""
        return self.is_given_up or self.done

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class Gather(ABC):
    """A queue of work of this process's threads.

    A thread that finds enough leaders waits for its own work alone; when a leader's own work is done it passes
    the lead to the next thread that waits. Work of tasks is led by a worker thread.
    """

    # How much is done in one go; more makes the first wait for the last.
    most_together = 128

    def __init__(self, most_leaders: int = 1) -> None:
        self._most_leaders = most_leaders
        self.restart()

    @abstractmethod
    def _commit(self, group: list[Job]) -> None:
        """Do the work of a group, note what became of each, and `_tell`."""

    def _begin_group(self) -> Admits:
        """A new group; what is returned says of one work after the other whether it is done with those before."""
        return lambda _: True

    def restart(self) -> None:
        """Forget what was waiting; after a fork it belongs to the parent."""
        self._waiting: deque[Job] = deque()
        # Guards the queue and who leads. A plain lock: an interrupt cannot come between taking it and the
        # block that gives it back, as it can with one that is written in Python.
        self._door = threading.Lock()
        # Whoever leads, as an object: given up twice, after an interrupt, is given up once.
        self._leaders: set[object] = set()
        # A group whose work is done and whose waiters are not told so yet: see `_tell_later`.
        self._untold: list[Job] = []
        self._is_paused = False

    def pause(self) -> None:
        """Let the work under way finish and no other begin."""
        with self._door:
            self._is_paused = True
        while True:
            with self._door:
                if not self._leaders:
                    return
            time.sleep(0.0005)

    def resume(self) -> None:
        with self._door:
            self._is_paused = False
        self._pass_on(None)

    def run(self, work: Any) -> Any:
        """The result of work, once it is done."""
        job = Job(work)
        try:
            self._finish(job)
        except BaseException:
            job.is_given_up = True
            raise
        finally:
            # An interrupt may come anywhere, here too; the lead must never be lost with it. Whoever gave up may be
            # given the lead at this very moment, and passes it on whether it knows of it or not.
            try:
                if job.leads or job.is_given_up:
                    self._pass_on(job)
            except BaseException:
                job.is_given_up = True
                self._pass_on(job)
                raise
            finally:
                if job.is_given_up:
                    self._rouse()
        return job.outcome()

    def _finish(self, job: Job) -> None:
        """Wait until the work is done, or do it."""
        if not self._enter(job):
            job.wake.acquire()
        while not job.done:
            if not job.leads or not self._lead():
                # Another leader has this very work in hand, or nobody may lead for now.
                job.leads = False
                self._pass_on(job)
                job.wake.acquire()

    def submit(self, work: Any, future: asyncio.Future[Any]) -> Job | None:
        """Hand in work whose future will be resolved; the caller must `drain` with the job it gets, if any."""
        job = Job(work, future)
        try:
            return job if self._enter(job) else None
        except BaseException:
            self.refuse(job)
            raise

    def refuse(self, leader: Job) -> None:
        """Take back work that nobody will lead, because its owner was interrupted."""
        leader.is_given_up = True
        self._pass_on(leader)

    def drain(self, leader: Job) -> None:
        """Work off what waits; runs on a worker thread."""
        try:
            self._work_off()
        finally:
            self._pass_on(leader)

    def _work_off(self) -> None:
        while self._waiting and not self._is_paused:
            self._lead()

    def _enter(self, job: Job) -> bool:
        """Join the queue; True for the one who must lead it."""
        with self._door:
            if len(self._leaders) < self._most_leaders and not self._is_paused:
                job.leads = True
                self._leaders.add(job)
            self._waiting.append(job)
        return job.leads

    def _pass_on(self, leader: object) -> None:
        """Give up the lead: to the next thread that waits, after the work of tasks before it, or to nobody."""
        while self._must_go_on(leader):
            self._lead()
        if self._untold and not self._leaders:
            self._tell_earlier()

    def _rouse(self) -> None:
        """Wake whoever leads: an interrupt may have come between naming it and waking it. Once more is harmless."""
        with self._door:
            self._wake_leaders()

    def _wake_leaders(self) -> None:
        for leader in self._leaders:
            if isinstance(leader, Job) and leader.future is None and leader.wake.locked():
                leader.wake.release()

    def _must_go_on(self, leader: object) -> bool:
        with self._door:
            return not self._hand_on(leader)

    def _hand_on(self, leader: object) -> bool:
        """Whether the lead was given up; not while tasks come first, whose work no thread of theirs leads."""
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()
        following = self._waiting[0] if self._waiting else None
        has_room = len(self._leaders - {leader}) < self._most_leaders
        if following is None or self._is_paused or not has_room:
            self._leaders.discard(leader)
            return True
        if following.future is not None:
            self._leaders.add(leader)
            return False
        self._leaders.discard(leader)
        self._leaders.add(following)
        following.leads = True
        # Led twice, after an interrupt, is harmless: who does the work excludes others by itself.
        with suppress(RuntimeError):
            following.wake.release()
        return True

    def _lead(self) -> bool:
        """Do one group; False when nothing waits."""
        group: list[Job] = []
        admits = self._begin_group()
        try:
            with self._door:
                self._take(group, admits)
            if group:
                self._commit(group)
        except BaseException:
            try:
                self._take_back(group)
            except BaseException:  # a second interrupt
                self._take_back(group)
                raise
            raise
        return bool(group)

    def _take_back(self, group: list[Job]) -> None:
        """Work of others waits again, first of all: they were not interrupted, and doing it twice is harmless."""
        self._tell([job for job in group if job.done])  # perhaps only half
        with self._door:
            self._wait_again(group)

    def _wait_again(self, group: list[Job]) -> None:
        for job in reversed(group):
            # Work that was left to be told later is committed; and some may not have left the queue yet.
            if not job.done and job not in self._untold and job not in self._waiting:
                job.result = job.error = None
                self._waiting.appendleft(job)

    def _take(self, group: list[Job], admits: Admits) -> None:
        """Take into the group what waits, as much as is admitted."""
        while self._waiting and len(group) < self.most_together:
            if not self._waiting[0].is_over and not admits(self._waiting[0].work):
                break
            if not self._waiting[0].is_over:
                group.append(self._waiting[0])  # noted, then taken: an interrupt in between loses nobody
            self._waiting.popleft()

    def _tell_later(self, group: list[Job]) -> None:
        """Tell a group where nobody waits; else let the next group's leader do so, shortly before it commits.

        Those who are told go on at once and keep the interpreter to themselves: the next group would not come to
        its commit until all of them wait again. Told before the commit, they go on while the disk is busy.
        """
        with self._door:
            is_later = bool(self._waiting) and not self._untold and not self._is_paused
            if is_later:
                self._untold = group
        # The leader is one of those who wait, and need not be woken.
        self._tell([job for job in group if job.leads and job.future is None] if is_later else group)

    def _tell_earlier(self) -> None:
        """Tell the group before, if that was left for later."""
        untold = self._untold
        if untold:
            self._tell(untold)  # told, then forgotten: an interrupt in between tells them twice
            with self._door:
                if self._untold is untold:
                    self._untold = []

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

    `do` does the work of a group and gives the result of each; `begin_group` is as for `Gather`.
    """

    def __init__(
        self,
        do: Callable[[list[Any]], Coroutine[Any, Any, list[Any]]],
        begin_group: Callable[[], Admits],
        *,
        most_leaders: int,
        most_together: int,
    ) -> None:
        self._do = do
        self._begin_group = begin_group
        self._most_leaders = most_leaders
        self._most_together = most_together
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
        if not here.waiting or here.leading >= self._most_leaders:
            return
        here.leading += 1
        group = self._taken(here)
        task = loop.create_task(self._resolve(group))
        here.tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Not inside the task: one that is cancelled before it begins would never come to it.
            here.tasks.discard(task)
            here.leading -= 1
            for _, future in group:
                if not future.done():
                    future.set_exception(Unavailable("the put was interrupted with others; try again"))
            if not loop.is_closed():
                self._go_on(loop, here)

        task.add_done_callback(ended)

    def _taken(self, here: _OfLoop) -> list[tuple[Any, asyncio.Future[Any]]]:
        group: list[tuple[Any, asyncio.Future[Any]]] = []
        admits = self._begin_group()
        while here.waiting and len(group) < self._most_together:
            work, future = here.waiting[0]
            if not future.done():
                if not admits(work):
                    break
                group.append((work, future))
            here.waiting.popleft()
        return group

    async def _resolve(self, group: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        if not group:
            return
        try:
            results = await self._do([work for work, _ in group])
        except Exception as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(group, results, strict=True):
                if not future.done():
                    future.set_result(result)


class _OfLoop:
    """What waits on one event loop, and how many lead there."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self.leading = 0
        self.tasks: set[asyncio.Task[None]] = set()
