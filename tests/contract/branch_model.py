"""What branching, retention and deletion promise, in plain dicts: the model that the state machine compares with.

A subgraph's checkpoint is kept with the one it was made under. What becomes of it when that one goes by another way
than retention is not promised: it is then in `loose`, and may be there or not.
"""

from dataclasses import dataclass, field, replace
from typing import Any

CHILD = "child:1"
INTERRUPT = "__interrupt__"
Key = tuple[str, str]  # namespace, checkpoint id


@dataclass
class Kept:
    """One checkpoint."""

    values: dict[str, Any]
    versions: dict[str, int]
    parent: str | None
    source: str
    above: str | None = None  # the root's checkpoint that a subgraph's was made under
    writes: dict[tuple[str, int], tuple[str, str, Any]] = field(default_factory=dict)


class Line:
    """One thread that lives."""

    def __init__(self):
        self.kept: dict[Key, Kept] = {}
        self.loose: set[Key] = set()
        self.tags: dict[str, Key] = {}
        self.pins: set[Key] = set()
        self.passed: set[Key] = set()  # those whose children a prune has taken
        self.is_archived = False

    @property
    def root(self) -> list[str]:
        """The ids of the root, newest first."""
        return sorted((one for namespace, one in self.kept if namespace == ""), reverse=True)

    def heads(self) -> set[str]:
        return set(self.root) - {self.kept["", one].parent for one in self.root}

    def line(self, head: str | None) -> set[str]:
        """A checkpoint of the root and its ancestors, as far as they are there."""
        found = set()
        while head is not None and ("", head) in self.kept:
            found.add(head)
            head = self.kept["", head].parent
        return found

    def is_taken_up(self, key: Key) -> bool:
        """Whether a child in the loop is there, so that what the tasks wrote is in its values."""
        return any((ns, one.parent) == key and one.source == "loop" for (ns, _), one in self.kept.items())

    def settled(self) -> set[Key]:
        """Those whose writes were taken up; a question that waits never is."""
        return {key for key, kept in self.kept.items() if kept.writes and self.is_taken_up(key) and not _asks(kept)}

    def below(self, ids: set[str]) -> set[Key]:
        return {(CHILD, one) for (ns, one), kept in self.kept.items() if ns == CHILD and kept.above in ids}

    # -- what verbs do

    def remove(self, ids: set[str]) -> None:
        """Checkpoints of the root go, and nothing is promised for those below them."""
        for key in self.below(ids):
            self.loose.add(key)
            del self.kept[key]
        for one in ids:
            del self.kept["", one]

    def discard(self, one: str) -> set[str] | None:
        """The checkpoints of the branches that go; None where the last branch, or a marked one, would go."""
        heads = self.heads()
        gone = {head for head in heads if one in self.line(head)}
        if gone >= heads:
            return None
        stay = set().union(*(self.line(head) for head in heads - gone))
        doomed = set().union(*(self.line(head) for head in gone)) - stay
        marked = {*self.tags.values(), *self.pins}
        return None if any(("", each) in marked for each in doomed) else doomed

    def prune(self, *, keep_last: int, drop_branches: bool = False, drop_settled: bool = False) -> None:
        heads, settled = self.heads(), self.settled()
        if drop_branches:
            heads = {max(heads)} if heads else set()
        heads = {one for one in heads if ("", one) not in self.passed or one == self.root[0]}
        unsettled = {key for key, kept in self.kept.items() if kept.writes} - settled
        kept = {("", one) for one in (*heads, *self.root[:keep_last])}
        kept |= unsettled | {key for key in (*self.tags.values(), *self.pins) if key in self.kept}
        kept |= self.below({one for ns, one in kept if ns == ""})
        gone = self.kept.keys() - kept
        # Once the children are gone nobody can tell that the writes were taken up: they go along.
        goes_on = {key for key in kept if any((ns, self.kept[ns, one].parent) == key for ns, one in gone)}
        for key in settled & (kept if drop_settled else goes_on):
            self.kept[key].writes.clear()
        if gone:
            self.passed = (self.passed | goes_on) & kept
        # Those below what goes by retention go too: nothing of them is loose.
        for key in gone:
            del self.kept[key]

    def keep_latest(self) -> None:
        newest: dict[str, str] = {}
        for namespace, one in (*self.kept, *self.loose):
            newest[namespace] = max(newest.get(namespace, ""), one)
        marked = {key for key in (*self.tags.values(), *self.pins) if key in self.kept}
        marked |= self.below({one for _, one in marked})
        kept = {key: one for key, one in self.kept.items() if newest[key[0]] == key[1] or key in marked}
        # A loose one that is the newest may have taken the place of another.
        if (CHILD, newest.get(CHILD, "")) in self.loose:
            self.loose |= {key for key in self.kept.keys() - kept.keys() if key[0] == CHILD}
        self.kept = kept

    def forked(self, one: str) -> Kept:
        """A copy for a branch of the same thread: under the target's parent, without what its tasks wrote."""
        target = self.kept["", one]
        return replace(target, source="fork", writes={})

    def forked_away(self, one: str) -> "Line":
        """A new thread: the target, and what its tasks have done so far, unless a child took that up."""
        made, target = Line(), self.kept["", one]
        made.kept["", one] = replace(target, source="fork", writes={})
        if not self.is_taken_up(("", one)):
            made.kept["", one].writes.update(target.writes)
            for key in self.below({one}):
                made.kept[key] = replace(self.kept[key], writes=dict(self.kept[key].writes))
        return made


def _asks(kept: Kept) -> bool:
    """Whether a task has asked, and neither an answer nor a result of it is there."""
    channels: dict[str, set[str]] = {}
    for task, channel, _ in kept.writes.values():
        channels.setdefault(task, set()).add(channel)
    if any("__resume__" in written for written in channels.values()):
        return False
    return any(INTERRUPT in written and all(one.startswith("__") for one in written) for written in channels.values())
