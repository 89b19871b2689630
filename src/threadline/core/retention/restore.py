"""Taking things out of the trash (core/retention/trash.py): back into their thread, or away for good."""

from __future__ import annotations

import json
from collections.abc import Sequence

import ormsgpack

from ...base.attempts import ATTEMPTS, gave_up
from ...errors import Conflict, NotFound
from ...ports.checkpoints import Applied, Backend, Change, CheckpointKey, ThreadRow
from ..context import Context
from ..lifecycle import change_words, living
from ..paging import has_chunks
from ..requests import plain_text, text_id, text_ids
from .prune import collect_pool
from .trash import (
    Record,
    Trashed,
    described,
    drop_entry,
    each_entry,
    id_of_entry,
    origin_of,
    read_record,
    settle,
    stored_in,
)

__all__ = ["empty", "restore", "tidy"]

_COLLECTED = "chunks were collected during each of them"


async def restore(store: Context, named: str, now: float) -> Trashed:
    """Put back what an entry holds: named by its id, or by the id of a thread that has one entry only.

    Raises NotFound without such an entry, and Conflict where its thread was begun anew, or is not there to take
    checkpoints back.
    """
    entry = await _named(store.backend, text_id(named, "name"))
    told = await described(store.backend, entry)
    record = read_record(entry)
    try:
        if record.is_thread:
            await _restore_thread(store.backend, entry, record, now)
        else:
            await _restore_checkpoints(store.backend, entry, record, now)
    except NotFound:
        raise NotFound(f"the entry {named!r} of the trash was deleted while it was restored") from None
    await drop_entry(store.backend, entry, now)
    return told


async def empty(store: Context, ids: Sequence[str] | None, now: float, prefix: str = "") -> int:
    """Delete entries for good, all of them or these; returns how many went."""
    prefix = plain_text(prefix, "prefix")
    doomed = []
    if ids is None:
        async for row in each_entry(store.backend):
            if row.status == "archived" and origin_of(row).startswith(prefix):
                doomed.append(row)
    else:
        doomed = [await _named(store.backend, named) for named in text_ids(ids, "names")]
    await _drop(store.backend, doomed, now)
    return len(doomed)


async def tidy(store: Context, now: float, prefix: str = "") -> int:
    """Delete what has been in the trash for its time, and end deletions that died; returns how many entries went."""
    rows = [row async for row in each_entry(store.backend) if origin_of(row).startswith(prefix)]
    for row in rows:
        await settle(store, row, now)
    doomed = [row for row in rows if row.status == "archived" and (row.expires or 0.0) <= now]
    await _drop(store.backend, doomed, now)
    return len(doomed)


async def _drop(backend: Backend, rows: Sequence[ThreadRow], now: float) -> None:
    for row in rows:
        await drop_entry(backend, row, now)
    for pool in sorted({row.pool for row in rows}):
        if await has_chunks(backend, pool):
            await collect_pool(backend, pool)


async def _named(backend: Backend, named: str) -> ThreadRow:
    """An entry by its id, or by its thread."""
    rows = [row async for row in each_entry(backend) if row.status == "archived"]
    found = [row for row in rows if id_of_entry(row) == named]
    found = found or [row for row in rows if origin_of(row) == named]
    if not found:
        raise NotFound(f"the trash has nothing under {named!r}; `threadline trash list` shows what it has")
    if len(found) > 1:
        ids = ", ".join(id_of_entry(row) for row in found)
        raise Conflict(f"the trash has several entries of thread {named!r}: choose one of {ids}")
    return found[0]


async def _restore_thread(backend: Backend, entry: ThreadRow, record: Record, now: float) -> None:
    origin = origin_of(entry)
    founded = (record.forked_from, record.created)
    for _ in range(ATTEMPTS):
        held = await living(backend, entry.thread_id)
        rows, writes = await stored_in(backend, entry.thread_id)
        change = Change(thread_id=origin, now=now, stamp=held.stamp, joins=entry.thread_id, founded=founded)
        change.checkpoints, change.writes = rows, writes
        [outcome] = await backend.apply([change])
        if isinstance(outcome, Applied):
            break
    else:
        raise gave_up(f"restore of thread {origin!r}", _COLLECTED)
    metadata = ormsgpack.packb([record.form, record.metadata]) if record.metadata is not None else b""
    # A time that has passed would delete the thread again at once.
    expires = record.expires if record.expires is not None and record.expires > now else None

    def words(row: ThreadRow) -> ThreadRow:
        return row._replace(status=record.status, expires=expires, tags=record.tags, metadata=metadata)

    await change_words(backend, origin, words)


async def _restore_checkpoints(backend: Backend, entry: ThreadRow, record: Record, now: float) -> None:
    origin = origin_of(entry)
    for _ in range(ATTEMPTS):
        thread = await backend.thread(origin)
        if thread is None or thread.status == "deleted" or thread.pool != entry.pool:
            raise Conflict(
                f"these checkpoints belong to a thread {origin!r} that was deleted since: restore it first, if it is "
                f"in the trash (`threadline trash list`)"
            )
        rows, writes = await stored_in(backend, entry.thread_id)
        # What was put again under the same id since is newer.
        absent = [row for row in rows if await backend.find(origin, row.namespace, row.id, with_writes=False) is None]
        change = Change(thread_id=origin, now=now, stamp=thread.stamp, begins=False)
        change.checkpoints, change.writes = absent, writes
        [outcome] = await backend.apply([change])
        if isinstance(outcome, Applied):
            break
    else:
        raise gave_up(f"restore of thread {origin!r}", _COLLECTED)
    restored = {row.key for row in absent}
    marks = [[name, namespace, key] for name, namespace, key in json.loads(record.tags)]
    again = [mark for mark in marks if CheckpointKey(mark[1], mark[2]) in restored]

    def tagged(row: ThreadRow) -> ThreadRow:
        have = json.loads(row.tags or "[]")
        names = {mark[0] for mark in have if mark[0]}
        more = [mark for mark in again if mark not in have and mark[0] not in names]
        return row._replace(tags=json.dumps([*have, *more], separators=(",", ":"))) if more else row

    await change_words(backend, origin, tagged)
