"""`threadline trash` and `threadline quarantine`: what was taken out of threads, and the way back."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from ...core.retention.trash import Trashed
from ...errors import InvalidRequest, NotFound
from ..open import open_store
from ..output import AsJson, Url, Yes, counted, iso_time, print_facts, print_json, print_rows, readable_time
from .pruning import ending

__all__ = ["quarantine", "trash"]


def trash(
    url: Url,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="list, restore or empty.")] = "list",
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="The id of an entry, or of a thread that has one.", show_default=False),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only threads that begin so.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List, restore or empty what was deleted with --trash."""
    _check(action, ("list", "restore", "empty"))
    if action == "restore":
        if not names:
            raise InvalidRequest("trash restore takes the names of entries; `threadline trash list` shows them")
        with open_store(url) as store:
            restored = [store.saver.restore_trash(name) for name in names]
        _tell(restored, as_json, {"done": True}, ("done", f"restored {len(restored):,} of {len(names):,}"))
        return
    with open_store(url, read_only=not (yes and action == "empty")) as store:
        found = store.saver.trash(prefix=prefix)
        chosen = [one for one in found if not names or one.id in names or one.thread_id in names]
        if names and not chosen:
            raise NotFound(f"the trash has nothing under {', '.join(map(repr, names))}")
        if action == "empty" and yes:
            store.saver.empty_trash([one.id for one in chosen])
    if action == "list":
        _tell(chosen, as_json, None, None)
    else:
        _tell(chosen, as_json, {"done": yes}, ending(yes, "deleted for good", "these would be deleted for good"))


def quarantine(
    url: Url,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="list or restore.")] = "list",
    thread: Annotated[
        str | None, typer.Argument(metavar="THREAD", help="Only this thread.", show_default=False)
    ] = None,
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHECKPOINT", help="Only these checkpoints of it.", show_default=False),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List what was set aside by fsck --quarantine, or put it back."""
    _check(action, ("list", "restore"))
    if action == "restore" and thread is None:
        raise InvalidRequest("quarantine restore takes a THREAD; `threadline quarantine list` shows those there are")
    with open_store(url, read_only=not (yes and action == "restore")) as store:
        found = [one for one in store.saver.quarantined(thread) if not checkpoints or one.checkpoint_id in checkpoints]
        if thread is not None and not found:
            raise NotFound(f"nothing of thread {thread!r} is in quarantine")
        if action == "restore" and yes:
            store.saver.unquarantine(found)
    if as_json:
        told = [{**dataclasses.asdict(one), "quarantined": iso_time(one.quarantined)} for one in found]
        print_json(told if action == "list" else {"checkpoints": told, "done": yes})
        return
    for one in found:
        where = f" in {one.namespace}" if one.namespace else ""
        facts = [("thread", one.thread_id), ("checkpoint", one.checkpoint_id + where)]
        facts.append(("set aside", readable_time(one.quarantined)))
        print_facts([*facts, *zip(["because", *[""] * len(one.why)], one.why, strict=False)])
        print()
    if action == "restore":
        print_facts([ending(yes, "put back", "these would be put back, damaged as they are")])
    elif not found:
        print_facts([("quarantine", "nothing")])


def _check(action: str, known: tuple[str, ...]) -> None:
    if action not in known:
        raise InvalidRequest(f"there is no action {action!r}: it is {', '.join(known[:-1])} or {known[-1]}")


def _tell(found: Any, as_json: bool, more: dict[str, Any] | None, last: tuple[str, str] | None) -> None:
    if as_json:
        told = [_entry_json(one) for one in found]
        print_json(told if more is None else {"entries": told, **more})
        return
    if found:
        print_rows([_row(one) for one in found], ["bold", "", "", "dim"])
    if last is not None:
        print_facts([last])
    elif not found:
        print_facts([("trash", "nothing")])


def _entry_json(one: Trashed) -> dict[str, Any]:
    return {**dataclasses.asdict(one), "trashed": iso_time(one.trashed), "until": iso_time(one.until)}


def _row(one: Any) -> list[str]:
    what = "thread" if one.is_thread else "pruned"
    held = counted(one.checkpoints, "checkpoint") if one.checkpoints else counted(one.writes, "write")
    return [one.id, one.thread_id, f"{what}, {held}", f"until {readable_time(one.until)}"]
