"""Which stretches of two sequences differ.

What both begin and end with is set aside, then tokens that occur once on either side hold the rest in place
(the longest run of them that has the same order), so that a list of distinct items costs what sorting it
would. Only stretches without such a token are compared pair by pair, and only while there are few pairs: two
long lists of a few repeated values are said to differ as a whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

__all__ = ["Block", "differing"]

# From and to on the first side, from and to on the second.
Block = tuple[int, int, int, int]

# Pairs of equal tokens that difflib may look at: it takes well under a second for as many.
_MOST_PAIRS = 100_000


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
        anchors = _anchors(before, after, block)
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


def _anchors(before: Sequence[Hashable], after: Sequence[Hashable], block: Block) -> list[tuple[int, int]]:
    """Places of tokens that occur once on each side: as many as have the same order on both."""
    a0, a1, b0, b1 = block
    once_before, once_after = _once(before, a0, a1), _once(after, b0, b1)
    shared = [(place, once_after[token]) for token, place in once_before.items() if token in once_after]
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
    if not 0 < sum(count * others[token] for token, count in counts.items()) <= _MOST_PAIRS:
        return [block]
    codes = SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    return [(a0 + i0, a0 + i1, b0 + j0, b0 + j1) for tag, i0, i1, j0, j1 in codes if tag != "equal"]
