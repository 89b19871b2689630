"""Putting values into a saver and getting them back, in as few words as a test needs."""

import itertools
from typing import Any

import threadline

_versions = itertools.count(1)


def put(saver: Any, values: dict[str, Any], *, thread: str = "thread", after: Any = None, **metadata: Any) -> Any:
    """Put a checkpoint in which every channel is new; its config."""
    version = next(_versions)
    checkpoint: Any = threadline.empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = dict.fromkeys(values, version)
    config = after or {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    return saver.put(config, checkpoint, {"source": "loop", "step": 1, **metadata}, checkpoint["channel_versions"])


def values_at(saver: Any, config: Any) -> dict[str, Any]:
    """The channel values of the checkpoint at a config, which must be there."""
    found = saver.get_tuple(config)
    assert found is not None
    return dict(found.checkpoint["channel_values"])


def in_thread(thread: str = "thread") -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def define(app: Any, cls: Any) -> Any:
    """Make a class one of a module's, in the place of the one that had its name."""
    cls.__module__, cls.__qualname__ = app.__name__, cls.__name__
    setattr(app, cls.__name__, cls)
    return cls
