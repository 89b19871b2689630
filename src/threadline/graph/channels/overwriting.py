"""A write that replaces the value of a channel instead of being reduced into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..constants import MISSING, OVERWRITE
from ..errors import InvalidUpdateError
from ..types import Overwrite

__all__ = ["ORDINARY", "overwritten", "plain"]

# Types whose values are never an overwrite: most writes are told apart by one look-up.
ORDINARY = frozenset({bool, bytes, float, frozenset, int, list, set, str, tuple, type(None)})


def overwritten(values: Sequence[Any]) -> Any:
    """The value of the one Overwrite among the writes of a step; MISSING without one."""
    found = MISSING
    for value in values:
        if type(value) in ORDINARY or (replacement := _overwrite(value)) is MISSING:
            continue
        if found is not MISSING:
            raise InvalidUpdateError("Can receive only one Overwrite value per super-step.")
        found = replacement
    return found


def plain(value: Any) -> Any:
    """The value of an Overwrite; anything else as it is."""
    replacement = _overwrite(value)
    return value if replacement is MISSING else replacement


def _overwrite(value: Any) -> Any:
    if type(value) is dict:
        if len(value) == 1:
            return value.get(OVERWRITE, MISSING)
        if len(value) == 2 and value.get("type") == OVERWRITE:
            return value.get("value", MISSING)
        return MISSING
    if isinstance(value, Overwrite):
        return value.value
    # A thread written by the other engine may hold its class, under the same name.
    if type(value).__name__ == "Overwrite" and getattr(value, "type", None) == OVERWRITE:
        return value.value
    return MISSING
