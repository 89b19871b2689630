"""One checkpoint: its state by channel, read part by part; one value alone; and the writes towards the next."""

from __future__ import annotations

import json
from typing import Any

from ...base.checkpoint import ERROR, INTERRUPT, RESUME
from ...core.history.state import WriteInfo, writes_told
from ...errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from ...show.checkpoint import checkpoint_json
from ...show.forms import write_json
from ...show.messages import are_messages, message_of, results_of
from ...show.parts import Outline, Part, read_outline, read_part
from ...show.shapes import json_text
from ...show.values import Damaged, plain
from ..asked import Asked, Page
from ..snippets import command_line, python_lines

__all__ = ["as_json", "page", "part_of", "value_json", "value_page", "writes_json", "writes_page"]

_FIRST_ITEMS = 10
# Channels beyond these are opened by a click.
_MOST_OPEN = 12


async def page(asked: Asked) -> Page:
    """The state at a checkpoint."""
    thread_id, at, namespace = asked.text("id"), asked.maybe("at"), asked.text("ns")
    outline: Outline = await asked.desk.run(read_outline, asked.desk.thread(thread_id).thread_id, at, namespace)
    parts = {}
    for channel in outline.channels[:_MOST_OPEN]:
        parts[channel.name] = await _first(asked, outline, channel.name)
    values = {
        "outline": outline,
        "thread_id": thread_id,
        "parts": parts,
        "place": {"id": thread_id, "at": outline.id, "ns": outline.namespace},
        "metadata": {key: value for key, value in outline.metadata.items() if value not in ({}, [], None, "")},
        "asks": sum(write.channel == INTERRUPT for write in outline.writes),
        "fails": sum(write.channel == ERROR for write in outline.writes),
        "edit": await _editor(asked, outline),
    }
    command = command_line(asked.desk.url, "show", thread_id, outline.id, ns=outline.namespace)
    named = f", namespace={outline.namespace!r}" if outline.namespace else ""
    python = python_lines(asked.desk.url, f"saver.thread({thread_id!r}).state({outline.id!r}{named})")
    return Page("checkpoint.html", f"{thread_id} at {outline.id}", values, command, python)


async def as_json(asked: Asked) -> Any:
    """The checkpoint as JSON, as `threadline show --json` prints it; all values are read."""
    told = await asked.desk.run(
        checkpoint_json, asked.desk.thread(asked.text("id")).thread_id, asked.maybe("at"), asked.text("ns")
    )
    return await asked.desk.half.aside(told)


async def _first(asked: Asked, outline: Outline, channel: str) -> dict[str, Any]:
    """The beginning of a channel, or of a chat its end."""
    part = await part_of(asked, outline.thread_id, outline.id, outline.namespace, channel, [], 0)
    told = _laid_out(part)
    if told["is_chat"] and part.has_more and part.total is not None:
        part = await part_of(asked, outline.thread_id, outline.id, outline.namespace, channel, [], -_FIRST_ITEMS)
        told = _laid_out(part)
    return {**told, "channel": channel, "path": []}


async def part_of(
    asked: Asked,
    thread_id: str,
    at: str | None,
    namespace: str,
    channel: str,
    path: list[Any],
    start: int,
    limit: int = _FIRST_ITEMS,
    *,
    whole: bool = False,
) -> Part:
    """Some items of a value; damage is shown in its place."""
    try:
        part: Part = await asked.desk.run(read_part, thread_id, at, namespace, channel, path, start, limit, whole=whole)
    except (Corrupt, NotAllowed) as trouble:
        return Part(kind="value", total=1, start=0, entries=((None, Damaged(str(trouble))),))
    return part


def _laid_out(part: Part) -> dict[str, Any]:
    """A part as its template needs it: as a chat where all items are messages."""
    items = [value for _, value in part.entries]
    is_chat = part.kind == "list" and are_messages(items)
    messages = [message_of(value) if is_chat else None for value in items]
    rows = [
        {"key": key, "value": value, "message": message}
        for (key, value), message in zip(part.entries, messages, strict=True)
    ]
    calls = {call.id: call.name for one in messages if one is not None for call in one.calls if call.id}
    return {"part": part, "rows": rows, "is_chat": is_chat, "results": results_of(messages), "calls": calls}


async def value_page(asked: Asked) -> Page:
    """Some items of a value, or one item alone."""
    thread_id, at, namespace, channel = (asked.text(name) for name in ("id", "at", "ns", "channel"))
    path = _path(asked)
    start = asked.number("start", 0, -(10**9), 10**9)
    limit = asked.number("limit", 50, 1, 500)
    thread = asked.desk.thread(thread_id)
    whole = asked.has("whole")
    part = await part_of(asked, thread.thread_id, at or None, namespace, channel, path, start, limit, whole=whole)
    place = {"id": thread_id, "at": at, "ns": namespace}
    values = {
        **_laid_out(part),
        "thread_id": thread_id,
        "place": place,
        "channel": channel,
        "path": path,
        "path_text": json.dumps(path),
        "whole": whole,
        "limit": limit,
        "earlier": max(part.start - limit, 0) if part.start > 0 else None,
        "part_template": "_items.html",
    }
    command = command_line(asked.desk.url, "show", thread_id, at or "head", ns=namespace, channel=channel)
    steps = "".join(f"[{step!r}]" for step in path)
    python = python_lines(asked.desk.url, f"saver.thread({thread_id!r}).state({at or None!r})[{channel!r}]{steps}")
    return Page("value.html", f"{channel} of {thread_id}", values, command, python)


async def value_json(asked: Asked) -> Any:
    """Items of a value, whole."""
    thread_id, at, namespace, channel = (asked.text(name) for name in ("id", "at", "ns", "channel"))
    start, limit = asked.number("start", 0, -(10**9), 10**9), asked.number("limit", 50, 1, 5000)
    thread = asked.desk.thread(thread_id)
    part = await part_of(
        asked, thread.thread_id, at or None, namespace, channel, _path(asked), start, limit, whole=True
    )
    items = [{"key": plain(key), "value": plain(value)} for key, value in part.entries]
    return {"kind": part.kind, "total": part.total, "start": part.start, "items": items}


def _path(asked: Asked) -> list[Any]:
    text = asked.text("path", "[]")
    try:
        path = json.loads(text)
    except ValueError:
        path = None
    if not isinstance(path, list) or not all(isinstance(step, (str, int)) for step in path):
        raise InvalidRequest(f'a path is a JSON list of keys and numbers, such as [3, "args"], not {text[:60]!r}')
    return path


async def _editor(asked: Asked, outline: Outline) -> dict[str, Any] | None:
    """The channel that is being edited, as JSON."""
    channel = asked.maybe("edit")
    if channel is None or not asked.desk.can_write:
        return None
    state = await asked.desk.ask(asked.desk.thread(outline.thread_id), "state", outline.id, namespace=outline.namespace)
    if channel not in state:
        raise NotFound(f"there is no channel {channel!r} at {outline.id}")
    text = await asked.desk.half.aside(lambda: json_text(state[channel]))
    if len(text) > 2_000_000:
        raise InvalidRequest(f"channel {channel!r} is too large to be edited on a page: use thread.put")
    return {"channel": channel, "text": text}


async def writes_page(asked: Asked) -> Page:
    """The writes of tasks towards the next checkpoint."""
    thread_id, at, namespace = asked.text("id"), asked.maybe("at"), asked.text("ns")
    thread = asked.desk.thread(thread_id)
    point = await asked.desk.ask(thread, "at", at, namespace=namespace)
    writes = await asked.desk.run(writes_told, thread_id, point.id, point.namespace)
    tasks: dict[tuple[str, str], list[WriteInfo]] = {}
    for write in writes:
        tasks.setdefault((write.task, write.task_id), []).append(write)
    values = {
        "thread_id": thread_id,
        "place": {"id": thread_id, "at": point.id, "ns": point.namespace},
        "tasks": tasks,
        "kinds": {ERROR: "error", INTERRUPT: "asks", RESUME: "answer"},
    }
    command = command_line(asked.desk.url, "writes", thread_id, point.id, ns=point.namespace)
    python = python_lines(asked.desk.url, f"saver.thread({thread_id!r}).writes({point.id!r})")
    return Page("writes.html", f"Writes at {point.id}", values, command, python)


async def writes_json(asked: Asked) -> Any:
    """The pending writes as JSON, as `threadline writes --json` prints them."""
    thread = asked.desk.thread(asked.text("id"))
    found = await asked.desk.run(writes_told, thread.thread_id, asked.maybe("at"), asked.text("ns"))
    return [write_json(one) for one in found]
