"""`threadline fork`, `rollback`, `merge`, `tag`, `pin`, `unpin`, `archive` and `restore`: changing a history.

None of these deletes anything. Only `merge` rebuilds values, because it stores them again; it alone needs the
classes that they have.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from ...core.history.state import Point
from ...errors import InvalidRequest, MergeConflict, NotAllowed, NotFound
from ...saver import Saver
from ...show.forms import point_json
from ...thread import Thread
from ..open import open_store
from ..output import AsJson, At, Namespace, ThreadId, Url, print_facts, print_json, print_none

__all__ = ["archive", "fork", "merge", "pin", "restore", "rollback", "tag", "unpin"]

_STRATEGIES = ("ours", "theirs", "latest")
_THREAD = "thread:"


def fork(
    url: Url,
    thread: ThreadId,
    at: At = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NEW", help="Begin a new thread; otherwise a branch of this one.")
    ] = None,
    namespace: Namespace = "",
    as_json: AsJson = False,
) -> None:
    """Begin a branch with a checkpoint, here or as a new thread.

    State is shared, not copied.
    """
    with open_store(url) as store:
        point = store.saver.thread(thread).fork(at, to=to, namespace=namespace)
    _tell("forked", point, as_json)


def rollback(
    url: Url,
    thread: ThreadId,
    at: Annotated[str, typer.Argument(metavar="AT", help="The checkpoint to go on from, named as for show.")],
    as_json: AsJson = False,
) -> None:
    """Go on from an earlier checkpoint; nothing is deleted.

    A copy of the checkpoint becomes the head of the thread.
    """
    with open_store(url) as store:
        point = store.saver.thread(thread).rollback(at)
    _tell("head", point, as_json)


def merge(
    url: Url,
    thread: ThreadId,
    others: Annotated[
        list[str],
        typer.Argument(metavar="OTHER", help="Branches: checkpoints of this thread, or other threads of its history."),
    ],
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", metavar="SIDE", help="ours, theirs or latest, where both sides changed a channel."),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import this first: a module with classes of the state."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Merge branches of one history into the head of a thread.

    Values are rebuilt and stored again, so the classes that they have must be known: those of LangGraph are
    where it is installed, and --import names a module with others.
    """
    if strategy is not None and strategy not in _STRATEGIES:
        raise InvalidRequest(f"--strategy is ours, theirs or latest, not {strategy!r}")
    _import(modules or [])
    with open_store(url, structural=False) as store:
        handle = store.saver.thread(thread)
        named = [_branch(store.saver, handle, other) for other in others]
        try:
            point = handle.merge(*named, strategy=strategy)
        except MergeConflict as conflict:
            sides = str(conflict).partition(": give strategy=")[0]
            raise MergeConflict(f"{sides}: choose with --strategy ours, theirs or latest") from None
        except NotAllowed as missing:
            raise _unknown(missing) from None
    _tell("merged", point, as_json)


def tag(
    url: Url,
    thread: ThreadId,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The tag.", show_default=False)] = None,
    at: At = None,
    delete: Annotated[bool, typer.Option("--delete", help="Forget the tag; its checkpoint stays.")] = False,
    namespace: Namespace = "",
    as_json: AsJson = False,
) -> None:
    """Name a checkpoint, or list the names of a thread.

    Retention keeps what is named.
    """
    if name is None:
        return _list_tags(url, thread, as_json)
    with open_store(url) as store:
        handle = store.saver.thread(thread)
        if not delete:
            return _tell(f"tag {name}", handle.tag(name, at, namespace=namespace), as_json)
        if at is not None:
            raise InvalidRequest("--delete takes the name of the tag alone")
        handle.untag(name)
    if as_json:
        print_json({"thread_id": thread, "deleted": name})
    else:
        print_facts([("deleted", f"tag {name} of {thread}")])
    return None


def pin(url: Url, thread: ThreadId, at: At = None, namespace: Namespace = "", as_json: AsJson = False) -> None:
    """Keep a checkpoint through every retention."""
    with open_store(url) as store:
        point = store.saver.thread(thread).pin(at, namespace=namespace)
    _tell("pinned", point, as_json)


def unpin(url: Url, thread: ThreadId, at: At = None, namespace: Namespace = "", as_json: AsJson = False) -> None:
    """Leave a pinned checkpoint to retention again."""
    with open_store(url) as store:
        point = store.saver.thread(thread).unpin(at, namespace=namespace)
    _tell("unpinned", point, as_json)


def archive(url: Url, thread: ThreadId, as_json: AsJson = False) -> None:
    """Refuse every write to a thread until it is restored."""
    _set_status(url, thread, "archived", as_json)


def restore(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="An archived thread's id, or with --to a backup's file.")],
    url: Annotated[
        str | None,
        typer.Option("--url", envvar="THREADLINE_URL", metavar="URL", help="The store of the archived thread."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TARGET", help="Bring a backup into this store; made where missing.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="WHEN", help="Of a backup, no checkpoint after this id, span or time."),
    ] = None,
    to_key_file: Annotated[
        str | None,
        typer.Option("--to-key-file", metavar="FILE", help="Keys of the target, where it is or shall be encrypted."),
    ] = None,
    to_cold: Annotated[
        str | None,
        typer.Option("--to-cold", metavar="URL", help="The cold tier of the target, where it has one."),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Let what was encrypted be stored in plain.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take an archived thread into use again; with --to, a backup.

    A backup that adds to others is restored with them: they lie in the same folder.
    """
    if to is None:
        if url is None:
            raise InvalidRequest("--url names the store of the thread; a backup is restored with --to")
        _set_status(url, what, "active", as_json)
        return
    from .importing import import_archive

    import_archive(what, to, until=until, to_key_file=to_key_file, to_cold=to_cold, plain=plain, as_json=as_json)


def _set_status(url: str, thread: str, status: str, as_json: bool) -> None:
    with open_store(url) as store:
        handle = store.saver.thread(thread)
        handle.archive() if status == "archived" else handle.restore()
    if as_json:
        print_json({"thread_id": thread, "status": status})
    else:
        print_facts([(status, thread)])


def _list_tags(url: str, thread: str, as_json: bool) -> None:
    with open_store(url, read_only=True) as store:
        entries = store.saver.thread(thread).log().entries
    tags = {name: entry for entry in entries for name in entry.tags}
    if as_json:
        print_json({name: {"namespace": entry.namespace, "checkpoint_id": entry.id} for name, entry in tags.items()})
    elif tags:
        print_facts([(name, entry.id) for name, entry in sorted(tags.items())])
    else:
        print_none("no tags")


def _tell(what: str, point: Point, as_json: bool) -> None:
    if as_json:
        print_json(point_json(point))
    else:
        print_facts([(what, point.id), ("thread", point.thread_id)])


def _branch(saver: Saver, handle: Thread, other: str) -> Any:
    """A branch to merge: a place of the thread or, where it has none of that name, another thread."""
    name = other.removeprefix(_THREAD)
    is_thread = any(info.thread_id == name for info in saver.threads(prefix=name, limit=1))
    if other.startswith(_THREAD):
        if not is_thread:
            raise NotFound(f"there is no thread {name!r}")
        return saver.thread(name)
    try:
        point = handle.at(other)
    except (NotFound, InvalidRequest) as error:
        if is_thread:
            return saver.thread(name)
        if isinstance(error, NotFound):
            raise NotFound(f"{error}; nor is there a thread {name!r}") from None
        raise
    if is_thread:
        raise InvalidRequest(f"{name!r} is a checkpoint of this thread and a thread: write {_THREAD}{name}, or the id")
    return point


def _unknown(missing: NotAllowed) -> NotAllowed:
    """What to do about a class that is not here: other commands need none, and do not meet this."""
    found = re.search(r"the stored type (\S+) ", str(missing))
    if found is None:
        return missing
    return NotAllowed(f"merging rebuilds values, and {found[1]} is not known here: --import the module that defines it")


def _import(modules: list[str]) -> None:
    """Make the types of LangGraph known where it is installed, and those of modules that the caller named."""
    with suppress(ImportError):
        importlib.import_module("threadline.langgraph")
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InvalidRequest(f"the module {name} cannot be imported ({error})") from None
