"""Which checkpoints of subgraphs a checkpoint of the root cannot do without.

A subgraph that runs for one task has a namespace with that task in it: its checkpoints belong to the checkpoint they
were made under. One that keeps its state from run to run has a namespace without any task: what it remembers at a
checkpoint of the root was mostly made under an earlier one, which may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..backends.port import CheckpointKey
from ..namespaces import TASK
from .retention import History

__all__ = ["made_under", "remembered"]


def made_under(history: History, kept: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """Subgraph checkpoints whose graphs above are kept; where that is not known, the newest of a namespace."""
    ids = {(key.namespace, key.id) for key in kept}
    found = set()
    newest: dict[str, CheckpointKey] = {}
    for key, step in history.items():
        if key.namespace == "":
            continue
        if step.parents:
            if any(place in ids for place in step.parents.items()):
                found.add(key)
        elif key.namespace not in newest or key.id > newest[key.namespace].id:
            newest[key.namespace] = key
    return found | set(newest.values())


def remembered(history: History, roots: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """What subgraphs that keep their state had stored when these checkpoints of the root were made."""
    lasting: dict[str, list[CheckpointKey]] = {}
    for key in sorted(history, key=lambda key: key.id, reverse=True):
        if key.namespace and TASK not in key.namespace:
            lasting.setdefault(key.namespace, []).append(key)
    found: set[CheckpointKey] = set()
    for root in roots if lasting else ():
        line = _ancestors(history, root)
        for keys in lasting.values():
            along = [key for key in keys if history[key].parents.get("") in line]
            # Where the line has a gap, what was made under a checkpoint that is gone may be what is remembered.
            found.update(along[:1] or [key for key in keys if key.id < root.id and _is_orphan(history, key)])
    return found


def _ancestors(history: History, root: CheckpointKey) -> set[str]:
    """The ids before a checkpoint, up to the first that is gone."""
    ids: set[str] = set()
    parent = history[root].parent
    while parent is not None and parent.id not in ids:
        ids.add(parent.id)
        parent = history[parent].parent if parent in history else None
    return ids


def _is_orphan(history: History, key: CheckpointKey) -> bool:
    above = history[key].parents.get("")
    return above is None or CheckpointKey("", above) not in history
