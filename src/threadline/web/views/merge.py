"""A merge: what both sides changed is chosen on the page, item by item, and then committed as it was shown."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...codec.structural import StructuralCodec
from ...errors import Conflict, InvalidRequest, MergeConflict, NotFound, ReadOnly
from ...show.merging import ABSENT, ChannelConflict, Rehearsal, conflict_of, resolved
from ...show.shapes import Shape, shape_of
from ...show.values import plain
from ..asked import Asked, Page
from ..snippets import command_line, python_lines

__all__ = ["as_json", "commit", "page"]

_THREAD = "thread:"
_MOST_LOOKED_AT = 5_000


async def _rehearsed(asked: Asked) -> tuple[Any, Any, list[ChannelConflict], list[str]]:
    """Both sides as points, the channels that both changed, and delta channels of which only ours can stay."""
    desk = asked.desk
    ours = await desk.ask(desk.thread(asked.text("id")), "at", None)
    theirs = await _side(asked)
    rehearsal, codec = Rehearsal(), StructuralCodec()
    deltas: list[str] = []
    try:
        await desk.ask(desk.thread(asked.text("id")), "merge", theirs.config, strategy=rehearsal)
    except ReadOnly:
        pass  # at the put: everything was heard
    except MergeConflict as conflict:
        deltas = str(conflict).partition("both sides changed ")[2].partition(" since ")[0].split(", ")
    heard = [conflict_of(codec, channel, *sides) for channel, sides in rehearsal.heard.items()]
    return ours, theirs, heard, deltas


async def _side(asked: Asked) -> Any:
    """The checkpoint to merge: a place of this thread, or of another one that is named."""
    desk, other = asked.desk, asked.text("other").strip()
    if other.startswith(_THREAD):
        return await desk.ask(desk.thread(other.removeprefix(_THREAD)), "at", asked.maybe("at"))
    try:
        return await desk.ask(desk.thread(asked.text("id")), "at", other)
    except (NotFound, InvalidRequest):
        try:
            return await desk.ask(desk.thread(other), "at", asked.maybe("at"))
        except NotFound:
            pass
        raise


async def page(asked: Asked) -> Page:
    """The choice of a branch, or the conflicts with the one that was chosen."""
    thread_id = asked.desk.thread(asked.text("id")).thread_id
    history = await asked.desk.history(thread_id)
    branches = [one for one in history.newest("", _MOST_LOOKED_AT) if one.is_head][1:]
    values: dict[str, Any] = {"thread_id": thread_id, "branches": branches, "forks": history.forks, "other": None}
    command, python = command_line(asked.desk.url, "log", thread_id), f"print(saver.thread({thread_id!r}).log())"
    if asked.maybe("other"):
        ours, theirs, heard, deltas = await _rehearsed(asked)
        values |= {
            "other": asked.text("other"),
            "ours": ours,
            "theirs": theirs,
            "joined": [one for one in heard if one.is_joined],
            "conflicts": [(at, one) for at, one in enumerate(heard) if not one.is_joined],
            "deltas": deltas,
            "side": _shape,
        }
        command = command_line(asked.desk.url, "merge", thread_id, asked.text("other"))
        python = f"saver.thread({thread_id!r}).merge({asked.text('other')!r})"
    return Page("merge.html", f"Merge into {thread_id}", values, command, python_lines(asked.desk.url, python))


def _shape(value: Any) -> Shape:
    return Shape("plain", "not there") if value is ABSENT or value is None else shape_of(value)


async def as_json(asked: Asked) -> Any:
    """The conflicts of a merge; without a branch, those that there are."""
    if not asked.maybe("other"):
        history = await asked.desk.history(asked.desk.thread(asked.text("id")).thread_id)
        heads = [one.id for one in history.newest("", _MOST_LOOKED_AT) if one.is_head]
        return {"branches": heads[1:], "forks": [fork.thread_id for fork in history.forks]}
    ours, theirs, heard, deltas = await _rehearsed(asked)
    told = [
        {
            "channel": one.channel,
            "joined": one.is_joined,
            "items": None if one.items is None else [plain(item.key) for item in one.items],
        }
        for one in heard
    ]
    sides = {"ours": ours.id, "theirs": theirs.id, "their_thread": theirs.thread_id}
    return {**sides, "channels": told, "delta_channels": deltas}


async def commit(asked: Asked) -> tuple[str, dict[str, Any], str]:
    """Merge as it was chosen; Conflict where one of the sides has moved since it was shown."""
    ours, theirs, heard, deltas = await _rehearsed(asked)
    if (ours.id, theirs.id) != (asked.text("seen_ours"), asked.text("seen_theirs")):
        raise Conflict("one of the two branches has moved since the conflicts were shown: look at them again")
    codec = StructuralCodec()
    strategy: dict[str, Any] = dict.fromkeys(deltas, "ours")
    for at, one in enumerate(heard):
        if one.is_joined:
            continue
        count = 1 if one.items is None else len(one.items)
        choices = [asked.text(f"pick-{at}-{item}") for item in range(count)]
        if any(choice not in ("ours", "theirs") for choice in choices):
            raise InvalidRequest(f"channel {one.channel!r}: choose a side for every item that both sides changed")
        strategy[one.channel] = partial(_resolved, codec, choices)
    thread = asked.desk.own_thread(asked.text("id"))
    point = await asked.desk.ask(thread, "merge", theirs.config, strategy=strategy)
    place = {"id": point.thread_id, "at": point.id, "ns": point.namespace}
    return "checkpoint", place, "Merged. This is the new head."


def _resolved(codec: StructuralCodec, choices: list[str], base: Any, ours: Any, theirs: Any) -> Any:
    return resolved(codec, base, ours, theirs, choices)
