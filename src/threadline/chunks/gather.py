"""Fetching the chunks that references need, level by level, and verifying each against its name.

What was verified is kept as bytes and references, within a bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from ..base.bounded_cache import BoundedCache
from ..codec.envelope import FEW_EXCESS, MOST_TIMES, Envelope
from ..errors import Corrupt, InvalidRequest, NotFound
from ..ports.checkpoints import DIGEST_BYTES, split_links
from ..ports.objects import why_lost
from .cutting import INLINE_BYTES, LONGEST_PIECE
from .digest import Digester, Digesters
from .pack import Pack, is_pointer, place_in, unpack_pack
from .refs import (
    LIST,
    LIST_OF_ONE,
    MAP,
    Inline,
    Node,
    Pair,
    Pieces,
    Ref,
    Root,
    Tree,
    are_digests,
    unpack_node,
    unpack_ref,
    unpack_root,
)
from .runs import Batch

__all__ = ["ANY_PACK", "Gatherer", "Pile", "TOO_LARGE", "TOO_MUCH_OF_LITTLE", "chunk_place", "leaves_of_short"]

# digests -> digest, links, form and stored bytes of each that is there
FetchChunks = Callable[[list[bytes]], Awaitable["list[tuple[bytes, bytes, int, bytes]]"]]
# What a chunk is wanted as, besides the kinds of trees: the root of a tree, a pack that an item moved into, a pack that
# packs moved into.
_ROOT, ANY_PACK, _OUTER = -1, -2, -3
# A list or dict of so many items, each of a chunk at most, is far from being too large.
_MOST_SHORT = 256
_MOST_LEAVES = 16
TOO_MUCH_OF_LITTLE = f"with what is read beside it, it becomes more than {MOST_TIMES} times what is stored"
TOO_LARGE = "takes more memory than this process can have, with what is read beside it"
# What a chunk may be wanted as whose row is a pointer: a leaf of a list or dict, or a pack that an item moved into.
_MAY_MOVE = frozenset((LIST, MAP, ANY_PACK))
_FLAT, _TEXT = frozenset((bytes, type(None))), frozenset((str,))
# What a remembered item or node takes beside its bytes.
_ITEM_BYTES, _NODE_BYTES = 150, 200


def chunk_place(pool: int, digest: bytes) -> bytes:
    """What a chunk's seal is bound to."""
    return b"chunk:%d:" % pool + digest


class Pile:
    """The verified contents that some references need: items as bytes, nodes and roots as references."""

    __slots__ = ("damaged", "inner", "is_too_large", "items", "locked", "moved", "nodes", "outer", "room", "roots")

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}
        self.nodes: dict[bytes, Node] = {}
        self.roots: dict[bytes, Tree] = {}
        # Items that moved into packs which are not at hand yet: the pack of each, and its place there.
        self.moved: dict[bytes, tuple[bytes, int]] = {}
        # The same of packs, with what each is wanted as; and the packs that these moved into.
        self.inner: dict[bytes, tuple[bytes, int, int]] = {}
        self.outer: dict[bytes, Pack] = {}
        # What could not be had, and why: looking at a value that needs it raises.
        self.damaged: dict[bytes, str] = {}
        # Those of them that are sealed under a key which the ring lacks, and what the ring said.
        self.locked: dict[bytes, str] = {}
        # How many bytes more than a writer makes of what is stored all chunks may still become.
        self.room = FEW_EXCESS
        # Whether there was not enough memory for all of it, and the pile was given up.
        self.is_too_large = False

    def tree(self, ref: Root) -> Tree:
        """The tree that a root describes, with the items that stand behind it; KeyError without its chunk."""
        tree = self.roots[ref.digest]
        if not ref.behind:
            return tree
        if tree.kind != LIST:
            raise Corrupt("items stand behind a root that is not of a list")
        return Tree(LIST, tree.levels, tree.refs + ref.behind)

    def pack(self, digest: bytes) -> Pack | None:
        """A pack that others, or items, moved into; None where there is none of this digest."""
        node = self.nodes.get(digest)
        return self.outer.get(digest) if node is None else node.pack

    def give_up(self) -> None:
        """There is no memory for it: let go of what was gathered. Whoever needs a value of it is told so."""
        for held in (self.items, self.nodes, self.roots, self.moved, self.inner, self.outer):
            held.clear()
        self.is_too_large = True
        self.damaged[b""] = TOO_LARGE


class Gatherer:
    """Fetches and verifies the chunks of one store, and remembers them."""

    def __init__(self, digesters: Digesters, envelope: Envelope, cache_bytes: int) -> None:
        self.digesters = digesters
        self.envelope = envelope
        self.contents: BoundedCache[bytes, bytes] = BoundedCache(cache_bytes // 2)
        self.nodes: BoundedCache[bytes, Node | Tree] = BoundedCache(cache_bytes // 2)

    async def gather(self, pool: int, refs: Iterable[Ref | Pair], fetch: FetchChunks, pile: Pile) -> None:
        """Fill the pile with all the references need: each chunk once, a level's chunks in one query."""
        items, nodes = _needs(refs, pile)
        followed: set[bytes] = set()  # roots whose own needs are noted: many may name one
        try:
            while items or nodes:
                absent = self._from_cache(pile, items, nodes)
                if absent:
                    absent -= pile.roots.keys()
                    self._accept(pool, pile, absent, await fetch(sorted(absent)), nodes)
                items = set()
                below = _below(nodes, pile, followed, items) if nodes else {}
                if pile.moved or pile.inner:
                    self._resolve(pool, pile, below)
                items -= pile.items.keys()
                nodes = below
        except MemoryError:
            pile.give_up()

    def has(self, refs: Iterable[Ref | Pair], pile: Pile) -> bool:
        """Whether all that the references need are items which are remembered; the pile gets them."""
        items, nodes = _needs(refs, pile)
        return not nodes and not self._from_cache(pile, items, nodes)

    async def gather_nodes(
        self, pool: int, nodes: dict[bytes, tuple[int, int]], fetch: FetchChunks, pile: Pile
    ) -> None:
        """Fill the pile with these nodes (digest -> kind, depth) in one query, and with nothing below them.

        Packs become leaves that name their items, so that they can be compared with others.
        """
        wanted = {digest: place for digest, place in nodes.items() if digest not in pile.nodes}
        level = wanted
        while level:
            absent = self._from_cache(pile, set(), level)
            if absent:
                self._accept(pool, pile, absent, await fetch(sorted(absent)), level)
            level = {}
            self._resolve_packs(pool, pile, level)
        for digest in wanted:
            node = pile.nodes.get(digest)
            if node is not None and node.pack is not None:
                pile.nodes[digest] = self._named(pool, node.pack, pile)

    async def gather_roots(self, pool: int, refs: Iterable[Ref], fetch: FetchChunks, pile: Pile) -> None:
        """Fill the pile with the roots of those trees whose description is a chunk, and with nothing below them."""
        roots = {ref.digest: (_ROOT, 0) for ref in refs if isinstance(ref, Root) and ref.digest not in pile.roots}
        if roots:
            await self.gather_nodes(pool, roots, fetch, pile)

    def _named(self, pool: int, pack: Pack, pile: Pile) -> Node:
        """A pack as a leaf that names its items, as plain ones do; the pile gets the items."""
        digester = self.digesters.of(pool)
        refs: list[Ref] = []
        for content in pack.contents():
            if len(content) < INLINE_BYTES:
                refs.append(Inline(content))
            else:
                digest = digester.item(content)
                pile.items[digest] = content
                refs.append(digest)
        return Node(tuple(refs), pack.keys, pack=pack)

    def keep(self, batch: Batch) -> None:
        """Remember the items of a change that is stored: who puts a checkpoint often reads its writes next."""
        nodes, put = batch.nodes, self.contents.put
        if not self.contents.limit_bytes:
            return
        for digest, (_, content) in batch.chunks.items():
            if digest not in nodes:
                put(digest, content, len(content) + _ITEM_BYTES)

    def clear(self) -> None:
        self.contents.clear()
        self.nodes.clear()

    def _from_cache(self, pile: Pile, items: set[bytes], nodes: dict[bytes, tuple[int, int]]) -> set[bytes]:
        """Take what is cached; what remains must be fetched."""
        if not self.contents.limit_bytes:
            return items | nodes.keys()
        held_items = self.contents.get_many(items)
        pile.items.update(held_items)
        if not nodes:
            return items - held_items.keys()
        held_nodes = self.nodes.get_many(nodes.keys())
        for digest, held in held_nodes.items():
            if isinstance(held, Tree):
                pile.roots[digest] = held
            else:
                pile.nodes[digest] = held
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
        digester = self.digesters.of(pool)
        loose: dict[bytes, bytes] = {}
        leaves: dict[bytes, bytes] = {}
        checked: list[tuple[bytes, bytes, bytes, int]] = []
        for digest, links, content in self._opened(pool, pile, fetched, nodes):
            if digest in nodes and nodes[digest][0] == _OUTER:
                self._keep_outer(pile, digest, links, content)
            elif not links:
                (leaves if digest in nodes else loose)[digest] = content
            elif digest not in nodes:
                self._point(pile, digester, digest, links, content)
            elif (kind := nodes[digest][0]) in _MAY_MOVE and is_pointer(digester, digest, links, content):
                pile.inner[digest] = links, content[0], kind
            elif digester.node(links, content) == digest:
                checked.append((digest, links, content, kind))
            else:
                pile.damaged[digest] = "was altered"
        items = _named(loose, digester.items(list(loose.values())), pile)
        pile.items.update(items)
        if items and self.contents.limit_bytes:
            self.contents.add_new(items, _item_cost)
        leaves = _named(leaves, digester.leaves(list(leaves.values())), pile)
        self._keep_nodes(pile, [*checked, *[(each, b"", leaves[each], nodes[each][0]) for each in leaves]])
        if len(fetched) < len(wanted):
            for digest in wanted.difference([row[0] for row in fetched]):
                pile.damaged[digest] = "is missing"

    def _opened(
        self,
        pool: int,
        pile: Pile,
        fetched: list[tuple[bytes, bytes, int, bytes]],
        nodes: dict[bytes, tuple[int, int]],
    ) -> list[tuple[bytes, bytes, bytes]]:
        """The digest, the links and the content of what was fetched, whose digest is not checked yet."""
        opened = []
        is_sealed = self.envelope.ring is not None
        for digest, links, form, content in fetched:
            if type(content) is not bytes or type(links) is not bytes:
                pile.damaged[digest] = why_lost(content) or "is damaged: it holds no bytes"
                continue
            if form or is_sealed:
                try:
                    most = None if digest in nodes else LONGEST_PIECE
                    bound_to = chunk_place(pool, digest) if is_sealed else b""
                    content = self._unwrapped(pile, form, content, bound_to, most)
                except NotFound as locked:
                    pile.damaged[digest] = "cannot be opened"
                    pile.locked[digest] = str(locked)
                    continue
                except (Corrupt, InvalidRequest, TypeError) as damage:
                    pile.damaged[digest] = f"is damaged: {damage}"
                    continue
            opened.append((digest, links, content))
        return opened

    def _unwrapped(self, pile: Pile, form: int, stored: bytes, bound_to: bytes, most: int | None) -> bytes:
        content = self.envelope.unwrap(form, stored, bound_to, most)
        pile.room += min(0, MOST_TIMES * len(stored) - len(content))
        if pile.room < 0:
            raise Corrupt(TOO_MUCH_OF_LITTLE)
        return content

    def _keep_nodes(self, pile: Pile, found: Iterable[tuple[bytes, bytes, bytes, int]]) -> None:
        """Keep nodes whose digests are checked: digest, links, content, what each is wanted as."""
        kept: list[tuple[bytes, Node | Tree, int]] = []
        held: Node | Tree
        for digest, links, content, kind in found:
            try:
                if kind == _ROOT:
                    held = pile.roots[digest] = unpack_root(links, content)
                elif kind == ANY_PACK:
                    pack = unpack_pack(content)
                    held = pile.nodes[digest] = Node((), pack.keys, pack=pack)
                else:
                    held = pile.nodes[digest] = unpack_node(links, content, kind)
            except Corrupt as damage:
                pile.damaged[digest] = f"is damaged: {damage}"
                continue
            kept.append((digest, held, len(links) * 4 + len(content) + _NODE_BYTES))
        if self.nodes.limit_bytes:
            self.nodes.put_many(kept)

    def _keep_outer(self, pile: Pile, digest: bytes, links: bytes, content: bytes) -> None:
        """Keep a pack that others moved into. Its digest is not checked: each pack taken out of it is, by its own."""
        try:
            if links:
                raise Corrupt("it is a pointer itself, or no pack")
            pile.outer[digest] = unpack_pack(content)
        except Corrupt as damage:
            pile.damaged[digest] = f"is damaged: {damage}"

    def _point(self, pile: Pile, digester: Digester, digest: bytes, links: bytes, content: bytes) -> None:
        """Note that an item moved into a pack."""
        try:
            pile.moved[digest] = links, place_in(digester, digest, links, content)
        except Corrupt as damage:
            pile.damaged[digest] = f"is damaged: {damage}"

    def _resolve(self, pool: int, pile: Pile, wanted: dict[bytes, tuple[int, int]]) -> None:
        """Take items that moved out of their packs, or note that their packs are wanted."""
        self._resolve_packs(pool, pile, wanted)
        named = self.digesters.of(pool).item
        found: dict[bytes, bytes] = {}
        for digest, (name, place) in list(pile.moved.items()):
            pack = pile.pack(name)
            if pack is None and name not in pile.damaged and name not in pile.nodes and name not in pile.roots:
                if name not in pile.inner:
                    wanted.setdefault(name, (ANY_PACK, 1))
                continue
            del pile.moved[digest]
            if pack is None and name in pile.damaged:
                pile.damaged[digest] = f"moved into the chunk {name.hex()}, which {pile.damaged[name]}"
                if name in pile.locked:
                    pile.locked[digest] = pile.locked[name]
            elif pack is None or place >= len(pack) or named(content := pack.content(place)) != digest:
                pile.damaged[digest] = "is damaged: it is not where it points to"
            else:
                found[digest] = content
        pile.items.update(found)
        self.contents.add_new(found, _item_cost)

    def _resolve_packs(self, pool: int, pile: Pile, wanted: dict[bytes, tuple[int, int]]) -> None:
        """Take packs that moved out of the packs they are in, or note that those are wanted.

        What a pack moved into is no pointer itself, or pointers could lead in circles.
        """
        contents: dict[bytes, bytes] = {}
        kinds: dict[bytes, int] = {}
        for digest, (name, place, kind) in list(pile.inner.items()):
            outer = pile.pack(name)
            is_known = name in pile.damaged or name in pile.nodes or name in pile.roots or name in pile.inner
            if outer is None and not is_known:
                wanted.setdefault(name, (_OUTER, 1))
                continue
            if outer is None:
                why = pile.damaged.get(name, "is a pointer itself, or no pack")
                pile.damaged[digest] = f"moved into the chunk {name.hex()}, which {why}"
                if name in pile.locked:
                    pile.locked[digest] = pile.locked[name]
            elif place >= len(outer):
                pile.damaged[digest] = "is damaged: it is not where it points to"
            else:
                contents[digest], kinds[digest] = outer.content(place), kind
        for digest in contents.keys() | (pile.inner.keys() & pile.damaged.keys()):
            del pile.inner[digest]
        contents = _named(contents, self.digesters.of(pool).leaves(list(contents.values())), pile)
        self._keep_nodes(pile, [(each, b"", contents[each], kinds[each]) for each in contents])


def _named(contents: dict[bytes, bytes], names: list[bytes], pile: Pile) -> dict[bytes, bytes]:
    """Those of some contents that have the names under which they are stored; the others are noted as damaged."""
    if names == list(contents):
        return contents
    altered = {digest for digest, name in zip(contents, names, strict=True) if digest != name}
    pile.damaged.update(dict.fromkeys(altered, "was altered"))
    return {digest: content for digest, content in contents.items() if digest not in altered}


def _needs(refs: Iterable[Ref | Pair], pile: Pile) -> tuple[set[bytes], dict[bytes, tuple[int, int]]]:
    """The items and the nodes (digest -> kind, depth) that references name."""
    nodes: dict[bytes, tuple[int, int]] = {}
    items: set[bytes] = set()
    for ref in refs:
        if not isinstance(ref, tuple):
            _need(ref, pile, items, nodes)
        elif ref[0]:
            if ref[1] is None or (ref[1] == LIST_OF_ONE and len(ref[0]) == DIGEST_BYTES):
                items.add(ref[0])
            elif (leaves := leaves_of_short(ref[1])) is not None:
                digests = split_links(ref[0])
                if leaves:
                    nodes.update(dict.fromkeys(digests[:leaves], (ref[1][0], 1)))
                    del digests[:leaves]
                items.update(digests)
            else:
                with suppress(Corrupt):  # whoever needs the value will find the same
                    _need(unpack_ref(*ref), pile, items, nodes)
    return items, nodes


def _item_cost(content: bytes) -> int:
    return len(content) + _ITEM_BYTES


def leaves_of_short(packed: Any) -> int | None:
    """How many leaves stand before the items of a list or dict that has few of both, and all inline or links.

    None for any other reference.
    """
    if type(packed) is not list or len(packed) != 3 or type(counts := packed[1]) is not list:
        return None
    kind, _, entries = packed
    if counts and (len(counts) > 1 or type(counts[0]) is not int or not 0 < counts[0] <= _MOST_LEAVES):
        return None
    if type(entries) is int:
        is_flat = kind == LIST and 0 <= entries <= _MOST_SHORT
    elif type(entries) is not list or len(entries) > _MOST_SHORT:
        return None
    elif kind == LIST:
        is_flat = _FLAT.issuperset(map(type, entries))
    else:
        is_flat = (
            kind == MAP and _FLAT.issuperset(map(type, entries[1::2])) and _TEXT.issuperset(map(type, entries[::2]))
        )
    return (counts[0] if counts else 0) if is_flat else None


def _below(
    nodes: dict[bytes, tuple[int, int]], pile: Pile, followed: set[bytes], items: set[bytes]
) -> dict[bytes, tuple[int, int]]:
    """The nodes that those of one level name; `items` gets the items."""
    below: dict[bytes, tuple[int, int]] = {}
    for digest, (kind, depth) in nodes.items():
        if kind == _ROOT:
            if digest in pile.roots and digest not in followed:
                followed.add(digest)
                _need(pile.roots[digest], pile, items, below)
            continue
        node = pile.nodes.get(digest)
        if node is None or node.pack is not None:
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
    return below


def _need(ref: Ref, pile: Pile, items: set[bytes], nodes: dict[bytes, tuple[int, int]]) -> None:
    """Note which chunks a reference needs that are not in the pile yet."""
    if type(ref) is bytes:
        if ref not in pile.items:
            items.add(ref)
    elif isinstance(ref, Pieces):
        items.update(digest for digest in ref.digests if digest not in pile.items)
    elif isinstance(ref, Root):
        nodes[ref.digest] = _ROOT, 0
        items.update(digest for digest in ref.behind if digest not in pile.items)
    elif isinstance(ref, Tree):
        for child in ref.refs:
            _need(child, pile, items, nodes)
        for digest, depth in ref.nodes():
            if digest not in pile.nodes:
                nodes[digest] = ref.kind, depth
