"""`Checkpointer`: a saver that is a BaseCheckpointSaver."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from ..codec.envelope import load_compression
from ..codec.serializer import Serializer
from ..connect import make_engine, split_options
from ..connect import make_tools as make_plain_tools
from ..core.context import Tools
from ..errors import InvalidRequest
from ..ports.engine import Engine
from ..saver import Saver

__all__ = ["Checkpointer", "make_tools"]

C = TypeVar("C", bound="Checkpointer")


def make_tools(engine: Engine, **options: Any) -> Tools:
    """Codec, keys and caches; what cannot be rebuilt comes back as plain data, as from LangGraph's savers."""
    load_compression()
    if not isinstance(options.get("serde"), Serializer):
        options.setdefault("unknown_types", "plain")
    return make_plain_tools(engine, **options)


class Checkpointer(Saver, BaseCheckpointSaver[Any]):
    """Checkpoints of LangGraph's graphs, sync and async on one object.

        graph = builder.compile(checkpointer=Checkpointer("sqlite:///agents.db"))

    Takes the options of `threadline.connect` and has every method of its saver.
    """

    _tuple_type = CheckpointTuple

    def __init__(self, url: str | os.PathLike[str], **options: Any) -> None:
        engine_options, tool_options = split_options(options)
        engine = make_engine(url, **engine_options)
        self._start(engine, make_tools(engine, **tool_options))

    def _start(self, engine: Engine, tools: Tools) -> None:
        # BaseCheckpointSaver's own __init__ only sets `serde`, which Saver does.
        Saver.__init__(self, engine, tools)

    @classmethod
    def from_env(cls: type[C], variable: str = "THREADLINE_URL", **options: Any) -> C:
        """A checkpointer for the URL in an environment variable; never falls back to memory."""
        url = os.environ.get(variable, "").strip()
        if not url:
            raise InvalidRequest(
                f"the environment variable {variable} is not set; it names the store, such as sqlite:///agents.db"
            )
        return cls(url, **options)

    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None) -> Iterator[Any]:
        return super().list(config, filter=filter, before=before, limit=self._limit(limit))

    def alist(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[Any]:
        return super().alist(config, filter=filter, before=before, limit=self._limit(limit))

    def _limit(self, limit: int | None) -> int | None:
        """The limit of a list, as it is meant; LangGraph's savers differ in what a negative one means."""
        return limit
