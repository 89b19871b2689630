"""A bounded cache: what was used longest ago leaves when the bytes exceed the bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, within a bound in bytes; safe for any number of OS threads."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        try:
            self._entries.move_to_end(key)
        except KeyError:
            pass  # another thread evicted it meanwhile; the value is still good
        return entry[0]

    def put(self, key: K, value: V, cost_bytes: int) -> None:
        with self._lock:
            replaced = self._entries.pop(key, None)
            if replaced is not None:
                self.used_bytes -= replaced[1]
            if cost_bytes > self.limit_bytes:
                return
            self._entries[key] = (value, cost_bytes)
            self.used_bytes += cost_bytes
            while self.used_bytes > self.limit_bytes:
                _, (_, cost) = self._entries.popitem(last=False)
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
