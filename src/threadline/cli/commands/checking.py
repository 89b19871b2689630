"""`threadline fsck`: whether everything in a store can be read, and what to do where it cannot."""

from __future__ import annotations

import dataclasses
import os
import shlex
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from ...core.integrity.quarantine import Aside
from ...core.integrity.quarantine import quarantine as set_aside
from ...core.integrity.repair import rebuildable
from ...core.integrity.report import Damage, LostObject, Report
from ...errors import InvalidRequest
from ...ports.objects import GONE
from ..open import Modules, Store, import_modules, open_store
from ..output import (
    AsJson,
    Url,
    Yes,
    clean,
    counted,
    print_facts,
    print_json,
    print_line,
    progress_bar,
    without_password,
)
from .pruning import ending, some

__all__ = ["fsck", "spoken_command"]

# How a channel of this name is reduced in nearly every graph.
_USUAL = {"messages": "add_messages"}
# One object may well be lost; that all of several are is a wrong place.
_FEW_OBJECTS = 2


def fsck(
    url: Url,
    threads: Annotated[
        list[str] | None, typer.Argument(metavar="THREAD", help="Only these threads.", show_default=False)
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Set damaged checkpoints aside, so that their threads can be used.")
    ] = False,
    modules: Modules = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Read and verify everything in a store.

    The exit status is 1 when something is damaged. Nothing is changed without --quarantine and --yes, and writers
    may go on meanwhile.
    """
    import_modules(modules)
    aside: list[Aside] = []
    # With the application's classes at hand, they are rebuilt.
    opened = open_store(url, read_only=not (quarantine and yes), structural=not modules)
    with opened as store, progress_bar("checking") as progress:
        report = store.saver.fsck(threads or None, progress)
        elsewhere = _elsewhere(store, report) if not threads else None
        if quarantine and yes and elsewhere is not None:
            raise InvalidRequest(f"nothing was set aside: {elsewhere}")
        if quarantine and report.damaged:
            now = time.time()
            aside = store.saver.run(set_aside, report.damaged, now, dry_run=not yes)
        hopeful = _hopeful(store, report)
    done = quarantine and yes
    step = elsewhere or _next_step(report, hopeful, url, threads or [], quarantine, done)
    if as_json:
        print_json({**_report_json(report, aside, done), "next": step})
    else:
        _print_report(report)
        if quarantine:
            _print_aside(aside, done)
        if step is not None:
            print_facts([("next", step)])
    if not report.ok:
        raise typer.Exit(1)


def _elsewhere(store: Store, report: Report) -> str | None:
    """What to do where not one object of a cold tier is found: rather a wrong place than the end of all of them."""
    gone = {lost.name for lost in report.lost_objects if lost.fate == GONE}
    if len(gone) < _FEW_OBJECTS or len(gone) < store.saver.tier_status().objects:
        return None
    return (
        f"none of the {len(gone)} objects of the cold tier is at {report.lost_objects[0].where}; set THREADLINE_COLD "
        f"to where they are, or name the threads if they are lost"
    )


def spoken_command(url: str, *words: str) -> str:
    """A command line as somebody would type it to do the same here."""
    named = [] if os.environ.get("THREADLINE_URL") == url else ["--url", without_password(url)]
    return " ".join(map(shlex.quote, ["threadline", *words, *named]))


def _print_report(report: Report) -> None:
    """Figures, then damage: by the object or chunk at fault, then by thread; then what is no damage."""
    head, *lines = str(dataclasses.replace(report, damaged=(), missing=(), lost_objects=())).splitlines()
    # Without its damage it would say that all is well.
    _print(head.removesuffix("ok") + "damaged" if not report.ok and head.endswith("ok") else head)
    for lost in report.lost_objects:
        _print_lost(lost)
    in_objects = {chunk for lost in report.lost_objects for chunk in lost.chunks}
    by_chunk: dict[str, list[Damage]] = defaultdict(list)
    for damage in report.damaged:
        for chunk in set(damage.chunks) - in_objects:
            by_chunk[chunk].append(damage)
    missing = {chunk.digest for chunk in report.missing}
    for chunk, damages in sorted(by_chunk.items(), key=lambda pair: -len(pair[1])):
        _print(f"chunk {chunk} is {'missing' if chunk in missing else 'damaged'}; without it, these cannot be read:")
        for thread, named in _by_thread(damages).items():
            _print(f"  thread {thread!r}: {_summary(named)}")
    for thread, named in _by_thread(one for one in report.damaged if not one.chunks).items():
        _print(f"thread {thread!r}: {counted(len(_places(named)), 'checkpoint')} damaged")
        for damage in some(named):
            _print("  " + str(damage).partition(", ")[2])
    for line in lines:
        _print(line)
    if report.unknown_types:
        _print("--import MODULE imports their modules first, and lets them try")


def _print_lost(lost: LostObject) -> None:
    _print(
        f"{lost}, and with it {counted(len(lost.chunks), 'chunk')}: bring it back from a copy or an older version, "
        f"or set aside what needs it; without it, these cannot be read:"
    )
    for thread, named in _by_thread(lost.needed_by).items():
        _print(f"  thread {thread!r}: {_summary(named)}")


def _hopeful(store: Store, report: Report) -> list[Damage]:
    """What a repair may rebuild. Much that is in one object is lost at once, often with what it would be made from."""
    lost = {damage for one in report.lost_objects for damage in one.needed_by}
    hopeful = [damage for damage in report.damaged if damage not in lost]
    if lost:
        sound = set(store.saver.run(rebuildable, report.damaged))
        hopeful += [damage for damage in report.damaged if damage in lost and damage in sound]
    return [damage for damage in hopeful if damage.channel is not None and "pending write" not in damage.what]


def _report_json(report: Report, aside: list[Aside], is_done: bool) -> dict[str, Any]:
    told = [{"thread_id": one.thread_id, **one.key._asdict(), "why": one.why} for one in aside]
    acted = {"quarantined": len(aside) if is_done else 0, "would_quarantine": [] if is_done else told}
    return {"ok": report.ok, **dataclasses.asdict(report), **acted}


def _print(line: str) -> None:
    print_line((clean(line), ""), is_cut=False)


def _by_thread(damages: Iterable[Damage]) -> dict[str, list[Damage]]:
    found: dict[str, list[Damage]] = defaultdict(list)
    for damage in damages:
        found[damage.thread_id].append(damage)
    return found


def _places(damages: Iterable[Damage]) -> list[tuple[str, str]]:
    return sorted({(damage.checkpoint_id, damage.namespace) for damage in damages})


def _summary(damages: list[Damage]) -> str:
    """Some damages of one thread: how many checkpoints, from which to which, in which channels."""
    places = _places(damages)
    reach = places[0][0] if len(places) == 1 else f"{places[0][0]} to {places[-1][0]}"
    channels = sorted({damage.channel for damage in damages if damage.channel is not None})
    named = f", channel{'s' if len(channels) > 1 else ''} {', '.join(channels)}" if channels else ""
    return f"{counted(len(places), 'checkpoint')}, {reach}{named}"


def _print_aside(aside: list[Aside], is_done: bool) -> None:
    for one in some(aside):
        where = f" in {one.key.namespace!r}" if one.key.namespace else ""
        _print(f"set aside: thread {one.thread_id!r}, checkpoint {one.key.id}{where}: {'; '.join(one.why)}")
    if is_done:
        print_facts([("quarantined", counted(len(aside), "checkpoint"))])
    elif aside:
        print_facts([ending(False, "", f"{counted(len(aside), 'checkpoint')} would be set aside")])


def _next_step(
    report: Report, hopeful: list[Damage], url: str, threads: list[str], quarantine: bool, is_done: bool
) -> str | None:
    """The command to run next; None when all is well."""
    if report.damaged and is_done:
        return spoken_command(url, "fsck", *threads)
    if report.damaged and quarantine:
        return spoken_command(url, "fsck", *threads, "--quarantine", "--yes")
    channels_of: dict[str, dict[str, None]] = {}
    for damage in hopeful:
        channels_of.setdefault(damage.thread_id, {})[str(damage.channel)] = None
    if channels_of:
        thread, channels = next(iter(channels_of.items()))
        reducers = [part for name in channels for part in ("--reducer", f"{name}={_USUAL.get(name, 'append')}")]
        return spoken_command(url, "repair", thread, *reducers)
    if report.damaged:
        return spoken_command(url, "fsck", *threads, "--quarantine")
    if report.damaged_trash:
        return spoken_command(url, "trash", "empty", *report.damaged_trash)
    if report.spoiled_chunks or report.leaked_pools:
        return spoken_command(url, "gc", "--yes")
    return None
