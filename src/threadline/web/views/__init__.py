"""Every view of the page, by the name in its address, and what forms do.

A view gives a page, and the JSON that the command of the same purpose prints with `--json`. A form gives the view to
go to with its parameters, and what to say there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from ..asked import Asked, Page
from . import acts, checkpoint, diff, find, inbox, memory, merge, plans, storage, thread, threads

__all__ = ["FORMS", "Form", "STREAMS", "VIEWS", "View"]

Done = tuple[str, dict[str, Any], str]


class View(NamedTuple):
    """A page and its JSON."""

    page: Callable[[Asked], Awaitable[Page]]
    as_json: Callable[[Asked], Awaitable[Any]]


class Form(NamedTuple):
    """What a form does, and whether the store changes by it."""

    act: Callable[[Asked], Awaitable[Done]]
    is_writing: bool = True


VIEWS: dict[str, View] = {
    "threads": View(threads.page, threads.as_json),
    "thread": View(thread.page, thread.as_json),
    "checkpoint": View(checkpoint.page, checkpoint.as_json),
    "value": View(checkpoint.value_page, checkpoint.value_json),
    "writes": View(checkpoint.writes_page, checkpoint.writes_json),
    "diff": View(diff.page, diff.as_json),
    "versions": View(diff.versions_page, diff.versions_json),
    "merge": View(merge.page, merge.as_json),
    "inbox": View(inbox.page, inbox.as_json),
    "plan": View(plans.page, plans.as_json),
    "job": View(plans.job_page, plans.job_json),
    "storage": View(storage.page, storage.as_json),
    "health": View(storage.health_page, storage.health_json),
    "find": View(find.page, find.as_json),
    "store": View(memory.page, memory.as_json),
    "cache": View(memory.cache_page, memory.cache_json),
}
FORMS: dict[str, Form] = {
    "act": Form(acts.act),
    "answer": Form(inbox.answer),
    "merge": Form(merge.commit),
    "plan": Form(plans.do),
    "fsck": Form(storage.begin_fsck, is_writing=False),
    "quarantine": Form(storage.set_aside),
    "unquarantine": Form(storage.put_back),
    "untrash": Form(storage.restore_trash),
}
STREAMS: dict[str, Callable[[Asked], Awaitable[Response]]] = {"tail": thread.tail}
