"""The state at one place, as people look at it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from ..backends.port import Backend, CheckpointKey
from ..chunks.lazy import LazyValues
from ..errors import Corrupt, NotFound
from ..model import CheckpointTuple, is_engine_channel
from .places import At, resolve
from .reading import read_one, to_tuple
from .requests import Place
from .timeline import config_of
from .tools import Tools

__all__ = ["Point", "State", "read_lazily", "read_state"]


@dataclass(frozen=True, slots=True)
class Point:
    """One checkpoint of a thread."""

    thread_id: str
    key: CheckpointKey

    @property
    def id(self) -> str:
        return self.key.id

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def config(self) -> dict[str, Any]:
        """The config that runs a graph from here."""
        return config_of(self.thread_id, self.key)


class State(LazyValues):
    """The values of a checkpoint by channel, each decoded when it is looked at.

    A channel that is damaged raises Corrupt when it is looked at; the others are not touched by that.
    """

    def __init__(self, values: dict[str, Any], config: dict[str, Any], metadata: dict[str, Any]) -> None:
        super().__init__(values)
        self.config = config
        self.metadata = metadata

    def _shown(self, name: str) -> str:
        try:
            return _short(self[name])
        except Corrupt:
            return "[damaged]"

    def __reduce__(self) -> Any:
        return (State, (dict(self), self.config, self.metadata))

    def _repr_html_(self) -> str:
        place = self.config["configurable"]
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td><pre>{escape(self._shown(name))}</pre></td></tr>" for name in self
        )
        return (
            f"<table><caption>{escape(place['thread_id'])} at {escape(place['checkpoint_id'])}</caption>{rows}</table>"
        )


async def read_state(backend: Backend, tools: Tools, thread_id: str, at: At, namespace: str) -> State:
    """The values at a place, without the engine's own channels."""
    key = await resolve(backend, thread_id, at, namespace)
    found = await read_lazily(backend, tools, thread_id, key)
    values = found.checkpoint["channel_values"]
    assert isinstance(values, LazyValues)
    shown = values.undecoded(lambda name: not is_engine_channel(name))
    return State(shown, config_of(thread_id, key), dict(found.metadata))


async def read_lazily(backend: Backend, tools: Tools, thread_id: str, key: CheckpointKey) -> CheckpointTuple:
    """A checkpoint without its writes, whose values are decoded when they are looked at; NotFound without it."""
    read = await read_one(backend, tools, Place(thread_id, *key), with_writes=False)
    if read is None:
        raise NotFound(f"thread {thread_id!r}: {key.id} was deleted meanwhile")
    return to_tuple(tools, read, lazy=True)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 2000 else text[:2000] + "…"
