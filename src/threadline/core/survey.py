"""Over many threads at once: who exists, the newest values, what waits for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.port import Backend, ThreadRow
from ..model import INTERRUPT, WRITES_IDX_MAP
from ..namespaces import ROOT
from .reading import Read, read_one
from .requests import Place, check_limit, plain_text
from .tools import Tools

__all__ = ["Listing", "ThreadInfo", "Waiting", "heads", "thread_info", "waiting_at"]

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """A thread as it is listed."""

    thread_id: str
    status: str
    created: float
    last_active: float
    forked_from: str | None

    @property
    def config(self) -> dict[str, Any]:
        """The config that runs a graph on this thread."""
        return {"configurable": {"thread_id": self.thread_id}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An interrupt that waits for an answer."""

    thread_id: str
    checkpoint_id: str
    task_id: str
    interrupt_id: str | None
    value: Any

    @property
    def config(self) -> dict[str, Any]:
        """The config that resumes the thread."""
        return {"configurable": {"thread_id": self.thread_id}}


@dataclass(slots=True)
class Listing:
    """A list of threads in progress."""

    prefix: str
    left: int | None
    after: str
    is_over: bool = False

    @classmethod
    def of(cls, prefix: str, limit: int | None, after: str) -> Listing:
        """Check what a caller wants listed."""
        check_limit(limit)
        return cls(plain_text(prefix, "prefix"), limit, plain_text(after, "after"))

    async def next_page(self, backend: Backend) -> list[ThreadInfo]:
        """The next threads; none when the list is over."""
        size = _PAGE if self.left is None else min(self.left, _PAGE)
        if self.is_over or size <= 0:
            return []
        page = await backend.threads(self.after, size, self.prefix)
        self.is_over = len(page) < size
        if page:
            self.after = page[-1].thread_id
        if self.left is not None:
            self.left -= len(page)
        return [thread_info(row) for row in page]


def thread_info(row: ThreadRow) -> ThreadInfo:
    """A thread's row for people."""
    return ThreadInfo(
        thread_id=row.thread_id,
        status=row.status,
        created=row.created,
        last_active=row.active,
        forked_from=row.forked_from,
    )


async def heads(backend: Backend, tools: Tools, thread_ids: Sequence[str]) -> list[Read]:
    """The newest root checkpoint of each thread that has one."""
    found = [await read_one(backend, tools, Place(thread_id, ROOT, None)) for thread_id in thread_ids]
    return [read for read in found if read is not None]


def waiting_at(tuple_: Any) -> list[Waiting]:
    """The interrupts among a checkpoint's pending writes, except those of tasks that have finished since."""
    place = tuple_.config["configurable"]
    finished = {task_id for task_id, channel, _ in tuple_.pending_writes or () if channel not in WRITES_IDX_MAP}
    return [
        Waiting(
            thread_id=place["thread_id"],
            checkpoint_id=place["checkpoint_id"],
            task_id=task_id,
            interrupt_id=getattr(interrupt, "id", None),
            value=getattr(interrupt, "value", interrupt),
        )
        for task_id, channel, interrupts in tuple_.pending_writes or ()
        if channel == INTERRUPT and task_id not in finished
        for interrupt in (interrupts if isinstance(interrupts, (list, tuple)) else [interrupts])
    ]
