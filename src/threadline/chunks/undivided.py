"""Lists and dicts that repeat too much to be taken apart, as one item each.

A list of a million zeros is a few chunks that name each other, and so is what somebody forged to fill the memory of a
reader: the reader refuses both (chunks/weigh.py). So a writer stores such a value as one item instead, all of its bytes
in pieces that differ (chunks/cutting.py): who stores little gets little.
"""

from __future__ import annotations

from operator import itemgetter

import ormsgpack

from ..codec.codec import OBJECT
from ..codec.framing import array_header, ext_frame, map_header
from ..codec.plans import ITSELF, name_header
from .cutting import ENTRY_BYTES, FEW_REPEATED, becomes_too_much, weights_of_runs
from .refs import LIST, is_plain
from .runs import Batch, Chunks
from .unchanged import Sequence

__all__ = ["Before", "is_light", "take_back", "undivided"]

# An item that is inline, or a chunk.
_PLAIN_REFS = frozenset((bytes, type(None)))
_ref_of = itemgetter(1)
# A type header is no longer (codec/plans.py).
_LONGEST_HEAD = 256
# How many chunks a batch had, and which took the place of stored ones.
Before = tuple[int, Chunks]


def undivided(made: Sequence) -> bytes:
    """The encoded bytes of a sequence as one object: its bytes alone say that it is not taken apart."""
    contents = [made.content(place) for place in range(len(made.heads))]
    if made.kind == LIST:
        packed = array_header(len(contents)) + b"".join(contents)
    else:
        pairs = zip(made.keys or (), contents, strict=True)
        packed = map_header(len(contents)) + b"".join([part for key, one in pairs for part in (_key(key), one)])
    return ext_frame(OBJECT, name_header(ITSELF), packed)


def take_back(batch: Batch, before: Before) -> None:
    """Take out of a batch what came into it since."""
    count, moved = before
    for digest in [*batch.chunks][count:]:
        del batch.chunks[digest]
        batch.nodes.discard(digest)
    batch.moved = moved


def is_light(made: Sequence) -> bool:
    """Whether a sequence is known not to weigh too much (chunks/weigh.py) by the sizes of its items alone."""
    if (1 + ENTRY_BYTES) * made.size + (_LONGEST_HEAD + 2 * ENTRY_BYTES) * len(made.heads) <= FEW_REPEATED:
        return True  # whatever is nested in its items
    starts, large = [0, *made.ends[:-1]], 0
    if not _PLAIN_REFS.issuperset(map(type, map(_ref_of, made.pairs))):
        sizes = zip(starts, made.ends, made.pairs, strict=True)
        large = sum([end - start for start, end, pair in sizes if not is_plain(pair)])
    # Of each item its bytes, the type header before it and its place; of what is nested in large ones, places too.
    weight = made.size + sum(map(len, made.heads)) + 2 * ENTRY_BYTES * len(made.heads) + ENTRY_BYTES * large
    if weight <= FEW_REPEATED:
        return True
    runs = zip(made.names, made.are_packed, weights_of_runs(made.bounds, made.ends), strict=True)
    held = sum({name: size for name, is_packed, size in runs if is_packed}.values())
    if not becomes_too_much(weight, held):
        return True
    items = zip(made.pairs, starts, made.ends, strict=True)
    small = sum({pair: end - start for pair, start, end in items if is_plain(pair)}.values())
    # Some of these may be in packs, which were counted: either the ones or the others.
    return not becomes_too_much(weight, max(held, small))


def _key(key: str) -> bytes:
    packed: bytes = ormsgpack.packb(key)
    return packed
