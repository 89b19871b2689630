"""`threadline why`: where a thread stands, and why it does not go on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..core.leases import told
from ..core.standing import Standing
from ..core.survey import Waiting
from ..core.timeline import Entry
from .locking import lock_json
from .opening import open_store
from .output import (
    AsJson,
    ThreadId,
    Url,
    counted,
    iso_time,
    print_json,
    print_wrapped_facts,
    readable_bytes,
    readable_time,
)
from .rendering import one_line_of, plain

__all__ = ["next_told", "waits_told", "why"]

_MOST_DAMAGES = 5


def why(url: Url, thread: ThreadId, as_json: AsJson = False) -> None:
    """Say where a thread stands, and why it does not go on.

    No graph is needed: what runs next is told by what is stored.
    """
    with open_store(url, read_only=True) as store:
        found = store.saver.thread(thread).why()
    if as_json:
        print_json(_as_json(found))
    else:
        print_wrapped_facts(_facts(found))


def next_told(nodes: Sequence[str] | None) -> str:
    """The nodes that run next, in words."""
    if nodes is None:
        return "unknown: what is stored does not tell"
    return ", ".join(nodes) or "none: the run has ended"


def waits_told(waits: Sequence[Waiting]) -> list[str]:
    """What waits for an answer, one a line."""
    return [f"{one.interrupt_id or '(no id)'}  {one_line_of(one.value)}" for one in waits]


def _facts(found: Standing) -> list[tuple[str, str]]:
    now = time.time()
    info, error, weight = found.info, found.error, found.weight
    facts = [("thread", info.thread_id), ("status", info.status)]
    facts.append(("head", _checkpoint(found.head) if found.head is not None else "none yet"))
    if found.head is not None:
        facts.append(("", f"made {readable_time(found.head.created)}"))
    facts.append(("next", next_told(found.next)))
    facts += _listed("waits", waits_told(found.waits))
    if error is not None:
        facts.append(("error", f"{error.task}: {error.text}"))
        past = ", before the graph went on" if error.is_past else ""
        facts.append(("", f"at {error.checkpoint_id}{f' in {error.namespace}' if error.namespace else ''}{past}"))
    else:
        facts.append(("error", "none"))
    facts.append(("lock", told(found.lock, now) if found.lock is not None else "none"))
    facts += _listed("branches", [_checkpoint(one) for one in found.branches] if len(found.branches) > 1 else ["one"])
    facts.append(("size", f"{counted(weight.checkpoints, 'checkpoint')}, {readable_bytes(weight.stored_bytes)}"))
    shown = list(found.damage[:_MOST_DAMAGES])
    if len(found.damage) > _MOST_DAMAGES:
        shown.append(f"… {len(found.damage) - _MOST_DAMAGES:,} more (--json lists them)")
    return [*facts, *_listed("damage", shown or ["none seen; `threadline fsck` reads everything"])]


def _listed(name: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip([name, *[""] * len(lines)], lines or ["none"], strict=False))


def _checkpoint(entry: Entry) -> str:
    step = f"step {entry.step}" if entry.step is not None else "no step"
    return ", ".join([entry.id, step, *([entry.source] if entry.source else [])])


def _as_json(found: Standing) -> dict[str, Any]:
    info, error = found.info, found.error
    failed = None
    if error is not None:
        names = ("task", "text", "namespace", "checkpoint_id", "is_past")
        failed = {name: getattr(error, name) for name in names}
    return {
        "thread_id": info.thread_id,
        "status": info.status,
        "last_active": iso_time(info.last_active),
        "head": _entry_json(found.head) if found.head is not None else None,
        "next": None if found.next is None else list(found.next),
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
        "branches": [_entry_json(entry) for entry in found.branches],
        "checkpoints": found.weight.checkpoints,
        "stored_bytes": found.weight.stored_bytes,
        "damage": list(found.damage),
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    named = {"checkpoint_id": entry.id, "step": entry.step, "source": entry.source}
    return {**named, "created": iso_time(entry.created)}
