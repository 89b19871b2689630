"""`with refused(Conflict):` for promises, which must not import pytest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Refusal", "refused"]


class Refusal:
    """The error that a block raised, once it has."""

    error: Any = None


@contextmanager
def refused(*kinds: type[Exception]) -> Iterator[Refusal]:
    """A block that must raise one of these errors."""
    refusal = Refusal()
    try:
        yield refusal
    except kinds as error:
        refusal.error = error
        return
    raise AssertionError(f"nothing was raised where {' or '.join(kind.__name__ for kind in kinds)} was promised")
