"""A bounded cache in two generations: what was not used for a generation leaves when the bytes exceed the bound.

A generation holds half of the bound. When the young one is full it becomes the old one, and what was old
is forgotten unless it was used meanwhile. A hit among the young costs one lookup and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from .forks import renew_after_fork

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, within a bound in bytes; safe for any number of OS threads."""

    _lock: AbstractContextManager[Any]
    _young_bytes: int
    _old_bytes: int

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        renew_after_fork(self)
        self.clear()

    @property
    def used_bytes(self) -> int:
        return self._young_bytes + self._old_bytes

    def get(self, key: K) -> V | None:
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
            if entry is None:
                return None
            self._promote([(key, entry)])
        return entry[0]

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """The values there are for these keys."""
        # Without a container for each value: thousands of them would set the garbage collector to work.
        young, old = self._young, self._old
        found = {key: young[key][0] for key in keys if key in young}
        if old:
            used = [(key, old[key]) for key in keys if key in old]
            found.update({key: entry[0] for key, entry in used})
            if used:
                self._promote(used)
        return found

    def put(self, key: K, value: V, cost_bytes: int) -> None:
        with self._lock:
            young, old = self._young, self._old
            held = young.get(key)
            young_bytes = self._young_bytes + cost_bytes - (held[1] if held is not None else 0)
            # As `_add` has it, where nothing has to leave.
            if young_bytes <= self.limit_bytes // 2 >= self._old_bytes and not (old and key in old):
                young[key] = (value, cost_bytes)
                self._young_bytes = young_bytes
            else:
                self._add(key, (value, cost_bytes))

    def put_many(self, entries: Iterable[tuple[K, V, int]]) -> None:
        with self._lock:
            for key, value, cost_bytes in entries:
                self._add(key, (value, cost_bytes))

    def add_new(self, values: Mapping[K, V], cost_bytes: Callable[[V], int]) -> None:
        """Keep values that were not there when they were asked for."""
        entries = {key: (value, cost_bytes(value)) for key, value in values.items()}
        total = sum([entry[1] for entry in entries.values()])
        with self._lock:
            if self._young_bytes + total <= self.limit_bytes // 2 and not self._old:
                known = entries.keys() & self._young.keys()
                self._young_bytes += total - sum([self._young[key][1] for key in known])
                self._young.update(entries)
            else:
                for key, entry in entries.items():
                    self._add(key, entry)

    def drop(self, key: K) -> None:
        with self._lock:
            self._take_out(key)

    def clear(self) -> None:
        with self._lock:
            self._young: dict[K, tuple[V, int]] = {}
            self._old: dict[K, tuple[V, int]] = {}
            self._young_bytes = self._old_bytes = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def _promote(self, used: list[tuple[K, tuple[V, int]]]) -> None:
        """Old entries that were used are young again, unless another thread has replaced them meanwhile."""
        with self._lock:
            self._add_old(used)

    def _add_old(self, used: list[tuple[K, tuple[V, int]]]) -> None:
        for key, entry in used:
            if self._old.get(key) is entry:
                self._add(key, entry)

    def _add(self, key: K, entry: tuple[V, int]) -> None:
        if key in self._young or key in self._old:
            self._take_out(key)
        cost = entry[1]
        if cost > self.limit_bytes:
            return
        if self._young and self._young_bytes + cost > self.limit_bytes // 2:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        self._young[key] = entry
        self._young_bytes += cost
        if self._young_bytes + self._old_bytes > self.limit_bytes:  # one entry is larger than a generation
            self._old, self._old_bytes = {}, 0

    def _take_out(self, key: K) -> None:
        entry = self._young.pop(key, None)
        if entry is not None:
            self._young_bytes -= entry[1]
            return
        entry = self._old.pop(key, None)
        if entry is not None:
            self._old_bytes -= entry[1]
