"""Decisions every backend makes the same way, without doing anything: pure functions over rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from ..chunks.digest import split_links
from ..errors import Conflict

if TYPE_CHECKING:
    from .port import Change, ThreadRow

__all__ = ["ACTIVITY_SECONDS", "mark", "needs_parent_row", "refuse_if_closed", "write_order"]

# `active` is written at most this often, so that a put does not rewrite the thread's row.
ACTIVITY_SECONDS = 60.0


def refuse_if_closed(thread: ThreadRow, change: Change) -> None:
    """Raise Conflict when the thread's state forbids the change."""
    if thread.status == "archived":
        raise Conflict(f"the thread {thread.thread_id!r} is archived: restore() it before writing to it")
    if thread.status != "deleted":
        if change.joins is not None:
            raise Conflict(f"the thread {thread.thread_id!r} exists already: delete it first, or choose another id")
        return
    descends = change.continues is not None
    if descends and (not change.begins or change.continues <= (thread.deleted_before or "")):  # type: ignore[operator]
        raise Conflict(
            f"the thread {thread.thread_id!r} was deleted while this run was going on; a run without a "
            f"checkpoint_id starts it anew"
        )


def needs_parent_row(thread: ThreadRow, change: Change) -> bool:
    """Whether a restarted thread must hold the parent, because the parent's id lies before the deletion."""
    before = thread.deleted_before
    return before is not None and change.continues is not None and change.continues <= before


def write_order(task_path: str, task_id: str, index: int) -> tuple[bytes, bytes, int]:
    """The order of pending writes: by task path, task and index, text compared as bytes."""
    return (task_path.encode(errors="surrogatepass"), task_id.encode(errors="surrogatepass"), index)


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
