"""What an input or a Command writes before the first step."""

from __future__ import annotations

import logging
from typing import Any

from ..building.plan import Keys
from ..constants import END, PARENT, RESUME, START, TASKS
from ..errors import InvalidUpdateError
from ..interrupts import answer_map
from ..types import Command, Send

__all__ = ["branch_channel", "command_writes", "input_writes", "refuse_langgraphs"]

log = logging.getLogger("threadline.graph")


def branch_channel(node: str) -> str:
    """The channel that makes a node run."""
    return f"branch:to:{node}"


def refuse_langgraphs(given: Any, what: str) -> None:
    """A Command or Send of LangGraph's own would be taken for a state without known keys, and be lost."""
    for one in given if isinstance(given, (list, tuple)) else (given,):
        if type(one).__module__ == "langgraph.types":
            name = type(one).__name__
            raise InvalidUpdateError(f"{what} a {name} of langgraph.types: import {name} from threadline.graph")


def input_writes(keys: Keys, given: Any) -> list[tuple[str, Any]]:
    """The writes of an input: to the one input channel, or to those that a dict names."""
    refuse_langgraphs(given, "The input is")
    if isinstance(keys, str):
        return [(keys, given)]
    if not isinstance(given, dict):
        raise TypeError(f"Expected chunk to be a dict, got {type(given).__name__}")
    writes = []
    for name, value in given.items():
        if name in keys:
            writes.append((name, value))
        else:
            log.warning("Input channel %r not found in %r", name, keys)
    return writes


def command_writes(command: Command[Any]) -> list[tuple[str, Any]]:
    """What the null task writes for a Command that a run is started with."""
    if command.graph == PARENT:
        raise InvalidUpdateError("There is no parent graph")
    writes: list[tuple[str, Any]] = []
    targets = command.goto if isinstance(command.goto, (list, tuple)) else [command.goto]
    for target in targets:
        if isinstance(target, Send):
            writes.append((TASKS, target))
        elif not isinstance(target, str):
            raise TypeError(f"In Command.goto, expected Send/str, got {type(target).__name__}")
        elif target != END:
            writes.append((branch_channel(target), START))
    if command.resume is not None and answer_map(command.resume) is None:
        writes.append((RESUME, command.resume))
    if command.update is not None:
        writes.extend(command._update_as_tuples())
    return writes
