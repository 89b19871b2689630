"""A Cache: results of nodes for a time, sync and async on one object.

A cache that cannot be used, or an entry that cannot be decoded, is a miss with a warning: never a failed node. What the
caller does wrong raises: keys, times to live, a cache that was closed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from .base.printable import printable
from .core.context import UNSEALED, Tools
from .core.operations import Face
from .core.records.cached import (
    CACHE,
    Entry,
    FullKey,
    clear_entries,
    delete_entries,
    entry_at,
    get_entries,
    held_values,
    known_entry,
    stable_key,
    sweep_entries,
    value_of,
)
from .core.records.checks import check_namespace, check_span
from .core.records.contents import pack_result
from .core.records.single import Packed, put_packed
from .core.retention.policy import seconds_of
from .errors import Closed, InvalidRequest, ThreadlineError, Unavailable
from .ports.engine import Engine

__all__ = ["ResultCache"]

log = logging.getLogger("threadline.cache")
T = TypeVar("T")
C = TypeVar("C", bound="ResultCache")
# How long nodes go without a cache that could not be reached: a call that waits in vain for it takes some seconds.
_REST_SECONDS = 10.0


class ResultCache(Face):
    """Values by namespace and key, each for a time to live; see docs/cache.md."""

    def __init__(self, engine: Engine, tools: Tools, *, ttl: Any = None) -> None:
        super().__init__(engine, tools)
        self._ttl = _seconds(ttl)
        # When the storage is asked again that did not answer, on the monotonic clock.
        self._rests_until: float | None = None
        # The engine where its records are objects of this process, which are got and set without a coroutine.
        self._memory: Any = engine if tools.keeps_objects and hasattr(engine, "held_entries") else None
        # Reads one entry without a coroutine, where the engine can.
        reader = getattr(engine, "content_reader", None)
        self._content_now = reader(CACHE) if reader is not None else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._engine.url!r})"

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """The values of those of these (namespace, key) pairs that are cached."""
        entries, memory = _entries(keys), self._memory
        if memory is not None and (held := memory.held_entries) is not None and self._tools.is_open:
            return held_values(self._tools.codec, entries, held.get)
        if self._rests:
            return {}
        try:
            if self._content_now is not None and len(entries) == 1 and self._tools.is_open:
                content = self._content_now(entries[0][1])
                if content is None or content[0] in UNSEALED:
                    return value_of(self._tools, entries[0], content)
            return self._run(get_entries, entries)
        except ThreadlineError as error:
            return self._missed(error, {})

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        if self._memory is not None:
            return self.get(keys)
        entries = _entries(keys)
        if self._rests:
            return {}
        try:
            return await self._arun(get_entries, entries)
        except ThreadlineError as error:
            return self._missed(error, {})

    def set(self, pairs: Mapping[FullKey, tuple[Any, Any]]) -> None:
        """Keep values, each with its time to live: seconds, a timedelta, text such as `1h`, or None for the default."""
        packed, memory = self._packed(pairs), self._memory
        if memory is not None and (held := memory.held_entries) is not None and self._tools.is_open:
            held.put(packed, time.time())
        elif packed and not self._rests:
            try:
                self._engine.run(put_packed(self._tools, packed, CACHE))
            except ThreadlineError as error:
                self._missed(error, None)

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, Any]]) -> None:
        if self._memory is not None:
            self.set(pairs)
            return
        packed = self._packed(pairs)
        if packed and not self._rests:
            try:
                await self._engine.awrite(put_packed(self._tools, packed, CACHE))
            except ThreadlineError as error:
                self._missed(error, None)

    def delete(self, keys: Sequence[FullKey]) -> None:
        """Forget these entries."""
        entries = _entries(keys)
        self._run(lambda store: delete_entries(store, entries))

    async def adelete(self, keys: Sequence[FullKey]) -> None:
        entries = _entries(keys)
        await self._arun(lambda store: delete_entries(store, entries))

    def clear(self, namespaces: Sequence[Sequence[str]] | None = None) -> int:
        """Forget all entries of these namespaces, or of all; returns how many."""
        named = _namespaces(namespaces)
        return self._run(lambda store: clear_entries(store, named))

    async def aclear(self, namespaces: Sequence[Sequence[str]] | None = None) -> int:
        named = _namespaces(namespaces)
        return await self._arun(lambda store: clear_entries(store, named))

    def key(self, *args: Any, **named: Any) -> str:
        """A key for these arguments: equal for equal arguments, in every process."""
        return stable_key(self._tools.codec, *args, **named)

    def sweep(self) -> int:
        """Delete what has expired; returns how many entries went."""
        return self._run(lambda store: sweep_entries(store, time.time()))

    async def asweep(self) -> int:
        return await self._arun(lambda store: sweep_entries(store, time.time()))

    def close(self) -> None:
        """Close the connections."""
        self._engine.close()

    async def aclose(self) -> None:
        await self._engine.aclose()

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _packed(self, pairs: Mapping[FullKey, tuple[Any, Any]]) -> list[Packed]:
        """Values as bytes, on the calling thread; one that cannot be stored is left out with a warning."""
        made: list[Packed] = []
        for key, pair in pairs.items():
            named, name, bound = known_entry(*key) if type(key) is tuple and len(key) == 2 else _entry(key)
            if type(pair) is not tuple or len(pair) != 2:
                _require_pair(pair, "set takes a pair of value and time to live for each key, such as (value, None)")
            value, ttl = pair
            seconds = (
                self._ttl if ttl is None else float(ttl) if type(ttl) is int and 0 < ttl < 10**9 else _seconds(ttl)
            )
            try:
                made.append((name, pack_result(self._tools.codec, value), seconds, None, bound))
            except TypeError as error:
                log.warning("the result for %r cannot be stored and is not cached: %s", named, printable(error))
        return made

    @property
    def _rests(self) -> bool:
        """Whether the storage did not answer a moment ago, and nodes do not wait for it again."""
        return self._rests_until is not None and time.monotonic() < self._rests_until

    def _missed(self, error: ThreadlineError, otherwise: T) -> T:
        """Tell why a node runs without the cache. A call that asks in vain takes seconds, so the next ones do not."""
        if isinstance(error, Closed):
            raise error
        if isinstance(error, Unavailable):
            self._rests_until = time.monotonic() + _REST_SECONDS
            log.warning(
                "the cache cannot be reached, and nodes run without it for %.0f s: %s", _REST_SECONDS, printable(error)
            )
        else:
            log.warning("the cache cannot be used, and the node runs without it: %s", printable(error))
        return otherwise


def _entries(keys: Sequence[FullKey]) -> list[Entry]:
    try:
        return [known_entry(namespace, key) for namespace, key in keys]
    except (TypeError, ValueError):  # lists instead of tuples, or what is no key at all
        return [_entry(key) for key in keys]


def _entry(key: Any) -> Entry:
    if type(key) is not tuple or len(key) != 2:
        _require_pair(key, "a key of a cache is a pair of namespace and key, such as (('summaries',), 'k')")
    return entry_at(key[0], key[1])


def _seconds(ttl: Any) -> float | None:
    if isinstance(ttl, (int, float)) and ttl < 0:
        return 0.0  # over at once, as LangGraph's caches take it
    seconds = seconds_of(ttl, "ttl")
    return check_span(seconds) if seconds is not None else None


def _require_pair(value: Any, sentence: str) -> None:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidRequest(f"{sentence}, not a {type(value).__name__}")


def _namespaces(namespaces: Sequence[Sequence[str]] | None) -> list[tuple[str, ...]] | None:
    if namespaces is None:
        return None
    if isinstance(namespaces, str):
        raise InvalidRequest("clear takes a list of namespaces, each a tuple of texts")
    return [check_namespace(one, may_be_empty=True) for one in namespaces]
