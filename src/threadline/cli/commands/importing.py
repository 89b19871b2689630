"""`threadline import`: a file of threads, or what LangGraph's own saver and store hold, brought into a store."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from ... import transfer as importing
from ...backends.memory.archive import files_of
from ...backends.objects.archive import verify_file
from ...connect import parse_url
from ...core.integrity.report import told_unknown
from ...errors import InvalidRequest, NotFound
from ...packs.archive import ARCHIVE_MAGIC
from ...transfer import Counts, ImportReport
from ..open import Modules, given_keys, import_modules, open_store
from ..output import AsJson, complain, one_line, print_facts, print_json, progress_bar, readable_bytes, without_password
from .archives import is_remote_file, local_file
from .copying import Merge, Plain, ToCold, ToKeyFile, open_target, stoppable, tell, until_of

__all__ = ["import_archive", "import_threads", "is_archive"]

_MOST_PROBLEMS = 20
_SQLITE_MAGIC = b"SQLite format 3\0"
_GONE_ON = "their thread has gone on in the store"


def import_threads(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file of export or backup; or LangGraph's database: sqlite:///old.db or postgresql://user@host/database.",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TARGET", help="The store to fill; LangGraph's own database unless given."),
    ] = None,
    merge: Merge = False,
    to_key_file: ToKeyFile = None,
    to_cold: ToCold = None,
    plain: Plain = False,
    modules: Modules = None,
    as_json: AsJson = False,
) -> None:
    """Bring a file, or what LangGraph's saver holds, into a store.

    A file is one of export or backup. Its threads, or those of LangGraph, are copied with their whole history.

    LangGraph's databases are those of its savers and stores for SQLite and PostgreSQL; their tables are only read.
    Everything is read back and compared. Run it again to continue after a stop, or to add what is new.
    """
    if is_archive(source):
        if to is None:
            raise InvalidRequest("--to names the store to fill from a file, such as sqlite:///agents.db")
        import_archive(source, to, to_key_file=to_key_file, to_cold=to_cold, plain=plain, merge=merge, as_json=as_json)
        return
    _require_source(source)
    import_modules(modules)
    report = _imported(source, to)
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


def _imported(source: str, to: str | None) -> ImportReport:
    """Bring what LangGraph's saver and store hold into a store."""
    # The store would say that LangGraph's threads are not imported, and how large some are.
    log = logging.getLogger("threadline")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with progress_bar("importing") as progress:
            ring = given_keys()
            options: dict[str, Any] = {} if ring is None else {"encryption": ring}
            return importing.import_threads(source, to, progress=progress, **options)
    except KeyboardInterrupt:
        complain("stopped; run the same command again to continue")
        raise typer.Exit(130) from None
    finally:
        log.setLevel(level)


def _require_source(source: str) -> None:
    """A path that is no archive must be that of a database."""
    parse_url(source)  # a connection string is refused without being shown
    if "://" in source:
        return
    try:
        with open(source, "rb") as file:
            beginning = file.read(len(_SQLITE_MAGIC))
    except FileNotFoundError:
        raise NotFound(f"{source}: no such file") from None
    except OSError:
        return  # the database says what is wrong
    if beginning != _SQLITE_MAGIC:
        raise InvalidRequest(f"{source} is no export of Threadline, and no database")


def is_archive(source: str) -> bool:
    """Whether a name is that of a file of export or backup."""
    if source.startswith("archive://") or is_remote_file(source):
        return True
    try:
        with open(source, "rb") as file:
            return file.read(6) == ARCHIVE_MAGIC[:6]
    except OSError:
        return False


def import_archive(
    file: str,
    to: str,
    *,
    until: str | None = None,
    to_key_file: str | None = None,
    to_cold: str | None = None,
    plain: bool = False,
    merge: bool = False,
    as_json: bool = False,
) -> None:
    """Bring a file of threads into a store, after all of the file was checked."""
    moment = until_of(until)
    with local_file(file) as path, open_store(f"archive:///{path}", read_only=True) as store:
        for one in files_of(Path(path)):
            verify_file(one)
        with (
            open_target(to, to_key_file, store, plain=plain, cold=to_cold) as target,
            progress_bar("importing") as progress,
        ):
            report = stoppable(lambda: store.saver.copy_to(target, until=moment, merge=merge, progress=progress))
    tell(report, [("from", file), ("to", without_password(to))], as_json)


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
