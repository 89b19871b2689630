"""So many calls of a client at once, each with connections of its own, none of them lost to an interrupt.

The driver's pools count a connection as lent for ever when an exception of a signal handler meets them between two
lines, and take back one whose answer was never read: the next command would take that answer for its own. Here a turn
holds the connections that its thread took. They rest in their pools again when the turn has ended well, and are closed
when it has not. What an interrupt loses between two lines is held by nobody, and ends with its memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import redis

from ...errors import Unavailable
from ..places import Places

__all__ = ["TurnPool", "Turns", "is_answer"]

T = TypeVar("T")
# The turn that a thread is in the middle of.
_here = threading.local()


def is_answer(error: BaseException) -> bool:
    """Whether a server said this, as the whole of its answer: the connection is in the middle of nothing."""
    return isinstance(error, redis.ResponseError)


class Turns:
    """Turns for a number of threads; who waits for longer is told that all connections are in use."""

    def __init__(self, count: int, seconds: float | None) -> None:
        self._count = count
        self._seconds = seconds
        self._places = Places(count)

    def run(self, work: Callable[[], T]) -> T:
        """The result of work, for which a turn is waited for."""
        turn = _Turn()
        try:
            if not self._places.take(turn, self._seconds):
                raise Unavailable(
                    f"all {self._count} connections were in use for {self._seconds:g} s: raise pool_size, or timeout"
                )
            _here.turn = turn
            result = work()
            turn.is_well = True
            return result
        except BaseException as error:
            turn.is_well = is_answer(error)
            raise
        finally:
            try:
                self._end(turn)
            except BaseException:  # an interrupt may come here too
                turn.is_well = False
                self._end(turn)
                raise

    def _end(self, turn: _Turn) -> None:
        _here.turn = None
        turn.end()
        self._places.leave(turn)


class _Turn:
    """What one call of a client holds."""

    __slots__ = ("_held", "_returned", "is_well")

    def __init__(self) -> None:
        self.is_well = False
        self._held: list[tuple[TurnPool, Any]] = []
        # What the driver gave back; within the turn it may ask for it again.
        self._returned: list[tuple[TurnPool, Any]] = []

    def hold(self, pool: TurnPool, connection: Any) -> None:
        self._held.append((pool, connection))

    def give_back(self, pool: TurnPool, connection: Any) -> None:
        self._returned.append((pool, connection))

    def again(self, pool: TurnPool) -> Any:
        """A connection to the same server that this turn has had before, or None."""
        for position, (owner, connection) in enumerate(self._returned):
            if owner is pool:
                del self._returned[position]
                return connection
        return None

    def end(self) -> None:
        """Let go of what is held; interrupted, the rest is closed."""
        while self._held:
            pool, connection = self._held.pop()
            if self.is_well and any(connection is one for _, one in self._returned):
                pool.keep(connection)
            else:
                connection.disconnect()


class TurnPool(redis.ConnectionPool):
    """Connections to one server; how many there are is decided by the turns."""

    def get_connection(self, *_: Any, **__: Any) -> Any:
        turn = getattr(_here, "turn", None)
        connection = turn.again(self) if turn is not None else None
        if connection is None:
            connection = self._resting() or self.connection_class(**self.connection_kwargs)
            if turn is not None:
                turn.hold(self, connection)
        connection.connect()
        # Something unasked waits there, or the server has gone.
        if _can_read(connection):
            connection.disconnect()
            connection.connect()
        return connection

    def release(self, connection: Any) -> None:
        turn = getattr(_here, "turn", None)
        if turn is not None:
            turn.give_back(self, connection)
        else:
            self.keep(connection)

    def keep(self, connection: Any) -> None:
        """A connection rests until it is asked for again."""
        if connection.should_reconnect():
            connection.disconnect()
        self._available_connections.append(connection)

    def _resting(self) -> Any:
        try:
            return self._available_connections.pop()
        except IndexError:
            return None


def _can_read(connection: Any) -> bool:
    try:
        return bool(connection.can_read())
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        return True
