"""The half of a run that faces the store: where it is, what it puts there and when.

Rules: under durability "exit" nothing is put before the end; then the last checkpoint and the writes of unfinished
tasks are. Otherwise every finished task and every step is put, in order (writer.py). A put names the checkpoint that
the store has as its parent. Values of untracked channels never leave the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from .._base import config_of, new_id
from ..constants import MISSING, NULL_TASK_ID, RESUME, TASKS
from ..running.ids import path_text
from ..running.superstep import GraphState, next_integer
from ..types import Send
from .writer import BlockingWriter, LoopWriter, SaverWriter, ThreadWriter, takes_task_path

if TYPE_CHECKING:
    from ..building.plan import Keys
    from ..compiled import Pregel
    from ..reading.replay import Origin
    from ..running.exclusive import Hold
    from ..running.hosts import Host
    from ..running.settings import RunSettings
    from ..running.tasks import Task

__all__ = ["Saving"]


class Saving:
    """Where a run is in its thread, and how it gets into the store."""

    def __init__(self, graph: Pregel, host: Host, settings: RunSettings) -> None:
        self.graph = graph
        self.plan = graph.plan
        self.host = host
        self.settings = settings
        self.config = settings.config
        self.parent = settings.parent
        self.saver = settings.saver
        self.store = settings.store
        self.context_value = settings.context
        self.control = settings.control
        self.server_info = settings.server_info
        self.thread_id = settings.thread_id
        self.run_id = settings.run_id
        self.namespace = settings.namespace
        # namespace -> checkpoint id, of every graph above.
        self.parents: Mapping[str, str] = settings.parents
        self.output_keys: Keys = settings.output_keys
        self.stream_keys: Keys = graph.stream_keys
        self.outlets = settings.outlets
        self.modes = frozenset(mode for outlet, _ in self.outlets for mode in outlet.modes)
        self.wants_tasks = bool(self.modes & {"tasks", "debug"})
        self.wants_checkpoints = self.saver is not None and bool(self.modes & {"checkpoints", "debug"})
        self.next_version = self.saver.get_next_version if self.saver is not None else next_integer
        self.puts_at_exit = self.saver is not None and settings.durability == "exit"
        self.writer: SaverWriter | None = None
        self.hold: Hold | None = None
        self._putting = threading.Lock()
        self._version_note = graph.version_note()
        self._begin()

    def _begin(self) -> None:
        """Nothing is loaded yet."""
        self.state = GraphState({}, {}, {})
        self.step = -1
        self.stop = 0
        self.checkpoint_id = ""
        # Whether the state is that of a checkpoint, stored or to be stored.
        self.has_checkpoint = False
        self.parent_checkpoint_id: str | None = None
        # The newest checkpoint that was handed to the saver: the next put names it as its parent.
        self.stored_id: str | None = None
        self.format_version = 4
        self.metadata: dict[str, Any] = {}
        self.updated: Sequence[str] | set[str] | None = None
        # Task id -> what is known of that task in this step.
        self.pending: dict[str, list[tuple[str, Any]]] = {}
        self.is_resuming = False
        self.is_replaying = False
        # Whether answers were given: then tasks whose questions got none show them again instead of running. A run that
        # just goes on (input None) runs them, since what they ask about may have changed, in a graph inside as well.
        self.keeps_questions = False
        # Answers by question id, and the one that names none.
        self.answers: Mapping[str, Any] = {}
        self.null_answer: Any = None
        # Whether the run was started with that answer: else it was found, left by a run that ended before its time.
        self.has_new_answer = False
        # Whether the step that was resumed is over: an answer was meant for that step, never for a question after it.
        self.is_past_answers = False
        self._task_config: dict[str, Any] | None = None
        # Time travel: where this run was before its fork, the checkpoint that the root replays, the places seen since.
        self.origin: Origin | None = None
        self.forks = False
        self.is_seeded = False
        self.replayed_id: str | None = None
        self.visited: set[str] = set()

    async def for_below(self, asking: Host, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do work of this run for a graph inside it, whose host may be of another kind or on another loop."""
        loop = getattr(self.host, "loop", None)
        if loop is None:
            await work()  # a blocking run: its writer may be called from any thread
            return
        import asyncio

        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if not is_here:
            future = asyncio.run_coroutine_threadsafe(work(), loop)
            if asking.is_async:
                await asyncio.wrap_future(future)
            else:
                future.result()
        elif asking.is_async:
            await work()
        # Else the graph inside blocks the loop that the work needs: nothing can be waited for.

    async def make_durable(self) -> None:
        """Store the checkpoint that this step starts from, and those of the graphs above, under any durability.

        Without them nobody would find what a task of the step stores: its name comes from them.
        """
        if self.parent is not None:
            above = self.parent.run
            await above.for_below(self.host, above.make_durable)
        if self.writer is None:
            return
        if self.puts_at_exit and self.has_checkpoint:
            with nullcontext() if self.host.is_async else self._putting:  # tasks of other threads may ask as well
                if self.stored_id != self.checkpoint_id:
                    await self._put()
        await self.writer.settle()

    async def forget_answer(self, asking: Host) -> None:
        """The answer that names no question was taken by a graph inside, which has stored it: nobody gets it again."""

        async def store() -> None:
            kept = [write for write in self.pending.get(NULL_TASK_ID, ()) if write[0] != RESUME]
            self.pending[NULL_TASK_ID] = [*kept, (RESUME, None)]
            if self.writer is not None and not self.puts_at_exit:
                await self.store_writes(NULL_TASK_ID, [(RESUME, None)])
                await self.writer.settle()

        await self.for_below(asking, store)

    def root(self) -> Saving:
        """The run that was called from outside of any graph."""
        return self if self.parent is None else self.parent.run.root()

    async def ask_saver(self, method: str, *args: Any) -> Any:
        """Call the half of the saver that fits."""
        if self.host.is_async:
            return await getattr(self.saver, "a" + method)(*args)
        return getattr(self.saver, method)(*args)

    # -- addresses

    def address(self, checkpoint_id: str | None) -> dict[str, Any]:
        """The config that names a checkpoint of this graph."""
        configurable: dict[str, Any] = {"thread_id": self.thread_id, "checkpoint_ns": self.namespace}
        if checkpoint_id:
            configurable["checkpoint_id"] = checkpoint_id
        if self.namespace and checkpoint_id:
            configurable["checkpoint_map"] = {**self.parents, self.namespace: checkpoint_id}
        return {"configurable": configurable}

    def subgraph_address(self, task: Task) -> dict[str, Any] | None:
        """The config of the graph that a task runs, if its node has one."""
        if self.saver is None or not self.graph.subgraphs_of(task.name):
            return None
        return config_of(self.thread_id, task.namespace)

    def put_config(self, checkpoint_id: str | None) -> dict[str, Any]:
        """The config that a put is made with: the user's keys, which savers merge into the metadata."""
        configurable = {**self.config["configurable"], "thread_id": self.thread_id, "checkpoint_ns": self.namespace}
        configurable.pop("checkpoint_id", None)
        if checkpoint_id:
            configurable["checkpoint_id"] = checkpoint_id
        return {"configurable": configurable, "metadata": self.config["metadata"], "tags": self.config["tags"]}

    def task_config(self, task: Task) -> dict[str, Any]:
        """The config of a task, without what belongs to the task alone."""
        base = self._task_config
        if base is None:
            base = self._task_config = {
                key: value for key, value in self.config.items() if key not in ("run_name", "configurable", "metadata")
            }
        config: dict[str, Any] = {
            **base,
            "metadata": {
                **self.config["metadata"],
                "langgraph_step": task.step,
                "langgraph_node": task.name,
                "langgraph_triggers": task.triggers,
                "langgraph_path": task.path,
                "langgraph_checkpoint_ns": task.namespace,
                **task.node.metadata,
            },
            "configurable": dict(self.config["configurable"]),
            "run_name": task.name,
        }
        if task.node.tags:
            config["tags"] = [*base["tags"], *(tag for tag in task.node.tags if tag not in base["tags"])]
        if self.thread_id is not None:
            config["configurable"]["thread_id"] = self.thread_id
        return config

    # -- puts

    def start_writer(self) -> None:
        """Choose how puts are made; called once, before the first one."""
        if self.saver is None or self.writer is not None:
            return
        background = self.settings.durability == "async"
        if self.host.is_async:
            self.writer = LoopWriter(self.saver, background=background)
        else:
            self.writer = ThreadWriter(self.saver) if background else BlockingWriter(self.saver)
        self._takes_path = takes_task_path(self.saver)

    async def put_writes(self, task: Task, writes: Sequence[tuple[str, Any]]) -> None:
        """Keep what a task did, in memory and in the store."""
        self.pending[task.id] = list(writes)
        if self.saver is not None and not self.puts_at_exit:
            await self.store_writes(task.id, writes, path_text(task.path), hold=self.ends_step(task))

    def ends_step(self, task: Task) -> bool:
        """Whether the checkpoint of the step follows at once: all other tasks ended, and this one succeeded."""
        return False

    async def store_writes(
        self, task_id: str, writes: Sequence[tuple[str, Any]], path: str = "", *, hold: bool = False
    ) -> None:
        """Hand writes to the saver, under the checkpoint that the step starts from."""
        assert self.writer is not None
        stored = self._storable(writes)
        if not stored:
            return
        config = config_of(self.thread_id, self.namespace, self.checkpoint_id)
        if self._takes_path:
            await self.writer.add("put_writes", config, stored, task_id, path, hold=hold)
        else:
            await self.writer.add("put_writes", config, stored, task_id, hold=hold)

    def _storable(self, writes: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """The writes without untracked values, of which only the last of a special channel counts."""
        untracked = self.plan.untracked
        if not untracked:
            return list(writes)
        stored = []
        for name, value in writes:
            if name in untracked:
                continue
            stored.append((name, _without(untracked, value) if name == TASKS else value))
        return stored

    async def save(self, source: str) -> None:
        """End a step: a new checkpoint of the state, and the count goes on."""
        self.parent_checkpoint_id = self.stored_id if self.saver is not None else None
        self.checkpoint_id = new_id(self.step)
        self.format_version = 4
        self.metadata = {
            "source": source,
            "step": self.step,
            "parents": dict(self.parents),
            **self._version_note,
        }
        self.has_checkpoint = True
        if self.saver is not None and not self.puts_at_exit:
            await self._put()
        self.step += 1

    async def _put(self) -> None:
        assert self.writer is not None
        state = self.state
        new_versions = {name: state.versions[name] for name in state.changed}
        state.changed = set()
        config = self.put_config(self.stored_id)
        self.stored_id = self.checkpoint_id
        await self.writer.add("put", config, self.checkpoint_of_now(), dict(self.metadata), new_versions)

    def checkpoint_of_now(self) -> dict[str, Any]:
        """The state as the saver's contract has it."""
        state = self.state
        channels = state.channels
        values = {}
        for name in state.versions:
            channel = channels.get(name)
            if channel is not None and (value := channel.checkpoint()) is not MISSING:
                values[name] = value
        if self.plan.untracked and TASKS in values:
            values[TASKS] = [_without(self.plan.untracked, send) for send in values[TASKS]]
        return {
            "v": 4,
            "ts": datetime.now(timezone.utc).isoformat(),
            "id": self.checkpoint_id,
            "channel_values": values,
            "channel_versions": dict(state.versions),
            "versions_seen": dict(state.seen),
            "updated_channels": None if self.updated is None else sorted(self.updated),
        }

    async def _put_at_exit(self) -> None:
        """Store the last checkpoint and what unfinished tasks of its step did."""
        if self.stored_id == self.checkpoint_id and not self.pending:
            return
        if self.stored_id != self.checkpoint_id and self.has_checkpoint:
            await self._put()
        for task_id, writes in self.pending.items():
            path = next((path_text(task.path) for task in self.all_tasks() if task.id == task_id), "")
            await self.store_writes(task_id, writes, path)

    def all_tasks(self) -> Sequence[Task]:
        """The tasks of the step, calls included."""
        return ()

    async def _finish(self, failure: BaseException | None) -> None:
        """End what still runs and make what was handed over durable, on every way out."""
        if not self.host.is_async:
            await self._leave(failure)
            return
        import asyncio

        leaving = asyncio.ensure_future(self._leave(failure))
        cancelled: BaseException | None = None
        while not leaving.done():
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException:
                break
        leaving.result()
        if cancelled is not None:
            raise cancelled

    async def _leave(self, failure: BaseException | None) -> None:
        try:
            await self.host.stop()
        finally:
            try:
                if self.writer is not None:
                    await self._flush(failure, self.writer)
            finally:
                if self.hold is not None:
                    await self.hold.leave()

    async def _flush(self, failure: BaseException | None, writer: SaverWriter) -> None:
        try:
            if self.puts_at_exit and self.should_put_at_exit(failure):
                await self._put_at_exit()
        finally:
            await writer.close()

    def should_put_at_exit(self, failure: BaseException | None) -> bool:
        """Under durability exit: a graph that another one calls is stored only when it fails or asks.

        One that a function resumed is stored as well: the function can ask after it, and then runs again from its first
        line, where the graph must not be found with the question that was answered.
        """
        if self.parent is None or self.graph.checkpointer is True or failure is not None:
            return True
        return self.stored_id is not None and not self.is_node()

    def is_node(self) -> bool:
        """Whether this graph is itself the node that runs it: then nothing of the node comes after it."""
        action = self.parent.node.action if self.parent is not None else None
        return action is not None and action.source is self.graph


def _without(untracked: frozenset[str], send: Any) -> Any:
    """A send without the untracked keys of its argument."""
    if not isinstance(send, Send) or not isinstance(send.arg, dict) or untracked.isdisjoint(send.arg):
        return send
    kept = {key: value for key, value in send.arg.items() if key not in untracked}
    return Send(send.node, kept, timeout=send.timeout)
