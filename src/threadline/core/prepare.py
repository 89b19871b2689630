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
from ..chunks.encode import Batch, Encoder, Source
from ..chunks.refs import Pair
from ..errors import InvalidRequest
from ..ports.checkpoints import Witness, WriteRow
from .context import Descent, Tools
from .known import Known
from .requests import Place, check_put, check_writes, place_of, text_id
from .rows import DELTA_COUNTERS, Draft, Roots, draft

__all__ = ["Prepared", "PreparedPut", "PreparedWrites", "prepare_put", "prepare_writes"]

log = logging.getLogger("threadline")
_LARGE_CHECKPOINT_BYTES = 10_000_000
# Puts that begin a line of their own on purpose, and so are never fenced.
_OWN_LINES = ("fork", "update")
_NOTHING: Mapping[str, Source] = {}
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
    _settled: Roots | None = None

    def __init__(self, place: Place, known: Known | None, encoder: Encoder) -> None:
        self.place, self.known, self.encoder = place, known, encoder
        self.batch = Batch(known.digests if known is not None else ())
        # The roots of what was encoded, and what they can be made from again.
        self.pairs: dict[str, Pair] = {}
        self.sources: dict[str, Source] = {}

    def settled(self) -> Roots:
        """The roots of this checkpoint, those that come from the parent included."""
        if self._settled is None:
            pairs = self.pairs
            if self.parent is not None and self.inherits:
                versions, since, there = self.versions, self.parent.versions, self.parent.pairs
                pairs = pairs.copy()
                for name in self.inherits:
                    if name in there and since.get(name) == versions[name]:
                        pairs[name] = there[name]
            self._settled = Roots(self.versions, pairs)
        return self._settled

    def unsettle(self) -> None:
        """Forget the parent, which must be read anew."""
        self.parent, self.parent_is_known, self.parent_row, self._settled = None, False, None, None

    def encode_again(self) -> None:
        """Make all chunks anew, from what was encoded, under the names that the encoder gives."""
        self.batch = Batch()
        self._settled = None
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

    def __init__(self, place: Place, known: Known | None, encoder: Encoder) -> None:
        self.place, self.known, self.encoder = place, known, encoder
        self.batch = Batch(known.digests if known is not None else ())
        self.writes: list[WriteRow] = []
        self.sources: list[Source] = []

    def encode_again(self) -> None:
        """Make all chunks anew, as `PreparedPut.encode_again` does."""
        self.batch = Batch()
        for place, source in enumerate(self.sources):
            (links, packed), _ = self.encoder.again(source, self.batch)
            self.writes[place] = self.writes[place]._replace(links=links, data=packb(packed))


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
    thread_id, namespace, parent_id = place
    checkpoint_id = check_put(config, checkpoint, metadata, new_versions)
    if parent_id == checkpoint_id:
        raise InvalidRequest(f"checkpoint {checkpoint_id} cannot be its own parent: the config names it")
    known, line = tools.known.of(thread_id), tools.lines((thread_id, namespace))
    put = PreparedPut(place, known, tools.sole_encoder or tools.encoder(known))
    put.checkpoint_id = checkpoint_id
    put.drafted = draft(checkpoint, get_checkpoint_metadata(config, metadata), tools.codec)
    put.versions = dict(checkpoint["channel_versions"])
    before: Mapping[str, Source] = _NOTHING
    if line is not None and known is not None and line[1] == known.mark:
        before = line[3]
        if line[0][1] == parent_id:
            put.parent, put.parent_is_known, put.parent_row = line[2], True, line[0]
    if parent_id is None:
        put.parent_is_known = True
    else:
        put.checks_versions = checks_versions
        put.inherits = list(filterfalse(new_versions.__contains__, put.versions))
        if siblings and (sibling := siblings.get((thread_id, namespace, parent_id))) is not None:
            before = _follow(put, sibling, before)
    _encode(put, checkpoint.get("channel_values") or {}, before)
    if tools.asked and namespace == ROOT:
        put.answers = (thread_id, parent_id) in tools.asked
    if tools.fencing:
        _fence(tools, put, metadata.get("source"))
    if DELTA_COUNTERS in metadata:
        put.deltas = _counted_deltas(metadata)
    put.descent = (parent_id or (_root_above(place, metadata) if namespace else None), parent_id is None)
    tools.expect(thread_id, checkpoint_id, put.descent)
    if put.size > _LARGE_CHECKPOINT_BYTES:
        _warn_of_size(tools, put)
    return put


def prepare_writes(
    tools: Tools,
    config: Mapping[str, Any],
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str = "",
    *,
    are_first: bool = False,
) -> PreparedWrites:
    """Check and encode the writes of one task."""
    place = place_of(config)
    thread_id, namespace, checkpoint_id = place
    checked = check_writes(writes, task_id, task_path)
    if checkpoint_id is None:
        raise InvalidRequest("put_writes needs a config with a checkpoint_id: the one that put() returned")
    known = tools.known.of(thread_id)
    prepared = PreparedWrites(place, known, tools.sole_encoder or tools.encoder(known))
    if are_first:
        prepared.are_first = True
    prepared.descent = tools.coming.get((thread_id, checkpoint_id)) or (checkpoint_id, True)
    encode, batch, rows, sources = prepared.encoder.alone, prepared.batch, prepared.writes, prepared.sources
    if type(task_id) is not str:
        task_id = text_id(task_id, "task_id")
    for position, (channel, value) in enumerate(checked):
        (links, packed), source = encode(value, f"write {channel}", batch)
        index = WRITES_IDX_MAP.get(channel, position)
        if channel == INTERRUPT and namespace == ROOT:
            tools.asked.note(thread_id, checkpoint_id, True)
        sources.append(source)
        row = (namespace, checkpoint_id, task_id, index, task_path, channel, links, 0, packb(packed), index < 0)
        rows.append(_new(WriteRow, row))
    return prepared


def _encode(put: PreparedPut, values: Mapping[str, Any], before: Mapping[str, Source]) -> None:
    """Encode the values of a put, except those whose root is the parent's; where these are at most compared."""
    encode, batch, pairs, sources, size = put.encoder.value, put.batch, put.pairs, put.sources, 0
    kept: Collection[str] = ()
    if put.parent is not None and put.inherits:
        versions, since, there = put.versions, put.parent.versions, put.parent.pairs
        kept = {name for name in put.inherits if name in there and since.get(name) == versions[name]}
    for name, value in values.items():
        if name in kept:
            continue
        pairs[name], source = encode(value, name, batch, before.get(name))
        sources[name] = source
        size += len(source) if isinstance(source, bytes) else source.size
    put.size = size
    if put.checks_versions:
        put.compared = {
            name: encode(value, name, Batch(batch.known), before.get(name))
            for name, value in values.items()
            if name in kept
        }


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
