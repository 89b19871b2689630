"""`threadline import`: threads of LangGraph's own saver and items of its store, brought into a store."""

from __future__ import annotations

import dataclasses
import logging
from typing import Annotated, Any

import typer

from ... import transfer as importing
from ...core.integrity.report import told_unknown
from ...transfer import Counts, ImportReport
from ..open import Modules, given_keys, import_modules
from ..output import AsJson, complain, one_line, print_facts, print_json, progress_bar, readable_bytes, without_password

__all__ = ["import_threads"]

_MOST_PROBLEMS = 20
_GONE_ON = "their thread has gone on in the store"


def import_threads(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The database of LangGraph's saver or store: sqlite:///old.db or postgresql://user@host/database.",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TARGET", help="The store to fill; the same database unless given."),
    ] = None,
    modules: Modules = None,
    as_json: AsJson = False,
) -> None:
    """Copy what LangGraph's own saver and store hold into a store.

    Sources are the databases of its savers and stores for SQLite and PostgreSQL; their tables are only read.
    Everything is read back and compared. Run it again to continue after a stop, or to add what is new.
    """
    import_modules(modules)
    # The store would say that LangGraph's threads are not imported, and how large some are.
    log = logging.getLogger("threadline")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with progress_bar("importing") as progress:
            ring = given_keys()
            options: dict[str, Any] = {} if ring is None else {"encryption": ring}
            report = importing.import_threads(source, to, progress=progress, **options)
    except KeyboardInterrupt:
        complain("stopped; run the same command again to continue")
        raise typer.Exit(130) from None
    finally:
        log.setLevel(level)
    if as_json:
        print_json({**dataclasses.asdict(report), "is_complete": report.is_complete})
    else:
        print_facts(_facts(source, to, report))
    for problem in report.problems[:_MOST_PROBLEMS]:
        complain(one_line(Exception(problem)))
    if len(report.problems) > _MOST_PROBLEMS:
        complain(f"and {len(report.problems) - _MOST_PROBLEMS} more like these; --json lists them all")
    if not report.is_complete:
        raise typer.Exit(1)


def _facts(source: str, to: str | None, report: ImportReport) -> list[tuple[str, str]]:
    before, after = report.bytes_before, report.bytes_after
    facts = [
        ("from", without_password(source)),
        ("to", without_password(to or source)),
        ("threads", f"{report.threads:,}"),
        ("checkpoints", _told(report.checkpoints, _GONE_ON)),
        ("pending writes", _told(report.writes, _GONE_ON)),
    ]
    if report.orphan_writes:
        facts.append(("", f"{report.orphan_writes:,} of checkpoints that were never stored: left out"))
    if report.items.total or report.expired_items:
        facts.append(("items", _told(report.items, "they are newer in the store")))
    if report.expired_items:
        facts.append(("", f"{report.expired_items:,} whose time to live was over: left out"))
    if report.embeddings:
        facts.append(("embeddings", f"{report.embeddings:,} not copied: an item is embedded when it is put again"))
    verified = sum([each.total - each.kept for each in (report.checkpoints, report.writes, report.items)])
    facts.append(("verified", f"{verified:,} read back and the same as in the source"))
    if report.unknown_types:
        facts.append(("not rebuilt", f"{told_unknown(report.unknown_types)}; --import MODULE lets them try"))
    ratio = f", {before / after:,.1f} times less" if 0 < after < before else ""
    facts.append(("bytes before", f"{before:,} ({readable_bytes(before)}) in LangGraph's tables"))
    facts.append(("bytes after", f"{after:,} ({readable_bytes(after)}) in Threadline's{ratio}"))
    return facts


def _told(counts: Counts, why_kept: str) -> str:
    parts = [f"{counts.copied:,} copied", f"{counts.present:,} there already"]
    if counts.renewed:
        parts.append(f"{counts.renewed:,} renewed, newer in the source")
    if counts.kept:
        parts.append(f"{counts.kept:,} left alone, because {why_kept}")
    return f"{counts.total:,} ({', '.join(parts)})"
