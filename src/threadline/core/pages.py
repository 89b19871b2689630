"""All checkpoints of a query, page by page: nothing stays open between two pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from ..backends.port import Backend, CheckpointKey, Found, Query
from .tools import Tools

__all__ = ["each_found", "learn_keys_of", "thread_rows"]

_PAGE = 500
_LONGEST_PAGE = 16_384


async def each_found(backend: Backend, query: Query, *, growth: int = 1) -> AsyncIterator[Found]:
    """Every checkpoint of a query, newest first; each page may be some times as long as the one before.

    A search that no index orders sorts all it finds for every page: where all is wanted, pages should be few.
    """
    while True:
        page = await backend.page(query)
        for found in page:
            yield found
        if len(page) < query.limit:
            return
        after = (page[-1].row.id, page[-1].thread_id, page[-1].row.namespace)
        query = replace(query, after=after, limit=min(query.limit * growth, _LONGEST_PAGE))


async def thread_rows(
    backend: Backend, thread_id: str, *, with_writes: bool = False, tools: Tools | None = None
) -> list[Found]:
    """All checkpoints of a thread, in every namespace, newest first; with tools, ready to be opened."""
    rows: list[Found] = []
    after: CheckpointKey | None = None
    while True:
        page = await backend.walk(thread_id, after, _PAGE, with_writes=with_writes)
        rows += page
        if len(page) < _PAGE:
            break
        after = CheckpointKey(page[-1].row.namespace, page[-1].row.id)
    rows.sort(key=lambda found: found.row.namespace)
    rows.sort(key=lambda found: found.row.id, reverse=True)
    if tools is not None:
        await learn_keys_of(backend, tools, rows)
    return rows


async def learn_keys_of(backend: Backend, tools: Tools, rows: Iterable[Found]) -> None:
    """Look up keys that another process began to use for some of these rows: without them they seem damaged."""
    forms = [form for found in rows for form in (found.row.form, found.row.metadata_form)]
    await tools.learn_keys(backend, forms)
