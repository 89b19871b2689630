"""One thread: its tree as rails, the steps on a time axis, and the live tail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from ...base.hashing import blake2b
from ...base.namespaces import ROOT
from ...core.context import Context
from ...core.lifecycle import living
from ...errors import NotFound, ThreadlineError, Unavailable
from ...show.directory import ListedThread, describe_threads
from ...show.forms import entry_json
from ...show.rails import Line
from ...show.timeline import lay_out
from ...show.tree import History, drawn
from ..asked import Asked, Page
from ..rendering import render
from ..snippets import command_line, python_lines

__all__ = ["as_json", "page", "rails_of", "tail"]

_MOST_LINES = 400
_MOST_ON_AXIS = 300
# How often the tail looks whether the thread has moved, and says that it is still there. It ends after a minute, and
# the browser comes again: a server that is to end waits for it no longer than that.
_LOOK_SECONDS, _LOOKS_PER_BEAT, _MOST_LOOKS = 0.5, 30, 110
_GONE = "gone"
_MOST_TAILS = 64
_ROW, _LANE, _MARGIN = 40, 16, 12


async def page(asked: Asked) -> Page:
    """The tree of a thread."""
    thread_id = asked.text("id")
    mark = await _mark(asked)  # before the rest is read: what comes meanwhile is told by the tail
    history = await asked.desk.history(asked.desk.thread(thread_id).thread_id)
    [listed] = await _listed(asked, thread_id)
    namespace = asked.text("ns")
    if namespace and namespace not in history.knots:
        raise NotFound(f"thread {thread_id!r} has no namespace {namespace!r}")
    lines = drawn(history, namespace, opened=asked.every("open"))
    skip = asked.number("skip", 0, 0, 10_000_000)
    shown = lines[skip : skip + _MOST_LINES]
    values = {
        "thread": listed,
        "history": history,
        "namespace": namespace,
        "lines": [(one, rails_of(one.line)) for one in shown],
        "row_height": _ROW,
        "rails_width": max([rails_of(one.line)["width"] for one in shown], default=0),
        "opened": asked.every("open"),
        "older": skip + _MOST_LINES if len(lines) > skip + _MOST_LINES else None,
        "axis": _axis(history, namespace),
        "namespaces": history.namespaces(),
        "part_template": "_tree.html",
        "thread_id": thread_id,
        "first": lines[0].entry if lines else None,
        "mark": mark,
    }
    command = command_line(asked.desk.url, "log", thread_id, ns=namespace)
    python = python_lines(asked.desk.url, f"print(saver.thread({thread_id!r}).log())")
    return Page("thread.html", thread_id, values, command, python)


async def _listed(asked: Asked, thread_id: str) -> list[ListedThread]:
    found: list[ListedThread] = await asked.desk.run(describe_threads, [thread_id])
    if not found:
        raise NotFound(f"there is no thread {thread_id!r}: it was deleted, or never was")
    return found


async def as_json(asked: Asked) -> Any:
    """The history as JSON, as `threadline log --json` prints it."""
    thread = asked.desk.thread(asked.text("id"))
    log = await asked.desk.ask(thread, "log", namespace=asked.maybe("ns"))
    return [entry_json(entry) for entry in log.entries]


def rails_of(line: Line) -> dict[str, Any]:
    """The drawing of one line: pieces of track as paths with their lanes, and where the checkpoint is."""
    middle = _ROW // 2

    def x(lane: int) -> int:
        return _MARGIN + _LANE * lane

    def path(start: int, end: int, top: int, bottom: int) -> str:
        if start == end:
            return f"M{x(start)} {top}V{bottom}"
        half = (top + bottom) // 2
        return f"M{x(start)} {top}C{x(start)} {half} {x(end)} {half} {x(end)} {bottom}"

    upper = [(path(start, end, 0, middle), start) for start, end in line.upper]
    lower = [(path(start, end, middle, _ROW), end) for start, end in line.lower]
    return {
        "paths": [(drawn_path, lane % 8) for drawn_path, lane in (*upper, *lower)],
        # Where tracks leave the line, for lines that are higher than others.
        "ends": sorted({(x(end), end % 8) for _, end in line.lower}),
        "x": x(line.lane),
        "y": middle,
        "lane": line.lane % 8,
        "width": x(max(line.width, 1) - 1) + _MARGIN,
    }


def _axis(history: History, namespace: str) -> dict[str, Any] | None:
    """The newest checkpoints on an axis of 1000 units."""
    entries = sorted(history.newest(namespace, _MOST_ON_AXIS), key=lambda entry: entry.created)
    if len(entries) < 3:
        return None
    axis = lay_out([entry.created for entry in entries])
    dots = [(round(place * 1000, 1), entry) for place, entry in zip(axis.places, entries, strict=True)]
    gaps = [(round(gap.start * 1000, 1), round((gap.end - gap.start) * 1000, 1), gap.seconds) for gap in axis.gaps]
    return {"dots": dots, "gaps": gaps, "first": entries[0].created, "last": entries[-1].created}


async def tail(asked: Asked) -> Response:
    """Events of a thread: the tree again, whenever the thread has moved."""
    asked.desk.thread(asked.text("id"))
    if asked.desk.tails >= _MOST_TAILS:
        raise Unavailable("too many pages follow threads at this moment: close some")
    return StreamingResponse(_events(asked), media_type="text/event-stream")


async def _events(asked: Asked) -> AsyncIterator[str]:
    asked.desk.tails += 1
    try:
        # As of the page that follows, or of the last event that it heard.
        seen = asked.request.headers.get("last-event-id") or asked.text("seen")
        yield ": following\n\n"
        for look in range(_MOST_LOOKS):
            now = await _mark(asked)
            if now != seen:
                seen = now
                yield f"id: {now}\n" + await _event(asked)
                if now == _GONE:
                    return
            elif look % _LOOKS_PER_BEAT == 0:
                yield ": still there\n\n"
            if asked.desk.is_closing:
                return
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        asked.desk.tails -= 1


async def _event(asked: Asked) -> str:
    try:
        shown = render(asked, await page(asked))
        text = bytes(shown.body).decode()
    except ThreadlineError:
        return "data: <p class='gone'>This thread was deleted.</p>\n\n"
    return "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"


async def _mark(asked: Asked) -> str:
    """A word that is another one when the thread has moved."""
    try:
        told = await asked.desk.run(_moved, asked.text("id"), asked.text("ns"))
    except NotFound:
        return _GONE
    except Unavailable:
        return "unavailable"
    return blake2b(repr(told).encode(errors="surrogatepass"), digest_size=8).hexdigest()


async def _moved(store: Context, thread_id: str, namespace: str) -> Any:
    row = await living(store, thread_id)
    heads = [await store.find(thread_id, name, None) for name in dict.fromkeys((ROOT, namespace))]
    told = [(one.row.id, one.row.created, len(one.writes)) for one in heads if one is not None]
    return row.status, row.tags, row.expires, told
