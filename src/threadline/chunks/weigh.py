"""How much a value becomes of its chunks, told before anything of it is put together.

Chunks name each other, so a few of them may become any number of bytes: a node that names one child 128 times, five
levels high, or pieces that are all the same one. A value *weighs* the bytes of its items and 8 for each entry, its own
and those of nodes: each chunk is counted once, with what it names as often as it does. What its distinct chunks *hold*
is the same with each of them once. A value that weighs too much for what its chunks hold is stored by no writer in this
form (chunks/undivided.py), and Corrupt to a reader and to a check of the store alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import ormsgpack

from ..errors import Corrupt, NotSerializable
from .cutting import ENTRY_BYTES, FEW_REPEATED, MANY_REPEATED, Budget, becomes_too_much
from .pack import PACK, unpack_pack
from .refs import LIST, MAP, Inline, Node, Pair, Pieces, Ref, Root, Tree, unpack_node, unpack_ref, unpack_root

__all__ = ["DEEPEST_VALUE", "Key", "Part", "Scales", "check_chunks", "check_listed", "part_of_node", "part_of_ref"]

# An item by its digest; a node by its digest, its depth (0 for a root) and how many trees it stands within, counted
# from the chunk that names it.
Key: TypeAlias = "bytes | tuple[bytes, int, int]"
# Trees within trees: a writer cuts what is nested deeper than 64 levels into pieces.
DEEPEST_VALUE = 72
# No value has as many of anything; without an end the numbers themselves would fill the memory.
_MANY = 1 << 60


class Part(NamedTuple):
    """Bytes held by a reference or chunk, its entries, and the digests it names, each as often as it names it."""

    size: int
    # Of lists and dicts; and those of nodes, which are no entries of the value.
    entries: int = 0
    listed: int = 0
    # How many trees are nested in it itself.
    nested: int = 0
    named: tuple[Key, ...] = ()

    @property
    def weight(self) -> int:
        return self.size + ENTRY_BYTES * (self.entries + self.listed)


def check_listed(nodes: Sequence[bytes], length_of: Callable[[bytes], int]) -> int:
    """How many entries some nodes of one level have, each as often as it stands there; Corrupt for too many to list."""
    entries = sum(map(length_of, nodes))
    Budget().take(entries, 0)
    if entries > MANY_REPEATED and entries - sum(map(length_of, set(nodes))) > MANY_REPEATED:
        raise Corrupt("its chunks repeat more than is stored")
    return entries


def check_chunks(pair: Pair, chunks: Mapping[bytes, tuple[bytes, bytes]], path: str) -> None:
    """NotSerializable for a value that a reader of these chunks, which are all of it, would refuse."""

    def part_of(key: Key) -> Part:
        if isinstance(key, bytes):
            return Part(len(chunks[key][1]))
        links, content = chunks[key[0]]
        return part_of_node(_node_of(links, content) if key[1] else unpack_root(links, content), key[1])

    try:
        Scales(part_of).check(part_of_ref(unpack_ref(*pair)))
    except Corrupt:
        raise NotSerializable(
            f"it repeats more than {FEW_REPEATED:,} bytes of itself: store what is repeated once, or as an array",
            path=path,
        ) from None


def _node_of(links: bytes, content: bytes) -> Node:
    """The node that a writer made, of a list or of a dict."""
    if content.startswith(PACK):
        pack = unpack_pack(content)
        return Node((), pack.keys, pack=pack)
    packed = ormsgpack.unpackb(content)
    return unpack_node(links, content, MAP if type(packed) is list and type(packed[0]) is str else LIST)


def part_of_ref(ref: Ref) -> Part:
    """What a reference holds and names."""
    return _collected([ref], 0)


def part_of_node(node: Node | Tree, depth: int) -> Part:
    """What a node of some depth, or a root, holds and names."""
    if isinstance(node, Tree):
        return part_of_ref(node)
    if node.pack is not None:
        return Part(len(node.pack.body), len(node.pack))
    if depth > 1:
        return Part(0, 0, len(node.refs), 0, tuple([(digest, depth - 1, 0) for digest in node.refs]))
    if node.is_plain:
        return Part(0, len(node.refs), 0, 0, node.refs)
    part = _collected(node.refs, 1)
    return part._replace(entries=part.entries + len(node.refs))


def _collected(refs: Iterable[Any], up: int) -> Part:
    """What some references hold and name that stand within so many trees."""
    size, entries, nested = 0, 0, 0
    named: list[Key] = []
    waiting = [(ref, up) for ref in refs]
    while waiting:
        ref, up = waiting.pop()
        if type(ref) is bytes:
            named.append(ref)
        elif isinstance(ref, Inline):
            size += len(ref.content)
        elif isinstance(ref, Pieces):
            named += ref.digests
        elif isinstance(ref, Root):
            named += [(ref.digest, 0, up), *ref.behind]
            entries, nested = entries + len(ref.behind), max(nested, up)
        elif isinstance(ref, Tree):
            named += [(digest, depth, up) for digest, depth in ref.nodes()]
            waiting += [(child, up + 1) for child in ref.refs]
            entries, nested = entries + len(ref.refs), max(nested, up)
    return Part(size, entries, 0, nested, tuple(named))


class Scales:
    """Weighs values whose chunks are known by a function, and remembers what the chunks weigh."""

    __slots__ = ("_known", "_part_of")

    def __init__(self, part_of: Callable[[Key], Part]) -> None:
        self._part_of = part_of
        # Each with all below it, which are named no more.
        self._known: dict[Key, Part] = {}

    def check(self, part: Part) -> None:
        """Corrupt for a value that weighs too much for what its distinct chunks hold, or is nested too deep."""
        waiting: list[tuple[Key, Part]] = []
        self._add_unknown(part, waiting)
        while waiting:  # and no recursion: roots that name roots are as deep as somebody forged them
            key, below = waiting[-1]
            if key not in self._known and not self._add_unknown(below, waiting):
                self._known[key] = self._sum(below)
            if waiting[-1][0] == key:
                waiting.pop()
        whole = self._sum(part)
        if whole.nested > DEEPEST_VALUE:
            raise Corrupt("its chunks are nested deeper than is stored")
        Budget().take(whole.entries, whole.size)
        if whole.weight > FEW_REPEATED and becomes_too_much(whole.weight, self._held(part)):
            raise Corrupt("its chunks repeat more than is stored")

    def _add_unknown(self, part: Part, waiting: list[tuple[Key, Part]]) -> bool:
        """Note what a part names that was not weighed; items are weighed at once. Whether there was any."""
        known, count = self._known, len(waiting)
        for key in dict.fromkeys(part.named):
            if key in known:
                continue
            below = self._part_of(key)
            if below.named:
                waiting.append((key, below))
            else:
                known[key] = below
        return len(waiting) > count

    def _sum(self, part: Part) -> Part:
        known = self._known
        size, entries, listed, nested, _ = part
        for key in part.named:
            below = known[key]
            size, entries, listed = size + below.size, entries + below.entries, listed + below.listed
            if not isinstance(key, bytes):
                nested = max(nested, below.nested + key[2])
        return Part(min(size, _MANY), min(entries, _MANY), min(listed, _MANY), nested)

    def _held(self, part: Part) -> int:
        """What the distinct chunks below a part hold."""
        held, level = part.weight, [part]
        met: set[bytes] = set()
        while level:
            parts, level = level, []
            for key in dict.fromkeys([key for one in parts for key in one.named]):
                digest = key if isinstance(key, bytes) else key[0]
                if digest not in met:
                    met.add(digest)
                    below = self._part_of(key)
                    held += below.weight
                    level.append(below)
        return held
