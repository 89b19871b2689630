"""The state at one checkpoint, and the pending writes there: values by channel, writes by task, totals by task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from ...base.attempts import ATTEMPTS
from ...base.checkpoint import CheckpointTuple, Config, config_of, is_engine_channel
from ...base.damage import Damaged
from ...chunks.lazy import LazyValues
from ...errors import Corrupt, NotFound
from ...ports.checkpoints import Backend, CheckpointKey, Query, WriteRow
from ..context import Context
from ..get import read_one, read_writes, to_tuple
from ..paging import each_found
from ..requests import Place, check_moment, plain_text
from .revisions import At, resolve

__all__ = [
    "Point",
    "State",
    "TaskTotals",
    "Totals",
    "WriteInfo",
    "mark_at",
    "point_at",
    "read_lazily",
    "read_state",
    "task_name",
    "writes_at",
    "writes_by_task",
    "writes_told",
]


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
    def config(self) -> Config:
        """The config that runs a graph from here."""
        return config_of(self.thread_id, *self.key)


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


async def point_at(backend: Backend, thread_id: str, at: At, namespace: str) -> Point:
    """The checkpoint at a place."""
    return Point(thread_id, await resolve(backend, thread_id, at, namespace))


async def mark_at(
    backend: Backend, thread_id: str, at: At, namespace: str, mark: Callable[..., Awaitable[None]], *name: str
) -> Point:
    """Tag, pin or unpin (core/lifecycle.py) the checkpoint at a place."""
    point = await point_at(backend, thread_id, at, namespace)
    await mark(backend, thread_id, point.key, *name)
    return point


async def read_state(store: Context, thread_id: str, at: At, namespace: str) -> State:
    """The values at a place, without the engine's own channels."""
    key = await resolve(store, thread_id, at, namespace)
    found = await read_lazily(store, thread_id, key)
    values = found.checkpoint["channel_values"]
    assert isinstance(values, LazyValues)
    shown = values.undecoded(lambda name: not is_engine_channel(name))
    return State(shown, config_of(thread_id, *key), dict(found.metadata))


async def read_lazily(store: Context, thread_id: str, key: CheckpointKey) -> CheckpointTuple:
    """A checkpoint without its writes, whose values are decoded when they are looked at; NotFound without it."""
    read = await read_one(store, Place(thread_id, *key), with_writes=False)
    if read is None:
        raise NotFound(f"thread {thread_id!r}: {key.id} was deleted meanwhile")
    return to_tuple(store.tools, read, lazy=True)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 2000 else text[:2000] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteInfo:
    """One write of a task towards the next checkpoint."""

    task: str
    task_id: str
    task_path: str
    channel: str
    index: int
    value: Any
    # The encoded value, before sharing.
    value_bytes: int
    config: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTotals:
    """The writes of the tasks of one name."""

    task: str
    tasks: int
    writes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Writes by task, most bytes first, against the bytes of the checkpoints they led to."""

    by_task: tuple[TaskTotals, ...]
    write_bytes: int
    checkpoint_bytes: int


def task_name(write: WriteRow) -> str:
    """The node a write comes from, as its task path names it; the task's id where there is no path."""
    parts = [part.strip() for part in write.task_path.strip("~").split(",") if part.strip()]
    return parts[1] if len(parts) > 1 else write.task_id


async def writes_at(store: Context, thread_id: str, at: At, namespace: str) -> list[WriteInfo]:
    """The writes at one checkpoint, in the order a graph applies them; Corrupt where one is damaged."""
    found = await writes_told(store, thread_id, at, namespace)
    for one in found:
        if isinstance(one.value, Damaged):
            raise Corrupt(one.value.why)
    return found


async def writes_told(store: Context, thread_id: str, at: At, namespace: str) -> list[WriteInfo]:
    """The writes at one checkpoint for people: the value of one that cannot be read is `Damaged`."""
    key = await resolve(store, thread_id, at, namespace)
    for _ in range(ATTEMPTS):
        found = await store.find(thread_id, *key)
        if found is None:
            return []
        read = await read_writes(store, store.tools, thread_id, found.pool, found.writes)
        # What looks damaged may have been deleted or replaced after its row was read.
        is_damaged = any(isinstance(value, Damaged) for _, value, _ in read)
        if not is_damaged or await store.find(thread_id, *key) == found:
            break
    return [
        WriteInfo(
            task=task_name(write),
            task_id=write.task_id,
            task_path=write.task_path,
            channel=write.channel,
            index=write.idx,
            value=value,
            value_bytes=size,
            config=config_of(thread_id, *key),
        )
        for write, value, size in read
    ]


async def writes_by_task(
    backend: Backend, *, thread_id: str | None = None, prefix: str = "", since: float | None = None
) -> Totals:
    """Writes of all threads (or one, or those with a prefix) by the task that made them; no value is read."""
    prefix = plain_text(prefix, "prefix")
    check_moment(since, "since")
    tasks: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    counts: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    checkpoint_bytes = 0
    async for found in each_found(backend, Query(thread_id=thread_id, limit=256)):
        if not found.thread_id.startswith(prefix) or (since is not None and found.row.created < since):
            continue
        checkpoint_bytes += len(found.row.document) + len(found.row.metadata)
        for write in found.writes:
            name = task_name(write)
            tasks[name].add((found.thread_id, found.row.id, write.task_id))
            counts[name] += 1
            sizes[name] += len(write.data) + len(write.links)
    by_task = [
        TaskTotals(task=name, tasks=len(tasks[name]), writes=counts[name], stored_bytes=sizes[name]) for name in counts
    ]
    by_task.sort(key=lambda one: (-one.stored_bytes, one.task))
    return Totals(by_task=tuple(by_task), write_bytes=sum(sizes.values()), checkpoint_bytes=checkpoint_bytes)
