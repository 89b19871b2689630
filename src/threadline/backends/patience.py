"""How long a call waits for a server's answer: as long as `timeout` says, unless it takes as long as there are rows."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["UnhurriedLayer", "is_unhurried", "patience_of"]

# Whether the call under way may take as long as there are rows: it deletes, counts or compacts.
is_unhurried: ContextVar[bool] = ContextVar("is_unhurried", default=False)
# The server says by itself when a lock was not granted within `timeout`; who closes the connection waits for that word.
_GRACE_SECONDS = 1.0
# Calls that take as long as there are rows.
_LONG = frozenset(
    [
        "collect",
        "compact",
        "count_threads",
        "forms",
        "leases",
        "pool_digests",
        "pool_links",
        "remove_checkpoints",
        "remove_thread",
        "root_sizes",
        "setup",
        "size_bytes",
        "space",
        "summary",
        "weights",
    ]
)


def patience_of(timeout: float) -> float | None:
    """For how many seconds a statement waits for its answer; None for as long as it takes."""
    return timeout + _GRACE_SECONDS if timeout else None


class UnhurriedLayer:
    """A backend whose long calls are given the time they take; they too wait for a lock no longer than `timeout`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _LONG:
            return method

        async def call(*args: Any, **options: Any) -> Any:
            token = is_unhurried.set(True)
            try:
                return await method(*args, **options)
            finally:
                is_unhurried.reset(token)

        return call
