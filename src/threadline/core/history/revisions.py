"""A place in a thread's history, however people name it, resolved to one checkpoint.

`head`, `head~2`, a tag, an id or a unique beginning of one, a step (the number 12, or `step:12`), a time (the newest
checkpoint made until then), a config, or anything that has a `.config`. `~n` goes n parents back from any
of them. What is ambiguous or unknown is an error that says what there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ...base.namespaces import ROOT, recast
from ...errors import InvalidRequest, NotFound
from ...ports.checkpoints import CheckpointKey, Found, Query
from ..context import Reads
from ..lifecycle import Tag, living, tags_of
from ..paging import each_found
from ..requests import place_of, plain_text

__all__ = ["At", "find", "resolve"]

# How callers name a place: see the head of this file.
At = Any
_STEP = re.compile(r"step:(-?[0-9]{1,18})")
_LAST_TEXT = "\U0010ffff"


async def find(store: Reads, thread_id: str, at: At, namespace: str = "") -> Found:
    """The checkpoint at a place."""
    key = await resolve(store, thread_id, at, namespace)
    found = await store.find(thread_id, key.namespace, key.id, with_writes=False)
    if found is None:
        raise NotFound(f"thread {thread_id!r} has no checkpoint {key.id}: it was deleted")
    return found


async def resolve(store: Reads, thread_id: str, at: At, namespace: str = "") -> CheckpointKey:
    """The checkpoint that a place means; NotFound or InvalidRequest when it means none, or several."""
    await living(store, thread_id)
    namespace = await _whole_namespace(store, thread_id, namespace)
    if hasattr(at, "config"):
        at = at.config
    if isinstance(at, Mapping):
        return await _configured(store, thread_id, at)
    if at is None:
        return await _head(store, thread_id, namespace)
    if isinstance(at, bool):
        raise InvalidRequest("a place is an id, a tag, 'head', a step, a time or a config")
    if isinstance(at, int):
        if abs(at) >= 2**62:
            raise NotFound(f"thread {thread_id!r} has no checkpoint of step {at:.3e}")
        return await _at_step(store, thread_id, at, namespace)
    if isinstance(at, datetime):
        return await _at_time(store, thread_id, at, namespace)
    if not isinstance(at, str) or not at:
        raise InvalidRequest(f"a place is an id, a tag, 'head', a step, a time or a config, not {type(at).__name__}")
    name, *steps = at.split("~")
    if steps:
        if not all(step.isascii() and (step.isdigit() or not step) and len(step) < 10 for step in steps):
            raise InvalidRequest(f"{at[:60]!r} is no place: ~ is followed by a number of checkpoints to go back")
        start = await resolve(store, thread_id, name or "head", namespace)
        return await _parent(store, thread_id, start, sum(int(step or 1) for step in steps))
    return await _named(store, thread_id, plain_text(at, "the place"), namespace)


async def _whole_namespace(store: Reads, thread_id: str, namespace: str) -> str:
    """The namespace that was named, or the newest that is it but for the ids of tasks; `child` means `child:1b2c…`."""
    if namespace == ROOT or await store.find(thread_id, namespace, None, with_writes=False) is not None:
        return namespace
    async for found in each_found(store, Query(thread_id=thread_id, limit=64, with_writes=False), growth=4):
        if recast(found.row.namespace) == namespace:
            return found.row.namespace
    return namespace


async def _named(store: Reads, thread_id: str, name: str, namespace: str) -> CheckpointKey:
    if name == "head":
        return await _head(store, thread_id, namespace)
    for one in tags_of(await living(store, thread_id)):
        if one.name == name:
            return await _there(store, thread_id, one)
    step = _STEP.fullmatch(name)
    if step is not None:
        return await _at_step(store, thread_id, int(step[1]), namespace)
    matches = await _with_prefix(store, thread_id, name, namespace)
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(key.id for key in matches[:3])
        raise InvalidRequest(f"{name!r} is the beginning of several checkpoints ({shown}, …): give more of the id")
    moment = _parsed_time(name)
    if moment is not None:
        return await _at_time(store, thread_id, moment, namespace)
    raise NotFound(
        f"thread {thread_id!r} has no checkpoint, tag or time {name!r}; "
        f"`threadline log` or thread.log() shows what it has"
    )


async def _there(store: Reads, thread_id: str, tag: Tag) -> CheckpointKey:
    """The checkpoint that a tag names; it may have been deleted."""
    if await store.find(thread_id, *tag.key, with_writes=False) is None:
        raise NotFound(f"thread {thread_id!r}: the checkpoint {tag.key.id} that is tagged {tag.name!r} was deleted")
    return tag.key


async def _with_prefix(store: Reads, thread_id: str, prefix: str, namespace: str) -> list[CheckpointKey]:
    """The checkpoints whose ids begin like this, in the namespace if there are any, else in all of them."""
    query = Query(thread_id=thread_id, before=prefix + _LAST_TEXT, limit=32, with_writes=False)
    matches: dict[CheckpointKey, None] = {}
    async for found in each_found(store, query):
        if not found.row.id.startswith(prefix):
            break
        key = found.key
        if found.row.id == prefix and found.row.namespace == namespace:
            return [key]
        matches[key] = None
        if len(matches) > 100:
            break
    inside = [key for key in matches if key.namespace == namespace]
    return inside or list(matches)


async def _configured(store: Reads, thread_id: str, config: Mapping[str, Any]) -> CheckpointKey:
    place = place_of(config)
    if place.thread_id != thread_id:
        raise InvalidRequest(f"the config names a checkpoint of thread {place.thread_id!r}, not of {thread_id!r}")
    if place.checkpoint_id is None:
        return await _head(store, thread_id, place.namespace)
    found = await store.find(*place, with_writes=False)
    if found is None:
        raise NotFound(f"thread {thread_id!r} has no checkpoint {place.checkpoint_id}")
    return CheckpointKey(place.namespace, place.checkpoint_id)


async def _head(store: Reads, thread_id: str, namespace: str) -> CheckpointKey:
    found = await store.find(thread_id, namespace, None, with_writes=False)
    if found is None:
        where = f" in namespace {namespace!r}" if namespace else ""
        raise NotFound(f"thread {thread_id!r} has no checkpoint{where} yet")
    return CheckpointKey(namespace, found.row.id)


async def _parent(store: Reads, thread_id: str, key: CheckpointKey, steps: int) -> CheckpointKey:
    chain = await store.chain(thread_id, key.namespace, key.id, steps + 1)
    if len(chain) <= steps:
        raise NotFound(
            f"thread {thread_id!r}: only {max(len(chain) - 1, 0)} of {steps} checkpoints before {key.id} are there"
        )
    return CheckpointKey(key.namespace, chain[steps].row.id)


async def _at_step(store: Reads, thread_id: str, step: int, namespace: str) -> CheckpointKey:
    query = Query(thread_id=thread_id, namespace=namespace, equals=(("step", step),), limit=16, with_writes=False)
    async for found in each_found(store, query):
        if found.row.step == step:
            return CheckpointKey(namespace, found.row.id)
    raise NotFound(f"thread {thread_id!r} has no checkpoint of step {step}")


async def _at_time(store: Reads, thread_id: str, moment: datetime, namespace: str) -> CheckpointKey:
    try:
        until = moment.timestamp()  # without a time zone it is local time
    except (ValueError, OverflowError, OSError):
        raise NotFound(f"thread {thread_id!r} has no checkpoint made until {moment.isoformat()}") from None
    query = Query(thread_id=thread_id, namespace=namespace, limit=64, with_writes=False)
    async for found in each_found(store, query):
        if found.row.created <= until:
            return CheckpointKey(namespace, found.row.id)
    raise NotFound(f"thread {thread_id!r} has no checkpoint made until {moment.isoformat()}")


def _parsed_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
