"""What a person does to one thread or checkpoint at once. None of it deletes or overwrites anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import InvalidRequest, NotFound
from ...show.editing import edited
from ..asked import Asked

__all__ = ["act"]

Done = tuple[str, dict[str, Any], str]


async def act(asked: Asked) -> Done:
    """Do what a form asks for."""
    chosen = _ACTS.get(asked.text("act"))
    if chosen is None:
        raise InvalidRequest(f"there is no act {asked.text('act')!r}; there are {', '.join(_ACTS)}")
    return await chosen(asked)


def _place(point: Any) -> dict[str, Any]:
    return {"id": point.thread_id, "at": point.id, "ns": point.namespace}


async def _fork(asked: Asked) -> Done:
    thread, to = asked.desk.own_thread(asked.text("id")), asked.maybe("to")
    point = await asked.desk.ask(thread, "fork", asked.maybe("at"), to=to, namespace=asked.text("ns"))
    return "checkpoint", _place(point), f"Forked to the thread {to}." if to else "Forked: this is a new branch."


async def _rollback(asked: Asked) -> Done:
    point = await asked.desk.ask(asked.desk.own_thread(asked.text("id")), "rollback", asked.text("at"))
    return "checkpoint", _place(point), "A copy of that checkpoint is the head now; nothing was deleted."


async def _tag(asked: Asked) -> Done:
    name = asked.text("name").strip()
    return await _mark(asked, "tag", f"Tagged {name}.", name)


async def _untag(asked: Asked) -> Done:
    await asked.desk.ask(asked.desk.own_thread(asked.text("id")), "untag", asked.text("name"))
    here = {name: asked.text(name) for name in ("id", "at", "ns")}
    return "checkpoint", here, f"The tag {asked.text('name')} is forgotten; its checkpoint stays."


async def _pin(asked: Asked) -> Done:
    return await _mark(asked, "pin", "Pinned: retention keeps it.")


async def _unpin(asked: Asked) -> Done:
    return await _mark(asked, "unpin", "Left to retention again.")


async def _mark(asked: Asked, verb: str, sentence: str, *name: str) -> Done:
    thread = asked.desk.own_thread(asked.text("id"))
    point = await asked.desk.ask(thread, verb, *name, asked.maybe("at"), namespace=asked.text("ns"))
    return "checkpoint", _place(point), sentence


async def _archive(asked: Asked) -> Done:
    await asked.desk.ask(asked.desk.own_thread(asked.text("id")), "archive")
    return "thread", {"id": asked.text("id")}, "Archived: every put is refused until it is taken into use again."


async def _restore(asked: Asked) -> Done:
    await asked.desk.ask(asked.desk.own_thread(asked.text("id")), "restore")
    return "thread", {"id": asked.text("id")}, "In use again."


async def _unlock(asked: Asked) -> Done:
    ended = await asked.desk.ask(asked.desk.writing, "unlock", asked.text("id"))
    if ended is None:
        raise NotFound(f"nobody holds a lease on thread {asked.text('id')!r}")
    return "thread", {"id": asked.text("id")}, "The lease is ended: a holder that is not gone finds it lost."


async def _edit(asked: Asked) -> Done:
    """Put an edited channel as a checkpoint of its own: on a branch of this thread, or in a new thread."""
    desk, channel, namespace = asked.desk, asked.text("channel"), asked.text("ns")
    thread, at, to = desk.own_thread(asked.text("id")), asked.text("at"), asked.maybe("to")
    state = await desk.ask(thread, "state", at, namespace=namespace)
    if channel not in state:
        raise NotFound(f"there is no channel {channel!r} at {at}")
    value = await desk.half.aside(lambda: edited(state[channel], asked.text("text")))
    if to:
        await desk.ask(thread, "fork", at, to=to, namespace=namespace)
        point = await desk.ask(desk.own_thread(to), "put", {channel: value}, namespace=namespace)
    else:
        point = await desk.ask(thread, "put", {channel: value}, at=at, namespace=namespace)
    return "checkpoint", _place(point), f"{channel} was put as a checkpoint of its own; nothing was overwritten."


_ACTS: dict[str, Callable[[Asked], Awaitable[Done]]] = {
    "fork": _fork,
    "rollback": _rollback,
    "tag": _tag,
    "untag": _untag,
    "pin": _pin,
    "unpin": _unpin,
    "archive": _archive,
    "restore": _restore,
    "unlock": _unlock,
    "edit": _edit,
}
