"""`threadline log`: the tree of a thread's checkpoints, drawn as `git log --graph` draws commits.

A line for each checkpoint: rails, id, step, source, the bytes it added, the channels it changed, and marks: `head`
for the newest of its namespace, `branch` for the end of another branch, tags, pins, where it came from, and `interrupt`
or `error` where a task asked or failed.
What does not fit behind the channels goes below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Annotated

import typer
from rich.cells import cell_len

from ...base.checkpoint import is_engine_channel
from ...core.history.log import Entry
from ...errors import NotFound
from ...show.forms import entry_json
from ...show.lanes import Step, draw
from ..open import open_store
from ..output import AsJson, ThreadId, Url, clean, paged, print_json, print_line, readable_bytes, screen_width

__all__ = ["log"]

# Git's own; fewer characters are rarely unique, more are tiresome to type.
_SHORTEST_ID = 8
_LEAST_FOR_CHANNELS = 12


def log(
    url: Url,
    thread: ThreadId,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--ns",
            metavar="NAMESPACE",
            help="Only this namespace, with or without its task ids; '' is the root graph.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the newest.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the tree of a thread's checkpoints, newest first.

    State is not read: what changed is told by versions.
    """
    with open_store(url, read_only=True) as store:
        entries = store.saver.thread(thread).log(namespace=namespace).entries
    if namespace and not entries:
        raise NotFound(f"thread {thread!r} has no namespace {namespace!r}; `threadline log` without --ns shows all")
    if as_json:
        print_json([entry_json(entry) for entry in entries[:limit]])
        return
    with paged():
        _print_log(entries, limit)


def _print_log(entries: Sequence[Entry], limit: int | None) -> None:
    width = screen_width()
    ids = _short_ids([entry.id for entry in entries]) if width else {entry.id: entry.id for entry in entries}
    # The sort is stable: within a namespace the newest stay first.
    for place, (name, group) in enumerate(groupby(sorted(entries, key=_namespace), key=_namespace)):
        if place:
            print_line()
        if name:
            print_line((f"namespace {name}", "bold cyan"))
        _print_tree(list(group)[:limit], ids, width)


def _namespace(entry: Entry) -> str:
    return entry.namespace


def _print_tree(entries: Sequence[Entry], ids: dict[str, str], width: int | None) -> None:
    by_id = {entry.id: entry for entry in entries}
    drawn = list(draw(list(_steps(entries))))
    rails_width = max(len(rails) for rails, _ in drawn)
    id_width = max(len(ids[entry.id]) for entry in entries)
    step_width = max(len(_step(entry)) for entry in entries)
    size_width = max(len(_size(entry)) for entry in entries)
    source_width = max(len(entry.source or "") for entry in entries)
    for rails, step in drawn:
        if step is None:
            print_line((rails, "cyan"))
            continue
        entry = by_id[step.id]
        fixed = [
            (rails.ljust(rails_width), "cyan"),
            (" " + ids[entry.id].ljust(id_width), "yellow"),
            ("  " + _step(entry).rjust(step_width), ""),
            ("  " + clean(entry.source or "").ljust(source_width), "dim"),
            ("  " + _size(entry).rjust(size_width), ""),
        ]
        taken = sum(cell_len(text) for text, _ in fixed)
        channels, marks, below = _fitted(_channels(entry), _marks(entry, entries[0], ids), width, taken)
        print_line(*fixed, ("  " + channels if channels else "", ""), ("  " + marks, "bold green"))
        if below:
            under = rails.replace("*", "|" if step.parent else " ").ljust(rails_width)
            print_line((under, "cyan"), (" " + below, "bold green"), is_cut=False)


def _steps(entries: Sequence[Entry]) -> Iterator[Step]:
    """The entries as steps of a drawing; a lane ends where the parent is gone, or was drawn already."""
    left = {entry.id for entry in entries}
    for entry in entries:
        left.discard(entry.id)
        goes_on = entry.has_parent and entry.parent in left
        yield Step(id=entry.id, parent=entry.parent if goes_on else None, number=entry.step or 0, source="", act="")


def _fitted(channels: str, marks: str, width: int | None, taken: int) -> tuple[str, str, str]:
    """Channels, marks behind them, and marks for the line below."""
    if width is None or taken + cell_len(channels) + cell_len(marks) + 4 <= width:
        return channels, marks, ""
    room = width - taken - 2
    if marks and room - cell_len(marks) - 2 < _LEAST_FOR_CHANNELS:
        return _cut(channels, room), "", marks
    return _cut(channels, room - (cell_len(marks) + 2 if marks else 0)), marks, ""


def _cut(text: str, width: int) -> str:
    while cell_len(text) > max(width, 0):
        text = text.rstrip("…")[:-1] + "…" if len(text) > 1 else ""
    return text


def _step(entry: Entry) -> str:
    return "" if entry.step is None else f"step {entry.step}"


def _size(entry: Entry) -> str:
    return f"+{readable_bytes(entry.added_bytes)}".replace("bytes", "B").replace("byte", "B")


def _channels(entry: Entry) -> str:
    return clean(", ".join(name for name in entry.changed if not is_engine_channel(name)))


def _marks(entry: Entry, newest: Entry, ids: dict[str, str]) -> str:
    marks = [] if not entry.is_head else ["head" if entry is newest else "branch"]
    marks += [f"tag {name}" for name in entry.tags]
    if entry.is_pinned:
        marks.append("pinned")
    verb = "merges" if entry.source == "update" else "from"
    marks += [f"{verb} {ids.get(origin, origin)}" for origin in entry.origins]
    if entry.parent is not None and not entry.has_parent:
        marks.append("parent pruned")
    if entry.is_interrupted:
        marks.append("interrupt")
    if entry.has_error:
        marks.append("error")
    if entry.damage is not None:
        marks.append("damaged")
    return f"[{', '.join(map(clean, marks))}]" if marks else ""


def _short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The shortest beginnings, of one length, that tell all ids apart; ids of two namespaces may be equal."""
    distinct = sorted(set(ids))
    shared = max((_shared(a, b) for a, b in pairwise(distinct)), default=0)
    return {one: one[: max(_SHORTEST_ID, shared + 1)].rstrip("-") for one in distinct}


def _shared(a: str, b: str) -> int:
    return next(
        (place for place, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), min(len(a), len(b))
    )
