"""Who wrote what, in which order: the pending writes of a checkpoint, and their totals by task."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ..backends.port import Backend, Query, WriteRow
from ..model import WRITES_IDX_MAP
from .pages import each_found
from .places import At, resolve
from .reading import read_one, value_of
from .requests import Place
from .timeline import config_of
from .tools import Tools

__all__ = ["TaskTotals", "Totals", "WriteInfo", "task_name", "writes_at", "writes_by_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteInfo:
    """One write of a task towards the next checkpoint."""

    task: str
    task_id: str
    task_path: str
    channel: str
    index: int
    value: Any
    # The encoded value, before sharing.
    value_bytes: int
    config: dict[str, Any]

    @property
    def is_special(self) -> bool:
        """Whether it is an error, an interrupt or a resume, and no state."""
        return self.channel in WRITES_IDX_MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTotals:
    """What the tasks of one name wrote."""

    task: str
    tasks: int
    writes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Writes by task, most bytes first, against the bytes of the checkpoints they led to."""

    by_task: tuple[TaskTotals, ...]
    write_bytes: int
    checkpoint_bytes: int


def task_name(write: WriteRow) -> str:
    """The node a write comes from, as its task path names it; the task's id where there is no path."""
    parts = [part.strip() for part in write.task_path.strip("~").split(",") if part.strip()]
    return parts[1] if len(parts) > 1 else write.task_id


async def writes_at(backend: Backend, tools: Tools, thread_id: str, at: At, namespace: str) -> list[WriteInfo]:
    """The writes at one checkpoint, in the order a graph applies them."""
    key = await resolve(backend, thread_id, at, namespace)
    read = await read_one(backend, tools, Place(thread_id, *key))
    if read is None:
        return []
    return [
        WriteInfo(
            task=task_name(write),
            task_id=write.task_id,
            task_path=write.task_path,
            channel=write.channel,
            index=write.idx,
            value=value_of(tools, read, ref, f"a write of channel {write.channel!r}"),
            value_bytes=len(tools.reader.content(ref, read.pile)),
            config=config_of(thread_id, key),
        )
        for write, ref in read.writes
    ]


async def writes_by_task(
    backend: Backend, *, thread_id: str | None = None, prefix: str = "", since: float | None = None
) -> Totals:
    """Writes of all threads (or one, or those with a prefix) by the task that made them; no value is read."""
    tasks: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    counts: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    checkpoint_bytes = 0
    async for found in each_found(backend, Query(thread_id=thread_id, limit=256)):
        if not found.thread_id.startswith(prefix) or (since is not None and found.row.created < since):
            continue
        checkpoint_bytes += len(found.row.document) + len(found.row.metadata)
        for write in found.writes:
            name = task_name(write)
            tasks[name].add((found.thread_id, found.row.id, write.task_id))
            counts[name] += 1
            sizes[name] += len(write.data) + len(write.links)
    by_task = [
        TaskTotals(task=name, tasks=len(tasks[name]), writes=counts[name], stored_bytes=sizes[name]) for name in counts
    ]
    by_task.sort(key=lambda one: (-one.stored_bytes, one.task))
    return Totals(by_task=tuple(by_task), write_bytes=sum(sizes.values()), checkpoint_bytes=checkpoint_bytes)
