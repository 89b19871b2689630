"""A thread of a living store, read so that what is read is whole, though writers go on.

The order makes it so. First the newest checkpoint of the root graph: later ones are left for the next time. Then all
pending writes, in one query: the checkpoints that they belong to, or that they caused in subgraphs, are there. Then the
checkpoints of subgraphs, at last those of the root, each oldest first. So whoever stores them in this order has at
every moment a thread whose newest root checkpoint has all that it needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from ...base.namespaces import ROOT
from ...ports.checkpoints import CheckpointKey, Found, ThreadRow, WriteRow
from ..context import Context
from ..paging import walk, walk_pages
from .report import CopyChoice

__all__ = ["Cut", "cut_of", "has_any", "pages_of"]

_PAGE = 250
# Above every id.
_LAST_ID = "\U0010ffff"


class Cut(NamedTuple):
    """What of a thread is read: the newest root checkpoint, and the writes by the checkpoints they belong to."""

    newest: str | None
    writes: dict[CheckpointKey, list[WriteRow]]

    def has(self, key: CheckpointKey) -> bool:
        """Whether a checkpoint is before the cut."""
        return key.namespace != ROOT or (self.newest is not None and key.id <= self.newest)


async def cut_of(store: Context, thread_id: str) -> Cut:
    """Begin to read a thread."""
    head = await store.find(thread_id, ROOT, None, with_writes=False)
    newest = head.row.id if head is not None else None
    cut = Cut(newest, {})
    for write in await store.thread_writes(thread_id):
        # A write that overtook its checkpoint waits for it, as in the source.
        if newest is None or cut.has(write.key):
            cut.writes.setdefault(write.key, []).append(write)
    return cut


async def has_any(store: Context, thread: ThreadRow, choice: CopyChoice) -> bool:
    """Whether a thread was there at the moment up to which checkpoints are wanted."""
    oldest = await walk(store, thread.thread_id, None, 1)
    if not oldest:
        return choice.had(thread)
    if choice.wants(oldest[0].row):
        return True
    async for page in walk_pages(store, thread.thread_id, limit=_PAGE):
        if any(choice.wants(found.row) for found in page):
            return True
    return False


async def pages_of(store: Context, thread_id: str, cut: Cut) -> AsyncIterator[list[Found]]:
    """The checkpoints of a thread before the cut, page by page: of subgraphs first, then of the root, oldest first."""
    async for page in walk_pages(store, thread_id, CheckpointKey(ROOT, _LAST_ID), _PAGE):
        yield page
    async for page in walk_pages(store, thread_id, limit=_PAGE):
        own = [found for found in page if found.key.namespace == ROOT and cut.has(found.key)]
        if own:
            yield own
        if len(own) < _PAGE:
            break
