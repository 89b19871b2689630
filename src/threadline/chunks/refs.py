"""References: how a checkpoint, a write or a node says where a value is.

    bytes     a link: the digest of a chunk that holds the item
    Inline    the item itself, when it is small
    Pieces    the digests of chunks that hold consecutive pieces of one large item
    Tree      a list or a dict taken apart: its references (depth 0), or the digests of nodes below

Packed, digests are left out: they stand in the row's `links`, in the order in which the packed references
need them. So walking and collecting read links and never decode anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import ormsgpack

from ..errors import Corrupt
from .digest import split_links

__all__ = [
    "Inline",
    "LIST",
    "MAP",
    "Node",
    "Pieces",
    "Ref",
    "Tree",
    "are_digests",
    "links_of",
    "pack_node",
    "pack_refs",
    "unpack_node",
    "unpack_refs",
]

LIST, MAP, PIECES = 0, 1, 2
# Every level shrinks at least eightfold: no list in this world needs a deeper tree.
_DEEPEST = 24
# Trees within trees: what is nested deeper is written in pieces (chunks/encode.py).
_DEEPEST_NESTED = 130
_ONLY_LINKS = frozenset((bytes,))
# What taking damaged references apart may raise; inside a generator, StopIteration arrives as RuntimeError.
_MISFITS = (StopIteration, RuntimeError, TypeError, ValueError, LookupError, AttributeError)


@dataclass(frozen=True, slots=True)
class Inline:
    """A small item, kept where it is referred to."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Pieces:
    """A large item, cut by content."""

    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A list (`keys` is None) or a dict: references at depth 0, digests of nodes above."""

    kind: int
    depth: int
    children: tuple[Any, ...]
    keys: tuple[str, ...] | None = None


Ref: TypeAlias = bytes | Inline | Pieces | Tree


@dataclass(frozen=True, slots=True)
class Node:
    """The content of a node: references with their keys in a leaf, digests in a branch."""

    refs: tuple[Any, ...]
    keys: tuple[str, ...] | None = None
    # Whether every reference is known to be a link.
    is_plain: bool = False


def pack_refs(refs: dict[str, Ref]) -> tuple[bytes, dict[str, Any]]:
    """The links of some named references, and the references without them, ready for the codec."""
    links: list[bytes] = []
    packed = {name: _pack(ref, links) for name, ref in refs.items()}
    return b"".join(links), packed


def unpack_refs(links: bytes, packed: dict[str, Any]) -> dict[str, Ref]:
    """The named references of a row."""
    remaining = iter(split_links(links))
    try:
        if type(packed) is not dict:
            raise ValueError("no references are stored like this")
        return {name: _unpack(ref, remaining) for name, ref in packed.items()}
    except _MISFITS as error:
        raise Corrupt("references do not fit their links") from error


def pack_node(node: Node, *, is_leaf: bool) -> tuple[bytes, bytes]:
    """The links and the content of a node's chunk."""
    if not is_leaf or (node.keys is None and all(type(ref) is bytes for ref in node.refs)):
        return b"".join(node.refs), ormsgpack.packb(len(node.refs))
    links: list[bytes] = []
    packed = [_pack(ref, links) for ref in node.refs]
    if node.keys is not None:
        packed = [part for pair in zip(node.keys, packed, strict=True) for part in pair]
    return b"".join(links), ormsgpack.packb(packed)


def unpack_node(links: bytes, content: bytes, kind: int) -> Node:
    """The node that a chunk holds."""
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
    elif isinstance(ref, Tree):
        for child in ref.children:
            yield from links_of(child)


def _pack(ref: Ref, links: list[bytes]) -> Any:
    if type(ref) is bytes:
        links.append(ref)
        return None
    if isinstance(ref, Inline):
        return ref.content
    if isinstance(ref, Pieces):
        links.extend(ref.digests)
        return [PIECES, 0, len(ref.digests)]
    assert isinstance(ref, Tree)
    if ref.depth:
        links.extend(ref.children)
        return [ref.kind, ref.depth, len(ref.children)]
    packed: list[Any]
    if _ONLY_LINKS.issuperset(map(type, ref.children)):
        links.extend(ref.children)
        packed = [None] * len(ref.children)
    else:
        packed = [_pack(child, links) for child in ref.children]
    if ref.keys is not None:
        packed = [part for pair in zip(ref.keys, packed, strict=True) for part in pair]
    return [ref.kind, 0, packed]


def _keys(keys: list[Any]) -> tuple[str, ...]:
    if not {str}.issuperset(map(type, keys)):
        raise ValueError("no dict that is taken apart has such keys")
    return tuple(keys)


def _unpack(packed: Any, links: Iterator[bytes], level: int = 0) -> Ref:
    if packed is None:
        return next(links)
    if type(packed) is bytes:
        return Inline(packed)
    if type(packed) is not list or level > _DEEPEST_NESTED:
        raise ValueError("no reference is stored like this")
    kind, depth, children = packed
    if type(kind) is not int or type(depth) is not int or type(children) not in (int, list):
        raise ValueError("no reference is stored like this")
    if kind not in (LIST, MAP, PIECES) or not 0 <= depth <= _DEEPEST:
        raise ValueError("no reference has this kind or depth")
    if kind == PIECES:
        return Pieces(tuple(next(links) for _ in range(children)))
    if depth:
        return Tree(kind, depth, tuple(next(links) for _ in range(children)))
    if kind == LIST:
        return Tree(LIST, 0, tuple([_unpack(child, links, level + 1) for child in children]))
    refs = tuple([_unpack(child, links, level + 1) for child in children[1::2]])
    return Tree(MAP, 0, refs, _keys(children[::2]))
