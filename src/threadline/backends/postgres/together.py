"""Puts of tasks that wait at the same time are made in one transaction.

A put that finds fewer than two others under way on its event loop is made at once, alone. Others wait; the next of the
two that ends has what waits by then made in one go: one connection, one round trip, one commit. With threads this does
not pay: to wake them one by one costs more than a connection for each.

Who waits may be cancelled, the puts of others may not: a group is made by a task of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ...errors import Unavailable
from ...ports.checkpoints import Change, Stamp
from .put import Usual

__all__ = ["Put", "Together"]

# So many are under way at once. With more the groups are smaller, and there are more commits.
_MOST_UNDER_WAY = 2
_MOST_TOGETHER = 32
# Changes of more bytes than this in one transaction would make the others wait.
_MOST_BYTES = 4 * 1024 * 1024


class Put(NamedTuple):
    """A change, and what it is as a statement."""

    change: Change
    usual: Usual

    @property
    def order(self) -> tuple[int, int, str]:
        """Where it stands in a group: transactions that meet wait for each other in one direction only."""
        stamp = self.change.stamp
        return (0, 0, self.change.thread_id) if stamp is None else (1, stamp[0], "")

    @property
    def size(self) -> int:
        return sum([len(value) for value in self.usual.values if type(value) is bytes])


class Together:
    """What the tasks of one event loop put."""

    def __init__(self, put: Callable[[list[Put]], Coroutine[Any, Any, list[Stamp | None]]]) -> None:
        self._put = put
        self._waiting: deque[tuple[Put, asyncio.Future[Stamp | None]]] = deque()
        self._under_way = 0
        # The loop itself refers to its tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, work: Put) -> Stamp | None:
        """The stamp of a change that was made; None where its thread is not as expected."""
        if self._under_way >= _MOST_UNDER_WAY:
            future: asyncio.Future[Stamp | None] = asyncio.get_running_loop().create_future()
            self._waiting.append((work, future))
            return await future
        self._under_way += 1
        try:
            return (await self._put([work]))[0]
        finally:
            self._ended()

    def _ended(self) -> None:
        """One that was under way is over: begin with what waits."""
        self._under_way -= 1
        group = self._taken()
        if not group:
            return
        self._under_way += 1
        task = asyncio.get_running_loop().create_task(self._put_all(group))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Not inside the task: one that is cancelled before it begins would never come to it.
            self._tasks.discard(task)
            for _, future in group:
                if not future.done():
                    future.set_exception(Unavailable("the put was interrupted with others; try again"))
            self._ended()

        task.add_done_callback(ended)

    def _taken(self) -> list[tuple[Put, asyncio.Future[Stamp | None]]]:
        """The first that wait, of different pools."""
        group: list[tuple[Put, asyncio.Future[Stamp | None]]] = []
        orders: set[tuple[int, int, str]] = set()
        size = 0
        while self._waiting and len(group) < _MOST_TOGETHER:
            work, future = self._waiting[0]
            if not future.done():  # it was not cancelled
                size += work.size
                if group and (work.order in orders or size > _MOST_BYTES):
                    break
                orders.add(work.order)
                group.append((work, future))
            self._waiting.popleft()
        group.sort(key=lambda one: one[0].order)
        return group

    async def _put_all(self, group: list[tuple[Put, asyncio.Future[Stamp | None]]]) -> None:
        try:
            stamps = await self._put([work for work, _ in group])
        except Exception as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), stamp in zip(group, stamps, strict=True):
                if not future.done():
                    future.set_result(stamp)
