"""What layers have in common: an object with all ports, whose methods are derived from the marks of the ports."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ...ports.checkpoints import Backend
from ...ports.marks import Mark, marks_of

__all__ = ["Call", "Layer", "Layering", "MARKS"]

Call = Callable[..., Coroutine[Any, Any, Any]]
MARKS = marks_of(Backend)
# Makes a layer over a backend, for the sync half (False) or for an event loop (True).
Layering = Callable[[Any, bool], Any]


class Layer:
    """A backend seen through one behaviour: each method of the ports is bound once, as `wrapped` says.

    What passes through unchanged is the method of the inner backend itself, so it costs nothing.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        # The cold tier below, where there is one (ports/objects.py).
        self.tier: Any = getattr(inner, "tier", None)
        for name, mark in MARKS.items():
            if name not in vars(type(self)):
                setattr(self, name, self.wrapped(name, mark, getattr(inner, name)))

    def wrapped(self, name: str, mark: Mark, call: Call) -> Call:
        """The method of this layer that stands for one of the inner backend."""
        return call
