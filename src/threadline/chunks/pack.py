"""Packs: a closed run of items in one chunk, which compresses well and is decoded in one go.

    0xC1, a byte that begins nothing in msgpack
    the length of the header, 4 bytes
    the header, in msgpack: [heads, which, sizes, keys]
    the items' states, side by side

`heads` are the type headers of the items (codec/codec.py), each once; an empty one means that the state is the whole
item. `which` has a byte per item, the place of its head, and is empty where there is one head only. `sizes` are the
bytes of each state, `keys` the keys of a dict's items, or nil.

An item of a pack that other rows refer to by its digest has a *pointer* for its row: the pack's digest as its link, and
for its content the item's place in the pack, one byte, with a check of eight. `compact` moves whole packs into larger
ones: the row of such a pack is a pointer too (core/retention/gathering.py).
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import ormsgpack

from ..codec.codec import OBJECT
from ..codec.framing import EXT_HEADERS, ext_frame
from ..codec.limits import FEW_BYTES, check_room
from ..errors import Corrupt
from .digest import Digester

__all__ = [
    "LARGEST_PACK",
    "MOST_ITEMS",
    "PACK",
    "Pack",
    "is_pointer",
    "member_of",
    "pack_of",
    "place_in",
    "pointer_to",
    "split_object",
    "unpack_pack",
]

PACK = b"\xc1"
# What is larger is not compressed (codec/envelope.py).
LARGEST_PACK = 1 << 19
_MOST_HEADS = 256
MOST_ITEMS = 128
_POINTER_BYTES = 9
_MISFITS = (ValueError, TypeError, LookupError)
_BYTES, _NUMBERS = frozenset((bytes,)), frozenset((int,))


class Pack:
    """The items of a closed run."""

    __slots__ = ("_ends", "body", "heads", "keys", "sizes", "which")

    def __init__(
        self, heads: list[bytes], which: bytes, sizes: list[int], keys: tuple[str, ...] | None, held: bytes, start: int
    ) -> None:
        self.heads, self.which, self.sizes, self.keys = heads, which, sizes, keys
        self._ends: list[int] | None = None
        # The states side by side, where the chunk has them: most are joined with others, which is copying enough.
        self.body: Any = memoryview(held)[start:]

    def __len__(self) -> int:
        return len(self.sizes)

    def head(self, place: int) -> bytes:
        """The type header of an item; empty where its state is the whole item."""
        return self.heads[self.which[place] if self.which else 0]

    def each_head(self) -> list[bytes]:
        """The type header of each item."""
        heads = self.heads
        return list(map(heads.__getitem__, self.which)) if self.which else heads * len(self.sizes)

    @property
    def ends(self) -> list[int]:
        """Where each state ends."""
        if self._ends is None:
            self._ends = list(accumulate(self.sizes))
        return self._ends

    def content(self, place: int) -> bytes:
        """One item, encoded."""
        ends = self.ends
        state = bytes(self.body[ends[place - 1] if place else 0 : ends[place]])
        head = self.head(place)
        return ext_frame(OBJECT, head, state) if head else state

    def contents(self) -> list[bytes]:
        """All items, encoded."""
        if self.heads == [b""]:
            starts = [0, *self.ends[:-1]]
            return [bytes(self.body[start:end]) for start, end in zip(starts, self.ends, strict=True)]
        return [self.content(place) for place in range(len(self.sizes))]


def pack_of(heads: list[bytes], sizes: list[int], keys: tuple[str, ...] | None, body: bytes) -> bytes | None:
    """The bytes of a pack; `heads` has one for each item. None for too many kinds of items."""
    places = {head: place for place, head in enumerate(dict.fromkeys(heads))}
    if len(places) > _MOST_HEADS:
        return None
    which = bytes(map(places.__getitem__, heads)) if len(places) > 1 else b""
    header = ormsgpack.packb([list(places), which, sizes, keys and list(keys)])
    return b"".join((PACK, len(header).to_bytes(4, "big"), header, body))


def split_object(content: bytes) -> tuple[bytes, bytes]:
    """The type header of an encoded object and its state; of anything else no header, and all of it."""
    start = EXT_HEADERS.get(content[0])
    if start is None or content[start - 1] != OBJECT:
        return b"", content
    end = start + 1 + content[start]
    return content[start:end], content[end:]


def unpack_pack(content: bytes) -> Pack:
    """The pack that a chunk holds; Corrupt where its parts do not fit."""
    if not content.startswith(PACK):
        raise Corrupt("it is no pack")
    start = 5 + int.from_bytes(content[1:5], "big")
    if len(content) > FEW_BYTES:
        check_room(content[5:start])
    try:
        heads, which, sizes, keys = ormsgpack.unpackb(content[5:start])
        if not _fits(heads, which, sizes, keys, len(content) - start):
            raise Corrupt("a pack's header does not fit its items")
    except _MISFITS as error:
        raise Corrupt("a pack's header is damaged") from error
    return Pack(heads, which, sizes, None if keys is None else tuple(keys), content, start)


def pointer_to(digester: Digester, digest: bytes, pack: bytes, place: int) -> tuple[bytes, bytes]:
    """The links and the content of the row of an item that is in a pack."""
    return pack, bytes((place,)) + digester.pointer(digest, pack, place)


def place_in(digester: Digester, digest: bytes, links: bytes, content: bytes) -> int:
    """The place that a pointer names; Corrupt where it is none."""
    if not content or content[1:] != digester.pointer(digest, links, content[0]):
        raise Corrupt("it points to no place in a pack")
    return content[0]


def is_pointer(digester: Digester, digest: bytes, links: bytes, content: bytes) -> bool:
    """Whether the row of this digest points to a place in a pack."""
    return len(content) == _POINTER_BYTES and content[1:] == digester.pointer(digest, links, content[0])


def member_of(digester: Digester, digest: bytes, pack: Pack, place: int) -> bytes | None:
    """The item or the pack of this digest that is at a place in a pack; None where it is not."""
    if place >= len(pack):
        return None
    content = pack.content(place)
    if digester.item(content) == digest:
        return content
    return content if content.startswith(PACK) and digester.node(b"", content) == digest else None


def _fits(heads: Any, which: Any, sizes: Any, keys: Any, length: int) -> bool:
    if type(heads) is not list or type(which) is not bytes or type(sizes) is not list or not heads:
        return False
    if not _BYTES.issuperset(map(type, heads)) or not _NUMBERS.issuperset(map(type, sizes)):
        return False
    # A head stands before each of its items when they are taken out: a long one would become many.
    for head in heads:
        if head and head[0] + 1 != len(head):
            return False
    if not 0 < len(sizes) <= MOST_ITEMS or min(sizes) < 1 or sum(sizes) != length:
        return False
    if len(heads) > 1 and (len(which) != len(sizes) or max(which) >= len(heads)):
        return False
    if len(heads) == 1 and which:
        return False
    if keys is None:
        return True
    return type(keys) is list and len(keys) == len(sizes) and {str}.issuperset(map(type, keys))
