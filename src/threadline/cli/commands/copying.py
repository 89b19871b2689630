"""`threadline copy`: threads of one store, brought into another."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ...codec import KeyRing
from ...connect import make_engine, make_tools, parse_url
from ...core import moments
from ...core.context import Context
from ...core.lifecycle import living
from ...core.moving.report import CopyReport, Moved
from ...core.retention.policy import seconds_of
from ...core.store_records import KEYS, read_record
from ...errors import InvalidRequest, NotFound, Unavailable
from ...saver import Saver
from ...show.figures import pairs_of
from ..open import Store, given_keys, keys_from, keys_known, open_store
from ..output import (
    AsJson,
    complain,
    moment_of,
    one_line,
    print_facts,
    print_json,
    progress_bar,
    readable_bytes,
    without_password,
)

__all__ = [
    "Filters",
    "Merge",
    "Plain",
    "Prefix",
    "Since",
    "ToCold",
    "ToKeyFile",
    "Until",
    "chosen",
    "copy",
    "facts_of",
    "open_target",
    "stoppable",
    "tell",
    "until_of",
]

_MOST_PROBLEMS = 20
# `active` of a thread is written once a minute, and clocks differ: what was active shortly before is looked at again.
_OVERLAP_SECONDS = 180.0
_TO_KEYS = "THREADLINE_TO_KEYS"
_TO_COLD = "THREADLINE_TO_COLD"

Threads = Annotated[
    list[str] | None, typer.Option("--thread", metavar="THREAD", help="Only this thread; may be given again.")
]
Prefix = Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Threads whose ids begin so.")]
Filters = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="KEY=VALUE", help="Threads whose metadata say so; may be given again."),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Threads active since: a span such as 7d, or a time.")
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="No checkpoint after this one: an id, a span or a time."),
]
Merge = Annotated[
    bool, typer.Option("--merge", help="A thread that the target has already comes beside it, under a new id.")
]
ToKeyFile = Annotated[
    str | None,
    typer.Option("--to-key-file", metavar="FILE", help="Keys of the target, where it is or shall be encrypted."),
]
ToCold = Annotated[
    str | None,
    typer.Option("--to-cold", metavar="URL", help="The cold tier of the target, where it has one."),
]
Plain = Annotated[bool, typer.Option("--plain", help="Let what was encrypted be stored in plain.")]


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store to copy, such as sqlite:///agents.db.")],
    to: Annotated[str, typer.Option("--to", metavar="TO", help="The store to fill; it is made where there is none.")],
    threads: Threads = None,
    prefix: Prefix = "",
    filters: Filters = None,
    since: Since = None,
    until: Until = None,
    merge: Merge = False,
    no_items: Annotated[bool, typer.Option("--no-items", help="Leave the items of a Store behind.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on copying what is new until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option("--every", metavar="SPAN", help="With --follow: how often.")] = "2s",
    to_key_file: ToKeyFile = None,
    to_cold: ToCold = None,
    plain: Plain = False,
    as_json: AsJson = False,
) -> None:
    """Copy threads from one store to another.

    Ids, times, tags, pins, branches, pending writes and interrupts stay. What the target has is skipped: run it again
    to go on after a stop, or to add what is new. Everything written is read back and compared.
    """
    choice = {**chosen(threads, prefix, filters, since, until), "merge": merge, "records": not no_items}
    pause = seconds_of(every, "--every") or 0.0
    _refuse_itself(source, to)
    with open_store(source, read_only=True) as store:
        for thread_id in threads or ():
            store.saver.run(living, thread_id)  # before a target is made for nothing
        with open_target(to, to_key_file, store, plain=plain, cold=to_cold) as target:
            begun = time.time()
            with progress_bar("copying") as progress:
                report = stoppable(lambda: store.saver.copy_to(target, progress=progress, **choice))
            if follow:
                report = _followed(store.saver, target, choice, pause, begun)
    tell(report, [("from", without_password(source)), ("to", without_password(to))], as_json)


def chosen(
    threads: list[str] | None, prefix: str, filters: list[str] | None, since: str | None, until: str | None
) -> dict[str, Any]:
    """The options that choose threads, as a saver takes them."""
    return {
        "threads": threads or None,
        "prefix": prefix,
        "filter": pairs_of(filters or [], "--filter"),
        "since": moment_of(since, "--since"),
        "until": until_of(until),
    }


def until_of(text: str | None) -> Any:
    """A checkpoint's id, or a time, that was typed."""
    until_id, until_time = moments.until_of(text, "--until")
    return until_time if until_id is None else until_id


@contextmanager
def open_target(
    url: str, key_file: str | None, source: Store, *, plain: bool, cold: str | None = None
) -> Iterator[Saver]:
    """A store to be filled, made where there is none; encrypted with its own keys, or those that are given for it.

    What was encrypted becomes plain only with `plain`. Nothing is made, no file and no table, where that is refused.
    """
    ring = _target_keys(key_file)
    stored = _stored_keys(url)
    if ring is None and stored is not None:
        ring = given_keys()
        if ring is None:
            raise InvalidRequest(f"the target is encrypted: name its keys by --to-key-file or {_TO_KEYS}")
    if ring is not None and stored is not None:
        keys_known(stored, ring, f"by --to-key-file or {_TO_KEYS}")
    if ring is None and source.tools.envelope.ring is not None and not plain:
        raise InvalidRequest(
            "the source is encrypted and the target is not: give the target keys by --to-key-file, or say --plain"
        )
    engine = make_engine(url, cold=cold or os.environ.get(_TO_COLD) or None)
    try:
        yield Saver(engine, make_tools(engine, encryption=ring)).open()
    finally:
        engine.close()


def _stored_keys(url: str) -> bytes | None:
    """The record of a target's keys, by a look that makes nothing; None where it has none, or is no store yet."""
    kind, path = parse_url(url)
    if kind == "archive":
        raise InvalidRequest("an archive is made by `threadline export` or `backup`, and not filled afterwards")
    if kind == "sqlite" and not path.startswith("file:") and path != ":memory:" and not os.path.exists(path):
        return None
    engine = make_engine(url, read_only=True)
    try:
        if engine.is_in_memory:
            raise InvalidRequest("a store in memory ends with its process: copy into a file or a server")
        with suppress(InvalidRequest):  # no tables yet; anything else is told by the engine that is to fill it
            return engine.run(lambda backend: read_record(backend, KEYS))
        return None
    finally:
        engine.close()


def _refuse_itself(source: str, target: str) -> None:
    (kind, place), (other_kind, other) = parse_url(source), parse_url(target)
    if kind == other_kind == "sqlite":
        place, other = os.path.realpath(place), os.path.realpath(other)
    if (kind, place) == (other_kind, other):
        raise InvalidRequest("a store cannot be copied onto itself: `threadline fork --to` copies a thread within one")


def _target_keys(key_file: str | None) -> KeyRing | None:
    """The keys that are given for a target; None where none are."""
    if key_file is not None:
        return keys_from(key_file)
    text = os.environ.get(_TO_KEYS)
    return KeyRing.from_text(text, _TO_KEYS) if text else None


def tell(report: CopyReport, places: list[tuple[str, str]], as_json: bool) -> None:
    """Print what a copy did; ends with status 1 where something was left out."""
    if as_json:
        print_json({**asdict(report), "is_complete": report.is_complete})
    else:
        print_facts([*places, *facts_of(report)])
    for problem in report.problems[:_MOST_PROBLEMS]:
        complain(one_line(Exception(problem)))
    if len(report.problems) > _MOST_PROBLEMS:
        complain(f"and {len(report.problems) - _MOST_PROBLEMS} more like these; --json lists them all")
    if not report.is_complete:
        raise typer.Exit(1)


def facts_of(report: CopyReport) -> list[tuple[str, str]]:
    """A report for people."""
    facts = [
        ("threads", f"{report.threads:,}"),
        ("checkpoints", _told(report.checkpoints)),
        ("pending writes", _told(report.writes)),
        ("chunks", f"{report.chunks:,} ({readable_bytes(report.chunk_bytes)})"),
    ]
    if report.items.total:
        facts.append(("item records", _told(report.items)))
    facts += [("renamed", f"{old} is {new}") for old, new in report.renamed.items()]
    copied = report.checkpoints.copied + report.checkpoints.renewed
    facts.append(("verified", f"{copied:,} checkpoints and all their chunks read back, the same as sent"))
    return facts


def _told(moved: Moved) -> str:
    parts = [f"{moved.copied:,} copied", f"{moved.present:,} there already"]
    if moved.renewed:
        parts.append(f"{moved.renewed:,} renewed, newer in the source")
    if moved.kept:
        parts.append(f"{moved.kept:,} left alone, newer in the target")
    return f"{moved.total:,} ({', '.join(parts)})"


def stoppable(work: Callable[[], CopyReport]) -> CopyReport:
    """The report of a copy that Ctrl-C may end."""
    try:
        return work()
    except KeyboardInterrupt:
        complain("stopped; run the same command again to continue")
        raise typer.Exit(130) from None


def _followed(source: Saver, target: Saver, choice: dict[str, Any], pause: float, begun: float) -> CopyReport:
    """Copy what is new since the pass before, until Ctrl-C or SIGTERM; then look at everything once more."""
    complain("following: stop the writers, then press Ctrl-C for the last pass")
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a supervisor ends it
    try:
        while True:
            time.sleep(pause)
            since, now = max(begun - _OVERLAP_SECONDS, choice["since"] or 0.0), time.time()
            try:
                source.copy_to(target, **{**_still_there(source, choice), "since": since, "records": False})
                begun = now
            except (Unavailable, NotFound) as trouble:
                # A server that is restarted comes back, and of threads that were named one may be deleted at this very
                # moment; the next pass looks at what this one did not.
                complain(f"{one_line(trouble)}; following goes on")
    except KeyboardInterrupt:
        complain("the last pass: what is put from now on is not copied")
    finally:
        signal.signal(signal.SIGTERM, former)
    return stoppable(lambda: source.copy_to(target, **_still_there(source, choice)))


def _still_there(source: Saver, choice: dict[str, Any]) -> dict[str, Any]:
    """A choice without the threads that were named and have been deleted since."""
    if choice["threads"] is None:
        return choice
    named = {thread_id: source.run(_is_there, thread_id) for thread_id in choice["threads"]}
    return {**choice, "threads": [thread_id for thread_id, is_there in named.items() if is_there]}


async def _is_there(store: Context, thread_id: str) -> bool:
    thread = await store.thread(thread_id)
    return thread is not None and thread.status != "deleted"
