"""References back to values: fetch what they name level by level, check it, join the bytes, decode.

Every chunk is verified against its digest when it arrives; what was verified is kept as bytes, within a
bound, and never as objects unless sharing was asked for (`share_decoded`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import ormsgpack

from ..codec.envelope import Envelope
from ..codec.framing import array_header, map_header
from ..codec.wire import Codec
from ..errors import Corrupt, InvalidRequest, NotFound, ThreadlineError
from ..quiet import quietly
from .cache import BoundedCache
from .cutting import LONGEST_PIECE
from .digest import Digesters
from .refs import LIST, MAP, Inline, Node, Pieces, Ref, Tree, are_digests, links_of, unpack_node
from .sizes import Budget, repeats_too_much

__all__ = ["Pile", "Reader", "chunk_place", "reached"]

# Fewer chunks than this make too few objects for the garbage collector to come.
_MANY_CHUNKS = 64
# digests -> digest, links, form and stored bytes of each that is there
FetchChunks = Callable[[list[bytes]], Awaitable["list[tuple[bytes, bytes, int, bytes]]"]]


def chunk_place(pool: int, digest: bytes) -> bytes:
    """What a chunk's seal is bound to."""
    return b"chunk:%d:" % pool + digest


class Pile:
    """The verified contents that some references need: items as bytes, nodes as references."""

    __slots__ = ("damaged", "items", "locked", "nodes")

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}
        self.nodes: dict[bytes, Node] = {}
        # What could not be had, and why: looking at a value that needs it raises.
        self.damaged: dict[bytes, str] = {}
        # Those of them that are sealed under a key which the ring lacks, and what the ring said.
        self.locked: dict[bytes, str] = {}


class Reader:
    """Reads the values of one store."""

    def __init__(
        self,
        codec: Codec,
        digesters: Digesters,
        envelope: Envelope,
        *,
        cache_bytes: int,
        decoded_bytes: int,
        share_decoded: bool = False,
    ) -> None:
        self.codec = codec
        self.digesters = digesters
        self.envelope = envelope
        self.share_decoded = share_decoded
        self.contents: BoundedCache[bytes, bytes] = BoundedCache(cache_bytes * 3 // 4)
        self.nodes: BoundedCache[bytes, Node] = BoundedCache(cache_bytes // 4)
        self.decoded: BoundedCache[bytes, Any] = BoundedCache(decoded_bytes)

    async def gather(self, pool: int, refs: Iterable[Ref], fetch: FetchChunks, pile: Pile) -> None:
        """Fill the pile with all the references need: each chunk once, a level's chunks in one query."""
        nodes: dict[bytes, tuple[int, int]] = {}  # digest -> kind, depth
        items: set[bytes] = set()
        for ref in refs:
            _need(ref, pile, items, nodes)
        while items or nodes:
            absent = self._from_cache(pile, items, nodes)
            if absent:
                fetched = await fetch(sorted(absent))
                accept = self._accept if len(fetched) < _MANY_CHUNKS else self._accept_quietly
                accept(pool, pile, absent, fetched, nodes)
            below: dict[bytes, tuple[int, int]] = {}
            items = set()
            for digest, (kind, depth) in nodes.items():
                node = pile.nodes.get(digest)
                if node is None:
                    continue
                if depth > 1:
                    if not are_digests(node.refs):
                        continue  # whoever needs the value will find that its chunks do not fit together
                    below.update((child, (kind, depth - 1)) for child in node.refs if child not in pile.nodes)
                elif node.is_plain:
                    items.update(node.refs)
                else:
                    for ref in node.refs:
                        _need(ref, pile, items, below)
            items -= pile.items.keys()
            nodes = below

    async def gather_nodes(
        self, pool: int, nodes: dict[bytes, tuple[int, int]], fetch: FetchChunks, pile: Pile
    ) -> None:
        """Fill the pile with these nodes (digest -> kind, depth) in one query, and with nothing below them."""
        wanted = {digest: place for digest, place in nodes.items() if digest not in pile.nodes}
        absent = self._from_cache(pile, set(), wanted)
        if absent:
            self._accept(pool, pile, absent, await fetch(sorted(absent)), wanted)

    def value(self, ref: Ref, pile: Pile) -> Any:
        """The value of a reference whose chunks are in the pile; Corrupt if one is damaged, NotFound lacking a key."""
        return self._value(ref, pile) if len(pile.items) < _MANY_CHUNKS else self._quiet_value(ref, pile)

    def _value(self, ref: Ref, pile: Pile) -> Any:
        try:
            if self.share_decoded:
                return self._shared(ref, pile, Budget())
            if type(ref) is Tree and ref.kind != MAP:
                return self.codec.decode_items(self._parts(ref, pile, Budget())[1])
            return self.codec.decode(self.content(ref, pile))
        except ThreadlineError:
            raise
        except (ValueError, TypeError, IndexError, AttributeError) as misfit:
            raise Corrupt(f"its chunks do not fit together ({misfit})") from misfit
        except (MemoryError, RecursionError, OverflowError) as excess:
            raise Corrupt(f"it takes more than this process has ({type(excess).__name__})") from None
        except KeyError as lacking:
            digest = lacking.args[0]
            if type(digest) is not bytes:
                raise Corrupt("its chunks do not fit together") from None
            if digest in pile.locked:
                raise NotFound(pile.locked[digest]) from None
            raise Corrupt(f"the chunk {digest.hex()} {pile.damaged.get(digest, 'is missing')}") from None

    _quiet_value = quietly(_value)

    def content(self, ref: Ref, pile: Pile, budget: Budget | None = None) -> bytes:
        """The encoded bytes of a reference; Corrupt where they are more than any value has."""
        if type(ref) is bytes:
            return pile.items[ref]
        if isinstance(ref, Inline):
            return ref.content
        budget = budget or Budget()
        if isinstance(ref, Pieces):
            pieces = [pile.items[digest] for digest in ref.digests]
            budget.take(0, sum(map(len, pieces)))
            return b"".join(pieces)
        assert isinstance(ref, Tree)
        keys, parts = self._parts(ref, pile, budget)
        if ref.kind == MAP:
            pairs = [part for key, item in zip(keys, parts, strict=True) for part in (ormsgpack.packb(key), item)]
            return map_header(len(parts)) + b"".join(pairs)
        return array_header(len(parts)) + b"".join(parts)

    def _parts(self, tree: Tree, pile: Pile, budget: Budget) -> tuple[list[str], list[bytes]]:
        """The keys (of a dict) and the encoded bytes of a tree's items."""
        keys, refs = entries(tree, pile, budget)
        items = pile.items
        size = sum([len(items[child]) for child in refs if type(child) is bytes])
        budget.take(0 if tree.depth else len(refs), size + sum(map(len, keys)) if keys else size)
        return keys, [items[child] if type(child) is bytes else self.content(child, pile, budget) for child in refs]

    def clear(self) -> None:
        self.contents.clear()
        self.nodes.clear()
        self.decoded.clear()

    def _from_cache(self, pile: Pile, items: set[bytes], nodes: dict[bytes, tuple[int, int]]) -> set[bytes]:
        """Take what is cached; what remains must be fetched."""
        held_items, held_nodes = self.contents.get_many(items), self.nodes.get_many(nodes.keys())
        pile.items.update(held_items)
        pile.nodes.update(held_nodes)
        return (items - held_items.keys()) | (nodes.keys() - held_nodes.keys())

    def _accept(
        self,
        pool: int,
        pile: Pile,
        wanted: set[bytes],
        fetched: list[tuple[bytes, bytes, int, bytes]],
        nodes: dict[bytes, tuple[int, int]],
    ) -> None:
        """Verify what was fetched, and keep it."""
        items: dict[bytes, bytes] = {}
        digester = self.digesters.of(pool)
        is_sealed, named = self.envelope.ring is not None, digester.item
        for digest, links, form, content in fetched:
            if type(content) is not bytes or type(links) is not bytes:
                pile.damaged[digest] = "is damaged: it holds no bytes"
                continue
            if form or is_sealed:
                try:
                    most = None if digest in nodes else LONGEST_PIECE
                    content = self.envelope.unwrap(form, content, chunk_place(pool, digest), most)
                except NotFound as locked:
                    pile.damaged[digest] = "cannot be opened"
                    pile.locked[digest] = str(locked)
                    continue
                except (Corrupt, InvalidRequest, TypeError) as damage:
                    pile.damaged[digest] = f"is damaged: {damage}"
                    continue
            if digest not in nodes:
                if named(content) != digest:
                    pile.damaged[digest] = "was altered"
                    continue
                items[digest] = content
            elif digester.node(links, content) != digest:
                pile.damaged[digest] = "was altered"
            else:
                try:
                    pile.nodes[digest] = node = unpack_node(links, content, nodes[digest][0])
                except Corrupt as damage:
                    pile.damaged[digest] = f"is damaged: {damage}"
                    continue
                self.nodes.put(digest, node, len(links) * 4 + len(content) + 200)
        pile.items.update(items)
        self.contents.add_new(items, _item_cost)
        if len(fetched) < len(wanted):
            for digest in wanted.difference([row[0] for row in fetched]):
                pile.damaged[digest] = "is missing"

    _accept_quietly = quietly(_accept)

    def _shared(self, ref: Ref, pile: Pile, budget: Budget) -> Any:
        """The value, made of objects that other values may hold too."""
        if type(ref) is bytes:
            return self._shared_entries(Node((ref,)), LIST, pile, budget)[0]
        if not isinstance(ref, Tree):
            return self.codec.decode(self.content(ref, pile, budget))
        if ref.depth == 0:
            return self._shared_entries(Node(ref.children, ref.keys), ref.kind, pile, budget)
        whole: Any = {} if ref.kind == MAP else []
        join = whole.update if ref.kind == MAP else whole.extend
        found = leaves(ref, pile)
        _check_repeats(found, pile)
        parts: dict[bytes, Any] = {}  # a leaf that stands here more than once is decoded once, cached or not
        for digest in found:
            part = parts[digest] if digest in parts else self.decoded.get(digest)
            budget.take(len(pile.nodes[digest].refs), 0)
            if part is None:
                part = self._shared_entries(pile.nodes[digest], ref.kind, pile, budget)
                self.decoded.put(digest, part, 100 * len(part) + 200)
            parts[digest] = part
            join(part)
        return whole

    def _shared_entries(self, node: Node, kind: int, pile: Pile, budget: Budget) -> Any:
        refs = [ref for ref in node.refs if type(ref) is bytes]
        held = self.decoded.get_many(refs)
        absent = list({ref: None for ref in refs if ref not in held})
        contents = [pile.items[digest] for digest in absent]
        made = list(zip(absent, self.codec.decode_items(contents), map(_decoded_cost, contents), strict=True))
        self.decoded.put_many(made)
        held.update({digest: value for digest, value, _ in made})
        values = [held[child] if type(child) is bytes else self._shared(child, pile, budget) for child in node.refs]
        return dict(zip(node.keys or (), values, strict=True)) if kind == MAP else values


def _decoded_cost(content: bytes) -> int:
    return 2 * len(content) + 500


def _item_cost(content: bytes) -> int:
    return len(content) + 150


def leaves(tree: Tree, pile: Pile) -> list[bytes]:
    """The digests of a tree's leaf nodes, in order."""
    level: list[bytes] = list(tree.children)
    for _ in range(tree.depth - 1):
        # A node may stand in many places: how many entries there are is known before any are listed.
        Budget().take(sum([len(pile.nodes[digest].refs) for digest in level]), 0)
        level = [child for digest in level for child in pile.nodes[digest].refs]
    return level


def entries(tree: Tree, pile: Pile, budget: Budget) -> tuple[list[str], list[Ref]]:
    """The keys (of a dict) and the references of all of a tree's items, in order."""
    if tree.depth == 0:  # listed already; whoever reads them counts them
        return list(tree.keys or ()), list(tree.children)
    keys: list[str] = []
    refs: list[Ref] = []
    found = leaves(tree, pile)
    budget.take(sum([len(pile.nodes[digest].refs) for digest in found]), 0)
    _check_repeats(found, pile)
    for digest in found:
        node = pile.nodes[digest]
        refs.extend(node.refs)
        keys.extend(node.keys or ())
    return keys, refs


def reached(refs: Iterable[Ref], pile: Pile) -> set[bytes]:
    """The chunks that some references lead to, as far as they are in the pile."""
    found: set[bytes] = set()
    level = {digest for ref in refs for digest in links_of(ref)}
    while level:
        found |= level
        nodes = [pile.nodes[digest] for digest in level if digest in pile.nodes]
        # Each chunk once: a forged tree may name one child over and over, level by level.
        level = {digest for node in nodes for ref in node.refs for digest in links_of(ref)} - found
    return found


def _check_repeats(leaves: list[bytes], pile: Pile) -> None:
    """Corrupt for a tree whose leaves repeat more than a writer stores."""
    distinct = set(leaves)
    if len(distinct) == len(leaves):
        return
    items = pile.items
    sizes = {digest: _size(pile.nodes[digest], items) for digest in distinct}
    if repeats_too_much(leaves, [sizes[digest] for digest in leaves]):
        raise Corrupt("its chunks repeat more than is stored")


def _size(leaf: Node, items: dict[bytes, bytes]) -> int:
    """The bytes of a leaf's items; of nested trees nothing, which are counted when they are read."""
    links = sum([len(items[ref]) for ref in leaf.refs if type(ref) is bytes])
    cut = [items[digest] for ref in leaf.refs if isinstance(ref, Pieces) for digest in ref.digests]
    return links + sum(map(len, cut)) + sum([len(ref.content) for ref in leaf.refs if isinstance(ref, Inline)])


def _need(ref: Ref, pile: Pile, items: set[bytes], nodes: dict[bytes, tuple[int, int]]) -> None:
    """Note which chunks a reference needs that are not in the pile yet."""
    if type(ref) is bytes:
        if ref not in pile.items:
            items.add(ref)
    elif isinstance(ref, Pieces):
        items.update(digest for digest in ref.digests if digest not in pile.items)
    elif isinstance(ref, Tree):
        if ref.depth == 0:
            for child in ref.children:
                _need(child, pile, items, nodes)
        else:
            nodes.update((digest, (ref.kind, ref.depth)) for digest in ref.children if digest not in pile.nodes)
