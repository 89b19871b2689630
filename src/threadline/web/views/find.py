"""Any id that somebody pastes: of a thread, a checkpoint, a run or an interrupt. One hit is gone to at once."""

from __future__ import annotations

from typing import Any

from ...core.context import Context
from ...core.threads import Asked as Questions
from ...ports.checkpoints import Query
from ..asked import Asked, Page
from ..snippets import command_line, python_lines

__all__ = ["as_json", "page"]

_MOST = 20
_MOST_QUESTIONS = 2_000

Hit = dict[str, Any]


async def page(asked: Asked) -> Page:
    """Where an id is."""
    text = asked.text("q").strip()
    hits: list[Hit] = await asked.desk.run(_hits, text) if text else []
    exact = [hit for hit in hits if hit["kind"] != "threads that begin so"]
    command = command_line(asked.desk.url, "threads", prefix=text)
    call = f"for thread in saver.threads(prefix={text!r}):\n    print(thread.thread_id)"
    page = Page("find.html", "Find", {"hits": hits, "q": text}, command, python_lines(asked.desk.url, call))
    if len(exact) == 1:
        page.redirect = asked.link(exact[0]["view"], **exact[0]["place"])
    return page


async def as_json(asked: Asked) -> Any:
    """Where an id is, for programs."""
    return await asked.desk.run(_hits, asked.text("q").strip()) if asked.maybe("q") else []


async def _hits(store: Context, text: str) -> list[Hit]:
    hits: list[Hit] = []
    row = await store.thread(text)
    if row is not None and row.status != "deleted":
        hits.append({"kind": "thread", "view": "thread", "place": {"id": text}})
    queries = (("checkpoint", Query(checkpoint_id=text, limit=_MOST, with_writes=False)),)
    for kind, query in (*queries, ("run", Query(run_ids=(text,), limit=_MOST, with_writes=False))):
        for found in await store.page(query):
            place = {"id": found.thread_id, "at": found.row.id, "ns": found.row.namespace}
            hits.append({"kind": kind, "view": "checkpoint", "place": place})
            if kind == "run":
                break  # the newest checkpoint of the run
    hits += await _questions(store, text)
    for one in await store.threads("", _MOST, text):
        if one.thread_id != text:
            hits.append({"kind": "threads that begin so", "view": "thread", "place": {"id": one.thread_id}})
    return hits


async def _questions(store: Context, interrupt_id: str) -> list[Hit]:
    asking, looked = Questions(), 0
    while looked < _MOST_QUESTIONS and (page := await asking.next_threads(store)):
        for row, questions in page:
            looked += len(questions)
            if any(one.id == interrupt_id for one in questions):
                return [{"kind": "interrupt", "view": "inbox", "place": {"q": row.thread_id}}]
    return []
