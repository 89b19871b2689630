"""The evidence of quarantine (quarantine.py): the rows that were set aside, as records, and their sound chunks.

The sound chunks are kept so that a checkpoint that is put back can be read as far as before. A hidden thread in the
pool of its origin has a row for each of them, without a document: its links name the chunks that are sound, all of
them. A node above a damaged chunk is left out. It would keep that chunk, too, and what it is part of cannot be read
with it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ormsgpack

from ...base.hashing import blake2b
from ...codec.limits import unpack
from ...errors import Conflict, Corrupt, NotFound
from ...ports.checkpoints import (
    Backend,
    Change,
    CheckpointKey,
    CheckpointRow,
    Found,
    Query,
    Stale,
    ThreadRow,
    WriteRow,
    split_links,
)
from ...ports.rules import ASIDE, hidden_id, hidden_ids_of, mark
from ..attempts import ATTEMPTS, gave_up
from ..context import Context, Tools
from ..lifecycle import living
from ..rows import place_of_row, write_place
from ..store_records import change_record, read_record, record_names
from .verify import Walk, batches

__all__ = [
    "RECORDS",
    "entries_of",
    "evidence_key",
    "forget_evidence",
    "keep_sound_chunks",
    "key_numbers_of_evidence",
    "let_go",
    "pools_of_keepers",
    "reseal_evidence",
]


# How the keys of these records begin.
RECORDS = "quarantine:"
_BATCH = 256
_MOST_KEEPERS = 100
_Rows = list[CheckpointRow | WriteRow | None]


def evidence_key(thread_id: str, namespace: str, checkpoint_id: str) -> str:
    """The record of what was set aside from this place: a msgpack list, oldest first, of
    `[thread id, when, [what was wrong, …], checkpoint row or None, write row, …]`, rows as the backend had them."""
    place = ormsgpack.packb([thread_id, namespace, checkpoint_id])
    return f"{RECORDS}{blake2b(place, digest_size=16).hexdigest()}"


async def forget_evidence(backend: Backend, thread_id: str, rows: Iterable[Found]) -> None:
    """Delete what is kept of the quarantined checkpoints of a thread, whose data is erased."""
    for found in rows:
        name = evidence_key(thread_id, found.row.namespace, found.row.id)
        await change_record(backend, name, lambda _: None, f"erasure of what was quarantined of thread {thread_id!r}")


async def key_numbers_of_evidence(backend: Backend) -> dict[str, set[int]]:
    """Under which keys, by number, the parts of each record of quarantine are sealed."""
    return {
        name: {form >> 1 for _, rows in entries_of(name, await read_record(backend, name)) for form in _forms(rows)}
        for name in await record_names(backend, RECORDS)
    }


async def reseal_evidence(store: Context, name: str) -> int:
    """Seal a record of quarantine anew under the current key, as far as its parts open; returns how many rows changed.

    What does not open stays as it was found: it may be mended by hand some day, and then needs the key it had.
    """
    changed = 0

    def anew(before: bytes | None) -> bytes | None:
        nonlocal changed
        records, changed = [], 0
        for head, rows in entries_of(name, before):
            sealed = [row and _resealed(store.tools, head[0], row) for row in rows]
            changed += sum(one != row for one, row in zip(sealed, rows, strict=True))
            records.append([*head, *(row and tuple(row) for row in sealed)])
        return ormsgpack.packb(records) if changed else before

    await change_record(store.backend, name, anew, "rotation of a record of quarantine", Conflict)
    return changed


def entries_of(name: str, stored: bytes | None) -> list[tuple[list[Any], _Rows]]:
    """The entries of a record: thread, time and reasons of each, and its rows."""
    try:
        return [
            (entry[:3], [entry[3] and CheckpointRow(*entry[3]), *(WriteRow(*write) for write in entry[4:])])
            for entry in (unpack(stored) if stored else [])
        ]
    except (ValueError, TypeError, LookupError):
        raise Corrupt(f"the record {name} is damaged: which keys its rows need cannot be told") from None


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


async def keep_sound_chunks(walk: Walk, thread_id: str, key: CheckpointKey, roots: Iterable[bytes]) -> None:
    """Keep what is sound of the chunks that these links lead to; called before their rows are deleted."""
    backend, links = walk.store.backend, [part for part in roots if type(part) is bytes]
    for _ in range(ATTEMPTS):
        thread = await living(backend, thread_id)
        sound = await _sound(walk, links)
        if not sound or thread.pool != walk.pool:
            return
        keeper = await _keeper(backend, thread)
        before = await backend.find(keeper, *key, with_writes=False)
        held = set(split_links(before.row.links)) if before is not None else set()
        row = _row(key, b"".join(sorted(sound | held)), thread.created)
        change = Change(thread_id=keeper, now=thread.created, stamp=thread.stamp, checkpoints=[row])
        [outcome] = await backend.apply([change])
        if not isinstance(outcome, Stale):
            return
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


async def _sound(walk: Walk, links: Sequence[bytes]) -> set[bytes]:
    """The chunks below some links that are sound, and so is all below them."""
    below: dict[bytes, bytes] = {}

    async def links_of(digests: list[bytes]) -> dict[bytes, bytes]:
        found = await walk.store.backend.links(walk.pool, digests)
        below.update((digest, part if type(part) is bytes else b"") for digest, part in found.items())
        return {digest: below[digest] for digest in found}

    await mark(links, set(), links_of)
    good: set[bytes] = set()
    for batch in batches(sorted(below), _BATCH):
        good.update(stored[0] for stored in await walk.fetch(batch) if walk.fault_of(stored) is None)
    while bad := [digest for digest in good if not good.issuperset(split_links(below[digest]))]:
        good.difference_update(bad)
    return good


def _row(key: CheckpointKey, links: bytes, created: float) -> CheckpointRow:
    return CheckpointRow(*key, None, links, 0, b"", 0, b"", None, None, None, created, None)
