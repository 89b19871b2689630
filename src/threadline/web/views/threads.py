"""The list of threads. Its filters are in its address; it reads as much as one page shows."""

from __future__ import annotations

from typing import Any

from ...core.stats import ThreadWeight
from ...errors import InvalidRequest
from ...show.directory import ORDERS, STATUSES, Choice, ListedThread, ThreadPage, describe_threads, list_threads
from ...show.figures import moment_of, pairs_of
from ...show.forms import thread_json
from ..asked import Asked, Page
from ..jobs import Job
from ..snippets import command_line, python_lines

__all__ = ["as_json", "choice_of", "command_of", "page", "python_of"]

_USUAL = 50
_SIZED = ("size", "checkpoints")
# Sizes of all threads are counted in one go; for so long the count is good enough to sort by.
_FRESH_SECONDS = 60.0
# A page is there at once, and loads the list when it was counted; who has no JavaScript waits for it.
_PATIENCE_SECONDS, _WAIT_SECONDS = 0.15, 20.0


def choice_of(asked: Asked) -> Choice:
    """The threads that the parameters of an address choose."""
    # Rows of threads are read by id in a few queries; by activity, each by itself.
    is_chosen = any(asked.maybe(name) for name in ("q", "status", "tag", "since", "filter"))
    order = asked.text("sort") or ("id" if is_chosen else "recent")
    return Choice(
        prefix=asked.text("q").strip(),
        status=asked.maybe("status"),
        tag=asked.maybe("tag"),
        active_since=moment_of(asked.maybe("since"), "since"),
        filter=pairs_of(asked.every("filter"), "a filter"),
        order="id" if order in _SIZED else order,
    ).checked()


async def page(asked: Asked) -> Page:
    """The threads of a choice, a page of them."""
    choice, sort = choice_of(asked), asked.text("sort")
    limit = asked.number("limit", _USUAL, 1, 500)
    job: Job | None = None
    if sort in _SIZED:
        if any(asked.maybe(name) for name in ("status", "tag", "since", "filter")):
            raise InvalidRequest("sorting by size goes with the beginning of ids alone: clear the other filters")
        found, job = await _by_size(asked, choice, sort, limit)
    else:
        found = await asked.desk.run(list_threads, choice, asked.maybe("after"), limit)
    values = {
        "found": found,
        "part_template": "_threads.html",
        # htmx takes what is in a noscript for elements: there is none in a part.
        "is_part": asked.has("part"),
        "job": job,
        "sort": sort or choice.order,
        "orders": (*ORDERS, *_SIZED),
        "statuses": STATUSES,
        "chosen": {name: asked.text(name) for name in ("q", "status", "tag", "since", "sort")},
        "filters": asked.every("filter"),
        "is_chosen": any(asked.maybe(name) for name in ("q", "status", "tag", "since", "filter")),
        "count": await asked.desk.ask(asked.desk.reading, "count_threads"),
    }
    return Page("threads.html", "Threads", values, command_of(asked), python_of(asked, "print(thread.thread_id)"))


async def _by_size(asked: Asked, choice: Choice, sort: str, limit: int) -> tuple[ThreadPage, Job | None]:
    """Threads by their size, which is counted over all of them; the job that counts, while it is not over."""
    desk = asked.desk

    async def count(_: Job) -> list[Any]:
        shares: list[Any] = await desk.ask(desk.reading, "bytes_by", "thread")
        return shares

    job = desk.jobs.begin("counting the bytes of all threads", "bytes", count, fresh_seconds=_FRESH_SECONDS)
    await desk.jobs.waited(job, _WAIT_SECONDS if asked.has("wait") or asked.has("part") else _PATIENCE_SECONDS)
    if not job.is_over or job.error is not None:
        return ThreadPage(threads=()), job
    skip = asked.number("after", 0, 0, 10_000_000)
    ranked = sorted(job.result, key=lambda one: -(one.stored_bytes if sort == "size" else one.count))
    named = [one.name for one in ranked if one.name.startswith(choice.prefix)]
    shown: list[ListedThread] = await desk.run(describe_threads, named[skip : skip + limit])
    following = str(skip + limit) if skip + limit < len(named) else None
    return ThreadPage(threads=tuple(shown), next=following), None


async def as_json(asked: Asked) -> Any:
    """The threads of the page as JSON, as `threadline threads --json` prints them."""
    found: ThreadPage = await asked.desk.run(
        list_threads, choice_of(asked), asked.maybe("after"), asked.number("limit", 100, 1, 5000)
    )
    names = [one.info.thread_id for one in found.threads]
    weights = await asked.desk.ask(asked.desk.reading, "weigh", names) if names else {}
    return [thread_json(one.info, weights.get(one.info.thread_id, ThreadWeight())) for one in found.threads]


def command_of(asked: Asked) -> str:
    """The command that lists the threads of an address."""
    status = {"waits": "suspended"}.get(asked.text("status"), asked.text("status"))
    return command_line(
        asked.desk.url,
        "threads",
        prefix=asked.maybe("q"),
        status=status if status in ("active", "suspended", "archived") else None,
        tag=asked.maybe("tag"),
        since=asked.maybe("since"),
        filter=asked.every("filter"),
        sort=asked.text("sort", "recent") if asked.text("sort", "recent") != "id" else None,
    )


def python_of(asked: Asked, act: str) -> str:
    """Lines that do something with each of these threads."""
    choice = choice_of(asked)
    status = {"waits": "suspended"}.get(choice.status or "", choice.status)
    options = {"prefix": choice.prefix, "tag": choice.tag, "filter": dict(choice.filter)}
    options["status"] = status if status in ("active", "suspended", "archived") else None
    named = ", ".join(f"{name}={value!r}" for name, value in options.items() if value)
    return python_lines(asked.desk.url, f"for thread in saver.threads({named}):\n    {act}")
