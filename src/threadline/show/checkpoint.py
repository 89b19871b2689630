"""A checkpoint as `show --json` tells it: values, what runs next, what waits. One damaged value hides no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.checkpoint import is_engine_channel
from ..core.context import Context
from ..core.history.revisions import At, resolve
from ..core.history.state import read_lazily
from ..core.interrupts import open_questions
from ..core.standing import finished_paths, next_nodes
from ..errors import Corrupt, NotFound
from .values import Damaged, plain

__all__ = ["checkpoint_json"]


async def checkpoint_json(store: Context, thread_id: str, at: At, namespace: str) -> Callable[[], dict[str, Any]]:
    """The checkpoint at a place, read; calling the result decodes its values."""
    key = await resolve(store, thread_id, at, namespace)
    found = await read_lazily(store, thread_id, key)
    row = await store.find(thread_id, *key)
    if row is None:
        raise NotFound(f"thread {thread_id!r}: {key.id} was deleted meanwhile")
    asked = await open_questions(store, thread_id, row.pool, row.writes)
    head = await resolve(store, thread_id, None, key.namespace)
    # Before the head all tasks have finished; what was to run from there is what ran.
    written = row.writes if head == key else []
    parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None

    def decoded() -> dict[str, Any]:
        checkpoint: Any = found.checkpoint
        held = checkpoint["channel_values"]
        try:
            upcoming = next_nodes(checkpoint, finished_paths(written))
        except Corrupt:
            upcoming = None
        waits = [{"interrupt_id": one.id, "task_id": one.task_id, "value": plain(one.value)} for one in asked]
        return {
            "thread_id": thread_id,
            "namespace": key.namespace,
            "checkpoint_id": key.id,
            "parent_id": parent,
            "created": checkpoint["ts"],
            "metadata": plain(dict(found.metadata)),
            "values": {name: plain(_value(held, name)) for name in held if not is_engine_channel(name)},
            "next": None if upcoming is None else list(upcoming),
            "waits": waits,
        }

    return decoded


def _value(held: Any, name: str) -> Any:
    try:
        return held[name]
    except Corrupt as damage:
        return Damaged(str(damage))
