"""The adapter for LangGraph: the only part of Threadline that imports LangGraph or LangChain."""

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    from ..errors import MissingExtra

    raise MissingExtra("threadline.langgraph needs LangGraph: pip install 'threadline[langgraph]'") from error

from .checkpointer import Checkpointer
from .dropin import AsyncSqliteSaver, InMemorySaver, MemorySaver, SqliteSaver
from .server_savers import (
    AIOMySQLSaver,
    AsyncMySaver,
    AsyncPostgresSaver,
    AsyncRedisSaver,
    PostgresSaver,
    PyMySQLSaver,
    RedisSaver,
)
from .shallow import (
    AsyncShallowPostgresSaver,
    AsyncShallowRedisSaver,
    ShallowAIOMySQLSaver,
    ShallowAsyncMySaver,
    ShallowPostgresSaver,
    ShallowPyMySQLSaver,
    ShallowRedisSaver,
)
from .types import register_langgraph_types

__all__ = [
    "AIOMySQLSaver",
    "AsyncMySaver",
    "AsyncPostgresSaver",
    "AsyncRedisSaver",
    "AsyncShallowPostgresSaver",
    "AsyncShallowRedisSaver",
    "AsyncSqliteSaver",
    "Checkpointer",
    "InMemorySaver",
    "MemorySaver",
    "PostgresSaver",
    "PyMySQLSaver",
    "RedisSaver",
    "ShallowAIOMySQLSaver",
    "ShallowAsyncMySaver",
    "ShallowPostgresSaver",
    "ShallowPyMySQLSaver",
    "ShallowRedisSaver",
    "SqliteSaver",
]

register_langgraph_types()
