"""Work of tasks that comes in one round of an event loop, or while other work is under way, is done together.

Each event loop has its own queue. When work that was done together fails, each piece is tried again alone, and has an
outcome of its own. This is no group commit (backends/shared_commit.py), which it stands above: that one commits the
calls of many callers together, this makes one call of them, which costs less for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    import asyncio

__all__ = ["TaskBatches"]

W = TypeVar("W")
_Asked = tuple[W, "asyncio.Future[None]"]


class TaskBatches(Generic[W]):
    """Does work of the tasks of an event loop together; two pieces with the same mark one after the other."""

    def __init__(
        self, do: Callable[[list[W]], Coroutine[Any, Any, None]], mark: Callable[[W], Hashable], *, most: int
    ) -> None:
        self._do = do
        self._mark = mark
        self._most = most
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting[W]] = WeakKeyDictionary()
        self._last: _Waiting[W] | None = None

    def ask(self, work: W) -> asyncio.Future[None]:
        """What is to be awaited until the work is done. A task that is cancelled stops waiting; its work goes on."""
        import asyncio

        loop = asyncio.get_running_loop()
        here = self._last
        if here is None or here.loop() is not loop:
            here = self._loops.get(loop)
            if here is None:
                here = self._loops[loop] = _Waiting(loop)
            self._last = here  # the next one to ask is most likely a task of the same loop
        future = loop.create_future()
        here.queue.append((work, future))
        if not here.is_busy:
            here.is_busy = True
            loop.call_soon(self._go_on, loop, here)
        return future

    async def finish(self) -> None:
        """Wait until nothing of this event loop waits any more."""
        import asyncio

        here = self._loops.get(asyncio.get_running_loop())
        while here is not None and here.queue:
            await asyncio.wait([future for _, future in here.queue])

    def _go_on(self, loop: asyncio.AbstractEventLoop, here: _Waiting[W]) -> None:
        """Start a task for the waiting work, so that a cancelled caller does not cancel the work of others."""
        here.is_busy = bool(here.queue) and not loop.is_closed()
        if not here.is_busy:
            return
        group = self._taken(here)
        here.task = loop.create_task(self._finish(group))

        def ended(task: asyncio.Task[None]) -> None:
            # Not inside the task: one that is cancelled before it begins would never come to it.
            for _, future in group:
                if not future.done():
                    future.cancel()
            self._go_on(loop, here)

        here.task.add_done_callback(ended)

    def _taken(self, here: _Waiting[W]) -> list[_Asked[W]]:
        group: list[_Asked[W]] = []
        marks = set()
        while here.queue and len(group) < self._most:
            mark = self._mark(here.queue[0][0])
            if mark in marks:
                break
            marks.add(mark)
            group.append(here.queue.popleft())
        return group

    async def _finish(self, group: Sequence[_Asked[W]]) -> None:
        try:
            await self._do([work for work, _ in group])
        except Exception as error:
            if len(group) == 1:
                _tell(group, error)
                return
            for one in group:
                await self._finish([one])
        else:
            _tell(group, None)


class _Waiting(Generic[W]):
    """What waits on one event loop, and whether something is under way there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)  # what waits must not keep its loop alive
        self.queue: deque[_Asked[W]] = deque()
        self.is_busy = False
        self.task: asyncio.Task[None] | None = None


def _tell(group: Sequence[_Asked[W]], error: Exception | None) -> None:
    for _, future in group:
        if not future.done():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)
