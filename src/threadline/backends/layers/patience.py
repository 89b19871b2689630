"""How long a call waits for a server's answer: as long as `timeout` says, unless it takes as long as there are rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...ports.marks import Mark
from .layer import Call, Layer

__all__ = ["UnhurriedLayer", "is_unhurried", "patience_of", "unhurried"]

# Whether the call under way may take as long as there are rows: it deletes, counts or compacts.
is_unhurried: ContextVar[bool] = ContextVar("is_unhurried", default=False)
# The server reports by itself that a lock was not granted within `timeout`. The client waits a little longer than
# that before it closes the connection, so that the caller gets the server's own error.
_GRACE_SECONDS = 1.0


def patience_of(timeout: float) -> float | None:
    """For how many seconds a statement waits for its answer; None for as long as it takes."""
    return timeout + _GRACE_SECONDS if timeout else None


@contextmanager
def unhurried() -> Iterator[None]:
    """Inside, a call takes as long as there are rows."""
    token = is_unhurried.set(True)
    try:
        yield
    finally:
        is_unhurried.reset(token)


class UnhurriedLayer(Layer):
    """Gives calls that are marked as long the time they take; they too wait for a lock no longer than `timeout`."""

    def wrapped(self, name: str, mark: Mark, call: Call) -> Call:
        if not mark.is_long:
            return call

        async def long(*args: Any, **options: Any) -> Any:
            with unhurried():
                return await call(*args, **options)

        return long
