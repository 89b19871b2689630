"""Values part by part: how a checkpoint's channels are made up, and some items of one, without reading the others.

A channel of 100 MB is a tree of chunks. Its branches tell how many leaves there are; leaves are read as far as items
are counted or wanted, and of the items only those that are shown. What is large by itself is shown by its beginning,
and read as a whole when it is asked for alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..base.checkpoint import is_engine_channel
from ..chunks.gather import Pile
from ..chunks.refs import MAP, Pieces, Ref, Root, Tree, inline_bytes, links_of
from ..chunks.weigh import check_listed
from ..core.context import Context
from ..core.history.revisions import At, find
from ..core.lifecycle import living, tags_of
from ..core.paging import chunk_weights
from ..core.rows import Document
from ..errors import Corrupt, InvalidRequest, NotAllowed, NotFound, ThreadlineError
from ..ports.checkpoints import Found, WriteRow
from .values import Damaged

__all__ = ["ChannelOutline", "Large", "Outline", "Part", "read_outline", "read_part"]

# Items of so many leaves are counted; a longer list has an unknown length.
_MOST_LEAVES = 2_000
_LEAVES_AT_ONCE = 64
# An item of more pieces (about 48 KB each) is shown by its beginning.
_MOST_PIECES = 12
# Sizes are told where a pool has no more chunks than this: they are summed over all of them.
_MOST_WEIGHED = 5_000
_PREVIEW_CHARACTERS = 600

Path = Sequence[Any]


class Large:
    """Stands for an item that is large by itself: its beginning, where that is text."""

    def __init__(self, what: str, beginning: str = "") -> None:
        self.what, self.beginning = what, beginning

    def __repr__(self) -> str:
        return f"<{self.what}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOutline:
    """One channel of a checkpoint, without its value."""

    name: str
    version: Any
    is_changed: bool
    # Bytes as they are stored; those that this checkpoint was the first to bring. None where nobody counted.
    stored_bytes: int | None = None
    added_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A checkpoint without its values."""

    thread_id: str
    namespace: str
    id: str
    parent: str | None
    created: float
    step: int | None
    source: str | None
    metadata: dict[str, Any]
    channels: tuple[ChannelOutline, ...]
    tags: tuple[str, ...]
    is_pinned: bool
    is_head: bool
    writes: tuple[WriteRow, ...]
    children: tuple[str, ...]
    damage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some items of a value, or a value that has none."""

    kind: str  # "list", "dict" or "value"
    total: int | None
    start: int
    # Keys of a dict, or indices of a list; one entry under None for a value without items.
    entries: tuple[tuple[Any, Any], ...]

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def has_more(self) -> bool:
        return self.kind != "value" and (self.total is None or self.end < self.total)


async def read_outline(store: Context, thread_id: str, at: At, namespace: str) -> Outline:
    """The checkpoint at a place: what it is made up of, and its pending writes as rows."""
    row = await living(store, thread_id)
    target = await find(store, thread_id, at, namespace)
    found = await store.find(thread_id, *target.key)
    if found is None:
        raise NotFound(f"thread {thread_id!r}: {target.row.id} was deleted meanwhile")
    head = await store.find(thread_id, found.row.namespace, None, with_writes=False)
    marks = [tag for tag in tags_of(row) if tag.key == found.key]
    children = await store.children(thread_id, [found.key])
    try:
        document, damage = store.tools.document(found), None
        metadata = store.tools.metadata(found)
    except (Corrupt, NotAllowed, NotFound) as trouble:
        document, damage, metadata = None, str(trouble), {}
    return Outline(
        thread_id=thread_id,
        namespace=found.row.namespace,
        id=found.row.id,
        parent=found.row.parent,
        created=found.row.created,
        step=found.row.step,
        source=found.row.source,
        metadata=dict(metadata),
        channels=await _channels(store, found, document) if document is not None else (),
        tags=tuple(tag.name for tag in marks if tag.name),
        is_pinned=any(not tag.name for tag in marks),
        is_head=head is not None and head.row.id == found.row.id,
        writes=tuple(found.writes),
        children=tuple(sorted(one.row.id for one in children)),
        damage=damage,
    )


async def _channels(store: Context, found: Found, document: Document) -> tuple[ChannelOutline, ...]:
    before = await _refs_of_parent(store, found)
    refs, versions = document.roots.refs, document.roots.versions
    names = [name for name in refs if not is_engine_channel(name)]
    sizes = await _sizes(store, found.pool, [refs[name] for name in names], list((before or {}).values()))
    return tuple(
        ChannelOutline(
            name=name,
            version=versions.get(name),
            is_changed=before is None or before.get(name) != refs[name],
            stored_bytes=size,
            added_bytes=added,
        )
        for name, (size, added) in zip(names, sizes, strict=True)
    )


async def _refs_of_parent(store: Context, found: Found) -> dict[str, Ref] | None:
    if found.parent is None:
        return None
    parent = await store.find(found.thread_id, *found.parent, with_writes=False)
    try:
        return store.tools.document(parent).roots.refs if parent is not None else None
    except (Corrupt, NotAllowed, NotFound):
        return None


async def _sizes(
    store: Context, pool: int, refs: Sequence[Ref], before: Sequence[Ref]
) -> list[tuple[int | None, int | None]]:
    weights = await store.backend.weights([pool])
    if sum(one.rows for one in weights.chunks) > _MOST_WEIGHED:
        return [(None, None)] * len(refs)
    chunks = await chunk_weights(store.backend, pool)
    seen: set[bytes] = set()
    chunks.below([digest for ref in before for digest in links_of(ref)], seen)
    inside = [inline_bytes(ref) for ref in refs]
    whole = [chunks.below(links_of(ref), set()) for ref in refs]
    added = [chunks.below(links_of(ref), seen) for ref in refs]
    old = set(map(repr, before))
    return [
        (own + size, 0 if repr(ref) in old else own + new)
        for ref, own, size, new in zip(refs, inside, whole, added, strict=True)
    ]


async def read_part(
    store: Context,
    thread_id: str,
    at: At,
    namespace: str,
    channel: str,
    path: Path = (),
    start: int = 0,
    limit: int = 20,
    *,
    whole: bool = False,
) -> Part:
    """Some items of what stands at a path into a channel; a negative start counts from the end.

    An item that cannot be read is `Damaged`, and one that is large by itself is `Large`, unless `whole`.
    """
    found = await find(store, thread_id, at, namespace)
    refs = store.tools.document(found).roots.refs
    if channel not in refs:
        there = ", ".join(name for name in refs if not is_engine_channel(name))
        raise NotFound(f"there is no channel {channel!r} at {found.row.id}; there are {there or 'none'}")
    reading = _Reading(store, found, whole)
    return await reading.part(refs[channel], list(path), start, limit)


class _Reading:
    """One request for a part: what was fetched for it."""

    def __init__(self, store: Context, found: Found, whole: bool) -> None:
        self.store, self.found, self.whole = store, found, whole
        self.pile = Pile()

    async def part(self, ref: Ref, path: list[Any], start: int, limit: int) -> Part:
        ref = await self._described(ref)
        while path and isinstance(ref, Tree):
            ref = await self._described(await self._child(ref, path.pop(0)))
        if isinstance(ref, Tree):
            return await self._items(ref, start, limit)
        value = await self._value(ref)
        for step in path:
            value = _inside(value, step)
        return _of_value(value, start, limit)

    async def _described(self, ref: Ref) -> Ref:
        """A reference, or the tree that it describes in a chunk of its own."""
        if not isinstance(ref, Root):
            return ref
        fetch = partial(self.store.chunks, self.found.pool)
        await self.store.tools.reader.gather_roots(self.found.pool, [ref], fetch, self.pile)
        if ref.digest not in self.pile.roots:
            raise self._trouble(ref.digest)
        return self.pile.tree(ref)

    async def _child(self, tree: Tree, step: Any) -> Ref:
        if tree.kind == MAP:
            for keys, refs in [(leaf[0], leaf[1]) for leaf in await self._leaves(tree, None)]:
                for key, ref in zip(keys, refs, strict=True):
                    if key == step:
                        return ref
        elif type(step) is int:
            at = step
            for _, refs in await self._leaves(tree, None):
                if 0 <= at < len(refs):
                    return refs[at]
                at -= len(refs)
        raise NotFound(f"there is no item {step!r}")

    async def _items(self, tree: Tree, start: int, limit: int) -> Part:
        digests = await self._leaf_digests(tree)
        is_counted = len(digests) <= _MOST_LEAVES
        if start < 0 and not is_counted:
            raise InvalidRequest("this list is too long to be counted from its end: go on from its beginning")
        wanted = None if is_counted else start + limit
        leaves = await self._leaves(tree, wanted)
        keys = [key for leaf_keys, _ in leaves for key in leaf_keys]
        refs = [ref for _, leaf_refs in leaves for ref in leaf_refs]
        total = len(refs) if is_counted else None
        first = max(len(refs) + start, 0) if start < 0 else min(start, len(refs))
        chosen = refs[first : first + limit]
        names: list[Any] = keys[first : first + limit] if tree.kind == MAP else list(range(first, first + len(chosen)))
        values = await self._values(chosen)
        kind = "dict" if tree.kind == MAP else "list"
        return Part(kind=kind, total=total, start=first, entries=tuple(zip(names, values, strict=True)))

    async def _leaf_digests(self, tree: Tree) -> list[bytes]:
        """The leaves of a tree in order; those of the open run stand in the tree itself."""
        level: list[bytes] = []
        for above, names in enumerate(tree.levels):
            if level:
                await self._nodes(level, tree.kind, tree.depth - above + 1)
                check_listed(level, lambda digest: len(self._node(digest).refs))
                level = [child for digest in level for child in self._node(digest).refs]
            level += names
        return level

    async def _leaves(self, tree: Tree, wanted: int | None) -> list[tuple[Sequence[str], Sequence[Ref]]]:
        """The keys and references of the leaves, of so many items at least; all of them for None."""
        digests = await self._leaf_digests(tree)
        if wanted is None and len(digests) > 16 * _MOST_LEAVES:
            raise InvalidRequest("this value has too many items to look one up by its key")
        found: list[tuple[Sequence[str], Sequence[Ref]]] = []
        count = 0
        size = len(digests) if wanted is None else _LEAVES_AT_ONCE
        for first in range(0, len(digests), max(size, 1)):
            part = digests[first : first + size]
            await self._nodes(part, tree.kind, 1)
            for digest in part:
                node = self._node(digest)
                found.append((node.keys or (), node.refs))
                count += len(node.refs)
            if wanted is not None and count >= wanted:
                return found
        found.append((tree.keys or (), tree.refs))
        return found

    async def _nodes(self, digests: Sequence[bytes], kind: int, depth: int) -> None:
        fetch = partial(self.store.chunks, self.found.pool)
        nodes = dict.fromkeys(digests, (kind, depth))
        await self.store.tools.reader.gather_nodes(self.found.pool, nodes, fetch, self.pile)

    def _node(self, digest: bytes) -> Any:
        node = self.pile.nodes.get(digest)
        if node is None:
            raise self._trouble(digest)
        return node

    def _trouble(self, digest: bytes) -> Corrupt:
        return Corrupt(f"the chunk {digest.hex()} {self.pile.damaged.get(digest, 'is missing')}")

    async def _values(self, refs: Sequence[Ref]) -> list[Any]:
        """The values of some items, each whole, cut or damaged by itself."""
        small = [ref for ref in refs if self.whole or not _is_large(ref)]
        fetch = partial(self.store.chunks, self.found.pool)
        await self.store.tools.reader.gather(self.found.pool, small, fetch, self.pile)
        return [await self._value(ref) for ref in refs]

    async def _value(self, ref: Ref) -> Any:
        if not self.whole and _is_large(ref):
            return await self._large(ref)
        reader = self.store.tools.reader
        try:
            await reader.gather(self.found.pool, [ref], partial(self.store.chunks, self.found.pool), self.pile)
            return reader.value(ref, self.pile)
        except (Corrupt, NotAllowed, NotFound) as trouble:
            return Damaged(str(trouble))

    async def _large(self, ref: Ref) -> Large:
        if isinstance(ref, Root):
            return Large("a long list or dict")
        if isinstance(ref, Tree):
            return Large("a long dict" if ref.kind == MAP else "a long list")
        assert isinstance(ref, Pieces)
        first = Pieces(ref.digests[:1])
        reader = self.store.tools.reader
        try:
            await reader.gather(self.found.pool, [first], partial(self.store.chunks, self.found.pool), self.pile)
            beginning = _text_of(reader.content(first, self.pile))
        except (ThreadlineError, KeyError):
            beginning = ""
        return Large(f"about {len(ref.digests) * 48 // 1000 or 1} MB in {len(ref.digests):,} pieces", beginning)


def _is_large(ref: Ref) -> bool:
    if isinstance(ref, Pieces):
        return len(ref.digests) > _MOST_PIECES
    return isinstance(ref, Root) or (isinstance(ref, Tree) and ref.depth > 0)


def _text_of(content: bytes) -> str:
    """The beginning of an encoded text; empty for anything else."""
    sizes = {0xD9: 2, 0xDA: 3, 0xDB: 5}
    skipped = sizes.get(content[0]) if content else None
    if skipped is None:
        return ""
    return content[skipped : skipped + 4 * _PREVIEW_CHARACTERS].decode(errors="ignore")[:_PREVIEW_CHARACTERS]


def _inside(value: Any, step: Any) -> Any:
    """An item of a value that is at hand: of a list, a dict, or the fields of an object."""
    fields = getattr(value, "fields", None)
    held = fields if isinstance(fields, dict) else value
    try:
        if isinstance(held, dict):
            return held[step]
        if isinstance(held, (list, tuple)) and type(step) is int and step >= 0:
            return held[step]
    except (LookupError, TypeError):
        pass
    raise NotFound(f"there is no item {step!r}")


def _of_value(value: Any, start: int, limit: int) -> Part:
    """A part of a value that is at hand."""
    if isinstance(value, (list, tuple)):
        names: list[Any] = list(range(len(value)))
        items, kind = list(value), "list"
    elif isinstance(value, dict):
        names, items, kind = list(value), list(value.values()), "dict"
    else:
        return Part(kind="value", total=1, start=0, entries=((None, value),))
    first = max(len(items) + start, 0) if start < 0 else min(start, len(items))
    chosen = slice(first, first + limit)
    entries = tuple(zip(names[chosen], items[chosen], strict=True))
    return Part(kind=kind, total=len(items), start=first, entries=entries)
