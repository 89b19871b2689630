"""Copying threads: the rows are written again under the new thread, the chunks are shared."""

from __future__ import annotations

from ..backends.port import Applied, Backend, Change, CheckpointRow, Found, WriteRow
from ..errors import InvalidRequest, NotFound, Unavailable
from .documents import place_of_row, write_place
from .pages import thread_rows
from .tools import Tools

__all__ = ["copy_thread", "resealed", "resealed_write"]

_TRIES = 32


async def copy_thread(backend: Backend, tools: Tools, source: str, target: str, now: float) -> None:
    """A new thread with all checkpoints and writes of another; no chunk is copied.

    Raises NotFound without a source and Conflict when the target lives.
    """
    await tools.open(backend)
    if source == target:
        raise InvalidRequest("a thread cannot be copied onto itself")
    for _ in range(_TRIES):
        origin = await backend.thread(source)
        if origin is None or origin.status == "deleted":
            raise NotFound(f"there is no thread {source!r} to copy")
        change = Change(thread_id=target, now=now, stamp=(origin.pool, origin.epoch), joins=source)
        checkpoints: list[CheckpointRow] = []
        writes: list[WriteRow] = []
        for found in await thread_rows(backend, source, with_writes=True, tools=tools):
            checkpoints.append(resealed(tools, found, target))
            writes.extend(resealed_write(tools, write, source, target) for write in found.writes)
        change.checkpoints, change.writes = checkpoints, writes
        [outcome] = await backend.apply([change])
        if isinstance(outcome, Applied):
            return
    raise Unavailable(f"thread {source!r} was pruned again and again while it was copied; try again")


def resealed(tools: Tools, found: Found, target: str) -> CheckpointRow:
    """A checkpoint's row for another thread: what is sealed for one place is sealed anew for the other."""
    row, envelope = found.row, tools.envelope

    def reseal(form: int, data: bytes, part: str) -> tuple[int, bytes]:
        content = envelope.unwrap_row(form, data, place_of_row(found.thread_id, row, part))
        return envelope.wrap_row(content, place_of_row(target, row, part))

    form, document = reseal(row.form, row.document, "document")
    metadata_form, metadata = reseal(row.metadata_form, row.metadata, "metadata")
    return row._replace(form=form, document=document, metadata_form=metadata_form, metadata=metadata)


def resealed_write(tools: Tools, write: WriteRow, source: str, target: str) -> WriteRow:
    """A pending write for another thread."""
    content = tools.envelope.unwrap_row(write.form, write.data, write_place(source, write))
    form, data = tools.envelope.wrap_row(content, write_place(target, write))
    return write._replace(form=form, data=data)
