"""Reading a thread through its graph: snapshots, history, and the graphs inside the graph.

Rules: the head is shown as it would go on: writes of finished tasks are applied, finished tasks are not next, answered
questions are not open. A checkpoint that is named, and all of history, is shown as it was stored. Tasks are listed in
the order in which nodes were defined.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._base import config_of, run_now
from ..constants import ERROR, INPUT, INTERRUPT, NS_SEP, NULL_TASK_ID, RESUME, RETURN
from ..running.superstep import apply_writes, read_channels
from ..running.tasks import NullTask
from ..storing.saving import ask
from ..types import PregelTask, StateSnapshot, StateUpdate

if TYPE_CHECKING:
    from ..compiled import Pregel
    from ..config import Config
    from ..running.loop import Run
    from ..running.tasks import Task

__all__ = ["StateMethods", "ask", "reader", "restored"]


class StateMethods:
    """The methods of a graph that read and write its threads."""

    def get_state(self: Any, config: Config, *, subgraphs: bool = False) -> StateSnapshot:
        """The thread as it is now, or at the checkpoint that the config names."""
        return run_now(_get_state(self, config, subgraphs, False))

    async def aget_state(self: Any, config: Config, *, subgraphs: bool = False) -> StateSnapshot:
        return await _get_state(self, config, subgraphs, True)

    def get_state_history(
        self: Any,
        config: Config,
        *,
        filter: dict[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[StateSnapshot]:
        """The checkpoints of the thread, newest first."""
        graph, saver, address = addressed(self, config)
        listed = {"configurable": _named(address)}
        for saved in list(saver.list(listed, before=before, limit=limit, filter=filter)):
            yield run_now(_snapshot(graph, saver, address, saved, recurse=False, live=False, is_async=False))

    async def aget_state_history(
        self: Any,
        config: Config,
        *,
        filter: dict[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[StateSnapshot]:
        graph, saver, address = addressed(self, config)
        listed = {"configurable": _named(address)}
        found = [saved async for saved in saver.alist(listed, before=before, limit=limit, filter=filter)]
        for saved in found:
            yield await _snapshot(graph, saver, address, saved, recurse=False, live=False, is_async=True)

    def update_state(
        self: Any, config: Config, values: Any, as_node: str | None = None, task_id: str | None = None
    ) -> Config:
        """Write to a thread as if a node had returned `values`; gives the config of the new checkpoint."""
        return self.bulk_update_state(config, [[StateUpdate(values, as_node, task_id)]])  # type: ignore[no-any-return]

    async def aupdate_state(
        self: Any, config: Config, values: Any, as_node: str | None = None, task_id: str | None = None
    ) -> Config:
        return await self.abulk_update_state(config, [[StateUpdate(values, as_node, task_id)]])  # type: ignore[no-any-return]

    def bulk_update_state(self: Any, config: Config, supersteps: Sequence[Sequence[StateUpdate]]) -> Config:
        """Several steps of updates, each a list that is applied together."""
        from .updating import bulk_update

        return run_now(bulk_update(self, config, supersteps, False))

    async def abulk_update_state(self: Any, config: Config, supersteps: Sequence[Sequence[StateUpdate]]) -> Config:
        from .updating import bulk_update

        return await bulk_update(self, config, supersteps, True)

    # -- graphs inside

    def subgraphs_of(self: Any, node: str) -> tuple[Pregel, ...]:
        """The graphs that a node runs, found when first asked for."""
        if node not in self._subgraphs:
            from .subgraphs import find_subgraphs

            self._subgraphs[node] = find_subgraphs(self.nodes[node]) if node in self.nodes else ()
        return self._subgraphs[node]  # type: ignore[no-any-return]

    def get_subgraphs(
        self: Any, *, namespace: str | None = None, recurse: bool = False
    ) -> Iterator[tuple[str, Pregel]]:
        """The graphs inside, by the name of their node; `namespace` chooses one, `recurse` goes deeper."""
        for name in self.nodes:
            if namespace is not None and namespace != name and not namespace.startswith(name + NS_SEP):
                continue
            for graph in self.subgraphs_of(name)[:1]:
                if namespace is None or namespace == name:
                    yield name, graph
                    if namespace == name:
                        return
                rest = None if namespace is None else namespace[len(name) + 1 :]
                if recurse or rest:
                    for inner, found in graph.get_subgraphs(namespace=rest, recurse=recurse):
                        yield f"{name}{NS_SEP}{inner}", found

    async def aget_subgraphs(
        self: Any, *, namespace: str | None = None, recurse: bool = False
    ) -> AsyncIterator[tuple[str, Pregel]]:
        for found in self.get_subgraphs(namespace=namespace, recurse=recurse):
            yield found


def saver_of(graph: Any, config: Mapping[str, Any] | None) -> Any:
    """The saver that holds a graph's threads; ValueError without one."""
    from ..constants import CONFIG_KEY_CHECKPOINTER
    from ..runtime import CURRENT_TASK
    from ..storing.wire import adopted

    given = ((config or {}).get("configurable") or {}).get(CONFIG_KEY_CHECKPOINTER)
    saver = given or graph.checkpointer
    if saver is None or isinstance(saver, bool):
        task = CURRENT_TASK.get()
        saver = task.run.saver if task is not None and graph.checkpointer is not False else None
    if saver is None:
        raise ValueError("No checkpointer set: compile the graph with checkpointer=threadline.connect(url)")
    return adopted(saver)


def addressed(graph: Any, config: Config) -> tuple[Any, Any, dict[str, Any]]:
    """The graph that a config addresses (this one, or one inside), its saver, and the address."""
    from ..config import merge_configs
    from ..running.calling import thread_config
    from ..running.ids import node_path, without_task_ids

    saver = saver_of(graph, config)
    merged = merge_configs(graph.config, config)
    address = thread_config(merged)
    namespace = address.get("checkpoint_ns", "")
    address["checkpoint_ns"] = namespace
    if namespace and not _is_own(config):
        wanted = node_path(namespace)
        graph = next((inner for _, inner in graph.get_subgraphs(namespace=wanted)), None)
        if graph is None:
            raise ValueError(f"Subgraph {wanted} not found")
    if namespace and graph.checkpointer is True:
        address["checkpoint_ns"] = without_task_ids(namespace)
    return graph, saver, address


def _is_own(config: Config) -> bool:
    return bool((config.get("configurable") or {}).get(_OWN))


# Set on configs that a graph gives to a graph inside it: the namespace is that graph's own.
_OWN = "__pregel_own_namespace"


async def _get_state(graph: Any, config: Config, subgraphs: bool, is_async: bool) -> StateSnapshot:
    graph, saver, address = addressed(graph, config)
    saved = await ask(saver, is_async, "get_tuple", {"configurable": _named(address)})
    live = address.get("checkpoint_id") is None
    return await _snapshot(graph, saver, address, saved, recurse=subgraphs, live=live, is_async=is_async)


def _named(address: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an address that savers take."""
    return {
        key: address[key] for key in ("thread_id", "checkpoint_ns", "checkpoint_id") if address.get(key) is not None
    }


def reader(graph: Any, saver: Any, address: Mapping[str, Any]) -> Run:
    """A run that is never started: it prepares tasks and applies writes for somebody who looks."""
    from ..running.calling import Call, settings_of
    from ..running.hosts import BlockingHost
    from ..running.loop import Run

    settings = settings_of(graph, None, {"configurable": dict(address)}, Call(), None, saver=saver)
    settings.namespace = address.get("checkpoint_ns", "")
    settings.parents = {
        key: value for key, value in (address.get("checkpoint_map") or {}).items() if key != settings.namespace
    }
    return Run(graph, BlockingHost(), settings)


async def restored(run: Run, saved: Any, *, is_async: bool) -> None:
    """Make a stored checkpoint the state of a run that looks."""
    from ..running.entering import restore
    from ..storing.migrate import migrate
    from ..storing.versions import adapted

    restore(
        run,
        adapted(run.graph, migrate(run.plan, saved.checkpoint), saved.metadata or {}),
        dict(saved.metadata or {}),
        saved.pending_writes or (),
    )
    run.updated = None
    if run.plan.deltas:
        from ..storing.deltas import complete_deltas

        await complete_deltas(run, run.saver, saved.config, is_async=is_async)


async def _snapshot(
    graph: Any, saver: Any, address: Mapping[str, Any], saved: Any, *, recurse: bool, live: bool, is_async: bool
) -> StateSnapshot:
    if saved is None:
        shown = {key: value for key, value in address.items() if not key.startswith("__")}
        if not shown.get("checkpoint_ns"):
            shown.pop("checkpoint_ns", None)
        return StateSnapshot({}, (), {"configurable": shown}, None, None, None, (), ())
    run = reader(graph, saver, address)
    await restored(run, saved, is_async=is_async)
    run.parents = {key: value for key, value in (run.metadata.get("parents") or {}).items()}
    tasks = run.prepare_tasks()
    null = [write for write in run.pending.get(NULL_TASK_ID, ()) if write[0] != RESUME]
    if null:
        apply_writes(run.plan, run.state, [NullTask(INPUT, null)], run.next_version)
    shown_tasks = tuple([await _task(run, task, saver, recurse, live, is_async) for task in tasks])
    finished = [task for task in tasks if _is_done(run, task)]
    if live and finished:
        for task in finished:
            task.writes = run.pending[task.id]
        apply_writes(run.plan, run.state, finished, run.next_version)
    return StateSnapshot(
        values=read_channels(run.state.channels, run.stream_keys),
        next=tuple(task.name for task in tasks if not (live and task in finished)),
        config=_own_address(saved.config, run),
        metadata=saved.metadata,
        created_at=saved.checkpoint["ts"],
        parent_config=_own_address(saved.parent_config, run) if saved.parent_config else None,
        tasks=shown_tasks,
        interrupts=tuple(one for task in shown_tasks for one in task.interrupts),
    )


def _own_address(config: Mapping[str, Any], run: Run) -> dict[str, Any]:
    found = config["configurable"]
    kept = {key: found[key] for key in ("thread_id", "checkpoint_ns", "checkpoint_id") if key in found}
    if kept.get("checkpoint_ns"):
        kept["checkpoint_map"] = {**run.parents, kept["checkpoint_ns"]: kept["checkpoint_id"]}
    return {"configurable": kept}


def _is_done(run: Run, task: Task) -> bool:
    from ..showing.stream import is_finished

    return is_finished(run.pending.get(task.id, ()))


async def _task(run: Run, task: Task, saver: Any, recurse: bool, live: bool, is_async: bool) -> PregelTask:
    writes = run.pending.get(task.id, ())
    error = next((value for name, value in writes if name == ERROR), None)
    done = _is_done(run, task)
    asked = [] if live and done else [one for name, value in writes if name == INTERRUPT for one in _listed(value)]
    return PregelTask(
        task.id,
        task.name,
        task.path,
        error,
        tuple(asked),
        await _inner_state(run, task, saver, recurse, is_async),
        _result(writes, run) if done else None,
    )


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _result(writes: Sequence[tuple[str, Any]], run: Run) -> Any:
    from ..showing.stream import result_of

    for name, value in writes:
        if name == RETURN:
            return value
    keys = run.stream_keys
    found = result_of(writes, keys)
    return found.get(keys) if isinstance(keys, str) else found


async def _inner_state(run: Run, task: Task, saver: Any, recurse: bool, is_async: bool) -> Any:
    graphs = run.graph.subgraphs_of(task.name)
    if not graphs:
        return None
    inner = graphs[0]
    address = config_of(run.thread_id, task.namespace)
    if not recurse:
        return address
    config = {"configurable": {**address["configurable"], _OWN: True, "__pregel_checkpointer": saver}}
    return await _get_state(inner, config, True, is_async)
