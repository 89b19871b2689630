"""The literals that are stored, streamed or looked at by users' code.

Every one of these is part of a stored thread: changing one breaks the resume of threads that exist.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "CACHE_NS_WRITES",
    "CONF",
    "CONFIG_KEY_CACHE",
    "CONFIG_KEY_CALL",
    "CONFIG_KEY_CHECKPOINTER",
    "CONFIG_KEY_CHECKPOINT_ID",
    "CONFIG_KEY_CHECKPOINT_MAP",
    "CONFIG_KEY_CHECKPOINT_NS",
    "CONFIG_KEY_DURABILITY",
    "CONFIG_KEY_READ",
    "CONFIG_KEY_REPLAY_STATE",
    "CONFIG_KEY_RESUME_MAP",
    "CONFIG_KEY_RESUMING",
    "CONFIG_KEY_RUNTIME",
    "CONFIG_KEY_SCRATCHPAD",
    "CONFIG_KEY_SEND",
    "CONFIG_KEY_STREAM",
    "CONFIG_KEY_TASK_ID",
    "CONFIG_KEY_THREAD_ID",
    "COPY",
    "DEFAULT_ERROR_HANDLER",
    "END",
    "ERROR",
    "ERROR_HANDLER_PREFIX",
    "ERROR_SOURCE_NODE",
    "INPUT",
    "INTERRUPT",
    "MISSING",
    "NO_WRITES",
    "NS_END",
    "NS_SEP",
    "NULL_TASK_ID",
    "OVERWRITE",
    "PARENT",
    "PREVIOUS",
    "PULL",
    "PUSH",
    "RESERVED_WRITES",
    "RESUME",
    "RETURN",
    "ROOT",
    "START",
    "TAG_HIDDEN",
    "TAG_NOSTREAM",
    "TASKS",
]

START: Final = "__start__"
END: Final = "__end__"
INPUT: Final = "__input__"
PREVIOUS: Final = "__previous__"
ROOT: Final = "__root__"
COPY: Final = "__copy__"
PARENT: Final = "__parent__"

# Channels of pending writes that are no state.
ERROR: Final = "__error__"
ERROR_SOURCE_NODE: Final = "__error_source_node__"
INTERRUPT: Final = "__interrupt__"
RESUME: Final = "__resume__"
NO_WRITES: Final = "__no_writes__"
RETURN: Final = "__return__"
RESERVED_WRITES: Final = frozenset({ERROR, ERROR_SOURCE_NODE, INTERRUPT, RESUME, NO_WRITES, RETURN})

# The topic of sends. It is a channel of every graph, and is stored in checkpoints.
TASKS: Final = "__pregel_tasks"
PULL: Final = "__pregel_pull"
PUSH: Final = "__pregel_push"
CACHE_NS_WRITES: Final = "__pregel_ns_writes"

NS_SEP: Final = "|"
NS_END: Final = ":"
NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"
OVERWRITE: Final = "__overwrite__"

ERROR_HANDLER_PREFIX: Final = "__error_handler__"
DEFAULT_ERROR_HANDLER: Final = "__default_error_handler__"

TAG_HIDDEN: Final = "langsmith:hidden"
TAG_NOSTREAM: Final = "nostream"

CONF: Final = "configurable"
CONFIG_KEY_SEND: Final = "__pregel_send"
CONFIG_KEY_READ: Final = "__pregel_read"
CONFIG_KEY_CALL: Final = "__pregel_call"
CONFIG_KEY_CHECKPOINTER: Final = "__pregel_checkpointer"
CONFIG_KEY_STREAM: Final = "__pregel_stream"
CONFIG_KEY_CACHE: Final = "__pregel_cache"
CONFIG_KEY_RESUMING: Final = "__pregel_resuming"
CONFIG_KEY_TASK_ID: Final = "__pregel_task_id"
CONFIG_KEY_SCRATCHPAD: Final = "__pregel_scratchpad"
CONFIG_KEY_RUNTIME: Final = "__pregel_runtime"
CONFIG_KEY_DURABILITY: Final = "__pregel_durability"
CONFIG_KEY_RESUME_MAP: Final = "__pregel_resume_map"
CONFIG_KEY_REPLAY_STATE: Final = "__pregel_replay_state"
CONFIG_KEY_THREAD_ID: Final = "thread_id"
CONFIG_KEY_CHECKPOINT_MAP: Final = "checkpoint_map"
CONFIG_KEY_CHECKPOINT_ID: Final = "checkpoint_id"
CONFIG_KEY_CHECKPOINT_NS: Final = "checkpoint_ns"


class _Missing:
    """The one value that means "no value": None is a value that a channel may hold."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "MISSING"

    def __copy__(self) -> _Missing:
        return self

    def __deepcopy__(self, memo: object) -> _Missing:
        return self


MISSING: Final[Any] = _Missing()
