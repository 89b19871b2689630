"""Filling an archive: a copy whose target is a file that will be opened as a store.

An archive holds rows as they are in their store, sealed ones sealed: it has the record of the store's keys, and is
opened with the same key ring. One that is to hold plain text is filled as any other store is, by a translating copy.
"""

from __future__ import annotations

from ...codec.limits import unpack
from ...codec.seal import KeyRing
from ...errors import Corrupt, NotFound
from ...packs.cold import hot_form
from ...ports.checkpoints import CheckpointKey, ThreadRow
from ...ports.records import RecordChange, RecordSpace, Scan, pack_name
from ..context import Context
from ..paging import each_thread, record_pages, thread_rows
from ..rows import form_of_thread
from ..store_records import KEYS, read_record
from .copy import Adopt, copy_between
from .items import SPACES
from .report import CopyChoice, CopyReport, Progress
from .translate import are_same

__all__ = ["fill_archive", "why_no_base"]

_PAGE = 500


async def why_no_base(source: Context, archive: Context, adopt: Adopt | None) -> str | None:
    """Why an archive that was loaded cannot be added to, after its name; None where it was made from this store.

    Another store's rows are bound to other pools and named by another key, also where the store was restored from
    this very archive.
    """
    if not await _has_same_secret(source, archive, adopt) or not await _has_same_threads(source, archive, adopt):
        return "is no backup of this store as it is now, or was made with other keys"
    missing = await _missing_keys(source, archive, adopt)
    return f"holds what is sealed under {missing}, which was not given" if missing else None


async def _has_same_threads(source: Context, archive: Context, adopt: Adopt | None) -> bool:
    """Whether some thread of an archive is in the store as it is there, or there is none."""
    is_empty = True
    async for held in each_thread(archive):
        is_empty = False
        if _is_same_thread(held, await source.thread(held.thread_id), are_verbatim=adopt is not None):
            return True
    return is_empty


async def _missing_keys(source: Context, archive: Context, adopt: Adopt | None) -> list[str]:
    """The ids of keys that an archive needs and the ring of the store lacks: what is added to it could not be read."""
    ring = source.tools.envelope.ring if adopt is not None else None
    stored = await read_record(archive.backend, KEYS)
    if not isinstance(ring, KeyRing) or stored is None:
        return []  # plain, or a cipher that has its keys by itself
    numbers = {hot_form(form) >> 1 for form in await archive.backend.forms()}
    numbers.update([form_of_thread(thread) >> 1 async for thread in each_thread(archive)])
    known = dict(enumerate(unpack(stored)[0], start=1))
    return sorted({known.get(number, f"key number {number}") for number in numbers if number} - set(ring.ids))


async def _has_same_secret(source: Context, archive: Context, adopt: Adopt | None) -> bool:
    """Whether the names of an archive's chunks are made with the key of the store, or both with none."""
    ring = source.tools.envelope.ring if adopt is not None else None
    stored = await read_record(archive.backend, KEYS)
    if ring is None or stored is None:
        return ring is None and stored is None
    try:
        ids, number, sealed = unpack(stored)
        return ring.open(ids[number - 1], sealed, b"digest key") == source.tools.digesters.secret
    except (NotFound, Corrupt, ValueError, TypeError, LookupError):
        return False


async def fill_archive(
    source: Context,
    archive: Context,
    choice: CopyChoice,
    progress: Progress | None,
    *,
    adopt: Adopt | None,
    mirrors: bool,
) -> CopyReport:
    """Bring what is chosen of a store into an archive; with `mirrors`, what its base has and the store lost goes."""
    await _copy_keys(source, archive, adopt)
    if mirrors:
        await _drop_absent_threads(source, archive, are_verbatim=adopt is not None)
        await _drop_absent_records(source, archive)
    report = await copy_between(source, archive, choice, progress, adopt=adopt, is_kept=False)
    # A key that came into use meanwhile seals some of the rows.
    await _copy_keys(source, archive, adopt)
    return report


async def _copy_keys(source: Context, archive: Context, adopt: Adopt | None) -> None:
    [record] = await source.backend.read_records(RecordSpace.META, [pack_name((KEYS,))])
    if record is not None and adopt is not None:
        await archive.backend.write_records([RecordChange(RecordSpace.META, record.name, record)])


async def _drop_absent_threads(source: Context, archive: Context, *, are_verbatim: bool) -> None:
    for held in [row async for row in each_thread(archive)]:
        if _is_same_thread(held, await source.thread(held.thread_id), are_verbatim=are_verbatim):
            await _drop_absent_rows(source, archive, held.thread_id, are_verbatim=are_verbatim)
        else:
            await archive.backend.remove_thread(held.thread_id, "", 0.0)


def _is_same_thread(held: ThreadRow, thread: ThreadRow | None, *, are_verbatim: bool) -> bool:
    """Whether a thread of the base is this one of the store.

    Rows that are kept as they are belong to a pool by its number: a thread that came back from the trash, or a store
    that was set back to an earlier state, may have another thread or pool under a number of the base.
    """
    if thread is None or thread.status == "deleted" or thread.created != held.created:
        return False
    return not are_verbatim or (thread.serial, thread.pool) == (held.serial, held.pool)


async def _drop_absent_rows(source: Context, archive: Context, thread_id: str, *, are_verbatim: bool) -> None:
    """Take out checkpoints that were pruned or are others now, and all writes of a checkpoint of which some are: what
    the store has of these comes again."""
    there = {found.key: found.row for found in await thread_rows(source, thread_id)}
    gone: set[CheckpointKey] = set()
    for found in await thread_rows(archive, thread_id):
        row = there.get(found.key)
        if row is None or (are_verbatim and not are_same(found.row, row)):
            gone.add(found.key)
    # What a write holds is compared as far as it is stored alike.
    fields = 9 if are_verbatim else 4
    written = {one[:fields] for one in await source.thread_writes(thread_id)}
    settled = {one.key for one in await archive.thread_writes(thread_id) if one[:fields] not in written} - gone
    if gone or settled:
        await archive.backend.remove_checkpoints(thread_id, gone, settled)


async def _drop_absent_records(source: Context, archive: Context) -> None:
    for space in SPACES:
        async for page in record_pages(archive.backend, space, Scan(limit=_PAGE)):
            there = await source.backend.read_records(space, [record.name for record in page])
            # One that is newer here is of a state that the store was set back from.
            gone = [
                record.name
                for record, found in zip(page, there, strict=True)
                if found is None or found.updated < record.updated
            ]
            if gone:
                await archive.backend.write_records([RecordChange(space, name, None) for name in gone])
