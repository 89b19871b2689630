"""The ids that tasks, questions and namespaces have, and the order that paths give.

Rules: an id depends only on what is stored, so that a process that resumes a thread finds the writes of the one
before it, whichever engine that was. A task's id is a hash of the checkpoint it starts from, its namespace, the step,
its name and what made it run. A question's id is a hash of its task's namespace. Namespaces are parts joined by `|`:
`node:task id` for a graph that a task runs, and a number for a second graph that the same task runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from xxhash import xxh3_128_hexdigest

from ..constants import NS_END, NS_SEP, PULL, PUSH

__all__ = [
    "TaskIds",
    "child_namespace",
    "interrupt_id",
    "is_interrupt_id",
    "node_path",
    "path_text",
    "without_task_ids",
]

_HEX = frozenset("0123456789abcdef")


class TaskIds:
    """The ids of the tasks of one step: what they share is hashed from one prepared prefix."""

    __slots__ = ("_digest", "_prefix", "_step", "namespace")

    def __init__(self, checkpoint_id: str, namespace: str, step: int, format_version: int = 4) -> None:
        self._prefix = bytes.fromhex(checkpoint_id.replace("-", ""))
        self._digest = xxh3_128_hexdigest if format_version > 1 else _uuid5_hex
        self._step = str(step)
        self.namespace = namespace

    def pull(self, name: str, triggers: Iterable[str]) -> str:
        """The id of a task that versions made run."""
        return self._id(name, PULL, *triggers)

    def push(self, name: str, index: int) -> str:
        """The id of the task of a Send."""
        return self._id(name, PUSH, str(index))

    def call(self, name: str, caller_namespace: str, caller_path: Sequence[Any], index: int) -> str:
        """The id of a call that a task makes; it lies in the namespace of that task."""
        return self._hash(f"{caller_namespace}{NS_SEP}{name}", name, PUSH, path_text(caller_path), str(index))

    def handler(self, name: str, failed_namespace: str, failed_id: str) -> str:
        """The id of the task that handles the error of another."""
        return self._hash(f"{failed_namespace}{NS_SEP}{name}", name, PUSH, "node_error_handler", failed_id)

    def _id(self, name: str, *parts: str) -> str:
        return self._hash(f"{self.namespace}{NS_SEP}{name}" if self.namespace else name, name, *parts)

    def _hash(self, inner: str, name: str, *parts: str) -> str:
        digits = self._digest(self._prefix + "".join((inner, self._step, name, *parts)).encode())
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def _uuid5_hex(content: bytes) -> str:
    digest = hashlib.sha1(content, usedforsecurity=False).digest()
    return UUID(bytes=digest[:16], version=5).hex


def path_text(path: Any) -> str:
    """A task's path as text that sorts as the path does."""
    if type(path) is tuple and path:
        if path[0] == PULL and len(path) == 2:
            return f"~{PULL}, {path[1]}"
        if path[0] == PUSH and len(path) == 3 and type(path[1]) is int:
            return f"~{PUSH}, {path[1]:010d}, {path[2]:010d}"
    if isinstance(path, (tuple, list)):
        return "~" + ", ".join(path_text(part) for part in path)
    return f"{path:010d}" if isinstance(path, int) else str(path)


def interrupt_id(namespace: str, answers_given: int = 0) -> str:
    """The id of a question: of the task's first, or of the one after so many answers."""
    return xxh3_128_hexdigest((f"{namespace}{NS_SEP}{answers_given}" if answers_given else namespace).encode())


def is_interrupt_id(text: Any) -> bool:
    """Whether a key of an answer can be the id of a question."""
    return isinstance(text, str) and len(text) == 32 and _HEX.issuperset(text)


def child_namespace(parent: str, name: str, task_id: str) -> str:
    """The namespace of a task of a graph that itself has the namespace `parent`."""
    inner = f"{name}{NS_END}{task_id}"
    return f"{parent}{NS_SEP}{inner}" if parent else inner


def without_task_ids(namespace: str) -> str:
    """The namespace of a graph that keeps its state per thread: the same for every task of its node."""
    return NS_SEP.join(part.split(NS_END)[0] for part in namespace.split(NS_SEP))


def node_path(namespace: str) -> str:
    """The nodes that a namespace leads through, without ids and numbers."""
    return NS_SEP.join(part.split(NS_END)[0] for part in namespace.split(NS_SEP) if not part.isdigit())
