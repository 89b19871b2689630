"""A bounded cache: what was used longest ago leaves when the bytes exceed the bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

from ..locks import renew_after_fork

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, within a bound in bytes; safe for any number of OS threads."""

    _lock: AbstractContextManager[Any]

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        renew_after_fork(self)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        with suppress(KeyError):  # another thread evicted it meanwhile; the value is still good
            self._entries.move_to_end(key)
        return entry[0]

    def get_many(self, keys: Iterable[K]) -> list[tuple[K, V]]:
        """The values there are for these keys."""
        held = self._entries
        if not held:
            return []
        found = []
        with self._lock:
            for key in keys:
                entry = held.get(key)
                if entry is not None:
                    held.move_to_end(key)
                    found.append((key, entry[0]))
        return found

    def put(self, key: K, value: V, cost_bytes: int) -> None:
        self.put_many([(key, value, cost_bytes)])

    def add_new(self, values: Mapping[K, V], cost_bytes: Callable[[V], int]) -> None:
        """Keep values that were not there when they were asked for; the quick way for many at once."""
        with self._lock:
            held = self._entries
            new = {key: (value, cost_bytes(value)) for key, value in values.items() if key not in held}
            added = sum([cost for _, cost in new.values()])
            if added > self.limit_bytes:
                return
            held.update(new)
            self.used_bytes += added
            while self.used_bytes > self.limit_bytes:
                _, (_, cost) = held.popitem(last=False)
                self.used_bytes -= cost

    def put_many(self, entries: Iterable[tuple[K, V, int]]) -> None:
        held, limit = self._entries, self.limit_bytes
        with self._lock:
            for key, value, cost_bytes in entries:
                replaced = held.pop(key, None)
                if replaced is not None:
                    self.used_bytes -= replaced[1]
                if cost_bytes > limit:
                    continue
                held[key] = (value, cost_bytes)
                self.used_bytes += cost_bytes
            while self.used_bytes > limit:
                _, (_, cost) = held.popitem(last=False)
                self.used_bytes -= cost

    def drop(self, key: K) -> None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self.used_bytes -= entry[1]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)
