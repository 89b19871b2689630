"""What one call of a graph fixes for its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..building.plan import Keys
    from ..config import Config
    from ..runtime import RunControl, ServerInfo
    from ..showing.stream import Outlet
    from .tasks import Task

__all__ = ["RunSettings"]


@dataclass(slots=True, kw_only=True)
class RunSettings:
    """The call, resolved: everything that the run needs besides its input and its graph."""

    given: Any
    config: Config
    # The task that calls this graph; None for a run of its own.
    parent: Task | None
    saver: Any
    store: Any
    cache: Any
    context: Any
    control: RunControl | None
    server_info: ServerInfo | None
    thread_id: Any
    run_id: Any
    namespace: str
    checkpoint_id: str | None
    parents: Mapping[str, str]
    # namespace -> checkpoint id, as the caller addressed graphs inside this one.
    checkpoint_map: Mapping[str, str]
    durability: str
    output_keys: Keys
    interrupt_before: Sequence[str] | str
    interrupt_after: Sequence[str] | str
    recursion_limit: int
    # The listener of this call, and all listeners: its own and those above that want subgraphs.
    outlet: Outlet | None
    outlets: Sequence[tuple[Outlet, tuple[str, ...]]]
    # Whether chunks must be visible while a single task runs.
    eager: bool
    strict: bool
