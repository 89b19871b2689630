"""References: how a checkpoint, a write or a node says where a value is.

    bytes     a link: the digest of a chunk that holds the item
    Inline    the item itself, when it is small
    Pieces    the digests of chunks that hold consecutive pieces of one large item
    Tree      a list or a dict taken apart: the nodes of its closed runs, and the references of its open run
    Root      a tree whose own description is too long for a row: the digest of the chunk that holds it, and of a list
              the items that were added since

Packed, digests are left out: they stand in the row's `links`, in the order in which the packed references
need them. So walking and collecting read links and never decode anything. A writer handles references only in this
form, as a `Pair` of links and packed reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import ormsgpack

from ..codec.limits import FEW_BYTES, check_room
from ..errors import Corrupt
from ..ports.checkpoints import DIGEST_BYTES, split_links
from .pack import PACK, Pack, unpack_pack

__all__ = [
    "Inline",
    "LIST",
    "LIST_OF_ONE",
    "MAP",
    "Node",
    "PACKED_LIST_OF_ONE",
    "PIECES",
    "Pair",
    "Pieces",
    "Ref",
    "Root",
    "Tree",
    "are_digests",
    "inline_bytes",
    "is_plain",
    "links_of",
    "pairs_of",
    "unpack_node",
    "unpack_ref",
    "unpack_refs",
    "unpack_root",
]

LIST, MAP, PIECES = 0, 1, 2
# The packed reference of a list whose one item is a chunk. Nobody changes it.
LIST_OF_ONE: list[Any] = [LIST, [], 1]
PACKED_LIST_OF_ONE = ormsgpack.packb(LIST_OF_ONE)
# Every level shrinks at least eightfold: no list in this world needs a deeper tree.
_DEEPEST = 24
# Trees within trees: what is nested deeper is written in pieces (chunks/encode.py).
_DEEPEST_NESTED = 130
# A run has no more entries (chunks/cutting.py), so no more stand behind a root.
_MOST_BEHIND = 128
_ONLY_LINKS, _INTEGERS = frozenset((bytes,)), frozenset((int,))
# What taking damaged references apart may raise; inside a generator, StopIteration arrives as RuntimeError.
_MISFITS = (StopIteration, RuntimeError, TypeError, ValueError, LookupError, AttributeError)
# The links of a reference side by side, and the reference without them.
Pair = tuple[bytes, Any]


@dataclass(frozen=True, slots=True)
class Inline:
    """A small item, kept where it is referred to."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Pieces:
    """A large item, cut by content."""

    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Root:
    """A tree whose description is a chunk of its own; of a list, items may follow behind those of its open run."""

    digest: bytes
    behind: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """A list (`keys` is None) or a dict: nodes level by level from the highest, then the entries of the open run."""

    kind: int
    levels: tuple[tuple[bytes, ...], ...]
    refs: tuple[Any, ...]
    keys: tuple[str, ...] | None = None

    @property
    def depth(self) -> int:
        """How many levels of nodes there are."""
        return len(self.levels)

    def nodes(self) -> Iterator[tuple[bytes, int]]:
        """The nodes that it names, in order, with their depth: 1 for leaves."""
        for above, level in enumerate(self.levels):
            for digest in level:
                yield digest, len(self.levels) - above


Ref: TypeAlias = bytes | Inline | Pieces | Tree | Root


@dataclass(frozen=True, slots=True)
class Node:
    """The content of a node: references with their keys in a leaf, digests in a branch."""

    refs: tuple[Any, ...]
    keys: tuple[str, ...] | None = None
    # Whether every reference is known to be a link.
    is_plain: bool = False
    # A leaf that holds its items itself has no references, but a pack.
    pack: Pack | None = None

    def __len__(self) -> int:
        return len(self.refs) if self.pack is None else len(self.pack)


def is_plain(pair: Pair) -> bool:
    """Whether this is an item that is inline, or a chunk."""
    return pair[1] is None or type(pair[1]) is bytes


def unpack_refs(links: bytes, packed: dict[str, Any]) -> dict[str, Ref]:
    """The named references of a row."""
    remaining = iter(split_links(links))
    try:
        if type(packed) is not dict:
            raise ValueError("no references are stored like this")
        return {name: _unpack(ref, remaining) for name, ref in packed.items()}
    except _MISFITS as error:
        raise Corrupt("references do not fit their links") from error


def unpack_ref(links: bytes, packed: Any) -> Ref:
    """One reference of its links and its packed form."""
    return unpack_refs(links, {"": packed})[""]


def pairs_of(links: bytes, packed: dict[str, Any]) -> dict[str, Pair]:
    """The named references of a row, as a writer handles them."""
    pairs, start = {}, 0
    try:
        for name, ref in packed.items():
            end = start + (0 if type(ref) is bytes else DIGEST_BYTES if ref is None else DIGEST_BYTES * _count(ref))
            pairs[name] = links[start:end], ref
            start = end
    except _MISFITS as error:
        raise Corrupt("references do not fit their links") from error
    if start > len(links):
        raise Corrupt("references do not fit their links")
    return pairs


def unpack_root(links: bytes, content: bytes) -> Tree:
    """The tree that a root's chunk describes."""
    if len(content) > FEW_BYTES:
        check_room(content)
    try:
        ref = unpack_ref(links, ormsgpack.unpackb(content))
    except ValueError as error:
        raise Corrupt("a root's references do not fit its links") from error
    if not isinstance(ref, Tree):
        raise Corrupt("a root describes no list and no dict")
    return ref


def unpack_node(links: bytes, content: bytes, kind: int) -> Node:
    """The node that a chunk holds."""
    if content.startswith(PACK):
        return _unpack_packed(content, kind)
    if len(content) > FEW_BYTES:
        check_room(content)
    digests = split_links(links)
    try:
        packed = ormsgpack.unpackb(content)
        if type(packed) is int:
            if packed != len(digests):
                raise Corrupt("a node counts other links than it has")
            return Node(tuple(digests), is_plain=True)
        remaining = iter(digests)
        if kind == LIST:
            return Node(tuple(_unpack(ref, remaining) for ref in packed))
        return Node(tuple(_unpack(ref, remaining) for ref in packed[1::2]), _keys(packed[::2]))
    except _MISFITS as error:
        raise Corrupt("a node's references do not fit its links") from error


def are_digests(refs: tuple[Any, ...]) -> bool:
    """Whether references are all links."""
    return _ONLY_LINKS.issuperset(map(type, refs))


def links_of(ref: Ref) -> Iterator[bytes]:
    """The digests a reference names itself; those further down stand in the nodes it names."""
    if type(ref) is bytes:
        yield ref
    elif isinstance(ref, Pieces):
        yield from ref.digests
    elif isinstance(ref, Root):
        yield ref.digest
        yield from ref.behind
    elif isinstance(ref, Tree):
        for level in ref.levels:
            yield from level
        for child in ref.refs:
            yield from links_of(child)


def inline_bytes(ref: Any) -> int:
    """The bytes of a reference that stand where it stands, and in no chunk."""
    if isinstance(ref, Inline):
        return len(ref.content)
    if isinstance(ref, Tree):
        return sum(map(inline_bytes, ref.refs)) + sum(map(len, ref.keys or ()))
    return 0


def _unpack_packed(content: bytes, kind: int) -> Node:
    pack = unpack_pack(content)
    if (pack.keys is not None) != (kind == MAP):
        raise Corrupt("a pack holds items of another kind")
    return Node((), pack.keys, pack=pack)


def _keys(keys: list[Any]) -> tuple[str, ...]:
    if not {str}.issuperset(map(type, keys)):
        raise ValueError("no dict that is taken apart has such keys")
    return tuple(keys)


def _unpack(packed: Any, links: Iterator[bytes], level: int = 0) -> Ref:
    if packed is None:
        return next(links)
    if type(packed) is bytes:
        return Inline(packed)
    if packed is True:
        return Root(next(links))
    if type(packed) is int and 0 < packed < _MOST_BEHIND:
        return Root(next(links), tuple([next(links) for _ in range(packed)]))
    if type(packed) is not list or level > _DEEPEST_NESTED:
        raise ValueError("no reference is stored like this")
    kind, counts, entries = packed
    if type(kind) is not int or type(entries) not in (int, list):
        raise ValueError("no reference is stored like this")
    if type(entries) is int and entries < 0:
        raise ValueError("no reference has fewer entries than none")
    if kind == PIECES:
        return Pieces(tuple(next(links) for _ in range(entries)))
    _check_levels(kind, counts)
    levels = tuple([tuple([next(links) for _ in range(count)]) for count in counts])
    if kind == LIST:
        if type(entries) is int:
            return Tree(LIST, levels, tuple([next(links) for _ in range(entries)]))
        return Tree(LIST, levels, tuple([_unpack(child, links, level + 1) for child in entries]))
    refs = tuple([_unpack(child, links, level + 1) for child in entries[1::2]])
    return Tree(MAP, levels, refs, _keys(entries[::2]))


def _count(packed: Any, level: int = 0) -> int:
    """How many links a packed reference takes; it raises for what `_unpack` would not take."""
    if packed is None or packed is True:
        return 1
    if type(packed) is bytes:
        return 0
    if type(packed) is int and 0 < packed < _MOST_BEHIND:
        return 1 + packed
    if type(packed) is not list or level > _DEEPEST_NESTED:
        raise ValueError("no reference is stored like this")
    kind, counts, entries = packed
    if type(kind) is not int or type(entries) not in (int, list):
        raise ValueError("no reference is stored like this")
    if type(entries) is int and (entries < 0 or kind == MAP):
        raise ValueError("no reference has such entries")
    if kind == PIECES and type(entries) is int:
        return entries
    _check_levels(kind, counts)
    if type(entries) is int:
        return int(sum(counts)) + entries
    if kind == MAP:
        _keys(entries[::2])
        entries = entries[1::2]
    return int(sum(counts)) + sum([_count(child, level + 1) for child in entries])


def _check_levels(kind: int, counts: Any) -> None:
    if kind not in (LIST, MAP) or type(counts) is not list or len(counts) > _DEEPEST:
        raise ValueError("no reference has this kind or depth")
    if counts and (not _INTEGERS.issuperset(map(type, counts)) or min(counts) < 0):
        raise ValueError("no reference has such levels")
