"""Where sync meets async: one coroutine, two ways to run it.

Every operation is written once as `async def` and awaits only ports. A blocking port never suspends, so
one `send(None)` carries the coroutine to its end: the sync half needs no event loop and no thread.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_now"]

T = TypeVar("T")


def run_now(operation: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose ports all block; raises RuntimeError if one of them suspends."""
    try:
        operation.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    operation.close()
    raise RuntimeError("a blocking port suspended: this operation was given an async port")
