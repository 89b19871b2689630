"""The checkpoints and writes of threads in this process, each thread by its serial.

KeyboardInterrupt can arrive between any two lines. Whatever it leaves, an id has its row, and the same call again adds
what is missing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ...ports import rules
from ...ports.checkpoints import CheckpointKey, CheckpointKeys, CheckpointRow, WriteRow

__all__ = ["ThreadRows"]

_Place = tuple[int, str, str]  # thread serial, namespace, checkpoint id


class ThreadRows:
    """Dicts that agree with each other; who calls holds the lock of the backend."""

    __slots__ = ("checkpoints", "children", "ids", "writes", "written")

    def __init__(self) -> None:
        # By thread, then namespace: the ids in order, so that the newest is the last.
        self.ids: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.checkpoints: dict[_Place, CheckpointRow] = {}
        # By thread, namespace and id: the ids that have it for their parent, so that nobody looks through all.
        self.children: dict[_Place, set[str]] = defaultdict(set)
        self.writes: dict[_Place, dict[tuple[str, int], WriteRow]] = defaultdict(dict)
        # By thread: which checkpoints have writes.
        self.written: dict[int, set[tuple[str, str]]] = defaultdict(set)

    def place(self, serial: int, row: CheckpointRow) -> None:
        """Put a checkpoint, in place of one of its id."""
        namespace, checkpoint_id, parent = row[:3]
        place = (serial, namespace, checkpoint_id)
        before = self.checkpoints.get(place)
        self.checkpoints[place] = row
        if before is not None and before.parent != parent:
            self._disown(serial, before)
        if parent is not None:
            self.children[serial, namespace, parent].add(checkpoint_id)
        ids = self.ids[serial][namespace]
        if not ids or ids[-1] < checkpoint_id:
            ids.append(checkpoint_id)
        elif checkpoint_id not in ids[(at := bisect_left(ids, checkpoint_id)) : at + 1]:
            ids.insert(at, checkpoint_id)

    def add_writes(self, serial: int, writes: Sequence[WriteRow]) -> None:
        """Those of one checkpoint are added in one step of the interpreter: an interrupt leaves all of them or none."""
        while writes:
            namespace, checkpoint_id = place = writes[0][:2]
            self.written[serial].add(place)
            held, others = self.writes[serial, namespace, checkpoint_id], []
            new: dict[tuple[str, int], WriteRow] = {}
            for write in writes:
                if write[1] != checkpoint_id or write[0] != namespace:
                    others.append(write)
                    continue
                key = write[2:4]
                if write[9] or (key not in new and key not in held):
                    new[key] = write
            held.update(new)
            writes = others

    def drop(self, serial: int) -> None:
        """Delete all of a thread."""
        for namespace, ids in self.ids.pop(serial, {}).items():
            for checkpoint_id in ids:
                self._disown(serial, self.checkpoints.pop((serial, namespace, checkpoint_id)))
        for key in self.written.pop(serial, ()):
            self.writes.pop((serial, *key), None)

    def remove(self, serial: int, keys: CheckpointKeys, settled: CheckpointKeys = ()) -> int:
        """Delete checkpoints with their writes, and of others only the writes; returns how many checkpoints went."""
        for key in (*keys, *settled):
            if self.writes.pop((serial, *key), None) is not None:
                self.written[serial].discard(tuple(key))
        there = [place for key in dict.fromkeys(keys) if (place := (serial, *key)) in self.checkpoints]
        gone: dict[str, set[str]] = {}
        for _, namespace, checkpoint_id in there:
            gone.setdefault(namespace, set()).add(checkpoint_id)
        for namespace, ids in gone.items():
            _drop_from(self.ids[serial][namespace], ids)
        for place in there:
            self._disown(serial, self.checkpoints.pop(place))
        return len(there)

    def _disown(self, serial: int, row: CheckpointRow) -> None:
        """A checkpoint is no child of its parent any more."""
        if row.parent is not None:
            above = (serial, row.namespace, row.parent)
            self.children[above].discard(row.id)
            if not self.children[above]:
                del self.children[above]

    def namespaces(self, serial: int) -> dict[str, list[str]]:
        """The ids of a thread's checkpoints, by namespace."""
        return self.ids.get(serial, {})

    def has(self, serial: int, checkpoint_id: str | None) -> bool:
        """Whether a thread has a checkpoint of this id in any namespace."""
        return any((serial, namespace, checkpoint_id) in self.checkpoints for namespace in self.namespaces(serial))

    def child_keys(self, serial: int, keys: Iterable[CheckpointKey]) -> Iterator[CheckpointKey]:
        """The checkpoints whose parent is one of these."""
        for namespace, parent in keys:
            for child in self.children.get((serial, namespace, parent), ()):
                row = self.checkpoints.get((serial, namespace, child))
                if row is not None and row.parent == parent:
                    yield CheckpointKey(namespace, child)

    def of_thread(self, serial: int) -> Iterator[CheckpointRow]:
        for namespace, ids in self.namespaces(serial).items():
            for checkpoint_id in ids:
                yield self.checkpoints[serial, namespace, checkpoint_id]

    def writes_of(self, serial: int) -> Iterator[WriteRow]:
        for namespace, checkpoint_id in self.written.get(serial, ()):
            yield from self.writes[serial, namespace, checkpoint_id].values()

    def writes_at(self, serial: int, namespace: str, checkpoint_id: str) -> list[WriteRow]:
        """The writes towards the successor of a checkpoint, in their order."""
        held = self.writes.get((serial, namespace, checkpoint_id))
        return sorted(held.values(), key=rules.write_order) if held else []


def _drop_from(ids: list[str], gone: set[str]) -> None:
    """Take ids out of an ordered list, touching only what lies between the first and the last of them."""
    start, stop = bisect_left(ids, min(gone)), bisect_right(ids, max(gone))
    ids[start:stop] = [one for one in ids[start:stop] if one not in gone]
