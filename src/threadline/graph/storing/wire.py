"""Stored Send, Interrupt, Command and the like: LangGraph's names on the wire, this room's classes in the process.

A thread begun on one engine goes on, on the other, so both must store these values under the same names. Who reads
decides the class: a saver of `threadline.connect`, and any that a graph of this room uses, gives the room's;
`threadline.langgraph` gives LangGraph's. The process may use both.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from .._base import Corrupt, Registration, Saver, Shape, registry, shape_of
from ..types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot, TimeoutPolicy

__all__ = ["ROOM", "adopted"]


def adopted(saver: Any) -> Any:
    """The saver as a graph of this room reads it: a clone that shares everything but the classes it gives.

    Savers of `threadline.connect` give the room's classes already; those of other libraries are returned as they are.
    """
    if not isinstance(saver, Saver) or "langgraph.Send" in saver._tools.codec.rules.preferred():
        return saver
    clone = _clones.get(saver)
    if clone is None:
        clone = _clones[saver] = _clone(saver)
    return clone


_clones: WeakKeyDictionary[Saver, Saver] = WeakKeyDictionary()


def _clone(saver: Saver) -> Saver:
    clone = saver.with_allowlist([])
    clone._tools.codec.rules.preferred = lambda: ROOM
    return clone


def _send_state(send: Send) -> list[Any]:
    return [send.node, send.arg] if send.timeout is None else [send.node, send.arg, send.timeout]


def _send(state: Any) -> Send:
    if type(state) is not list or not 2 <= len(state) <= 3 or type(state[0]) is not str:
        raise Corrupt("a stored Send has other fields than are written")
    timeout = state[2] if len(state) == 3 else None
    if timeout is not None and not isinstance(timeout, (int, float, TimeoutPolicy)):
        raise Corrupt("a stored Send has a timeout that is none")
    return Send(state[0], state[1], timeout=timeout)


def _shape(cls: type) -> Shape:
    if cls is Send:
        return Shape(_send_state, _send)
    shape = shape_of(cls)
    assert shape is not None, f"{cls.__name__} is a data class"
    return shape


def _registrations() -> dict[str, Registration]:
    found = {}
    for cls in (Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot, TimeoutPolicy):
        name = "langgraph.Send" if cls is Send else f"langgraph.types:{cls.__name__}"
        registration = Registration(cls, name, _shape(cls))
        # Only the way out: by name, other readers of the process find LangGraph's classes.
        registry.by_class[cls] = registration
        found[name] = found[f"langgraph.types:{cls.__name__}"] = registration
    registry.generation += 1
    return found


ROOM = _registrations()
