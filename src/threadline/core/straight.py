"""The straight line of a put and of a put_writes: from the request to the row, on the calling thread.

Where the native module is there, the engine has a shorter way (`put_usual`), and nothing is to be read or refused
before, each is one function. Whatever is unusual leaves it at one place, for prepare.py and put.py, which do the same
for all requests. What was encoded until then is not encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.checkpoint import Config, config_of
from ..base.native import native
from ..chunks.encode import Batch, Chunks, Source
from ..codec.allowed import registry
from ..errors import Conflict
from ..ports.checkpoints import Change, Stamp, Witness
from ..ports.engine import Engine
from .context import Tools
from .known import Known
from .prepare import (
    LARGE_CHECKPOINT_BYTES,
    PreparedPut,
    complete_put,
    prepare_put,
    prepare_writes,
    prepared_writes,
)
from .put import chunk_rows, note_refusal, put_now
from .requests import Place
from .rows import DELTA_COUNTERS, Roots

__all__ = ["put_straight", "put_writes_straight"]

# What is known of a thread, the parent's channels, what they were encoded as, and the parent's row.
_Before = tuple[Known | None, Roots | None, Mapping[str, Source], Witness | None]
_NEW: _Before = (None, None, {}, None)
_new = tuple.__new__


def put_straight(tools: Tools, engine: Engine, given: tuple[Any, Any, Any, Any], now: float) -> Config:
    """Check, encode and apply a put, of a config, a checkpoint, metadata and new versions; returns the new config."""
    put, encoder = engine.put_usual, tools.sole_encoder
    is_watched = tools.refused or tools.leases or tools.fencing or tools.checks_versions
    if native is None or put is None or encoder is None or is_watched:
        return _put_carefully(tools, engine, given, now)
    place: Place | None = native.place(given[0], Place)
    line = _line_before(tools, place) if place is not None else None
    if place is None or line is None:
        return _put_carefully(tools, engine, given, now)
    known, parent, before, parent_row = line
    batch, is_plain = Batch(known.digests if known is not None else ()), encoder.codec.foreign is None
    was = (parent.versions, parent.pairs) if parent is not None else (None, None)
    made = native.put(place, *given, *was, True, before, encoder.value, is_plain, batch, now, tools.how)
    if made is None:
        return _put_carefully(tools, engine, given, now)
    (thread_id, namespace, parent_id), checkpoint_id, row = place, made[0], made[8]
    tools.expect(thread_id, checkpoint_id, (parent_id, parent_id is None))
    stamp, is_tried = None, False
    if row is not None and made[6] <= LARGE_CHECKPOINT_BYTES and not batch.moved and DELTA_COUNTERS not in given[2]:
        change = object.__new__(Change)
        change.thread_id, change.now, change.checkpoints = thread_id, now, [row]
        change.continues, change.begins = parent_id, parent_id is None
        if batch.chunks:
            change.chunks = chunk_rows(tools, 0, batch.chunks, batch.known)
        if known is not None:
            change.stamp, change.witnesses = known.stamp, known.witnesses  # after the chunks were chosen
        is_tried = True
        try:
            stamp = put(change)
        except Conflict:
            note_refusal(tools, thread_id, checkpoint_id)
            raise
    if stamp is not None:
        _acknowledge(tools, known, change, stamp, batch, Roots(made[2], made[7]), made[5])
    else:
        one = PreparedPut(place, known, encoder, batch)
        one.parent, one.parent_is_known, one.parent_row = parent, True, parent_row
        one.take(made)
        complete_put(tools, one, given[2])
        put_now(tools, engine, one, now, is_tried=is_tried)
    return config_of(thread_id, namespace, checkpoint_id)


def _line_before(tools: Tools, place: Place) -> _Before | None:
    """What is known of the thread and of the parent of a put; None where that has to be read, or answers a question."""
    thread_id, namespace, parent_id = place
    known, held = tools.known.of(thread_id), tools.lines.of((thread_id, namespace))
    if known is None:
        return _NEW if parent_id is None and not namespace else None
    line = held.line if held is not None else None
    if line is None or line[1] != known.mark or line[0][1] != parent_id or (thread_id, parent_id) in tools.asked:
        return None
    return known, line[2], line[3], line[0]


def _acknowledge(
    tools: Tools,
    known: Known | None,
    change: Change,
    stamp: Stamp,
    batch: Batch,
    roots: Roots,
    sources: dict[str, Source],
) -> None:
    """The commit is in: what it sent is known, what it encoded may be recognised."""
    row, thread_id = change.checkpoints[0], change.thread_id
    witness = _new(Witness, (row[0], row[1], row[11]))
    known = tools.known.learn(thread_id, stamp, batch.chunks, witness, change.witnesses, known)
    if known.stamp == stamp:
        tools.lines.keep(thread_id, witness, known.mark, roots, sources)
        if batch.chunks and not tools.is_in_memory:
            tools.reader.keep(batch)
    tools.coming.pop((thread_id, row[1]), None)


def _put_carefully(tools: Tools, engine: Engine, given: tuple[Any, Any, Any, Any], now: float) -> Config:
    one = prepare_put(tools, *given, now=now, checks_versions=tools.checks_versions)
    put_now(tools, engine, one, now)
    thread_id, namespace, _ = one.place
    return config_of(thread_id, namespace, one.checkpoint_id)


def put_writes_straight(
    tools: Tools, engine: Engine, config: Any, writes: Any, task_id: Any, task_path: Any, now: float
) -> None:
    """Check, encode and apply the writes of one task."""
    put, encoder = engine.put_usual, tools.sole_encoder
    place: Place | None = native.place(config, Place) if native is not None else None
    known = tools.known.of(place[0]) if place is not None else None
    if place is None or known is None or put is None or encoder is None or tools.refused or tools.leases:
        return put_now(tools, engine, prepare_writes(tools, config, writes, task_id, task_path), now)
    codec, digests, found = encoder.codec, known.digests, None
    if codec.generation != registry.generation:
        codec.refresh()
    chunks: Chunks = {}
    if codec.foreign is None:
        to = digests, chunks, encoder.digester.key, codec.how, tools.how_writes
        found = native.writes(place, writes, task_id, task_path, encoder.alone, *to)  # type: ignore[union-attr]
    if found is None:
        return put_now(tools, engine, prepare_writes(tools, config, writes, task_id, task_path), now)
    change = object.__new__(Change)
    rows, _, is_special, batch = found
    change.thread_id, change.now, change.writes, change.stamp = place[0], now, rows, known.stamp
    if chunks and not chunks.keys() <= digests:
        change.chunks = chunk_rows(tools, 0, chunks, digests)
    change.witnesses = known.witnesses  # after the chunks were chosen
    is_tried = not is_special and (batch is None or not batch.moved)
    if not is_tried or put(change) is None:
        batch = batch or Batch(digests, chunks)
        one = prepared_writes(tools, encoder, place, known, batch, found)
        return put_now(tools, engine, one, now, is_tried=is_tried)
    return None
