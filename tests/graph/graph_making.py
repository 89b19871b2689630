"""Small graphs, and a saver that notes what it is given, for the tests of the room's promises."""

from __future__ import annotations

import asyncio
import operator
import time
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

import threadline
from threadline import graph as room

START, END = room.START, room.END
CONFIG = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    l: Annotated[list, operator.add]
    a: int


def chain(saver: Any = None, *, options: dict[str, Any] | None = None, **nodes: Any) -> Any:
    builder = room.StateGraph(State)
    path = [START, *nodes]
    for name, action in nodes.items():
        settings = {}
        if isinstance(action, tuple):
            action, settings = action
        builder.add_node(name, action, **settings)
    for source, target in zip(path, nodes, strict=False):
        builder.add_edge(source, target)
    return builder.compile(checkpointer=saver, **(options or {}))


def writes(value: Any) -> Any:
    return lambda state: {"l": [value]}


class Recorder:
    """A saver that notes the order of puts, may be slow, and may fail on cue."""

    def __init__(self, seconds: float = 0.0, fails_at: int | None = None) -> None:
        self.inner = threadline.connect("memory://")
        self.seconds = seconds
        self.fails_at = fails_at
        self.log: list[tuple[str, str]] = []
        self.running = 0
        self.most = 0

    def _note(self, what: str, checkpoint_id: str) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        self.log.append((what, checkpoint_id))
        self.running -= 1
        if self.fails_at is not None and len(self.log) >= self.fails_at:
            raise OSError("the disk is gone")

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self._note("put", checkpoint["id"])
        return self.inner.put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self._note("writes", config["configurable"]["checkpoint_id"])
        self.inner.put_writes(config, writes, task_id, task_path)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self._note("put", checkpoint["id"])
        return await self.inner.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self._note("writes", config["configurable"]["checkpoint_id"])
        await self.inner.aput_writes(config, writes, task_id, task_path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def run(graph: Any, is_async: bool, *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(graph.ainvoke(*args, **kwargs)) if is_async else graph.invoke(*args, **kwargs)


halves = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
