"""`threadline fsck`: whether everything in a store can be read."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from .opening import Modules, import_modules, open_store
from .output import AsJson, Url, clean, counted, print_facts, print_json, print_line, progress_bar

__all__ = ["fsck"]


def fsck(
    url: Url,
    threads: Annotated[
        list[str] | None, typer.Argument(metavar="THREAD", help="Only these threads.", show_default=False)
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Set damaged checkpoints aside, so that their threads can be used.")
    ] = False,
    modules: Modules = None,
    as_json: AsJson = False,
) -> None:
    """Read and verify everything in a store.

    The exit status is 1 when something is damaged. Nothing is changed without --quarantine, and writers may go
    on meanwhile.
    """
    import_modules(modules)
    # With the application's classes at hand, they are rebuilt.
    with (
        open_store(url, read_only=not quarantine, structural=not modules) as store,
        progress_bar("checking") as progress,
    ):
        saver: Any = store.saver
        report = saver.fsck(threads or None, progress)
        aside = saver.quarantine(report.damaged) if quarantine and report.damaged else 0
    if as_json:
        print_json({"ok": report.ok, **dataclasses.asdict(report), "quarantined": aside})
    else:
        for line in str(report).splitlines():
            print_line((clean(line), ""), is_cut=False)
        if report.unknown_types:
            print_line(("--import MODULE imports their modules first, and lets them try", ""), is_cut=False)
        if quarantine:
            print_facts([("quarantined", counted(aside, "checkpoint"))])
    if not report.ok:
        raise typer.Exit(1)
