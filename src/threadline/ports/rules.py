"""Decisions that every backend makes the same way: pure functions over rows, without I/O.

Also the ids of *hidden threads*, in which a store keeps rows that were taken out of a thread (trash, quarantine). A
hidden thread is in the pool of the thread its rows came from, so that garbage collection finds their chunks
reachable. Its id sorts behind every other id, so listings end before it, and no caller can name one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from operator import itemgetter
from typing import Any

from ..base.checkpoint import INTERRUPT
from ..base.hashing import blake2b
from ..base.namespaces import ROOT
from ..errors import Conflict, Corrupt, NewerFormat
from .checkpoints import Change, ThreadRow, WriteRow, split_links

__all__ = [
    "ACTIVITY_SECONDS",
    "ASIDE",
    "FORMAT",
    "FirstStep",
    "GENERATION_SHIFT",
    "HIDDEN",
    "TOKEN_BYTES",
    "TRASH",
    "asked_at",
    "asks",
    "check_format",
    "first_step",
    "hidden_id",
    "hidden_ids_of",
    "is_beginning",
    "is_hidden",
    "is_own_fork",
    "is_quick",
    "is_usual",
    "kind_of",
    "lease_key",
    "mark",
    "needs_parent_row",
    "new_thread",
    "no_parent_row",
    "own_words",
    "refuse_if_closed",
    "refuse_if_head_moved",
    "refuse_if_lease_lost",
    "refuse_if_not_first",
    "shown_origin",
    "split_writes",
    "write_order",
]


_channel_of = itemgetter(5)  # of a `WriteRow`
# `active` is written at most this often, so that a put does not rewrite the thread's row.
ACTIVITY_SECONDS = 60.0
# How often this process lost its server (the *generation*) stands above the epoch of every stamp that it knows: a
# server that comes back may lack what it acknowledged, so a stamp of an earlier generation is a stale one.
GENERATION_SHIFT = 48
# How long the token of a lease is, at the head of its record.
TOKEN_BYTES = 16
# The number of the storage format (docs/format.md), which is the number of the last migration of a SQL database.
FORMAT = 1


class FirstStep(Enum):
    """What the first use of a store begins with."""

    USE = "use"
    CREATE = "create"  # or migrate
    REFUSE_MISSING = "refuse missing"
    REFUSE_OLDER = "refuse older"


def first_step(found: int | None, mode: str | bool, *, may_write: bool) -> FirstStep:
    """What to do with a store of this format, None where there is none; `mode` is the option `setup`."""
    if found is None:
        return FirstStep.CREATE if may_write else FirstStep.REFUSE_MISSING
    if found == FORMAT:
        return FirstStep.USE
    return FirstStep.CREATE if may_write and mode == "migrate" else FirstStep.REFUSE_OLDER


def check_format(written: bytes | memoryview | str, where: str) -> int:
    """The number in a store's record of its format. Raises Corrupt, or NewerFormat."""
    try:
        found = int(written if isinstance(written, str) else bytes(memoryview(written)))
    except (TypeError, ValueError):
        raise Corrupt(f"{where}: the record of the store's format is damaged") from None
    if found > FORMAT:
        raise NewerFormat(f"{where} has format {found}, this version reads up to {FORMAT}: upgrade threadline")
    return found


def lease_key(thread_id: str) -> str:
    """The name of a thread's lease among the records of a store that keeps it there."""
    return f"lease:{thread_id}"


def is_own_fork(thread: ThreadRow, change: Change) -> bool:
    """Whether this same change made the thread in an earlier attempt whose answer was lost."""
    return change.joins is not None and (thread.forked_from, thread.created) == change.beginning


def refuse_if_closed(thread: ThreadRow, change: Change) -> None:
    """Raise Conflict when the thread's state forbids the change."""
    if thread.status == "archived":
        raise Conflict(f"the thread {thread.thread_id!r} is archived: restore() it before writing to it")
    if thread.status != "deleted":
        if change.joins is not None and not is_own_fork(thread, change):
            raise Conflict(f"the thread {thread.thread_id!r} exists already: delete it first, or choose another id")
        return
    descends = change.continues is not None
    if descends and (not change.begins or change.continues <= (thread.deleted_before or "")):  # type: ignore[operator]
        raise Conflict(_deleted(thread.thread_id))


def _deleted(thread_id: str) -> str:
    return (
        f"the thread {thread_id!r} was deleted while this run was going on; a run without a "
        f"checkpoint_id starts it anew"
    )


def refuse_if_head_moved(change: Change, newest: str | None) -> None:
    """Raise Conflict when the namespace's newest checkpoint is not the one that the writer saw."""
    assert change.head is not None
    namespace, expected = change.head
    if newest == expected or any((row.namespace, row.id) == (namespace, newest) for row in change.checkpoints):
        return
    raise Conflict(
        f"the thread {change.thread_id!r} has moved on to {newest or 'nothing'} since this run read "
        f"{expected or 'it as empty'}: another run is writing to it. Read it again, or fork it"
    )


def is_usual(change: Change) -> bool:
    """Whether a change is of the usual kind: to a thread that is known, with nothing more to check."""
    return (
        change.stamp is not None
        and change.head is None
        and change.lease is None
        and change.joins is None
        and not change.firsts
        and change.settles is None
        and (not change.writes or INTERRUPT not in map(_channel_of, change.writes) or asked_at(change) is None)
    )


def is_beginning(change: Change) -> bool:
    """Whether a change is the usual first one: to a thread that need not exist, with nothing more to check."""
    return (
        change.stamp is None
        and change.continues is None
        and change.begins
        and change.head is None
        and change.lease is None
        and change.joins is None
        and change.founded is None
        and not change.firsts
        and change.settles is None
        and (INTERRUPT not in map(_channel_of, change.writes) or asked_at(change) is None)
    )


def is_quick(change: Change) -> bool:
    """Whether a change is one that an engine may take without a coroutine (`PutUsual` in ports/engine.py)."""
    return is_usual(change) if change.stamp is not None else is_beginning(change)


def asks(write: WriteRow) -> bool:
    """Whether a write is a question of the root graph to somebody outside."""
    return write.channel == INTERRUPT and write.namespace == ROOT


def asked_at(change: Change) -> str | None:
    """The newest checkpoint of the root graph at which a change asks something; None when it asks nothing."""
    asked = None
    for write in change.writes:
        if write[5] == INTERRUPT and write[0] == ROOT and (asked is None or write[1] > asked):
            asked = write[1]
    return asked


def refuse_if_not_first(write: WriteRow, data: bytes | None) -> None:
    """Raise Conflict when somebody has made a write that must be the first of its key."""
    if data is not None and data != write.data:
        raise Conflict(
            f"checkpoint {write.checkpoint_id!r}: {write.task_id!r} was written by somebody else at the same time; "
            f"nothing of this call was stored. Read the thread again"
        )


def new_thread(change: Change, serial: int, origin: ThreadRow | None, deleted: ThreadRow | None) -> ThreadRow:
    """The thread that a change begins: in a pool of its own or in its origin's, anew if it was deleted."""
    return ThreadRow(
        thread_id=change.thread_id,
        serial=serial,
        pool=origin.pool if origin else serial,
        epoch=origin.epoch if origin else 0,
        status="active",
        deleted_before=deleted.deleted_before if deleted else None,
        forked_from=change.beginning[0],
        created=change.beginning[1],
        active=change.now,
        expires=None,
        tags="[]",
        metadata=b"",
    )


def refuse_if_lease_lost(change: Change, record: bytes | None) -> None:
    """Raise Conflict when the thread's lease is no longer the writer's."""
    assert change.lease is not None
    if record is None or not record.startswith(change.lease):
        raise Conflict(
            f"the lease on thread {change.thread_id!r} was lost: it ran out before this put, and nothing was written"
        )


def needs_parent_row(thread: ThreadRow, change: Change) -> bool:
    """Whether a restarted thread must hold the parent, because the parent's id lies before the deletion."""
    before = thread.deleted_before
    return before is not None and change.continues is not None and change.continues <= before


def no_parent_row(change: Change) -> Conflict:
    """Why a change is refused whose thread lacks what it continues."""
    return Conflict(_deleted(change.thread_id))


# The order of pending writes: by task path, task and index. Texts are compared by code points, as their UTF-8 would be.
write_order: Callable[[WriteRow], tuple[str, str, int]] = itemgetter(4, 2, 3)


def own_words(thread: ThreadRow) -> tuple[int, str, float | None, str, bytes]:
    """What people and policies set of a thread, which `swap_thread` compares."""
    return (thread.serial, thread.status, thread.expires, thread.tags, thread.metadata or b"")


async def mark(
    roots: Iterable[bytes],
    reachable: set[bytes],
    links_of: Callable[[list[bytes]], Awaitable[dict[bytes, bytes]]],
) -> None:
    """Add to `reachable` everything the roots lead to; what is in it already was followed before."""
    frontier = {digest for links in roots for digest in split_links(links)} - reachable
    while frontier:
        found = await links_of(sorted(frontier))
        # What is not there was not followed: it may be put again, with children, before anything is deleted.
        reachable.update(found)
        frontier = {digest for links in found.values() if links for digest in split_links(links)} - reachable


HIDDEN = "\U0010ffff" * 16
# What hidden threads hold: what was deleted and can be restored; what keeps the chunks of quarantined checkpoints.
TRASH, ASIDE = "t", "q"
_DIGEST = 32
_SLOT = 6
# How much of the origin's id is in the id; a key of an index has no room for any length.
_MOST_SHOWN = 200


def is_hidden(thread_id: str) -> bool:
    """Whether an id is that of a hidden thread."""
    return thread_id.startswith(HIDDEN)


def hidden_ids_of(origin: str) -> str:
    """What the ids of all hidden threads of a thread begin with, and no others."""
    return HIDDEN + blake2b(origin.encode(errors="surrogatepass"), digest_size=_DIGEST // 2).hexdigest()


def hidden_id(origin: str, kind: str, slot: int = 0) -> str:
    """The id of a hidden thread; ids are used again, since each leaves a tombstone."""
    return f"{hidden_ids_of(origin)}{kind}{slot:0{_SLOT}x}{origin[:_MOST_SHOWN]}"


def kind_of(thread_id: str) -> str:
    """TRASH or ASIDE."""
    return thread_id[len(HIDDEN) + _DIGEST]


def shown_origin(thread_id: str) -> str:
    """The beginning of the id of the thread that a hidden one belongs to; any other id is itself."""
    return thread_id[len(HIDDEN) + _DIGEST + 1 + _SLOT :] if is_hidden(thread_id) else thread_id


def split_writes(writes: Iterable[WriteRow], *place: Any) -> tuple[list[Any], list[Any]]:
    """The rows of writes that stay if they are there, and of those that replace one, each behind its place."""
    added: list[Any] = []
    replacing: list[Any] = []
    for write in writes:
        (replacing if write[-1] else added).append((*place, *write[:-1]))
    return added, replacing
