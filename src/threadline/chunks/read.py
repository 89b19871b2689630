"""References back to values: the bytes of what was gathered (chunks/gather.py), joined and decoded.

Bytes are remembered, and never objects, unless sharing was asked for (`share_decoded`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import ormsgpack

from ..base.bounded_cache import BoundedCache
from ..codec.codec import Codec
from ..codec.envelope import Envelope
from ..codec.framing import array_header, map_header
from ..errors import Corrupt, NotFound, ThreadlineError, TooLarge
from ..ports.checkpoints import DIGEST_BYTES, split_links
from .cutting import (
    ENTRY_BYTES,
    FEW_BYTES_LEFT,
    FEW_REPEATED,
    UNCOUNTED_BYTES,
    Budget,
)
from .digest import Digesters
from .gather import TOO_LARGE, Gatherer, Pile, leaves_of_short
from .pack import Pack, split_object
from .refs import LIST, LIST_OF_ONE, MAP, Inline, Node, Pair, Pieces, Ref, Root, Tree, links_of, unpack_ref
from .unchanged import Sequence as Encoded
from .weigh import DEEPEST_VALUE, Key, Part, Scales, check_listed, part_of_node, part_of_ref

__all__ = ["Reader", "reached"]

_SINGLE, _ALONE = object(), object()


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
        self.share_decoded = share_decoded
        self._gatherer = gatherer = Gatherer(digesters, envelope, cache_bytes)
        # Fill a pile with what references need, or with nothing but nodes or roots (chunks/gather.py).
        self.gather, self.gather_nodes = gatherer.gather, gatherer.gather_nodes
        self.gather_roots = gatherer.gather_roots
        self.keep, self.has = gatherer.keep, gatherer.has
        self.decoded: BoundedCache[bytes, Any] = BoundedCache(decoded_bytes)

    def values(self, wanted: Sequence[Pair | Encoded], pile: Pile) -> list[Any]:
        """The values of some references whose chunks are in the pile, and of lists and dicts as they were encoded.

        What goes wrong is not told as `value` does.
        """
        items, found = pile.items, []
        singles: list[bytes] = []
        for one in wanted:
            if isinstance(one, Encoded):
                found.append(self.source_value(one))
                continue
            links, packed = one
            if type(packed) is bytes:
                singles.append(packed)
                found.append(_SINGLE)
            elif packed is None:
                singles.append(items[links])
                found.append(_SINGLE)
            elif packed == LIST_OF_ONE and len(links) == DIGEST_BYTES and not self.share_decoded:
                # What most tasks write: a message, as a list.
                singles.append(items[links])
                found.append(_ALONE)
            elif not self.share_decoded and (leaves := leaves_of_short(packed)) is not None:
                found.append(self._short(links, packed, leaves, pile))
            else:
                found.append(self.value((links, packed), pile))
        if singles:
            # One call for all: most states have several small values.
            decoded = iter(self.codec.decode_items(singles))
            found = [
                next(decoded) if value is _SINGLE else [next(decoded)] if value is _ALONE else value for value in found
            ]
        return found

    def source_value(self, source: Encoded) -> Any:
        """The value of a list or dict, of what it was encoded as."""
        values = self.codec.decode_states(source.heads, source.stretches[0])
        return values if source.keys is None else dict(zip(source.keys, values, strict=True))

    def _short(self, links: bytes, packed: Any, leaves: int, pile: Pile) -> Any:
        """A list or dict of a few packs and items, decoded in one call; nothing within is taken apart."""
        kind, _, entries = packed
        items, digests, keys = pile.items, split_links(links), []
        loose = digests[leaves:] if leaves else digests
        if type(entries) is int:
            contents = list(map(items.__getitem__, loose))
        else:
            following = iter(loose)
            if kind == MAP:
                keys, entries = entries[::2], entries[1::2]
            contents = [items[next(following)] if one is None else one for one in entries]
        if sum(map(len, contents)) > FEW_REPEATED:
            return self.value((links, packed), pile)
        if leaves:
            heads: list[bytes] = []
            bodies: list[bytes] = []
            before: list[str] = []
            for digest in digests[:leaves]:
                pack = pile.nodes[digest].pack
                if pack is None or len(set(digests[:leaves])) < leaves:
                    return self.value((links, packed), pile)  # a plain leaf, or one that stands here twice
                heads += pack.each_head()
                bodies.append(pack.body)
                before += pack.keys or ()
            for content in contents:
                head, state = split_object(content)
                heads.append(head)
                bodies.append(state)
            if sum(map(len, bodies)) > UNCOUNTED_BYTES:
                return self.value((links, packed), pile)
            keys, values = before + keys, self.codec.decode_states(heads, bodies)
        else:
            values = self.codec.decode_items(contents)
        return values if kind == LIST else dict(zip(keys, values, strict=True))

    def value(self, ref: Ref | Pair, pile: Pile) -> Any:
        """The value of a reference whose chunks are in the pile; Corrupt if one is damaged, NotFound lacking a key."""
        try:
            if isinstance(ref, tuple):
                ref = unpack_ref(*ref)
            if self.share_decoded:
                return self._shared(ref, pile, self.budget(ref, pile))
            if type(ref) is Root:
                ref = pile.tree(ref)
            if type(ref) is Tree:
                return self._tree(ref, pile, self.budget(ref, pile))
            content = self.content(ref, pile)
            if len(content) > UNCOUNTED_BYTES:
                Budget().unpack([content])
            return self.codec.decode(content)
        except ThreadlineError:
            raise
        except (ValueError, TypeError, IndexError, AttributeError) as misfit:
            raise Corrupt(f"its chunks do not fit together ({misfit})") from misfit
        except MemoryError:
            raise TooLarge(f"it {TOO_LARGE}") from None
        except (RecursionError, OverflowError) as excess:
            raise Corrupt(f"it takes more than this process has ({type(excess).__name__})") from None
        except KeyError as lacking:
            if pile.is_too_large:
                raise TooLarge(f"it {TOO_LARGE}") from None
            digest = lacking.args[0]
            if type(digest) is not bytes:
                raise Corrupt("its chunks do not fit together") from None
            if digest in pile.locked:
                raise NotFound(pile.locked[digest]) from None
            raise Corrupt(f"the chunk {digest.hex()} {pile.damaged.get(digest, 'is missing')}") from None

    def content(self, ref: Ref | Pair, pile: Pile, budget: Budget | None = None) -> bytes:
        """The encoded bytes of a reference; Corrupt where they are more than any value has."""
        if isinstance(ref, tuple):
            ref = unpack_ref(*ref)
        if type(ref) is bytes:
            return pile.items[ref]
        if isinstance(ref, Inline):
            return ref.content
        budget = budget or self.budget(ref, pile)
        if isinstance(ref, Pieces):
            pieces = [pile.items[digest] for digest in ref.digests]
            budget.take(0, sum(map(len, pieces)))
            return b"".join(pieces)
        if isinstance(ref, Root):
            ref = pile.tree(ref)
        assert isinstance(ref, Tree)
        keys, parts = self._parts(ref, pile, budget)
        if ref.kind == MAP:
            pairs = [part for key, item in zip(keys, parts, strict=True) for part in (ormsgpack.packb(key), item)]
            return map_header(len(parts)) + b"".join(pairs)
        return array_header(len(parts)) + b"".join(parts)

    def budget(self, ref: Ref, pile: Pile) -> Budget:
        """What may be taken for a value: one that repeats too much is Corrupt before it is listed or joined."""
        return Budget(partial(_check_weight, ref, pile))

    def _tree(self, tree: Tree, pile: Pile, budget: Budget) -> Any:
        """The value of a list or dict: the items of packs that follow each other are decoded together."""
        values: list[Any] = []
        if not tree.levels:
            keys, parts = self._parts(tree, pile, budget)
            if budget.bytes_left < FEW_BYTES_LEFT:
                budget.unpack(parts)
            values = self.codec.decode_items(parts)
            return values if tree.kind == LIST else dict(zip(keys, values, strict=True))
        keys = []
        packs: list[Pack] = []
        for node in self._runs(tree, pile, budget):
            keys.extend(node.keys or ())
            if node.pack is not None:
                packs.append(node.pack)
                continue
            values += self._unpacked(packs, budget)
            packs = []
            parts = self._contents(node.refs, pile, budget)
            budget.unpack(parts)
            values += self.codec.decode_items(parts)
        values += self._unpacked(packs, budget)
        return values if tree.kind == LIST else dict(zip(keys, values, strict=True))

    def _unpacked(self, packs: list[Pack], budget: Budget) -> list[Any]:
        if not packs:
            return []
        bodies = [pack.body for pack in packs]
        budget.unpack(bodies)
        return self.codec.decode_states([head for pack in packs for head in pack.each_head()], bodies)

    def _runs(self, tree: Tree, pile: Pile, budget: Budget) -> list[Node]:
        """The leaves of a tree, and its open run as one more; counted, before anything of them is listed."""
        found = leaves(tree, pile, budget)
        budget.take(sum([len(pile.nodes[digest]) for digest in found]) + len(tree.refs), 0)
        nodes = [pile.nodes[digest] for digest in found]
        packed = [len(node.pack.body) for node in nodes if node.pack is not None]
        budget.take(0, sum(packed) + sum([len(key) for node in nodes for key in node.keys or ()]))
        nodes.append(Node(tree.refs, tree.keys))
        return nodes

    def _parts(self, tree: Tree, pile: Pile, budget: Budget) -> tuple[list[str], list[bytes]]:
        """The keys (of a dict) and the encoded bytes of a tree's items."""
        keys: list[str] = []
        parts: list[bytes] = []
        for node in self._runs(tree, pile, budget):
            keys.extend(node.keys or ())
            parts += self._contents(node.refs, pile, budget) if node.pack is None else node.pack.contents()
        return keys, parts

    def _contents(self, refs: Iterable[Ref], pile: Pile, budget: Budget) -> list[bytes]:
        """The encoded bytes of the items that some references name."""
        items = pile.items
        found = [items[ref] if type(ref) is bytes else ref.content if type(ref) is Inline else b"" for ref in refs]
        budget.take(0, sum(map(len, found)))
        # No item is empty: what is, is not an item.
        return [content or self._nested(ref, pile, budget) for ref, content in zip(refs, found, strict=True)]

    def _nested(self, ref: Ref, pile: Pile, budget: Budget) -> bytes:
        """The encoded bytes of a reference within a tree, joined once however often it stands there."""
        if type(ref) is not Tree and type(ref) is not Root:
            return self.content(ref, pile, budget)
        held = budget.joined.get(id(ref))
        if held is None:
            before, light = budget.entries_left, budget.weight
            _go_down(budget)
            content = self.content(ref, pile, budget)
            budget.depth -= 1
            held = budget.joined[id(ref)] = content, before - budget.entries_left, budget.weight - light
        else:
            budget.take(held[1], len(held[0]), held[2])
        return held[0]

    @property
    def used_bytes(self) -> int:
        """What is remembered, as bytes and as references."""
        return self._gatherer.contents.used_bytes + self._gatherer.nodes.used_bytes

    def clear(self) -> None:
        self._gatherer.clear()
        self.decoded.clear()

    def _shared(self, ref: Ref, pile: Pile, budget: Budget) -> Any:
        """The value, made of objects that other values may hold too."""
        if isinstance(ref, Root):
            ref = pile.tree(ref)
        if type(ref) is bytes:
            return self._shared_entries(Node((ref,)), LIST, pile, budget)[0]
        if not isinstance(ref, Tree):
            content = self.content(ref, pile, budget)
            budget.unpack([content])
            return self.codec.decode(content)
        budget.take(len(ref.refs), 0)
        if not ref.levels:
            return self._shared_entries(Node(ref.refs, ref.keys), ref.kind, pile, budget)
        whole: Any = {} if ref.kind == MAP else []
        join = whole.update if ref.kind == MAP else whole.extend
        found = leaves(ref, pile, budget)
        # A leaf that stands here more than once is decoded once, cached or not; its entries count each time.
        parts: dict[bytes, tuple[Any, int, int]] = {}
        for digest in found:
            held = parts[digest] if digest in parts else self.decoded.get(digest)
            if held is None:
                before, light = budget.entries_left, budget.weight
                budget.take(len(pile.nodes[digest]), 0)
                part = self._shared_entries(pile.nodes[digest], ref.kind, pile, budget)
                held = part, before - budget.entries_left, budget.weight - light
                self.decoded.put(digest, held, 100 * len(part) + 200)
            else:
                budget.take(held[1], 0, held[2])
            parts[digest] = held
            join(held[0])
        join(self._shared_entries(Node(ref.refs, ref.keys), ref.kind, pile, budget))
        return whole

    def _shared_entries(self, node: Node, kind: int, pile: Pile, budget: Budget) -> Any:
        if node.pack is not None:
            budget.add(len(node.pack.body))
            budget.unpack([node.pack.body])
            values = self.codec.decode_states(node.pack.each_head(), [node.pack.body])
            return dict(zip(node.keys or (), values, strict=True)) if kind == MAP else values
        refs = [ref for ref in node.refs if type(ref) is bytes]
        # What is decoded once may be held many times: it counts as it does for who decodes it each time.
        budget.add(sum([len(pile.items.get(ref, b"")) for ref in refs]))
        budget.add(sum([len(ref.content) for ref in node.refs if type(ref) is Inline]))
        held = self.decoded.get_many(refs)
        absent = list({ref: None for ref in refs if ref not in held})
        contents = [pile.items[digest] for digest in absent]
        budget.unpack(contents)
        made = list(zip(absent, self.codec.decode_items(contents), map(_decoded_cost, contents), strict=True))
        self.decoded.put_many(made)
        held.update({digest: value for digest, value, _ in made})
        values = [held[ref] if type(ref) is bytes else self._shared_nested(ref, pile, budget) for ref in node.refs]
        return dict(zip(node.keys or (), values, strict=True)) if kind == MAP else values

    def _shared_nested(self, ref: Ref, pile: Pile, budget: Budget) -> Any:
        """The value of a reference within a tree, made once however often it stands there and whatever is cached."""
        held = budget.joined.get(id(ref))
        if held is None:
            before, light = budget.entries_left, budget.weight
            is_tree = type(ref) is Tree or type(ref) is Root
            if is_tree:
                _go_down(budget)
            value = self._shared(ref, pile, budget)
            budget.depth -= is_tree
            held = budget.joined[id(ref)] = value, before - budget.entries_left, budget.weight - light
        else:
            budget.take(held[1], 0, held[2])
        return held[0]


def _decoded_cost(content: bytes) -> int:
    return 2 * len(content) + 500


def _check_weight(ref: Ref, pile: Pile) -> None:
    """Corrupt for a value that repeats more than a writer stores."""

    def part_of(key: Key) -> Part:
        if isinstance(key, bytes):
            return Part(len(pile.items[key]))
        return part_of_node(pile.nodes[key[0]] if key[1] else pile.roots[key[0]], key[1])

    Scales(part_of).check(part_of_ref(ref))


def _go_down(budget: Budget) -> None:
    budget.depth += 1
    if budget.depth > DEEPEST_VALUE:
        raise Corrupt("its chunks are nested deeper than is stored")


def leaves(tree: Tree, pile: Pile, budget: Budget) -> list[bytes]:
    """The digests of a tree's leaf nodes, in order."""
    level: list[bytes] = []
    for names in tree.levels:
        if any([pile.nodes[digest].pack is not None for digest in level]):
            raise Corrupt("its chunks do not fit together: a pack stands above leaves")
        # A node may stand in many places: how many entries there are is known before any are listed.
        budget.add(ENTRY_BYTES * check_listed(level, lambda digest: len(pile.nodes[digest])))
        level = [child for digest in level for child in pile.nodes[digest].refs]
        level += names
    return level


def reached(pairs: Iterable[Pair], pile: Pile) -> set[bytes]:
    """The chunks that some references lead to, as far as they are in the pile."""
    found: set[bytes] = set()
    level = {digest for links, _ in pairs for digest in split_links(links)}
    while level:
        found |= level
        below = [ref for digest in level if digest in pile.nodes for ref in pile.nodes[digest].refs]
        below += [pile.roots[digest] for digest in level if digest in pile.roots]
        # Each chunk once: a forged tree may name one child over and over, level by level.
        level = {digest for ref in below for digest in links_of(ref)} - found
    return found
