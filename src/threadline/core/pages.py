"""All checkpoints of a query, page by page: nothing stays open between two pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from ..backends.port import Backend, Found, Query
from .tools import Tools

__all__ = ["each_found", "learn_keys_of", "thread_rows"]

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


async def thread_rows(
    backend: Backend, thread_id: str, *, with_writes: bool = False, tools: Tools | None = None
) -> list[Found]:
    """All checkpoints of a thread, in every namespace, newest first; with tools, ready to be opened."""
    query = Query(thread_id=thread_id, limit=_PAGE, with_writes=with_writes)
    rows = [found async for found in each_found(backend, query)]
    if tools is not None:
        await learn_keys_of(backend, tools, rows)
    return rows


async def learn_keys_of(backend: Backend, tools: Tools, rows: Iterable[Found]) -> None:
    """Look up keys that another process began to use for some of these rows: without them they seem damaged."""
    if tools.envelope.ring is not None:
        forms = [form for found in rows for form in (found.row.form, found.row.metadata_form)]
        await tools.learn_keys(backend, forms)
