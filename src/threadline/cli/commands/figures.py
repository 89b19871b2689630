"""`threadline stats`: a store in figures, and where its bytes are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import typer

from ...core.history.state import Totals
from ...core.stats import Stats
from ...core.usage import Share
from ...errors import InvalidRequest
from ..open import open_store
from ..output import AsJson, Url, counted, moment_of, paged, print_facts, print_json, print_rows, readable_bytes

__all__ = ["stats"]

_COUNTED = {"thread": "checkpoint", "channel": "value", "type": "item"}


def stats(
    url: Url,
    by: Annotated[
        str | None, typer.Option("--by", metavar="WHAT", help="Where the bytes are: thread, channel, type or task.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="With --by: only what is younger, such as 7d.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="With --by: only such threads.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show what a store holds, and what sharing saves."""
    if by not in (None, "task", *_COUNTED):
        raise InvalidRequest(f"--by is thread, channel, type or task, not {by!r}")
    if by is None and (since is not None or prefix):
        raise InvalidRequest("--since and --prefix go with --by thread, channel, type or task")
    young = moment_of(since, "--since")
    with open_store(url, read_only=True) as store:
        if by == "task":
            return _print_totals(store.saver.writes_by_task(prefix=prefix, since=young), as_json)
        if by is not None:
            return _print_shares(by, store.saver.bytes_by(by, prefix=prefix, since=young), as_json)
        figures = store.saver.stats()
    if as_json:
        print_json({**dataclasses.asdict(figures), "bytes_saved": figures.bytes_saved})
    else:
        print_facts(_facts(figures))
    return None


def _print_shares(by: str, shares: Sequence[Share], as_json: bool) -> None:
    if as_json:
        return print_json([dataclasses.asdict(one) for one in shares])
    total = sum(one.stored_bytes for one in shares) or 1
    rows = [
        [
            readable_bytes(one.stored_bytes),
            f"{100 * one.stored_bytes / total:.0f}%",
            counted(one.count, _COUNTED[by] if not one.name.startswith("(") else "row"),
            one.name,
        ]
        for one in shares
    ]
    if rows:
        with paged():
            print_rows(rows, ["", "dim", "dim", "bold"], numbers=[0, 1, 2])
    return None


def _print_totals(totals: Totals, as_json: bool) -> None:
    if as_json:
        return print_json(dataclasses.asdict(totals))
    rows = [
        [one.task, counted(one.tasks, "task"), counted(one.writes, "write"), readable_bytes(one.stored_bytes)]
        for one in totals.by_task
    ]
    if rows:
        print_rows(rows, ["bold"], numbers=[1, 2, 3])
        print()
    written = readable_bytes(totals.write_bytes)
    print_facts([("writes", written), ("checkpoints", readable_bytes(totals.checkpoint_bytes))])
    return None


def _facts(figures: Stats) -> list[tuple[str, str]]:
    busiest = [f"{thread_id} ({counted(count, 'checkpoint')})" for thread_id, count in figures.busiest_threads]
    return [
        ("threads", f"{figures.threads:,}"),
        ("checkpoints", f"{figures.checkpoints:,}, {sum(figures.checkpoints_per_hour):,} of the last 24 hours"),
        ("pending writes", f"{figures.writes:,}"),
        ("chunks", f"{figures.chunks:,}"),
        ("on disk", _size(figures.bytes_on_disk)),
        ("in use", _size(figures.bytes_stored)),
        ("free", _size(figures.bytes_free)),
        ("without sharing", _size(figures.bytes_without_sharing)),
        ("mean checkpoint", readable_bytes(figures.mean_checkpoint_bytes)),
        *_trash_facts(figures),
        *zip(["busiest threads", *[""] * len(busiest)], busiest, strict=False),
    ]


def _trash_facts(figures: Stats) -> list[tuple[str, str]]:
    if not figures.trash_checkpoints and not figures.trash_entries:
        return []
    held = f"{counted(figures.trash_entries, 'deletion')}, {counted(figures.trash_checkpoints, 'checkpoint')}"
    return [("in the trash", f"{held}, {readable_bytes(figures.trash_bytes)}")]


def _size(count: int) -> str:
    return f"{count:,} ({readable_bytes(count)})"
