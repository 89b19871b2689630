"""Making the tasks of a step: their ids, inputs and namespaces."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..building.nearest import nearest
from ..building.plan import Node
from ..constants import MISSING, NS_END, NS_SEP, PULL, PUSH
from .ids import TaskIds
from .superstep import read_channel
from .tasks import Task

if TYPE_CHECKING:
    from .loop import Run

__all__ = ["pulled", "pushed", "task_ids"]

log = logging.getLogger("threadline.graph")


def task_ids(run: Run) -> TaskIds:
    """The ids of the tasks of the step that is prepared."""
    return TaskIds(run.checkpoint_id, run.namespace, run.step, run.format_version)


def pushed(run: Run, sends: Sequence[Any]) -> list[Task]:
    """The tasks of sends, in their order; one to an unknown node is logged, or refused by a strict graph."""
    ids = task_ids(run)
    tasks = []
    for index, send in enumerate(sends):
        node = run.plan.nodes.get(getattr(send, "node", ""))  # LangGraph's own savers give its class
        if node is None:
            named = getattr(send, "node", type(send).__name__)  # what is no send may hold state: only its type is told
            hint = nearest(named, run.plan.nodes, "nodes")
            run.graph.refuse_or_warn(f"a Send goes to unknown node name {named}{hint}")
            continue
        task_id = ids.push(node.name, index)
        task = Task(run, node, task_id, (PUSH, index, False), (PUSH,), send.arg, _inside(run, node.name, task_id))
        if send.timeout is not None:
            task.timeout = send.timeout
        tasks.append(task)
    return tasks


def pulled(run: Run, nodes: Sequence[Node]) -> list[Task]:
    """The tasks of triggered nodes. Nodes with one schema share what is read, and get a copy each."""
    ids = task_ids(run)
    shared: dict[Any, Any] = {}
    tasks = []
    for node in nodes:
        given = _input(run, node, shared)
        if given is MISSING:
            continue
        triggers = run.plan.sorted_triggers[node.name]
        task_id = ids.pull(node.name, triggers)
        tasks.append(Task(run, node, task_id, (PULL, node.name), triggers, given, _inside(run, node.name, task_id)))
    return tasks


def _inside(run: Run, name: str, task_id: str) -> str:
    return f"{run.namespace}{NS_SEP}{name}{NS_END}{task_id}" if run.namespace else f"{name}{NS_END}{task_id}"


def _input(run: Run, node: Node, shared: dict[Any, Any]) -> Any:
    keys = node.channels
    if isinstance(keys, str):
        value = read_channel(run.state.channels, keys)
        return value if value is MISSING or node.mapper is None else node.mapper(value)
    key = (keys, node.mapper)
    if key not in shared:
        values = _read(run, keys)
        shared[key] = _mapped(node, values) if node.mapper is not None else values
    value = shared[key]
    return dict(value) if type(value) is dict else _shallow_copy(value)


def _read(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    managed = run.plan.managed
    channels = run.state.channels
    values = {}
    for name in keys:
        if name in managed:
            values[name] = managed[name].get(run)
        elif (value := read_channel(channels, name)) is not MISSING:
            values[name] = value
    return values


def _mapped(node: Node, values: dict[str, Any]) -> Any:
    assert node.mapper is not None
    try:
        return node.mapper(values)
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f"Before task with name '{node.name}' and path '{(PULL, node.name)}'")
        raise


def _shallow_copy(value: Any) -> Any:
    import copy

    return copy.copy(value)
