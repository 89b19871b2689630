"""The table of cases: each is a function of a Trial, named as what it shows, with the section it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oracle_trial import Trial

Check = Callable[[Any, Any], None]


@dataclass(frozen=True)
class Case:
    """`differs` checks (ours, theirs) where ours is meant to be different; without it they must be equal."""

    name: str
    section: str
    run: Callable[[Trial], Any]
    differs: Check | None = None
    halves: tuple[str, ...] = ("sync", "async")


TABLE: dict[str, Case] = {}


def case(
    section: str, *, differs: Check | None = None, halves: tuple[str, ...] = ("sync", "async")
) -> Callable[[Callable[[Trial], Any]], Callable[[Trial], Any]]:
    """Put a function into the table."""

    def add(function: Callable[[Trial], Any]) -> Callable[[Trial], Any]:
        assert function.__name__ not in TABLE, f"two cases are called {function.__name__}"
        TABLE[function.__name__] = Case(function.__name__, section, function, differs, halves)
        return function

    return add
