"""The evidence of quarantine (quarantine.py): the rows that were set aside, as records, and their sound chunks.

The sound chunks are kept so that a checkpoint that is put back can be read as far as before. A hidden thread in the
pool of its origin has a row for each of them, without a document: its links name the chunks that are sound, all of
them. A node above a damaged chunk is left out. It would keep that chunk, too, and what it is part of cannot be read
with it either. Of chunks that are in an object which is lost the row keeps the carriers (away.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import ormsgpack

from ...base.attempts import ATTEMPTS, gave_up
from ...base.hashing import blake2b
from ...codec.limits import unpack
from ...errors import Conflict, Corrupt, NotFound
from ...ports.checkpoints import (
    Backend,
    Change,
    CheckpointKey,
    CheckpointRow,
    ChunkRow,
    Found,
    Query,
    Stale,
    ThreadRow,
    WriteRow,
    split_links,
)
from ...ports.rules import ASIDE, hidden_id, hidden_ids_of, mark
from ..context import Context, Tools
from ..lifecycle import living
from ..rows import place_of_row, write_place
from ..store_records import change_record, read_record, record_names
from .away import Away, carriers_of, closed_under_links
from .verify import Walk, batches

__all__ = [
    "Entry",
    "RECORDS",
    "entries_of",
    "evidence_key",
    "forget_evidence",
    "keep_chunks",
    "key_numbers_of_evidence",
    "let_go",
    "objects_of_evidence",
    "pools_of_keepers",
    "reseal_evidence",
]


# How the keys of these records begin.
RECORDS = "quarantine:"
_BATCH = 256
_MOST_KEEPERS = 100
_Rows = list[CheckpointRow | WriteRow | None]


class Entry(NamedTuple):
    """What was set aside at one time: thread, time and reasons; the checkpoint's row and its writes; what is away."""

    head: list[Any]
    rows: _Rows
    away: Away = Away()

    def packed(self) -> list[Any]:
        away = [self.away.packed()] if self.away.carriers else []
        return [*self.head, *(row and tuple(row) for row in self.rows), *away]


def evidence_key(thread_id: str, namespace: str, checkpoint_id: str) -> str:
    """The record of what was set aside from this place: a msgpack list, oldest first, of
    `[thread id, when, [what was wrong, …], checkpoint row or None, write row, …]`, rows as the backend had them, and
    at its end a map of what is away, where something is."""
    place = ormsgpack.packb([thread_id, namespace, checkpoint_id])
    return f"{RECORDS}{blake2b(place, digest_size=16).hexdigest()}"


async def forget_evidence(backend: Backend, thread_id: str, rows: Iterable[Found]) -> None:
    """Delete what is kept of the quarantined checkpoints of a thread, whose data is erased."""
    for found in rows:
        name = evidence_key(thread_id, found.row.namespace, found.row.id)
        await change_record(backend, name, lambda _: None, f"erasure of what was quarantined of thread {thread_id!r}")


async def key_numbers_of_evidence(backend: Backend) -> dict[str, set[int]]:
    """Under which keys, by number, the parts of each record of quarantine are sealed."""
    found: dict[str, set[int]] = {}
    for name in await record_names(backend, RECORDS):
        entries = entries_of(name, await read_record(backend, name))
        found[name] = {form >> 1 for entry in entries for form in _forms(entry.rows)}
        found[name].update(*(entry.away.key_numbers for entry in entries))
    return found


async def objects_of_evidence(backend: Backend) -> set[str] | None:
    """The objects that hold chunks of what was set aside; None where a record cannot be read, which may name any."""
    found: set[str] = set()
    try:
        for name in await record_names(backend, RECORDS):
            for entry in entries_of(name, await read_record(backend, name)):
                found.update(entry.away.objects)
    except Corrupt:
        return None
    return found


async def reseal_evidence(store: Context, name: str) -> int:
    """Seal a record of quarantine anew under the current key, as far as its parts open; returns how many rows changed.

    What does not open stays as it was found: it may be mended by hand some day, and then needs the key it had.
    """
    changed = 0

    def anew(before: bytes | None) -> bytes | None:
        nonlocal changed
        records, changed = [], 0
        for entry in entries_of(name, before):
            sealed = [row and _resealed(store.tools, entry.head[0], row) for row in entry.rows]
            changed += sum(one != row for one, row in zip(sealed, entry.rows, strict=True))
            records.append(entry._replace(rows=sealed).packed())
        return ormsgpack.packb(records) if changed else before

    await change_record(store.backend, name, anew, "rotation of a record of quarantine", Conflict)
    return changed


def entries_of(name: str, stored: bytes | None) -> list[Entry]:
    """The entries of a record; Corrupt where it is damaged."""
    try:
        return [_entry(held) for held in (unpack(stored) if stored else [])]
    except (ValueError, TypeError, LookupError):
        raise Corrupt(f"the record {name} is damaged: which keys its rows need cannot be told") from None


def _entry(held: list[Any]) -> Entry:
    away = Away()
    if type(held[-1]) is dict:
        *held, last = held
        away = Away.unpacked(last)
    rows: _Rows = [held[3] and CheckpointRow(*held[3]), *(WriteRow(*write) for write in held[4:])]
    return Entry(held[:3], rows, away)


def _forms(rows: _Rows) -> list[int]:
    forms: list[int] = []
    for row in rows:
        if isinstance(row, CheckpointRow):
            forms += [row.form, row.metadata_form]
        elif row is not None:
            forms.append(row.form)
    return forms


def _resealed(tools: Tools, thread_id: str, row: CheckpointRow | WriteRow) -> CheckpointRow | WriteRow:
    if isinstance(row, WriteRow):
        form, data = _sealed_anew(tools, row.form, row.data, write_place(thread_id, row))
        return row._replace(form=form, data=data)
    form, document = _sealed_anew(tools, row.form, row.document, place_of_row(thread_id, row, "document"))
    place = place_of_row(thread_id, row, "metadata")
    metadata_form, metadata = _sealed_anew(tools, row.metadata_form, row.metadata, place)
    return row._replace(form=form, document=document, metadata_form=metadata_form, metadata=metadata)


def _sealed_anew(tools: Tools, form: int, data: bytes, place: bytes) -> tuple[int, bytes]:
    envelope = tools.envelope
    assert envelope.ring is not None
    if form >> 1 == envelope.key_numbers[envelope.ring.current]:
        return form, data
    try:
        return envelope.wrap_row(envelope.unwrap_row(form, data, place), place)
    except (Corrupt, NotFound, TypeError, ValueError):
        return form, data


async def keep_chunks(walk: Walk, thread_id: str, key: CheckpointKey, roots: Iterable[bytes]) -> Away:
    """Keep what is sound of the chunks that these links lead to, and carriers of what a lost object may bring back.

    Called before their rows are deleted. Says what is away.
    """
    backend, links = walk.store.backend, [part for part in roots if type(part) is bytes]
    for _ in range(ATTEMPTS):
        thread = await living(backend, thread_id)
        if thread.pool != walk.pool:
            return Away()
        sound, carriers, away = await _worth_keeping(walk, links)
        keeper = await _keeper(backend, thread)
        before = await backend.find(keeper, *key, with_writes=False)
        held = set(split_links(before.row.links)) if before is not None else set()
        row = _row(key, b"".join(sorted(sound | held | set(away.carriers))), thread.created)
        change = Change(thread_id=keeper, now=thread.created, stamp=thread.stamp, chunks=carriers, checkpoints=[row])
        [outcome] = await backend.apply([change])
        if not isinstance(outcome, Stale):
            return away
    raise gave_up(f"quarantine in thread {thread_id!r}", "its chunks were collected during each of them")


async def let_go(backend: Backend, thread_id: str, key: CheckpointKey, now: float) -> None:
    """Keep chunks of this checkpoint no longer; the last one takes the keeper along."""
    for row in await _keepers(backend, thread_id):
        await backend.remove_checkpoints(row.thread_id, [key])
        if not await backend.page(Query(thread_id=row.thread_id, limit=1, with_writes=False)):
            await backend.remove_thread(row.thread_id, "0", now)


async def pools_of_keepers(backend: Backend, thread_id: str) -> set[int]:
    """The pools in which chunks of a thread are kept: it may have had several lives."""
    return {row.pool for row in await _keepers(backend, thread_id)}


async def _keepers(backend: Backend, origin: str) -> list[ThreadRow]:
    return await backend.threads("", _MOST_KEEPERS, hidden_ids_of(origin) + ASIDE)


async def _keeper(backend: Backend, thread: ThreadRow) -> str:
    """The hidden thread for a thread, in its pool; the thread may have had a life before, in another one."""
    origin = thread.thread_id
    for _ in range(ATTEMPTS):
        held = {row.thread_id: row.pool for row in await _keepers(backend, origin)}
        for name, pool in held.items():
            if pool == thread.pool:
                return name
        slot = next(slot for slot in range(len(held) + 1) if hidden_id(origin, ASIDE, slot) not in held)
        try:
            name = hidden_id(origin, ASIDE, slot)
            await backend.apply([Change(thread_id=name, now=thread.created, joins=origin)])
        except Conflict:
            continue  # another process made one
    raise gave_up(f"quarantine in thread {origin!r}", "another process began to keep its chunks during each of them")


async def _worth_keeping(walk: Walk, links: Sequence[bytes]) -> tuple[set[bytes], list[ChunkRow], Away]:
    """The chunks below some links that are sound, and so is all below them; then carriers of those which are, but for
    objects that are lost."""
    below: dict[bytes, bytes] = {}

    async def links_of(digests: list[bytes]) -> dict[bytes, bytes]:
        found = await walk.store.backend.links(walk.pool, digests)
        below.update((digest, part if type(part) is bytes else b"") for digest, part in found.items())
        return {digest: below[digest] for digest in found}

    await mark(links, set(), links_of)
    good: set[bytes] = set()
    lost: set[bytes] = set()
    for batch in batches(sorted(below), _BATCH):
        for stored in await walk.fetch(batch):
            fault = walk.fault_of(stored)
            if fault is None:
                good.add(stored[0])
            elif fault.absence is not None:
                lost.add(stored[0])
    sound = closed_under_links(good, below)
    carriers, away = await carriers_of(walk, closed_under_links(good | lost, below) - sound)
    return sound, carriers, away


def _row(key: CheckpointKey, links: bytes, created: float) -> CheckpointRow:
    return CheckpointRow(*key, None, links, 0, b"", 0, b"", None, None, None, created, None)
