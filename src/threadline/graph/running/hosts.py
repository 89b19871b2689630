"""Where tasks run: side by side on OS threads, or on an event loop. The port that the loop is written against.

Rules: one task without company runs where the caller is: no thread, no hop. Several run side by side, at most
`max_concurrency` of them. A blocking node of a run that awaits gets a thread, so it never blocks the loop. Contexts are
copied: what a node sets in a context variable is gone when the node ends.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .._base import run_now
from .pool import WorkerPool, shared_pool

if TYPE_CHECKING:
    import asyncio

    from .tasks import Task

__all__ = ["BlockingHost", "Host", "LoopHost", "to_the_end"]

T = TypeVar("T")

# How many OS threads a blocking run uses when its config does not say.
DEFAULT_THREADS = 32
Performing = Callable[["Task"], Coroutine[Any, Any, None]]


class Host(Protocol):
    """Runs tasks side by side and says when one ended."""

    is_async: bool
    # Whether the run is ending, so that a cancelled task is no failure.
    is_stopping: bool
    # Whether `wait` must return for each task that ends; else it may wait for the last one.
    tells_each: bool

    async def run_here(self, task: Task, perform: Performing) -> None:
        """Run one task to its end."""

    def start(self, task: Task, perform: Performing) -> None:
        """Begin a task; `wait` returns it when it ended."""

    async def wait(self, seconds: float | None = None) -> Task | None:
        """A task that ended, or None when something else happened (a chunk was shown, time ran out)."""

    def wake(self) -> None:
        """Make `wait` return; may be called from any thread."""

    async def call(self, task: Task) -> None:
        """Run the task's action and its writers once."""

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts."""

    async def stop(self) -> None:
        """End what still runs: threads are waited for, asyncio tasks are cancelled."""


def call_blocking(task: Task) -> None:
    """The task's action and its writers, on this thread."""
    node = task.node
    output = task.input
    action = node.action
    if action is not None:
        if action.call is None:
            raise action.no_sync_error()
        output = action.call(output, task)
    for writer in node.writers:
        writer.write(output, task)


class BlockingHost:
    """Runs on the caller's thread, or on a pool of threads."""

    is_async = False
    is_stopping = False
    tells_each = True

    def __init__(self, max_concurrency: int | None = None) -> None:
        self._limit = max_concurrency or DEFAULT_THREADS
        self._context = copy_context()
        self._pool: WorkerPool | None = None
        self._ended: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._running = 0
        self._counting = threading.Lock()

    async def run_here(self, task: Task, perform: Performing) -> None:
        self._context.copy().run(run_now, perform(task))

    def start(self, task: Task, perform: Performing) -> None:
        context = self._context.copy()
        with self._counting:  # calls are started by the threads of their callers
            self._running += 1

        def job() -> None:
            try:
                context.run(run_now, perform(task))
            except BaseException as error:  # no Exception: those are outcomes. The run ends with it, not the thread.
                task.error = task.error or error
                task.interrupts = ()
                task.run.has_failures = True
            finally:
                task.is_done = True
                with self._counting:
                    self._running -= 1
                    is_last = self._running == 0
                # A run that nobody watches has nothing to do before the last task ended.
                if is_last or self.tells_each:
                    self._ended.put(task)

        self.pool.submit(job)

    @property
    def pool(self) -> WorkerPool:
        with self._counting:
            if self._pool is None:
                self._pool = WorkerPool(self._limit)
            return self._pool

    async def wait(self, seconds: float | None = None) -> Task | None:
        try:
            task = self._ended.get(timeout=seconds)
        except queue.Empty:
            return None
        return task

    def wake(self) -> None:
        self._ended.put(None)

    def waiting(self) -> Any:
        """For a job of the pool that waits for another one."""
        return self.pool.waiting()

    async def call(self, task: Task) -> None:
        call_blocking(task)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def stop(self) -> None:
        while self._running > 0:
            self._ended.get()
        if self._pool is not None:
            self._pool.close()


class LoopHost:
    """Runs on the event loop of the caller; blocking nodes get a thread."""

    is_async = True
    tells_each = True

    def __init__(self, max_concurrency: int | None = None) -> None:
        import asyncio

        self.loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._slots = asyncio.Semaphore(max_concurrency) if max_concurrency else None
        self._holding: set[Task] = set()
        self._ended: list[Task] = []
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False
        self._running: dict[asyncio.Task[None], Task] = {}
        self.is_stopping = False

    async def run_here(self, task: Task, perform: Performing) -> None:
        self.start(task, perform)
        while await self.wait() is not task:
            pass

    def start(self, task: Task, perform: Performing) -> None:
        # create_task copies the context that it is called in; the copy of a copy is the task's own.
        running = self._context.run(self.loop.create_task, self._in_slot(task, perform(task)))
        self._running[running] = task
        running.add_done_callback(self._note_end)

    async def _in_slot(self, task: Task, performing: Coroutine[Any, Any, None]) -> None:
        if self._slots is None:
            await performing
            return
        try:
            await self._slots.acquire()
        except BaseException:
            performing.close()
            raise
        self._holding.add(task)
        try:
            await performing
        finally:
            self._free_slot(task)

    def _free_slot(self, task: Task) -> None:
        if task in self._holding and self._slots is not None:
            self._holding.discard(task)
            self._slots.release()

    def calls_begin(self, caller: Task) -> None:
        """A task that calls others waits for them: it gives its slot to them, so that calls never starve."""
        if self._slots is not None:
            self.loop.call_soon_threadsafe(self._free_slot, caller)

    def _note_end(self, running: asyncio.Task[None]) -> None:
        task = self._running.pop(running)
        if not running.cancelled() and (error := running.exception()) is not None and task.error is None:
            task.error = error
            task.run.has_failures = True
        task.is_done = True
        self._ended.append(task)
        self._notify()

    async def wait(self, seconds: float | None = None) -> Task | None:
        import asyncio

        if not self._ended and not self._woken:
            self._waiter = self.loop.create_future()
            handle = self.loop.call_later(seconds, self._notify) if seconds is not None else None
            try:
                await self._waiter
            finally:
                self._waiter = None
                if handle is not None:
                    handle.cancel()
        self._woken = False
        if self._ended:
            return self._ended.pop(0)
        await asyncio.sleep(0)
        return None

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def wake(self) -> None:
        self._woken = True
        try:
            self.loop.call_soon_threadsafe(self._notify)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    async def call(self, task: Task) -> None:
        node = task.node
        action = node.action
        if action is None:
            output = task.input
        elif action.call_async is not None:
            output = await action.call_async(task.input, task)
        elif action.is_quick and action.call is not None:
            output = action.call(task.input, task)
        elif any(writer.is_async for writer in node.writers):
            output = await self.in_thread(_action_output, task)
        else:
            await self.in_thread(call_blocking, task)  # one hop for the node and its branches
            return
        for writer in node.writers:
            if writer.is_async:
                await writer.write_async(output, task)
            elif writer.is_blocking:
                await self.in_thread(partial(writer.write, output), task)
            else:
                writer.write(output, task)

    async def in_thread(self, function: Callable[[Task], Any], task: Task) -> Any:
        """Run a function on a thread of the shared pool, in a copy of this task's context."""
        done: asyncio.Future[Any] = self.loop.create_future()
        context: Context = copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def job() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(function, task)
            except StopIteration as stop:
                error = RuntimeError("a node raised StopIteration")  # a future refuses the original
                error.__cause__ = stop
            except BaseException as raised:
                error = raised
            try:
                self.loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                return  # the loop is closed: the run is gone

        shared_pool().submit(job)
        return await done

    def waiting(self) -> Any:
        """For a job of the shared pool that waits for another one."""
        return shared_pool().waiting()

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def stop(self) -> None:
        import asyncio

        self.is_stopping = True
        running = list(self._running)
        for one in running:
            one.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)


async def to_the_end(work: Coroutine[Any, Any, T]) -> tuple[asyncio.Task[T], BaseException | None]:
    """Let work end though the task that awaits it is cancelled; the work, and the cancellation to be raised then."""
    import asyncio

    task = asyncio.ensure_future(work)
    cancelled: BaseException | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:
            break
    return task, cancelled


def _action_output(task: Task) -> Any:
    assert task.node.action is not None
    assert task.node.action.call is not None
    return task.node.action.call(task.input, task)
