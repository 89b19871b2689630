"""What a node can ask of the run it is part of.

`Runtime` is what a parameter called `runtime` is given. The task that runs is kept in a context variable, so that code
deep inside a node reaches it too: `get_runtime()`, `get_config()`, `interrupt()`. Threads and asyncio tasks that the
engine starts get a copy of the caller's context; what a node sets there does not leak.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from .running.tasks import Task

__all__ = [
    "BaseUser",
    "CURRENT_TASK",
    "ExecutionInfo",
    "RunControl",
    "Runtime",
    "ServerInfo",
    "current_task",
    "get_config",
    "get_runtime",
    "get_store",
    "get_stream_writer",
    "stream_message",
]

ContextT = TypeVar("ContextT")
T = TypeVar("T")

CURRENT_TASK: ContextVar[Task | None] = ContextVar("threadline_graph_task", default=None)


def _no_op(*_: Any) -> None:
    """Nothing."""


class BaseUser(Protocol):
    """Who called a server; servers bring their own class."""

    @property
    def identity(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server that a run is part of."""

    assistant_id: str
    graph_id: str
    user: BaseUser | None = None


@dataclass(frozen=True, slots=True)
class ExecutionInfo:
    """Where a task is: its checkpoint, its namespace, which attempt it is."""

    checkpoint_id: str
    checkpoint_ns: str
    task_id: str
    thread_id: str | None = None
    run_id: str | None = None
    node_attempt: int = 1
    node_first_attempt_time: float | None = None

    def patch(self, **overrides: Any) -> ExecutionInfo:
        """A copy with some fields replaced."""
        return replace(self, **overrides)


class RunControl:
    """A handle with which other code asks a run to stop before its next step."""

    __slots__ = ("_reason",)

    def __init__(self) -> None:
        self._reason: str | None = None

    def request_drain(self, reason: str = "shutdown") -> None:
        """Stop before the next step; the checkpoint is saved and GraphDrained raised."""
        self._reason = reason

    @property
    def drain_requested(self) -> bool:
        return self._reason is not None

    @property
    def drain_reason(self) -> str | None:
        return self._reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime(Generic[ContextT]):
    """The run as a node sees it."""

    context: ContextT = None  # type: ignore[assignment]
    store: Any = None
    stream_writer: Callable[[Any], None] = _no_op
    heartbeat: Callable[[], None] = _no_op
    previous: Any = None
    execution_info: ExecutionInfo | None = None
    server_info: ServerInfo | None = None
    control: RunControl | None = None
    _task: Any = field(default=None, repr=False, compare=False)

    def merge(self, other: Runtime[ContextT]) -> Runtime[ContextT]:
        """This one, with what the other one has set in its place."""
        return Runtime(
            context=other.context or self.context,
            store=other.store or self.store,
            stream_writer=other.stream_writer if other.stream_writer is not _no_op else self.stream_writer,
            heartbeat=other.heartbeat if other.heartbeat is not _no_op else self.heartbeat,
            previous=self.previous if other.previous is None else other.previous,
            execution_info=other.execution_info or self.execution_info,
            server_info=other.server_info or self.server_info,
            control=other.control or self.control,
            _task=other._task or self._task,
        )

    def override(self, **overrides: Any) -> Runtime[ContextT]:
        """A copy of this runtime with some fields replaced."""
        return replace(self, **overrides)

    def patch_execution_info(self, **overrides: Any) -> Runtime[ContextT]:
        """A copy of this runtime with some fields of `execution_info` replaced."""
        if self.execution_info is None:
            raise RuntimeError("this runtime has no execution_info: it belongs to no task")
        return replace(self, execution_info=self.execution_info.patch(**overrides))

    @property
    def drain_requested(self) -> bool:
        return self.control is not None and self.control.drain_requested

    @property
    def drain_reason(self) -> str | None:
        return self.control.drain_reason if self.control is not None else None

    async def awrite(self, chunk: Any) -> None:
        """Put a chunk on stream mode `custom`, after waiting for room if the stream has a `buffer`."""
        task = self._own_task()
        for outlet, _ in task.run.outlets:
            await outlet.room()
        self.stream_writer(chunk)

    def once(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """The result of a side effect that a task has only once: given back on retry, resume and after a crash.

        The result is durable when this returns. A crash between the effect and that moment repeats the effect:
        give `idempotency_key(name)` to the receiver, which can then tell a repetition.
        """
        from .running.once import once

        return once(self._own_task(), name, lambda: function(*args, **kwargs))  # type: ignore[no-any-return]

    async def aonce(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """The twin of `once` for functions that are awaited."""
        from .running.once import aonce

        return await aonce(self._own_task(), name, lambda: function(*args, **kwargs))  # type: ignore[no-any-return]

    def idempotency_key(self, name: str) -> str:
        """A key for the receiver of a side effect: equal over retries and resumes of the same task."""
        from .running.once import idempotency_key

        return idempotency_key(self._own_task(), name)

    def _own_task(self) -> Task:
        task: Task | None = self._task or CURRENT_TASK.get()
        if task is None:
            raise RuntimeError("this runtime belongs to no task: ask for a parameter called `runtime` in a node")
        return task


def current_task(asked: str) -> Task:
    """The task that runs here; RuntimeError outside of a graph."""
    task = CURRENT_TASK.get()
    if task is None:
        raise RuntimeError(f"Called {asked} outside of a runnable context")
    return task


def get_config() -> dict[str, Any]:
    """The config of the task that runs."""
    return current_task("get_config").config


def get_runtime(context_schema: type[ContextT] | None = None) -> Runtime[ContextT]:
    """The runtime of the task that runs."""
    return current_task("get_runtime").runtime


def stream_message(message: Any, state_key: str | None) -> None:
    """Show a message on stream mode `messages` at once, and write it to a key of the state."""
    from .showing.message_stream import show_message

    task = current_task("push_message")
    show_message(task, message)
    if state_key is not None:
        task.send([(state_key, message)])


def get_store() -> Any:
    """The store that the graph was compiled with."""
    return current_task("get_store").run.store


def get_stream_writer() -> Callable[[Any], None]:
    """A function that puts its argument on stream mode `custom`."""
    return current_task("get_stream_writer").stream_writer
