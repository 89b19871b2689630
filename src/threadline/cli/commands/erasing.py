"""`threadline rm`: deleting a thread, one checkpoint of it, or many threads, with a record of what was deleted."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Annotated, Any

import typer

from ...core.lifecycle import living, tags_of
from ...core.paging import thread_rows
from ...core.retention.policy import seconds_of
from ...core.retention.sweep import freed_bytes
from ...errors import InvalidRequest, NotFound
from ...ports.checkpoints import CheckpointKey
from ..open import Store, open_store
from ..output import (
    AsJson,
    At,
    Namespace,
    TrashSpan,
    Url,
    Yes,
    counted,
    hint_filter,
    iso_time,
    print_facts,
    print_json,
    progress_bar,
    readable_bytes,
)
from .pruning import ending, some

__all__ = ["rm"]

Told = dict[str, Any]


def rm(
    url: Url,
    thread: Annotated[str | None, typer.Argument(metavar="THREAD", help="The thread's id.", show_default=False)] = None,
    at: At = None,
    namespace: Namespace = "",
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="Instead of THREAD: all threads that begin so.")
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="Instead of THREAD: all whose metadata has this value."),
    ] = None,
    trash: TrashSpan = None,
    record: Annotated[
        str | None, typer.Option("--record", metavar="FILE", help="Append a line of JSON for each thread deleted.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a thread, one checkpoint of it, or many threads.

    Without --trash, what the trash and quarantine have of the threads is deleted as well.
    """
    _check(thread, prefix, filters, trash)
    with open_store(url, read_only=not yes) as store:
        if thread is not None and at is not None:
            return _rm_checkpoint(store, thread, at, namespace, trash, yes, as_json)
        wanted = [thread] if thread is not None else _chosen(store, prefix or "", filters or [], trash is None)
        told = _rm_threads(store, wanted, trash, record, reason, yes)
    hint_filter(filters, wanted)
    if as_json:
        print_json({**told[0], "done": yes} if thread is not None else {"threads": told, "done": yes})
    elif thread is not None:
        print_facts([*_facts(told[0]), ending(yes, "deleted", "this would be deleted", trash)])
    else:
        _print_many(told, trash, yes)
    return None


def _check(thread: str | None, prefix: str | None, filters: list[str] | None, trash: str | None) -> None:
    if (prefix is not None or bool(filters)) == (thread is not None):
        raise InvalidRequest("rm takes a THREAD, or --prefix or --filter, and not both")
    if prefix == "":
        raise InvalidRequest("--prefix is empty: that would be every thread")
    seconds_of(trash, "--trash")


def _rm_threads(
    store: Store, wanted: list[str], trash: str | None, record: str | None, reason: str | None, yes: bool
) -> list[Told]:
    """What goes with each of these threads; with `yes` they are deleted, and each deletion is recorded."""
    told = []
    trashed: dict[str, int] = {}
    for entry in store.saver.trash():
        trashed[entry.thread_id] = trashed.get(entry.thread_id, 0) + entry.checkpoints
    noted = {"by": _user(), "reason": reason}
    with _record(record, yes) as lines, progress_bar("deleting") as progress:
        for done, name in enumerate(wanted, 1):
            one = _thread_figures(store, name, trashed.get(name))
            if yes:
                one |= _delete(store, name, trash, noted)
                _write(lines, one)
            told.append(one)
            if progress is not None:
                progress(done, len(wanted))
    return told


def _rm_checkpoint(
    store: Store, thread: str, at: str, namespace: str, trash: str | None, yes: bool, as_json: bool
) -> None:
    handle = store.saver.thread(thread)
    point = handle.at(at, namespace=namespace)
    told = {"thread_id": thread, "checkpoint_id": point.id, "tags": _tags(store, thread, point.key)}
    if yes:
        handle.delete(at, namespace=namespace, trash=trash)
    if as_json:
        print_json({**told, "done": yes})
    else:
        print_facts([*_facts(told), ending(yes, "deleted", "this would be deleted", trash)])


def _chosen(store: Store, prefix: str, filters: list[str], with_trash: bool) -> list[str]:
    """The threads that are meant, with those of which only the trash has something."""
    wanted = dict(_pair(text) for text in filters)
    names = [info.thread_id for info in store.saver.threads(prefix=prefix, filter=wanted or None)]
    if with_trash and not wanted:
        names += sorted({one.thread_id for one in store.saver.trash(prefix=prefix)} - set(names))
    return names


def _pair(text: str) -> tuple[str, Any]:
    """A key and its value: JSON where it is some, or else the text itself."""
    key, found, value = text.partition("=")
    if not key or not found:
        raise InvalidRequest(f"--filter is KEY=VALUE, such as user=ada, not {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _delete(store: Store, thread: str, trash: str | None, noted: Told) -> Told:
    when = time.time()
    if trash:
        store.saver.thread(thread).delete(trash=trash)
    else:
        store.saver.delete_thread(thread)
    seconds = seconds_of(trash, "--trash")
    return {"when": iso_time(when), **noted, "restorable_until": iso_time(when + seconds if seconds else None)}


def _thread_figures(store: Store, thread: str, trashed: int | None) -> Told:
    """What goes with a thread, of which the trash has some checkpoints or nothing."""
    in_trash = {} if trashed is None else {"trash_checkpoints": trashed}
    try:
        row = store.saver.run(living, thread)
    except NotFound:
        if trashed is None:
            raise
        figures: Told = {"thread_id": thread, "checkpoints": 0, "pending_writes": 0, "bytes": 0, "tags": []}
        return {**figures, **in_trash}
    found = store.engine.run(lambda backend: thread_rows(backend, thread, with_writes=True))
    keys = {CheckpointKey(one.row.namespace, one.row.id) for one in found}
    size = store.engine.run(lambda backend: freed_bytes(backend, row.pool, found, keys))
    return {
        "thread_id": thread,
        "checkpoints": len(found),
        "pending_writes": sum(len(one.writes) for one in found),
        "bytes": size,
        "tags": [tag.name or "(pinned)" for tag in tags_of(row)],
        **in_trash,
    }


def _tags(store: Store, thread: str, key: CheckpointKey) -> list[str]:
    row = store.saver.run(living, thread)
    return [tag.name or "(pinned)" for tag in tags_of(row) if tag.key == key]


def _print_many(told: list[Told], trash: str | None, is_done: bool) -> None:
    total = sum(one["checkpoints"] for one in told)
    size = sum(one["bytes"] for one in told)
    facts = [("threads", f"{len(told):,}")]
    facts += [("", f"{one['thread_id']} ({counted(one['checkpoints'], 'checkpoint')})") for one in some(told)]
    facts += [("checkpoints", f"{total:,}"), ("bytes", f"about {readable_bytes(size)}")]
    print_facts([*facts, ending(is_done, "deleted", "these would be deleted", trash)])


def _facts(told: Told) -> list[tuple[str, str]]:
    names = ("thread_id", "checkpoint_id", "checkpoints", "pending_writes", "bytes", "tags", "trash_checkpoints")
    shown = {"thread_id": "thread", "checkpoint_id": "checkpoint", "trash_checkpoints": "in the trash"}
    facts = []
    for name in names:
        value = told.get(name)
        if value is None or value == []:
            continue
        text = ", ".join(value) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else str(value)
        if name == "bytes":
            text = f"about {readable_bytes(told[name])}"
        elif name == "trash_checkpoints":
            text = counted(told[name], "checkpoint")
        facts.append((shown.get(name, name.replace("_", " ")), text))
    return facts


@contextmanager
def _record(path: str | None, yes: bool) -> Iterator[IO[str] | None]:
    """The file that is told of each deletion, opened before the first: what cannot be noted is not deleted."""
    if path is None or not yes:
        yield None
        return
    try:
        lines = open(path, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise InvalidRequest(f"--record cannot be written, and nothing was deleted: {error}") from None
    with lines:
        yield lines


def _write(lines: IO[str] | None, one: Told) -> None:
    if lines is not None:
        lines.write(json.dumps(one) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
