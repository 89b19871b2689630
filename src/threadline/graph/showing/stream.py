"""What a run shows while it goes on: the seven modes, and where their chunks go.

Rules: a chunk is made only if somebody listens to its mode. A graph inside a graph shows its chunks to its own
listener, and to those above that asked for subgraphs. Chunks of one listener are in the order in which they were made;
the listener's buffer is emptied by whoever consumes the stream.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from .._base import config_of
from ..building.plan import Keys
from ..constants import ERROR, INTERRUPT, NO_WRITES, RESERVED_WRITES, RESUME, RETURN, TAG_HIDDEN
from ..running.superstep import read_channels

if TYPE_CHECKING:
    import asyncio

    from ..running.loop import Run
    from ..running.tasks import Task
    from ..types import Interrupt

__all__ = [
    "Outlet",
    "emit",
    "is_finished",
    "note_values",
    "result_of",
    "show_checkpoint",
    "show_interrupts",
    "show_task",
    "show_updates",
    "show_values",
    "updates_of",
]

_FRAMEWORK_METADATA = frozenset(
    (
        "langgraph_step",
        "langgraph_node",
        "langgraph_triggers",
        "langgraph_path",
        "langgraph_checkpoint_ns",
        "thread_id",
        "checkpoint_id",
        "checkpoint_ns",
        "task_id",
        "run_id",
        "assistant_id",
        "graph_id",
        "ls_integration",
    )
)
Chunk = tuple[tuple[str, ...], str, Any]


class Outlet:
    """One listener: the modes it wants, whether it wants subgraphs, and the chunks it has not taken yet."""

    __slots__ = ("_limit", "_room", "_waiters", "chunks", "modes", "subgraphs", "wake")

    def __init__(self, modes: Iterable[str], *, subgraphs: bool = False) -> None:
        self.modes = frozenset(modes)
        self.subgraphs = subgraphs
        self.chunks: deque[Chunk] = deque()
        # Called after a chunk was added, so that a consumer that waits looks again.
        self.wake: Callable[[], None] | None = None
        self._limit: int | None = None
        self._room: threading.Condition | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def limit(self, chunks: int) -> None:
        """Let tasks on other threads wait while so many chunks are not taken."""
        self._limit = chunks
        self._room = threading.Condition()

    def put(self, namespace: tuple[str, ...], mode: str, payload: Any) -> None:
        """Add a chunk; under a limit a thread waits for room, unless it is the consumer's own."""
        if self._room is not None and mode in _PACED and threading.current_thread().name.startswith("threadline-task"):
            with self._room:
                while self._limit is not None and len(self.chunks) >= self._limit:
                    self._room.wait()
        self.chunks.append((namespace, mode, payload))
        if self.wake is not None:
            self.wake()

    async def room(self) -> None:
        """Wait for room, in a run that awaits."""
        import asyncio

        while self._limit is not None and len(self.chunks) >= self._limit:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def take(self) -> Chunk:
        """The next chunk."""
        chunk = self.chunks.popleft()
        self._tell()
        return chunk

    def open(self) -> None:
        """No limit any more."""
        self._limit = None
        self._tell()

    def _tell(self) -> None:
        """Those who wait for room look again."""
        if self._room is None:
            return
        with self._room:
            self._room.notify_all()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


# Modes of which a task can make any number of chunks before its step ends.
_PACED = frozenset(("custom", "messages"))


# -- showing


def emit(run: Run, mode: str, payload: Any) -> None:
    """Show a chunk to everybody who listens to its mode."""
    for outlet, namespace in run.outlets:
        if mode in outlet.modes:
            outlet.put(namespace, mode, payload)


def note_values(run: Run, updated: Iterable[str]) -> None:
    """Show the state if one of its output keys was written."""
    keys = run.output_keys
    if keys in updated if isinstance(keys, str) else not set(keys).isdisjoint(updated):
        show_values(run)


def show_values(run: Run) -> None:
    """The state is worth showing: after a step that wrote an output key, and when a run resumes."""
    run.has_output = True
    if run.graph.output_fades:
        run.kept_output = read_channels(run.shown_channels, run.output_keys)
    if "values" in run.modes:
        emit(run, "values", read_channels(run.shown_channels, run.output_keys))


def show_interrupts(run: Run, interrupts: tuple[Interrupt[Any], ...]) -> None:
    """Show questions, which are part of what the run returns."""
    run.interrupts += interrupts
    run.has_output = True
    emit(run, "updates", {INTERRUPT: interrupts})
    if "values" in run.modes:
        values = {} if isinstance(run.output_keys, str) else read_channels(run.state.channels, run.output_keys)
        emit(run, "values", {**values, INTERRUPT: interrupts})


def show_updates(task: Task, *, cached: bool = False) -> None:
    """Show what a task wrote; `cached` if it did not run, because its result is known."""
    run = task.run
    if "messages" in run.modes and not cached:
        from .message_stream import finished_messages

        finished_messages(run, task)
    if "updates" in run.modes and (chunk := updates_of(task, run.output_keys, cached=cached)) is not None:
        emit(run, "updates", chunk)


def show_task(task: Task, *, is_end: bool = False) -> None:
    """Show that a task starts, or ended."""
    run = task.run
    if run.wants_tasks:
        payload = _task_result_payload(task, run.stream_keys) if is_end else _task_payload(task)
        emit(run, "tasks", payload)
        if "debug" in run.modes:
            emit(run, "debug", _debug_chunk(task.step, "task_result" if is_end else "task", payload))


def show_checkpoint(run: Run, tasks: Sequence[Task]) -> None:
    """Show the state, and the tasks that are next."""
    if run.wants_checkpoints:
        payload = _checkpoint_payload(run, tasks)
        emit(run, "checkpoints", payload)
        if "debug" in run.modes:
            emit(run, "debug", _debug_chunk(run.step - 1, "checkpoint", payload))


# -- updates


def updates_of(task: Task, keys: Keys, *, cached: bool = False) -> dict[str, Any] | None:
    """The chunk of mode `updates` for a finished task; None where nothing is shown."""
    if task.node.is_hidden or not task.writes or any(name in (ERROR, INTERRUPT) for name, _ in task.writes):
        return None
    chunk = {task.name: _task_update(task.writes, keys)}
    if cached:
        chunk["__metadata__"] = {"cached": True}
    return chunk


def _task_update(writes: Sequence[tuple[str, Any]], keys: Keys) -> Any:
    returned = [value for name, value in writes if name == RETURN]
    if returned:
        return returned[-1] if len(returned) == 1 else returned
    if isinstance(keys, str):
        values = [value for name, value in writes if name == keys]
        return values[-1] if len(values) == 1 else values or None
    shown = [(name, value) for name, value in writes if name in keys]
    if not shown:
        return None
    names = [name for name, _ in shown]
    if len(set(names)) == len(names):
        return dict(shown)
    return [{name: value} for name, value in shown]


# -- tasks


def _task_payload(task: Task) -> dict[str, Any]:
    """The chunk of mode `tasks` for a task that starts."""
    payload = {"id": task.id, "name": task.name, "input": task.input, "triggers": task.triggers}
    config = task.run.config
    metadata = {
        key: value
        for key, value in {**config["metadata"], **task.node.metadata}.items()
        if key not in _FRAMEWORK_METADATA
    }
    tags = [*config["tags"], *(tag for tag in task.node.tags if tag != TAG_HIDDEN)]
    if tags:
        metadata["tags"] = tags
    if metadata:
        payload["metadata"] = metadata
    return payload


def _task_result_payload(task: Task, keys: Keys) -> dict[str, Any]:
    """The chunk of mode `tasks` for a task that ended."""
    return {
        "id": task.id,
        "name": task.name,
        "error": None if task.interrupts else task.error,
        "result": result_of(task.writes, keys),
        "interrupts": [
            {"value": one.value, "id": one.id, "response_schema": one.response_schema} for one in task.interrupts
        ],
    }


def result_of(writes: Iterable[tuple[str, Any]], keys: Keys) -> dict[str, Any]:
    """The output keys that a task wrote; a key written twice has a list of its writes."""
    names = (keys,) if isinstance(keys, str) else keys
    collected: dict[str, list[Any]] = {}
    for name, value in writes:
        if name in names or name == RETURN:
            collected.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else {"$writes": values} for name, values in collected.items()}


# -- checkpoints


def _checkpoint_payload(run: Run, tasks: Sequence[Task]) -> dict[str, Any]:
    """The chunk of mode `checkpoints`: the state and what would run next."""
    return {
        "config": _address(run, run.checkpoint_id),
        "parent_config": _address(run, run.parent_checkpoint_id) if run.parent_checkpoint_id else None,
        "values": read_channels(run.state.channels, run.stream_keys),
        "metadata": run.metadata,
        "next": [task.name for task in tasks],
        "tasks": [_checkpoint_task(run, task) for task in tasks],
    }


def _checkpoint_task(run: Run, task: Task) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": task.id, "name": task.name}
    writes = run.pending.get(task.id, ())
    error = next((value for name, value in writes if name == ERROR), None)
    interrupts = next((value for name, value in reversed(writes) if name == INTERRUPT), ())
    interrupted = tuple(
        {"value": one.value, "id": one.id, "response_schema": one.response_schema} for one in interrupts
    )
    if error is not None:
        return {**shown, "error": error, "state": None}
    if is_finished(writes):
        return {**shown, "result": result_of(writes, run.stream_keys), "interrupts": interrupted, "state": None}
    return {**shown, "interrupts": interrupted, "state": _subgraph_address(run, task)}


def _address(run: Run, checkpoint_id: str) -> dict[str, Any]:
    """The config that names a checkpoint of this graph."""
    found = config_of(run.thread_id, run.namespace, checkpoint_id or None)
    if run.namespace and checkpoint_id:
        found["configurable"]["checkpoint_map"] = {**run.parents, run.namespace: checkpoint_id}
    return found


def _subgraph_address(run: Run, task: Task) -> dict[str, Any] | None:
    """The config of the graph that a task runs, if its node has one."""
    if run.saver is None or not run.graph.subgraphs_of(task.name):
        return None
    return config_of(run.thread_id, task.namespace)


def is_finished(writes: Iterable[tuple[str, Any]]) -> bool:
    """Whether stored writes mean that their task ended: an output, a result, or the note that there is none."""
    return any(name not in _UNFINISHED for name, _ in writes)


_UNFINISHED = RESERVED_WRITES - {NO_WRITES, RETURN}
assert RESUME in _UNFINISHED


def _debug_chunk(step: int, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """A chunk of mode `debug`: another mode's, with its step and the time."""
    return {"step": step, "timestamp": datetime.now(timezone.utc).isoformat(), "type": kind, "payload": payload}
