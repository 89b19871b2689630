"""Connections for the threads of this process, lent one at a time, none of them lost to an interrupt.

A signal handler may raise between any two lines: Ctrl-C in a notebook, the time limit of a worker. What a thread holds
is therefore noted in one object before it is used, and given back by a function without loops that may run twice (see
places.py and gather.py). A connection whose work was interrupted is closed: nobody knows what it is in the middle of.

A pool has no thread of its own. Whoever finds no idle connection opens one, so that what is wrong with the server is
raised where somebody asked for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ..errors import Closed, ThreadlineError, Unavailable
from .places import Places

__all__ = ["Driver", "Pool", "is_of_work"]

T = TypeVar("T")
# What rests longer is closed when another connection comes back; what is older is replaced, as load balancers like it.
_MOST_IDLE_SECONDS = 600.0
_MOST_AGE_SECONDS = 3600.0


class Driver(Protocol):
    """What a pool has to know of its connections."""

    def connect(self) -> Any:
        """A new connection."""

    def is_good(self, connection: Any, idle_seconds: float) -> bool:
        """Whether an idle connection can be lent; asking it may take a while."""

    def is_reusable(self, connection: Any, error: BaseException | None) -> bool:
        """Whether a connection can be lent again after work on it ended, with an error or without; leaves it idle."""

    def close(self, connection: Any) -> None:
        """Close it at once, whatever it is doing, without waiting for anybody. Twice is once."""

    def part(self, connection: Any) -> None:
        """Close one that is idle and good, and tell the server."""


class Pool:
    """At most `size` connections; who waits for one for longer than `timeout` is told `exhausted`."""

    def __init__(self, driver: Driver, size: int, timeout: float, exhausted: Callable[[], Unavailable]) -> None:
        self._driver = driver
        self._size = size
        self._timeout = timeout
        self._exhausted = exhausted
        self._is_closed = False
        self._places = Places(size)
        # Those that rest, the last used at the end. Guarded by the door of the places.
        self._idle: list[_Resting] = []

    async def lend(self, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a connection, alone on it."""
        hold = _Hold()
        try:
            self._take(hold)
            result = await act(hold.connection)
            hold.is_kept = self._driver.is_reusable(hold.connection, None)
            return result
        except BaseException as error:
            hold.is_kept = hold.connection is not None and self._driver.is_reusable(hold.connection, error)
            raise
        finally:
            try:
                self._give_back(hold)
            except BaseException:  # an interrupt may come here too
                self._give_back(hold)
                raise

    def close(self) -> None:
        """Close what rests; what is lent is closed when it comes back."""
        self._is_closed = True
        self._places.close()
        self._drop(math.inf, self._driver.part)

    def drop_idle(self) -> None:
        """Close what rests: one connection was lost, and these most likely went the same way."""
        self._drop(math.inf, self._driver.close)

    def _take(self, hold: _Hold) -> None:
        if self._is_closed or not self._places.take(hold, self._timeout):
            if self._is_closed:
                raise Closed("this saver was closed; open a new one with threadline.connect()")
            raise self._exhausted()
        while self._take_idle(hold):
            if time.monotonic() - hold.born < _MOST_AGE_SECONDS and self._driver.is_good(hold.connection, hold.idle):
                return
            self._driver.close(hold.connection)
        hold.connection = self._driver.connect()
        hold.born = time.monotonic()

    def _take_idle(self, hold: _Hold) -> bool:
        """Whether there was an idle connection; a thread holds it from here on."""
        with self._places.door:
            hold.connection = None
            if self._idle:
                # Never at two places: one that an interrupt meets on its way is nobody's, and ends with its memory.
                hold.connection, hold.born, since = self._idle.pop()
                hold.idle = time.monotonic() - since
        return hold.connection is not None

    def _give_back(self, hold: _Hold) -> None:
        def keep() -> None:
            if hold.is_kept and not self._is_closed:
                hold.is_back = True  # before it is: from then on it may be another thread's
                self._idle.append((hold.connection, hold.born, time.monotonic()))

        self._places.leave(hold, keep)
        if hold.connection is not None and not hold.is_back:
            self._driver.close(hold.connection)
        elif self._idle and time.monotonic() - self._idle[0][2] > _MOST_IDLE_SECONDS:
            self._drop(time.monotonic() - _MOST_IDLE_SECONDS, self._driver.close)

    def _drop(self, before: float, close: Callable[[Any], None]) -> None:
        """Close those that rest since before then."""
        with self._places.door:
            ended = [resting for resting in self._idle if resting[2] <= before]
            self._idle = [resting for resting in self._idle if resting[2] > before]
        for connection, _, _ in ended:
            close(connection)


# A connection, when it was opened, and since when it rests.
_Resting = tuple[Any, float, float]


class _Hold:
    """What one thread holds of a pool: a place, under its own name, and a connection."""

    __slots__ = ("born", "connection", "idle", "is_back", "is_kept")

    def __init__(self) -> None:
        self.connection: Any = None
        self.born = self.idle = 0.0
        self.is_kept = False
        self.is_back = False


def is_of_work(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether work itself raised this: an error of ours or of these kinds. Others may be an interrupt's, anywhere."""
    return isinstance(error, (ThreadlineError, *kinds)) or (
        isinstance(error, Exception) and type(error).__module__.startswith("threadline.")
    )
