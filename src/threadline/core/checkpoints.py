"""Putting and getting checkpoints and pending writes.

A put is encoded on the caller's thread before the first await, exactly once (`prepare_*`), then applied by
a coroutine over the backend. Rules:
  - A channel that is not in `new_versions` keeps the root of the very parent named in the config where
    that parent has the same version; in every other case it is encoded.
  - Chunks known to be stored are left out, under the pool's stamp. When the stamp has passed, the put
    learns what is missing and sends it, from what it encoded, never from live values.
  - What was encoded becomes known only when the commit is acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ormsgpack

from ..backends.port import Backend, Change, CheckpointRow, ChunkRow, Stale, Stamp, WriteRow
from ..chunks.encode import Chunks, Encoded
from ..chunks.read import chunk_place
from ..chunks.recall import Run
from ..chunks.refs import Ref, pack_refs
from ..errors import Conflict, InvalidRequest, Unavailable
from ..model import WRITES_IDX_MAP, get_checkpoint_metadata
from .documents import Draft, Roots, draft, read_document, write_place, write_row
from .requests import Place, check_checkpoint, check_metadata, check_new_versions, check_writes, place_of, text_id
from .tools import Tools

__all__ = ["PreparedPut", "PreparedWrites", "prepare_put", "prepare_writes", "put_all"]

log = logging.getLogger("threadline")
_MOST_TRIES = 32
_LARGE_CHECKPOINT_BYTES = 10_000_000
# Puts that begin a line of their own on purpose, and so are never fenced.
_OWN_LINES = ("fork", "update")


@dataclass(slots=True)
class _Prepared:
    """What a put and a put_writes have in common: chunks on their way into a thread's pool."""

    place: Place
    stamp: Stamp | None
    chunks: Chunks = field(default_factory=dict)
    made: list[Run] = field(default_factory=list)
    reused: list[Run] = field(default_factory=list)
    noded: list[Run] = field(default_factory=list)
    # When it was made, for what is brought over from elsewhere; None for now.
    made_at: float | None = None

    def take(self, encoded: Encoded) -> Ref:
        self.chunks.update(encoded.chunks)
        self.made.extend(encoded.runs)
        self.reused.extend(encoded.reused)
        self.noded.extend(encoded.noded)
        return encoded.ref

    def moment(self, now: float) -> float:
        return now if self.made_at is None else self.made_at


@dataclass(slots=True)
class PreparedPut(_Prepared):
    """A checkpoint, encoded; what it takes over from its parent is settled when the parent is at hand."""

    checkpoint_id: str = ""
    drafted: Draft | None = None
    roots: Roots | None = None
    parent: Roots | None = None
    parent_is_known: bool = False
    # The parent itself, when it is part of the same batch.
    sibling: PreparedPut | None = None
    # Channels that keep the parent's root if it has this version.
    inherits: Collection[str] = ()
    # The namespace's newest checkpoint as this writer knows it: another one by now is a conflict.
    head: tuple[str, str | None] | None = None
    _settled: Roots | None = None

    def settled(self) -> Roots:
        """The roots of this checkpoint, those that come from the parent included."""
        if self._settled is None:
            assert self.roots is not None
            versions, refs = self.roots
            if self.parent is not None:
                there, since = self.parent.refs, self.parent.versions
                kept = {
                    name: there[name] for name in self.inherits if name in there and since.get(name) == versions[name]
                }
                refs = {**refs, **kept} if kept else refs
            self._settled = Roots(versions, refs)
        return self._settled

    def unsettle(self) -> None:
        """Forget the parent, which must be read anew."""
        self.parent, self.parent_is_known, self._settled = None, False, None


@dataclass(slots=True)
class PreparedWrites(_Prepared):
    """Pending writes of one task, encoded."""

    writes: list[WriteRow] = field(default_factory=list)
    refs: list[Ref] = field(default_factory=list)


def prepare_put(
    tools: Tools,
    config: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    new_versions: Mapping[str, Any],
    siblings: Mapping[tuple[str, str, str], PreparedPut] | None = None,
) -> PreparedPut:
    """Check and encode a put. `siblings` are the puts of the same batch, which may be its parent."""
    place = place_of(config)
    check_checkpoint(checkpoint)
    check_metadata(metadata, config)
    check_new_versions(new_versions)
    stamp = tools.stamps.get(place.thread_id)
    put = PreparedPut(place, stamp, checkpoint_id=text_id(checkpoint["id"], "the checkpoint's id"))
    if place.checkpoint_id == put.checkpoint_id:
        raise InvalidRequest(f"checkpoint {put.checkpoint_id} cannot be its own parent: the config names it")
    put.drafted = draft(checkpoint, get_checkpoint_metadata(config, metadata), tools.codec)
    _find_parent(tools, put, siblings or {})
    versions = dict(checkpoint["channel_versions"])
    values: Mapping[str, Any] = checkpoint.get("channel_values", {})
    inherits = {name for name in versions if name not in new_versions} if place.checkpoint_id else set()
    refs: dict[str, Ref] = {}
    for name in values:
        if name in inherits and put.parent is not None and put.parent.has(name, versions[name]):
            continue
        before = tools.recall.get(place.thread_id, place.namespace, name)
        encoded = tools.encoder.value(values[name], name, before, stamp)
        tools.recall.keep(place.thread_id, place.namespace, name, encoded.runs)
        refs[name] = put.take(encoded)
    put.inherits = inherits
    if tools.fencing and metadata.get("source") not in _OWN_LINES and tools.was_head(place):
        put.head = (place.namespace, place.checkpoint_id)
    put.roots = Roots(versions, refs)
    _warn_of_size(tools, put)
    return put


def prepare_writes(
    tools: Tools, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> PreparedWrites:
    """Check and encode the writes of one task."""
    place = place_of(config)
    checked = check_writes(writes, task_id, task_path)
    if place.checkpoint_id is None:
        raise InvalidRequest("put_writes needs a config with a checkpoint_id: the one that put() returned")
    prepared = PreparedWrites(place, tools.stamps.get(place.thread_id))
    for position, (channel, value) in enumerate(checked):
        ref = prepared.take(tools.encoder.value(value, f"write {channel}"))
        index = WRITES_IDX_MAP.get(channel, position)
        links, packed = pack_refs({"": ref})
        row = WriteRow(
            place.namespace,
            place.checkpoint_id,
            text_id(task_id, "task_id"),
            index,
            task_path,
            channel,
            links,
            0,
            ormsgpack.packb(packed[""]),
            replaces=index < 0,
        )
        prepared.writes.append(row)
        prepared.refs.append(ref)
    prepared.made, prepared.noded = [], []  # writes are not encoded again; nothing to recognise
    return prepared


async def put_all(backend: Backend, tools: Tools, prepared: Sequence[PreparedPut | PreparedWrites], now: float) -> None:
    """Apply prepared puts and writes in one transaction; durable when this returns."""
    for _ in range(_MOST_TRIES):
        for one in prepared:
            if isinstance(one, PreparedPut):
                await _read_parent(backend, tools, one)
            if one.stamp is None and tools.envelope.ring is not None:
                await _claim_pool(backend, tools, one, one.moment(now))
        changes = [_change(tools, one, one.moment(now)) for one in prepared]
        outcomes = await backend.apply(changes)
        if not any(isinstance(outcome, Stale) for outcome in outcomes):
            for one, outcome in zip(prepared, outcomes, strict=True):
                _acknowledge(tools, one, outcome.stamp)
            return
        for one in prepared:
            await _refresh(backend, tools, one)
    thread_id = prepared[0].place.thread_id
    raise Unavailable(
        f"the chunks of thread {thread_id!r} were collected, or its server lost, again and again while it was written: "
        f"try again"
    )


def _find_parent(tools: Tools, put: PreparedPut, siblings: Mapping[tuple[str, str, str], PreparedPut]) -> None:
    """Take the parent's document from memory where it is good: a sibling's, or seen under this stamp."""
    thread_id, namespace, parent = put.place
    if parent is None:
        put.parent_is_known = True
        return
    put.sibling = siblings.get((thread_id, namespace, parent))
    if put.sibling is not None:
        if put.sibling.parent_is_known:
            put.parent, put.parent_is_known = put.sibling.settled(), True
        return
    put.parent = tools.roots_of(thread_id, namespace, parent, put.stamp)
    put.parent_is_known = put.parent is not None


async def _read_parent(backend: Backend, tools: Tools, put: PreparedPut) -> None:
    """Read the parent when memory had none; a parent that never arrived is no error."""
    if put.parent_is_known:
        return
    put.parent_is_known = True
    if put.sibling is not None:
        put.parent = put.sibling.settled()
        return
    thread_id, namespace, parent = put.place
    found = await backend.find(thread_id, namespace, parent, with_writes=False)
    if found is not None:
        put.parent = read_document(found, tools.codec, tools.envelope).roots
        stamp = (found.pool, found.epoch)
        if put.stamp is None:
            put.stamp = stamp
        tools.see(thread_id, stamp)


async def _claim_pool(backend: Backend, tools: Tools, one: PreparedPut | PreparedWrites, now: float) -> None:
    """Make the thread, because what is sealed is bound to its pool."""
    thread_id, _, continues = one.place
    begins = isinstance(one, PreparedWrites) or continues is None
    [outcome] = await backend.apply([Change(thread_id=thread_id, now=now, continues=continues, begins=begins)])
    one.stamp = outcome.stamp


def _change(tools: Tools, one: PreparedPut | PreparedWrites, now: float) -> Change:
    known = tools.known.of(one.stamp)
    change = Change(thread_id=one.place.thread_id, now=now, stamp=one.stamp, continues=one.place.checkpoint_id)
    change.lease = tools.leases.get(one.place.thread_id)
    pool = one.stamp[0] if one.stamp else 0
    change.chunks = [
        _chunk_row(tools, pool, digest, links, content)
        for digest, (links, content) in one.chunks.items()
        if digest not in known
    ]
    if isinstance(one, PreparedWrites):
        change.writes = [_sealed_write(tools, one.place.thread_id, write) for write in one.writes]
    else:
        change.begins = one.place.checkpoint_id is None
        change.head = one.head
        change.checkpoints = [_checkpoint_row(tools, one, now)]
    return change


def _chunk_row(tools: Tools, pool: int, digest: bytes, links: bytes, content: bytes) -> ChunkRow:
    place = chunk_place(pool, digest) if tools.envelope.ring is not None else b""
    return ChunkRow(digest, links, *tools.envelope.wrap(content, place))


def _checkpoint_row(tools: Tools, put: PreparedPut, now: float) -> CheckpointRow:
    assert put.drafted is not None
    return write_row(
        put.drafted,
        put.settled(),
        thread_id=put.place.thread_id,
        key=(put.place.namespace, put.checkpoint_id),
        parent=put.place.checkpoint_id,
        now=now,
        codec=tools.codec,
        envelope=tools.envelope,
        indexed=tools.indexed,
    )


def _sealed_write(tools: Tools, thread_id: str, write: WriteRow) -> WriteRow:
    form, data = tools.envelope.wrap_row(write.data, write_place(thread_id, write))
    return write._replace(form=form, data=data)


def _acknowledge(tools: Tools, one: PreparedPut | PreparedWrites, stamp: Stamp) -> None:
    """The commit is in: what it sent is known, what it encoded may be recognised."""
    tools.see(one.place.thread_id, stamp)
    tools.known.add(stamp, one.chunks)
    for run in one.made:
        run.stored = stamp
    for run in one.noded:
        run.node_stored = stamp
    if isinstance(one, PreparedPut):
        thread_id, namespace, _ = one.place
        tools.keep_roots(thread_id, namespace, one.checkpoint_id, stamp, one.settled())
        if one.head is not None:
            tools.note_head(Place(thread_id, namespace, one.checkpoint_id), is_head=True)


async def _refresh(backend: Backend, tools: Tools, one: PreparedPut | PreparedWrites) -> None:
    """After a refusal: bring every chunk again, learn which are there, and read the parent anew."""
    thread = await backend.thread(one.place.thread_id)
    one.stamp = None if thread is None or thread.status == "deleted" else (thread.pool, thread.epoch)
    tools.see(one.place.thread_id, one.stamp)
    for run in one.reused:
        try:
            tools.encoder.rebuild(run, one.chunks)
        except Conflict as error:
            raise Conflict(f"thread {one.place.thread_id!r}: {error}") from None
    one.made.extend(one.reused)
    one.reused = []
    if one.stamp is not None:
        absent = await backend.missing(one.stamp[0], list(one.chunks))
        tools.known.add(one.stamp, [digest for digest in one.chunks if digest not in absent])
    if isinstance(one, PreparedPut) and one.place.checkpoint_id is not None:
        had = one.parent
        one.unsettle()
        await _read_parent(backend, tools, one)
        if one.parent is None and had is not None:
            _require_own_values(one, had)


def _require_own_values(put: PreparedPut, parent: Roots) -> None:
    """The parent is gone: its values may stay only where this put encoded them itself."""
    assert put.roots is not None
    versions, refs = put.roots
    for name in sorted(put.inherits):
        if name not in refs and parent.has(name, versions[name]):
            raise Conflict(
                f"thread {put.place.thread_id!r}: the parent checkpoint {put.place.checkpoint_id} was deleted while "
                f"its child was written, and with it the value of channel {name!r}; put the checkpoint again"
            )


def _warn_of_size(tools: Tools, put: PreparedPut) -> None:
    size = sum([len(content) for _, content in put.chunks.values()])
    size += sum([run.cost_bytes for run in put.reused])
    if size > _LARGE_CHECKPOINT_BYTES and put.place.thread_id not in tools.warned:
        tools.warned.add(put.place.thread_id)
        log.warning(
            "thread %r: a checkpoint of about %.0f MB; large states are slow to load, consider keeping files elsewhere",
            put.place.thread_id,
            size / 1e6,
        )
