"""The values that users hand to a graph and get from it: commands, sends, questions, snapshots, policies.

Names, fields, defaults and reprs are those that LangGraph's users know. Stored ones (Send, Interrupt, Command,
Overwrite, TimeoutPolicy, PregelTask, StateSnapshot) have the same fields on the wire whichever engine wrote them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast, final

from .constants import INTERRUPT, OVERWRITE, PARENT, ROOT
from .policies import CachePolicy, RetryPolicy, TimeoutPolicy, TracePolicy, omit_payload
from .warnings import LangGraphDeprecatedSinceV10, LangGraphDeprecatedSinceV11

if TYPE_CHECKING:
    from collections import deque

    from .interrupts import interrupt
    from .parts import (
        CheckpointPayload,
        CheckpointStreamPart,
        CheckpointTask,
        CustomStreamPart,
        DebugPayload,
        DebugStreamPart,
        MessagesStreamPart,
        StreamPart,
        TaskPayload,
        TaskResultPayload,
        TasksStreamPart,
        UpdatesStreamPart,
        ValuesStreamPart,
    )

__all__ = [
    "All",
    "CachePolicy",
    "CheckpointPayload",
    "CheckpointStreamPart",
    "CheckpointTask",
    "Checkpointer",
    "Command",
    "CustomStreamPart",
    "DebugPayload",
    "DebugStreamPart",
    "Durability",
    "GraphOutput",
    "Interrupt",
    "MessagesStreamPart",
    "Overwrite",
    "PregelExecutableTask",
    "PregelTask",
    "RetryPolicy",
    "Send",
    "StateSnapshot",
    "StateUpdate",
    "StreamMode",
    "StreamPart",
    "StreamWriter",
    "TaskPayload",
    "TaskResultPayload",
    "TasksStreamPart",
    "TimeoutPolicy",
    "TracePolicy",
    "UpdatesStreamPart",
    "ValuesStreamPart",
    "ensure_valid_checkpointer",
    "interrupt",
    "omit_payload",
]

N = TypeVar("N", bound=Hashable)
OutputT = TypeVar("OutputT")
ResponseT = TypeVar("ResponseT")

All = Literal["*"]
StreamMode = Literal["values", "updates", "checkpoints", "tasks", "debug", "messages", "custom"]
Durability = Literal["sync", "async", "exit"]
StreamWriter = Callable[[Any], None]
# None inherits the parent's saver, True keeps a state of its own per thread, False keeps none; else a saver.
Checkpointer: TypeAlias = "bool | Any | None"
Config: TypeAlias = "dict[str, Any]"

# The id of a question that was raised by hand and so belongs to no task.
PLACEHOLDER_ID: Final = "placeholder-id"
_SAVER_METHODS = ("put", "put_writes", "get_tuple", "get_next_version")


@final
@dataclass(init=False, slots=True)
class Interrupt(Generic[ResponseT]):
    """A question of a node: its value, the id that an answer names, and the shape of the answer if it has one."""

    value: Any
    id: str
    response_schema: type[ResponseT] | dict[str, Any] | None = None

    def __init__(
        self,
        value: Any,
        id: str = PLACEHOLDER_ID,
        *,
        response_schema: type[ResponseT] | dict[str, Any] | None = None,
        **deprecated: Any,
    ) -> None:
        self.value = value
        self.response_schema = response_schema
        # Before ids, a question was named by the path of its namespace; threads stored then still resume.
        ns = deprecated.get("ns")
        self.id = _id_of("|".join(ns)) if ns is not None and id == PLACEHOLDER_ID else id

    @classmethod
    def from_ns(
        cls, value: Any, ns: str, *, response_schema: type[ResponseT] | dict[str, Any] | None = None
    ) -> Interrupt[ResponseT]:
        """The question of the task whose namespace is `ns`."""
        return cls(value, _id_of(ns), response_schema=response_schema)

    @property
    def interrupt_id(self) -> str:
        """Deprecated: use `id`."""
        warnings.warn("`interrupt_id` is deprecated. Use `id` instead.", LangGraphDeprecatedSinceV10, stacklevel=2)
        return self.id


class StateUpdate(NamedTuple):
    """One update of `bulk_update_state`."""

    values: dict[str, Any] | None
    as_node: str | None = None
    task_id: str | None = None


class PregelTask(NamedTuple):
    """A task as a snapshot shows it."""

    id: str
    name: str
    path: tuple[Any, ...]
    error: Exception | None = None
    interrupts: tuple[Interrupt[Any], ...] = ()
    state: Any = None
    result: Any | None = None


@dataclass(frozen=True, slots=True)
class PregelExecutableTask:
    """A task that is about to run."""

    name: str
    input: Any
    proc: Any
    writes: deque[tuple[str, Any]]
    config: Config
    triggers: Sequence[str]
    retry_policy: Sequence[RetryPolicy]
    cache_key: Any | None
    id: str
    path: tuple[Any, ...]
    writers: Sequence[Any] = ()
    subgraphs: Sequence[Any] = ()
    timeout: TimeoutPolicy | None = None


class StateSnapshot(NamedTuple):
    """The state of a thread at one checkpoint, and what would run next."""

    values: dict[str, Any] | Any
    next: tuple[str, ...]
    config: Config
    metadata: dict[str, Any] | None
    created_at: str | None
    parent_config: Config | None
    tasks: tuple[PregelTask, ...]
    interrupts: tuple[Interrupt[Any], ...]


class Send:
    """Run a node in the next step with an input of its own, besides the state."""

    __slots__ = ("arg", "node", "timeout")

    node: str
    arg: Any
    timeout: TimeoutPolicy | None

    def __init__(self, /, node: str, arg: Any, *, timeout: float | timedelta | TimeoutPolicy | None = None) -> None:
        self.node = node
        self.arg = arg
        self.timeout = TimeoutPolicy.coerce(timeout)

    def __hash__(self) -> int:
        return hash((self.node, self.arg, self.timeout))

    def __repr__(self) -> str:
        timeout = f", timeout={self.timeout!r}" if self.timeout is not None else ""
        return f"Send(node={self.node!r}, arg={self.arg!r}{timeout})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Send)
            and self.node == other.node
            and self.arg == other.arg
            and self.timeout == other.timeout
        )


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Command(Generic[N]):
    """Update the state, answer questions and say where to go on, in one value.

    A node returns one; a run is started with one. `graph=Command.PARENT` sends it to the graph above.
    """

    graph: str | None = None
    update: Any | None = None
    resume: dict[str, Any] | Any | None = None
    goto: Send | Sequence[Send | N] | N = ()

    PARENT: ClassVar[Literal["__parent__"]] = PARENT

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={value!r}" for f in fields(self) if (value := getattr(self, f.name)))
        return f"Command({shown})"

    def _update_as_tuples(self) -> Sequence[tuple[str, Any]]:
        """The update as (channel, value) pairs; what has no keys is written to the root channel."""
        update = self.update
        if isinstance(update, dict):
            return list(update.items())
        if update is None:
            return []
        if isinstance(update, (list, tuple)) and all(_is_pair(item) for item in update):
            return cast("Sequence[tuple[str, Any]]", update)
        if keys := annotated_keys(type(update)):
            return annotated_updates(update, keys)
        return [(ROOT, update)]


@dataclass(slots=True)
class Overwrite:
    """Replace the value of a reducer channel instead of reducing into it."""

    value: Any
    type: Literal["__overwrite__"] = OVERWRITE


@dataclass(frozen=True)
class GraphOutput(Generic[OutputT]):
    """What `invoke(version="v2")` gives: the output and the questions that are open."""

    value: OutputT
    interrupts: tuple[Interrupt[Any], ...] = ()

    def __getitem__(self, key: str) -> Any:
        self._warn("`result[key]`")
        if key == INTERRUPT:
            return self.interrupts
        if isinstance(self.value, dict):
            return self.value[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        self._warn("`key in result`")
        if key == INTERRUPT:
            return bool(self.interrupts)
        return isinstance(self.value, dict) and key in self.value

    @staticmethod
    def _warn(form: str) -> None:
        warnings.warn(
            f"Accessing GraphOutput via {form} is deprecated. Use `result.value` to access the output value "
            "directly, or `result.interrupts` for interrupts.",
            LangGraphDeprecatedSinceV11,
            stacklevel=3,
        )


def ensure_valid_checkpointer(checkpointer: Checkpointer) -> Checkpointer:
    """The argument, if `compile` can take it; any object with a saver's methods is a saver."""
    if checkpointer is None or isinstance(checkpointer, bool):
        return checkpointer
    missing = [name for name in _SAVER_METHODS if not callable(getattr(checkpointer, name, None))]
    if missing or isinstance(checkpointer, type):
        raise TypeError(
            "Invalid checkpointer provided. Expected a saver (threadline.connect(url), or one of LangGraph's), `True`, "
            f"`False`, or `None`. Received {type(checkpointer).__name__}."
        )
    return checkpointer


def annotated_keys(cls: type) -> list[str]:
    """The declared fields of a class of values: a model, a dataclass, any class with annotations."""
    model_fields = getattr(cls, "model_fields", None)
    if isinstance(model_fields, dict):
        return list(model_fields)
    keys: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        if "__annotations__" in base.__dict__:
            keys.update(dict.fromkeys(base.__annotations__))
    keys.pop("__slots__", None)
    return list(keys)


def annotated_updates(value: Any, keys: Sequence[str]) -> list[tuple[str, Any]]:
    """The (key, value) pairs that an annotated object writes.

    A model's None counts as written only where the caller set it or where it is not the default.
    """
    was_set = getattr(value, "model_fields_set", None)
    if was_set is None:
        return [(key, getattr(value, key)) for key in keys if hasattr(value, key)]
    declared = type(value).model_fields
    return [
        (key, written)
        for key in keys
        if (written := getattr(value, key, None)) is not None
        or key in was_set
        or (key in declared and declared[key].default is not None)
    ]


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def _id_of(namespace: str) -> str:
    from xxhash import xxh3_128_hexdigest

    return xxh3_128_hexdigest(namespace.encode())


def __getattr__(name: str) -> Any:
    # The parts are for annotations only, and `interrupt` needs the engine: neither is loaded with the values.
    if name == "interrupt":
        from .interrupts import interrupt

        return interrupt
    if name in __all__:
        from . import parts

        return getattr(parts, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
