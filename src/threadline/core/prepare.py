"""A put, checked and encoded on the caller's thread, before the first await and exactly once.

A channel that is not in `new_versions` keeps the root of the very parent named in the config where that parent has
the same version; in every other case it is encoded. What is applied later, and as often as need be, is made from what
was encoded here, never from live values.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import filterfalse
from typing import Any, TypeAlias

import ormsgpack

from ..base.checkpoint import INTERRUPT, WRITES_IDX_MAP, get_checkpoint_metadata
from ..base.namespaces import ROOT
from ..base.native import native
from ..chunks.encode import Batch, Chunks, Encoder, Source
from ..chunks.refs import Pair
from ..codec.allowed import registry
from ..errors import InvalidRequest
from ..ports.checkpoints import CheckpointRow, Witness, WriteRow
from .context import Descent, Tools
from .known import Known
from .requests import Place, check_put, check_writes, place_of, text_id
from .rows import DELTA_COUNTERS, NONE, Draft, Roots, draft

__all__ = [
    "LARGE_CHECKPOINT_BYTES",
    "Prepared",
    "PreparedPut",
    "PreparedWrites",
    "complete_put",
    "prepare_put",
    "prepare_writes",
    "prepared_writes",
]

log = logging.getLogger("threadline")
LARGE_CHECKPOINT_BYTES = 10_000_000
# Puts that begin a line of their own on purpose, and so are never fenced.
_OWN_LINES = ("fork", "update")
_NOTHING: Mapping[str, Source] = {}
# The rows of what a task wrote, what their values can be made from again, whether one is special, and the batch of
# their chunks where it took one to encode them.
_Written: TypeAlias = tuple[list[WriteRow], list[Source], bool, Batch | None]
_new, packb = tuple.__new__, ormsgpack.packb


class _Prepared:
    """The common part of a put and a put_writes: chunks on their way into a thread's pool."""

    # The checkpoint that this descends from, and whether it may begin a thread that is deleted.
    descent: Descent = (None, True)
    # When it was made, for what is brought over from elsewhere; None for now.
    made_at: float | None = None
    place: Place
    # What was known of the thread when this was prepared, or learnt since; None of a thread that is not known.
    known: Known | None
    # What encoded the chunks, and so named them.
    encoder: Encoder
    batch: Batch

    def moment(self, now: float) -> float:
        return now if self.made_at is None else self.made_at


class PreparedPut(_Prepared):
    """A checkpoint, encoded; what it takes over from its parent is settled when the parent is at hand."""

    checkpoint_id: str
    drafted: Draft
    versions: dict[str, Any]
    # The roots of what was encoded, and what they can be made from again.
    pairs: dict[str, Pair]
    sources: dict[str, Source]
    parent: Roots | None = None
    parent_is_known = False
    # The parent's row, unless it is part of the same batch.
    parent_row: Witness | None = None
    # Channels whose values may be replayed from the parent, because this checkpoint need not hold them.
    deltas: Collection[str] = ()
    # The parent itself, when it is part of the same batch.
    sibling: PreparedPut | None = None
    # Channels that keep the parent's root if it has this version.
    inherits: Collection[str] = ()
    # Those of them that do, once that was looked up.
    kept: Collection[str] | None = None
    # The namespace's newest checkpoint as this writer knows it: another one by now is a conflict.
    head: tuple[str, str | None] | None = None
    # Values that were encoded only to be compared with those of the parent, whose roots are kept.
    compared: Mapping[str, tuple[Pair, Source]] = {}
    # Whether a value must be the parent's where its version is (put.py).
    checks_versions = False
    # Whether its parent asked something, as far as this process knows.
    answers = False
    # Whether it is on a branch of its own, under fencing; so is what builds on it.
    is_branching = False
    # The bytes of all that was encoded.
    size = 0
    # The row of the checkpoint, where it was made along with what it refers to.
    row: CheckpointRow | None = None
    _settled: Roots | None = None

    def __init__(self, place: Place, known: Known | None, encoder: Encoder, batch: Batch) -> None:
        self.place, self.known, self.encoder, self.batch = place, known, encoder, batch

    def take(self, made: tuple[Any, ...]) -> None:
        """What `native.put` has made."""
        self.checkpoint_id, self.drafted, self.versions, self.inherits, self.pairs, self.sources, *rest = made
        self.size, whole, self.row = rest
        if self.row is not None:
            self._settled = Roots(self.versions, whole)

    def settled(self) -> Roots:
        """The roots of this checkpoint, those that come from the parent included."""
        if self._settled is None:
            pairs = self.pairs
            if self.parent is not None and self.inherits:
                there, pairs = self.parent.pairs, pairs.copy()
                for name in self.keeps():
                    pairs[name] = there[name]
            self._settled = Roots(self.versions, pairs)
        return self._settled

    def keeps(self) -> Collection[str]:
        """The channels that keep the root of the parent, which is known; in an order, as a set would not have them."""
        if self.kept is None:
            parent = self.parent
            assert parent is not None
            versions, since, there = self.versions, parent.versions, parent.pairs
            self.kept = {name: None for name in self.inherits if name in there and since.get(name) == versions[name]}
        return self.kept

    def unsettle(self) -> None:
        """Forget the parent, which must be read anew."""
        self.parent, self.parent_is_known, self.parent_row = None, False, None
        self.row = self._settled = self.kept = None

    def encode_again(self) -> None:
        """Make all chunks anew, from what was encoded, under the names that the encoder gives."""
        self.batch = Batch()
        self.row = self._settled = None
        for name, source in self.sources.items():
            self.pairs[name], self.sources[name] = self.encoder.again(source, self.batch)
        self.compared = {name: self.encoder.again(one[1], Batch()) for name, one in self.compared.items()}

    def source_before(self, name: str) -> Source | None:
        """What a channel was encoded from by the nearest put before this one in the same batch; None without one."""
        before = self.sibling
        while before is not None and name not in before.sources:
            before = before.sibling
        return before.sources[name] if before is not None else None


class PreparedWrites(_Prepared):
    """Pending writes of one task, encoded."""

    # Whether each must be the first of its key: one that is there already is a conflict.
    are_first = False
    # Whether the rows are as they will be stored: each with the checksum that binds it to its place.
    are_bound = False
    # Whether one is of a special channel, which has a place of its own.
    is_special = False

    def __init__(self, place: Place, known: Known | None, encoder: Encoder, batch: Batch) -> None:
        self.place, self.known, self.encoder, self.batch = place, known, encoder, batch
        self.writes: list[WriteRow] = []
        self.sources: list[Source] = []

    def encode_again(self) -> None:
        """Make all chunks anew, as `PreparedPut.encode_again` does."""
        self.batch, self.are_bound = Batch(), False
        for place, source in enumerate(self.sources):
            (links, packed), _ = self.encoder.again(source, self.batch)
            self.writes[place] = self.writes[place]._replace(links=links, form=0, data=packb(packed))


def prepare_put(
    tools: Tools,
    config: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    new_versions: Mapping[str, Any],
    siblings: Mapping[tuple[str, str, str], PreparedPut] | None = None,
    *,
    now: float,
    checks_versions: bool = False,
) -> PreparedPut:
    """Check and encode a put, which is to be applied at `now`.

    `siblings` are the puts of the same batch, one of which may be its parent. With `checks_versions` it is refused when
    it is applied if a value is not its parent's and the version is.
    """
    place: Place = (native.place(config, Place) if native is not None else None) or place_of(config)
    thread_id, namespace, parent_id = place
    known, held = tools.known.of(thread_id), tools.lines.of((thread_id, namespace))
    batch = Batch(known.digests if known is not None else ())
    put = PreparedPut(place, known, tools.sole_encoder or tools.encoder(known), batch)
    before: Mapping[str, Source] = _NOTHING
    if held is not None and known is not None and (line := held.line)[1] == known.mark:
        before = line[3]
        if line[0][1] == parent_id:
            put.parent, put.parent_is_known, put.parent_row = line[2], True, line[0]
    if parent_id is None:
        put.parent_is_known = True
    else:
        put.checks_versions = checks_versions
        if siblings and (sibling := siblings.get((thread_id, namespace, parent_id))) is not None:
            before = _follow(put, sibling, before)
    _encode(tools, put, config, checkpoint, metadata, new_versions, before, now)
    complete_put(tools, put, metadata)
    return put


def complete_put(tools: Tools, put: PreparedPut, metadata: Mapping[str, Any]) -> None:
    """Note what a put answers, where it belongs and what it descends from, once its values are encoded."""
    thread_id, namespace, parent_id = place = put.place
    if tools.asked and namespace == ROOT:
        put.answers = (thread_id, parent_id) in tools.asked
    if tools.fencing:
        _fence(tools, put, metadata.get("source"))
    if DELTA_COUNTERS in metadata:
        put.deltas = _counted_deltas(metadata)
    put.descent = (parent_id or (_root_above(place, metadata) if namespace else None), parent_id is None)
    tools.expect(thread_id, put.checkpoint_id, put.descent)
    if put.size > LARGE_CHECKPOINT_BYTES:
        _warn_of_size(tools, put)


def _encode(
    tools: Tools,
    put: PreparedPut,
    config: Any,
    checkpoint: Any,
    metadata: Any,
    new_versions: Any,
    before: Mapping[str, Source],
    now: float,
) -> None:
    """Check what a put is given, encode its values, and make its row where the parent is known."""
    parent, encoder = put.parent, put.encoder
    made = None
    if native is not None:
        versions, pairs = (parent.versions, parent.pairs) if parent is not None else (None, None)
        # A row that is sealed is made under the keys that the store has when it is applied.
        is_settled = (parent is not None or put.place[2] is None) and tools.sole_encoder is not None
        is_plain = encoder.codec.foreign is None
        given = config, checkpoint, metadata, new_versions, versions, pairs, is_settled, before
        made = native.put(put.place, *given, encoder.value, is_plain, put.batch, now, tools.how)
    if made is None:
        return _encode_carefully(tools, put, config, checkpoint, metadata, new_versions, before)
    put.take(made)
    if put.checks_versions:
        _encode_to_compare(put, checkpoint["channel_values"], before)
    return None


def _encode_carefully(
    tools: Tools,
    put: PreparedPut,
    config: Any,
    checkpoint: Any,
    metadata: Any,
    new_versions: Any,
    before: Mapping[str, Source],
) -> None:
    """What a put is given, checked and encoded: what `native.put` leaves to Python, and all without it."""
    put.checkpoint_id = check_put(config, checkpoint, metadata, new_versions)
    if put.place[2] == put.checkpoint_id:
        raise InvalidRequest(f"checkpoint {put.checkpoint_id} cannot be its own parent: the config names it")
    put.versions = dict(checkpoint["channel_versions"])
    put.drafted = draft(checkpoint, get_checkpoint_metadata(config, metadata), tools.codec)
    if put.place[2] is not None:
        put.inherits = list(filterfalse(new_versions.__contains__, put.versions))
    pairs: dict[str, Pair] = {}
    sources: dict[str, Source] = {}
    put.pairs, put.sources = pairs, sources
    encode, batch = put.encoder.value, put.batch
    values, is_native = checkpoint.get("channel_values") or {}, put.encoder.codec.foreign is None
    kept = put.keeps() if put.parent is not None and put.inherits else ()
    for name, value in values.items():
        if name in kept:
            continue
        if value is None and is_native:  # the channels of branches
            pairs[name], sources[name] = NONE
            put.size += 1
            continue
        pairs[name], source = encode(value, name, batch, before.get(name))
        sources[name] = source
        put.size += len(source) if isinstance(source, bytes) else source.size
    if put.checks_versions:
        _encode_to_compare(put, values, before)


def _encode_to_compare(put: PreparedPut, values: Mapping[str, Any], before: Mapping[str, Source]) -> None:
    """Encode the values of channels that keep the parent's reference, which must be of the same values."""
    if put.parent is None or not put.inherits:
        return
    kept, encode = put.keeps(), put.encoder.value
    compared = {name: value for name, value in values.items() if name in kept}
    put.compared = {
        name: encode(value, name, Batch(put.batch.known), before.get(name)) for name, value in compared.items()
    }


def prepare_writes(
    tools: Tools,
    config: Mapping[str, Any],
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str = "",
    *,
    are_first: bool = False,
    are_final: bool = True,
) -> PreparedWrites:
    """Check and encode the writes of one task. Unless they are final, their rows may still be given other places."""
    place: Place = (native and native.place(config, Place)) or place_of(config)
    if place.checkpoint_id is None:
        check_writes(writes, task_id, task_path)
        raise InvalidRequest("put_writes needs a config with a checkpoint_id: the one that put() returned")
    known = tools.known.of(place.thread_id)
    encoder, digests = tools.sole_encoder or tools.encoder(known), known.digests if known is not None else ()
    chunks: Chunks = {}
    found = _rows_of_writes(tools, encoder, place, writes, task_id, task_path, digests, chunks) if are_final else None
    batch = (found and found[3]) or Batch(digests, chunks if found else None)
    prepared = prepared_writes(tools, encoder, place, known, batch, found)
    if found is None:
        _encode_writes(prepared, check_writes(writes, task_id, task_path), text_id(task_id, "task_id"), task_path)
        _note_question(tools, prepared)
    prepared.are_first = are_first
    return prepared


def prepared_writes(
    tools: Tools,
    encoder: Encoder,
    place: Place,
    known: Known | None,
    batch: Batch,
    found: _Written | None,
) -> PreparedWrites:
    """Writes that `native.writes` encoded, or that are still to be."""
    prepared = PreparedWrites(place, known, encoder, batch)
    if found is not None:
        prepared.writes, prepared.sources, prepared.is_special, _ = found
        prepared.are_bound = tools.envelope.begun is not None
        _note_question(tools, prepared)
    assert place.checkpoint_id is not None
    coming = tools.coming.get((place.thread_id, place.checkpoint_id))
    prepared.descent = coming or (place.checkpoint_id, True)
    return prepared


def _note_question(tools: Tools, prepared: PreparedWrites) -> None:
    """Note a question of the root graph: the put that follows settles it."""
    thread_id, namespace, checkpoint_id = prepared.place
    if not prepared.is_special or namespace != ROOT or checkpoint_id is None:
        return
    if any([write.channel == INTERRUPT for write in prepared.writes]):
        tools.asked.note(thread_id, checkpoint_id, True)


def _rows_of_writes(
    tools: Tools,
    encoder: Encoder,
    place: Place,
    writes: Any,
    task_id: Any,
    task_path: Any,
    digests: Collection[bytes],
    chunks: Chunks,
) -> _Written | None:
    """What a task wrote, by the native module, which checks what it is given; None where that is not usual."""
    codec = encoder.codec
    if codec.foreign is not None or native is None:
        return None
    if codec.generation != registry.generation:
        codec.refresh()
    how = encoder.digester.key, codec.how, tools.how_writes
    found = native.writes(place, writes, task_id, task_path, encoder.alone, digests, chunks, *how)
    return found  # type: ignore[no-any-return]


def _encode_writes(prepared: PreparedWrites, writes: list[tuple[str, Any]], task_id: str, task_path: str) -> None:
    """Encode values that were written, each by itself."""
    _, namespace, checkpoint_id = prepared.place
    encode, batch = prepared.encoder.alone, prepared.batch
    for position, (channel, value) in enumerate(writes):
        (links, packed), source = encode(value, f"write {channel}", batch)
        index = WRITES_IDX_MAP.get(channel, position)
        prepared.is_special |= index < 0
        prepared.sources.append(source)
        row = (namespace, checkpoint_id, task_id, index, task_path, channel, links, 0, packb(packed), index < 0)
        prepared.writes.append(_new(WriteRow, row))


def _counted_deltas(metadata: Mapping[str, Any]) -> Collection[str]:
    counted = metadata[DELTA_COUNTERS]
    return tuple(counted) if isinstance(counted, Mapping) else ()


def _root_above(place: Place, metadata: Mapping[str, Any]) -> str | None:
    """The checkpoint of the root graph that a subgraph runs for."""
    parents = metadata.get("parents") if place.namespace else None
    above = parents.get("") if isinstance(parents, Mapping) else None
    return above if isinstance(above, str) else None


def _follow(put: PreparedPut, sibling: PreparedPut, before: Mapping[str, Source]) -> Mapping[str, Source]:
    """Let a put build on one of the same batch; returns what both, and the last puts before them, encoded."""
    put.sibling, put.parent_row = sibling, None
    put.parent_is_known, put.parent = sibling.parent_is_known, None
    if sibling.parent_is_known:
        put.parent = sibling.settled()
    # Their chunks are stored before those of this put, or neither are.
    chain: list[PreparedPut] = []
    one: PreparedPut | None = sibling
    while one is not None:
        chain.append(one)
        one = one.sibling
    sources = dict(before)
    for one in reversed(chain):
        sources.update(one.sources)
    return sources


def _fence(tools: Tools, put: PreparedPut, source: Any) -> None:
    """Let a put expect its parent to be the newest still, unless it means to branch; a batch is fenced by its first."""
    if put.sibling is not None:
        put.is_branching = put.sibling.is_branching or source in _OWN_LINES
    else:
        put.is_branching = source in _OWN_LINES or tools.may_branch(put.place)
        if not put.is_branching:
            put.head = (put.place.namespace, put.place.checkpoint_id)


def _warn_of_size(tools: Tools, put: PreparedPut) -> None:
    if put.place.thread_id not in tools.warned:
        tools.warned.add(put.place.thread_id)
        log.warning(
            "thread %r: a checkpoint of about %.0f MB; large states are slow to load, consider keeping files elsewhere",
            put.place.thread_id,
            put.size / 1e6,
        )


Prepared: TypeAlias = PreparedPut | PreparedWrites
