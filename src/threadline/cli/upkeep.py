"""`threadline stats`, `health` and `setup`: a store as a whole."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated

import typer

from .. import connect
from ..connecting import make_engine
from ..core.audit import Totals
from ..core.health import Stats
from ..core.policy import seconds_of
from ..errors import InvalidRequest
from .opening import open_store, require_file
from .output import (
    AsJson,
    Url,
    complain,
    counted,
    one_line,
    print_facts,
    print_json,
    print_rows,
    readable_bytes,
    without_password,
)

__all__ = ["health", "setup", "stats"]


def stats(
    url: Url,
    by: Annotated[str | None, typer.Option("--by", metavar="task", help="What the tasks of each name wrote.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="SPAN", help="With --by: only what is younger, such as 7d.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="With --by: only such threads.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show what a store holds, and what sharing saves."""
    if by not in (None, "task"):
        raise InvalidRequest(f"--by is task, not {by!r}")
    if by is None and (since is not None or prefix):
        raise InvalidRequest("--since and --prefix go with --by task")
    seconds = seconds_of(since, "--since")
    with open_store(url, read_only=True) as store:
        if by == "task":
            young = None if seconds is None else time.time() - seconds
            return _print_totals(store.saver.writes_by_task(prefix=prefix, since=young), as_json)
        figures = store.saver.stats()
    if as_json:
        print_json({**dataclasses.asdict(figures), "bytes_saved": figures.bytes_saved})
    else:
        print_facts(_facts(figures))
    return None


def health(url: Url, as_json: AsJson = False) -> None:
    """Check that a store takes, returns and removes a record.

    The exit status is 1 when it does not.
    """
    require_file(url)
    saver = connect(url, setup=False)
    try:
        found = saver.health()
    finally:
        saver.close()
    if as_json:
        print_json(dataclasses.asdict(found))
    elif found.ok:
        print_facts([("ok", f"{without_password(url)} answered in {found.latency_seconds * 1000:.1f} ms")])
    else:
        complain(one_line(Exception(found.error)))
    if not found.ok:
        raise typer.Exit(1)


def setup(
    url: Url,
    printed: Annotated[
        bool, typer.Option("--print", help="Print the statements for an empty database; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create the tables of a store, or bring them up to date."""
    if printed:
        return _print_statements(url, as_json)
    saver = connect(url, setup="migrate")
    try:
        saver.setup()
    finally:
        saver.close()
    if as_json:
        print_json({"url": without_password(url), "ready": True})
    else:
        print_facts([("ready", without_password(url))])
    return None


def _print_statements(url: str, as_json: bool) -> None:
    engine = make_engine(url)
    ddl = getattr(engine, "ddl", None)
    engine.close()
    if ddl is None:
        raise InvalidRequest(f"{without_password(url)} has no tables: there is nothing to print")
    if as_json:
        print_json({"url": without_password(url), "statements": ddl()})
    else:
        print(ddl(), end="")


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


def _trash_facts(figures: Stats) -> list[tuple[str, str]]:
    if not figures.trash_checkpoints and not figures.trash_entries:
        return []
    held = f"{counted(figures.trash_entries, 'deletion')}, {counted(figures.trash_checkpoints, 'checkpoint')}"
    return [("in the trash", f"{held}, {readable_bytes(figures.trash_bytes)}")]


def _facts(figures: Stats) -> list[tuple[str, str]]:
    stored, whole = figures.bytes_stored, figures.bytes_without_sharing
    busiest = [f"{thread_id} ({counted(count, 'checkpoint')})" for thread_id, count in figures.busiest_threads]
    return [
        ("threads", f"{figures.threads:,}"),
        ("checkpoints", f"{figures.checkpoints:,}, {sum(figures.checkpoints_per_hour):,} of the last 24 hours"),
        ("pending writes", f"{figures.writes:,}"),
        ("chunks", f"{figures.chunks:,}"),
        ("bytes stored", f"{stored:,} ({readable_bytes(stored)})"),
        ("without sharing", f"{whole:,} ({readable_bytes(whole)})"),
        ("mean checkpoint", readable_bytes(figures.mean_checkpoint_bytes)),
        *_trash_facts(figures),
        *zip(["busiest threads", *[""] * len(busiest)], busiest, strict=False),
    ]
