"""The garbage collector waits while many objects are made at once.

Reading a long chat makes ten thousand objects, none of which can be garbage before the reader has them.
Python's collector would walk them, and now and then every object of the process, several times meanwhile:
measured, more than the reading itself. So it is told to come less often, for a short piece of work without a
wait in it. It stays enabled: other threads, and programs that ask whether it is, notice nothing.

There is no lock: a signal handler may read a store while the thread that it interrupted is about to. Whoever
leaves last sets what was usual, and whoever is interrupted on the way leaves all the same.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["quietly"]

P = ParamSpec("P")
R = TypeVar("R")

# After how many new objects the collector comes all the same. No other program would choose just this.
_MANY_OBJECTS = 200_003
# Whoever is at such work, as an object each: left twice is left once.
_at_work: set[object] = set()
# What the collector went by before the first of them.
_usual: tuple[int, int, int] = gc.get_threshold()


def quietly(work: Callable[P, R]) -> Callable[P, R]:
    """The same function, during which the collector waits."""

    @wraps(work)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        here = object()
        try:
            _begin(here)
            return work(*args, **kwargs)
        finally:
            try:
                _end(here)
            except BaseException:  # an interrupt may come here too
                _end(here)
                raise

    return quiet


def _begin(here: object) -> None:
    global _usual
    _at_work.add(here)
    found = gc.get_threshold()
    if 0 < found[0] < _MANY_OBJECTS:
        _usual = found
        gc.set_threshold(_MANY_OBJECTS, *found[1:])


def _end(here: object) -> None:
    _at_work.discard(here)
    if not _at_work and gc.get_threshold()[0] == _MANY_OBJECTS:
        gc.set_threshold(*_usual)


def _start_over() -> None:
    """In a forked child nobody else is at work."""
    _at_work.clear()
    _end(None)


os.register_at_fork(after_in_child=_start_over)
