"""`threadline why`: where a thread stands, and why it does not go on."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...core.history.log import Entry
from ...core.leases import told
from ...core.standing import Standing
from ...core.threads import Waiting
from ...show.forms import standing_json
from ...show.values import one_line_of
from ..open import open_store
from ..output import (
    AsJson,
    ThreadId,
    Url,
    counted,
    print_json,
    print_wrapped_facts,
    readable_bytes,
    readable_time,
)

__all__ = ["next_told", "waits_told", "why"]

_MOST_DAMAGES = 5


def why(url: Url, thread: ThreadId, as_json: AsJson = False) -> None:
    """Say where a thread stands, and why it does not go on.

    No graph is needed: what runs next is told by what is stored.
    """
    with open_store(url, read_only=True) as store:
        found = store.saver.thread(thread).why()
    if as_json:
        print_json(standing_json(found))
    else:
        print_wrapped_facts(_facts(found))


def next_told(nodes: Sequence[str] | None, finished: Sequence[str] = ()) -> str:
    """The nodes that run next, in words; a run that stopped between two steps has none, and has not ended."""
    if nodes is None:
        return "unknown: what is stored does not tell"
    if finished and not nodes:
        return f"none: {', '.join(finished)} finished, and the run stopped there; another one goes on"
    return ", ".join(nodes) or "none: the run has ended"


def waits_told(waits: Sequence[Waiting]) -> list[str]:
    """What waits for an answer, one a line."""
    return [f"{one.interrupt_id or '(no id)'}  {one_line_of(one.value)}" for one in waits]


def _facts(found: Standing) -> list[tuple[str, str]]:
    now = time.time()
    info, error, weight = found.info, found.error, found.weight
    facts = [("thread", info.thread_id), ("status", "suspended (waits)" if info.status == "suspended" else info.status)]
    facts.append(("head", _checkpoint(found.head) if found.head is not None else "none yet"))
    if found.head is not None:
        facts.append(("", f"made {readable_time(found.head.created)}"))
    facts.append(("next", next_told(found.next, found.finished)))
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
