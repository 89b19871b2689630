"""`threadline show`, `diff` and `writes`: looking at what is in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from ...base.checkpoint import is_engine_channel
from ...core.context import Context
from ...core.history.state import WriteInfo, read_lazily, writes_told
from ...core.interrupts import Question, open_questions
from ...core.standing import finished_paths, next_and_finished
from ...core.threads import Waiting
from ...errors import Corrupt, InvalidRequest, NotFound
from ...show.forms import channel_json, write_json
from ...show.values import Damaged, one_line_of, plain
from ..open import open_store
from ..output import (
    AsJson,
    At,
    Namespace,
    ThreadId,
    Url,
    complain,
    print_facts,
    print_json,
    print_line,
    print_none,
    print_rows,
    readable_bytes,
)
from ..values import Reveal, print_value
from .standing import next_told, waits_told

__all__ = ["diff", "show", "writes"]

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "damaged": ("!", "red")}


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
        handle = store.saver.thread(thread)
        point = handle.at(at, namespace=namespace)
        found = store.saver.run(read_lazily, thread, point.key)
        row = store.saver.run(Context.find, thread, *point.key)
        if row is None:
            raise NotFound(f"thread {thread!r}: {point.id} was deleted meanwhile")
        asked = store.saver.run(open_questions, thread, row.pool, row.writes)
        # Before the head all tasks have finished; what was to run from there is what ran.
        is_head = handle.at(namespace=point.namespace).id == point.id
        paths = finished_paths(row.writes) if is_head else ()
        nodes, finished = _next_nodes(found.checkpoint, paths)
    waits = [_waiting(thread, one) for one in asked]
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
        upcoming = {"next": None if nodes is None else list(nodes), "waits": [_waiting_json(one) for one in waits]}
        print_json({**named, **told, **upcoming})
    else:
        if channel is None:
            coming = [("next", next_told(nodes, finished)), *(("waits", line) for line in waits_told(waits))]
            print_facts([*_facts(named, found, len(row.writes)), *coming], is_cut=not everything)
            print()
        for name, value in values.items():
            print_value(name, value, everything=everything)
    _refuse_damage([*values.values(), *(one.value for one in waits if channel is None)])


def _refuse_damage(told: Iterable[Any]) -> None:
    """End with status 1 where something that was told could not be read."""
    if any(isinstance(value, Damaged) for value in told):
        complain("[damaged] could not be read; `threadline fsck` tells what can be done")
        raise typer.Exit(1)


def _next_nodes(checkpoint: Any, finished: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The nodes that are due, and have finished; unknown where a channel that says so is damaged."""
    try:
        return next_and_finished(checkpoint, finished)
    except Corrupt:
        return None, ()


def _waiting(thread: str, one: Question) -> Waiting:
    return Waiting(
        thread_id=thread, checkpoint_id=one.key.id, task_id=one.task_id, interrupt_id=one.id, value=one.value
    )


def _waiting_json(one: Waiting) -> dict[str, Any]:
    return {"interrupt_id": one.interrupt_id, "task_id": one.task_id, "value": plain(one.value)}


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
    a: Annotated[str, typer.Argument(metavar="A", help="The earlier checkpoint, named as for show.")] = "head~1",
    b: Annotated[str, typer.Argument(metavar="B", help="The later checkpoint.")] = "head",
    reveal: Reveal = False,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two checkpoints of a thread.

    Of a thread alone: what its newest checkpoint changed.
    """
    with open_store(url, read_only=True) as store:
        handle: Any = store.saver.thread(thread)
        found = handle.diff(a, b)
    if as_json:
        print_json([channel_json(one) for one in found.channels])
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
        found = store.saver.run(writes_told, thread, at, namespace)
    if as_json:
        print_json([write_json(one) for one in found])
    else:
        _print_writes(found)
    _refuse_damage(one.value for one in found)


def _print_writes(found: Sequence[WriteInfo]) -> None:
    rows = [[one.task, one.channel, readable_bytes(one.value_bytes), one_line_of(one.value)] for one in found]
    if rows:
        print_rows(rows, ["bold", "cyan", "dim"], numbers=[2])
    else:
        print_none("no writes follow this checkpoint; head~1 has those that made the newest one")
