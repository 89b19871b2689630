"""All checkpoints of a query, page by page: nothing stays open between two pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from ..backends.port import Backend, Found, Query

__all__ = ["each_found", "thread_rows"]

_PAGE = 256


async def each_found(backend: Backend, query: Query) -> AsyncIterator[Found]:
    """Every checkpoint of a query, newest first."""
    while True:
        page = await backend.page(query)
        for found in page:
            yield found
        if len(page) < query.limit:
            return
        query = replace(query, after=(page[-1].row.id, page[-1].thread_id, page[-1].row.namespace))


async def thread_rows(backend: Backend, thread_id: str, *, with_writes: bool = False) -> list[Found]:
    """All checkpoints of a thread, in every namespace, newest first."""
    query = Query(thread_id=thread_id, limit=_PAGE, with_writes=with_writes)
    return [found async for found in each_found(backend, query)]
