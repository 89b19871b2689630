"""Over many threads at once: who exists, the newest values, what waits for an answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ..base.checkpoint import OfThread
from ..base.namespaces import ROOT
from ..base.printable import printable
from ..errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from ..ports.checkpoints import Asking, Backend, ThreadRow
from .context import Context, Tools
from .filters import check_filter, matches
from .get import Read, complete
from .interrupts import Question, open_at_head
from .lifecycle import living, metadata_of, tags_of
from .requests import check_limit, plain_text, text_ids

__all__ = [
    "Asked",
    "Listing",
    "ThreadInfo",
    "Waiting",
    "count_threads",
    "describe",
    "heads",
    "thread_info",
    "told",
]

log = logging.getLogger("threadline")
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo(OfThread):
    """A thread as it is listed."""

    thread_id: str
    status: str
    created: float
    last_active: float
    forked_from: str | None
    expires: float | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(OfThread):
    """An interrupt that waits for an answer."""

    thread_id: str
    checkpoint_id: str
    task_id: str
    interrupt_id: str | None
    value: Any


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
    # The threads that wait for an answer, once they were looked for.
    suspended: frozenset[str] | None = None

    @classmethod
    def of(cls, **choice: Any) -> Listing:
        """Check what a caller wants listed."""
        try:
            return cls._of(**choice)
        except TypeError:
            known = ("prefix", "limit", "after", "filter", "tag", "status", "active_since")
            unknown = ", ".join(sorted(set(choice) - set(known)))
            raise InvalidRequest(f"threads takes {', '.join(known)}, not {unknown}") from None

    @classmethod
    def _of(cls, *, limit: int | None = None, filter: Any = None, active_since: Any = None, **options: Any) -> Listing:
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

    async def next_page(self, store: Context) -> list[ThreadInfo]:
        """The next threads; none when the list is over."""
        while not self.is_over and (self.left is None or self.left > 0):
            page = await self._next_rows(store)
            infos = [_listed(store.tools, row) for row in page]
            if self.suspended is not None:
                infos = [_seen_as(info, info.thread_id in self.suspended) for info in infos]
            found = [info for info in infos if self._wants(info)][: self.left]
            if self.left is not None:
                self.left -= len(found)
            if found:
                return found
        return []

    async def _next_rows(self, store: Context) -> list[ThreadRow]:
        """The rows of the next threads; where only those that wait are wanted, no others are looked at."""
        if self.status == "suspended":
            asking = Asked(prefix=self.prefix, after=self.after)
            rows = [row for row, _ in await asking.next_threads(store)]
            self.after, self.is_over = asking.after, asking.is_over
            self.suspended = frozenset(row.thread_id for row in rows)
            return rows
        if self.status == "active" and self.suspended is None:
            asking, waiting = Asked(prefix=self.prefix), set[str]()
            while found := await asking.next_threads(store):
                waiting.update(row.thread_id for row, _ in found)
            self.suspended = frozenset(waiting)
        size = _PAGE if self.left is None or self._chooses else min(self.left, _PAGE)
        page = await store.threads(self.after, size, self.prefix)
        self.is_over = len(page) < size
        if page:
            self.after = page[-1].thread_id
        return page

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


@dataclass(slots=True, kw_only=True)
class Asked:
    """A list of what waits for an answer in progress."""

    prefix: str = ""
    after: str = ""
    is_over: bool = False

    def __post_init__(self) -> None:
        self.prefix = plain_text(self.prefix, "prefix")

    async def next_page(self, store: Context) -> list[Waiting]:
        """The next questions; none when the list is over."""
        found = await self.next_threads(store)
        return [told(row.thread_id, question) for row, asked in found for question in asked]

    async def next_threads(self, store: Context) -> list[tuple[ThreadRow, list[Question]]]:
        """The next threads that wait, each with its questions; none when the list is over."""
        while not self.is_over:
            page = await store.asking(self.after, _PAGE, self.prefix)
            self.is_over = len(page) < _PAGE
            if page:
                self.after = page[-1].thread.thread_id
            waiting = [(one.thread, await _asked_by(store, one)) for one in page]
            found = [(row, asked) for row, asked in waiting if asked]
            if found:
                return found
        return []


def told(thread_id: str, question: Question) -> Waiting:
    """An open question as callers are told of it."""
    return Waiting(
        thread_id=thread_id,
        checkpoint_id=question.key.id,
        task_id=question.task_id,
        interrupt_id=question.id,
        value=question.value,
    )


async def _asked_by(store: Context, asking: Asking) -> list[Question]:
    """The open questions of one thread; one whose questions cannot be read does not end a list over many."""
    thread = asking.thread
    try:
        return await open_at_head(store, thread.thread_id, thread.pool, asking.writes)
    except (Corrupt, NotAllowed, NotFound) as trouble:
        log.error("%s; it is left out of the list", printable(trouble))
        return []


def _listed(tools: Tools, row: ThreadRow) -> ThreadInfo:
    """A thread in a list, which one that cannot be read does not end."""
    try:
        return thread_info(tools, row)
    except (Corrupt, NotAllowed, NotFound) as trouble:
        log.error("%s; it is listed without what was said about it", printable(trouble))
        return thread_info(tools, row._replace(tags="[]", metadata=b""))


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
        metadata=metadata_of(tools.lenient, row),
    )


async def count_threads(backend: Backend, prefix: str) -> int:
    """How many threads there are."""
    return await backend.count_threads(plain_text(prefix, "prefix"))


async def describe(store: Context, thread_id: str) -> ThreadInfo:
    """One thread as it is listed, with its status as it is now."""
    row = await living(store, thread_id)
    info = thread_info(store.tools, row)
    head = await store.find(thread_id, ROOT, None) if info.status == "active" else None
    waits = head is not None and bool(await open_at_head(store, thread_id, head.pool, head.writes))
    return _seen_as(info, waits)


def _seen_as(info: ThreadInfo, waits: bool) -> ThreadInfo:
    """A thread with its status now: one that is active is suspended while a question waits at its head."""
    return replace(info, status="suspended") if waits and info.status == "active" else info


async def heads(store: Context, thread_ids: Sequence[str]) -> list[Read]:
    """The newest root checkpoint of each thread that has one, in one query; then their chunks, pool by pool."""
    thread_ids = text_ids(thread_ids, "thread_ids")
    found = {one.thread_id: one for one in await store.heads(thread_ids, ROOT)}
    page = [found[thread_id] for thread_id in dict.fromkeys(thread_ids) if thread_id in found]
    return await complete(store, page)
