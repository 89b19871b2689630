"""Connections for threads and tasks, lent to one of them at a time; no interrupt and no cancellation loses one.

A signal handler may raise between any two lines: Ctrl-C in a notebook, the time limit of a worker. So a thread notes
what it holds in one object before it uses it, and gives it back by a function without loops that may run twice. A
connection whose work was interrupted is closed, because it may be in the middle of an answer.

A pool has no thread of its own. A thread or task that finds no idle connection opens one, so that an error of the
server is raised to a caller. `Pool` is the same for both halves: `Places` counts threads, `LoopPlaces` tasks.
"""

from __future__ import annotations

import _thread
import math
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..base.drive import run_now, settled
from ..errors import Closed, ThreadlineError, Unavailable

if TYPE_CHECKING:
    import asyncio

__all__ = ["Driver", "Given", "LoopPlaces", "Places", "Pool", "PoolFigures", "Undisturbed", "is_of_work"]

T = TypeVar("T")
Act = Callable[[Any], Coroutine[Any, Any, T]]

# A connection that is idle for longer is closed when another one comes back; one that is older is replaced, so that
# load balancers can move it.
_MOST_IDLE_SECONDS = 600.0
_MOST_AGE_SECONDS = 3600.0


class Driver(Protocol):
    """What a pool has to know of its connections, which are whatever `connect` returns: drivers of servers give wires.

    Drivers of the sync half never suspend. What both halves can say at once is no coroutine: it is asked at every turn.
    """

    async def connect(self) -> Any:
        """A new connection."""

    def is_good(self, connection: Any, idle_seconds: float) -> bool | Awaitable[bool]:
        """Whether an idle connection can be lent; asking it may take a while."""

    def is_reusable(self, connection: Any, error: BaseException | None) -> bool | Awaitable[bool]:
        """Whether a connection can be lent again after work on it ended, with an error or without; leaves it idle."""

    def close(self, connection: Any) -> None:
        """Close it at once, whatever it is doing, without waiting for anybody. Idempotent."""

    async def part(self, connection: Any) -> None:
        """Close one that is idle and good, and tell the server."""


class PoolFigures(NamedTuple):
    """The connections of a pool at one moment, and how many callers wait for one."""

    idle: int
    used: int
    most: int
    waiting: int


class Pool:
    """At most `size` connections; a caller that waits for one for longer than `timeout` gets `exhausted`.

    Without a timeout it waits as long as it takes.
    """

    def __init__(
        self,
        driver: Driver,
        size: int,
        timeout: float | None,
        exhausted: Callable[[], Unavailable],
        *,
        is_of_loop: bool = False,
    ) -> None:
        self._driver = driver
        self._timeout = timeout
        self._exhausted = exhausted
        self._is_closed = False
        self._places: Places | LoopPlaces = LoopPlaces(size) if is_of_loop else Places(size)
        # Idle connections, the last used at the end. Not behind the door: each step on it is a single one in C.
        self._idle: list[_Line] = []

    async def lend(self, act: Act[T]) -> T:
        """The result of work on a connection, alone on it."""
        hold = _Hold()
        try:
            line = await self._take(hold)
            result = await act(line.connection)
            is_kept = self._driver.is_reusable(line.connection, None)
            hold.is_kept = is_kept if type(is_kept) is bool else await settled(is_kept)
            return result
        except BaseException as error:
            hold.is_kept = False
            hold.is_kept = hold.line is not None and await settled(
                self._driver.is_reusable(hold.line.connection, error)
            )
            raise
        finally:
            try:
                self._give_back(hold)
            except BaseException:  # an interrupt may come here too
                self._give_back(hold)
                raise

    def lend_now(self, act: Callable[[Any], T]) -> T:
        """`lend` of a pool of the sync half, for work that is no coroutine."""
        hold = _Hold()
        try:
            line = run_now(self._take(hold))
            result = act(line.connection)
            is_kept: Any = self._driver.is_reusable(line.connection, None)
            hold.is_kept = is_kept if type(is_kept) is bool else run_now(settled(is_kept))
            return result
        except BaseException as error:
            hold.is_kept = False
            if hold.line is not None:
                is_kept = self._driver.is_reusable(hold.line.connection, error)
                hold.is_kept = run_now(settled(is_kept))
            raise
        finally:
            try:
                self._give_back(hold)
            except BaseException:  # an interrupt may come here too
                self._give_back(hold)
                raise

    def figures(self) -> PoolFigures:
        """The pool at this moment; nothing is waited for, so the numbers may be of different moments."""
        places = self._places
        return PoolFigures(len(self._idle), places.taken, int(places.count), places.waiting)

    async def aclose(self) -> None:
        """Close the idle connections and tell the server; a lent one is closed when it comes back."""
        self._is_closed = True
        self._places.close()
        for line in self._removed(math.inf):
            await self._driver.part(line.connection)

    def shut(self) -> None:
        """Close the idle connections at once, without a word to the server."""
        self._is_closed = True
        self._places.close()
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close the idle connections, and go on with new ones."""
        self._drop(math.inf)

    async def _take(self, hold: _Hold) -> _Line:
        """A connection, which the caller holds as soon as it is there."""
        if not self._places.take_now(hold) and not await settled(self._places.take(hold, self._timeout)):
            raise Closed if self._is_closed else self._exhausted()
        while self._idle:
            try:
                # Never at two places: one that is lost to an interrupt here is closed with its memory.
                line = hold.line = self._idle.pop()
            except IndexError:  # another thread was quicker
                break
            now = time.monotonic()
            if now - line.born < _MOST_AGE_SECONDS:
                is_good = self._driver.is_good(line.connection, now - line.since)
                if is_good is True or (is_good is not False and await is_good):
                    return line
            self._driver.close(line.connection)
            hold.line = None
        line = hold.line = _Line(await self._driver.connect())
        return line

    def _give_back(self, hold: _Hold) -> None:
        line = hold.line
        if line is not None and hold.is_kept and not hold.is_back and not self._is_closed:
            hold.is_back = True  # before it is: from then on another caller may hold it
            line.since = time.monotonic()
            self._idle.append(line)  # before the next one gets in
        self._places.leave(hold)
        if line is not None and not hold.is_back:
            self._driver.close(line.connection)
        elif self._is_closed:  # at this moment, perhaps
            self._drop(math.inf)
        elif line is not None and self._idle and line.since - self._idle[0].since > _MOST_IDLE_SECONDS:
            self._drop(line.since - _MOST_IDLE_SECONDS)

    def _drop(self, before: float) -> None:
        """Close the connections that are idle since before then."""
        for line in self._removed(before):
            self._driver.close(line.connection)

    def _removed(self, before: float) -> list[_Line]:
        """Take the connections out that are idle since before then."""
        ended: list[_Line] = []
        with suppress(IndexError):  # none is left
            while self._idle[0].since <= before:
                ended.append(self._idle.pop(0))
        return ended


class _Line:
    """A connection, when it was opened, and since when it is idle."""

    __slots__ = ("born", "connection", "since")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.born = self.since = time.monotonic()


class _Hold:
    """One caller's slot and connection."""

    # Not set for each: most calls set what differs alone.
    line: _Line | None = None
    is_kept = is_back = False


class Given:
    """Connections that the caller of Threadline opened, or has a way to open; they stay open when a saver closes.

    `take` gives a connection, and `give_back` takes it again: a pool's methods. With `places` of one, a single
    connection is used in turns.
    """

    def __init__(
        self, places: Places | LoopPlaces, take: Callable[[], Any], give_back: Callable[[Any], Any] = lambda _: None
    ) -> None:
        self._places = places
        self._take = take
        self._give_back = give_back
        self._is_pool = places.count > 1
        self._undisturbed = Undisturbed()

    async def lend(self, act: Act[T]) -> T:
        """The result of work on a connection, alone on it."""
        if isinstance(self._places, Places) and self._is_pool:
            return self._undisturbed.run(lambda: run_now(self._lend(act)))
        return await self._lend(act)

    async def _lend(self, act: Act[T]) -> T:
        place, connection = object(), None
        try:
            await settled(self._places.take(place))
            connection = await settled(self._take())
            return await act(connection)
        finally:
            try:
                if connection is not None:
                    await settled(_shielded(self._give_back(connection)))
            finally:
                try:
                    self._places.leave(place)
                except BaseException:  # an interrupt may come here too
                    self._places.leave(place)
                    raise

    async def aclose(self) -> None:
        """The connections are the caller's."""

    def shut(self) -> None:
        """The connections are the caller's."""


def _shielded(outcome: Any) -> Any:
    """An awaitable that a cancellation does not stop half-way; what a blocking driver returned is left alone."""
    if not isinstance(outcome, Awaitable):
        return outcome
    import asyncio

    return asyncio.shield(outcome)


class Undisturbed:
    """Work on the connections of somebody else's pool, done where no signal handler raises.

    Handlers raise in the main thread only, and a driver's pool counts a connection as lent for ever when they do so
    between two of its lines. The main thread therefore lets another one do the work, and waits for it. Work that it no
    longer waits for goes on to its end, before anything else that the main thread asks for.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[_Asked | None] | None = None
        self._process = 0

    def __del__(self) -> None:
        if self._asked is not None and self._process == os.getpid():
            self._asked.put(None)

    def run(self, work: Callable[[], T]) -> T:
        """The result of work."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        if self._asked is None or self._process != os.getpid():  # a fork takes no thread along
            asked: SimpleQueue[_Asked | None] = SimpleQueue()
            _thread.start_new_thread(_serve, (asked,))
            self._asked, self._process = asked, os.getpid()
        # What the two threads share is written in C: an interrupt inside Python's own Condition, which executors and
        # futures are made of, may leave its lock taken for ever.
        one = _Asked(copy_context().run, work)
        self._asked.put(one)
        one.is_done.acquire()
        if one.error is not None:
            raise one.error
        return one.result  # type: ignore[no-any-return]


class _Asked:
    """A call to run on another thread, and its result or error."""

    __slots__ = ("call", "error", "is_done", "result", "work")

    def __init__(self, call: Callable[[Callable[[], Any]], Any], work: Callable[[], Any]) -> None:
        self.call, self.work = call, work
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = threading.Lock()
        self.is_done.acquire()


def _serve(asked: SimpleQueue[_Asked | None]) -> None:
    while (one := asked.get()) is not None:
        try:
            one.result = one.call(one.work)
        except BaseException as error:
            one.error = error
        one.is_done.release()
        del one  # or the last result would be held until there is more to do


def is_of_work(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether work itself raised this: an error of ours or of these kinds. Others may be an interrupt's, anywhere."""
    return isinstance(error, (ThreadlineError, *kinds)) or (
        isinstance(error, Exception) and type(error).__module__.startswith("threadline.")
    )


class Places:
    """Places for a number of threads: connections of a pool, calls of a client.

    A place is taken under the name of its taker, as an object, so that leaving is idempotent, and safe whether it was
    taken or not. The lock is a plain one, and there are no loops under it, so that no interrupt leaves it taken.
    """

    # Not Python's own Semaphore: an interrupt between its count and ours loses a place for good. With one,
    # test_interrupts_at_random_moments_lose_no_connection_and_disturb_nobody[mysql-signals] fails within 100 signals.

    def __init__(self, count: float) -> None:
        self.count = count
        self.door = threading.Lock()  # guards what belongs to the places, too
        self._change = threading.Condition(self.door)
        self._inside: set[object] = set()
        self._is_closed = False

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """How many threads wait for one. Python's own list of them: an interrupt would leave a count of ours wrong."""
        return len(self._change._waiters)  # type: ignore[attr-defined]

    def run(self, work: Callable[[], T]) -> T:
        """The result of work, for which a place is waited for."""
        place = object()
        try:
            self.take(place)
            return work()
        finally:
            try:
                self.leave(place)
            except BaseException:  # an interrupt may come here too
                self.leave(place)
                raise

    def take_now(self, place: object) -> bool:
        """Whether there was a place, without waiting for one."""
        with self.door:
            is_free = not self._is_closed and len(self._inside) < self.count
            if is_free:
                self._inside.add(place)
            return is_free

    def take(self, place: object, seconds: float | None = None) -> bool:
        """Wait for a place; False when the time is over or the places are closed. Call `leave` in any case."""
        deadline = None if seconds is None else time.monotonic() + seconds
        answer = None
        while answer is None:
            answer = self._look(place, deadline)
        return answer

    def leave(self, place: object) -> bool:
        """Give a place back; whether it was taken."""
        with self.door:
            was_taken = place in self._inside
            self._inside.discard(place)
            # Also after a `take` that failed: it may have been notified of a free place, and then interrupted.
            if self._change._waiters:  # type: ignore[attr-defined]
                self._change.notify()
            return was_taken

    def close(self) -> None:
        """Refuse every `take` from now on."""
        with self.door:
            self._is_closed = True
            self._change.notify_all()

    def _look(self, place: object, deadline: float | None) -> bool | None:
        with self.door:
            if self._is_closed:
                return False
            if len(self._inside) < self.count:
                self._inside.add(place)
                return True
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            # A place that came free at the last moment is looked at once more.
            return None if self._change.wait(left) or len(self._inside) < self.count else False


class LoopPlaces:
    """Places for a number of tasks of one event loop; `take` and `leave` promise what those of `Places` do.

    A place that comes free goes to the task that waits longest. A task that is cancelled at that moment has it, and
    gives it on by `leave`.
    """

    def __init__(self, count: float) -> None:
        self.count = count
        self._inside: set[object] = set()
        self._waiting: deque[tuple[asyncio.Future[bool], object]] = deque()
        self._is_closed = False

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return len(self._inside)

    @property
    def waiting(self) -> int:
        """How many tasks wait for one."""
        return sum(not turn.done() for turn, _ in list(self._waiting))

    def take_now(self, place: object) -> bool:
        is_free = not self._is_closed and len(self._inside) < self.count
        if is_free:
            self._inside.add(place)
        return is_free

    async def take(self, place: object, seconds: float | None = None) -> bool:
        if self._is_closed or self.take_now(place):
            return not self._is_closed
        import asyncio

        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((turn, place))
        end = loop.call_later(seconds, _answer, turn, False) if seconds is not None else None
        try:
            return await turn
        finally:
            if end is not None:
                end.cancel()

    def leave(self, place: object) -> bool:
        if place not in self._inside:
            return False
        self._inside.discard(place)
        while self._waiting and len(self._inside) < self.count:
            turn, next_place = self._waiting.popleft()
            if not turn.done():
                self._inside.add(next_place)
                turn.set_result(True)
        return True

    def close(self) -> None:
        self._is_closed = True
        for turn, _ in self._waiting:
            with suppress(RuntimeError):  # its loop was closed: no task waits any more
                _answer(turn, False)


def _answer(turn: asyncio.Future[bool], answer: bool) -> None:
    if not turn.done():
        turn.set_result(answer)
