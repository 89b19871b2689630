"""Rebuilding damaged channels from their history.

A channel's value is its parent's value with the parent's pending writes reduced into it, in order. The
damaged checkpoint still says under which digests the value was stored, so a rebuilt value can be proven to
be the very one that was lost: unless told otherwise, nothing else is accepted. Parents come before children,
so that a run of damaged checkpoints heals from its first good ancestor.

A damaged chunk is still there, and inserting its digest again would change nothing: its bytes are replaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..backends.port import Backend, Change, CheckpointRow, ChunkRow, Found, Stale
from ..chunks.encode import Chunks, Encoded
from ..chunks.read import Pile, chunk_place
from ..chunks.refs import Ref
from ..errors import Conflict, Corrupt, NotAllowed, NotSerializable
from .damage import Damage
from .documents import ABSENT, Document, Roots, draft, read_document, read_metadata, write_row
from .fsck import judge
from .soundness import Walk, batches, subject_of, subject_of_write
from .tools import Tools

__all__ = ["Reducer", "repair"]

Reducer = Callable[[Any, Any], Any]
_BATCH = 256
_NOTHING = object()


async def repair(
    backend: Backend,
    tools: Tools,
    damages: Sequence[Damage],
    reducers: Mapping[str, Reducer],
    now: float,
    *,
    exact: bool = True,
) -> list[Damage]:
    """Rebuild damaged channels; returns what is still damaged, each with the reason.

    With `exact=False` a rebuilt value that differs from the lost one is stored all the same: reducers that
    give random ids never make the same value twice. What vanished meanwhile is not damaged any more.
    """
    await tools.open(backend)
    groups: dict[tuple[str, str], dict[str, list[Damage]]] = defaultdict(lambda: defaultdict(list))
    for damage in damages:
        groups[damage.thread_id, damage.namespace][damage.checkpoint_id].append(damage)
    left: list[Damage] = []
    for (thread_id, namespace), by_id in groups.items():
        thread = await backend.thread(thread_id)
        if thread is None or thread.status == "deleted":
            continue
        healer = _Healer(backend, tools, Walk(backend, tools, thread.pool), reducers, now, exact)
        for checkpoint_id in await _parents_first(backend, thread_id, namespace, list(by_id)):
            left += await healer.heal(thread_id, namespace, checkpoint_id, by_id[checkpoint_id])
        if healer.replaced:
            # A damaged chunk that nothing needs any more would be taken for stored by a later put.
            await backend.collect(thread.pool, sorted(healer.replaced), set())
    # Roots and known chunks may be those from before.
    tools.forget()
    return left


@dataclass(slots=True)
class _Healer:
    """Repairs one thread."""

    backend: Backend
    tools: Tools
    walk: Walk
    reducers: Mapping[str, Reducer]
    now: float
    exact: bool
    # Damaged chunks of values that were replaced by others.
    replaced: set[bytes] = field(default_factory=set)

    async def heal(self, thread_id: str, namespace: str, checkpoint_id: str, named: list[Damage]) -> list[Damage]:
        """Rebuild what can be of one checkpoint; returns what cannot."""
        found = await self._find(thread_id, namespace, checkpoint_id)
        if found is None or found.pool != self.walk.pool:
            return []  # deleted since the report, or with its whole thread begun anew
        channels = [damage for damage in named if damage.channel is not None]
        left = [_still(damage, "only a channel's value can be rebuilt") for damage in named if damage.channel is None]
        try:
            document = read_document(found, self.tools.codec, self.tools.envelope)
        except (Corrupt, NotAllowed):
            return left + [_still(damage, "its checkpoint's document cannot be read") for damage in channels]
        rebuilt: dict[str, Encoded] = {}
        for damage in channels:
            why = await self._rebuild(found, document, damage, rebuilt)
            if why:
                left.append(_still(damage, why))
        if rebuilt:
            why = await self._store(found, document, rebuilt)
            left += [_still(damage, why) for damage in channels if why and damage.channel in rebuilt]
        return left

    async def _find(self, thread_id: str, namespace: str, checkpoint_id: str) -> Found | None:
        found = await self.backend.find(thread_id, namespace, checkpoint_id)
        if found is not None:
            forms = [found.row.form, found.row.metadata_form, *(write.form for write in found.writes)]
            await self.tools.learn_keys(self.backend, forms)
        return found

    async def _rebuild(self, found: Found, document: Document, damage: Damage, rebuilt: dict[str, Encoded]) -> str:
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
            for encoded in await self._attempts(row, before, document, channel):
                if isinstance(encoded, str):
                    tried = encoded
                elif encoded.ref == ref or not self.exact:
                    rebuilt[channel] = encoded
                    return ""
                else:
                    tried = "what was rebuilt is not the value that was lost; exact=False stores it all the same"
        except (Corrupt, NotAllowed) as error:
            return f"its parent's value or writes cannot be read ({type(error).__name__})"
        return tried

    async def _parent(self, found: Found) -> tuple[Found, Document] | str:
        parent = found.row.parent
        row = await self._find(found.thread_id, found.row.namespace, parent) if parent is not None else None
        if row is None:
            return "its parent is gone" if parent is not None else "it has no parent"
        try:
            return row, read_document(row, self.tools.codec, self.tools.envelope)
        except (Corrupt, NotAllowed):
            return "its parent's document cannot be read"

    async def _attempts(
        self, parent: Found, before: Document, document: Document, channel: str
    ) -> Iterator[Encoded | str]:
        """The values that the channel may have had, encoded, each tried when it is asked for."""
        refs = [ref for write in parent.writes if write.channel == channel for ref in self._write_refs(parent, write)]
        seed = before.roots.refs.get(channel)
        if await self._is_troubled(*refs, *([seed] if seed is not None else [])):
            raise Corrupt("what it would be rebuilt from is damaged")
        pile = Pile()
        known = refs if seed is None else [seed, *refs]
        fetch = partial(self.tools.fetch, self.backend, parent.pool)
        await self.tools.reader.gather(parent.pool, known, fetch, pile)
        # Decoded anew for each attempt: reducers may change what they are given.
        read = partial(_decode, self.tools, pile)
        if seed is not None and before.roots.versions.get(channel) == document.roots.versions.get(channel):
            return iter([self._encoded(channel, lambda: read(seed))])
        if not refs:
            return iter([])
        reducer = self.reducers.get(channel)
        if reducer is None:
            return iter(["there is no reducer for the channel"])
        starts: list[Callable[[], Any]] = [lambda: read(seed)] if seed is not None else _starts(read(refs[0]))
        return (self._encoded(channel, partial(_reduced, reducer, start, refs, read)) for start in starts)

    def _write_refs(self, parent: Found, write: Any) -> list[Ref]:
        subject = subject_of_write(self.tools, parent.thread_id, write)
        if subject.faults:
            raise Corrupt(subject.faults[0][1])
        return [ref for _, _, ref in subject.values]

    def _encoded(self, channel: str, make: Callable[[], Any]) -> Encoded | str:
        try:
            value = make()
        except Exception as error:  # a reducer is the caller's own
            return f"its reducer failed ({type(error).__name__})"
        try:
            return self.tools.encoder_of(self.walk.pool).value(value, channel)
        except NotSerializable:
            return "its reducer made a value that has no stored form"

    async def _is_troubled(self, *refs: Ref) -> bool:
        self.walk.forget_troubles()
        await self.walk.take(refs)
        return any(self.walk.troubles_of(ref) for ref in refs)

    async def _has_bad_write(self, found: Found, channel: str) -> bool:
        writes = [write for write in found.writes if write.channel == channel]
        subjects = [subject_of_write(self.tools, found.thread_id, write) for write in writes]
        return any(verdict.damages for verdict in await judge(self.walk, found.thread_id, subjects))

    async def _store(self, found: Found, document: Document, rebuilt: dict[str, Encoded]) -> str:
        """Store rebuilt values under their checkpoint's own id; returns why not, or nothing."""
        row = found.row
        refs = {**document.roots.refs, **{channel: encoded.ref for channel, encoded in rebuilt.items()}}
        rows: list[CheckpointRow] = []
        try:
            if refs != document.roots.refs:
                rows = [self._row(found, document, Roots(document.roots.versions, refs))]
            chunks: Chunks = {}
            for encoded in rebuilt.values():
                chunks.update(encoded.chunks)
            absent = await self._replace_damaged(chunks)
            change = Change(thread_id=found.thread_id, now=self.now, chunks=absent, continues=row.id, begins=False)
            if rows:
                # The other channels' chunks, and those that are there already, are left out.
                change.checkpoints, change.stamp = rows, (found.pool, found.epoch)
                again = await self._find(found.thread_id, row.namespace, row.id)
                if again is None or again.row != row:
                    return "it was written again meanwhile; look it over again"
                await self._is_troubled(*(document.roots.refs[channel] for channel in rebuilt))
                self.replaced.update(t.digest for found in self.walk.troubled.values() for t in found if t.digest)
            [outcome] = await self.backend.apply([change]) if absent or rows else [None]
        except Conflict as refusal:
            return str(refusal)
        except (Corrupt, NotAllowed):
            return "its metadata cannot be read, and would be lost"
        if isinstance(outcome, Stale):
            return "its chunks were collected meanwhile; try again"
        return await self._remaining(found)

    async def _remaining(self, found: Found) -> str:
        """What reading shows after all was stored."""
        again = await self.backend.find(found.thread_id, found.row.namespace, found.row.id, with_writes=False)
        if again is None:
            return ""
        self.walk.forget_troubles()
        subject = subject_of(self.tools, again)
        [verdict] = await judge(self.walk, found.thread_id, [subject])
        return "stored bytes could not be replaced" if verdict.damages else ""

    async def _replace_damaged(self, chunks: Chunks) -> list[ChunkRow]:
        """Give damaged chunks their bytes back; returns those that are not there."""
        pool, envelope = self.walk.pool, self.tools.envelope
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
                elif held[1] != links or self.walk.content_of(held) != content:
                    anew.append((ChunkRow(*held), made))
            if anew:
                await self.backend.rewrap_chunks(pool, anew)
        return absent

    def _row(self, found: Found, document: Document, roots: Roots) -> CheckpointRow:
        """The checkpoint's row with other roots; all else stays."""
        row, tools = found.row, self.tools
        checkpoint = {**document.other, "v": document.v, "ts": document.ts, "versions_seen": document.versions_seen}
        if document.updated_channels is not ABSENT:
            checkpoint["updated_channels"] = document.updated_channels
        drafted = draft(checkpoint, read_metadata(found, tools.codec, tools.envelope), tools.codec)
        return write_row(
            drafted,
            roots,
            thread_id=found.thread_id,
            key=(row.namespace, row.id),
            parent=row.parent,
            now=row.created,
            codec=tools.codec,
            envelope=tools.envelope,
            indexed=tools.indexed,
        )


async def _parents_first(backend: Backend, thread_id: str, namespace: str, ids: Sequence[str]) -> list[str]:
    """These checkpoints, each after its parent where that is one of them."""
    parents: dict[str, str | None] = {}
    for checkpoint_id in ids:
        found = await backend.find(thread_id, namespace, checkpoint_id, with_writes=False)
        parents[checkpoint_id] = found.row.parent if found is not None else None
    ordered: dict[str, None] = {}
    for checkpoint_id in sorted(parents):
        line: dict[str, None] = {}
        current: str | None = checkpoint_id
        while current is not None and current in parents and current not in ordered and current not in line:
            line[current] = None
            current = parents[current]
        ordered.update(dict.fromkeys(reversed(line)))
    return list(ordered)


def _reduced(reducer: Reducer, start: Callable[[], Any], refs: Sequence[Ref], read: Callable[[Ref], Any]) -> Any:
    value = start()
    for ref in refs:
        value = read(ref) if value is _NOTHING else reducer(value, read(ref))
    return value


def _starts(first: Any) -> list[Callable[[], Any]]:
    """What a channel without a value may begin with: the empty value of its kind, or its first write."""
    kinds: list[Callable[[], Any]] = [type(first)] if type(first) in (list, dict, set, str, int, float, tuple) else []
    return [*kinds, list, dict, lambda: None, lambda: _NOTHING]


def _decode(tools: Tools, pile: Pile, ref: Ref) -> Any:
    """A value that nobody else holds, whatever the reader shares."""
    try:
        return tools.codec.decode(tools.reader.content(ref, pile))
    except KeyError:
        raise Corrupt("what it would be rebuilt from went missing") from None
    except (ValueError, TypeError, IndexError, AttributeError, MemoryError, RecursionError) as misfit:
        raise Corrupt(f"what it would be rebuilt from does not fit together ({misfit})") from None


def _still(damage: Damage, why: str) -> Damage:
    return replace(damage, what=f"{damage.what} (not rebuilt: {why})")
