"""What a node's return value writes: its updates, then its edges, then its branches.

Rules: a Command is its update first, then its gotos; static edges fire as well. A branch runs inside the task, after
the node's own writes, and sees the state with these writes, not those of siblings. A key that is no channel is
dropped: with one warning per node and key, or an error in a strict graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._base import printable
from ..constants import END, PARENT, ROOT, START, TASKS
from ..errors import InvalidUpdateError, ParentCommand
from ..running.inputs import branch_channel, refuse_langgraphs
from ..types import Command, Send, annotated_keys, annotated_updates
from .actions import foreign
from .nearest import nearest

if TYPE_CHECKING:
    from ..running.tasks import Task
    from .actions import Action

__all__ = ["BranchWriter", "EdgeWriter", "UpdateWriter"]

log = logging.getLogger("threadline.graph")


class UpdateWriter:
    """Writes the keys of the state that a node returned, and the gotos of its commands."""

    is_async = False
    is_blocking = False

    def __init__(self, keys: Iterable[str], node: str, *, validate: Callable[[str, Any], Any] | None = None) -> None:
        self.keys = frozenset(keys)
        self.order = tuple(keys) if not isinstance(keys, (set, frozenset)) else tuple(sorted(keys))
        self.node = node
        self.is_root = ROOT in self.keys
        self.validate = validate
        self._warned: set[str] = set()

    def write(self, output: Any, task: Task) -> None:
        if output is None:
            return
        if (bridge := foreign()) is not None:
            output = bridge.taken(output, task)
        if type(output) is dict and not self.is_root:
            self._write_keys(output.items(), task)
            return
        commands = _commands(output)
        if commands is None:
            self._write_plain(output, task)
            return
        for one in commands:
            if isinstance(one, Command):
                if one.graph == PARENT:
                    raise ParentCommand(one)
                self._write_keys(one._update_as_tuples(), task)
            else:
                self._write_plain(one, task)
        for one in commands:
            if isinstance(one, Command):
                self._write_gotos(one, task)

    async def write_async(self, output: Any, task: Task) -> None:
        self.write(output, task)

    def _write_plain(self, output: Any, task: Task) -> None:
        if output is None:
            return
        refuse_langgraphs(output, f"Node {self.node!r} returned")
        if self.is_root:
            task.writes.append((ROOT, output if self.validate is None else self.validate(ROOT, output)))
        elif isinstance(output, dict):
            self._write_keys(output.items(), task)
        elif not isinstance(output, type) and (keys := annotated_keys(type(output))):
            known = [key for key in keys if key in self.keys]
            self._write_keys(annotated_updates(output, known), task)
        else:
            wanted = "A node returns a dict of keys of the state, a Command, or None."
            if self.node == START:
                wanted = "The input of this graph is a dict of keys of the state, a Command, or None to go on."
            raise InvalidUpdateError(f"Expected dict, got {_shown(output)}. {wanted}")

    def _write_keys(self, items: Iterable[tuple[str, Any]], task: Task) -> None:
        keys, validate, writes = self.keys, self.validate, task.writes
        for key, value in items:
            if key in keys:
                writes.append((key, value if validate is None else validate(key, value)))
            else:
                self._refuse(key, task)

    def _write_gotos(self, command: Command[Any], task: Task) -> None:
        goto = command.goto
        if not goto and not isinstance(goto, str):
            return
        for target in goto if isinstance(goto, (list, tuple)) else (goto,):
            if isinstance(target, Send):
                task.writes.append((TASKS, target))
            elif target != END:
                _go(str(getattr(target, "value", target)), task)

    def _refuse(self, key: str, task: Task) -> None:
        run = task.run
        if key in run.plan.managed:
            raise InvalidUpdateError(f"At key '{key}': a managed value cannot be written")
        if self.node == START and key in run.plan.channels:
            return  # a key of the state that the input schema leaves out
        writer = "The input has" if self.node == START else f"Node {self.node!r} wrote"
        message, hint = f"{writer} {key!r}, which is no key of the state", nearest(key, self.keys, "keys")
        if run.settings.strict:
            raise InvalidUpdateError(message + hint)
        if key not in self._warned:
            self._warned.add(key)
            log.warning("%s", printable(f"{message}: it is dropped{hint}"))


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, (int, float, bool)) else f"a {type(value).__name__}"


def _commands(output: Any) -> Sequence[Any] | None:
    """The parts of an output that has commands; None for one without."""
    if isinstance(output, Command):
        return (output,)
    if isinstance(output, (list, tuple)) and any(isinstance(one, Command) for one in output):
        return output
    return None


def _go(node: str, task: Task) -> None:
    channel = branch_channel(node)
    if channel not in task.run.plan.channels:
        _unknown_target(node, task)
    task.writes.append((channel, None))


def _unknown_target(node: str, task: Task) -> None:
    if not task.run.settings.strict:
        return  # logged where writes to unknown channels are dropped
    hint = nearest(node, task.run.plan.nodes, "nodes")
    raise InvalidUpdateError(f"Node {task.name!r} goes to {node!r}, which is no node of the graph{hint}")


class EdgeWriter:
    """Static edges and joins: the same writes whatever the node returned."""

    is_async = False
    is_blocking = False

    def __init__(self, writes: Iterable[tuple[str, Any]]) -> None:
        self.writes = tuple(writes)

    def write(self, output: Any, task: Task) -> None:
        task.writes.extend(self.writes)

    async def write_async(self, output: Any, task: Task) -> None:
        self.write(output, task)


class BranchWriter:
    """A conditional edge: a function of the state that says where to go."""

    def __init__(
        self,
        name: str,
        path: Action,
        ends: Mapping[Any, str] | None,
        *,
        keys: tuple[str, ...],
        is_root: bool,
        mapper: Callable[[Any], Any] | None,
        merges_output: bool,
    ) -> None:
        self.name = name
        self.path = path
        self.ends = ends
        self.is_async = path.call is None
        self.is_blocking = not path.is_quick
        self._keys = keys
        self._is_root = is_root
        self._mapper = mapper
        self._merges_output = merges_output

    def write(self, output: Any, task: Task) -> None:
        if self.path.call is None:
            raise self.path.no_sync_error()
        self._go(self.path.call(self._value(output, task), task), task)

    async def write_async(self, output: Any, task: Task) -> None:
        assert self.path.call_async is not None
        self._go(await self.path.call_async(self._value(output, task), task), task)

    def _value(self, output: Any, task: Task) -> Any:
        if self._is_root:
            return task.read(ROOT, fresh=True)
        value = task.read(self._keys, fresh=True)
        if self._merges_output and isinstance(output, dict):
            value = {**output, **value}
        return value if self._mapper is None else self._mapper(value)

    def _go(self, result: Any, task: Task) -> None:
        if (bridge := foreign()) is not None:
            result = bridge.taken(result)
        chosen = result if isinstance(result, (list, tuple)) else [result]
        refuse_langgraphs(chosen, f"A branch of node {task.name!r} returned")
        targets: list[Any]
        if self.ends is not None:
            targets = [one if isinstance(one, Send) else self.ends[one] for one in chosen]
        else:
            targets = list(chosen)
        for one in targets:
            if one is None or one == START:
                raise ValueError("Branch did not return a valid destination")
            if isinstance(one, Send) and one.node == END:
                raise InvalidUpdateError("Cannot send a packet to the END node")
        for target in targets:
            if isinstance(target, Send):
                task.writes.append((TASKS, target))
            elif target != END:
                _go(str(getattr(target, "value", target)), task)
