"""Stream mode `messages`: the messages that nodes leave in the state, once each.

Tokens of chat models come through the bridge to LangChain, which calls `show_message`. A message of a node's input is
never shown again, nor one that was shown while it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..constants import TAG_NOSTREAM
from ..messages import is_message, message_id
from ..types import annotated_keys
from .stream import emit

if TYPE_CHECKING:
    from ..running.loop import Run
    from ..running.tasks import Task

__all__ = ["finished_messages", "show_message"]


def finished_messages(run: Run, task: Task) -> None:
    """Show the messages that a task wrote, except those it was given or has shown."""
    if TAG_NOSTREAM in task.node.tags or TAG_NOSTREAM in run.config["tags"] or task.node.is_hidden:
        return
    seen = seen_messages(run)
    seen.update(found for found in map(message_id, _messages_in(task.input)) if found)
    for _, value in task.writes:
        for message in _messages_in(value):
            show_message(task, message, once=True)


def show_message(task: Task, message: Any, *, once: bool = False) -> None:
    """Put a message on the stream; with `once`, only if its id was not shown before."""
    run = task.run
    seen = seen_messages(run)
    found = message_id(message)
    if found is None and not isinstance(message, dict) and hasattr(message, "id"):
        message.id = found = str(uuid4())
    if once and found is not None and found in seen:
        return
    if found is not None:
        seen.add(found)
    emit(run, "messages", (message, task.config["metadata"]))


def seen_messages(run: Run) -> set[str]:
    """The ids shown so far, over all graphs of the run."""
    while run.parent is not None:
        run = run.parent.run
    return run.shown_messages


def _messages_in(value: Any) -> Iterator[Any]:
    """The messages in a value: itself, in a list, in the values of a dict or the fields of an object."""
    if is_message(value):
        yield value
    elif isinstance(value, (list, tuple)):
        yield from (one for one in value if is_message(one))
    elif isinstance(value, dict):
        for one in value.values():
            if is_message(one):
                yield one
            elif isinstance(one, (list, tuple)):
                yield from (item for item in one if is_message(item))
    elif value is not None and not isinstance(value, (str, bytes, int, float)):
        for key in annotated_keys(type(value)):
            one = getattr(value, key, None)
            yield from _messages_in(one) if isinstance(one, (list, tuple)) or is_message(one) else ()
