"""Rebuilding damaged channels from their history.

A channel's value is its parent's value with the parent's pending writes reduced into it, in order. The
damaged checkpoint still says under which digests the value was stored, so a rebuilt value can be proven to
be the very one that was lost: unless told otherwise, nothing else is accepted. Parents come before children,
so that a run of damaged checkpoints heals from its first good ancestor. Links that are still there tell which leaves
were plain ones. Where they are lost, a value in which something was changed is cut otherwise, and is not the very one.

A damaged chunk is still there, and inserting its digest again would change nothing: its bytes are replaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ...chunks.encode import Batch, Chunks
from ...chunks.gather import Pile, chunk_place
from ...chunks.refs import Pair, Ref
from ...errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotSerializable
from ...ports.checkpoints import Change, CheckpointKey, CheckpointRow, ChunkRow, Found, Stale
from ...ports.rules import mark
from ..context import Context, Tools
from ..history.graph import Parents, parents_first
from ..paging import chunk_weights
from ..rows import ABSENT, Document, Roots, draft, write_row
from .fsck import judge
from .report import Damage, check_damages
from .verify import Walk, batches, subject_of, subject_of_write

__all__ = ["Reducer", "rebuildable", "repair"]

Reducer = Callable[[Any, Any], Any]
_BATCH = 256
_NOTHING = object()


async def repair(
    store: Context,
    damages: Sequence[Damage],
    reducers: Any,
    now: float,
    *,
    exact: bool = True,
) -> list[Damage]:
    """Rebuild damaged channels; returns what is still damaged, each with the reason.

    With `exact=False` a rebuilt value that differs from the lost one is stored all the same: reducers that
    give random ids never make the same value twice. What vanished meanwhile is not damaged any more.
    """
    groups: dict[tuple[str, str], dict[str, list[Damage]]] = defaultdict(lambda: defaultdict(list))
    if not isinstance(reducers, Mapping) or not all(callable(reducer) for reducer in reducers.values()):
        raise InvalidRequest("reducers is a dict of functions by channel: value, write -> value")
    for damage in check_damages(damages):
        groups[damage.thread_id, damage.namespace][damage.checkpoint_id].append(damage)
    left: list[Damage] = []
    for (thread_id, namespace), by_id in groups.items():
        thread = await store.backend.thread(thread_id)
        if thread is None or thread.status == "deleted":
            continue
        healer = _Healer(Walk(store, thread.pool), reducers, now, exact)
        keys = [CheckpointKey(namespace, checkpoint_id) for checkpoint_id in by_id]
        for key in parents_first(await _parents(store, thread_id, keys)):
            left += await healer.heal(thread_id, key, by_id[key.id])
        if healer.replaced:
            # A damaged chunk that nothing needs any more would be taken for stored by a later put.
            pointers = await _pointers_to(store, thread.pool, healer.replaced)
            await store.backend.collect(thread.pool, [*sorted(pointers), *sorted(healer.replaced - pointers)], set())
    # Roots and known chunks may be those from before.
    store.tools.forget()
    return left


async def rebuildable(store: Context, damages: Sequence[Damage]) -> list[Damage]:
    """Those of all damages of some threads from which a repair can begin: what they are rebuilt from is not damaged."""
    bad = {(one.thread_id, one.namespace, one.checkpoint_id, one.channel) for one in damages}
    found: list[Damage] = []
    for damage in damages:
        row = await store.find(*_place(damage), with_writes=False) if damage.channel is not None else None
        parent = row.row.parent if row is not None else None
        if parent is None or (damage.thread_id, damage.namespace, parent, damage.channel) in bad:
            continue
        before = await store.find(damage.thread_id, damage.namespace, parent)
        if before is not None and any(write.channel == damage.channel for write in before.writes):
            found.append(damage)
    return found


def _place(damage: Damage) -> tuple[str, str, str]:
    return damage.thread_id, damage.namespace, damage.checkpoint_id


class _Lost(NamedTuple):
    """A value that cannot be read: where it is stored, and what is known of the forms that its leaves have.

    A list or dict says not how it came about, and a run of it may be a pack or a plain leaf (chunks/runs.py).
    """

    pair: Pair
    # Names that leaves may have: of chunks that the value leads to, and where some are gone, of all in the pool.
    names: list[set[bytes]]

    def batches(self) -> Iterator[Batch]:
        """What to encode it into, likeliest first."""
        for names in self.names:
            yield Batch(plain=names)


class _Encoded(NamedTuple):
    """A value that was rebuilt."""

    pair: Pair
    chunks: Chunks


@dataclass(slots=True)
class _Healer:
    """Repairs one thread."""

    walk: Walk
    reducers: Mapping[str, Reducer]
    now: float
    exact: bool
    # Damaged chunks of values that were replaced by others.
    replaced: set[bytes] = field(default_factory=set)

    async def heal(self, thread_id: str, key: CheckpointKey, named: list[Damage]) -> list[Damage]:
        """Rebuild what can be of one checkpoint; returns what cannot."""
        found = await self.walk.store.find(thread_id, *key)
        if found is None or found.pool != self.walk.pool:
            return []  # deleted since the report, or with its whole thread begun anew
        channels = [damage for damage in named if damage.channel is not None]
        left = [_still(damage, "only a channel's value can be rebuilt") for damage in named if damage.channel is None]
        try:
            document = self.walk.tools.document(found)
        except (Corrupt, NotAllowed):
            return left + [_still(damage, "its checkpoint's document cannot be read") for damage in channels]
        rebuilt: dict[str, _Encoded] = {}
        for damage in channels:
            why = await self._rebuild(found, document, damage, rebuilt)
            if why:
                left.append(_still(damage, why))
        if rebuilt:
            why = await self._store(found, document, rebuilt)
            left += [_still(damage, why) for damage in channels if why and damage.channel in rebuilt]
        return left

    async def _rebuild(self, found: Found, document: Document, damage: Damage, rebuilt: dict[str, _Encoded]) -> str:
        """Rebuild one channel into `rebuilt`; returns why not, or nothing where it is sound."""
        channel = damage.channel
        assert channel is not None
        ref = document.roots.refs.get(channel)
        if ref is None or channel in rebuilt or not await self._is_troubled(ref):
            # It is a write that is damaged, or it was healed with its parent.
            return "a pending write cannot be rebuilt" if await self._has_bad_write(found, channel) else ""
        parent = await self._parent(found)
        if isinstance(parent, str):
            return parent
        row, before = parent
        tried = "its parent has no writes of the channel any more"
        try:
            lost = await self._lost(document.roots.pairs[channel])
            for encoded in await self._attempts(row, before, document, channel, lost):
                if isinstance(encoded, str):
                    tried = encoded
                elif encoded.pair == lost.pair or not self.exact:
                    rebuilt[channel] = encoded
                    return ""
                else:
                    tried = "what was rebuilt is not the value that was lost; exact=False stores it all the same"
        except (Corrupt, NotAllowed) as error:
            return f"its parent's value or writes cannot be read ({type(error).__name__})"
        return tried

    async def _parent(self, found: Found) -> tuple[Found, Document] | str:
        parent = found.row.parent
        row = await self.walk.store.find(found.thread_id, found.row.namespace, parent) if parent is not None else None
        if row is None:
            return "its parent is gone" if parent is not None else "it has no parent"
        try:
            return row, self.walk.tools.document(row)
        except (Corrupt, NotAllowed):
            return "its parent's document cannot be read"

    async def _attempts(
        self, parent: Found, before: Document, document: Document, channel: str, lost: _Lost
    ) -> Iterator[_Encoded | str]:
        """The values that the channel may have had, encoded, each tried when it is asked for."""
        refs = [ref for write in parent.writes if write.channel == channel for ref in self._write_refs(parent, write)]
        seed = before.roots.refs.get(channel)
        if await self._is_troubled(*refs, *([seed] if seed is not None else [])):
            raise Corrupt("what it would be rebuilt from is damaged")
        pile = Pile()
        known = refs if seed is None else [seed, *refs]
        fetch = partial(self.walk.store.chunks, parent.pool)
        await self.walk.tools.reader.gather(parent.pool, known, fetch, pile)
        # Decoded anew for each attempt: reducers may change what they are given.
        read = partial(_decode, self.walk.tools, pile)
        if seed is not None and before.roots.versions.get(channel) == document.roots.versions.get(channel):
            return iter([self._encoded(channel, lost, lambda: read(seed))])
        if not refs:
            return iter([])
        reducer = self.reducers.get(channel)
        if reducer is None:
            return iter(["there is no reducer for the channel"])
        starts: list[Callable[[], Any]] = [lambda: read(seed)] if seed is not None else _starts(read(refs[0]))
        return (self._encoded(channel, lost, partial(_reduced, reducer, start, refs, read)) for start in starts)

    def _write_refs(self, parent: Found, write: Any) -> list[Ref]:
        subject = subject_of_write(self.walk.tools, parent.thread_id, write)
        if subject.faults:
            raise Corrupt(subject.faults[0][1])
        return [ref for _, _, ref in subject.values]

    async def _lost(self, pair: Pair) -> _Lost:
        """What is known of a value that was lost."""
        named, are_there = await self._chunks_below(pair[0])
        names = [named]
        if not are_there:
            names.append(named.union(await chunk_weights(self.walk.store.backend, self.walk.pool)))
        return _Lost(pair, names)

    async def _chunks_below(self, links: bytes) -> tuple[set[bytes], bool]:
        """The digests that some links lead to, and whether all of them have rows."""
        named: set[bytes] = set()
        there: set[bytes] = set()

        async def links_of(digests: list[bytes]) -> dict[bytes, bytes]:
            named.update(digests)
            found = await self.walk.store.backend.links(self.walk.pool, digests)
            return {digest: below if type(below) is bytes else b"" for digest, below in found.items()}

        await mark([links], there, links_of)
        return named, named == there

    def _encoded(self, channel: str, lost: _Lost, make: Callable[[], Any]) -> _Encoded | str:
        """A value, cut into leaves of the kinds that it is stored as, if it is the one that was lost."""
        try:
            value = make()
        except Exception as error:  # a reducer is the caller's own
            return f"its reducer failed ({type(error).__name__})"
        encoder, tried = self.walk.tools.encoder_of(self.walk.pool), []
        try:
            for batch in lost.batches():
                pair, _ = encoder.value(value, channel, batch)
                tried.append(_Encoded(pair, batch.chunks))
                if pair == lost.pair:
                    return tried[-1]
        except NotSerializable:
            return "its reducer made a value that has no stored form"
        return tried[0]

    async def _is_troubled(self, *refs: Ref) -> bool:
        self.walk.forget_troubles()
        await self.walk.take(refs)
        return any(self.walk.troubles_of(ref) for ref in refs)

    async def _has_bad_write(self, found: Found, channel: str) -> bool:
        writes = [write for write in found.writes if write.channel == channel]
        subjects = [subject_of_write(self.walk.tools, found.thread_id, write) for write in writes]
        return any(verdict.damages for verdict in await judge(self.walk, found.thread_id, subjects))

    async def _store(self, found: Found, document: Document, rebuilt: dict[str, _Encoded]) -> str:
        """Store rebuilt values under their checkpoint's own id; returns why not, or nothing."""
        row = found.row
        pairs = {**document.roots.pairs, **{channel: encoded.pair for channel, encoded in rebuilt.items()}}
        rows: list[CheckpointRow] = []
        try:
            if pairs != document.roots.pairs:
                rows = [self._row(found, document, Roots(document.roots.versions, pairs))]
            chunks: Chunks = {}
            for encoded in rebuilt.values():
                chunks.update(encoded.chunks)
            absent = await self._replace_damaged(chunks)
            change = Change(thread_id=found.thread_id, now=self.now, chunks=absent, continues=row.id, begins=False)
            if rows:
                # The other channels' chunks, and those that are there already, are left out.
                change.checkpoints, change.stamp = rows, found.stamp
                again = await self.walk.store.find(found.thread_id, row.namespace, row.id)
                if again is None or again.row != row:
                    return "it was written again meanwhile; look it over again"
                await self._is_troubled(*(document.roots.refs[channel] for channel in rebuilt))
                self.replaced.update(t.digest for found in self.walk.troubled.values() for t in found if t.digest)
            [outcome] = await self.walk.store.backend.apply([change]) if absent or rows else [None]
        except Conflict as refusal:
            return str(refusal)
        except (Corrupt, NotAllowed):
            return "its metadata cannot be read, and would be lost"
        if isinstance(outcome, Stale):
            return "its chunks were collected meanwhile; try again"
        return await self._remaining(found)

    async def _remaining(self, found: Found) -> str:
        """The damage that reading shows after all was stored."""
        again = await self.walk.store.find(found.thread_id, found.row.namespace, found.row.id, with_writes=False)
        if again is None:
            return ""
        self.walk.forget_troubles()
        subject = subject_of(self.walk.tools, again)
        [verdict] = await judge(self.walk, found.thread_id, [subject])
        return "stored bytes could not be replaced" if verdict.damages else ""

    async def _replace_damaged(self, chunks: Chunks) -> list[ChunkRow]:
        """Give damaged chunks their bytes back; returns those that are not there."""
        pool, envelope = self.walk.pool, self.walk.tools.envelope
        absent: list[ChunkRow] = []
        for batch in batches(sorted(chunks), _BATCH):
            anew: list[tuple[ChunkRow, ChunkRow]] = []
            stored = {row[0]: row for row in await self.walk.fetch(batch)}
            for digest in batch:
                links, content = chunks[digest]
                made = ChunkRow(digest, links, *envelope.wrap(content, chunk_place(pool, digest)))
                held = stored.get(digest)
                if held is None:
                    absent.append(made)
                elif held[1] and not links and digest in self.walk.sound:
                    continue  # a pointer that leads to the item
                elif held[1] != links or self.walk.content_of(held) != content:
                    anew.append((ChunkRow(*held), made))
            if anew:
                await self.walk.store.backend.rewrap(pool, anew)
        return absent

    def _row(self, found: Found, document: Document, roots: Roots) -> CheckpointRow:
        """The checkpoint's row with other roots; all else stays."""
        row, tools = found.row, self.walk.tools
        checkpoint = {**document.other, "v": document.v, "ts": document.ts, "versions_seen": document.versions_seen}
        if document.updated_channels is not ABSENT:
            checkpoint["updated_channels"] = document.updated_channels
        drafted = draft(checkpoint, tools.metadata(found), tools.codec)
        return write_row(tools, drafted, roots, (found.thread_id, row.namespace, row.parent), row.id, row.created)


async def _parents(store: Context, thread_id: str, keys: Sequence[CheckpointKey]) -> Parents:
    found = [await store.find(thread_id, *key, with_writes=False) for key in keys]
    return {key: one.parent if one is not None else None for key, one in zip(keys, found, strict=True)}


async def _pointers_to(store: Context, pool: int, packs: set[bytes]) -> set[bytes]:
    """The rows of what moved into these packs, and into packs that did; a put would rely on such a row, too."""
    weights = await chunk_weights(store.backend, pool)
    inner = {digest for digest, (links, _) in weights.items() if links in packs}
    return inner | {digest for digest, (links, _) in weights.items() if links in inner}


def _reduced(reducer: Reducer, start: Callable[[], Any], refs: Sequence[Ref], read: Callable[[Ref], Any]) -> Any:
    value = start()
    for ref in refs:
        value = read(ref) if value is _NOTHING else reducer(value, read(ref))
    return value


def _starts(first: Any) -> list[Callable[[], Any]]:
    """The first values that a channel without one may have had: the empty value of its kind, or its first write."""
    kinds: list[Callable[[], Any]] = [type(first)] if type(first) in (list, dict, set, str, int, float, tuple) else []
    return [*kinds, list, dict, lambda: None, lambda: _NOTHING]


def _decode(tools: Tools, pile: Pile, ref: Ref) -> Any:
    """A value that nobody else holds, whatever the reader shares."""
    try:
        budget = tools.reader.budget(ref, pile)
        content = tools.reader.content(ref, pile, budget)
        budget.unpack([content])
        return tools.codec.decode(content)
    except KeyError:
        raise Corrupt("what it would be rebuilt from went missing") from None
    except (ValueError, TypeError, IndexError, AttributeError, MemoryError, RecursionError) as misfit:
        raise Corrupt(f"what it would be rebuilt from does not fit together ({misfit})") from None


def _still(damage: Damage, why: str) -> Damage:
    return replace(damage, what=f"{damage.what} (not rebuilt: {why})")
