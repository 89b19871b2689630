"""How large a value may be: what is written keeps within it, and what is read is held to it.

Nodes are shared, so a few chunks can name each other into a list of any length: a value of a thousand equal items is
stored in a handful of them, and so would be a forged one of a thousand million. A reader therefore counts what it is
about to list before it lists it, against the most that a writer stores. Repetition is bounded more narrowly than
size, since decoded values take up to a hundred times the memory of their bytes: leaves of a tree that stand in it more
than once add at most 16 MiB.
"""

from __future__ import annotations

from typing import Any

from ..errors import Corrupt, NotSerializable

__all__ = ["Budget", "check_repeats", "check_size", "repeats_too_much"]

# Neither LangGraph's serializer nor the databases take larger values.
_MOST_ENTRIES = 1 << 24
_MOST_BYTES = 1 << 30
_MOST_REPEATED = 1 << 24


class Budget:
    """What is left of the entries and the bytes that one value may have."""

    __slots__ = ("_bytes", "_entries")

    def __init__(self) -> None:
        self._entries, self._bytes = _MOST_ENTRIES, _MOST_BYTES

    def take(self, entries: int, size: int) -> None:
        """Take so much of it; Corrupt where more is asked for than is left."""
        self._entries -= entries
        self._bytes -= size
        if self._entries < 0 or self._bytes < 0:
            raise Corrupt(f"its chunks name more than {_MOST_ENTRIES:,} entries or {_MOST_BYTES:,} bytes")


def repeats_too_much(leaves: list[Any], sizes: list[int]) -> bool:
    """Whether leaves, of these sizes in bytes, add too much by standing in a tree more than once."""
    total = sum(sizes)
    return total > _MOST_REPEATED and total - sum(dict(zip(leaves, sizes, strict=True)).values()) > _MOST_REPEATED


def check_repeats(leaves: list[Any], sizes: list[int], path: str) -> None:
    """NotSerializable for a value that repeats itself too much to be read."""
    if repeats_too_much(leaves, sizes):
        raise NotSerializable(
            f"it repeats more than {_MOST_REPEATED:,} bytes of itself: store what is repeated once, or as an array",
            path=path,
        )


def check_size(entries: int, size: int, path: str) -> None:
    """NotSerializable for a value that would be too large to be read."""
    if entries > _MOST_ENTRIES or size > _MOST_BYTES:
        raise NotSerializable(
            f"it has more than {_MOST_ENTRIES:,} entries or {_MOST_BYTES:,} bytes: spread it over several channels",
            path=path,
        )
