"""Every method of a port is marked as reading or writing, and with what it is about; layers are derived from the marks.

A method without a mark is a defect that tests/test_house.py finds, and a mark without a scope raises where the port is
defined. So a new writing method can never slip through a read-only layer, nor one that names threads through a view of
some of them, and no layer keeps a list of names by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeVar

__all__ = ["Mark", "Scope", "marks_of", "reads", "writes"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE = "__port_mark__"


class Scope(Enum):
    """What a method is about, as its first argument says; it decides what a view of some threads does with a call."""

    # The first argument names the threads: an id, ids, a thread's row, pairs of rows, changes.
    THREAD = "thread"
    THREADS = "threads"
    ROW = "row"
    ROWS = "rows"
    CHANGES = "changes"
    # The call lists or counts threads or checkpoints of many: a view narrows it by a method of its own.
    LISTING = "listing"
    # The first argument is a pool, or several: whoever has their numbers has read the row of a thread in each.
    POOL = "pool"
    # The first argument is the space of records, or changes of records that name theirs.
    RECORDS = "records"
    # The whole store: a view refuses the call.
    STORE = "store"
    # The whole store, but a view needs it too, and it neither shows nor changes anything of a thread.
    ANYONE = "anyone"


class Mark(NamedTuple):
    """The properties of a port method from which layers are derived."""

    is_writing: bool
    scope: Scope
    # The call takes as long as there are rows; a time-out for ordinary calls does not apply to it.
    is_long: bool = False


def reads(scope: Scope, *, is_long: bool = False) -> Callable[[F], F]:
    """Mark a method that changes nothing."""
    return _marked(Mark(False, scope, is_long))


def writes(scope: Scope, *, is_long: bool = False) -> Callable[[F], F]:
    """Mark a method that may change what is stored."""
    return _marked(Mark(True, scope, is_long))


def marks_of(*ports: type) -> dict[str, Mark]:
    """The marks of all methods of these ports, by name."""
    return {
        name: getattr(method, _ATTRIBUTE)
        for port in ports
        for one in reversed(port.__mro__)
        for name, method in vars(one).items()
        if hasattr(method, _ATTRIBUTE)
    }


def _marked(mark: Mark) -> Callable[[F], F]:
    def decorate(method: F) -> F:
        setattr(method, _ATTRIBUTE, mark)
        return method

    return decorate
