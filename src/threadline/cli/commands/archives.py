"""`threadline export`, `backup` and `open`: threads in files, and what such a file shows."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TextIO

import typer

from ...base.drive import run_now
from ...core.moving.copy import threads_chosen
from ...core.moving.report import Archived
from ...core.paging import thread_rows
from ...errors import Conflict, InvalidRequest, NotFound, StorageFull, ThreadlineError, Unavailable
from ...moving import choice_of
from ...show.checkpoint import checkpoint_json
from ..open import Modules, Store, import_modules, open_store
from ..output import (
    AsJson,
    Url,
    complain,
    one_line,
    print_facts,
    print_json,
    progress_bar,
    readable_bytes,
    readable_time,
    without_password,
)
from .copying import Filters, Plain, Prefix, Since, Until, chosen, facts_of

__all__ = ["archive_url", "backup", "export", "is_remote_file", "local_file", "open_file"]

_SUFFIX = ".tla"
_REMOTE = ("s3", "gs", "az", "abfs", "abfss")


def archive_url(path: str) -> str:
    """The URL of an archive file."""
    return path if path.startswith("archive://") else f"archive:///{path}"


def export(
    url: Url,
    threads: Annotated[
        list[str] | None,
        typer.Argument(metavar="THREAD…", help="The threads; all that the options choose unless given."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The file to make; with --json - is here.")
    ] = None,
    prefix: Prefix = "",
    filters: Filters = None,
    since: Since = None,
    until: Until = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For people: a line of JSON for each checkpoint, values by structure.")
    ] = False,
    plain: Plain = False,
    to_langgraph: Annotated[
        str | None,
        typer.Option("--to-langgraph", metavar="URL", help="Write LangGraph's own tables, at sqlite:/// or postgres."),
    ] = None,
    modules: Modules = None,
) -> None:
    """Write threads to a file, or to LangGraph's own tables.

    The file is opened by `threadline open`, by --url archive:///FILE, and brought into a store by `threadline import`.
    """
    choice = chosen(threads, prefix, filters, since, until)
    if to_langgraph is not None:
        _refuse_together("--to-langgraph", output=output, json=as_json, filter=filters, since=since, until=until)
        return _to_langgraph(url, to_langgraph, threads, prefix, modules)
    if as_json:
        return _json_lines(url, output, choice)
    if output is None:
        raise InvalidRequest("--output names the file to make, such as threads.tla")
    _refuse_what_is_there(output)
    with open_store(url, read_only=True) as store, progress_bar("exporting") as progress:
        done = _stopped(lambda: store.saver.export(output, plain=plain, progress=progress, **choice))
    _tell(done, url, as_json=False)
    return None


def backup(
    url: Url,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to make, or s3://…; in a folder, one upon the newest there.",
        ),
    ],
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="FILE", help="A former backup in that folder: write only what is new since."),
    ] = None,
    plain: Plain = False,
    as_json: AsJson = False,
) -> None:
    """Write all of a store to a file, while writers go on.

    Every checkpoint acknowledged before it began is in it. `threadline restore FILE --to URL` brings it back.
    """
    if os.path.isdir(output):
        folder = Path(output)
        base = base or _newest_in(folder)
        output = str(folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}{_SUFFIX}")
    _refuse_what_is_there(output)
    with open_store(url, read_only=True) as store, progress_bar("backing up") as progress:
        done = _stopped(lambda: store.saver.backup(output, base=base, plain=plain, progress=progress))
    _tell(done, url, as_json=as_json)


def open_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of export or backup, or s3://… of a backup.")],
    page: Annotated[bool, typer.Option("--web", help="Show it in the browser, read-only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a file of threads holds; nothing of it is changed.

    All commands that look at a store look at a file by --url archive:///FILE.
    """
    with local_file(file) as path:
        return _show(file, archive_url(path), page, as_json)


def _show(file: str, url: str, page: bool, as_json: bool) -> None:
    """Show an archive in the browser, or list its threads."""
    if page:
        from .web import web

        return web(url, port=0)
    with open_store(url, read_only=True) as store:
        threads = list(store.saver.threads())
        weights = store.saver.weigh([info.thread_id for info in threads])
    told = [(info, weights[info.thread_id].checkpoints if info.thread_id in weights else 0) for info in threads]
    if as_json:
        print_json(
            [
                {
                    "thread_id": info.thread_id,
                    "status": info.status,
                    "checkpoints": count,
                    "last_active": info.last_active,
                }
                for info, count in told
            ]
        )
    else:
        where = [] if is_remote_file(file) else [("url", url)]
        print_facts([("file", file), *where, ("threads", f"{len(told):,}")])
        for info, count in told:
            print_facts([(info.thread_id, f"{count:,} checkpoints, active {readable_time(info.last_active)}")])
    return None


def is_remote_file(name: str) -> bool:
    """Whether a name is that of a backup in an object store."""
    return name.partition("://")[0] in _REMOTE and "://" in name


@contextmanager
def local_file(file: str) -> Iterator[str]:
    """The path of a file, which is fetched with its bases where it is in an object store."""
    path = file.removeprefix("archive:///")
    if "://" not in path:
        yield path
        return
    from ...backends.objects.opening import open_objects
    from ...backends.objects.parts import fetch_chain, split_place

    place, name = split_place(path)
    with TemporaryDirectory() as folder:
        yield str(run_now(fetch_chain(open_objects(place, is_of_loop=False, cache_bytes=0), name, Path(folder))))


def _newest_in(folder: Path) -> str | None:
    """The backup of a folder that was made last, whatever its name; says which files cannot be added to."""
    from ...backends.memory.archive import newest_backup

    newest, passed = newest_backup(folder.glob(f"*{_SUFFIX}"))
    for trouble in passed:
        complain(f"{one_line(trouble)}; it is passed over")
    return str(newest) if newest is not None else None


def _refuse_what_is_there(path: str) -> None:
    if os.path.exists(path):
        raise Conflict(f"{path} exists already: choose another name, an archive is never written over")


def _refuse_together(option: str, **others: Any) -> None:
    for name, value in others.items():
        if value:
            raise InvalidRequest(f"{option} and --{name} do not go together")


def _stopped(work: Callable[[], Archived]) -> Archived:
    try:
        return work()
    except KeyboardInterrupt:
        complain("stopped; nothing was kept of the file")
        raise typer.Exit(130) from None


def _tell(done: Archived, url: str, *, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(done), "is_complete": done.is_complete})
    else:
        facts = [("from", without_password(url)), ("file", done.path), ("size", readable_bytes(done.size_bytes))]
        if done.base is not None:
            facts.append(("adds to", done.base))
        print_facts([*facts, *facts_of(done.report)[:-1]])
    for problem in done.report.problems[:20]:
        complain(one_line(Exception(problem)))
    if not done.is_complete:
        raise typer.Exit(1)


def _to_langgraph(url: str, target: str, threads: list[str] | None, prefix: str, modules: Modules) -> None:
    import_modules(modules)
    from ...langgraph.way_back import write_back

    with open_store(url, read_only=True, structural=False) as store, progress_bar("writing back") as progress:
        try:
            done = write_back(store.saver, target, threads=threads or None, prefix=prefix, progress=progress)
        except KeyboardInterrupt:
            complain("stopped; run the same command again to continue")
            raise typer.Exit(130) from None
    print_facts(
        [
            ("from", without_password(url)),
            ("to", f"{without_password(target)}, LangGraph's own tables"),
            ("threads", f"{done.threads:,}"),
            ("checkpoints", f"{done.checkpoints:,}"),
            ("pending writes", f"{done.writes:,}"),
        ]
    )


def _json_lines(url: str, output: str | None, options: dict[str, Any]) -> None:
    """A line of JSON for each checkpoint, oldest first; what is damaged is shown as such."""
    choice = choice_of(**options, records=False)
    with open_store(url, read_only=True) as store, _lines(output) as file:
        for thread in store.saver.run(threads_chosen, choice):
            for key in _keys(store, thread.thread_id, choice):
                found = store.saver.run(checkpoint_json, thread.thread_id, key.id, key.namespace)()
                print(json.dumps(found, ensure_ascii=True), file=file)


def _keys(store: Store, thread_id: str, choice: Any) -> list[Any]:
    rows = store.saver.run(thread_rows, thread_id)
    until_id, until_time = choice.until_id, choice.until_time
    kept = [
        found.key
        for found in rows
        if (until_id is None or found.row.id <= until_id) and (until_time is None or found.row.created <= until_time)
    ]
    return sorted(kept, key=lambda key: (key.id, key.namespace))


@contextmanager
def _lines(output: str | None) -> Iterator[TextIO]:
    if output in (None, "-"):
        yield sys.stdout
        return
    assert output is not None
    _refuse_what_is_there(output)
    draft = f"{output}.part"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            yield file
        os.rename(draft, output)
    except ThreadlineError:
        raise  # of the store; some are errors of the system, too
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise NotFound(f"{output}: there is no such folder") from None
        kind = StorageFull if error.errno == 28 else Unavailable
        raise kind(f"{output}: {error.strerror}") from None
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
