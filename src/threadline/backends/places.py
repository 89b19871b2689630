"""So many threads at once, and no more: connections of a pool, calls of a client.

Not a semaphore of Python's: an interrupt inside one of those loses a place for good. Here a place is taken under the
name of whoever takes it, as an object, so that leaving is safe whether it was taken or not, and twice is once. The
lock is a plain one, and there are no loops under it, so that no interrupt leaves it taken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Places"]

T = TypeVar("T")


class Places:
    """Places for a number of threads."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.door = threading.Lock()  # guards what belongs to the places, too
        self._change = threading.Condition(self.door)
        self._inside: set[object] = set()
        self._is_closed = False

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

    def take(self, place: object, seconds: float | None = None) -> bool:
        """Wait for a place; False when the time is over, or nobody is let in any more. Whatever happens, `leave`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        answer = None
        while answer is None:
            answer = self._look(place, deadline)
        return answer

    def leave(self, place: object, leaving: Callable[[], None] = lambda: None) -> bool:
        """Give a place back; whether it was taken. If so, `leaving` is done before the next one gets in."""
        with self.door:
            was_taken = place in self._inside
            self._inside.discard(place)
            if was_taken:
                leaving()
            # Also by one who never got in: it may have been told of a free place, and then interrupted.
            self._change.notify()
            return was_taken

    def close(self) -> None:
        """Let nobody in any more."""
        with self.door:
            self._is_closed = True
            self._change.notify_all()

    def _look(self, place: object, deadline: float | None) -> bool | None:
        with self.door:
            if self._is_closed:
                return False
            if len(self._inside) < self._count:
                self._inside.add(place)
                return True
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            # A place that came free at the last moment is looked at once more.
            return None if self._change.wait(left) or len(self._inside) < self._count else False
