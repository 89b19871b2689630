"""Results of nodes that a cache gives back: which inputs are equal, where results are kept, what a hit does.

Keys are bytes that are equal in every process for equal inputs (`frozen_bytes`). Mappings and sets are sorted by the
bytes of their keys, since their order is no part of their value. Everything else is written as a checkpoint would store
it, so what can be a state can be a key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128_hexdigest

from .._base import encode
from ..constants import CACHE_NS_WRITES
from ..storing.saving import put_writes

if TYPE_CHECKING:
    from .loop import Run
    from .tasks import Task

__all__ = ["InMemoryCache", "cache_key_of", "frozen_bytes", "identity", "keep", "take_cached"]


def identity(function: Any) -> str:
    """The name under which the results of a function are kept."""
    target = getattr(function, "func", function)
    module = getattr(target, "__module__", None) or type(target).__module__
    return f"{module}.{getattr(target, '__qualname__', type(target).__qualname__)}"


def cache_key_of(run: Run, task: Task) -> tuple[tuple[str, ...], str] | None:
    """Where the result of a task is kept; None when it is not."""
    policy = task.node.cache
    if policy is None or run.settings.cache is None or task.node.action is None:
        return None
    key = policy.key_func(*task.input[0], **task.input[1]) if task.is_call else policy.key_func(task.input)
    digest = xxh3_128_hexdigest(key.encode() if isinstance(key, str) else key)
    return (CACHE_NS_WRITES, identity(task.node.action.source), task.name), digest


def frozen_bytes(value: Any) -> bytes:
    """The canonical bytes of a value; NotSerializable where it has no stored form."""
    if isinstance(value, Mapping):
        items = sorted((frozen_bytes(key), frozen_bytes(item)) for key, item in value.items())
        return _joined(b"m", (part for item in items for part in item))
    if isinstance(value, Set):
        return _joined(b"s", sorted(map(frozen_bytes, value)))
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return _joined(b"l" if type(value) is list else b"t", map(frozen_bytes, value))
    return _joined(b"v", (encode(value),))


def _joined(kind: bytes, parts: Iterable[bytes]) -> bytes:
    """The parts with their lengths, so that no two lists of parts give the same bytes."""
    return kind + b"".join(len(part).to_bytes(8, "big") + part for part in parts) + b"."


async def take_cached(run: Run, tasks: Sequence[Task]) -> list[Task]:
    """Give tasks their kept results, and store these as theirs; the tasks that got one."""
    cache = run.settings.cache
    wanted: dict[Any, Task] = {}
    for task in tasks:
        if not task.is_done and (key := cache_key_of(run, task)) is not None:
            task.cache_key = key
            wanted[key] = task
    if not wanted:
        return []
    found = await cache.aget(list(wanted)) if run.host.is_async else cache.get(list(wanted))
    hits = []
    for key, writes in found.items():
        task = wanted[key]
        task.writes = [tuple(write) for write in writes]
        task.is_done = task.is_given_back = True
        task.cache_key = None
        # Stored as if the task had run: the history shows its result, and a resume needs no cache.
        await put_writes(run, task, task.writes)
        hits.append(task)
    return hits


async def keep(run: Run, task: Task) -> None:
    """Keep the result of a task that succeeded."""
    policy = task.node.cache
    assert policy is not None
    pairs = {task.cache_key: (list(task.writes), policy.ttl)}
    cache = run.settings.cache
    if run.host.is_async:
        await cache.aset(pairs)
    else:
        cache.set(pairs)


class InMemoryCache:
    """A cache in this process: results by namespace and key, each for as long as its policy says."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[tuple[str, ...], str], tuple[Any, float | None]] = {}

    def get(self, keys: Sequence[tuple[tuple[str, ...], str]]) -> dict[tuple[tuple[str, ...], str], Any]:
        """The results that are kept under these keys and not too old."""
        now = time.time()
        with self._lock:
            found = {}
            for key in keys:
                value, until = self._kept.get(key, (None, 0.0))
                if until is None or until > now:
                    found[key] = value
                else:
                    self._kept.pop(key, None)
            return found

    async def aget(self, keys: Sequence[tuple[tuple[str, ...], str]]) -> dict[tuple[tuple[str, ...], str], Any]:
        return self.get(keys)

    def set(self, pairs: Mapping[tuple[tuple[str, ...], str], tuple[Any, int | None]]) -> None:
        """Keep results; each comes with its time to live in seconds, or None."""
        now = time.time()
        with self._lock:
            for key, (value, ttl) in pairs.items():
                self._kept[key] = (value, None if ttl is None else now + ttl)

    async def aset(self, pairs: Mapping[tuple[tuple[str, ...], str], tuple[Any, int | None]]) -> None:
        self.set(pairs)

    def clear(self, namespaces: Sequence[tuple[str, ...]] | None = None) -> None:
        """Forget the results of some namespaces, or all."""
        with self._lock:
            if namespaces is None:
                self._kept.clear()
            else:
                chosen = set(namespaces)
                self._kept = {key: value for key, value in self._kept.items() if key[0] not in chosen}

    async def aclear(self, namespaces: Sequence[tuple[str, ...]] | None = None) -> None:
        self.clear(namespaces)
