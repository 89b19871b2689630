"""Where trees and large items are cut, decided by content alone; and how large a value may be.

A run of references ends where the digest of its last one says so, so the same references make the same runs whatever
stands before or after them: appending, editing the middle or trimming the front changes only the runs it touches.

Nodes are shared, so a few forged chunks could name each other into a list of any length. A reader therefore counts
what it is about to list (`Budget`) against the most that a writer stores, before it lists it. Repetition is bounded
more narrowly than size, since decoded values take up to a hundred times the memory of their bytes: whatever is named
more than once, a node, an item or a piece, a value has at most 16 MiB and 64 times what its distinct chunks hold, where
each entry counts 8 bytes more than it has (chunks/weigh.py). A list or dict that would have more is stored as one item
(chunks/undivided.py). So drafts of one text may share most of their pieces, and
one piece is no gigabyte. For the same reason the values within packed bytes are entries too: one byte may be a whole
dict, and a compressed chunk may hold many.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from ..codec.limits import copied_by, entries_in
from ..errors import Corrupt, NotSerializable
from .refs import Pair

__all__ = [
    "BEHIND_ROOT",
    "Budget",
    "ENTRY_BYTES",
    "FEWEST_IN_RUN",
    "FEW_BYTES_LEFT",
    "FEW_REPEATED",
    "INLINE_BYTES",
    "LARGE_ITEM_BYTES",
    "LONGEST_PIECE",
    "MANY_REPEATED",
    "MOST_BYTES",
    "ROOT_BYTES",
    "UNCOUNTED_BYTES",
    "becomes_too_much",
    "check_entries",
    "check_size",
    "ends_run",
    "pieces",
    "weights_of_runs",
]


# An item below this costs more as a chunk (row, digest, index entry) than inside its leaf.
INLINE_BYTES = 128
# An item above this is cut, so that changing a part of it does not store all of it again.
LARGE_ITEM_BYTES = 32 * 1024
# No chunk but a node is longer.
LONGEST_PIECE = 64 * 1024
# A root of at most this many bytes, links included, stands in the checkpoint's document; a longer one is a chunk.
ROOT_BYTES = 160
# The items of an open run are counted by so many: those left over, fewer than this, stand behind a root's chunk.
BEHIND_ROOT = 8
# A run has no fewer entries, so that every level of a tree shrinks.
FEWEST_IN_RUN = 8
# A run of twice as many would compress better, and leave twice as many items in rows of their own while it is open.
_MOST, _MASK = 128, 7
# An item that repeats its pieces so often is cut in another way.
_MANY_TIMES = 16


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
    found = [bytes(chunk.data) for chunk in _chunker().cut_buf(content)]
    if len(found) > _MANY_TIMES and _MANY_TIMES * sum(map(len, set(found))) < len(content):
        return _uneven(content)
    return found


def _uneven(content: bytes) -> list[bytes]:
    """An item that repeats itself, zeros for instance, in pieces of which no two are as long: all are different."""
    found, start, length = [], 0, LONGEST_PIECE
    while start < len(content):
        found.append(content[start : start + length])
        start, length = start + length, length - 1
    return found


@lru_cache(maxsize=1)
def _chunker() -> Any:
    from pyfastcdc import FastCDC

    return FastCDC(avg_size=16 * 1024, min_size=4 * 1024, max_size=LONGEST_PIECE)


# Neither LangGraph's serializer nor the databases take larger values.
_MOST_ENTRIES = 1 << 24
MOST_BYTES = 1 << 30
_MOST_REPEATED = 1 << 24
# What becomes no more than this repeats too little to be looked at.
FEW_REPEATED = _MOST_REPEATED
# And what becomes more, so many times what its distinct chunks hold: a small change stores some 20 KB of a large text.
_MOST_TIMES = 64
# What an entry that is repeated counts besides its bytes: the place in a list that it takes.
ENTRY_BYTES = 8
# More entries than these repeat too much, whatever they hold.
MANY_REPEATED = _MOST_REPEATED // ENTRY_BYTES
# An entry takes a byte at least: up to this size there are not too many of them, and nobody counts.
UNCOUNTED_BYTES = _MOST_ENTRIES
# What unpacking may copy of large objects that stand in each other: so much, and so many times all bytes of the value.
_FEW_COPIED, _MOST_COPIES = 1 << 26, 8
# Who has less left of its bytes than this has taken more than that.
FEW_BYTES_LEFT = MOST_BYTES - UNCOUNTED_BYTES


class Budget:
    """What is left of the entries and the bytes that one value may have."""

    __slots__ = ("_uncounted", "_weigh", "_within", "bytes_left", "depth", "entries_left", "joined", "weight")

    def __init__(self, weigh: Callable[[], None] | None = None) -> None:
        # Called once, before more is taken than any value may repeat: Corrupt where this one repeats too much.
        self._weigh = weigh
        # How many trees what is read now stands within.
        self.depth = 0
        self.entries_left, self.bytes_left = _MOST_ENTRIES, MOST_BYTES
        # Of what is within packed bytes: how many bytes need not be looked at, and the entries of all others.
        self._uncounted, self._within = UNCOUNTED_BYTES, _MOST_ENTRIES
        # What was taken, as it is weighed.
        self.weight = 0
        # Trees within the value, as bytes or as what they are, how many entries they took and what they weigh, by the
        # identity of what refers to them.
        self.joined: dict[int, tuple[Any, int, int]] = {}

    def take(self, entries: int, size: int, weight: int | None = None) -> None:
        """Take so much of it; Corrupt where more is asked for than is left."""
        self.entries_left -= entries
        self.bytes_left -= size
        if self.entries_left < 0 or self.bytes_left < 0:
            raise Corrupt(f"its chunks name more than {_MOST_ENTRIES:,} entries or {MOST_BYTES:,} bytes")
        self.add(ENTRY_BYTES * entries + size if weight is None else weight)

    def add(self, weight: int) -> None:
        """Add a weight; raises Corrupt if the value repeats its chunks too often, before it is built."""
        self.weight += weight
        if self.weight > _MOST_REPEATED and self._weigh is not None:
            weigh, self._weigh = self._weigh, None
            weigh()

    def unpack(self, parts: list[bytes]) -> None:
        """Take what is within packed bytes that are about to be unpacked; Corrupt where it is too much."""
        self._uncounted -= sum(map(len, parts))
        if self._uncounted < 0:
            for part in parts:
                large: list[tuple[int, int, int]] = []
                self._within -= entries_in(part, self._within, large)
                if self._within < 0:
                    raise Corrupt(f"its chunks hold more than {_MOST_ENTRIES:,} entries")
                if copies_too_much(part, large):
                    raise Corrupt("its large objects stand in each other more often than is stored")


def copies_too_much(part: bytes, large: list[tuple[int, int, int]]) -> bool:
    """Whether unpacking copies too much: an object is copied for each that it stands in."""
    return copied_by(large) > _FEW_COPIED + _MOST_COPIES * len(part)


def becomes_too_much(weight: int, held: int) -> bool:
    """Whether what weighs so much is more than chunks that hold so much may become (chunks/weigh.py)."""
    return weight > _MOST_REPEATED + _MOST_TIMES * held


def weights_of_runs(bounds: list[int], ends: list[int]) -> list[int]:
    """What each closed run weighs, of where the runs and where the items end."""
    counts, start, low = [], 0, 0
    for bound in bounds:
        counts.append(ends[bound - 1] - low + ENTRY_BYTES * (bound - start))
        start, low = bound, ends[bound - 1]
    return counts


def check_entries(parts: Iterable[bytes], keys: int, path: str) -> None:
    """NotSerializable for a value whose packed items, and so many keys, hold too many entries to be read."""
    left = _MOST_ENTRIES - keys - 1
    for part in parts:
        large: list[tuple[int, int, int]] = []
        left -= entries_in(part, left, large)
        if copies_too_much(part, large):
            raise NotSerializable("large objects stand in each other too often: spread them over channels", path=path)
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
