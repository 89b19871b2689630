"""Checkpoints as graphs make them, for promises and for tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ..base.checkpoint import Config
from ..base.ids import new_id
from .half import Half

__all__ = ["checkpoint", "everything", "id_of", "ids_of", "place", "put", "stored", "values_at"]

_versions = itertools.count(1)


def place(thread: str, checkpoint_id: str | None = None, namespace: str = "") -> Config:
    """The config that names a thread, or one checkpoint of it."""
    named = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": named if checkpoint_id is None else {**named, "checkpoint_id": checkpoint_id}}


def checkpoint(
    values: Mapping[str, Any], versions: Mapping[str, Any] | None = None, *, id: str | None = None, **more: Any
) -> dict[str, Any]:
    """A checkpoint with these values; every channel has version 1 unless it is told otherwise."""
    return {
        "v": 4,
        "id": id or new_id(),
        "ts": "2026-01-02T03:04:05.678901+00:00",
        "channel_values": dict(values),
        "channel_versions": dict.fromkeys(values, 1) if versions is None else dict(versions),
        "versions_seen": {},
        "updated_channels": None,
        **more,
    }


async def put(
    saver: Half, at: Config, values: Mapping[str, Any], *, id: str | None = None, ns: str | None = None, **metadata: Any
) -> Config:
    """Put a checkpoint after `at` in which every channel has a new version."""
    version = next(_versions)
    made = checkpoint(values, dict.fromkeys(values, version), id=id)
    if ns is not None:
        at = place(at["configurable"]["thread_id"], at["configurable"].get("checkpoint_id"), ns)
    found: Config = await saver.put(
        at, made, {"source": "loop", "step": 0, "parents": {}, **metadata}, made["channel_versions"]
    )
    return found


async def everything(saver: Half, config: Config | None, **options: Any) -> list[Any]:
    """All that a list yields."""
    return [found async for found in saver.list(config, **options)]


async def stored(saver: Half, config: Config) -> Any:
    """The checkpoint at a config, which must be there."""
    found = await saver.get_tuple(config)
    assert found is not None, f"nothing is stored at {config}"
    return found


async def values_at(saver: Half, config: Config) -> dict[str, Any]:
    """The channel values at a config, where there must be a checkpoint."""
    values: dict[str, Any] = (await stored(saver, config)).checkpoint["channel_values"]
    return values


def id_of(config: Config) -> str:
    """The checkpoint that a config names."""
    found: str = config["configurable"]["checkpoint_id"]
    return found


def ids_of(tuples: list[Any]) -> list[str]:
    """The checkpoints that a list found."""
    return [id_of(found.config) for found in tuples]
