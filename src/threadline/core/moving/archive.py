"""Filling an archive: a copy whose target is a file that will be opened as a store.

An archive holds rows as they are in their store, sealed ones sealed: it has the record of the store's keys, and is
opened with the same key ring. One that is to hold plain text is filled as any other store is, by a translating copy.
"""

from __future__ import annotations

from ...ports.checkpoints import CheckpointKey
from ...ports.records import RecordChange, RecordSpace, Scan, pack_name
from ..context import Context
from ..paging import each_thread, thread_rows
from ..store_records import KEYS
from .copy import Adopt, copy_between
from .items import SPACES
from .report import CopyChoice, CopyReport, Progress

__all__ = ["fill_archive"]

_PAGE = 500


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
        await _drop_absent_threads(source, archive)
        await _drop_absent_records(source, archive)
    report = await copy_between(source, archive, choice, progress, adopt=adopt, is_kept=False)
    # A key that came into use meanwhile seals some of the rows.
    await _copy_keys(source, archive, adopt)
    return report


async def _copy_keys(source: Context, archive: Context, adopt: Adopt | None) -> None:
    [record] = await source.backend.read_records(RecordSpace.META, [pack_name((KEYS,))])
    if record is not None and adopt is not None:
        await archive.backend.write_records([RecordChange(RecordSpace.META, record.name, record)])


async def _drop_absent_threads(source: Context, archive: Context) -> None:
    for held in [row async for row in each_thread(archive)]:
        thread = await source.thread(held.thread_id)
        if thread is None or thread.status == "deleted" or thread.created != held.created:
            await archive.backend.remove_thread(held.thread_id, "", 0.0)
        else:
            await _drop_absent_rows(source, archive, held.thread_id)


async def _drop_absent_rows(source: Context, archive: Context, thread_id: str) -> None:
    """Take out checkpoints that were pruned, and all writes of a checkpoint of which some are gone: the rest comes
    again."""
    held = {found.key for found in await thread_rows(archive, thread_id)}
    there = {found.key for found in await thread_rows(source, thread_id)}
    written = {(one.key, one.task_id, one.idx) for one in await archive.thread_writes(thread_id)}
    written -= {(one.key, one.task_id, one.idx) for one in await source.thread_writes(thread_id)}
    settled: set[CheckpointKey] = {key for key, _, _ in written}
    if held - there or settled:
        await archive.backend.remove_checkpoints(thread_id, held - there, settled - (held - there))


async def _drop_absent_records(source: Context, archive: Context) -> None:
    for space in SPACES:
        after = b""
        while page := await archive.backend.scan_records(space, Scan(after=after, limit=_PAGE)):
            after = page[-1].name
            there = await source.backend.read_records(space, [record.name for record in page])
            gone = [record.name for record, found in zip(page, there, strict=True) if found is None]
            if gone:
                await archive.backend.write_records([RecordChange(space, name, None) for name in gone])
