"""How often an operation tries again after another writer was quicker, and the error when it gives up.

Compare-and-swap loops and changes that a backend refuses as Stale use this limit:

    for _ in range(ATTEMPTS):
        …
    raise gave_up(f"fork of thread {thread_id!r}", "another writer changed it during each of them")
"""

from __future__ import annotations

from typing import TypeVar

from ..errors import ThreadlineError, Unavailable

__all__ = ["ATTEMPTS", "ITEM_ATTEMPTS", "gave_up"]

ATTEMPTS = 32
# All threads of a program share the items of a store, so more writers meet at one item than at one thread. Of those
# that meet one succeeds at each attempt: the last of 64 needs all of them.
ITEM_ATTEMPTS = 64
E = TypeVar("E", bound=ThreadlineError)


def gave_up(what: str, why: str, kind: type[E] = Unavailable, attempts: int = ATTEMPTS) -> E:  # type: ignore[assignment]
    """The error of an operation whose attempts all failed."""
    return kind(f"{what} failed after {attempts} attempts: {why}; retry")
