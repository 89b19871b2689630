"""The garbage collector waits while many objects are made at once.

Reading a long chat makes ten thousand objects, none of which can be garbage before the reader has them.
Python's collector would walk them, and now and then every object of the process, several times meanwhile:
measured, more than the reading itself. So it is told to come less often, for a short piece of work without a
wait in it. It stays enabled: other threads, and programs that ask whether it is, notice nothing.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

__all__ = ["quietly"]

P = ParamSpec("P")
R = TypeVar("R")

# After how many new objects the collector comes all the same.
_MANY_OBJECTS = 200_000
_lock = Lock()
# How many threads are at such work, and what the collector went by before the first of them.
_at_work = 0
_usual: tuple[int, int, int] = (0, 0, 0)


def quietly(work: Callable[P, R]) -> Callable[P, R]:
    """The same function, during which the collector waits."""

    @wraps(work)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            _begin()
            return work(*args, **kwargs)
        finally:
            _end()

    return quiet


def _begin() -> None:
    global _at_work, _usual
    with _lock:
        if not _at_work:
            _usual = gc.get_threshold()
            if 0 < _usual[0] < _MANY_OBJECTS:
                gc.set_threshold(_MANY_OBJECTS, *_usual[1:])
        _at_work += 1


def _end() -> None:
    global _at_work
    with _lock:
        _at_work = max(_at_work - 1, 0)  # an interrupt may have come before it was counted
        if not _at_work and gc.get_threshold()[0] == _MANY_OBJECTS:
            gc.set_threshold(*_usual)


def _start_over() -> None:
    """In a forked child nobody is at work."""
    global _lock, _at_work
    _lock = Lock()
    if _at_work:
        _at_work = 0
        gc.set_threshold(*_usual)


os.register_at_fork(after_in_child=_start_over)
