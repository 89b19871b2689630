"""Durable graphs: nodes over shared state, checkpointed after every step.

    from threadline.graph import END, START, StateGraph
    graph = StateGraph(State).add_node(work).add_edge(START, "work").compile(checkpointer=threadline.connect(url))

The names are those that LangGraph's users know: a graph moves by its import lines. Each name is loaded when it is first
used, and nothing of LangChain or LangGraph ever is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .building.builder import StateGraph
    from .building.managed import IsLastStep, RemainingSteps
    from .channels import (
        AnyValue,
        BaseChannel,
        BinaryOperatorAggregate,
        DeltaChannel,
        EphemeralValue,
        LastValue,
        LastValueAfterFinish,
        NamedBarrierValue,
        NamedBarrierValueAfterFinish,
        Topic,
        UntrackedValue,
    )
    from .compiled import CompiledStateGraph, Pregel
    from .constants import END, START, TAG_HIDDEN, TAG_NOSTREAM
    from .errors import (
        EmptyChannelError,
        EmptyInputError,
        ErrorCode,
        GraphBubbleUp,
        GraphDrained,
        GraphInterrupt,
        GraphRecursionError,
        InterruptSwallowed,
        InvalidUpdateError,
        NodeCancelledError,
        NodeError,
        NodeInterrupt,
        NodeTimeoutError,
        ParentCommand,
        TaskNotFound,
        UnknownInterruptError,
        is_invalid_resume,
    )
    from .functional import entrypoint, task
    from .interrupts import interrupt, interrupt_all
    from .messages import REMOVE_ALL_MESSAGES, MessageGraph, MessagesState, RemoveMessage, add_messages, push_message
    from .pregel import NodeBuilder
    from .running.caching import InMemoryCache
    from .runtime import (
        BaseUser,
        ExecutionInfo,
        RunControl,
        Runtime,
        ServerInfo,
        get_config,
        get_runtime,
        get_store,
        get_stream_writer,
    )
    from .types import (
        All,
        CachePolicy,
        Checkpointer,
        CheckpointPayload,
        CheckpointStreamPart,
        CheckpointTask,
        Command,
        CustomStreamPart,
        DebugPayload,
        DebugStreamPart,
        Durability,
        GraphOutput,
        Interrupt,
        MessagesStreamPart,
        Overwrite,
        PregelExecutableTask,
        PregelTask,
        RetryPolicy,
        Send,
        StateSnapshot,
        StateUpdate,
        StreamMode,
        StreamPart,
        StreamWriter,
        TaskPayload,
        TaskResultPayload,
        TasksStreamPart,
        TimeoutPolicy,
        TracePolicy,
        UpdatesStreamPart,
        ValuesStreamPart,
        ensure_valid_checkpointer,
        omit_payload,
    )
    from .warnings import (
        LangGraphDeprecatedSinceV05,
        LangGraphDeprecatedSinceV10,
        LangGraphDeprecatedSinceV11,
        LangGraphDeprecationWarning,
    )

__all__ = [
    "All",
    "AnyValue",
    "BaseChannel",
    "BaseUser",
    "BinaryOperatorAggregate",
    "CachePolicy",
    "CheckpointPayload",
    "CheckpointStreamPart",
    "CheckpointTask",
    "Checkpointer",
    "Command",
    "CompiledStateGraph",
    "CustomStreamPart",
    "DebugPayload",
    "DebugStreamPart",
    "DeltaChannel",
    "Durability",
    "END",
    "EmptyChannelError",
    "EmptyInputError",
    "EphemeralValue",
    "ErrorCode",
    "ExecutionInfo",
    "GraphBubbleUp",
    "GraphDrained",
    "GraphInterrupt",
    "GraphOutput",
    "GraphRecursionError",
    "InMemoryCache",
    "Interrupt",
    "InterruptSwallowed",
    "InvalidUpdateError",
    "IsLastStep",
    "LangGraphDeprecatedSinceV05",
    "LangGraphDeprecatedSinceV10",
    "LangGraphDeprecatedSinceV11",
    "LangGraphDeprecationWarning",
    "LastValue",
    "LastValueAfterFinish",
    "MessageGraph",
    "MessagesState",
    "MessagesStreamPart",
    "NamedBarrierValue",
    "NamedBarrierValueAfterFinish",
    "NodeBuilder",
    "NodeCancelledError",
    "NodeError",
    "NodeInterrupt",
    "NodeTimeoutError",
    "Overwrite",
    "ParentCommand",
    "Pregel",
    "PregelExecutableTask",
    "PregelTask",
    "REMOVE_ALL_MESSAGES",
    "RemainingSteps",
    "RemoveMessage",
    "RetryPolicy",
    "RunControl",
    "Runtime",
    "START",
    "Send",
    "ServerInfo",
    "StateGraph",
    "StateSnapshot",
    "StateUpdate",
    "StreamMode",
    "StreamPart",
    "StreamWriter",
    "TAG_HIDDEN",
    "TAG_NOSTREAM",
    "TaskNotFound",
    "TaskPayload",
    "TaskResultPayload",
    "TasksStreamPart",
    "TimeoutPolicy",
    "Topic",
    "TracePolicy",
    "UnknownInterruptError",
    "UntrackedValue",
    "UpdatesStreamPart",
    "ValuesStreamPart",
    "add_messages",
    "ensure_valid_checkpointer",
    "entrypoint",
    "get_config",
    "get_runtime",
    "get_store",
    "get_stream_writer",
    "interrupt",
    "interrupt_all",
    "is_invalid_resume",
    "omit_payload",
    "push_message",
    "task",
]

_MODULES = {
    "building.builder": "StateGraph",
    "running.caching": "InMemoryCache",
    "channels": (
        "AnyValue BaseChannel BinaryOperatorAggregate DeltaChannel EphemeralValue LastValue LastValueAfterFinish "
        "NamedBarrierValue NamedBarrierValueAfterFinish Topic UntrackedValue"
    ),
    "compiled": "CompiledStateGraph Pregel",
    "constants": "END START TAG_HIDDEN TAG_NOSTREAM",
    "errors": (
        "EmptyChannelError EmptyInputError ErrorCode GraphBubbleUp GraphDrained GraphInterrupt "
        "GraphRecursionError InterruptSwallowed InvalidUpdateError NodeCancelledError NodeError NodeInterrupt "
        "NodeTimeoutError ParentCommand TaskNotFound UnknownInterruptError is_invalid_resume"
    ),
    "functional": "entrypoint task",
    "interrupts": "interrupt interrupt_all",
    "building.managed": "IsLastStep RemainingSteps",
    "messages": "MessageGraph MessagesState REMOVE_ALL_MESSAGES RemoveMessage add_messages push_message",
    "pregel": "NodeBuilder",
    "runtime": (
        "BaseUser ExecutionInfo RunControl Runtime ServerInfo get_config get_runtime get_store get_stream_writer"
    ),
    "types": (
        "All CachePolicy CheckpointPayload CheckpointStreamPart CheckpointTask Checkpointer Command "
        "CustomStreamPart DebugPayload DebugStreamPart Durability GraphOutput Interrupt MessagesStreamPart "
        "Overwrite PregelExecutableTask PregelTask RetryPolicy Send StateSnapshot StateUpdate StreamMode "
        "StreamPart StreamWriter TaskPayload TaskResultPayload TasksStreamPart TimeoutPolicy TracePolicy "
        "UpdatesStreamPart ValuesStreamPart ensure_valid_checkpointer omit_payload"
    ),
    "warnings": (
        "LangGraphDeprecatedSinceV05 LangGraphDeprecatedSinceV10 LangGraphDeprecatedSinceV11 "
        "LangGraphDeprecationWarning"
    ),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _PLACES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
