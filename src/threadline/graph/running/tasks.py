"""One task: a node to run once in a step, with its input, its place in history and what it did so far.

Rules: a task belongs to one step of one run. Its config and its runtime are built when somebody asks for them: most
nodes take neither. What it asked, called and wrote is counted anew in every attempt, so that a retry meets its earlier
answers and results in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..building.plan import Keys, Node
from ..constants import (
    CONFIG_KEY_CHECKPOINT_ID,
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_CHECKPOINTER,
    CONFIG_KEY_READ,
    CONFIG_KEY_RUNTIME,
    CONFIG_KEY_SCRATCHPAD,
    CONFIG_KEY_SEND,
    CONFIG_KEY_TASK_ID,
    MISSING,
)
from ..errors import InvalidUpdateError, NodeError
from ..runtime import ExecutionInfo, Runtime
from ..showing.stream import emit
from .superstep import read_channel

if TYPE_CHECKING:
    from ..channels import BaseChannel
    from ..policies import RetryPolicy, TimeoutPolicy
    from ..types import Interrupt
    from .loop import Run
    from .once import Effect

__all__ = ["NullTask", "Task"]


class NullTask:
    """Writes that no node made: of an input or a Command."""

    __slots__ = ("name", "path", "triggers", "writes")

    def __init__(self, name: str, writes: Iterable[tuple[str, Any]]) -> None:
        self.name = name
        self.path: tuple[Any, ...] = ()
        self.triggers: tuple[str, ...] = ()
        self.writes = writes


class Task:
    """A node to run once."""

    __slots__ = (
        "_config",
        "_runtime",
        "answered_by",
        "answers",
        "asked",
        "attempt",
        "beat",
        "cache_key",
        "caller",
        "calls",
        "earlier_failure",
        "effects",
        "error",
        "first_attempt_time",
        "future",
        "graphs",
        "id",
        "input",
        "interrupts",
        "is_call",
        "is_done",
        "is_given_back",
        "is_handled",
        "name",
        "namespace",
        "node",
        "node_error",
        "path",
        "questions",
        "retry",
        "run",
        "step",
        "timeout",
        "triggers",
        "waits",
        "writes",
    )

    def __init__(
        self,
        run: Run,
        node: Node,
        task_id: str,
        path: tuple[Any, ...],
        triggers: Sequence[str],
        given: Any,
        namespace: str,
    ) -> None:
        self.run = run
        self.node = node
        self.name = node.name
        self.id = task_id
        self.path = path
        self.triggers = triggers
        self.input = given
        self.namespace = namespace
        self.step = run.step
        self.writes: list[tuple[str, Any]] = []
        self.retry: Sequence[RetryPolicy] = node.retry
        self.timeout: TimeoutPolicy | None = node.timeout
        self._begin()

    def _begin(self) -> None:
        """Nothing was asked, called or done yet."""
        # The answers to this task's questions so far, in order.
        self.answers: list[Any] = []
        # The run above whose answer this task took, until that run knows that it is stored here.
        self.answered_by: Run | None = None
        self.asked = 0
        self.calls = 0
        self.graphs = 0
        # Questions raised in this attempt: a task that goes on after asking has swallowed one.
        self.questions: list[Interrupt[Any]] = []
        self.interrupts: Sequence[Interrupt[Any]] = ()
        self.error: BaseException | None = None
        self.node_error: NodeError | None = None
        self.attempt = 1
        self.first_attempt_time: float | None = None
        # The effects that began in this process, by name.
        self.effects: dict[str, Effect] = {}
        self.is_done = False
        self.is_call = False
        # Its writes were found in the store, or in the cache: it does not run.
        self.is_given_back = False
        # It asked before and got no new answer: its question is shown again and it does not run.
        self.waits = False
        self.cache_key: Any = None
        # The task that made this call, or whose error this one handles.
        self.caller: Task | None = None
        # The text of a failure before a crash, whose handler is still to run.
        self.earlier_failure: str | None = None
        # It failed, and its error handler takes over.
        self.is_handled = False
        self.future: Any = None
        # Called when the task shows a sign of life, for its idle timeout.
        self.beat: Callable[[], None] | None = None
        self._config: dict[str, Any] | None = None
        self._runtime: Runtime[Any] | None = None

    def begin_attempt(self, attempt: int) -> None:
        """Forget what the attempt before did; its late writes go nowhere."""
        self.writes = []
        self.asked = self.calls = self.graphs = 0
        self.questions = []
        self.attempt = attempt
        self._config = self._runtime = None
        if self.first_attempt_time is None:
            self.first_attempt_time = time.time()

    @property
    def is_repeated(self) -> bool:
        """Whether this is another attempt, of the task or of one that called it: what it calls may have begun."""
        return self.attempt > 1 or (self.caller is not None and self.caller.is_repeated)

    # -- what the node is given

    @property
    def config(self) -> dict[str, Any]:
        """The config of this task, as nodes and graphs called inside of it see it."""
        if self._config is None:
            self._config = self.shared_config()
            writes = self.writes
            self._config["configurable"].update(
                {
                    CONFIG_KEY_RUNTIME: self.runtime,
                    CONFIG_KEY_TASK_ID: self.id,
                    CONFIG_KEY_SEND: lambda more: self._send(writes, more),
                    CONFIG_KEY_READ: self.read,
                    CONFIG_KEY_CHECKPOINTER: self.run.saver,
                    CONFIG_KEY_CHECKPOINT_MAP: self.checkpoint_map(),
                    CONFIG_KEY_CHECKPOINT_ID: None,
                    CONFIG_KEY_CHECKPOINT_NS: self.namespace,
                    CONFIG_KEY_SCRATCHPAD: self,
                }
            )
            if self.run.observer is not None:
                self.run.observer.configure(self, self._config)
        return self._config

    def shared_config(self) -> dict[str, Any]:
        """The config of this task, without what belongs to the task alone."""
        run, given = self.run, self.run.config
        base = run.config_of_tasks
        if base is None:
            base = run.config_of_tasks = {
                key: value for key, value in given.items() if key not in ("run_name", "configurable", "metadata")
            }
        config: dict[str, Any] = {
            **base,
            "metadata": {
                **given["metadata"],
                "langgraph_step": self.step,
                "langgraph_node": self.name,
                "langgraph_triggers": self.triggers,
                "langgraph_path": self.path,
                "langgraph_checkpoint_ns": self.namespace,
                **self.node.metadata,
            },
            "configurable": dict(given["configurable"]),
            "run_name": self.name,
        }
        if self.node.tags:
            config["tags"] = [*base["tags"], *(tag for tag in self.node.tags if tag not in base["tags"])]
        if run.thread_id is not None:
            config["configurable"]["thread_id"] = run.thread_id
        return config

    def checkpoint_map(self) -> dict[str, str]:
        """namespace -> checkpoint id, of every graph and every calling task above a graph that this task runs."""
        found = {**self.run.parents, self.run.namespace: self.run.checkpoint_id}
        caller = self.caller
        while caller is not None:
            found[caller.namespace] = self.run.checkpoint_id
            caller = caller.caller
        return found

    @property
    def runtime(self) -> Runtime[Any]:
        if self._runtime is None:
            run = self.run
            self._runtime = Runtime(
                context=run.context_value,
                store=run.store,
                stream_writer=self.stream_writer,
                heartbeat=self.heartbeat,
                previous=run.previous,
                execution_info=ExecutionInfo(
                    run.checkpoint_id,
                    self.namespace,
                    self.id,
                    run.thread_id,
                    run.run_id,
                    self.attempt,
                    self.first_attempt_time,
                ),
                server_info=run.server_info,
                control=run.control,
                _task=self,
            )
        return self._runtime

    @property
    def store(self) -> Any:
        return self.run.store

    @property
    def previous(self) -> Any:
        return self.run.previous

    @property
    def stop(self) -> int:
        """The step that the recursion limit forbids."""
        return self.run.stop

    def stream_writer(self, chunk: Any) -> None:
        """Put a chunk on stream mode `custom`."""
        self.heartbeat_auto()
        emit(self.run, "custom", chunk)

    def heartbeat(self) -> None:
        """A sign of life, for the idle timeout."""
        if self.beat is not None:
            self.beat()

    def heartbeat_auto(self) -> None:
        """A sign of life that counts unless the policy takes only explicit ones."""
        if self.beat is not None and (self.timeout is None or self.timeout.refresh_on == "auto"):
            self.beat()

    def read(self, keys: Keys | list[str], fresh: bool = False) -> Any:
        """The state; with `fresh`, as it would be after what this task wrote so far."""
        names = (keys,) if isinstance(keys, str) else tuple(keys)
        channels = self._fresh_channels(names) if fresh and self.writes else self.run.state.channels
        if isinstance(keys, str):
            return read_channel(channels, keys, None)
        managed = self.run.plan.managed
        found: dict[str, Any] = {}
        for name in names:
            if name in managed:
                found[name] = managed[name].get(self)
            elif name in channels and (value := read_channel(channels, name)) is not MISSING:
                found[name] = value
        return found

    def _fresh_channels(self, names: Sequence[str]) -> Mapping[str, BaseChannel[Any, Any, Any]]:
        """The channels with this task's writes to these names applied, on copies."""
        channels = self.run.state.channels
        written: dict[str, list[Any]] = {}
        for name, value in self.writes:
            if name in names and name in channels:
                written.setdefault(name, []).append(value)
        if not written:
            return channels
        made = dict(channels)
        for name, values in written.items():
            made[name] = channels[name].copy()
            made[name].update(values)
        return made

    def send(self, more: Iterable[tuple[str, Any]]) -> None:
        """Add writes to what the task writes."""
        self._send(self.writes, more)

    def _send(self, writes: list[tuple[str, Any]], more: Iterable[tuple[str, Any]]) -> None:
        for name, value in more:
            if name in self.run.plan.managed:
                raise InvalidUpdateError(f"At key '{name}': a managed value cannot be written")
            writes.append((name, value))
        self.heartbeat_auto()

    # -- questions

    def take_null_answer(self) -> Any:
        """The one answer that names no question, if nobody took it yet; None otherwise."""
        answer, source = self.run.take_null_answer()
        if source is not None and source is not self.run:
            self.answered_by = source
        return answer
