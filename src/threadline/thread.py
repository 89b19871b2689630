"""A handle on one thread."""

from __future__ import annotations

from typing import Any

from .backends.engine import Engine
from .core.history import ChannelVersion, channel_versions
from .core.requests import Place
from .core.tools import Tools
from .errors import InvalidRequest

__all__ = ["Thread"]


class Thread:
    """One thread of a store; it need not exist yet."""

    def __init__(self, engine: Engine, tools: Tools, thread_id: str) -> None:
        self._engine = engine
        self._tools = tools
        self.thread_id = thread_id

    def __repr__(self) -> str:
        return f"Thread({self.thread_id!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The config that runs a graph on this thread."""
        return {"configurable": {"thread_id": self.thread_id}}

    def versions(self, channel: str, *, limit: int | None = None, namespace: str = "") -> list[ChannelVersion]:
        """The values one channel had, newest first, each at the checkpoint that brought it."""
        asked = self._asked(channel, limit, namespace)
        return self._engine.run(lambda backend: channel_versions(backend, self._tools, *asked))

    async def aversions(self, channel: str, *, limit: int | None = None, namespace: str = "") -> list[ChannelVersion]:
        asked = self._asked(channel, limit, namespace)
        return await self._engine.arun(lambda backend: channel_versions(backend, self._tools, *asked))

    def _asked(self, channel: str, limit: int | None, namespace: str) -> tuple[Place, str, int | None]:
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit is at least 1, not {limit}")
        return Place(self.thread_id, namespace, None), channel, limit
