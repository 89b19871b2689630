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
from ..errors import Corrupt, InvalidRequest, ThreadlineError
from ..quiet import quietly
from .cache import BoundedCache
from .digest import Digester
from .refs import LIST, MAP, Inline, Node, Pieces, Ref, Tree, unpack_node

__all__ = ["Pile", "Reader", "chunk_place"]

# digests -> digest, links, form and stored bytes of each that is there
FetchChunks = Callable[[list[bytes]], Awaitable["list[tuple[bytes, bytes, int, bytes]]"]]


def chunk_place(pool: int, digest: bytes) -> bytes:
    """What a chunk's seal is bound to."""
    return b"chunk:%d:" % pool + digest


class Pile:
    """The verified contents that some references need: items as bytes, nodes as references."""

    __slots__ = ("damaged", "items", "nodes")

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}
        self.nodes: dict[bytes, Node] = {}
        # What could not be had, and why: looking at a value that needs it raises.
        self.damaged: dict[bytes, str] = {}


class Reader:
    """Reads the values of one store."""

    def __init__(
        self,
        codec: Codec,
        digester: Digester,
        envelope: Envelope,
        *,
        cache_bytes: int,
        decoded_bytes: int,
        share_decoded: bool = False,
    ) -> None:
        self.codec = codec
        self.digester = digester
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
                self._accept(pool, pile, absent, fetched, nodes)
            below: dict[bytes, tuple[int, int]] = {}
            items = set()
            for digest, (kind, depth) in nodes.items():
                node = pile.nodes.get(digest)
                if node is None:
                    continue
                if depth > 1:
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

    @quietly
    def value(self, ref: Ref, pile: Pile) -> Any:
        """The value of a reference whose chunks are in the pile; Corrupt where one is damaged."""
        try:
            if self.share_decoded:
                return self._shared(ref, pile)
            if type(ref) is Tree and ref.kind != MAP:
                return self.codec.decode_items(self._parts(ref, pile)[1])
            return self.codec.decode(self.content(ref, pile))
        except ThreadlineError:
            raise
        except (ValueError, TypeError, IndexError, AttributeError) as misfit:
            raise Corrupt(f"its chunks do not fit together ({misfit})") from misfit
        except KeyError as lacking:
            digest = lacking.args[0]
            if not isinstance(digest, bytes):
                raise
            raise Corrupt(f"the chunk {digest.hex()} {pile.damaged.get(digest, 'is missing')}") from None

    def content(self, ref: Ref, pile: Pile) -> bytes:
        """The encoded bytes of a reference."""
        if type(ref) is bytes:
            return pile.items[ref]
        if isinstance(ref, Inline):
            return ref.content
        if isinstance(ref, Pieces):
            return b"".join([pile.items[digest] for digest in ref.digests])
        assert isinstance(ref, Tree)
        keys, parts = self._parts(ref, pile)
        if ref.kind == MAP:
            pairs = [part for key, item in zip(keys, parts, strict=True) for part in (ormsgpack.packb(key), item)]
            return map_header(len(parts)) + b"".join(pairs)
        return array_header(len(parts)) + b"".join(parts)

    def _parts(self, tree: Tree, pile: Pile) -> tuple[list[str], list[bytes]]:
        """The keys (of a dict) and the encoded bytes of a tree's items."""
        keys, refs = entries(tree, pile)
        items = pile.items
        return keys, [items[child] if type(child) is bytes else self.content(child, pile) for child in refs]

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

    @quietly
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
        is_sealed, named = self.envelope.ring is not None, self.digester.item
        for digest, links, form, content in fetched:
            if type(content) is not bytes or type(links) is not bytes:
                pile.damaged[digest] = "is damaged: it holds no bytes"
                continue
            if form or is_sealed:
                try:
                    content = self.envelope.unwrap(form, content, chunk_place(pool, digest))
                except (Corrupt, InvalidRequest, TypeError) as damage:
                    pile.damaged[digest] = f"is damaged: {damage}"
                    continue
            if digest not in nodes:
                if named(content) != digest:
                    pile.damaged[digest] = "was altered"
                    continue
                items[digest] = content
            elif self.digester.node(links, content) != digest:
                pile.damaged[digest] = "was altered"
            else:
                pile.nodes[digest] = node = unpack_node(links, content, nodes[digest][0])
                self.nodes.put(digest, node, len(links) * 4 + len(content) + 200)
        pile.items.update(items)
        self.contents.add_new(items, _item_cost)
        if len(fetched) < len(wanted):
            for digest in wanted.difference([row[0] for row in fetched]):
                pile.damaged[digest] = "is missing"

    def _shared(self, ref: Ref, pile: Pile) -> Any:
        """The value, made of objects that other values may hold too."""
        if type(ref) is bytes:
            return self._shared_entries(Node((ref,)), LIST, pile)[0]
        if not isinstance(ref, Tree):
            return self.codec.decode(self.content(ref, pile))
        if ref.depth == 0:
            return self._shared_entries(Node(ref.children, ref.keys), ref.kind, pile)
        whole: Any = {} if ref.kind == MAP else []
        join = whole.update if ref.kind == MAP else whole.extend
        for digest in leaves(ref, pile):
            part = self.decoded.get(digest)
            if part is None:
                part = self._shared_entries(pile.nodes[digest], ref.kind, pile)
                self.decoded.put(digest, part, 100 * len(part) + 200)
            join(part)
        return whole

    def _shared_entries(self, node: Node, kind: int, pile: Pile) -> Any:
        refs = [ref for ref in node.refs if type(ref) is bytes]
        held = self.decoded.get_many(refs)
        absent = list({ref: None for ref in refs if ref not in held})
        contents = [pile.items[digest] for digest in absent]
        made = list(zip(absent, self.codec.decode_items(contents), map(_decoded_cost, contents), strict=True))
        self.decoded.put_many(made)
        held.update({digest: value for digest, value, _ in made})
        values = [held[child] if type(child) is bytes else self._shared(child, pile) for child in node.refs]
        return dict(zip(node.keys or (), values, strict=True)) if kind == MAP else values


def _decoded_cost(content: bytes) -> int:
    return 2 * len(content) + 500


def _item_cost(content: bytes) -> int:
    return len(content) + 150


def leaves(tree: Tree, pile: Pile) -> list[bytes]:
    """The digests of a tree's leaf nodes, in order."""
    level: list[bytes] = list(tree.children)
    for _ in range(tree.depth - 1):
        level = [child for digest in level for child in pile.nodes[digest].refs]
    return level


def entries(tree: Tree, pile: Pile) -> tuple[list[str], list[Ref]]:
    """The keys (of a dict) and the references of all of a tree's items, in order."""
    if tree.depth == 0:
        return list(tree.keys or ()), list(tree.children)
    keys: list[str] = []
    refs: list[Ref] = []
    for digest in leaves(tree, pile):
        node = pile.nodes[digest]
        refs.extend(node.refs)
        keys.extend(node.keys or ())
    return keys, refs


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
