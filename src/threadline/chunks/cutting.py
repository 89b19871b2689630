"""Where trees and large items are cut, decided by content alone; and how large a value may be.

A run of references ends where the digest of its last one says so, so the same references make the same runs whatever
stands before or after them: appending, editing the middle or trimming the front changes only the runs it touches.

Nodes are shared, so a few forged chunks could name each other into a list of any length. A reader therefore counts
what it is about to list (`Budget`) against the most that a writer stores, before it lists it. Repetition is bounded
more narrowly than size, since decoded values take up to a hundred times the memory of their bytes: leaves that stand
in a tree more than once add at most 16 MiB, where each entry counts 8 bytes more than it has. For the same reason the
values within packed bytes are entries too: one byte may be a whole dict, and a compressed chunk may hold many.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ..codec.limits import entries_in
from ..errors import Corrupt, NotSerializable
from .refs import Pair

__all__ = [
    "Budget",
    "ENTRY_BYTES",
    "FEWEST_IN_RUN",
    "FEW_BYTES_LEFT",
    "INLINE_BYTES",
    "LARGE_ITEM_BYTES",
    "LONGEST_PIECE",
    "MANY_REPEATED",
    "MOST_BYTES",
    "ROOT_BYTES",
    "UNCOUNTED_BYTES",
    "check_entries",
    "check_repeats",
    "check_size",
    "ends_run",
    "pieces",
    "repeated_bytes",
    "repeats_too_much",
]


# An item below this costs more as a chunk (row, digest, index entry) than inside its leaf.
INLINE_BYTES = 128
# An item above this is cut, so that changing a part of it does not store all of it again.
LARGE_ITEM_BYTES = 32 * 1024
# No chunk but a node is longer.
LONGEST_PIECE = 64 * 1024
# A root of at most this many bytes, links included, stands in the checkpoint's document; a longer one is a chunk.
ROOT_BYTES = 160
# A run has no fewer entries, so that every level of a tree shrinks.
FEWEST_IN_RUN = 8
# A run of twice as many would compress better, and leave twice as many items in rows of their own while it is open.
_MOST, _MASK = 128, 7


def ends_run(pair: Pair, length: int) -> bool:
    """Whether a run of `length` references ends with this one."""
    if length < FEWEST_IN_RUN:
        return False
    if length >= _MOST:
        return True
    links, packed = pair
    weight = links[0] if links else zlib.crc32(packed) if type(packed) is bytes else 0
    return not weight & _MASK


def pieces(content: bytes) -> list[bytes]:
    """A large item in pieces of some 16 KB, cut where its content says."""
    return [bytes(chunk.data) for chunk in _chunker().cut_buf(content)]


@lru_cache(maxsize=1)
def _chunker() -> Any:
    from pyfastcdc import FastCDC

    return FastCDC(avg_size=16 * 1024, min_size=4 * 1024, max_size=LONGEST_PIECE)


# Neither LangGraph's serializer nor the databases take larger values.
_MOST_ENTRIES = 1 << 24
MOST_BYTES = 1 << 30
_MOST_REPEATED = 1 << 24
# What an entry that is repeated counts besides its bytes: the place in a list that it takes.
ENTRY_BYTES = 8
# More entries than these repeat too much, whatever they hold.
MANY_REPEATED = _MOST_REPEATED // ENTRY_BYTES
# An entry takes a byte at least: up to this size there are not too many of them, and nobody counts.
UNCOUNTED_BYTES = _MOST_ENTRIES
# Who has less left of its bytes than this has taken more than that.
FEW_BYTES_LEFT = MOST_BYTES - UNCOUNTED_BYTES


class Budget:
    """What is left of the entries and the bytes that one value may have."""

    __slots__ = ("_uncounted", "_within", "bytes_left", "entries_left", "joined")

    def __init__(self) -> None:
        self.entries_left, self.bytes_left = _MOST_ENTRIES, MOST_BYTES
        # Of what is within packed bytes: how many bytes need not be looked at, and the entries of all others.
        self._uncounted, self._within = UNCOUNTED_BYTES, _MOST_ENTRIES
        # Trees within the value, as bytes or as what they are, and how many entries they took, by the identity of what
        # refers to them.
        self.joined: dict[int, tuple[Any, int]] = {}

    def take(self, entries: int, size: int) -> None:
        """Take so much of it; Corrupt where more is asked for than is left."""
        self.entries_left -= entries
        self.bytes_left -= size
        if self.entries_left < 0 or self.bytes_left < 0:
            raise Corrupt(f"its chunks name more than {_MOST_ENTRIES:,} entries or {MOST_BYTES:,} bytes")

    def unpack(self, parts: list[bytes]) -> None:
        """Take what is within packed bytes that are about to be unpacked; Corrupt where it is too much."""
        self._uncounted -= sum(map(len, parts))
        if self._uncounted < 0:
            for part in parts:
                self._within -= entries_in(part, self._within)
                if self._within < 0:
                    raise Corrupt(f"its chunks hold more than {_MOST_ENTRIES:,} entries")


def repeats_too_much(leaves: list[Any], sizes: list[int]) -> bool:
    """Whether leaves, of these sizes in bytes, add too much by standing in a tree more than once."""
    total = sum(sizes)
    return total > _MOST_REPEATED and total - sum(dict(zip(leaves, sizes, strict=True)).values()) > _MOST_REPEATED


def repeated_bytes(bounds: list[int], ends: list[int]) -> list[int]:
    """What each closed run counts where it stands once more, of where the runs and where the items end."""
    counts, start, low = [], 0, 0
    for bound in bounds:
        counts.append(ends[bound - 1] - low + ENTRY_BYTES * (bound - start))
        start, low = bound, ends[bound - 1]
    return counts


def check_repeats(leaves: list[Any], sizes: list[int], path: str) -> None:
    """NotSerializable for a value that repeats itself too much to be read."""
    if repeats_too_much(leaves, sizes):
        raise NotSerializable(
            f"it repeats more than {_MOST_REPEATED:,} bytes of itself: store what is repeated once, or as an array",
            path=path,
        )


def check_entries(parts: Iterable[bytes], keys: int, path: str) -> None:
    """NotSerializable for a value whose packed items, and so many keys, hold too many entries to be read."""
    left = _MOST_ENTRIES - keys - 1
    for part in parts:
        left -= entries_in(part, left)
        if left < 0:
            raise NotSerializable(
                f"it has more than {_MOST_ENTRIES:,} entries: spread it over several channels, or store it as an array",
                path=path,
            )


def check_size(entries: int, size: int, path: str) -> None:
    """NotSerializable for a value that would be too large to be read."""
    if entries > _MOST_ENTRIES or size > MOST_BYTES:
        raise NotSerializable(
            f"it has more than {_MOST_ENTRIES:,} entries or {MOST_BYTES:,} bytes: spread it over several channels",
            path=path,
        )
