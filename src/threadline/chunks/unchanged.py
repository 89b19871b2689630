"""Which items of a list or dict are still what they were, so that they need not be encoded again: decided by bytes.

The items of a value are packed together in one call, which is quick, and compared with the bytes of the value before.
Msgpack says itself where a value ends: where the bytes begin alike, so do the items. Items that were found unchanged
keep their references. What a sequence was made from can always be taken from its bytes again, without looking at values
that the program may have changed meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import is_
from typing import Any, NamedTuple

import ormsgpack

from ..base.native import native
from ..codec.codec import OBJECT, OPTIONS
from ..codec.framing import ext_frame
from ..codec.uniform import Alike
from .refs import Pair

__all__ = [
    "Block",
    "Mark",
    "STRETCH",
    "Sequence",
    "Shots",
    "Taking",
    "are_same",
    "are_unchanged",
    "beginning",
    "continuation",
    "note_rest",
    "take_over",
    "wants_shots",
]

# What chunks were last known to be stored by: pool, epoch, and the number of that knowledge (core/known.py).
Mark = tuple[int, int, int]
# The states of a sequence in stretches, and with which item each begins. A long list that grows shares all stretches
# but the last with what it was: copying a megabyte for each item that is added takes longer than packing it.
Stretches = tuple[list[bytes], list[int]]
# How many items a stretch has, or a few more.
STRETCH = 64
_LONGEST_REST = 63
# How often the first item is looked for among those of before, when the beginning of a list was cut off.
_MOST_SHIFTS = 8
_new, packb = tuple.__new__, ormsgpack.packb


class Sequence:
    """A list or dict as it was encoded: its items' bytes, their references, and the runs they were cut into."""

    __slots__ = (
        "are_packed",
        "bounds",
        "cost_bytes",
        "ends",
        "heads",
        "is_exact",
        "keys",
        "kind",
        "kinds",
        "levels",
        "names",
        "objects",
        "open_count",
        "open_links",
        "pairs",
        "pause",
        "rest",
        "root",
        "shots",
        "size",
        "stretches",
    )

    def __init__(self, kind: int, keys: tuple[str, ...] | None, heads: list[bytes], body: bytes) -> None:
        self.kind, self.keys = kind, keys
        # The type header of each item, and their states side by side; where each of them ends.
        self.heads = heads
        self.stretches: Stretches = [body], [0]
        self.size = len(body)
        self.ends: list[int] = []
        self.pairs: list[Pair] = []
        # Where the closed runs end, the names of their nodes, and which of these are packs.
        self.bounds: list[int] = []
        self.names: list[bytes] = []
        self.are_packed: list[bool] = []
        # The nodes that no node above holds, from the leaves up.
        self.levels: list[list[bytes]] = []
        self.root: Pair = (b"", b"")
        # Of the open run: the names of its items and how many these are; -1 where one of them has none.
        self.open_links, self.open_count = b"", -1
        # The values themselves, where the program promised not to change them or they are compared by identity.
        self.objects: Any = None
        # What the items consisted of, for the native module; None where nobody looked, or in vain. After shots that
        # were of no use none are taken for so many puts, and for how many the last time.
        self.shots: Shots | None = None
        self.rest = self.pause = 0
        # The types of the items, held for what was stored of them: one of a function may have no other home.
        self.kinds: frozenset[type] = frozenset()
        # Whether equal bytes mean equal items: not so where bytes are inside, which pack like bytearrays.
        self.is_exact = True
        self.cost_bytes = 0

    @property
    def body(self) -> bytes:
        """The states of all items, side by side."""
        parts, _ = self.stretches
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def grown(self, keys: tuple[str, ...] | None, heads: list[bytes], added: bytes) -> Sequence:
        """A sequence that begins with these items, and has the states of others behind them."""
        new = Sequence(self.kind, keys, heads, b"")
        parts, starts = self.stretches
        if len(self.heads) - starts[-1] < STRETCH:
            new.stretches = [*parts[:-1], parts[-1] + added], starts
        else:
            new.stretches = [*parts, added], [*starts, len(self.heads)]
        new.size = self.size + len(added)
        return new

    def divide(self) -> None:
        """Have the states in stretches of a few items each, where they are in one."""
        if len(self.heads) > 2 * STRETCH and len(self.stretches[1]) == 1:
            starts = [*range(0, len(self.heads), STRETCH)]
            body, bounds = self.body, [0, *[self.ends[start - 1] for start in starts[1:]], self.size]
            # In one step: another thread may be looking.
            self.stretches = [body[low:high] for low, high in pairwise(bounds)], starts

    def behind(self, offset: int) -> bytes:
        """All bytes from an offset on."""
        last = self.stretches[0][-1]
        base = self.size - len(last)
        return last[offset - base :] if offset >= base else self.body[offset:]

    def span(self, start: int, end: int) -> bytes:
        """The states of some items, side by side."""
        parts, starts = self.stretches
        first = bisect_right(starts, start) - 1
        last = bisect_right(starts, max(end - 1, start)) if len(parts) > 1 else 1
        base = self.ends[starts[first] - 1] if starts[first] else 0
        low, high = self.ends[start - 1] if start else 0, self.ends[end - 1] if end else 0
        found = parts[first] if last - first == 1 else b"".join(parts[first:last])
        return found[low - base : high - base]

    def state(self, place: int) -> bytes:
        """The bytes of one item behind its header."""
        return self.span(place, place + 1)

    def content(self, place: int) -> bytes:
        """One item, encoded."""
        state = self.state(place)
        head = self.heads[place]
        return ext_frame(OBJECT, head, state) if head else state

    def is_like(self, other: Sequence) -> bool:
        """Whether both hold the same items."""
        if self.kind != other.kind or self.keys != other.keys or len(self.heads) != len(other.heads):
            return False
        if self.heads == other.heads:
            return self.body == other.body
        # One was packed together, the other one by one.
        return all(self.content(place) == other.content(place) for place in range(len(self.heads)))


class Shots(NamedTuple):
    """What the items of a list consisted of (base/compiled.c), and the knowledge of classes by which that was taken."""

    each: list[Any]
    alike: Alike
    # The bytes of memory that they take, about.
    held: int
    # Whether a list was found unchanged by those of before.
    were_of_use: bool


class Block(NamedTuple):
    """A stretch of items that an older sequence has, too: where it begins in both, and how long it is."""

    start: int
    before: int
    length: int


def beginning(old: Sequence, new: Sequence, state: Callable[[int], bytes]) -> Block:
    """The items with which a sequence begins, and an older one of the same kind has, too; `state` packs an item."""
    count, had, body, before = len(new.heads), len(old.heads), new.body, old.body
    if (
        had <= count
        and body.startswith(before)
        and new.heads[:had] == old.heads
        and (old.keys is None or (new.keys is not None and new.keys[:had] == old.keys))
    ):
        return _new(Block, (0, 0, had))
    front = _front(old, new, before, body)
    if not front and old.keys is None and count:
        shift = _shift(old, new, before, body, state(0))
        if shift:
            return Block(0, shift, had - shift)
    return Block(0, 0, front)


def take_over(new: Sequence, old: Sequence, block: Block) -> None:
    """Give items that an older sequence has their ends and references."""
    _, before, length = block
    new.pairs += old.pairs[before : before + length]
    offset = (new.ends[-1] if new.ends else 0) - (old.ends[before - 1] if before else 0)
    own = old.ends[before : before + length]
    new.ends += [end + offset for end in own] if offset else own


def continuation(new: Sequence, old: Sequence, place: int, was: int) -> list[Block]:
    """Take over the runs of an older sequence that follow a place in both, for as long as they are the same.

    What ends like a run of before is likely to be followed by what followed that one.
    """
    blocks = []
    while length := _continued(old, new, place, new.ends[-1], was):
        blocks.append(Block(place, was, length))
        take_over(new, old, blocks[-1])
        place, was = place + length, was + length
    return blocks


def _continued(old: Sequence, new: Sequence, place: int, at: int, was: int) -> int:
    """How many items from `place` on, whose bytes begin at `at`, are those that a run of before has from `was` on.

    All of the run, or none.
    """
    run = bisect_right(old.bounds, was)
    end = old.bounds[run] if run < len(old.bounds) else len(old.heads)
    length = end - was
    if not length or place + length > len(new.heads) or new.heads[place : place + length] != old.heads[was:end]:
        return 0
    if old.keys is not None and (new.keys is None or new.keys[place : place + length] != old.keys[was:end]):
        return 0
    return length if new.body.startswith(old.span(was, end), at) else 0


def _begins_alike(old: Sequence, new: Sequence, before: bytes, body: bytes, count: int) -> bool:
    """Whether the first items are those of before; `count` is at most what both have."""
    return (
        (body.startswith(before) if count == len(old.heads) else _has(body, before, old.ends[count - 1]))
        and new.heads[:count] == old.heads[:count]
        and (old.keys is None or (new.keys is not None and new.keys[:count] == old.keys[:count]))
    )


def _has(new: bytes, old: bytes, size: int) -> bool:
    return len(new) >= size and new[:size] == old[:size]


def _front(old: Sequence, new: Sequence, before: bytes, body: bytes) -> int:
    """How many of the first items are alike."""
    low, high = 0, min(len(old.heads), len(new.heads))
    while low < high:
        middle = (low + high + 1) // 2
        if _begins_alike(old, new, before, body, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _shift(old: Sequence, new: Sequence, before: bytes, body: bytes, state: bytes) -> int:
    """How many items were cut off in front, where all that follow them are still there; 0 otherwise."""
    at = -1
    for _ in range(_MOST_SHIFTS):
        at = before.find(state, at + 1)
        if at < 0:
            return 0
        shift = bisect_right(old.ends, at)
        if not shift or old.ends[shift - 1] != at:
            continue  # within an item
        left = len(old.heads) - shift
        if left <= len(new.heads) and body.startswith(before[at:]) and new.heads[:left] == old.heads[shift:]:
            return shift
    return 0


def are_same(old: Sequence, values: list[Any], keys: tuple[str, ...] | None) -> bool:
    """Whether a list or dict begins with the very objects of before."""
    objects, count = old.objects, len(old.heads)
    if count > len(values) or (keys is not None and keys[:count] != old.keys):
        return False
    return all(map(is_, objects, values))


def are_unchanged(old: Sequence, values: list[Any], alike: Alike) -> bool:
    """Whether a list begins with items that consist of the very parts of before: then their bytes are those of before.

    Exact, and quicker than packing them. Where it is False, their bytes may be the same all the same.
    """
    shots = old.shots
    if native is None or shots is None or shots.alike is not alike or len(old.heads) > len(values):
        return False
    return bool(native.unchanged(shots.each, values, alike.comparable) == len(old.heads))


class Taking:
    """Packs the states of a list's items, and takes shots of the items in the same step."""

    __slots__ = ("_alike", "_each", "_held", "_latest", "_types", "_values")

    def __init__(self, values: list[Any], alike: Alike) -> None:
        self._values, self._alike = values, alike
        # Before their states are made: what changes its class afterwards gets no shot.
        self._types = list(map(type, values))
        self._each: list[Any] | None = []
        # The bytes that they hold, and how many were taken last.
        self._held = self._latest = 0

    def packed(self, states: list[Any], start: int, end: int, hook: Callable[[Any], Any]) -> bytes:
        """What the states of some items pack to, as a list; to be called for all items, in their order."""
        assert native is not None
        classes = self._alike.comparable
        content: bytes
        how = packb, hook, OPTIONS
        content, taken, held = native.packed(self._values, self._types, states, classes, start, end, *how)
        if taken is None or self._each is None:
            self._each = None
        else:
            self._each += taken
            self._held += held
            self._latest = len(taken)
        return content

    def take_back(self) -> None:
        """What was packed last is not what is stored: these items are packed once more."""
        if self._each is not None:
            del self._each[len(self._each) - self._latest :]

    def shots(self, made: Sequence, before: Shots | None) -> Shots | None:
        """Those of `before`, which describe the items in front, and those that were taken; None where one lacks."""
        if self._each is None:
            return None
        each, held = (
            (self._each, self._held) if before is None else ([*before.each, *self._each], before.held + self._held)
        )
        made.cost_bytes += held
        return Shots(each, self._alike, held, before is not None)


def wants_shots(old: Sequence | None) -> bool:
    """Whether to take shots of a list that does not begin with the very parts of the one before.

    Not for a while after shots that were of no use: a program that puts other objects every time does not pay for each
    of them.
    """
    if native is None:
        return False
    return old is None or (old.rest <= 1 if old.shots is None else old.shots.were_of_use)


def note_rest(made: Sequence, old: Sequence | None, *, were_taken: bool) -> None:
    """Note for how many puts no shots are taken, after those of before did not match."""
    if old is not None:
        made.pause, made.rest = old.pause, max(old.rest - 1, 0)
    is_in_vain = old is not None and old.shots is not None and not old.shots.were_of_use
    if is_in_vain or (were_taken and made.shots is None):
        made.rest = made.pause = min(2 * made.pause + 1, _LONGEST_REST)
