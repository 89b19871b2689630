"""LangGraph's shallow savers, under their own names: each keeps the newest checkpoint of a namespace only.

A put is followed by a prune of its thread. What people tagged or pinned stays, and so does what a delta channel is
replayed from.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from ..core import sweeping
from ..core.requests import place_of
from .checkpointer import Checkpointer
from .server_savers import (
    AIOMySQLSaver,
    AsyncMySaver,
    AsyncPostgresSaver,
    AsyncRedisSaver,
    PostgresSaver,
    PyMySQLSaver,
    RedisSaver,
)

__all__ = [
    "AsyncShallowPostgresSaver",
    "AsyncShallowRedisSaver",
    "ShallowAIOMySQLSaver",
    "ShallowAsyncMySaver",
    "ShallowPostgresSaver",
    "ShallowPyMySQLSaver",
    "ShallowRedisSaver",
]


class _Shallow(Checkpointer):
    """The newest checkpoint of each namespace, and no parents. A config that names an older one means the newest."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        made = super().put(config, checkpoint, metadata, new_versions)
        thread_id = made["configurable"]["thread_id"]
        self._engine.run(lambda backend: sweeping.prune_to_latest(backend, self._tools, thread_id))
        return made

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        made = await super().aput(config, checkpoint, metadata, new_versions)
        thread_id = made["configurable"]["thread_id"]
        await self._engine.arun(lambda backend: sweeping.prune_to_latest(backend, self._tools, thread_id))
        return made

    def get_tuple(self, config: Any) -> Any:
        return _without_parent(super().get_tuple(_newest(config)))

    async def aget_tuple(self, config: Any) -> Any:
        return _without_parent(await super().aget_tuple(_newest(config)))

    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None) -> Iterator[Any]:
        for found in super().list(config, filter=filter, before=before, limit=limit):
            yield _without_parent(found)

    async def alist(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[Any]:
        async for found in super().alist(config, filter=filter, before=before, limit=limit):
            yield _without_parent(found)


class ShallowPostgresSaver(_Shallow, PostgresSaver):
    """As `langgraph.checkpoint.postgres.shallow.ShallowPostgresSaver`."""


class AsyncShallowPostgresSaver(_Shallow, AsyncPostgresSaver):
    """As `langgraph.checkpoint.postgres.shallow.AsyncShallowPostgresSaver`."""


class ShallowPyMySQLSaver(_Shallow, PyMySQLSaver):
    """As `langgraph.checkpoint.mysql.pymysql.ShallowPyMySQLSaver`."""


class ShallowAIOMySQLSaver(_Shallow, AIOMySQLSaver):
    """As `langgraph.checkpoint.mysql.aio.ShallowAIOMySQLSaver`."""


class ShallowAsyncMySaver(_Shallow, AsyncMySaver):
    """As `langgraph.checkpoint.mysql.asyncmy.ShallowAsyncMySaver`."""


class ShallowRedisSaver(_Shallow, RedisSaver):
    """As `langgraph.checkpoint.redis.ShallowRedisSaver`."""


class AsyncShallowRedisSaver(_Shallow, AsyncRedisSaver):
    """As `langgraph.checkpoint.redis.AsyncShallowRedisSaver`."""


def _newest(config: Any) -> Any:
    place = place_of(config)
    return {"configurable": {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}}


def _without_parent(found: Any) -> Any:
    return None if found is None else found._replace(parent_config=None)
