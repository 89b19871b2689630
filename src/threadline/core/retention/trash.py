"""The trash: deleted threads and checkpoints that can be restored for a while.

An entry is a hidden thread (ports/rules.py) in the pool of the thread that it came from. It has the rows as they
were stored, so that collecting finds their chunks needed; a restored thread is what it was, to the byte. Its record
says what else there was: status, tags, metadata, expiry. When it expires, the next sweep or collection deletes it.

An entry is begun before anything is deleted, and `active` until all is deleted; then it is `archived`. Where a
process died in between, `settle` finishes what was begun: nothing is lost at any moment.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import ormsgpack

from ...base.attempts import ATTEMPTS, gave_up
from ...base.hashing import blake2b
from ...base.ids import id_of_now
from ...codec.limits import unpack
from ...errors import Conflict, Corrupt, NotFound
from ...ports.checkpoints import Backend, Change, CheckpointKey, CheckpointRow, Query, Stale, ThreadRow, WriteRow
from ...ports.rules import HIDDEN, TRASH, hidden_id, hidden_ids_of, kind_of
from ..context import Context
from ..lifecycle import change_words, living, set_status
from ..paging import each_thread, thread_rows
from ..requests import plain_text

__all__ = [
    "Bin",
    "Record",
    "Trashed",
    "described",
    "drop_entry",
    "each_entry",
    "id_of_entry",
    "listed",
    "origin_of",
    "read_record",
    "settle",
    "stored_in",
    "trash_thread",
    "write_record",
]

_BATCH = 500
# A deletion that has moved nothing for so long has died.
_STALE_SECONDS = 600.0
_PRUNED = "its chunks were collected during each of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trashed:
    """One deletion in the trash."""

    id: str
    thread_id: str
    # Whether the whole thread was deleted, or checkpoints of it.
    is_thread: bool
    checkpoints: int
    writes: int
    # What its rows take, without chunks, which are shared.
    row_bytes: int
    trashed: float
    # Until when it can be restored.
    until: float


class Record(NamedTuple):
    """An entry beside its rows, in the metadata of its thread."""

    form: int  # of the metadata; at the head, as in the metadata of any thread
    metadata: bytes | None
    is_thread: bool
    trashed: float
    serial: int
    status: str
    expires: float | None
    tags: str
    created: float
    forked_from: str | None
    is_copied: bool = False


async def each_entry(backend: Backend, prefix: str = HIDDEN) -> AsyncIterator[ThreadRow]:
    """The hidden threads that are entries of the trash, of all threads or of one."""
    async for row in each_thread(backend, prefix):
        if kind_of(row.thread_id) == TRASH:
            yield row


async def listed(backend: Backend, prefix: str = "") -> list[Trashed]:
    """The entries that can be restored, newest deletion first."""
    prefix = plain_text(prefix, "prefix")
    found = []
    async for row in each_entry(backend):
        if row.status == "archived" and origin_of(row).startswith(prefix):
            found.append(await described(backend, row))
    return sorted(found, key=lambda one: (-one.trashed, one.thread_id, one.id))


async def described(backend: Backend, row: ThreadRow) -> Trashed:
    """An entry in figures."""
    record = read_record(row)
    rows, writes = await stored_in(backend, row.thread_id)
    return Trashed(
        id=id_of_entry(row),
        thread_id=origin_of(row),
        is_thread=record.is_thread,
        checkpoints=len(rows),
        writes=len(writes),
        row_bytes=sum(len(one.document) + len(one.metadata) + len(one.links) for one in rows)
        + sum(len(one.data) + len(one.links) for one in writes),
        trashed=record.trashed,
        until=row.expires or 0.0,
    )


def id_of_entry(row: ThreadRow) -> str:
    """The name of an entry for people: the ids of hidden threads are used again, this is not."""
    named = f"{row.thread_id}\0{row.created!r}".encode(errors="surrogatepass")
    return blake2b(named, digest_size=4).hexdigest()


def origin_of(row: ThreadRow) -> str:
    """The thread that an entry belongs to."""
    return row.forked_from or ""


async def trash_thread(store: Context, thread_id: str, keep_seconds: float, now: float) -> None:
    """Delete a thread, restorable for some seconds; no put that was acknowledged is missing from what is kept."""
    thread = await living(store, thread_id)
    entry = await _begun_before(store.backend, thread)
    if entry is None:
        entry = await _begin(store.backend, thread, True, now, now + keep_seconds)
    await _finish_thread(store, entry, now)


async def _begun_before(backend: Backend, thread: ThreadRow) -> ThreadRow | None:
    """The entry of a deletion of this thread that was begun and not ended; its record says what the thread was."""
    async for row in each_entry(backend, hidden_ids_of(thread.thread_id)):
        if row.status == "active" and row.metadata:
            record = read_record(row)
            if record.is_thread and record.serial == thread.serial:
                return row
    return None


class Bin:
    """Takes the checkpoints of one deletion before they go; the entry is begun with the first."""

    def __init__(self, backend: Backend, thread_id: str, keep_seconds: float, now: float) -> None:
        self._backend, self._thread_id = backend, thread_id
        self._now, self._until = now, now + keep_seconds
        self._entry: ThreadRow | None = None
        self._kept: set[CheckpointKey] = set()
        self._gone: set[CheckpointKey] = set()

    async def keep(
        self, keys: Sequence[CheckpointKey], emptied: Sequence[CheckpointKey] = (), tags: str = "[]"
    ) -> None:
        """Store these checkpoints, and the writes of others; called before they are deleted."""
        for _ in range(ATTEMPTS):
            thread = await living(self._backend, self._thread_id)
            rows: list[CheckpointRow] = []
            writes: list[WriteRow] = []
            for key in (*keys, *emptied):
                found = await self._backend.find(self._thread_id, *key)
                if found is not None:
                    rows += [found.row] if key in keys else []
                    writes += found.writes
            if not rows and not writes:
                return
            if self._entry is None:
                self._entry = await _begin(self._backend, thread, False, self._now, self._until, tags)
            if await _stored(self._backend, self._entry, thread, rows, writes):
                self._kept.update(keys, emptied)
                return
        raise gave_up(f"move to the trash from thread {self._thread_id!r}", _PRUNED)

    def went(self, keys: Sequence[CheckpointKey], emptied: Sequence[CheckpointKey] = ()) -> None:
        """These were deleted, out of those that were stored."""
        self._gone.update(keys, emptied)

    async def close(self) -> None:
        """End the deletion: what stayed after all is no part of it."""
        if self._entry is not None:
            await self._backend.remove_checkpoints(self._entry.thread_id, sorted(self._kept - self._gone))
            await _complete(self._backend, self._entry.thread_id, self._now)


async def settle(store: Context, row: ThreadRow, now: float) -> None:
    """End a deletion whose process died: finish it, or leave it undone where its thread was used since."""
    if row.status != "active" or now - row.active < _STALE_SECONDS:
        return
    thread = await store.backend.thread(origin_of(row))
    lives = thread is not None and thread.status != "deleted"
    record = read_record(row) if row.metadata else None
    if record is None or (record.is_thread and not lives and not record.is_copied):
        await drop_entry(store.backend, row, now)
    elif not lives or thread is None or thread.serial != record.serial:
        await _complete(store.backend, row.thread_id, now)
    elif not record.is_thread:
        await _forget_living(store.backend, row)
        await _complete(store.backend, row.thread_id, now)
    elif thread.status == "archived":
        # Nobody could write to it since it was to be deleted.
        await _finish_thread(store, row, now)
    else:
        await drop_entry(store.backend, row, now)


async def drop_entry(backend: Backend, row: ThreadRow, now: float) -> None:
    """Delete an entry; its chunks stay for the next collection, unless it was the last of its pool."""
    await backend.remove_thread(row.thread_id, "0", now)


async def stored_in(backend: Backend, hidden: str) -> tuple[list[CheckpointRow], list[WriteRow]]:
    """The rows of an entry."""
    rows = [found.row for found in await thread_rows(backend, hidden)]
    return rows, await backend.thread_writes(hidden)


async def _begin(
    backend: Backend, thread: ThreadRow, is_thread: bool, now: float, until: float, tags: str = "[]"
) -> ThreadRow:
    """A new entry for a thread, in its pool."""
    origin = thread.thread_id
    for _ in range(ATTEMPTS):
        used = {row.thread_id async for row in each_entry(backend, hidden_ids_of(origin))}
        slot = next(slot for slot in range(len(used) + 1) if hidden_id(origin, TRASH, slot) not in used)
        name = hidden_id(origin, TRASH, slot)
        try:
            await backend.apply([Change(thread_id=name, now=now, joins=origin)])
        except Conflict:
            continue  # another deletion took the slot
        made = await living(backend, name)
        record = _record_of(thread, is_thread, now)
        wanted = made._replace(
            expires=until, metadata=write_record(record if is_thread else record._replace(tags=tags))
        )
        if await backend.swap_thread(made, wanted):
            return wanted
    raise gave_up(f"move of thread {origin!r} to the trash", "another deletion took the entry during each of them")


def _record_of(thread: ThreadRow, is_thread: bool, now: float) -> Record:
    form, metadata = unpack(thread.metadata) if is_thread and thread.metadata else (0, None)
    return Record(
        form, metadata, is_thread, now, thread.serial, thread.status, thread.expires, thread.tags, thread.created,
        thread.forked_from,
    )  # fmt: skip


def read_record(row: ThreadRow) -> Record:
    """The record of an entry."""
    try:
        return Record(*unpack(row.metadata))
    except (ValueError, TypeError):
        raise Corrupt(f"an entry of the trash, of thread {origin_of(row)!r}, is damaged") from None


def write_record(record: Record) -> bytes:
    """A record as it is stored."""
    return ormsgpack.packb(list(record))


async def _finish_thread(store: Context, entry: ThreadRow, now: float) -> None:
    """Copy all of a thread into its entry, and delete it."""
    origin = origin_of(entry)
    await set_status(store.backend, origin, "archived")
    # Puts that were under way before hold the pool: who holds it alone has seen them end.
    await store.backend.remove_checkpoints(origin, [])
    for _ in range(ATTEMPTS):
        thread = await living(store, origin)
        rows = [found.row for found in await thread_rows(store.backend, origin)]
        writes = await store.thread_writes(origin)
        if await _stored(store.backend, entry, thread, rows, writes):
            break
    else:
        raise gave_up(f"deletion of thread {origin!r}", _PRUNED)
    held, _ = await stored_in(store.backend, entry.thread_id)
    extra = {row.key for row in held} - {r.key for r in rows}
    await store.backend.remove_checkpoints(entry.thread_id, sorted(extra))
    before = read_record(entry)
    # It was archived in order to be deleted; the record says what it was before.
    record = _record_of(thread, True, before.trashed)._replace(status=before.status, is_copied=True)
    await change_words(store.backend, entry.thread_id, lambda row: row._replace(metadata=write_record(record)))
    [*newest] = await store.page(Query(thread_id=origin, limit=1, with_writes=False))
    await store.backend.remove_thread(origin, max(newest[0].row.id if newest else "", id_of_now()), now)
    store.tools.known.drop(origin)
    await change_words(store.backend, entry.thread_id, lambda row: row._replace(status="archived"))


async def _stored(
    backend: Backend,
    entry: ThreadRow,
    thread: ThreadRow,
    rows: Sequence[CheckpointRow],
    writes: Sequence[WriteRow],
) -> bool:
    """Put rows into an entry; False if chunks were collected meanwhile, which these rows may need."""
    stamp = thread.stamp
    # When it was last written to tells whether a deletion goes on or has died.
    changes = [Change(thread_id=entry.thread_id, now=time.time(), stamp=stamp)]
    changes += [replace(changes[0], checkpoints=rows[at : at + _BATCH]) for at in range(0, len(rows), _BATCH)]
    changes += [replace(changes[0], writes=writes[at : at + _BATCH]) for at in range(0, len(writes), _BATCH)]
    for change in changes:
        [outcome] = await backend.apply([change])
        if isinstance(outcome, Stale):
            return False
    return True


async def _forget_living(backend: Backend, entry: ThreadRow) -> None:
    """Take out of an entry what its thread still has."""
    origin = origin_of(entry)
    rows, writes = await stored_in(backend, entry.thread_id)
    keys = {row.key for row in rows}
    alone = {write.key for write in writes} - keys
    living_keys: Collection[CheckpointKey] = [
        key
        for key in sorted(keys | alone)
        if (found := await backend.find(origin, *key)) is not None and (key in keys or found.writes)
    ]
    await backend.remove_checkpoints(entry.thread_id, living_keys)


async def _complete(backend: Backend, hidden: str, now: float) -> None:
    """An entry is whole, and shown from now on; without any row it goes."""
    rows, writes = await stored_in(backend, hidden)
    if not rows and not writes:
        await backend.remove_thread(hidden, "0", now)
        return
    try:
        await change_words(backend, hidden, lambda row: row._replace(status="archived"))
    except NotFound:
        return  # erased meanwhile
