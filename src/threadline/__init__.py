"""Threadline: persistence for AI agents. Git for agent state, and a drop-in for LangGraph's savers.

    import threadline

    saver = threadline.connect("sqlite:///agents.db")

Names that few programs need are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .backends.layers.retry import Retry
from .base.checkpoint import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    copy_checkpoint,
    empty_checkpoint,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from .codec import KeyRing, Serializer, StoredException, register, register_module
from .connect import connect
from .core.retention.policy import Policy, TierPolicy
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
    TooLarge,
    Unavailable,
)
from .saver import Saver

if TYPE_CHECKING:
    from .core.records.batch import GetOp, Item, ListNamespacesOp, MatchCondition, PutOp, SearchOp
    from .core.retention.plan import Plan
    from .records import Cache, Store
    from .thread import Thread

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointTuple",
    "Closed",
    "Conflict",
    "Corrupt",
    "GetOp",
    "InvalidRequest",
    "Item",
    "KeyRing",
    "ListNamespacesOp",
    "MatchCondition",
    "MergeConflict",
    "MissingExtra",
    "NewerFormat",
    "NotAllowed",
    "NotFound",
    "NotSerializable",
    "PendingWrite",
    "Plan",
    "Policy",
    "PutOp",
    "ReadOnly",
    "Retry",
    "Saver",
    "SearchOp",
    "Serializer",
    "StorageFull",
    "Store",
    "StoredException",
    "Thread",
    "ThreadlineError",
    "TierPolicy",
    "TooLarge",
    "Unavailable",
    "connect",
    "copy_checkpoint",
    "empty_checkpoint",
    "get_checkpoint_id",
    "get_checkpoint_metadata",
    "register",
    "register_module",
]


# Names whose modules load only when somebody asks for them: a graph that runs needs none.
_PLACES = {
    "Plan": "core.retention.plan",
    "Thread": "thread",
    **dict.fromkeys(("Cache", "Store"), "records"),
    **dict.fromkeys(("GetOp", "Item", "ListNamespacesOp", "MatchCondition", "PutOp", "SearchOp"), "core.records.batch"),
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{place}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
