"""A page of a list of threads: newest activity first or by id, chosen by status, tag and metadata.

What is read grows with the page, not with the store. The newest activity is told by the newest checkpoints of the root
graph, which are in order; a thread is listed at the newest one it has, and threads without any come last, by id. Where
few threads fit a choice, a page looks at so many and no more, and says where to go on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.checkpoint import ERROR, waiting
from ..base.namespaces import ROOT
from ..base.printable import printable
from ..core.context import Context
from ..core.filters import check_filter, matches
from ..core.interrupts import open_at_head
from ..core.leases import LockInfo, locks
from ..core.lifecycle import tags_of
from ..core.requests import plain_text
from ..core.threads import Asked, ThreadInfo, thread_info
from ..errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from ..ports.checkpoints import Query, ThreadRow

__all__ = ["Choice", "ListedThread", "ORDERS", "STATUSES", "ThreadPage", "describe_threads", "list_threads"]

ORDERS = ("recent", "id")
STATUSES = ("running", "waits", "error", "active", "archived", "pinned", "expires")
# As many rows as one page looks at, however few of them fit.
_MOST_SCANNED = 4_000
_SCANNED_AT_ONCE = 500
# By activity the row of each thread is read by itself.
_MOST_FOLLOWED = 600
# Checkpoints of threads that are listed already are only passed over.
_MOST_PASSED, _PASSED_AT_ONCE = 40_000, 8_000
# By activity: where a page begins among the threads without checkpoints, before the id of the last one shown.
_WITHOUT = "without:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which threads are wanted, and in which order."""

    prefix: str = ""
    status: str | None = None
    tag: str | None = None
    active_since: float | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)
    order: str = "recent"

    def checked(self) -> Choice:
        """This choice; InvalidRequest where its order or its status is none."""
        if self.order not in ORDERS:
            raise InvalidRequest(f"threads are sorted by {', '.join(ORDERS)}, not {self.order!r}")
        if self.status is not None and self.status not in STATUSES:
            raise InvalidRequest(f"a status is {', '.join(STATUSES)}, not {self.status!r}")
        return replace(self, prefix=plain_text(self.prefix, "prefix"), filter=check_filter(self.filter))

    def wants(self, row: ThreadRow, info: ThreadInfo) -> bool:
        """Whether a thread fits, as far as its row tells."""
        if self.status == "pinned" and not any(not tag.name for tag in tags_of(row)):
            return False
        if self.status == "expires" and row.expires is None:
            return False
        if self.status in ("active", "archived") and row.status != self.status:
            return False
        return (
            (self.tag is None or self.tag in info.tags)
            and (self.active_since is None or info.last_active >= self.active_since)
            and matches(info.metadata, self.filter)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedThread:
    """A thread of a list."""

    info: ThreadInfo
    head: str | None = None
    waits: int = 0
    has_error: bool = False
    lock: LockInfo | None = None
    pins: int = 0
    checkpoints: int = 0
    stored_bytes: int = 0
    # Whether its chunks are also those of a fork, so that the bytes are those of both.
    is_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPage:
    """Some threads, and where the next page begins; `is_cut` where it looked at as many as it may."""

    threads: tuple[ListedThread, ...]
    next: str | None = None
    is_cut: bool = False


async def list_threads(store: Context, choice: Choice, after: str | None, limit: int) -> ThreadPage:
    """The next threads of a choice, described."""
    choice = choice.checked()
    now = time.time()
    if choice.status in ("waits", "running"):
        rows, following, is_cut = await _few(store, choice, after, limit, now)
    elif choice.order == "id":
        rows, following, is_cut = await _by_id(store, choice, after, limit)
    elif after is not None and after.startswith(_WITHOUT):
        rows, following, is_cut = await _without_checkpoints(store, choice, after, limit)
    else:
        rows, following, is_cut = await _recent(store, choice, after, limit)
    return ThreadPage(threads=tuple(await _described(store, rows, now)), next=following, is_cut=is_cut)


async def describe_threads(store: Context, thread_ids: Sequence[str]) -> list[ListedThread]:
    """These threads as they are listed; those that do not exist are left out."""
    rows = [await store.thread(name) for name in thread_ids]
    return await _described(store, [row for row in rows if row is not None and row.status != "deleted"], time.time())


_Rows = tuple[list[ThreadRow], str | None, bool]


async def _by_id(store: Context, choice: Choice, after: str | None, limit: int) -> _Rows:
    found: list[ThreadRow] = []
    place, scanned = after or "", 0
    while len(found) < limit and scanned < _MOST_SCANNED:
        size = limit + 1 if scanned == 0 else _SCANNED_AT_ONCE
        page = await store.threads(place, size, choice.prefix)
        for row in page:
            place = row.thread_id
            if await _fits(store, choice, row):
                found.append(row)
                if len(found) == limit:
                    more = row is not page[-1] or len(page) == size
                    return found, place if more else None, False
        scanned += len(page)
        if len(page) < size:
            return found, None, False
    return found, place, True


async def _recent(store: Context, choice: Choice, after: str | None, limit: int) -> _Rows:
    found: list[ThreadRow] = []
    before, passed, seen = after, 0, set[str]()
    size = 4 * limit
    while passed < _MOST_PASSED and len(seen) < _MOST_FOLLOWED:
        page = await store.page(Query(namespace=ROOT, before=before, limit=size, with_writes=False))
        fresh = dict.fromkeys(one.thread_id for one in page)
        wanted = [name for name in fresh if name not in seen and name.startswith(choice.prefix)]
        heads = {one.thread_id: one.row.id for one in await store.heads(wanted, ROOT)} if wanted else {}
        for one in page:
            before = one.row.id
            # A thread that was listed before is met again here, below its newest checkpoint.
            if one.thread_id in seen or heads.get(one.thread_id) != one.row.id:
                seen.add(one.thread_id)
                continue
            seen.add(one.thread_id)
            row = await store.thread(one.thread_id)
            if row is not None and row.status != "deleted" and await _fits(store, choice, row):
                found.append(row)
                if len(found) == limit:
                    return found, before, False
        passed += len(page)
        if len(page) < size:
            rest, following, is_cut = await _without_checkpoints(store, choice, _WITHOUT, limit - len(found))
            return found + rest, following, is_cut
        # One long thread may have the newest thousands: pages grow while they bring nobody new.
        size = min(4 * size, _PASSED_AT_ONCE) if len(wanted) < limit else _SCANNED_AT_ONCE
    return found, before, True


async def _without_checkpoints(store: Context, choice: Choice, after: str, limit: int) -> _Rows:
    """Threads whose root graph has no checkpoint, which no checkpoint leads to."""
    found: list[ThreadRow] = []
    place, scanned = after.removeprefix(_WITHOUT), 0
    while scanned < _MOST_SCANNED:
        page = await store.threads(place, _SCANNED_AT_ONCE, choice.prefix)
        headed = {one.thread_id for one in await store.heads([row.thread_id for row in page], ROOT)} if page else ()
        for row in page:
            place = row.thread_id
            if row.thread_id not in headed and await _fits(store, choice, row):
                found.append(row)
                if len(found) == limit:
                    more = row is not page[-1] or len(page) == _SCANNED_AT_ONCE
                    return found, _WITHOUT + place if more else None, False
        scanned += len(page)
        if len(page) < _SCANNED_AT_ONCE:
            return found, None, False
    return found, _WITHOUT + place, True


async def _few(store: Context, choice: Choice, after: str | None, limit: int, now: float) -> _Rows:
    """Threads that wait or that somebody holds: there are lists of those alone."""
    found: list[ThreadRow] = []
    if choice.status == "running":
        names = sorted(lock.thread_id for lock in await locks(store.backend, now, choice.prefix))
        for name in names:
            row = await store.thread(name) if after is None or name > after else None
            if row is not None and row.status != "deleted" and choice.wants(row, _info(store, row)):
                found.append(row)
        return found[:limit], found[limit - 1].thread_id if len(found) > limit else None, False
    asking = Asked(prefix=choice.prefix, after=after or "")
    while len(found) <= limit and (page := await asking.next_threads(store)):
        found += [row for row, _ in page if choice.wants(row, _info(store, row))]
    return found[:limit], found[limit - 1].thread_id if len(found) > limit else None, False


async def _fits(store: Context, choice: Choice, row: ThreadRow) -> bool:
    if not choice.wants(row, _info(store, row)):
        return False
    if choice.status != "error":
        return True
    head = await store.find(row.thread_id, ROOT, None)
    return head is not None and any(write.channel == ERROR for write in head.writes)


def _info(store: Context, row: ThreadRow) -> ThreadInfo:
    """A thread's row for people; one whose words cannot be read is listed without them."""
    try:
        return thread_info(store.tools, row)
    except (Corrupt, NotAllowed, NotFound):
        return thread_info(store.tools, row._replace(tags="[]", metadata=b""))


async def _described(store: Context, rows: Sequence[ThreadRow], now: float) -> list[ListedThread]:
    held = {one.thread_id: one for one in await locks(store.backend, now, "")} if rows else {}
    weights = await _weights(store, {row.pool for row in rows})
    listed = []
    for row in rows:
        head = await store.find(row.thread_id, ROOT, None)
        writes = head.writes if head is not None else []
        waits = len(await _questions(store, row, writes)) if waiting(writes) else 0
        info = _info(store, row)
        counted, size, is_shared = weights.get((row.pool, row.serial), (0, 0, False))
        listed.append(
            ListedThread(
                info=replace(info, status="suspended") if waits and info.status == "active" else info,
                head=head.row.id if head is not None else None,
                waits=waits,
                has_error=any(write.channel == ERROR for write in writes),
                lock=held.get(row.thread_id),
                pins=_pins(row),
                checkpoints=counted,
                stored_bytes=size,
                is_shared=is_shared,
            )
        )
    return listed


def _pins(row: ThreadRow) -> int:
    try:
        return sum(not tag.name for tag in tags_of(row))
    except Corrupt:
        return 0


async def _questions(store: Context, row: ThreadRow, writes: Any) -> Sequence[object]:
    try:
        return await open_at_head(store, row.thread_id, row.pool, writes)
    except (Corrupt, NotAllowed, NotFound) as trouble:
        return [printable(trouble)]  # a question that cannot be read waits all the same


async def _weights(store: Context, pools: Collection[int]) -> dict[tuple[int, int], tuple[int, int, bool]]:
    """Of each thread of these pools: checkpoints, bytes, and whether its chunks are those of others too."""
    if not pools:
        return {}
    weights = await store.backend.weights(sorted(pools))
    chunks = {one.pool: one.bytes for one in weights.chunks}
    writes = {(one.pool, one.thread): one.bytes for one in weights.writes}
    mates: dict[int, int] = {}
    for one in weights.checkpoints:
        mates[one.pool] = mates.get(one.pool, 0) + 1
    return {
        (one.pool, one.thread): (
            one.rows,
            one.bytes + writes.get((one.pool, one.thread), 0) + chunks.get(one.pool, 0),
            mates[one.pool] > 1,
        )
        for one in weights.checkpoints
    }
