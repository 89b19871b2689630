"""Over many threads at once: who exists, the newest values, what waits for an answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ..backends.port import Backend, ThreadRow
from ..errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from ..model import INTERRUPT, WRITES_IDX_MAP, answered_ids
from ..namespaces import ROOT
from ..printable import printable
from .answers import questions
from .filters import check_filter, matches
from .reading import Read, complete
from .requests import check_limit, plain_text
from .tools import Tools
from .words import living, metadata_of, tags_of, words_form

__all__ = [
    "Listing",
    "ThreadInfo",
    "Waiting",
    "describe",
    "heads",
    "logged_damage",
    "status_of",
    "thread_info",
    "waiting_at",
]

log = logging.getLogger("threadline")
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """A thread as it is listed."""

    thread_id: str
    status: str
    created: float
    last_active: float
    forked_from: str | None
    expires: float | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

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


@dataclass(slots=True, kw_only=True)
class Listing:
    """A list of threads in progress."""

    prefix: str = ""
    after: str = ""
    left: int | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)
    tag: str | None = None
    status: str | None = None
    active_since: float | None = None
    is_over: bool = False

    @classmethod
    def of(cls, *, limit: int | None = None, filter: Any = None, active_since: Any = None, **options: Any) -> Listing:
        """Check what a caller wants listed."""
        check_limit(limit)
        for name, value in options.items():
            if value is not None or name in ("prefix", "after"):
                plain_text(value, name)
        if options.get("status") not in (None, "active", "archived", "suspended"):
            raise InvalidRequest(f"status is 'active', 'suspended' or 'archived', not {options['status']!r}")
        try:
            since = active_since.timestamp() if isinstance(active_since, datetime) else active_since
            since = None if since is None else float(since)
        except (TypeError, ValueError, OverflowError):
            raise InvalidRequest("active_since is a datetime, or seconds since 1970") from None
        return cls(left=limit, filter=check_filter(filter), active_since=since, **options)

    async def next_page(self, backend: Backend, tools: Tools) -> list[ThreadInfo]:
        """The next threads; none when the list is over."""
        await tools.open(backend)
        while not self.is_over and (self.left is None or self.left > 0):
            size = _PAGE if self.left is None or self._chooses else min(self.left, _PAGE)
            page = await backend.threads(self.after, size, self.prefix)
            self.is_over = len(page) < size
            if page:
                self.after = page[-1].thread_id
            await tools.learn_keys(backend, [words_form(row) for row in page])
            infos = [_listed(tools, row) for row in page]
            if self.status in ("active", "suspended"):
                infos = [replace(info, status=await status_of(backend, tools, info)) for info in infos]
            found = [info for info in infos if self._wants(info)][: self.left]
            if self.left is not None:
                self.left -= len(found)
            if found:
                return found
        return []

    @property
    def _chooses(self) -> bool:
        return bool(self.filter or self.tag or self.status or self.active_since is not None)

    def _wants(self, info: ThreadInfo) -> bool:
        return (
            (self.tag is None or self.tag in info.tags)
            and (self.status is None or info.status == self.status)
            and (self.active_since is None or info.last_active >= self.active_since)
            and matches(info.metadata, self.filter)
        )


def _listed(tools: Tools, row: ThreadRow) -> ThreadInfo:
    """A thread in a list, which one that cannot be read does not end."""
    try:
        return thread_info(tools, row)
    except (Corrupt, NotAllowed, NotFound) as trouble:
        log.error("%s; it is listed without what was said about it", printable(trouble))
        return thread_info(tools, row._replace(tags="[]", metadata=b""))


@contextmanager
def logged_damage() -> Iterator[None]:
    """One thread that cannot be read does not end a list over many."""
    try:
        yield
    except (Corrupt, NotAllowed, NotFound) as trouble:
        log.error("%s; it is left out of the list", printable(trouble))


def thread_info(tools: Tools, row: ThreadRow) -> ThreadInfo:
    """A thread's row for people."""
    return ThreadInfo(
        thread_id=row.thread_id,
        status=row.status,
        created=row.created,
        last_active=row.active,
        forked_from=row.forked_from,
        expires=row.expires,
        tags=tuple(tag.name for tag in tags_of(row) if tag.name),
        metadata=metadata_of(tools, row),
    )


async def describe(backend: Backend, tools: Tools, thread_id: str) -> ThreadInfo:
    """One thread as it is listed, with its status as it is now."""
    await tools.open(backend)
    row = await living(backend, thread_id)
    await tools.learn_keys(backend, [words_form(row)])
    info = thread_info(tools, row)
    return replace(info, status=await status_of(backend, tools, info))


async def status_of(backend: Backend, tools: Tools, info: ThreadInfo) -> str:
    """A thread's status now: one that is active is suspended while an interrupt waits at its head."""
    if info.status != "active":
        return info.status
    head = await backend.find(info.thread_id, ROOT, None)
    asks = head is not None and any(write.channel == INTERRUPT for write in head.writes)
    return "suspended" if asks and await questions(backend, tools, info.thread_id) else "active"


async def heads(backend: Backend, tools: Tools, thread_ids: Sequence[str]) -> list[Read]:
    """The newest root checkpoint of each thread that has one, in one query; then their chunks, pool by pool."""
    await tools.open(backend)
    found = {one.thread_id: one for one in await backend.heads(thread_ids, ROOT)}
    page = [found[thread_id] for thread_id in dict.fromkeys(thread_ids) if thread_id in found]
    return await complete(backend, tools, page)


def waiting_at(tuple_: Any) -> list[Waiting]:
    """The interrupts among a checkpoint's pending writes, except those of tasks that have finished since."""
    place = tuple_.config["configurable"]
    writes = tuple_.pending_writes or ()
    finished = {task_id for task_id, channel, _ in writes if channel not in WRITES_IDX_MAP}
    answered = answered_ids(writes)
    return [
        Waiting(
            thread_id=place["thread_id"],
            checkpoint_id=place["checkpoint_id"],
            task_id=task_id,
            interrupt_id=getattr(interrupt, "id", None),
            value=getattr(interrupt, "value", interrupt),
        )
        for task_id, channel, interrupts in writes
        if channel == INTERRUPT and task_id not in finished
        for interrupt in (interrupts if isinstance(interrupts, (list, tuple)) else [interrupts])
        if getattr(interrupt, "id", None) not in answered
    ]
