"""Which stretches of two sequences differ.

What both begin and end with is set aside, then tokens that occur once on either side hold the rest in place
(the longest run of them that has the same order), so that a list of distinct items costs what sorting it
would. Stretches in which every shared token repeats are compared place by place if most places are equal, by
difflib if they are short, and else by matching the nth occurrence of a token with its nth on the other side.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

__all__ = ["Block", "differing"]

# From and to on the first side, from and to on the second.
Block = tuple[int, int, int, int]

# Equal pairs times tokens that difflib may look at: its worst case takes about a second for as many.
_MOST_WORK = 10_000_000


def differing(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Block]:
    """The stretches that differ, in order; everything between them is equal."""
    found: list[Block] = []
    waiting: list[Block] = [(0, len(before), 0, len(after))]
    while waiting:
        block = _trimmed(before, after, waiting.pop())
        a0, a1, b0, b1 = block
        if a0 == a1 or b0 == b1:
            if a0 < a1 or b0 < b1:
                found.append(block)
            continue
        anchors = _in_order(_once(before, a0, a1), _once(after, b0, b1))
        if anchors:
            waiting.extend(reversed(list(_between(anchors, block))))
        else:
            found.extend(_matched(before, after, block))
    return found


def _trimmed(before: Sequence[Hashable], after: Sequence[Hashable], block: Block) -> Block:
    a0, a1, b0, b1 = block
    while a0 < a1 and b0 < b1 and before[a0] == after[b0]:
        a0, b0 = a0 + 1, b0 + 1
    while a0 < a1 and b0 < b1 and before[a1 - 1] == after[b1 - 1]:
        a1, b1 = a1 - 1, b1 - 1
    return a0, a1, b0, b1


def _in_order(before: dict[Hashable, int], after: dict[Hashable, int]) -> list[tuple[int, int]]:
    """Places of the same token on both sides: as many as have the same order on both."""
    shared = [(place, after[token]) for token, place in before.items() if token in after]
    # The longest increasing subsequence of the second places; the first ones ascend already.
    ends: list[int] = []  # the smallest second place that a subsequence of each length ends with
    last: list[int] = []  # which of `shared` that is
    previous: list[int] = []
    for number, (_, place) in enumerate(shared):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
        previous.append(last[length - 1] if length else -1)
    chain = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(shared[number])
        number = previous[number]
    return chain[::-1]


def _once(tokens: Sequence[Hashable], start: int, end: int) -> dict[Hashable, int]:
    """The tokens that occur once in a stretch, and where, in order."""
    stretch = tokens[start:end]
    counts = Counter(stretch)
    return {token: place for place, token in enumerate(stretch, start) if counts[token] == 1}


def _between(anchors: list[tuple[int, int]], block: Block) -> Iterator[Block]:
    a0, a1, b0, b1 = block
    for a, b in anchors:
        yield a0, a, b0, b
        a0, b0 = a + 1, b + 1
    yield a0, a1, b0, b1


def _matched(before: Sequence[Hashable], after: Sequence[Hashable], block: Block) -> list[Block]:
    """A stretch in which every shared token repeats."""
    a0, a1, b0, b1 = block
    first, second = before[a0:a1], after[b0:b1]
    counts, others = Counter(first), Counter(second)
    pairs = sum(count * others[token] for token, count in counts.items())
    if not pairs:
        return [block]
    if len(first) == len(second):
        kept = [(a0 + i, b0 + i) for i in range(len(first)) if first[i] == second[i]]
        if 2 * len(kept) >= len(first):
            return [gap for gap in _between(kept, block) if gap[0] < gap[1]]
    if pairs * len(first) > _MOST_WORK:
        gaps = _between(_in_order(_numbered(first, a0), _numbered(second, b0)), block)
        return [gap for gap in gaps if gap[0] < gap[1] or gap[2] < gap[3]]
    codes = SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    return [(a0 + i0, a0 + i1, b0 + j0, b0 + j1) for tag, i0, i1, j0, j1 in codes if tag != "equal"]


def _numbered(stretch: Sequence[Hashable], start: int) -> dict[Hashable, int]:
    """Every token with how often it occurred before, which makes each unique; and where."""
    counts: Counter[Hashable] = Counter()
    places: dict[Hashable, int] = {}
    for place, token in enumerate(stretch, start):
        places[token, counts[token]] = place
        counts[token] += 1
    return places
