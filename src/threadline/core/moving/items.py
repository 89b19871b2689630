"""Items of a Store, with their history and embeddings, copied from one store to another by their records."""

from __future__ import annotations

from typing import Any

from ...base.attempts import ATTEMPTS, gave_up
from ...errors import Corrupt, InvalidRequest, NotFound
from ...ports.records import ABSENT, Record, RecordChange, RecordSpace, Scan, split_name
from ..context import Context, Tools
from ..paging import record_pages
from ..records.contents import PLAIN_OBJECT, place_of_record
from .report import CopyReport, Moved
from .translate import Fault

__all__ = ["SPACES", "copy_items", "encoded_record"]

# Former values first: an item that is there has its history.
SPACES = (RecordSpace.PAST, RecordSpace.VECTOR, RecordSpace.ITEM)
_PAGE = 200
_PACKED = (RecordSpace.ITEM, RecordSpace.CACHE)


async def copy_items(source: Context, target: Context, report: CopyReport) -> None:
    """Copy what the target lacks, or has of an earlier time; each page is read back."""
    for space in SPACES:
        async for page in record_pages(source, space, Scan(limit=_PAGE)):
            await _copy_page(source, target, space, page, report)


async def _copy_page(
    source: Context, target: Context, space: RecordSpace, page: list[Record], report: CopyReport
) -> None:
    """Copy some records; again those that another writer changed in the target meanwhile."""
    for _ in range(ATTEMPTS):
        changes, counts, problems = await _changes(source, target, space, page)
        if not changes or await target.backend.write_records(changes) is None:
            report.items.add(counts)
            report.problems += problems
            return await _verify(target, space, [change.record for change in changes if change.record is not None])
    raise gave_up("copy of items", "other writers changed them in the target during each of them")


async def _changes(
    source: Context, target: Context, space: RecordSpace, page: list[Record]
) -> tuple[list[RecordChange], Moved, list[str]]:
    """What the target lacks of some records: each with the version and the times that it has in the source."""
    counts, problems = Moved(), list[str]()
    changes: list[RecordChange] = []
    held = await target.read_records(space, [record.name for record in page])
    for record, there in zip(page, held, strict=True):
        if there is not None and _is_as_new(space, there, record):
            counts.present += there.updated == record.updated
            counts.kept += there.updated > record.updated
            continue
        try:
            content = encoded_record(source.tools, space, record)
        except Fault as fault:
            problems.append(f"{fault}; it was left out")
            continue
        form, value = _wrapped(target.tools, space, record.name, content)
        searchable = record.searchable if target.tools.envelope.ring is None else None
        if there is not None:
            # Put anew, not over it: so it has the source's version and not one more than it had here.
            changes.append(RecordChange(space, record.name, None, there.version))
        moved = record._replace(form=form, value=value, searchable=searchable)
        changes.append(RecordChange(space, record.name, moved, ABSENT))
        counts.copied += there is None
        counts.renewed += there is not None
    return changes, counts, problems


def _is_as_new(space: RecordSpace, there: Record, record: Record) -> bool:
    """Whether the target has a record as it is in the source, or a later one."""
    if space is RecordSpace.PAST and there.updated == record.updated:
        # A version keeps its time, and is changed when it ends: what is noted then counts in the source's version.
        return there.version >= record.version
    return there.updated >= record.updated


async def _verify(target: Context, space: RecordSpace, sent: list[Record]) -> None:
    stored = await target.read_records(space, [record.name for record in sent]) if sent else []
    for record, there in zip(sent, stored, strict=True):
        if there is None or (there[:3] != record[:3] and there.updated <= record.updated):
            raise Fault(f"{_name(space, record.name)}: what was read back from the target is not what was sent")


def encoded_record(tools: Tools, space: RecordSpace, record: Record) -> bytes:
    """The content of a record, encoded; raises Fault."""
    value: Any = record.value
    try:
        if record.form == PLAIN_OBJECT and tools.keeps_objects:
            return value[0] if space in _PACKED else tools.codec.encode_natively(value)
        return tools.envelope.unwrap_row(record.form, value, place_of_record(space, record.name))
    except NotFound:
        raise
    except (Corrupt, InvalidRequest, ValueError, TypeError) as damage:
        raise Fault(f"{_name(space, record.name)} is damaged ({damage})") from None


def _wrapped(tools: Tools, space: RecordSpace, name: bytes, content: bytes) -> tuple[int, Any]:
    if not tools.keeps_objects:
        return tools.envelope.wrap_row(content, place_of_record(space, name))
    return PLAIN_OBJECT, [content, None, None] if space in _PACKED else tools.codec.decode(content)


def _name(space: RecordSpace, name: bytes) -> str:
    try:
        return f"the record {split_name(name)} of {space.name.lower()}s"
    except ValueError:
        return f"a record of {space.name.lower()}s"
