"""The Records port in this process: a dict for each space, with its names in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any

from ...base.forks import renew_after_fork
from ...ports.records import (
    ABSENT,
    Expired,
    Record,
    RecordChange,
    RecordSpace,
    Scan,
    WithoutVectors,
    end_of_prefix,
    first_version,
    group_of,
    is_made,
    newest,
)

__all__ = ["HeldRecords", "MemoryRecords"]

_new: Any = tuple.__new__
_expires = itemgetter(6)
# The form of a value that is an object and no bytes; see core/records/contents.py.
_OBJECT = -1


class MemoryRecords(WithoutVectors):
    """Named records under one lock; nothing survives the process."""

    _lock: AbstractContextManager[Any]

    def __init__(self) -> None:
        renew_after_fork(self)
        self._spaces: dict[RecordSpace, _Space] = {space: _Space() for space in RecordSpace}

    def held(self, space: RecordSpace) -> HeldRecords:
        """The records of a space, for callers of this process."""
        return HeldRecords(self._spaces[space], self._lock)

    async def read_records(self, space: RecordSpace, names: Sequence[bytes]) -> list[Record | None]:
        held = self._spaces[space].records
        return [held.get(name) for name in names]

    async def write_records(self, changes: Sequence[RecordChange]) -> int | None:
        made: set[int] = set()
        with self._lock:
            for change in changes:
                if change.if_version is not None:
                    refused = _first_refused(self._spaces, changes, made)
                    if refused is not None:
                        return refused
                    break
            for position, (space, name, record, expected) in enumerate(changes):
                if position not in made:
                    first = first_version(record) if record is not None and expected == ABSENT else 1
                    self._spaces[space].make(name, record, first)
        return None

    async def touch_records(self, space: RecordSpace, names: Sequence[bytes], expires: float | None) -> None:
        with self._lock:
            held = self._spaces[space].records
            for name in names:
                if name in held:
                    held[name] = held[name]._replace(expires=expires)

    async def scan_records(self, space: RecordSpace, scan: Scan) -> list[Record]:
        with self._lock:
            if scan.newest_first:
                return newest(self._spaces[space].alive(scan.prefix, scan.now), scan)
            found: list[Record] = []
            for record in self._spaces[space].between(scan.prefix, scan.after):
                if is_alive(record, scan.now):
                    found.append(record)
                    if len(found) == scan.limit:
                        break
            return found

    async def record_prefixes(
        self, space: RecordSpace, prefix: bytes, depth: int, after: bytes, limit: int, now: float | None = None
    ) -> list[bytes]:
        groups: list[bytes] = []
        with self._lock:
            held, low = self._spaces[space], prefix
            while len(groups) < limit:
                first = next((one for one in held.between(prefix, low) if is_alive(one, now)), None)
                if first is None:
                    break
                group, low = group_of(first.name, depth)
                if group > after and (not groups or groups[-1] != group):
                    groups.append(group)
        return groups

    async def count_records(self, space: RecordSpace, prefix: bytes, now: float | None = None) -> int:
        with self._lock:
            return sum(1 for record in self._spaces[space].between(prefix) if is_alive(record, now))

    async def drop_records(self, space: RecordSpace, prefix: bytes) -> int:
        with self._lock:
            held = self._spaces[space]
            names = [record.name for record in held.between(prefix)]
            held.drop(names)
            return len(names)

    async def expire_records(self, space: RecordSpace, now: float, limit: int) -> list[Expired]:
        with self._lock:
            held = self._spaces[space]
            ends = [(one.expires or 0.0, one.name) for one in held.records.values() if not is_alive(one, now)]
            expired = sorted(Expired(name, expires) for expires, name in sorted(ends)[:limit])
            held.drop([one.name for one in expired])
            return expired

    async def rewrap_records(self, space: RecordSpace, pairs: Sequence[tuple[Record, Record]]) -> None:
        with self._lock:
            held = self._spaces[space].records
            for old, new in pairs:
                there = held.get(old.name)
                if there is not None and there[:3] == old[:3]:
                    held[old.name] = there._replace(form=new.form, value=new.value)

    async def index_records(self, keys: Sequence[str]) -> None:
        """Nothing: a scan looks at every record in any case."""


class HeldRecords:
    """Records that are got and put at once, because they are objects of this process."""

    __slots__ = ("_lock", "_space", "get")

    def __init__(self, space: _Space, lock: AbstractContextManager[Any]) -> None:
        self._space = space
        self._lock = lock
        # A dict's own method: reading needs no lock.
        self.get = space.records.get

    def put(self, puts: Iterable[tuple[bytes, bytes, float | None, Any, bytes]], now: float) -> None:
        """Put records, each by its name, packed content and seconds to live; others see all of them or none."""
        records, names = self._space.records, self._space.names
        with self._lock:
            for name, content, seconds, _, _ in puts:
                before = records.get(name)
                if before is None:
                    insort(names, name)
                    created, version = now, 1
                else:
                    created, version = before[4], before[7] + 1
                ends = now + seconds if seconds is not None else None
                # As the class of these tuples makes them, in a third of the time.
                records[name] = _new(Record, (name, _OBJECT, [content, None, None], None, created, now, ends, version))


class _Space:
    """The records of one space, and their names in order."""

    def __init__(self) -> None:
        self.records: dict[bytes, Record] = {}
        self.names: list[bytes] = []

    def make(self, name: bytes, record: Record | None, first: int = 1) -> None:
        """Put a record, which begins with a version where it is new, or with None delete it."""
        before = self.records.get(name)
        if record is None:
            if before is not None:
                self.drop([name])
        elif before is None:
            insort(self.names, name)
            self.records[name] = _new(Record, (*record[:7], first))
        else:
            _, form, value, searchable, _, updated, expires, _ = record
            self.records[name] = _new(
                Record, (name, form, value, searchable, before[4], updated, expires, before[7] + 1)
            )

    def drop(self, names: Sequence[bytes]) -> None:
        for name in names:
            del self.records[name]
        if len(names) > 8:
            self.names[:] = sorted(self.records)
            return
        for name in names:
            del self.names[bisect_left(self.names, name)]

    def alive(self, prefix: bytes, now: float | None) -> list[Record]:
        """The records below a prefix that have not expired, in the order of their names."""
        end = end_of_prefix(prefix)
        start = bisect_right(self.names, prefix)
        stop = bisect_left(self.names, end) if end is not None else len(self.names)
        found = list(map(self.records.__getitem__, self.names[start:stop]))
        if now is None or not any(map(_expires, found)):
            return found
        return [one for one in found if is_alive(one, now)]

    def between(self, prefix: bytes, after: bytes = b"") -> Iterator[Record]:
        """The records below a prefix and after a name, in order."""
        end = end_of_prefix(prefix)
        start = bisect_right(self.names, max(prefix, after))
        stop = bisect_left(self.names, end) if end is not None else len(self.names)
        for position in range(start, stop):
            yield self.records[self.names[position]]


def is_alive(record: Record, now: float | None) -> bool:
    """Whether a record has not expired by then."""
    return now is None or record.expires is None or record.expires > now


def _first_refused(spaces: dict[RecordSpace, _Space], changes: Sequence[RecordChange], made: set[int]) -> int | None:
    """The first change whose condition does not hold after those before it; notes those that were made before."""
    after: dict[tuple[RecordSpace, bytes], Record | None] = {}
    for position, (space, name, record, expected) in enumerate(changes):
        there = after[space, name] if (space, name) in after else spaces[space].records.get(name)
        version = there.version if there is not None else ABSENT
        if expected is not None and version != expected:
            if (there is None) != (record is None) or (there and record and not is_made(there, record, expected)):
                return position
            made.add(position)
        else:
            becomes = first_version(record) if record is not None and expected == ABSENT else version + 1
            after[space, name] = record._replace(version=becomes) if record is not None else None
    return None
