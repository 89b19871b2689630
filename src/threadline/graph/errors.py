"""What a run raises.

    ThreadlineError
    ├── InvalidUpdateError      a write that the channel or the schema cannot take
    ├── EmptyInputError         nothing to run with
    ├── EmptyChannelError       a channel was read before it was written
    ├── GraphRecursionError     the recursion limit was reached            (RecursionError)
    ├── NodeCancelledError      a node raised CancelledError itself
    ├── NodeTimeoutError        a node exceeded its timeout
    ├── InterruptSwallowed      a node caught the exception of its own question
    ├── TaskNotFound            a distributed executor does not know the task
    └── UnknownInterruptError   an answer that fits no pending question

    GraphBubbleUp               no failures: these carry control through users' code
    ├── GraphInterrupt          a question waits for its answer
    │   └── NodeInterrupt
    ├── GraphDrained            the run stopped because it was asked to
    └── ParentCommand           a command for the graph above

The bubbling ones are Exceptions, so `except Exception` in a node catches them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from ._base import ThreadlineError
from .warnings import LangGraphDeprecatedSinceV10

if TYPE_CHECKING:
    from .types import Command, Interrupt

__all__ = [
    "EmptyChannelError",
    "EmptyInputError",
    "ErrorCode",
    "GraphBubbleUp",
    "GraphDrained",
    "GraphInterrupt",
    "GraphRecursionError",
    "InterruptSwallowed",
    "InvalidUpdateError",
    "NodeCancelledError",
    "NodeError",
    "NodeInterrupt",
    "NodeTimeoutError",
    "ParentCommand",
    "TaskNotFound",
    "UnknownInterruptError",
    "is_invalid_resume",
    "mark_invalid_resume",
]


class ErrorCode(Enum):
    """Kinds of failures that tools look up by name."""

    GRAPH_RECURSION_LIMIT = "GRAPH_RECURSION_LIMIT"
    INVALID_CONCURRENT_GRAPH_UPDATE = "INVALID_CONCURRENT_GRAPH_UPDATE"
    INVALID_GRAPH_NODE_RETURN_VALUE = "INVALID_GRAPH_NODE_RETURN_VALUE"
    MULTIPLE_SUBGRAPHS = "MULTIPLE_SUBGRAPHS"
    INVALID_CHAT_HISTORY = "INVALID_CHAT_HISTORY"


class EmptyChannelError(ThreadlineError):
    """A channel was read that holds no value."""


class InvalidUpdateError(ThreadlineError):
    """A write that the state cannot take: two values for one key, no dict, an unknown node."""


class EmptyInputError(ThreadlineError):
    """The run was given nothing to start from."""


class GraphRecursionError(ThreadlineError, RecursionError):
    """The run used all the steps that `recursion_limit` allows; its last checkpoint is saved.

    `limit` is the recursion limit, `last_nodes` the nodes that ran last (oldest first), `cycle` the nodes that
    repeat, if the last nodes repeat.
    """

    def __init__(
        self, *args: object, limit: int | None = None, last_nodes: Sequence[str] = (), cycle: Sequence[str] = ()
    ) -> None:
        super().__init__(*args)
        self.limit = limit
        self.last_nodes = tuple(last_nodes)
        self.cycle = tuple(cycle)


class TaskNotFound(ThreadlineError):
    """The executor was given a task that it does not know."""


class NodeCancelledError(ThreadlineError):
    """A node raised CancelledError although nobody cancelled the run."""

    def __init__(self, node: str, message: str | None = None) -> None:
        super().__init__(message or f"Node {node!r} raised asyncio.CancelledError")
        self.node = node


class NodeTimeoutError(ThreadlineError):
    """A node exceeded its run or idle timeout; by default it is retried. It is not a TimeoutError."""

    def __init__(
        self,
        node: str,
        elapsed: float,
        *,
        kind: Literal["idle", "run"],
        idle_timeout: float | None = None,
        run_timeout: float | None = None,
    ) -> None:
        timeout = idle_timeout if kind == "idle" else run_timeout
        if timeout is None:
            raise ValueError(f"{kind}_timeout is required when kind={kind!r}")
        progress = " without making progress" if kind == "idle" else ""
        super().__init__(
            f"Node {node!r} exceeded its {kind} timeout of {timeout:.3f}s{progress} (elapsed: {elapsed:.3f}s)."
        )
        self.node = node
        self.kind = kind
        self.timeout = timeout
        self.elapsed = elapsed
        self.idle_timeout = idle_timeout
        self.run_timeout = run_timeout


class InterruptSwallowed(ThreadlineError):
    """A node asked a question and then went on, because it caught GraphInterrupt itself."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"Node {node!r} called interrupt() and caught the GraphInterrupt that it raises: the question is lost. "
            "Re-raise GraphBubbleUp before `except Exception`"
        )
        self.node = node


class UnknownInterruptError(ThreadlineError):
    """An answer names no question that is pending; nothing was written."""

    def __init__(
        self,
        message: str,
        *,
        reason: Literal["not_pending", "empty_map", "ambiguous"],
        interrupt_ids: Sequence[str] = (),
        pending_ids: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.interrupt_ids = tuple(interrupt_ids)
        self.pending_ids = tuple(pending_ids)


class GraphBubbleUp(Exception):
    """The base of what passes through users' code without being a failure."""


class GraphInterrupt(GraphBubbleUp):
    """One or more questions wait for an answer; `args[0]` has them. The root graph returns instead of raising it."""

    def __init__(self, interrupts: Sequence[Interrupt[Any]] = ()) -> None:
        super().__init__(interrupts)


class NodeInterrupt(GraphInterrupt):
    """Deprecated: call `interrupt` instead."""

    def __init__(self, value: Any, id: str | None = None) -> None:
        from .types import PLACEHOLDER_ID, Interrupt

        warnings.warn(
            "NodeInterrupt is deprecated. Please use `threadline.graph.interrupt` instead.",
            LangGraphDeprecatedSinceV10,
            stacklevel=2,
        )
        super().__init__([Interrupt(value=value, id=PLACEHOLDER_ID if id is None else id)])


class GraphDrained(GraphBubbleUp):
    """The run stopped before its next step, as RunControl.request_drain asked; it can be resumed."""

    def __init__(self, reason: str = "shutdown") -> None:
        super().__init__(f"Graph drained: {reason}")
        self.reason = reason


class ParentCommand(GraphBubbleUp):
    """A command for the graph that called this one; `args[0]` has it."""

    args: tuple[Command[Any]]

    def __init__(self, command: Command[Any]) -> None:
        super().__init__(command)


@dataclass(frozen=True, slots=True)
class NodeError:
    """What an error handler is given: the node that failed and its exception."""

    node: str
    error: BaseException


def is_invalid_resume(error: BaseException) -> bool:
    """Whether an answer did not fit the `response_schema` of its question; the question can be answered again."""
    return getattr(error, _REFUSED_ANSWER, False) is True


def mark_invalid_resume(error: BaseException) -> None:
    """Say of a validation error that it is about an answer, not about the node's own values."""
    setattr(error, _REFUSED_ANSWER, True)


_REFUSED_ANSWER = "__threadline_refused_answer__"
