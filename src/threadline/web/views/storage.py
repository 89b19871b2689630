"""Where the bytes are, how the store grows, whether it answers and can be read; the trash and the quarantine."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ...core.integrity.report import Report
from ...errors import Conflict, InvalidRequest, NotFound
from ...show.figures import counted
from ..asked import Asked, Page
from ..desk import Desk
from ..jobs import Job
from ..snippets import command_line, python_lines

__all__ = ["as_json", "begin_fsck", "health_json", "health_page", "page", "put_back", "restore_trash", "set_aside"]

_PATIENCE_SECONDS = 1.5
_FRESH_SECONDS = 30.0
_MOST_SHOWN = 20


async def page(asked: Asked) -> Page:
    """Figures of the store; in a large one they are counted while the page waits to be asked again."""
    desk = asked.desk
    jobs = {name: _counting(desk, name) for name in ("stats", "thread", "channel")}
    for job in jobs.values():
        await desk.jobs.waited(job, _PATIENCE_SECONDS)
    figures = {name: job.result if job.is_over else None for name, job in jobs.items()}
    values = {
        "stats": figures["stats"],
        "shares": {name: _shares(figures[name]) for name in ("thread", "channel")},
        "jobs": jobs,
        "trash": await desk.ask(desk.reading, "trash"),
    }
    command, python = command_line(desk.url, "stats"), python_lines(desk.url, "print(saver.stats())")
    return Page("storage.html", "Storage", values, command, python)


def _counting(desk: Desk, name: str) -> Job:
    async def count(_: Job) -> Any:
        if name == "stats":
            return await desk.ask(desk.reading, "stats")
        return await desk.ask(desk.reading, "bytes_by", name)

    key = "bytes" if name == "thread" else f"bytes-{name}"
    return desk.jobs.begin(f"counting the store by {name}", key, count, fresh_seconds=_FRESH_SECONDS)


def _shares(found: list[Any] | None) -> list[dict[str, Any]] | None:
    """The largest shares, with their part of the whole."""
    if found is None:
        return None
    total = sum(one.stored_bytes for one in found) or 1
    shown = [
        {"name": one.name, "count": one.count, "bytes": one.stored_bytes, "part": one.stored_bytes / total}
        for one in found[:_MOST_SHOWN]
    ]
    return shown


async def as_json(asked: Asked) -> Any:
    """The figures of the store as JSON, as `threadline stats --json` prints them."""
    by = asked.maybe("by")
    if by is not None:
        return [dataclasses.asdict(one) for one in await asked.desk.ask(asked.desk.reading, "bytes_by", by)]
    figures = await asked.desk.ask(asked.desk.reading, "stats")
    return {**dataclasses.asdict(figures), "bytes_saved": figures.bytes_saved}


async def _health(desk: Desk) -> dict[str, Any]:
    """Whether the store answers: it writes and removes a record where it may, otherwise it reads."""
    if desk.can_write:
        found = await desk.ask(desk.writing, "health")
        return {"ok": found.ok, "latency_seconds": found.latency_seconds, "error": found.error}
    began = time.perf_counter()
    await desk.ask(desk.reading, "count_threads")
    return {"ok": True, "latency_seconds": time.perf_counter() - began, "error": None}


async def health_page(asked: Asked) -> Page:
    """Whether the store answers, and what the last check of everything found."""
    desk = asked.desk
    job = desk.jobs.get(asked.text("job")) if asked.maybe("job") else None
    values = {
        "health": await _health(desk),
        "quarantined": await desk.ask(desk.reading, "quarantined"),
        "locks": await desk.ask(desk.reading, "locks"),
        "job": job,
        "report": job.result if job is not None and isinstance(job.result, Report) else None,
        "most": 100,
        "now": time.time(),
        "part_template": "_fsck.html",
    }
    command, python = command_line(desk.url, "fsck"), python_lines(desk.url, "print(saver.fsck())")
    return Page("health.html", "Health", values, command, python)


async def health_json(asked: Asked) -> Any:
    """The health of the store as JSON, as `threadline health --json` prints it."""
    return await _health(asked.desk)


async def begin_fsck(asked: Asked) -> tuple[str, dict[str, Any], str]:
    """Read and verify everything; changes nothing."""
    desk = asked.desk

    async def check(job: Job) -> Report:
        report: Report = await desk.ask(desk.reading, "fsck", None, job.progress)
        return report

    job = desk.jobs.begin("checking everything", "fsck", check)
    await desk.jobs.waited(job, _PATIENCE_SECONDS)
    return "health", {"job": job.id}, ""


async def set_aside(asked: Asked) -> tuple[str, dict[str, Any], str]:
    """Quarantine what a report found damaged."""
    job = asked.desk.jobs.get(asked.text("job"))
    if not isinstance(job.result, Report):
        raise InvalidRequest("this check has not ended: there is nothing to set aside yet")
    count = await asked.desk.ask(asked.desk.writing, "quarantine", job.result.damaged)
    return "health", {}, f"{counted(count, 'checkpoint')} set aside."


async def put_back(asked: Asked) -> tuple[str, dict[str, Any], str]:
    """Put a quarantined checkpoint back, damaged as it is."""
    chosen = [
        one
        for one in await asked.desk.ask(asked.desk.reading, "quarantined", asked.text("id"))
        if (one.checkpoint_id, one.namespace) == (asked.text("at"), asked.text("ns"))
    ]
    if not chosen:
        raise NotFound("this is not in quarantine any more")
    await asked.desk.ask(asked.desk.writing, "unquarantine", chosen)
    return "health", {}, "Put back, damaged as it is."


async def restore_trash(asked: Asked) -> tuple[str, dict[str, Any], str]:
    """Put back what was deleted."""
    if not asked.maybe("entry"):
        raise Conflict("name the deletion that is to be undone")
    restored = await asked.desk.ask(asked.desk.writing, "restore_trash", asked.text("entry"))
    return "thread", {"id": restored.thread_id}, "Restored."
