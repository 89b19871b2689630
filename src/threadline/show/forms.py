"""Threads, checkpoints, differences, plans and items as JSON: what `--json` prints, and the `.json` twin of a page."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .figures import iso_time
from .values import plain

if TYPE_CHECKING:
    from ..core.history.log import Entry
    from ..core.history.state import Point, WriteInfo
    from ..core.leases import LockInfo
    from ..core.records.batch import Item
    from ..core.records.shapes import Version
    from ..core.retention.plan import Plan
    from ..core.standing import Standing
    from ..core.stats import ThreadWeight
    from ..core.threads import ThreadInfo, Waiting
    from ..ports.checkpoints import CheckpointKey

__all__ = [
    "channel_json",
    "entry_json",
    "item_json",
    "lock_json",
    "plan_json",
    "point_json",
    "standing_json",
    "thread_json",
    "version_json",
    "waiting_json",
    "write_json",
]


def thread_json(info: ThreadInfo, weight: ThreadWeight) -> dict[str, Any]:
    """A thread as `threads` lists it."""
    return {
        "thread_id": info.thread_id,
        "status": info.status,
        "waits": info.status == "suspended",
        "created": iso_time(info.created),
        "last_active": iso_time(info.last_active),
        "checkpoints": weight.checkpoints,
        "stored_bytes": weight.stored_bytes,
        "forked_from": info.forked_from,
        "expires": iso_time(info.expires),
        "tags": list(info.tags),
        "metadata": plain(dict(info.metadata)),
    }


def entry_json(entry: Entry) -> dict[str, Any]:
    """A checkpoint as `log` lists it."""
    names = (
        "thread_id", "namespace", "id", "parent", "has_parent", "step", "source",
        "added_bytes", "is_head", "is_pinned", "is_interrupted", "has_error", "damage",
    )  # fmt: skip
    told = {name: getattr(entry, name) for name in names}
    told["created"] = iso_time(entry.created)
    return {**told, "changed": list(entry.changed), "tags": list(entry.tags), "origins": list(entry.origins)}


def point_json(point: Point) -> dict[str, Any]:
    """The checkpoint that a fork, a merge or a tag made or named."""
    return {"thread_id": point.thread_id, "namespace": point.namespace, "checkpoint_id": point.id}


def channel_json(one: Any) -> dict[str, Any]:
    """A channel that differs, as `diff` tells it."""
    if one.kind == "damaged":
        return {"channel": one.channel, "kind": one.kind, "damage": one.damage}
    if one.items is None:
        return {"channel": one.channel, "kind": one.kind, "before": plain(one.before), "after": plain(one.after)}
    items = [
        {"kind": item.kind, "key": plain(item.key), "before": plain(item.before), "after": plain(item.after)}
        for item in one.items
    ]
    return {"channel": one.channel, "kind": one.kind, "items": items}


def write_json(one: WriteInfo) -> dict[str, Any]:
    """A write of a task."""
    names = ("task", "task_id", "task_path", "channel", "index", "value_bytes")
    return {**{name: getattr(one, name) for name in names}, "value": plain(one.value)}


def waiting_json(one: Waiting) -> dict[str, Any]:
    """An interrupt that waits, wherever it is."""
    names = ("thread_id", "checkpoint_id", "task_id", "interrupt_id")
    return {**{name: getattr(one, name) for name in names}, "value": plain(one.value)}


def lock_json(info: LockInfo, now: float) -> dict[str, Any]:
    """A lease for programs."""
    return {
        "thread_id": info.thread_id,
        "holder": info.holder,
        "since": iso_time(info.since),
        "ends": iso_time(info.ends),
        "seconds_left": max(info.ends - now, 0.0),
    }


def standing_json(found: Standing) -> dict[str, Any]:
    """Where a thread stands, as `why` tells it."""
    info, error = found.info, found.error
    failed = None
    if error is not None:
        names = ("task", "text", "namespace", "checkpoint_id", "is_past")
        failed = {name: getattr(error, name) for name in names}
    return {
        "thread_id": info.thread_id,
        "status": info.status,
        "last_active": iso_time(info.last_active),
        "head": _place_json(found.head) if found.head is not None else None,
        "next": None if found.next is None else list(found.next),
        "finished": list(found.finished),
        "waits": [
            {
                "interrupt_id": one.interrupt_id,
                "checkpoint_id": one.checkpoint_id,
                "task_id": one.task_id,
                "value": plain(one.value),
            }
            for one in found.waits
        ],
        "error": failed,
        "lock": lock_json(found.lock, time.time()) if found.lock is not None else None,
        "branches": [_place_json(entry) for entry in found.branches],
        "checkpoints": found.weight.checkpoints,
        "stored_bytes": found.weight.stored_bytes,
        "damage": list(found.damage),
    }


def _place_json(entry: Entry) -> dict[str, Any]:
    named = {"checkpoint_id": entry.id, "step": entry.step, "source": entry.source}
    return {**named, "created": iso_time(entry.created)}


def plan_json(plan: Plan, is_done: bool) -> dict[str, Any]:
    """A prune, planned or done."""

    def keys(some: Iterable[CheckpointKey]) -> list[dict[str, str]]:
        return [{"namespace": key.namespace, "checkpoint_id": key.id} for key in some]

    return {
        "thread_id": plan.thread_id,
        "keeps": keys(plan.keeps),
        "removes": keys(plan.removes),
        "empties": keys(plan.empties),
        "freed_bytes": plan.freed_bytes,
        "done": is_done,
    }


def item_json(item: Item) -> dict[str, Any]:
    """An item of a store."""
    return {
        "namespace": list(item.namespace),
        "key": item.key,
        "value": plain(item.value),
        "version": item.version,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
        "expires_at": item.expires_at.isoformat() if item.expires_at is not None else None,
    }


def version_json(one: Version) -> dict[str, Any]:
    """A former value of an item."""
    return {
        "version": one.version,
        "value": plain(one.value) if one.value is not None else None,
        "since": iso_time(one.since),
        "until": iso_time(one.until),
    }
