"""`threadline threads`, `show`, `diff` and `writes`: looking at threads and what is in them."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from ..core.states import read_lazily
from ..core.survey import ThreadInfo
from ..errors import Corrupt, InvalidRequest
from ..model import is_engine_channel
from .opening import open_store
from .output import (
    AsJson,
    At,
    Namespace,
    ThreadId,
    Url,
    complain,
    print_facts,
    print_json,
    print_line,
    print_rows,
    readable_bytes,
    readable_time,
)
from .rendering import Damaged, Reveal, one_line_of, plain, print_value

__all__ = ["diff", "show", "threads", "writes"]

_PAGE = 500
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "damaged": ("!", "red")}


def threads(
    url: Url,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="How their ids begin.")] = "",
    status: Annotated[str | None, typer.Option("--status", metavar="STATUS", help="active or archived.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="Those that have this tag.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the threads of a store."""
    with open_store(url, read_only=True) as store:
        listed = store.saver.threads(prefix=prefix, status=status, tag=tag, limit=limit)
        if as_json:
            return print_json([_thread_json(one) for one in listed])
        # A store may have more threads than memory has room for.
        while page := list(islice(listed, _PAGE)):
            print_rows([_thread_row(one) for one in page], ["bold", "", "dim"])
    return None


def _thread_json(info: ThreadInfo) -> dict[str, Any]:
    names = ("thread_id", "status", "created", "last_active", "forked_from", "expires")
    told = {name: getattr(info, name) for name in names}
    return {**told, "tags": list(info.tags), "metadata": plain(dict(info.metadata))}


def _thread_row(info: ThreadInfo) -> list[str]:
    notes = [f"tag {name}" for name in info.tags]
    if info.forked_from:
        notes.append(f"from {info.forked_from}")
    if info.expires is not None:
        notes.append(f"expires {readable_time(info.expires)}")
    notes += [f"{key}={one_line_of(value)}" for key, value in info.metadata.items()]
    return [info.thread_id, info.status, readable_time(info.last_active), ", ".join(notes)]


def show(
    url: Url,
    thread: ThreadId,
    at: At = None,
    namespace: Namespace = "",
    channel: Annotated[str | None, typer.Option("--channel", metavar="NAME", help="Only this channel.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Cut nothing, on a terminal too.")] = False,
    reveal: Reveal = False,
    as_json: AsJson = False,
) -> None:
    """Show the state at a checkpoint and its metadata.

    No class of the application is needed: values are shown by the names and fields they are stored with.
    """
    with open_store(url, read_only=True) as store:
        point = store.saver.thread(thread).at(at, namespace=namespace)
        found = store.engine.run(lambda backend: read_lazily(backend, store.tools, thread, point.key))
        row = store.engine.run(lambda backend: backend.find(thread, *point.key))
    held = found.checkpoint["channel_values"]
    names = [name for name in held if not is_engine_channel(name)]
    if channel is not None:
        if channel not in held:
            raise InvalidRequest(f"there is no channel {channel!r} here; there are {', '.join(names) or 'none'}")
        names = [channel]
    values = {name: _value_or_damage(held, name) for name in names}
    parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
    named = {"thread_id": thread, "namespace": point.namespace, "checkpoint_id": point.id, "parent_id": parent}
    if as_json:
        told = {"created": found.checkpoint["ts"], "metadata": plain(dict(found.metadata)), "values": plain(values)}
        print_json({**named, **told})
    else:
        if channel is None:
            print_facts(_facts(named, found, len(row.writes) if row is not None else 0), is_cut=not everything)
            print()
        for name, value in values.items():
            print_value(name, value, everything=everything)
    if any(isinstance(value, Damaged) for value in values.values()):
        complain("[damaged] could not be read; `threadline fsck` tells what can be done")
        raise typer.Exit(1)


def _value_or_damage(held: Any, name: str) -> Any:
    """A value; one that is damaged hides no other."""
    try:
        return held[name]
    except Corrupt as damage:
        return Damaged(str(damage))


def _facts(named: dict[str, Any], found: Any, waiting: int) -> list[tuple[str, str]]:
    facts = [("thread", named["thread_id"]), ("checkpoint", named["checkpoint_id"])]
    if named["namespace"]:
        facts.append(("namespace", named["namespace"]))
    facts += [("parent", named["parent_id"] or "none"), ("created", found.checkpoint["ts"])]
    described = [(key, value) for key, value in found.metadata.items() if value not in ({}, [], None)]
    facts += [(key, _described(key, value)) for key, value in described]
    return [*facts, ("writes", f"{waiting:,} pending")] if waiting else facts


def _described(key: str, value: Any) -> str:
    if key == "forked_from" and isinstance(value, dict):
        return f"{value.get('checkpoint_id')} of {value.get('thread_id')}"
    return value if isinstance(value, str) else one_line_of(value)


def diff(
    url: Url,
    thread: ThreadId,
    a: Annotated[str, typer.Argument(metavar="A", help="The earlier checkpoint, named as for show.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The later checkpoint.")] = "head",
    reveal: Reveal = False,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two checkpoints of a thread."""
    with open_store(url, read_only=True) as store:
        handle: Any = store.saver.thread(thread)
        found = handle.diff(a, b)
    if as_json:
        print_json([_channel_json(one) for one in found.channels])
    else:
        _print_diff(found)
    if any(one.kind == "damaged" for one in found.channels):
        complain("[damaged] could not be read; `threadline fsck` tells what can be done")
        raise typer.Exit(1)


def _print_diff(found: Any) -> None:
    for one in found.channels:
        sign, style = _SIGNS.get(one.kind, ("~", "yellow"))
        if one.kind == "damaged":
            print_line((f"{sign} ", style), (one.channel, "bold"), (": [damaged]", ""))
            continue
        if one.items is None:
            print_line((f"{sign} ", style), (one.channel, "bold"), (f": {_sides(one)}", ""))
            continue
        print_line((f"{sign} ", style), (one.channel, "bold"))
        for item in one.items:
            sign, style = _SIGNS.get(item.kind, ("~", "yellow"))
            key = "" if item.key is None else f"[{one_line_of(item.key)}] "
            print_line((f"  {sign} ", style), (f"{key}{_sides(item)}", ""))
    if not found.channels:
        print_line(("nothing differs", ""))


def _sides(change: Any) -> str:
    """What there was and what there is, as far as there is either."""
    before = [] if change.kind == "added" else [one_line_of(change.before)]
    after = [] if change.kind == "removed" else [one_line_of(change.after)]
    return " → ".join([*before, *after])


def _channel_json(one: Any) -> dict[str, Any]:
    if one.kind == "damaged":
        return {"channel": one.channel, "kind": one.kind, "damage": one.damage}
    if one.items is None:
        return {"channel": one.channel, "kind": one.kind, "before": plain(one.before), "after": plain(one.after)}
    items = [
        {"kind": item.kind, "key": plain(item.key), "before": plain(item.before), "after": plain(item.after)}
        for item in one.items
    ]
    return {"channel": one.channel, "kind": one.kind, "items": items}


def writes(
    url: Url,
    thread: ThreadId,
    at: At = None,
    namespace: Namespace = "",
    reveal: Reveal = False,
    as_json: AsJson = False,
) -> None:
    """Show who wrote what towards the next checkpoint, in order."""
    with open_store(url, read_only=True) as store:
        found = store.saver.thread(thread).writes(at, namespace=namespace)
    if as_json:
        names = ("task", "task_id", "task_path", "channel", "index", "value_bytes")
        print_json([{**{name: getattr(one, name) for name in names}, "value": plain(one.value)} for one in found])
        return
    rows = [[one.task, one.channel, readable_bytes(one.value_bytes), one_line_of(one.value)] for one in found]
    if rows:
        print_rows(rows, ["bold", "cyan", "dim"], numbers=[2])
