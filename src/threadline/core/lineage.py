"""What retention knows of a thread: its checkpoints, their parents, and what delta channels are replayed from.

Pure functions over a history, each in one pass: a thread may have a hundred thousand checkpoints.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..backends.port import CheckpointKey

__all__ = [
    "History",
    "Step",
    "children_first",
    "children_of",
    "keep_latest",
    "line_of",
    "needed_since",
    "partly_kept",
    "with_chains",
]


@dataclass(frozen=True, slots=True)
class Step:
    """What retention needs to know of one checkpoint."""

    key: CheckpointKey
    parent: CheckpointKey | None
    run_id: Any
    # Channels whose value is replayed from ancestors, because this checkpoint does not hold it.
    replays: frozenset[str]
    holds: frozenset[str]
    source: str | None
    created: float
    # For a subgraph's checkpoint: the checkpoints of the graphs above, by namespace.
    parents: Mapping[str, str]
    # It cannot be read here (damaged, or of types that are not allowed): what it needs is not known.
    is_unreadable: bool = False

    @property
    def wants(self) -> frozenset[str | None]:
        """The channels that ancestors must hold; None, which none holds, for everything before it."""
        return self.replays | {None} if self.is_unreadable else self.replays


History = dict[CheckpointKey, Step]


def keep_latest(history: History) -> set[CheckpointKey]:
    """The newest checkpoint of each namespace, and what their delta channels are replayed from."""
    newest: dict[str, CheckpointKey] = {}
    for key in history:
        if key.namespace not in newest or key.id > newest[key.namespace].id:
            newest[key.namespace] = key
    return with_chains(history, newest.values())


def with_chains(history: History, kept: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """The checkpoints to keep, and the ancestors from which their delta channels are replayed."""
    needed: set[CheckpointKey] = set()
    # What was looked for at each ancestor: from there on the way was gone before.
    asked: dict[CheckpointKey, set[str | None]] = {}
    for key in kept:
        needed.add(key)
        wanted: Iterable[str | None] = history[key].wants
        at = history[key].parent
        while at is not None and at in history:
            there = asked.setdefault(at, set())
            new = {channel for channel in wanted if channel not in there}
            if not new:
                break
            there |= new
            needed.add(at)
            wanted = new - history[at].holds
            at = history[at].parent
    return needed


def children_of(history: History) -> dict[CheckpointKey, list[CheckpointKey]]:
    """The checkpoints that have each one for their parent, which itself may be gone."""
    children: dict[CheckpointKey, list[CheckpointKey]] = {}
    for key, step in history.items():
        if step.parent is not None:
            children.setdefault(step.parent, []).append(key)
    return children


def children_first(history: History) -> list[CheckpointKey]:
    """Every checkpoint after all that descend from it; ids say nothing about that."""
    waiting = {key: len(children) for key, children in children_of(history).items()}
    order: list[CheckpointKey] = []
    for leaf in (key for key in history if key not in waiting):
        at: CheckpointKey | None = leaf
        while at is not None and at in history:
            order.append(at)
            at = history[at].parent
            if at is not None:
                waiting[at] -= 1
                if waiting[at]:
                    break
    if len(order) < len(history):  # damaged rows may be their own ancestors
        placed = set(order)
        order += [key for key in history if key not in placed]
    return order


def partly_kept(history: History, doomed: Container[CheckpointKey]) -> list[CheckpointKey]:
    """The checkpoints that stay, but lose some of what they are replayed from.

    They serve the replay of another channel, of a checkpoint after them, and nobody keeps their own.
    """
    if not any(step.wants for step in history.values()):
        return []
    # For each checkpoint behind a gap: the channels that the stretch since the gap holds.
    held: dict[CheckpointKey, frozenset[str]] = {}
    found: list[CheckpointKey] = []
    for key in reversed(children_first(history)):
        step = history[key]
        if key in doomed:
            held[key] = frozenset()
        elif step.parent in held:
            since = held[step.parent]
            if step.wants - since:
                found.append(key)
            held[key] = since | step.holds
    return found


def needed_since(history: History, known: Container[CheckpointKey]) -> set[CheckpointKey]:
    """What must stay because of checkpoints that came since: what they descend from, and are replayed from."""
    newcomers = [step for key, step in history.items() if key not in known]
    parents = {step.parent for step in newcomers if step.parent is not None}
    return with_chains(history, [step.key for step in newcomers]) | parents


def line_of(history: History, heads: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """Checkpoints and all their ancestors."""
    line: set[CheckpointKey] = set()
    for head in heads:
        at: CheckpointKey | None = head
        while at is not None and at in history and at not in line:
            line.add(at)
            at = history[at].parent
    return line
