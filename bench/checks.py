"""What is read back must be what was put: a benchmark of wrong answers is worth nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class WrongAnswer(Exception):
    """A saver gave back something else than what was put."""


def check_equal(found: Mapping[str, Any], expected: Mapping[str, Any], where: str) -> None:
    """Channel by channel, so that the message names the one that differs."""
    if set(found) != set(expected):
        raise WrongAnswer(f"{where}: channels {sorted(found)} instead of {sorted(expected)}")
    for channel, value in expected.items():
        if type(found[channel]) is not type(value) or found[channel] != value:
            raise WrongAnswer(f"{where}: channel {channel!r} differs from what was put")


def check(condition: bool, complaint: str) -> None:
    if not condition:
        raise WrongAnswer(complaint)


def look_at(values: Mapping[str, Any]) -> int:
    """Touch every value, and every element of the lists and dicts among them."""
    touched = 0
    for value in dict(values).values():
        if isinstance(value, list | dict):
            for _ in value:
                touched += 1
        touched += 1
    return touched
