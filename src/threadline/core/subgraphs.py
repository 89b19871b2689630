"""Which checkpoints of subgraphs a checkpoint of the root cannot do without.

A subgraph that runs for one task has a namespace with that task in it: its checkpoints belong to the checkpoint they
were made under. One that keeps its state from run to run has a namespace without any task: what it remembers at a
checkpoint of the root was mostly made under an earlier one, which may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..backends.port import CheckpointKey
from ..namespaces import TASK
from .lineage import History

__all__ = ["lasting", "made_under", "newest_of", "remembered"]

Newest = dict[str, CheckpointKey]  # by namespace


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


def lasting(history: History) -> list[CheckpointKey]:
    """The checkpoints of subgraphs that keep their state from run to run."""
    return [key for key in history if key.namespace and TASK not in key.namespace]


def newest_of(keys: Iterable[CheckpointKey]) -> Newest:
    """The newest checkpoint of each namespace."""
    newest: Newest = {}
    for key in keys:
        if key.namespace not in newest or key.id > newest[key.namespace].id:
            newest[key.namespace] = key
    return newest


def remembered(history: History, roots: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """What subgraphs that keep their state had stored when these checkpoints of the root were made."""
    made = lasting(history)
    if not made:
        return set()
    under: dict[str, Newest] = {}  # what was made under each checkpoint of the root
    for key in made:
        above = history[key].parents.get("")
        if above is not None:
            under[above] = _newer(under.get(above, {}), {key.namespace: key})
    namespaces = {key.namespace for key in made}
    along: dict[str, Newest] = {}
    found: set[CheckpointKey] = set()
    reach: dict[str, str] = {}  # of each namespace that some line has nothing of, the newest such root
    for root in roots:
        here = _along(history, root, under, along)
        found.update(here.values())
        for namespace in namespaces - here.keys():
            reach[namespace] = max(root.id, reach.get(namespace, ""))
    # Where the line has a gap, what was made under a checkpoint that is gone may be what is remembered.
    found.update(key for key in made if key.id < reach.get(key.namespace, "") and _is_orphan(history, key))
    return found


def _along(history: History, root: CheckpointKey, under: dict[str, Newest], along: dict[str, Newest]) -> Newest:
    """The newest of each namespace that was made under an ancestor, up to the first that is gone.

    `along` has it for the checkpoints that were passed before: each is passed once.
    """
    passed: list[str] = []
    seen: set[str] = set()
    at = history[root].parent
    while at is not None and at.id not in along and at.id not in seen:
        passed.append(at.id)
        seen.add(at.id)
        at = history[at].parent if at in history else None
    known = along.get(at.id, {}) if at is not None else {}
    for one in reversed(passed):
        known = _newer(known, under[one]) if one in under else known
        along[one] = known
    return known


def _newer(one: Newest, other: Newest) -> Newest:
    """Of each namespace the newer checkpoint of two."""
    return {**one, **{ns: key for ns, key in other.items() if ns not in one or key.id > one[ns].id}}


def _is_orphan(history: History, key: CheckpointKey) -> bool:
    above = history[key].parents.get("")
    return above is None or CheckpointKey("", above) not in history
