"""Bytes that are equal in every process for equal inputs of a node: the keys of its cache.

Mappings and sets are sorted by the bytes of their keys, since their order is no part of their value. Everything
else is written as a checkpoint would store it, so what can be a state can be a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from .._base import encode

__all__ = ["frozen_bytes"]


def frozen_bytes(value: Any) -> bytes:
    """The canonical bytes of a value; NotSerializable where it has no stored form."""
    if isinstance(value, Mapping):
        items = sorted((frozen_bytes(key), frozen_bytes(item)) for key, item in value.items())
        return _joined(b"m", (part for item in items for part in item))
    if isinstance(value, Set):
        return _joined(b"s", sorted(map(frozen_bytes, value)))
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return _joined(b"l" if type(value) is list else b"t", map(frozen_bytes, value))
    return _joined(b"v", (encode(value),))


def _joined(kind: bytes, parts: Iterable[bytes]) -> bytes:
    """The parts with their lengths, so that no two lists of parts give the same bytes."""
    return kind + b"".join(len(part).to_bytes(8, "big") + part for part in parts) + b"."
