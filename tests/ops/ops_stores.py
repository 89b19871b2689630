"""A store of each kind for the tests of this room, and what they put into it."""

from __future__ import annotations

import operator
import uuid
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from threadline.base.ids import new_id
from threadline.graph import START, StateGraph, interrupt

# A URL, and the options that keep its tests apart.
Place = tuple[str, dict[str, Any]]


class State(TypedDict):
    notes: Annotated[list[str], operator.add]


def put(saver: Any, thread: str = "t", value: Any = "hello", config: Any = None, step: int = 1, **metadata: Any) -> Any:
    """Put a checkpoint with one channel; returns its config."""
    checkpoint = {
        "v": 4,
        "id": new_id(),
        "ts": "2026-01-02T03:04:05.678901+00:00",
        "channel_values": {"notes": value},
        "channel_versions": {"notes": step},
        "versions_seen": {},
        "updated_channels": None,
    }
    config = config or {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    return saver.put(config, checkpoint, {"source": "loop", "step": step, **metadata}, {"notes": step})


def ask(saver: Any, thread: str, question: str = "shall it be published?") -> None:
    """Run a graph that ends with a question."""

    def review(state: State) -> Any:
        return {"notes": [interrupt(question)]}

    graph = StateGraph(State).add_node("review", review).add_edge(START, "review").compile(checkpointer=saver)
    graph.invoke({"notes": ["a draft"]}, {"configurable": {"thread_id": thread}})


def place_on(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Place:
    """An empty place on a backend."""
    if kind == "memory":
        return f"memory://{uuid.uuid4()}", {}
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'threads.db'}", {}
    if kind == "postgres":
        return request.getfixturevalue("postgres").url, {}
    found = request.getfixturevalue("mysql" if kind == "mysql" else "redis_server")
    if kind == "mysql":
        return found.url, {"table_prefix": found.table_prefix}
    return found.url, {"key_prefix": found.key_prefix}
