"""Telling bytearrays from bytes, which ormsgpack packs alike and without asking."""

from __future__ import annotations

from itertools import chain
from typing import Any

__all__ = ["has_bytes", "hides_mutable_bytes", "may_hold_bytes"]

# Types that ormsgpack looks into, or packs, without asking.
_SEE_THROUGH = frozenset((list, dict, bytearray, memoryview))
_CONTAINERS = frozenset((list, dict))


def hides_mutable_bytes(value: Any, packed: bytes) -> bool:
    """Whether a bytearray or memoryview is inside, which ormsgpack packs as bytes without asking.

    Most packed values show by their bytes alone that they hold neither. Other values are looked through
    level by level; objects inside were looked through when they were packed themselves.
    """
    kind = type(value)
    if kind is list and not _SEE_THROUGH & set(map(type, value)):
        return False
    if not may_hold_bytes(packed):
        return False
    level = [value]
    while True:
        kinds = set(map(type, level))
        if bytearray in kinds or memoryview in kinds:
            return True
        if list not in kinds and dict not in kinds:
            return False
        # Not by gc.get_referents, which from Python 3.13 on finds nothing in the `__dict__` of an instance.
        inside = [item if type(item) is list else item.values() for item in level if type(item) in _CONTAINERS]
        level = list(chain.from_iterable(inside))


def may_hold_bytes(packed: bytes) -> bool:
    """Whether one of msgpack's three markers of bytes occurs, be it as a marker or as something else."""
    return 0xC4 in packed or 0xC5 in packed or 0xC6 in packed


def has_bytes(value: Any) -> bool:
    if type(value) is list:
        return any(map(has_bytes, value))
    return any(map(has_bytes, value.values())) if type(value) is dict else type(value) is bytes
