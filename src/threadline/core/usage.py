"""Where the bytes of a store are: by thread, by channel, or by the type of what is stored.

Each chunk counts once, for the oldest checkpoint of its pool that leads to it. What stands in a row itself counts for
every row. Names in parentheses are no channels and no types: rows, pending writes, the nodes of long lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from ..chunks.gather import Pile
from ..chunks.pack import Pack
from ..chunks.refs import Inline, Ref, Root, Tree, inline_bytes, links_of
from ..codec.structural import Structure
from ..errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from ..ports.checkpoints import Found, split_links
from .context import Context
from .paging import ChunkWeights, chunk_weights, thread_rows
from .requests import check_moment, plain_text
from .rows import Document
from .stats import all_threads, weigh

__all__ = ["Share", "shares"]

_ROWS = "(checkpoint rows)"
_WRITES = "(pending writes)"
_DAMAGED = "(damaged)"
_NODES = "(lists and dicts)"
_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The stored bytes of one thread, channel or type; `count` is of checkpoints, of values, or of items."""

    name: str
    count: int
    stored_bytes: int


@dataclass(slots=True)
class _Tally:
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sizes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, name: str, size: int, count: int = 1) -> None:
        self.counts[name] += count
        self.sizes[name] += size

    def shares(self) -> list[Share]:
        """The shares, largest first."""
        sizes, counts = self.sizes, self.counts
        return _ordered(Share(name=name, count=counts[name], stored_bytes=sizes[name]) for name in counts)


def _ordered(found: Iterable[Share]) -> list[Share]:
    """Shares by size, those of one size by name; without a tuple for each to compare them by."""
    by_name = sorted(found, key=attrgetter("name"))
    by_name.sort(key=attrgetter("stored_bytes"), reverse=True)
    return by_name


async def shares(store: Context, by: str, prefix: str = "", since: float | None = None) -> list[Share]:
    """The shares of all threads, or of those with a prefix; with `since`, of what came with younger checkpoints."""
    prefix = plain_text(prefix, "prefix")
    check_moment(since, "since")
    if by not in ("thread", "channel", "type"):
        raise InvalidRequest(f"bytes are told by thread, channel or type, not by {by!r}")
    rows = await all_threads(store.backend, prefix)
    if by == "thread":
        weights = await weigh(store.backend, [row for row in rows if since is None or row.active >= since])
        return _ordered(
            Share(name=name, count=one.checkpoints, stored_bytes=one.stored_bytes) for name, one in weights.items()
        )
    tally = _Tally()
    pools: dict[int, Any] = {}
    for row in rows:
        if row.pool not in pools:
            make = _Channels if by == "channel" else _Types
            pools = {row.pool: make(store, row.pool, tally, await chunk_weights(store.backend, row.pool))}
        await pools[row.pool].count(row.thread_id, since)
    return tally.shares()


class _Counting(ABC):
    """A pool whose chunks are being counted, each once."""

    def __init__(self, store: Context, pool: int, tally: _Tally, weights: ChunkWeights) -> None:
        self.store, self.pool, self.tally, self.weights = store, pool, tally, weights
        self.seen: set[bytes] = set()

    async def count(self, thread_id: str, since: float | None) -> None:
        """Count what a thread's checkpoints and writes hold, the oldest first."""
        batch: list[tuple[Found, Document, bool]] = []
        for found in reversed(await thread_rows(self.store, thread_id)):
            counts = since is None or found.row.created >= since
            row_bytes = len(found.row.document) + len(found.row.metadata) + len(found.row.links)
            try:
                document = self.store.tools.document(found)
            except (Corrupt, NotAllowed, NotFound):
                if counts:
                    self.tally.add(_DAMAGED, row_bytes)
                continue
            inside = sum(inline_bytes(ref) for ref in document.roots.refs.values())
            if counts:
                self.tally.add(_ROWS, max(row_bytes - inside, 0))
            batch.append((found, document, counts))
            if len(batch) == _BATCH:
                await self.take(batch)
                batch = []
        await self.take(batch)
        if since is None:
            for write in await self.store.thread_writes(thread_id):
                links = split_links(write.links)
                self.tally.add(_WRITES, len(write.data) + len(write.links) + self.weights.below(links, self.seen))

    @abstractmethod
    async def take(self, batch: list[tuple[Found, Document, bool]]) -> None:
        """Count what some checkpoints hold."""

    def weight(self, digest: bytes) -> int:
        links, size = self.weights.get(digest, (b"", 0))
        return size + len(links)


class _Channels(_Counting):
    """Bytes by channel."""

    async def take(self, batch: list[tuple[Found, Document, bool]]) -> None:
        for _, document, counts in batch:
            for name, ref in document.roots.refs.items():
                new = self.weights.below(links_of(ref), self.seen)
                inside = inline_bytes(ref)
                if counts and (new or inside):
                    self.tally.add(name, new + inside)


class _Types(_Counting):
    """Bytes by the type of items; a list or dict that is stored item by item counts as its items."""

    async def take(self, batch: list[tuple[Found, Document, bool]]) -> None:
        for wanted in (False, True):
            refs = [ref for _, document, counts in batch if counts is wanted for ref in document.roots.refs.values()]
            if refs:
                await self._look(refs, wanted)

    async def _look(self, refs: Iterable[Ref], counts: bool) -> None:
        reader, fetch = self.store.tools.reader, partial(self.store.chunks, self.pool)
        level: dict[bytes, tuple[int, int]] = {}
        items: list[Ref] = []
        roots = Pile()
        await reader.gather_roots(self.pool, refs, fetch, roots)
        for ref in refs:
            if isinstance(ref, Root):
                for behind in ref.behind:
                    self._expand(behind, level, items.append)
                if ref.digest in self.seen:
                    continue
                self.seen.add(ref.digest)
                if counts:
                    self.tally.add(_NODES, self.weight(ref.digest))
                ref = roots.roots.get(ref.digest, ref)
            self._expand(ref, level, items.append)
        while level:
            pile, below = Pile(), {}
            await reader.gather_nodes(self.pool, level, fetch, pile)
            for digest, (kind, depth) in level.items():
                node = pile.nodes.get(digest)
                if counts and (node is None or node.pack is None):
                    self.tally.add(_NODES, self.weight(digest))
                if node is not None and depth > 1:
                    new = [child for child in node.refs if isinstance(child, bytes) and child not in self.seen]
                    self.seen.update(new)
                    below.update(dict.fromkeys(new, (kind, depth - 1)))
                elif node is not None and node.pack is not None:
                    if counts:
                        self._count_pack(node.pack, self.weight(digest))
                elif node is not None:
                    for ref in node.refs:
                        self._expand(ref, below, items.append)
            level = below
        if counts:
            pile = Pile()
            await reader.gather(self.pool, items, fetch, pile)
            for ref in items:
                self.tally.add(self._type_of(ref, pile), inline_bytes(ref) + sum(map(self.weight, links_of(ref))))

    def _count_pack(self, pack: Pack, stored_bytes: int) -> None:
        """Count the items of a pack, each for its part of what is stored."""
        contents = pack.contents()
        whole, left = sum(map(len, contents)), stored_bytes
        for place, content in enumerate(contents, 1):
            share = left if place == len(contents) else stored_bytes * len(content) // whole
            left -= share
            self.tally.add(self._type_of(Inline(content), Pile()), share)

    def _expand(self, ref: Ref, level: dict[bytes, tuple[int, int]], take: Callable[[Ref], None]) -> None:
        """Take the items of a reference that were not seen before, and note the nodes that lead to more."""
        if isinstance(ref, Tree):
            for child in ref.refs:
                self._expand(child, level, take)
            new = [(digest, depth) for digest, depth in ref.nodes() if digest not in self.seen]
            self.seen.update(digest for digest, _ in new)
            level.update((digest, (ref.kind, depth)) for digest, depth in new)
            return
        named = set(links_of(ref))
        if isinstance(ref, Inline) or not named <= self.seen:
            self.seen |= named
            take(ref)

    def _type_of(self, ref: Ref, pile: Pile) -> str:
        try:
            value = self.store.tools.reader.value(ref, pile)
        except (Corrupt, NotFound):
            return _DAMAGED
        except NotAllowed:
            return "(a type that is not known here)"
        if isinstance(value, Structure):
            return value.type_name
        kind = type(value)
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}:{kind.__qualname__}"
