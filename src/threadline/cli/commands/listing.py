"""`threadline threads`: which threads there are, how large, and which of them wait."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import typer

from ...core.stats import ThreadWeight
from ...core.threads import ThreadInfo
from ...errors import Corrupt, InvalidRequest, NotAllowed, NotFound
from ...saver import Saver
from ...show.figures import pairs_of
from ...show.forms import thread_json
from ...show.values import one_line_of
from ..open import open_store
from ..output import (
    AsJson,
    Url,
    counted,
    hint_filter,
    moment_of,
    paged,
    print_json,
    print_none,
    print_rows,
    readable_bytes,
    readable_time,
    remark,
    screen_width,
)

__all__ = ["threads"]

# As many as are read in one go; whoever wants more says so.
_USUAL_LIMIT = 100
_WEIGHED_AT_ONCE = 1000
_ORDERS = ("recent", "size", "checkpoints")
_STATUSES = ("active", "suspended", "archived")
_NOTHING = ThreadWeight()


def threads(
    url: Url,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="How their ids begin.")] = "",
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="active, suspended (waits) or archived.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="Those that have this tag.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Active since: a span such as 7d, or a time.")
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="What their metadata says; may be given again."),
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="ORDER", help="recent, size or checkpoints; by id unless given.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="At most so many; 0 lists all.")
    ] = _USUAL_LIMIT,
    as_json: AsJson = False,
) -> None:
    """List the threads of a store, with their size and what waits."""
    if sort not in (None, *_ORDERS):
        raise InvalidRequest(f"--sort is {', '.join(_ORDERS)}, not {sort!r}")
    if status not in (None, *_STATUSES):
        raise InvalidRequest(f"--status is 'active', 'suspended' or 'archived', not {status!r}")
    choice: dict[str, Any] = {
        "prefix": prefix,
        "status": status,
        "tag": tag,
        "active_since": moment_of(since, "--since"),
    }
    with open_store(url, read_only=True) as store:
        found = store.saver.threads(**choice, filter=pairs_of(filters or [], "--filter"))
        listed, weights, left = _chosen(store.saver, found, sort, limit)
        if status is None:
            listed = [_as_it_stands(store.saver, one) for one in listed]
    if as_json:
        print_json([thread_json(one, weights.get(one.thread_id, _NOTHING)) for one in listed])
    elif listed:
        with paged():
            rows = [_thread_row(one, weights.get(one.thread_id, _NOTHING)) for one in listed]
            heading = [["thread", "status", "size", "count", "active", ""]] if screen_width() is not None else []
            print_rows([*heading, *rows], ["bold", "yellow", "", "", "dim"], numbers=[2, 3])
    else:
        print_none("no threads")
    hint_filter(filters, listed)
    if left:
        remark(f"{counted(left, 'thread')} more: --limit 0 lists all, --sort and --since say which come first")


def _chosen(
    saver: Saver, found: Any, sort: str | None, limit: int
) -> tuple[list[ThreadInfo], dict[str, ThreadWeight], int]:
    """The threads to show, what they take, and how many are not shown."""
    if sort is None:
        listed = list(islice(found, limit or None))
        left = sum(1 for _ in found) if limit else 0
        return listed, _weighed(saver, listed), left
    everyone = list(found)
    weights: dict[str, ThreadWeight] = {} if sort == "recent" else _weighed(saver, everyone)

    def rank(info: ThreadInfo) -> tuple[float, float]:
        weight = weights.get(info.thread_id, _NOTHING)
        first = {"recent": info.last_active, "size": weight.stored_bytes, "checkpoints": weight.checkpoints}[sort]
        return first, info.last_active

    listed = heapq.nlargest(limit or len(everyone), everyone, key=rank)
    return listed, weights or _weighed(saver, listed), len(everyone) - len(listed)


def _weighed(saver: Saver, infos: Sequence[ThreadInfo]) -> dict[str, ThreadWeight]:
    names = [info.thread_id for info in infos]
    weights: dict[str, ThreadWeight] = {}
    for start in range(0, len(names), _WEIGHED_AT_ONCE):
        weights.update(saver.weigh(names[start : start + _WEIGHED_AT_ONCE]))
    return weights


def _as_it_stands(saver: Saver, info: ThreadInfo) -> ThreadInfo:
    """The thread with its status as it is now; what is damaged or gone meanwhile is listed as it was found."""
    try:
        return saver.thread(info.thread_id).info()
    except (Corrupt, NotAllowed, NotFound):
        return info


def _thread_row(info: ThreadInfo, weight: ThreadWeight) -> list[str]:
    notes = [f"tag {name}" for name in info.tags]
    if info.forked_from:
        notes.append(f"from {info.forked_from}")
    if info.expires is not None:
        notes.append(f"expires {readable_time(info.expires)}")
    notes += [f"{key}={one_line_of(value)}" for key, value in info.metadata.items()]
    status = "waits" if info.status == "suspended" else info.status
    size = readable_bytes(weight.stored_bytes).replace("bytes", "B").replace("byte", "B")
    active = readable_time(info.last_active)
    if screen_width() is not None:
        active = active[:-4] + "Z"  # to the minute: with an id of 36 characters a line fits 80 columns
    return [info.thread_id, status, size, f"{weight.checkpoints:,}", active, ", ".join(notes)]
