"""Every method of a port is marked as reading or writing; layers are derived from the marks.

A method without a mark is a defect that tests/test_house.py finds. So a new writing method can never slip through a
read-only layer, and no layer keeps a list of names by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

__all__ = ["Mark", "marks_of", "reads", "writes"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE = "__port_mark__"


class Mark(NamedTuple):
    """The properties of a port method from which layers are derived."""

    is_writing: bool
    # The call takes as long as there are rows; a time-out for ordinary calls does not apply to it.
    is_long: bool = False
    # It is about the whole store, so a view of some threads refuses it.
    is_of_store: bool = False


def reads(*, is_long: bool = False, is_of_store: bool = False) -> Callable[[F], F]:
    """Mark a method that changes nothing."""
    return _marked(Mark(False, is_long, is_of_store))


def writes(*, is_long: bool = False, is_of_store: bool = False) -> Callable[[F], F]:
    """Mark a method that may change what is stored."""
    return _marked(Mark(True, is_long, is_of_store))


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
