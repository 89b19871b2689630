"""The history of a thread as a graph: parents, heads, lines, cycles, and what delta channels are replayed from.

`History` is pure, and each of its methods makes one pass: a thread may have a hundred thousand checkpoints.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import Corrupt, NotAllowed
from ...ports.checkpoints import CheckpointKey, Found
from ..context import Context, Tools
from ..paging import thread_rows
from ..rows import DELTA_COUNTERS

__all__ = [
    "History",
    "Parents",
    "Step",
    "heads_of",
    "history_from",
    "history_of",
    "newest_of",
    "on_a_cycle",
    "parents_first",
]

Parents = Mapping[CheckpointKey, CheckpointKey | None]


async def history_of(store: Context, thread_id: str) -> History:
    """The history of all checkpoints of a thread."""
    return history_from(store.tools, await thread_rows(store, thread_id))


def history_from(tools: Tools, rows: Iterable[Found]) -> History:
    """The history of rows that were read already."""
    return History((found.key, _step(tools, found)) for found in rows)


def heads_of(parents: Parents) -> set[CheckpointKey]:
    """The checkpoints that no other has for its parent."""
    return parents.keys() - {parent for parent in parents.values() if parent is not None}


def newest_of(keys: Iterable[CheckpointKey]) -> dict[str, CheckpointKey]:
    """The newest checkpoint of each namespace."""
    return {key.namespace: key for key in sorted(keys)}


def on_a_cycle(parents: Parents) -> list[CheckpointKey]:
    """The checkpoints that are their own ancestors, as damaged rows may be."""
    found: list[CheckpointKey] = []
    done: set[CheckpointKey] = set()
    for start in parents:
        line, current = _unwalked(parents, start, done)
        if current in line:
            found.extend(line[line.index(current) :])
        done.update(line)
    return sorted(found)


def parents_first(parents: Parents) -> list[CheckpointKey]:
    """These checkpoints, each after its parent where that is one of them."""
    ordered: dict[CheckpointKey, None] = {}
    for start in sorted(parents):
        line, _ = _unwalked(parents, start, ordered)
        ordered.update(dict.fromkeys(reversed(line)))
    return list(ordered)


def _unwalked(
    parents: Parents, start: CheckpointKey, done: Container[CheckpointKey]
) -> tuple[list[CheckpointKey], CheckpointKey | None]:
    """A checkpoint and its ancestors as far as they are known and not `done`, and where that ended."""
    line: dict[CheckpointKey, None] = {}
    at: CheckpointKey | None = start
    while at is not None and at in parents and at not in done and at not in line:
        line[at] = None
        at = parents[at]
    return list(line), at


@dataclass(frozen=True, slots=True)
class Step:
    """One checkpoint of a history."""

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


class History(dict[CheckpointKey, Step]):
    """The checkpoints of a thread, of all namespaces and branches."""

    @property
    def parents(self) -> dict[CheckpointKey, CheckpointKey | None]:
        return {key: step.parent for key, step in self.items()}

    def heads(self, namespace: str = "") -> set[CheckpointKey]:
        """The ends of the branches of a namespace."""
        return {key for key in heads_of(self.parents) if key.namespace == namespace}

    def children(self) -> dict[CheckpointKey, list[CheckpointKey]]:
        """The checkpoints that have each one for their parent, which itself may be gone."""
        children: dict[CheckpointKey, list[CheckpointKey]] = {}
        for key, step in self.items():
            if step.parent is not None:
                children.setdefault(step.parent, []).append(key)
        return children

    def line_of(self, heads: Iterable[CheckpointKey]) -> set[CheckpointKey]:
        """Checkpoints and all their ancestors."""
        line: set[CheckpointKey] = set()
        for head in heads:
            at: CheckpointKey | None = head
            while at is not None and at in self and at not in line:
                line.add(at)
                at = self[at].parent
        return line

    def descendants(self, key: CheckpointKey) -> set[CheckpointKey]:
        """A checkpoint and all that descend from it."""
        children, found, following = self.children(), {key}, [key]
        while following:
            new = [child for child in children.get(following.pop(), ()) if child not in found]
            found.update(new)
            following += new
        return found

    def keep_latest(self) -> set[CheckpointKey]:
        """The newest checkpoint of each namespace, and what their delta channels are replayed from."""
        return self.with_chains(newest_of(self).values())

    def with_chains(self, kept: Iterable[CheckpointKey]) -> set[CheckpointKey]:
        """The checkpoints to keep, and the ancestors from which their delta channels are replayed."""
        needed: set[CheckpointKey] = set()
        # The channels that were looked for at each ancestor: from there on the way was gone before.
        asked: dict[CheckpointKey, set[str | None]] = {}
        for key in kept:
            needed.add(key)
            wanted: Iterable[str | None] = self[key].wants
            at = self[key].parent
            while at is not None and at in self:
                there = asked.setdefault(at, set())
                new = {channel for channel in wanted if channel not in there}
                if not new:
                    break
                there |= new
                needed.add(at)
                wanted = new - self[at].holds
                at = self[at].parent
        return needed

    def children_first(self) -> list[CheckpointKey]:
        """Every checkpoint after all that descend from it; ids say nothing about that."""
        waiting = {key: len(children) for key, children in self.children().items()}
        order: list[CheckpointKey] = []
        for leaf in (key for key in self if key not in waiting):
            at: CheckpointKey | None = leaf
            while at is not None and at in self:
                order.append(at)
                at = self[at].parent
                if at is not None:
                    waiting[at] -= 1
                    if waiting[at]:
                        break
        if len(order) < len(self):  # damaged rows may be their own ancestors
            placed = set(order)
            order += [key for key in self if key not in placed]
        return order

    def partly_kept(self, doomed: Container[CheckpointKey]) -> list[CheckpointKey]:
        """The checkpoints that stay, but lose some of what they are replayed from.

        They serve the replay of another channel, of a checkpoint after them, and nobody keeps their own.
        """
        if not any(step.wants for step in self.values()):
            return []
        # For each checkpoint behind a gap: the channels that the stretch since the gap holds.
        held: dict[CheckpointKey, frozenset[str]] = {}
        found: list[CheckpointKey] = []
        for key in reversed(self.children_first()):
            step = self[key]
            if key in doomed:
                held[key] = frozenset()
            elif step.parent in held:
                since = held[step.parent]
                if step.wants - since:
                    found.append(key)
                held[key] = since | step.holds
        return found

    def needed_since(self, known: Container[CheckpointKey]) -> set[CheckpointKey]:
        """The checkpoints that must stay because others came since: their parents, and what these are replayed from."""
        newcomers = [key for key in self if key not in known]
        parents = {parent for key in newcomers if (parent := self[key].parent) is not None}
        return self.with_chains(newcomers) | parents


def _step(tools: Tools, found: Found) -> Step:
    row = found.row
    metadata: dict[str, Any] = {}
    holds: frozenset[str] = frozenset()
    is_unreadable = False
    try:
        metadata = tools.metadata(found)
        holds = frozenset(tools.document(found).roots.refs)
    except (Corrupt, NotAllowed):
        is_unreadable = True
        metadata = metadata or {"run_id": row.run_id}  # a damaged checkpoint can still be deleted
    deltas = metadata.get(DELTA_COUNTERS) or {}
    if not isinstance(deltas, Mapping):
        deltas, is_unreadable = {}, True
    parents = metadata.get("parents")
    above = parents if isinstance(parents, Mapping) else {}
    return Step(
        key=found.key,
        parent=found.parent,
        run_id=metadata.get("run_id"),
        replays=frozenset(deltas) - holds,
        holds=holds,
        source=metadata.get("source"),
        created=row.created,
        parents={ns: at for ns, at in above.items() if isinstance(ns, str) and isinstance(at, str)},
        is_unreadable=is_unreadable,
    )
