"""LangGraph's caches under their own names, on a Threadline cache: `compile(cache=Cache("sqlite:///agents.db"))`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.cache.base import BaseCache, FullKey, Namespace

from ..cache import ResultCache
from ..connect import make_cache_engine, refuse_ttl, split_options
from .checkpointer import make_tools

__all__ = ["Cache", "InMemoryCache", "RedisCache", "SqliteCache"]


class Cache(BaseCache[Any]):
    """Results of nodes for LangGraph's graphs, sync and async on one object. No pickle is involved."""

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        serde: Any = None,
        default_ttl: Any = None,
        **options: Any,
    ) -> None:
        if serde is not None:
            options["serde"] = serde
        refuse_ttl(options)
        engine_options, tool_options = split_options(options)
        engine = make_cache_engine(url, **engine_options)
        self.native = ResultCache(engine, make_tools(engine, **tool_options), ttl=default_ttl)
        super().__init__(serde=serde)

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        return self.native.get(keys)

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        return await self.native.aget(keys)

    def set(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        self.native.set(pairs)

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        await self.native.aset(pairs)

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        self.native.clear(namespaces)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        await self.native.aclear(namespaces)

    def sweep(self) -> int:
        """Delete what has expired; returns how many entries went."""
        return self.native.sweep()

    async def asweep(self) -> int:
        return await self.native.asweep()


class InMemoryCache(Cache):
    """Results in this process, as `langgraph.cache.memory.InMemoryCache`."""

    def __init__(self, *, serde: Any = None) -> None:
        super().__init__("memory://", serde=serde)


class SqliteCache(Cache):
    """Results in SQLite, as `langgraph.cache.sqlite.SqliteCache`."""

    def __init__(self, *, path: str, serde: Any = None) -> None:
        super().__init__(path, serde=serde)


class RedisCache(Cache):
    """Results in Redis, as `langgraph.cache.redis.RedisCache`."""

    def __init__(self, redis: Any, *, serde: Any = None, prefix: str = "langgraph:cache:") -> None:
        super().__init__(connection=redis, serde=serde, key_prefix=prefix.rstrip(":") or "threadline")
