"""Threadline: persistence for AI agents. Git for agent state, and a drop-in for LangGraph's savers.

import threadline
saver = threadline.connect("sqlite:///agents.db")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .backends.retry import Retry
from .codec import KeyRing, Serializer, StoredException, register, register_module
from .connecting import connect
from .core.policy import Policy
from .errors import (
    Closed,
    Conflict,
    Corrupt,
    InvalidRequest,
    MergeConflict,
    MissingExtra,
    NewerFormat,
    NotAllowed,
    NotFound,
    NotSerializable,
    ReadOnly,
    StorageFull,
    ThreadlineError,
    Unavailable,
)
from .model import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    copy_checkpoint,
    empty_checkpoint,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from .saver import Saver

if TYPE_CHECKING:
    from .core.policies import Plan
    from .thread import Thread

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointTuple",
    "Closed",
    "Conflict",
    "Corrupt",
    "InvalidRequest",
    "KeyRing",
    "MergeConflict",
    "MissingExtra",
    "NewerFormat",
    "NotAllowed",
    "NotFound",
    "NotSerializable",
    "PendingWrite",
    "Plan",
    "Policy",
    "ReadOnly",
    "Retry",
    "Saver",
    "Serializer",
    "StorageFull",
    "StoredException",
    "Thread",
    "ThreadlineError",
    "Unavailable",
    "connect",
    "copy_checkpoint",
    "empty_checkpoint",
    "get_checkpoint_id",
    "get_checkpoint_metadata",
    "register",
    "register_module",
]


def __getattr__(name: str) -> Any:
    """Names whose modules load only when somebody asks for them: a graph that runs needs neither."""
    if name == "Thread":
        from .thread import Thread

        return Thread
    if name == "Plan":
        from .core.policies import Plan

        return Plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
