"""The adapter for LangGraph: the only part of Threadline that imports LangGraph or LangChain.

`Checkpointer` is imported with it. The names of LangGraph's savers, stores and caches load when they are first used.
"""

from typing import TYPE_CHECKING, Any

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    from ..errors import MissingExtra

    raise MissingExtra("threadline.langgraph needs LangGraph: pip install 'threadline[langgraph]'") from error

from .checkpointer import Checkpointer
from .types import register_langgraph_types

if TYPE_CHECKING:
    from .cache import Cache, InMemoryCache, RedisCache, SqliteCache
    from .dropin import (
        AIOMySQLSaver,
        AsyncMySaver,
        AsyncPostgresSaver,
        AsyncRedisSaver,
        AsyncShallowPostgresSaver,
        AsyncShallowRedisSaver,
        AsyncSqliteSaver,
        InMemorySaver,
        MemorySaver,
        PostgresSaver,
        PyMySQLSaver,
        RedisSaver,
        ShallowAIOMySQLSaver,
        ShallowAsyncMySaver,
        ShallowPostgresSaver,
        ShallowPyMySQLSaver,
        ShallowRedisSaver,
        SqliteSaver,
    )
    from .store import (
        AsyncPostgresStore,
        AsyncRedisStore,
        AsyncSqliteStore,
        InMemoryStore,
        PostgresStore,
        RedisStore,
        SqliteStore,
        Store,
    )

__all__ = [
    "AIOMySQLSaver",
    "AsyncMySaver",
    "AsyncPostgresSaver",
    "AsyncPostgresStore",
    "AsyncRedisSaver",
    "AsyncRedisStore",
    "AsyncShallowPostgresSaver",
    "AsyncShallowRedisSaver",
    "AsyncSqliteSaver",
    "AsyncSqliteStore",
    "Cache",
    "Checkpointer",
    "InMemoryCache",
    "InMemorySaver",
    "InMemoryStore",
    "MemorySaver",
    "PostgresSaver",
    "PostgresStore",
    "PyMySQLSaver",
    "RedisCache",
    "RedisSaver",
    "RedisStore",
    "ShallowAIOMySQLSaver",
    "ShallowAsyncMySaver",
    "ShallowPostgresSaver",
    "ShallowPyMySQLSaver",
    "ShallowRedisSaver",
    "SqliteCache",
    "SqliteSaver",
    "SqliteStore",
    "Store",
]

# Everything that LangGraph calls a saver is in `dropin`.
_PLACES = {name: "dropin" for name in __all__} | {
    **dict.fromkeys(("Cache", "InMemoryCache", "RedisCache", "SqliteCache"), "cache"),
    **{name: "store" for name in __all__ if name.endswith("Store")},
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{place}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_langgraph_types()
