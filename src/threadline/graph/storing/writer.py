"""What a run hands to its saver, in the order in which it must become durable.

Rules: the writes of a step's tasks become durable before the checkpoint that the step ends with, always. There is one
FIFO per run. Under durability "sync" an item is stored before the call returns. Under "async" one thread (or one
asyncio task) at a time stores the items in order. At most `QUEUE_LIMIT` checkpoints wait: then the run waits for the
saver, so a slow saver costs time and no memory. The writes of the task that ends a step share the transaction of the
step's checkpoint, where the saver has `put_batch(items)`. After a failure nothing more is stored, and the failure is
raised by the next call.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "BlockingWriter",
    "LoopWriter",
    "QUEUE_LIMIT",
    "SaverWriter",
    "ThreadWriter",
    "takes_batches",
    "takes_task_path",
]

QUEUE_LIMIT = 2
# Tasks that run side by side end together: so many of them may hand over their writes without waiting.
WRITES_LIMIT = 16
# Puts of which most take longer than this are worth a thread. Python changes threads every 5 ms when both have work to
# do, and drivers of databases wait for their turn several times in a put: a thread that makes short ones takes
# longer for them, and holds up the run.
SLOW_SECONDS = 0.002
TRIED_PUTS = 5
# How long a checkpoint waits for others, which then share its commit, and for how many.
LINGER_SECONDS = 0.001
SHARED_PUTS = 4
Item = tuple[str, tuple[Any, ...]]


class SaverWriter(Protocol):
    """Where a run's writes and checkpoints go."""

    async def add(self, method: str, *args: Any, hold: bool = False) -> None:
        """Call `put` or `put_writes` of the saver, after all that was added before.

        `hold` says that another item follows at once: a saver with `put_batch` stores both in one transaction.
        """

    async def settle(self) -> None:
        """Wait until all that was added is durable; raises what failed."""

    async def close(self) -> None:
        """Settle and end; nothing may be added afterwards."""


def takes_task_path(saver: Any) -> bool:
    """Whether a saver's put_writes has the parameter for the path of the task."""
    try:
        parameters = inspect.signature(saver.put_writes).parameters
    except (TypeError, ValueError):
        return True
    return "task_path" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _is_full(items: Sequence[Item], method: str) -> bool:
    """Whether another item must wait: a third checkpoint, or writes beyond what tasks side by side may hand over."""
    if method == "put":
        return sum(waiting == "put" for waiting, _ in items) >= QUEUE_LIMIT
    return len(items) >= WRITES_LIMIT


def takes_batches(saver: Any) -> bool:
    """Whether a saver's `put_batch` may stand for its puts.

    A class that overrides `put` or `put_writes` below the one that has `put_batch` would be passed by.
    """
    kind: Any = type(saver)
    return _has_batches(kind) and "put" not in getattr(saver, "__dict__", {})


@lru_cache(maxsize=256)
def _has_batches(kind: Any) -> bool:
    order = [set(vars(one)) for one in kind.__mro__]
    batches = next((place for place, names in enumerate(order) if "put_batch" in names), None)
    if batches is None:
        return False
    overridden = {"put", "aput", "put_writes", "aput_writes"}
    return not any(overridden & names for names in order[:batches])


def _store_items(saver: Any, items: Sequence[Item], *, together: bool) -> None:
    """Store items in order, in one transaction where the saver can."""
    if together and len(items) > 1:
        saver.put_batch([(method, *args) for method, args in items])
        return
    for method, args in items:
        getattr(saver, method)(*args)


async def _store_items_async(saver: Any, items: Sequence[Item], *, together: bool) -> None:
    if together and len(items) > 1:
        await saver.aput_batch([(method, *args) for method, args in items])
        return
    for method, args in items:
        await getattr(saver, "a" + method)(*args)


class BlockingWriter:
    """Stores at once, on the calling thread. Tasks that finish at the same time take turns."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._lock = threading.Lock()
        self._held: list[Item] = []
        self._can_hold = takes_batches(saver)

    async def add(self, method: str, *args: Any, hold: bool = False) -> None:
        with self._lock:
            self._held.append((method, args))
            if not (hold and self._can_hold):
                self._store()

    async def settle(self) -> None:
        with self._lock:
            self._store()

    async def close(self) -> None:
        await self.settle()

    def _store(self) -> None:
        items, self._held = self._held, []
        if items:
            _store_items(self._saver, items, together=self._can_hold)


class ThreadWriter:
    """Stores beside the run, in order.

    A thread of its own is worth it for a saver that is slow. Others are called directly: the thread that adds an item
    stores it, and all that other threads add in the meantime, in one transaction where the saver can. The items of
    those are left to it.

    Where several puts in one call cost less (`prefers_batches` of the saver), a checkpoint waits for up to
    SHARED_PUTS - 1 others. The run stores them with the last of these. What has waited for LINGER_SECONDS is stored by
    another thread (`_Watch`): then the run is busy with something longer.
    """

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._items: deque[Item] = deque()
        # A plain lock where nobody waits: taking it through a condition costs several times as much.
        self._lock = threading.Lock()
        # Two conditions: those who wait for room must not wake each other, only the thread wakes them.
        self._arrived = threading.Condition(self._lock)
        self._stored = threading.Condition(self._lock)
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        # Whether a thread that added an item, or one that was started for what waits too long, is storing.
        self._is_storing = False
        # How long the last puts took that were made directly.
        self._took: deque[float] = deque(maxlen=TRIED_PUTS)
        self._is_slow = False
        # How many wait for an empty queue.
        self._settling = 0
        self._can_hold = takes_batches(saver)
        self._shares = self._can_hold and bool(getattr(saver, "prefers_batches", False))
        # How many checkpoints wait to share a commit, whether somebody watches them, and which item was seen in front.
        self._sharing = 0
        self._is_watched = False
        self._seen: Item | None = None
        self._closed = False

    async def add(self, method: str, *args: Any, hold: bool = False) -> None:
        is_held = hold and self._can_hold
        with self._lock:
            if (self._is_storing or self._thread is not None or self._is_slow) and _is_full(self._items, method):
                self._start()  # it also wakes a thread that lingers
                while _is_full(self._items, method) and self._failure is None and self._has_work():
                    self._stored.wait()
            if self._failure is not None:
                raise self._failure
            self._items.append((method, args))
            if is_held or self._is_storing:
                return
            if self._thread is not None or self._is_slow:
                self._start()
                return
            if self._shares and not self._closed and self._waits_for_others(method):
                return
        self._store_waiting()

    def _waits_for_others(self, method: str) -> bool:
        """Whether a new item is left in the queue, under somebody's watch."""
        if method == "put":
            self._sharing += 1
        if self._sharing >= SHARED_PUTS or len(self._items) >= WRITES_LIMIT:
            return False
        if not self._is_watched:
            self._is_watched, self._seen = True, None
            _watch.add(self)
        return True

    def look(self) -> bool:
        """Have what waited since the last look stored; whether something is left to be looked after."""
        with self._lock:
            front = self._items[0] if self._items and not self._is_storing else None
            is_overdue = front is not None and front is self._seen
            self._seen = front
            if not self._items or self._is_slow or self._failure is not None:
                self._is_watched = False
                if self._items and self._failure is None:
                    self._start()  # the saver turned out to be slow
                return False
            if not is_overdue:
                return True
            self._is_storing = True
            items = list(self._items)
        try:
            threading.Thread(target=self._store_overdue, args=(items,), name="threadline-writer", daemon=True).start()
        except RuntimeError:  # there are too many threads at this moment
            self._is_storing = False
        return True

    def _store_overdue(self, items: list[Item]) -> None:
        with suppress(BaseException):  # it is noted, and raised by the next call
            self._store_here(items)

    def _store_waiting(self) -> None:
        """Store what is in the queue, unless another thread began to: who stores looks for more before it ends."""
        is_mine = False
        try:
            with self._lock:
                if self._is_storing or not self._items or self._failure is not None:
                    return
                is_mine = self._is_storing = True
                items = list(self._items)
            self._store_here(items)
        except BaseException:
            # An interrupt may come before anything was stored: then others must find that nobody does.
            if is_mine and self._failure is None:
                self._is_storing = False
            raise

    def _has_work(self) -> bool:
        """Whether somebody stores, or is to: then a full queue has to be waited for."""
        return self._is_storing or not self._is_direct()

    def _is_direct(self) -> bool:
        """Whether puts are made here: until a few of them turn out to be slow."""
        return self._thread is None and not self._is_slow

    def _store_here(self, items: list[Item]) -> None:
        """Store items on the calling thread, and what others add meanwhile; note how long that took."""
        while items:
            begun = time.perf_counter()
            try:
                _store_items(self._saver, items, together=self._can_hold)
            except BaseException as error:
                self._failure = error
                with self._lock:
                    self._take_out(items)
                    self._is_storing = False
                raise
            took = time.perf_counter() - begun
            self._took.append(took)
            # The middle one counts: a busy machine makes any put look slow now and then.
            if took > SLOW_SECONDS and len(self._took) == TRIED_PUTS:
                self._is_slow = sorted(self._took)[TRIED_PUTS // 2] > SLOW_SECONDS
            with self._lock:
                self._take_out(items)
                items = list(self._items) if self._failure is None else []
                self._is_storing = bool(items)

    def _take_out(self, items: Sequence[Item]) -> None:
        """Items leave the queue when they are durable: `settle` waits for an empty queue."""
        for _ in items:
            self._items.popleft()
        if self._failure is not None:
            self._items.clear()
        self._sharing = 0
        self._stored.notify_all()

    async def settle(self) -> None:
        with self._lock:
            stores_here = bool(self._items) and not self._is_storing and self._is_direct()
            if self._items and not stores_here:
                self._start()
        if stores_here:
            self._store_waiting()
        with self._lock:
            self._settling += 1
            self._arrived.notify()
            while self._items and self._failure is None:
                self._stored.wait()
            self._settling -= 1
            self._raise()

    async def close(self) -> None:
        try:
            await self.settle()
        finally:
            with self._lock:
                self._closed = True
                self._arrived.notify_all()

    def _start(self) -> None:
        """Have the thread look at the items, unless somebody stores them already."""
        if self._is_storing:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="threadline-writer", daemon=True)
            self._thread.start()
        else:
            self._arrived.notify_all()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _linger(self) -> None:
        """Wait a moment for what shares the commit, unless somebody waits for the commit."""
        if not self._can_hold:
            return
        deadline = time.monotonic() + LINGER_SECONDS
        while not (self._closed or self._settling or _is_full(self._items, "put") or len(self._items) >= WRITES_LIMIT):
            left = deadline - time.monotonic()
            if left <= 0 or not self._arrived.wait(left):
                return

    def _work(self) -> None:
        while self._failure is None:
            with self._lock:
                while not self._items and not self._closed:
                    self._arrived.wait()
                if not self._items:
                    self._thread = None  # whoever adds something after the end starts another one
                    return
                self._linger()
                items = list(self._items)
            try:
                _store_items(self._saver, items, together=self._can_hold)
            except BaseException as error:
                self._failure = error
            with self._lock:
                self._take_out(items)


class _Watch:
    """Looks after the items that wait to share a commit, for all runs of the process, on one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._added = threading.Condition(self._lock)
        self._writers: set[ThreadWriter] = set()
        self._is_running = False

    def add(self, writer: ThreadWriter) -> None:
        """Look at a writer until it says that nothing is left."""
        with self._lock:
            self._writers.add(writer)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="threadline-watch", daemon=True).start()
            elif len(self._writers) == 1:
                self._added.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._writers:
                    self._added.wait()
            time.sleep(LINGER_SECONDS)
            with self._lock:
                writers = list(self._writers)
            # A writer that adds itself again while it is looked at stays.
            for writer in writers:
                with self._lock:
                    self._writers.discard(writer)
                if writer.look():
                    with self._lock:
                        self._writers.add(writer)
            del writers
            writer = None  # type: ignore[assignment]


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.__init__)  # type: ignore[misc]


class LoopWriter:
    """Stores through the saver's async half. A cancelled run still waits for what it added."""

    def __init__(self, saver: Any, *, background: bool) -> None:
        self._saver = saver
        self._background = background
        self._can_hold = takes_batches(saver)
        self._items: deque[Item] = deque()
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def add(self, method: str, *args: Any, hold: bool = False) -> None:
        try:
            await self._until(lambda: not _is_full(self._items, method))
        finally:
            # Also when the wait for room is cancelled: the task has finished, so `close` must find what it wrote.
            if self._failure is None:
                self._items.append((method, args))
        self._raise()
        if hold and self._can_hold:
            return
        self._start()
        if not self._background:
            await self.settle()

    async def settle(self) -> None:
        await self._until(lambda: not self._items)
        self._raise()

    async def close(self) -> None:
        await self.settle()

    def _start(self) -> None:
        import asyncio

        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _until(self, reached: Callable[[], bool]) -> None:
        import asyncio

        while not reached() and self._failure is None:
            self._start()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def _work(self) -> None:
        while self._items:
            items = list(self._items)
            try:
                await _store_items_async(self._saver, items, together=self._can_hold)
            except BaseException as error:
                self._failure = error
                self._items.clear()
            else:
                for _ in items:
                    self._items.popleft()
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
