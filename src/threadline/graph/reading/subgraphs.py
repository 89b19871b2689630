"""The graphs inside a graph's nodes: the node itself, steps of a sequence, and what a function reaches.

A function reaches a graph through its closure, through the globals that it names, and through attributes of these. This
is looked at only when somebody asks for state or drawings of graphs inside: never when a graph is compiled or run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..building.plan import Node

if TYPE_CHECKING:
    from ..compiled import Pregel

__all__ = ["find_subgraphs"]


def find_subgraphs(node: Node) -> tuple[Pregel, ...]:
    """The graphs that a node runs and that keep checkpoints."""
    if node.action is None:
        return ()
    found: dict[int, Pregel] = {}
    for graph in _graphs_in(node.action.source, set()):
        if graph.checkpointer is not False:
            found.setdefault(id(graph), graph)
    return tuple(found.values())


def _graphs_in(source: Any, seen: set[int]) -> Iterator[Pregel]:
    from ..compiled import Pregel

    if id(source) in seen:
        return
    seen.add(id(source))
    if isinstance(source, Pregel):
        yield source
    elif isinstance(source, functools.partial):
        yield from _graphs_in(source.func, seen)
    elif isinstance(source, Mapping):
        for one in source.values():
            yield from _graphs_in(one, seen)
    elif inspect.ismethod(source):
        yield from _graphs_in(source.__func__, seen)
    elif inspect.isfunction(source):
        for value in _reached(source):
            yield from _graphs_in(value, seen) if inspect.isfunction(value) or isinstance(value, Pregel) else ()
    else:
        yield from _steps(source, seen)


def _steps(source: Any, seen: set[int]) -> Iterator[Pregel]:
    """Graphs in the steps of a sequence, or behind an object's call."""
    steps = getattr(source, "steps", None)
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        for step in steps:
            yield from _graphs_in(step, seen)
    elif callable(source) and not isinstance(source, type):
        call = getattr(type(source), "__call__", None)  # noqa: B004 - the method itself is wanted
        if inspect.isfunction(call):
            yield from _graphs_in(call, seen)
        for function in (getattr(source, "func", None), getattr(source, "afunc", None)):
            if function is not None:
                yield from _graphs_in(function, seen)


def _reached(function: Any) -> Iterator[Any]:
    code = function.__code__
    names = set(_all_names(code))
    scope = inspect.getclosurevars(function) if function.__closure__ else None
    values = list(scope.nonlocals.values()) if scope is not None else []
    values += [function.__globals__[name] for name in names if name in function.__globals__]
    for value in values:
        yield value
        for name in names:
            if not inspect.ismodule(value) and not isinstance(value, type):
                try:
                    attribute = inspect.getattr_static(value, name)
                except AttributeError:
                    continue
                yield attribute
            elif inspect.ismodule(value) and hasattr(value, name):
                yield getattr(value, name)


def _all_names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _all_names(constant)
