"""References into runs, leaves, nodes and a root.

A run of references ends where its last one says so (chunks/cutting.py). The items of the open run, the last one, are
chunks of their own. A run that closes becomes a leaf of the tree: a *pack* that holds its items itself
(chunks/pack.py), where it closes because items were added behind it. A closed run in which something was changed
becomes a plain leaf that names its items. Those of a pack get rows of their own then, once: changing one of many files
again stores that file alone, and the pack is needed no more.

The names of nodes that no node above holds, and the references of the open run, are the root: part of the checkpoint's
document if it is short, else a chunk of its own. The last items of an open run, up to seven, stand in the document all
the same: seven of eight puts of a growing list store no root.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from itertools import chain
from operator import itemgetter
from typing import Any

import ormsgpack

from ..codec.framing import array_header, map_header
from ..ports.checkpoints import DIGEST_BYTES
from .cutting import BEHIND_ROOT, FEWEST_IN_RUN, INLINE_BYTES, ROOT_BYTES, ends_run
from .digest import Digester
from .pack import LARGEST_PACK, pack_of, pointer_to, split_object
from .refs import LIST, Pair
from .unchanged import Block, Sequence

__all__ = ["Batch", "Chunks", "cut", "root_of"]

# digest -> links, content
Chunks = dict[bytes, tuple[bytes, bytes]]
_links_of, _ref_of = itemgetter(0), itemgetter(1)


class Batch:
    """The chunks of one change: new ones, and those that take the place of stored ones."""

    __slots__ = ("chunks", "known", "moved", "nodes", "plain")

    def __init__(
        self, known: Collection[bytes] = (), chunks: Chunks | None = None, plain: Collection[bytes] = ()
    ) -> None:
        self.chunks: Chunks = {} if chunks is None else chunks
        # Those of them that are no items: packs, other nodes and roots.
        self.nodes: set[bytes] = set()
        self.moved: Chunks = {}
        # The digests that are known to have a row.
        self.known = known
        # Leaves that are plain ones, whatever else would be made of them: a value is rebuilt as it was stored.
        self.plain = plain

    def sent(self) -> Collection[bytes]:
        """The digests of all chunks of the change."""
        return self.chunks.keys() | self.moved.keys() if self.moved else self.chunks

    def add_node(self, name: bytes, links: bytes, content: bytes) -> None:
        self.chunks[name] = (links, content)
        self.nodes.add(name)


def cut(
    new: Sequence, old: Sequence | None, blocks: list[Block], fresh: Chunks, batch: Batch, digester: Digester
) -> None:
    """Cut a sequence into runs, and make the chunks that it needs and `old`, whose chunks are stored, has not.

    `blocks` are the items that both have, `fresh` the chunks of those that are new.
    """
    pairs = new.pairs
    count, start, first, named = len(pairs), 0, 0, 0
    if old is not None and blocks and not blocks[0].start and not blocks[0].before:
        # The runs that lie within the common beginning stay. Behind them no run ended within it.
        first = blocks[0].length
        kept = bisect_right(old.bounds, first)
        new.bounds, new.names, new.are_packed = old.bounds[:kept], old.names[:kept], old.are_packed[:kept]
        start = new.bounds[-1] if kept else 0
        if kept == len(old.bounds):
            new.levels, named = old.levels, kept
    made = None
    for place in range(max(first, start + FEWEST_IN_RUN - 1), count):
        if place - start >= FEWEST_IN_RUN - 1 and ends_run(pairs[place], place + 1 - start):
            made = made or _Cut(new, old, blocks, fresh, batch, digester)
            made.close(start, place + 1)
            start = place + 1
    if named < len(new.names):
        new.levels = _grown([list(level) for level in new.levels], new.names[named:], batch, digester)
    if made is None and (old is None or (first == len(old.pairs) and len(blocks) == 1)):
        # Nothing but new items behind those of before: all of the open run have rows of their own.
        links, entries = _open_run(new, start, fresh, batch.chunks)
    else:
        made = made or _Cut(new, old, blocks, fresh, batch, digester)
        links, entries = made.entries(start, count, batch.chunks)
    if not new.levels and not links:
        whole = _inlined(pairs[start:], new.keys and new.keys[start:])
        if len(whole) < INLINE_BYTES:
            new.root = b"", whole
            return
    if new.keys is None:
        new.open_links = links
        new.open_count = entries if type(entries) is int else -1 if entries.count(None) < len(entries) else len(entries)
    new.root = root_of(new.kind, new.levels, links, entries, batch, digester)


def root_of(kind: int, levels: list[list[bytes]], links: bytes, entries: Any, batch: Batch, digester: Digester) -> Pair:
    """The root over the nodes of closed runs, from the leaves up, and the entries of the open run with their links."""
    if type(entries) is list and kind == LIST and entries.count(None) == len(entries):
        entries = len(entries)
    packed = [kind, [], entries]
    if levels:
        links = b"".join((*chain.from_iterable(reversed(levels)), links))
        packed[1] = list(map(len, reversed(levels)))
    content = ormsgpack.packb(packed)
    if len(links) + len(content) <= ROOT_BYTES:
        return links, packed
    behind = entries % BEHIND_ROOT if type(entries) is int else 0
    if behind:
        # They stand behind the name of the chunk: a list that grows by one item does not need another chunk each time.
        links, last = links[: -DIGEST_BYTES * behind], links[-DIGEST_BYTES * behind :]
        content = ormsgpack.packb([*packed[:2], entries - behind])
    name = digester.node(links, content)
    batch.add_node(name, links, content)
    return (name + last, behind) if behind else (name, True)


def _open_run(new: Sequence, start: int, fresh: Chunks, chunks: Chunks) -> Pair:
    """The links and the references of a run that is open, and holds nothing of a pack."""
    run = new.pairs[start:]
    chunks.update(fresh)
    refs: Any = list(map(_ref_of, run))
    if new.keys is not None:
        refs = [part for pair in zip(new.keys[start:], refs, strict=True) for part in pair]
    return b"".join(map(_links_of, run)), refs


class _Cut:
    """A sequence while it is cut."""

    __slots__ = ("batch", "blocks", "digester", "fresh", "new", "old", "packed", "starts")

    def __init__(
        self,
        new: Sequence,
        old: Sequence | None,
        blocks: list[Block],
        fresh: Chunks,
        batch: Batch,
        digester: Digester,
    ) -> None:
        self.new, self.old, self.blocks, self.fresh = new, old, blocks, fresh
        self.batch, self.digester = batch, digester
        self.starts: list[int] | None = None
        # Items of packs, where closed runs of before are opened: they have no rows, or rows that point to the packs.
        self.packed = set() if old is None or not old.bounds or _keeps_closed(old, blocks) else _in_packs(old)

    def close(self, start: int, end: int) -> None:
        """End a run: it is one of before, or a pack, or a plain leaf."""
        new, batch = self.new, self.batch
        new.bounds.append(end)
        twin = self._twin(start, end)
        if twin is not None:
            name, is_packed = twin
        else:
            packed = None if self._was_closed(start) else _packed(new, start, end)
            if packed is None or batch.plain:
                items: Chunks = {}
                links, content = self._leaf(start, end, items)
                name = self.digester.node(links, content)
                if packed is None or name in batch.plain:
                    batch.chunks.update(items)
                    batch.add_node(name, links, content)
                    packed = None
            if packed is not None:
                name = self._packed_run(start, end, packed)
            is_packed = packed is not None
        new.names.append(name)
        new.are_packed.append(is_packed)

    def _twin(self, start: int, end: int) -> tuple[bytes, bool] | None:
        """The name of the same run of before, and whether it is a pack."""
        if self.old is None or not self.blocks:
            return None
        block = self._block(start)
        if block is None or end > block.start + block.length:
            return None
        was, bounds = start - block.start + block.before, self.old.bounds
        run = bisect_right(bounds, was)
        if run == len(bounds) or (bounds[run - 1] if run else 0) != was or bounds[run] - was != end - start:
            return None
        return self.old.names[run], self.old.are_packed[run]

    def _was_closed(self, start: int) -> bool:
        """Whether a run begins within a closed one of before: something in that was changed."""
        if self.old is None or not self.old.bounds or not self.blocks:
            return False
        at = self._at(start)
        was = 0
        if at >= 0:
            block = self.blocks[at]
            was = block.before + min(start - block.start, block.length)
        return was < self.old.bounds[-1]

    def _block(self, place: int) -> Block | None:
        at = self._at(place)
        block = self.blocks[at] if at >= 0 else None
        return block if block is not None and place < block.start + block.length else None

    def _at(self, place: int) -> int:
        """Which block is the last that begins at a place or before it; -1 for none."""
        if self.starts is None:
            self.starts = [block.start for block in self.blocks]
        return bisect_right(self.starts, place) - 1

    def _packed_run(self, start: int, end: int, packed: bytes) -> bytes:
        batch, digester = self.batch, self.digester
        name = digester.node(b"", packed)
        batch.add_node(name, b"", packed)
        if name not in batch.known:
            for place, (digest, ref) in enumerate(self.new.pairs[start:end]):
                if ref is None and digest in batch.known:
                    batch.moved[digest] = pointer_to(digester, digest, name, place)
        return name

    def _leaf(self, start: int, end: int, items: Chunks) -> Pair:
        """The links and the content of a plain leaf."""
        links, entries = self.entries(start, end, items)
        return links, ormsgpack.packb(entries)

    def entries(self, start: int, end: int, chunks: Chunks) -> Pair:
        """The references of some items, as the root or a leaf has them: each gets a row of its own.

        An item that came with a pack is stored anew, be there a pointer to it or not: nothing may need that pack any
        more, or what was removed from the list could not be forgotten.
        """
        new, fresh, batch = self.new, self.fresh, self.batch
        run = new.pairs[start:end]
        for place, (digest, ref) in enumerate(run, start):
            if ref is not None:
                continue
            if digest in self.packed:
                batch.moved[digest] = b"", new.content(place)
            elif digest in fresh:
                chunks[digest] = fresh[digest]
        refs: Any = [ref for _, ref in run]
        if new.keys is not None:
            refs = [part for pair in zip(new.keys[start:end], refs, strict=True) for part in pair]
        elif refs.count(None) == len(refs):
            refs = len(refs)
        return b"".join([links for links, _ in run]), refs


def _keeps_closed(old: Sequence, blocks: list[Block]) -> bool:
    """Whether what is common covers all closed runs of before, and none of their items stands elsewhere as well."""
    if not blocks or blocks[0].before or blocks[0].length < old.bounds[-1]:
        return False
    return all([block.before >= old.bounds[-1] for block in blocks[1:]])


def _in_packs(old: Sequence) -> set[bytes]:
    """The digests of the items that packs of a sequence hold."""
    found: set[bytes] = set()
    start = 0
    for bound, is_packed in zip(old.bounds, old.are_packed, strict=True):
        if is_packed:
            found.update([digest for digest, ref in old.pairs[start:bound] if ref is None])
        start = bound
    return found


def _packed(new: Sequence, start: int, end: int) -> bytes | None:
    """The pack of a run; None where an item is too large for one."""
    if not all([ref is None or type(ref) is bytes for _, ref in new.pairs[start:end]]):
        return None
    heads, states = [], []
    for place in range(start, end):
        head, state = new.heads[place], new.state(place)
        if not head:
            # However the items were packed: equal runs are equal packs.
            head, state = split_object(state)
        heads.append(head)
        states.append(state)
    sizes = list(map(len, states))
    if sum(sizes) > LARGEST_PACK:
        return None
    return pack_of(heads, sizes, new.keys and new.keys[start:end], b"".join(states))


def _grown(levels: list[list[bytes]], names: list[bytes], batch: Batch, digester: Digester) -> list[list[bytes]]:
    """The levels of a tree after more leaves; a node closes as a run does."""
    for name in names:
        for height in range(len(levels) + 1):
            if height == len(levels):
                levels.append([])
            level = levels[height]
            level.append(name)
            if not ends_run((name, None), len(level)):
                break
            links, content = b"".join(level), ormsgpack.packb(len(level))
            name = digester.node(links, content)
            batch.add_node(name, links, content)
            level.clear()
    return levels


def _inlined(run: list[Pair], keys: tuple[str, ...] | None) -> bytes:
    """A short list or dict of small items as one item."""
    contents = [content for _, content in run]
    if keys is None:
        return array_header(len(contents)) + b"".join(contents)
    parts = [part for key, item in zip(keys, contents, strict=True) for part in (ormsgpack.packb(key), item)]
    return map_header(len(contents)) + b"".join(parts)
