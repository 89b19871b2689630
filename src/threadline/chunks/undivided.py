"""Lists and dicts that repeat too much to be taken apart, as one item each.

A list of a million zeros is a few chunks that name each other, and so is what somebody forged to fill the memory of a
reader: the reader refuses both (chunks/weigh.py). So a writer stores such a value as one item instead, all of its bytes
in pieces that differ (chunks/cutting.py): who stores little gets little.
"""

from __future__ import annotations

import ormsgpack

from ..codec.codec import OBJECT
from ..codec.framing import array_header, ext_frame, map_header
from ..codec.plans import ITSELF, name_header
from .refs import LIST
from .runs import Batch, Chunks
from .unchanged import Sequence

__all__ = ["Before", "take_back", "undivided"]

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


def _key(key: str) -> bytes:
    packed: bytes = ormsgpack.packb(key)
    return packed
