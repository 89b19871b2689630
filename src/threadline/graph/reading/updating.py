"""Writing a thread from outside: `update_state` runs the writers of a node on given values.

Rules: an update is a step of its own. It ends in a new checkpoint whose parent is the one that was addressed, and
what it wrote is kept as a pending write of that parent if the parent was the head, so that history shows results. The
edges and branches of the node fire as if the node had returned the values.

    as_node `__end__`, values None    all pending tasks are done: finished ones are applied, the others dropped
    as_node `__input__`               as if the values were a new input
    as_node `__copy__`                a sibling of the addressed checkpoint; a list of updates is applied to the copy
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from .._base import new_id
from ..building.nearest import nearest
from ..constants import COPY, END, INPUT, INTERRUPT, MISSING, NULL_TASK_ID, RESUME
from ..errors import InvalidUpdateError
from ..running.exclusive import take
from ..running.ids import path_text
from ..running.inputs import input_writes
from ..running.superstep import GraphState, apply_writes
from ..running.tasks import NullTask, Task
from ..showing.stream import is_finished
from ..storing.saving import ask, checkpoint_of_now
from ..types import StateUpdate
from .state import addressed, reader, restored

if TYPE_CHECKING:
    from ..config import Config
    from ..running.loop import Run

__all__ = ["bulk_update"]


async def bulk_update(
    graph: Any, config: Config, supersteps: Sequence[Sequence[StateUpdate]], is_async: bool
) -> dict[str, Any]:
    """Apply updates step by step; the config of the last new checkpoint."""
    if not supersteps:
        raise ValueError("No supersteps provided")
    if any(not updates for updates in supersteps):
        raise ValueError("No updates provided")
    is_exclusive = graph.exclusive
    graph, saver, address = addressed(graph, config)
    hold = None
    if is_exclusive:
        hold = await take(
            saver, str(address["thread_id"]), branches=bool(address.get("checkpoint_id")), is_async=is_async
        )
    try:
        update = _Update(graph, saver if hold is None else hold.saver, dict(address), config, is_async)
        for updates in supersteps:
            await update.apply([StateUpdate(*one) for one in updates])
        return update.config()
    finally:
        if hold is not None:
            await hold.leave()


class _Update:
    """The thread that is updated, from checkpoint to checkpoint."""

    def __init__(self, graph: Any, saver: Any, address: dict[str, Any], config: Config, is_async: bool) -> None:
        self.graph = graph
        self.saver = saver
        self.address = address
        self.given = config
        self.is_async = is_async
        self.saved: Any = None
        self.run: Run
        self.is_head = True

    async def apply(self, updates: Sequence[StateUpdate]) -> None:
        """One step of updates."""
        await self._load()
        first = updates[0]
        if len(updates) > 1:
            if any(one.as_node in (END, INPUT, COPY) or one.as_node is None for one in updates):
                raise InvalidUpdateError(
                    "as_node is required when several updates are applied together: name the node of each, and leave "
                    "__end__, __input__ and __copy__ to updates of their own"
                )
        elif first.as_node == COPY:
            await self._copy(first.values)
            return
        elif first.as_node == END:
            await self._end(first.values)
            return
        elif first.as_node == INPUT:
            await self._input(first.values)
            return
        await self._write(updates)

    async def _load(self) -> None:
        named = {
            key: self.address[key]
            for key in ("thread_id", "checkpoint_ns", "checkpoint_id")
            if self.address.get(key) is not None
        }
        self.saved = await ask(self.saver, self.is_async, "get_tuple", {"configurable": named})
        self.is_head = True
        if self.saved is not None and named.get("checkpoint_id") is not None:
            head = {key: value for key, value in named.items() if key != "checkpoint_id"}
            newest = await ask(self.saver, self.is_async, "get_tuple", {"configurable": head})
            self.is_head = newest is None or newest.checkpoint["id"] == self.saved.checkpoint["id"]
        self.run = run = reader(self.graph, self.saver, self.address)
        if self.saved is not None:
            await restored(run, self.saved, is_async=self.is_async)
            run.parents = dict(run.metadata.get("parents") or {})
        else:
            run.state = GraphState(run.plan.start_channels({}, MISSING), {}, {})
            run.checkpoint_id = new_id(-2)
            run.step = 0

    # -- the kinds of updates

    async def _write(self, updates: Sequence[StateUpdate]) -> None:
        run = self.run
        chosen = [one if one.as_node is not None else one._replace(as_node=self._guess()) for one in updates]
        for one in chosen:
            if one.as_node not in run.plan.nodes:
                known = nearest(str(one.as_node), run.plan.nodes, "nodes")
                raise InvalidUpdateError(f"Node {one.as_node} does not exist{known}")
        pending = self._pending_tasks()
        tasks = []
        for index, one in enumerate(chosen):
            task_id = one.task_id or self._task_id(pending, str(one.as_node))
            tasks.append(await self._task(one, task_id, index))
        if self.saved is not None and self.is_head:
            for task in tasks:
                await self._store_writes(task.writes, task.id, path_text(task.path))
        self._check(tasks)
        apply_writes(run.plan, run.state, tasks, run.next_version)
        await self._save("update")

    async def _end(self, values: Any) -> None:
        if values is not None:
            raise InvalidUpdateError("Cannot apply updates when clearing state: values must be None with as_node END")
        run = self.run
        if self.saved is not None:
            tasks = run.prepare_tasks()
            for task in tasks:
                writes = run.pending.get(task.id, ())
                task.writes = list(writes) if is_finished(writes) else []
            self._apply_null()
            apply_writes(run.plan, run.state, tasks, run.next_version)
        await self._save("update")

    async def _input(self, values: Any) -> None:
        run = self.run
        writes = input_writes(run.graph.input_keys, values) if values is not None else []
        if not writes:
            raise InvalidUpdateError("Received no input: values are the input with as_node __input__")
        if self.saved is not None and self.is_head:
            await self._store_writes(writes, str(uuid5(UUID(run.checkpoint_id), INPUT)), "")
        apply_writes(run.plan, run.state, [NullTask(INPUT, writes)], run.next_version)
        if self.saved is None:
            run.step = -1
        await self._save("input")

    async def _copy(self, values: Any) -> None:
        if self.saved is None:
            raise InvalidUpdateError("Cannot copy a non-existent checkpoint")
        run = self.run
        parent = self.saved.parent_config["configurable"].get("checkpoint_id") if self.saved.parent_config else None
        run.state.changed = set()
        await self._save("fork", parent=parent)
        if values is None:
            return
        updates = [StateUpdate(*one) if isinstance(one, (tuple, list)) else one for one in values]
        await self.apply(updates)

    # -- parts

    def _guess(self) -> str:
        """The node that an update without a name is of: the one that ran last."""
        run = self.run
        if len(run.plan.nodes) == 1:
            return next(iter(run.plan.nodes))
        if self.saved is None:
            return _input_node(run)
        seen = {
            name: max(versions.values())
            for name, versions in run.state.seen.items()
            if versions and name != INTERRUPT and name in run.plan.nodes
        }
        if not seen:
            return _input_node(run)
        top = max(seen.values())
        last = [name for name, version in seen.items() if version == top]
        if len(last) > 1:
            raise InvalidUpdateError("Ambiguous update, specify as_node")
        return last[0]

    def _apply_null(self) -> None:
        run = self.run
        null = [write for write in run.pending.get(NULL_TASK_ID, ()) if write[0] != RESUME]
        if null:
            apply_writes(run.plan, run.state, [NullTask(INPUT, null)], run.next_version)

    def _pending_tasks(self) -> list[Task]:
        """The tasks that the head waits for. What they wrote is dropped: the update takes its place."""
        return self.run.prepare_tasks() if self.saved is not None and self.is_head else []

    def _task_id(self, pending: list[Task], node: str) -> str:
        """The id of a pending task of the node, so that history shows the update as its result."""
        for task in pending:
            if task.name == node:
                pending.remove(task)
                return task.id
        return str(uuid5(UUID(self.run.checkpoint_id), INTERRUPT))

    async def _task(self, update: StateUpdate, task_id: str, index: int) -> Task:
        run = self.run
        node = run.plan.nodes[str(update.as_node)]
        task = Task(run, node, task_id, (INTERRUPT, index), (INTERRUPT,), None, "")
        for writer in node.writers:
            if writer.is_async and self.is_async:
                await writer.write_async(update.values, task)
            else:
                writer.write(update.values, task)
        return task

    def _check(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if not task.writes:
                self.graph.refuse_or_warn(
                    f"the update as node {task.name!r} writes nothing: it names no key of the state"
                )

    # -- the store

    async def _store_writes(self, writes: Sequence[tuple[str, Any]], task_id: str, path: str) -> None:
        from ..storing.writer import takes_task_path

        config = {"configurable": self._own(self.run.checkpoint_id)}
        if not writes:
            return
        args = (config, list(writes), task_id, path) if takes_task_path(self.saver) else (config, list(writes), task_id)
        await ask(self.saver, self.is_async, "put_writes", *args)

    async def _save(self, source: str, *, parent: Any = MISSING) -> None:
        run = self.run
        above = (run.checkpoint_id if self.saved is not None else None) if parent is MISSING else parent
        run.checkpoint_id = new_id(run.step)
        run.updated = None
        metadata = {"source": source, "step": run.step, "parents": dict(run.parents), **self.graph.version_note()}
        new_versions = {name: run.state.versions[name] for name in run.state.changed}
        config = {"configurable": self._own(above), "metadata": dict(self.given.get("metadata") or {})}
        await ask(self.saver, self.is_async, "put", config, checkpoint_of_now(run), metadata, new_versions)
        self.address["checkpoint_id"] = run.checkpoint_id

    def _own(self, checkpoint_id: str | None) -> dict[str, Any]:
        own = {
            "thread_id": self.address["thread_id"],
            "checkpoint_ns": self.address.get("checkpoint_ns", ""),
        }
        return {**own, "checkpoint_id": checkpoint_id} if checkpoint_id else own

    def config(self) -> dict[str, Any]:
        """The config of the newest checkpoint."""
        own = self._own(self.address["checkpoint_id"])
        if own["checkpoint_ns"]:
            above: Mapping[str, str] = self.run.parents
            own["checkpoint_map"] = {**above, own["checkpoint_ns"]: own["checkpoint_id"]}
        return {"configurable": own}


def _input_node(run: Run) -> str:
    keys = run.graph.input_keys
    names = (keys,) if isinstance(keys, str) else keys
    for name, node in run.plan.nodes.items():
        if any(trigger in names for trigger in node.triggers):
            return name
    raise InvalidUpdateError("Ambiguous update, specify as_node")
