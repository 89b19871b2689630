"""`Store` and `Cache` for a URL: what an agent remembers beyond one thread. A program that only saves loads neither."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from .cache import ResultCache
from .connect import make_cache_engine, make_engine, make_tools, refuse_ttl, split_options
from .store import ItemStore

__all__ = ["Cache", "Store"]


class Store(ItemStore):
    """Items across threads, for a URL (`sqlite:///agents.db`, `postgresql://…`) or a SQLite file's path."""

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        index: Mapping[str, Any] | None = None,
        index_fields: Iterable[str] = (),
        default_ttl: Any = None,
        refresh_on_read: bool = True,
        keep_versions: Any = None,
        **options: Any,
    ) -> None:
        refuse_ttl(options)
        engine_options, tool_options = split_options(options)
        engine = make_engine(url, **engine_options)
        super().__init__(
            engine,
            make_tools(engine, **tool_options),
            index=index,
            index_fields=index_fields,
            default_ttl=default_ttl,
            refresh_on_read=refresh_on_read,
            keep_versions=keep_versions,
        )


class Cache(ResultCache):
    """Results of nodes, for a URL or a SQLite file's path."""

    def __init__(self, url: str | os.PathLike[str] | None = None, *, default_ttl: Any = None, **options: Any) -> None:
        refuse_ttl(options)
        engine_options, tool_options = split_options(options)
        engine = make_cache_engine(url, **engine_options)
        super().__init__(engine, make_tools(engine, **tool_options), ttl=default_ttl)
