"""A put, checked and encoded on the caller's thread, before the first await and exactly once.

A channel that is not in `new_versions` keeps the root of the very parent named in the config where that parent has
the same version; in every other case it is encoded. What is applied later, and as often as need be, is made from what
was encoded here, never from live values.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ormsgpack

from ..backends.port import Witness, WriteRow
from ..chunks.cutting import LONGEST_PIECE
from ..chunks.encode import Chunks, Encoded, Encoder
from ..chunks.recall import Run
from ..chunks.refs import Ref, pack_refs
from ..errors import InvalidRequest
from ..model import INTERRUPT, WRITES_IDX_MAP, get_checkpoint_metadata
from ..namespaces import ROOT
from .documents import DELTA_COUNTERS, Draft, Roots, draft
from .known import Known
from .requests import Place, check_checkpoint, check_metadata, check_new_versions, check_writes, place_of, text_id
from .tools import Descent, Tools

__all__ = ["Prepared", "PreparedPut", "PreparedWrites", "pointing", "prepare_put", "prepare_writes"]

log = logging.getLogger("threadline")
_LARGE_CHECKPOINT_BYTES = 10_000_000
# Puts that begin a line of their own on purpose, and so are never fenced.
_OWN_LINES = ("fork", "update")


@dataclass(slots=True)
class _Prepared:
    """What a put and a put_writes have in common: chunks on their way into a thread's pool."""

    place: Place
    # What was known of the thread when this was prepared, or learnt since; None of a thread that is not known.
    known: Known | None
    chunks: Chunks = field(default_factory=dict)
    made: list[Run] = field(default_factory=list)
    reused: list[Run] = field(default_factory=list)
    noded: list[Run] = field(default_factory=list)
    # The checkpoint that this descends from, and whether it may begin a thread that is deleted.
    descent: Descent = (None, True)
    # What encoded the chunks, and so named them.
    encoder: Encoder = field(init=False)
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
    # The parent's row, unless it is part of the same batch.
    parent_row: Witness | None = None
    # Channels whose values may be replayed from the parent, because this checkpoint need not hold them.
    deltas: Collection[str] = ()
    # The parent itself, when it is part of the same batch.
    sibling: PreparedPut | None = None
    # Channels that keep the parent's root if it has this version.
    inherits: Collection[str] = ()
    # The namespace's newest checkpoint as this writer knows it: another one by now is a conflict.
    head: tuple[str, str | None] | None = None
    # Values that were encoded only to be compared with those of the parent, whose roots are kept.
    compared: dict[str, Ref] = field(default_factory=dict)
    # Whether a value must be the parent's where its version is (core/same_versions.py).
    checks_versions: bool = False
    # Whether its parent asked something, as far as this process knows.
    answers: bool = False
    # Whether it is on a branch of its own, under fencing; so is what builds on it.
    is_branching: bool = False
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
        self.parent, self.parent_is_known, self.parent_row, self._settled = None, False, None, None


@dataclass(slots=True)
class PreparedWrites(_Prepared):
    """Pending writes of one task, encoded."""

    writes: list[WriteRow] = field(default_factory=list)
    refs: list[Ref] = field(default_factory=list)
    # Whether each must be the first of its key: one that is there already is a conflict.
    are_first: bool = False


def prepare_put(
    tools: Tools,
    config: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    new_versions: Mapping[str, Any],
    siblings: Mapping[tuple[str, str, str], PreparedPut] | None = None,
    *,
    checks_versions: bool = False,
) -> PreparedPut:
    """Check and encode a put. `siblings` are the puts of the same batch, which may be its parent.

    With `checks_versions` it is refused, when it is applied, if a value is not its parent's and the version is.
    """
    place = place_of(config)
    check_checkpoint(checkpoint)
    check_metadata(metadata, config)
    check_new_versions(new_versions)
    known = tools.known.of(place.thread_id)
    put = PreparedPut(place, known, checkpoint_id=text_id(checkpoint["id"], "the checkpoint's id"))
    if place.checkpoint_id == put.checkpoint_id:
        raise InvalidRequest(f"checkpoint {put.checkpoint_id} cannot be its own parent: the config names it")
    put.drafted = draft(checkpoint, get_checkpoint_metadata(config, metadata), tools.codec)
    _find_parent(tools, put, siblings or {})
    versions = dict(checkpoint["channel_versions"])
    values: Mapping[str, Any] = checkpoint.get("channel_values", {})
    inherits = {name for name in versions if name not in new_versions} if place.checkpoint_id else set()
    put.encoder = tools.encoder(known)
    put.checks_versions = checks_versions and place.checkpoint_id is not None
    refs = _encoded(tools, put, values, versions, inherits)
    put.inherits = inherits
    if tools.asked and place.namespace == ROOT:
        put.answers = (place.thread_id, place.checkpoint_id) in tools.asked
    if tools.fencing:
        _fence(tools, put, metadata.get("source"))
    put.roots = Roots(versions, refs)
    if DELTA_COUNTERS in metadata:
        put.deltas = _counted_deltas(metadata)
    put.descent = (place.checkpoint_id or _root_above(place, metadata), place.checkpoint_id is None)
    tools.expect(place.thread_id, put.checkpoint_id, put.descent)
    _warn_of_size(tools, put)
    return put


def prepare_writes(
    tools: Tools,
    config: Mapping[str, Any],
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    *,
    are_first: bool = False,
) -> PreparedWrites:
    """Check and encode the writes of one task."""
    place = place_of(config)
    checked = check_writes(writes, task_id, task_path)
    if place.checkpoint_id is None:
        raise InvalidRequest("put_writes needs a config with a checkpoint_id: the one that put() returned")
    prepared = PreparedWrites(place, tools.known.of(place.thread_id), are_first=are_first)
    prepared.descent = tools.coming.get((place.thread_id, place.checkpoint_id)) or (place.checkpoint_id, True)
    prepared.encoder = tools.encoder(prepared.known)
    place_in_thread = place.namespace, place.checkpoint_id, text_id(task_id, "task_id")
    for position, (channel, value) in enumerate(checked):
        ref = prepared.take(prepared.encoder.value(value, f"write {channel}"))
        index = WRITES_IDX_MAP.get(channel, position)
        if channel == INTERRUPT and place.namespace == ROOT:
            tools.note_asked(place.thread_id, place.checkpoint_id)
        links, data = _pointer(ref)
        prepared.writes.append(WriteRow(*place_in_thread, index, task_path, channel, links, 0, data, index < 0))
        prepared.refs.append(ref)
    prepared.made, prepared.noded = [], []  # writes are not encoded again; nothing to recognise
    return prepared


def _encoded(
    tools: Tools, put: PreparedPut, values: Mapping[str, Any], versions: Mapping[str, Any], inherits: Collection[str]
) -> dict[str, Ref]:
    """Encode the values of a put, except those whose root is the parent's; where these are at most compared."""
    refs: dict[str, Ref] = {}
    place, parent = put.place, put.parent
    mark = put.known.mark if put.known is not None else None
    for name in values:
        is_kept = name in inherits and parent is not None and parent.has(name, versions[name])
        if is_kept and not put.checks_versions:
            continue
        before = tools.recall.get(place.thread_id, place.namespace, name)
        encoded = put.encoder.value(values[name], name, before, mark)
        if is_kept:
            put.compared[name] = encoded.ref
        else:
            tools.recall.keep(place.thread_id, place.namespace, name, encoded.runs)
            refs[name] = put.take(encoded)
    return refs


def _counted_deltas(metadata: Mapping[str, Any]) -> Collection[str]:
    counted = metadata[DELTA_COUNTERS]
    return tuple(counted) if isinstance(counted, Mapping) else ()


def _root_above(place: Place, metadata: Mapping[str, Any]) -> str | None:
    """The checkpoint of the root graph that a subgraph runs for."""
    parents = metadata.get("parents") if place.namespace else None
    above = parents.get("") if isinstance(parents, Mapping) else None
    return above if isinstance(above, str) else None


def pointing(write: WriteRow, ref: Ref) -> WriteRow:
    """A write of the value at a reference."""
    links, data = _pointer(ref)
    return write._replace(links=links, data=data)


def _pointer(ref: Ref) -> tuple[bytes, bytes]:
    links, packed = pack_refs({"": ref})
    return links, ormsgpack.packb(packed[""])


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
    held = tools.parent(thread_id, namespace, parent, put.known.mark) if put.known is not None else None
    if held is not None:
        put.parent, put.parent_is_known, put.parent_row = held.roots, True, held.witness


def _fence(tools: Tools, put: PreparedPut, source: Any) -> None:
    """Let a put expect its parent to be the newest still, unless it means to branch; a batch is fenced by its first."""
    if put.sibling is not None:
        put.is_branching = put.sibling.is_branching or source in _OWN_LINES
    else:
        put.is_branching = source in _OWN_LINES or tools.may_branch(put.place)
        if not put.is_branching:
            put.head = (put.place.namespace, put.place.checkpoint_id)


def _warn_of_size(tools: Tools, put: PreparedPut) -> None:
    if not put.reused and len(put.chunks) * LONGEST_PIECE <= _LARGE_CHECKPOINT_BYTES:
        return
    size = sum([len(content) for _, content in put.chunks.values()])
    size += sum([run.cost_bytes for run in put.reused])
    if size > _LARGE_CHECKPOINT_BYTES and put.place.thread_id not in tools.warned:
        tools.warned.add(put.place.thread_id)
        log.warning(
            "thread %r: a checkpoint of about %.0f MB; large states are slow to load, consider keeping files elsewhere",
            put.place.thread_id,
            size / 1e6,
        )


Prepared: TypeAlias = PreparedPut | PreparedWrites
