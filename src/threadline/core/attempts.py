"""How often an operation tries again after another writer was quicker, and the error when it gives up.

Compare-and-swap loops and changes that a backend refuses as Stale all use this one limit:

    for _ in range(ATTEMPTS):
        …
    raise gave_up(f"fork of thread {thread_id!r}", "another writer changed it during each of them")
"""

from __future__ import annotations

from typing import TypeVar

from ..errors import ThreadlineError, Unavailable

__all__ = ["ATTEMPTS", "gave_up"]

ATTEMPTS = 32
E = TypeVar("E", bound=ThreadlineError)


def gave_up(what: str, why: str, kind: type[E] = Unavailable) -> E:  # type: ignore[assignment]
    """The error of an operation whose attempts all failed."""
    return kind(f"{what} failed after {ATTEMPTS} attempts: {why}; retry")
