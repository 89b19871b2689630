"""A backend whose every call goes through its engine: what an operation over two stores is given for each of them.

An operation on one store runs inside its engine, on one connection. One that reads a store and writes another must not
hold the connection of either while it waits for the other, and may take hours. So each call of a port is an operation
of its own: no connection and no transaction stays open between two calls.
"""

from __future__ import annotations

from typing import Any

from ...ports.checkpoints import Backend
from ...ports.engine import Engine
from ...ports.marks import marks_of
from ..context import Context, Tools, bound
from ..operations import opened

__all__ = ["Through", "through"]

_METHODS = marks_of(Backend)


class Through:
    """All ports of a store, by its engine; a blocking port or a loop port, as `is_async` says."""

    def __init__(self, engine: Engine, *, is_async: bool) -> None:
        for name in _METHODS:
            setattr(self, name, _awaiting(engine, name) if is_async else _blocking(engine, name))


async def through(engine: Engine, tools: Tools, *, is_async: bool) -> Context:
    """The context of a store, which is opened first, for an operation over several stores."""
    opening = bound(tools, opened)
    await engine.arun(opening) if is_async else engine.run(opening)
    backend: Any = Through(engine, is_async=is_async)
    return Context(backend, tools)


def _blocking(engine: Engine, name: str) -> Any:
    async def call(*args: Any, **options: Any) -> Any:
        return engine.run(lambda backend: getattr(backend, name)(*args, **options))

    return call


def _awaiting(engine: Engine, name: str) -> Any:
    async def call(*args: Any, **options: Any) -> Any:
        return await engine.arun(lambda backend: getattr(backend, name)(*args, **options))

    return call
