"""What differs between two checkpoints, also of two threads; and one channel through time."""

from __future__ import annotations

from typing import Any

from ...base.checkpoint import is_engine_channel
from ...core.context import Context
from ...core.history.diff import Diff, diff
from ...core.history.revisions import find
from ...errors import Corrupt, NotAllowed, NotFound
from ...show.figures import iso_time
from ...show.forms import channel_json
from ..asked import Asked, Page
from ..snippets import command_line, python_lines
from .checkpoint import part_of

__all__ = ["as_json", "page", "versions_json", "versions_page"]

_MOST_ITEMS = 100
_MOST_VERSIONS, _MOST_PREVIEWS = 300, 15


async def _compared(asked: Asked) -> Diff:
    thread_id = asked.desk.thread(asked.text("id")).thread_id
    other = asked.maybe("other") or thread_id
    b = asked.text("b").strip() or "head"
    found: Diff = await asked.desk.run(_between, (thread_id, asked.maybe("a")), (other, b), asked.text("ns"))
    return found


async def _between(store: Context, a: tuple[str, str | None], b: tuple[str, str], namespace: str) -> Diff:
    """The difference of two places; without the first, of a checkpoint and its parent.

    The first checkpoint of a thread is compared with nothing. One whose parent was pruned is not: nobody knows any more
    what it changed.
    """
    (thread_id, at), (other, place) = a, b
    later = await find(store, other, place, namespace)
    if at is None and thread_id == other and later.row.parent is None:
        return await diff(store, None, later)
    return await diff(store, await find(store, thread_id, at or f"{place}~1", namespace), later)


async def page(asked: Asked) -> Page:
    """The channels that differ."""
    found = await _compared(asked)
    thread_id, other = asked.text("id"), asked.maybe("other") or asked.text("id")
    a, b = (side["configurable"] for side in (found.a, found.b))
    values: dict[str, Any] = {
        "found": found,
        "thread_id": thread_id,
        "other": other,
        "a": {"id": a["thread_id"], "at": a["checkpoint_id"], "ns": a["checkpoint_ns"]},
        "b": {"id": b["thread_id"], "at": b["checkpoint_id"], "ns": b["checkpoint_ns"]},
        "most": asked.number("most", _MOST_ITEMS, 1, 100_000),
    }
    return Page("diff.html", f"Diff of {thread_id}", values, *_copies(asked.desk.url, values["a"], values["b"]))


def _copies(url: str, a: dict[str, str], b: dict[str, str]) -> tuple[str, str]:
    """The diff as a command and as Python; of two threads the states are compared."""
    if not a["at"]:
        command = command_line(url, "show", b["id"], b["at"], ns=b["ns"])
        return command, python_lines(url, f"print({_state(b)})")
    if a["id"] == b["id"]:
        call = f"print(saver.thread({a['id']!r}).diff({a['at']!r}, {b['at']!r}, namespace={a['ns']!r}))"
        return command_line(url, "diff", a["id"], a["at"], b["at"]), python_lines(url, call)
    shown = [command_line(url, "show", side["id"], side["at"], ns=side["ns"], json=True) for side in (a, b)]
    call = f"a = {_state(a)}\nb = {_state(b)}\n"
    call += "for channel in {**a, **b}:\n    if a.get(channel) != b.get(channel):\n"
    call += "        print(channel, a.get(channel), b.get(channel), sep='\\n  ')"
    return f"diff <({shown[0]}) <({shown[1]})", python_lines(url, call)


def _state(side: dict[str, str]) -> str:
    return f"saver.thread({side['id']!r}).state({side['at']!r}, namespace={side['ns']!r})"


async def as_json(asked: Asked) -> Any:
    """The diff as JSON, as `threadline diff --json` prints it."""
    return [channel_json(one) for one in (await _compared(asked)).channels]


async def _versions(asked: Asked) -> list[dict[str, Any]]:
    thread_id, channel = asked.desk.thread(asked.text("id")).thread_id, asked.text("channel")
    found: list[dict[str, Any]] = await asked.desk.run(
        _through_time, thread_id, asked.maybe("at"), asked.text("ns"), channel
    )
    return found


async def _through_time(
    store: Context, thread_id: str, at: str | None, namespace: str, channel: str
) -> list[dict[str, Any]]:
    """The checkpoints before a place that gave the channel another value, newest first."""
    if is_engine_channel(channel):
        raise NotFound(f"there is no channel {channel!r} to look at")
    start = await find(store, thread_id, at, namespace)
    chain = await store.chain(thread_id, start.row.namespace, start.row.id, _MOST_VERSIONS)
    told: list[dict[str, Any]] = []
    held: Any = None
    for found in chain:
        try:
            roots = store.tools.document(found).roots
        except (Corrupt, NotAllowed, NotFound):
            continue
        ref = roots.refs.get(channel)
        if ref is None:
            break
        one = {
            "checkpoint_id": found.row.id,
            "namespace": found.row.namespace,
            "parent": found.row.parent,
            "version": roots.versions.get(channel),
            "step": found.row.step,
            "created": found.row.created,
        }
        # The oldest checkpoint that has a value is the one that brought it.
        if told and ref == held:
            told[-1] = one
        else:
            told.append(one)
        held = ref
    if not told:
        raise NotFound(f"there is no channel {channel!r} at {start.row.id}")
    return told


async def versions_page(asked: Asked) -> Page:
    """The values that a channel had, with the beginning of the newest."""
    versions = await _versions(asked)
    thread_id, channel = asked.text("id"), asked.text("channel")
    previews = {
        one["checkpoint_id"]: await part_of(
            asked, thread_id, one["checkpoint_id"], one["namespace"], channel, [], 0, limit=3
        )
        for one in versions[:_MOST_PREVIEWS]
    }
    values = {
        "versions": versions,
        "previews": previews,
        "channel": channel,
        "thread_id": thread_id,
        "is_cut": len(versions) >= _MOST_VERSIONS,
    }
    command = command_line(asked.desk.url, "log", thread_id)
    python = python_lines(asked.desk.url, f"saver.thread({thread_id!r}).versions({channel!r}, limit=20)")
    return Page("versions.html", f"{channel} through time", values, command, python)


async def versions_json(asked: Asked) -> Any:
    """The versions of a channel, without their values."""
    versions = await _versions(asked)
    return [{**one, "version": str(one["version"]), "created": iso_time(one["created"])} for one in versions]
