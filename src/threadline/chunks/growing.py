"""A list that got a few items at its end, which is what nearly every list of messages becomes: a straight line.

A list that is kept short loses its first items as well. Where an item closes a run, where closed runs would have to be
cut anew, or an item is of an unusual kind or size, nothing is done yet, and chunks/encode.py goes the way
that cuts. Both make the same references and chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.native import native
from ..codec.allowed import registry
from ..codec.codec import OBJECT, Codec
from ..codec.framing import ext_frame
from .cutting import FEWEST_IN_RUN, INLINE_BYTES, LARGE_ITEM_BYTES, ROOT_BYTES, ends_run
from .digest import Digester
from .refs import LIST, Pair
from .runs import Batch, Chunks, root_of
from .unchanged import STRETCH, Sequence

__all__ = ["SMALL_BYTES", "cost_of", "extend", "grown"]

# A smaller sequence is far from being too large.
SMALL_BYTES = 1 << 20
# What an item takes in memory beside its bytes, and a sequence beside its items.
_ITEM_BYTES, _SEQUENCE_BYTES = 150, 500
_EMPTY = Sequence(LIST, None, [], b"")
_EMPTY.open_count = 0
# What the root of an open run takes beside its links: a run has fewer than 128 items.
_SHORT_ROOT_BYTES = 4
# Where the one stretch of a short list begins; lists of stretches are replaced, never changed.
_FROM_THE_FIRST = [0]


def grown(before: Any, values: list[Any], codec: Codec, batch: Batch, digester: Digester) -> Sequence | None:
    """The sequence of a list that got some items since it was `before`, in few steps of the native module; or None."""
    old = before if type(before) is Sequence else _EMPTY
    if native is None or codec.foreign is not None or old.kind != LIST or not old.is_exact:
        return None
    parts = old.stretches[0]
    if len(values) > STRETCH or len(parts) > 1 or old.objects is not None:
        return None
    if codec.generation != registry.generation:
        codec.refresh()
    open_run = old.open_links, old.open_count
    found = native.grown(values, old.heads, parts[0], old.ends, old.pairs, *open_run, digester.key, codec.how)
    if found is None:
        return None
    if found is True:
        return old
    heads, body, ends, pairs, links, length, fresh, kept = found
    size = len(body)
    if size > SMALL_BYTES:
        return None
    # What `Sequence.__init__` sets, and then what else there is to set: each once.
    new = object.__new__(Sequence)
    new.kind, new.keys, new.heads, new.stretches, new.size = LIST, None, heads, ([body], _FROM_THE_FIRST), size
    new.ends, new.pairs, new.open_links, new.open_count = ends, pairs, links, length
    new.bounds, new.names, new.are_packed, new.levels = old.bounds, old.names, old.are_packed, old.levels
    new.objects = new.shots = None
    new.rest = new.pause = 0
    new.is_exact, new.kinds = True, old.kinds
    added = values[kept:]
    if not old.kinds.issuperset(map(type, added)):
        new.kinds = old.kinds.union(map(type, added))
    new.cost_bytes = size + _ITEM_BYTES * len(heads) + _SEQUENCE_BYTES
    batch.chunks.update(fresh)
    if new.levels or len(links) + _SHORT_ROOT_BYTES > ROOT_BYTES:
        new.root = root_of(LIST, new.levels, links, length, batch, digester)
    else:
        new.root = links, [LIST, [], length]  # as `root_of` has it
    return new


def extend(
    new: Sequence, old: Sequence, added: bytes, state: Callable[[int], bytes], batch: Batch, digester: Digester
) -> bool:
    """Whether the items that a list got close no run, and it is done; their states are `added`, and one is `state`."""
    heads, at, length, links = new.heads, 0, old.open_count, old.open_links
    has_markers = 0xC4 in added or 0xC5 in added or 0xC6 in added  # of bytes, or of letters of many languages
    if length < 0 or (has_markers and (native is None or native.holds_bytes(added))):
        return False
    ends: list[int] = []
    pairs: list[Pair] = []
    fresh: Chunks = {}
    for place in range(len(old.heads), len(heads)):
        packed = added[at:] if place == len(heads) - 1 else state(place)
        content = ext_frame(OBJECT, heads[place], packed) if heads[place] else packed
        if not INLINE_BYTES <= len(content) <= LARGE_ITEM_BYTES or not added.startswith(packed, at):
            return False
        digest = digester.item(content)
        length, at = length + 1, at + len(packed)
        if length >= FEWEST_IN_RUN and ends_run((digest, None), length):
            return False
        fresh[digest] = b"", content
        links += digest
        ends.append(old.size + at)
        pairs.append((digest, None))
    new.ends, new.pairs, new.open_links, new.open_count = old.ends + ends, old.pairs + pairs, links, length
    new.bounds, new.names, new.are_packed, new.levels = old.bounds, old.names, old.are_packed, old.levels
    batch.chunks.update(fresh)
    new.root = root_of(LIST, new.levels, links, length, batch, digester)
    return True


def cost_of(made: Sequence) -> int:
    """What a sequence takes in memory, about."""
    return made.size + _ITEM_BYTES * len(made.heads) + _SEQUENCE_BYTES
