"""How the faces of a store (saver, maintenance, thread) run operations, and where each operation is.

An operation is a coroutine function of a `Context`, or of a plain `Backend` where it needs no keys. It is loaded when
it is first run: most programs only put and get, and opening a store is quick.
"""

# mypy: implicit-reexport
# ruff: noqa: F401
from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..ports.checkpoints import Backend
from ..ports.engine import Engine
from .context import Context, Tools, bound

if TYPE_CHECKING:
    from .history.branch import copy_thread, discard, fork
    from .history.diff import diff_between
    from .history.log import read_log
    from .history.merge import merge
    from .history.state import mark_at, point_at, read_state, writes_at, writes_by_task
    from .integrity.fsck import check
    from .integrity.quarantine import quarantine, quarantined, unquarantine
    from .integrity.repair import repair
    from .interrupts import answer
    from .keys import key_uses, keys_in_use, rotate
    from .leases import end, locks
    from .lifecycle import create, pin, set_status, tag, unpin, untag
    from .listing import channel_versions
    from .retention.loosen import compact
    from .retention.prune import delete, delete_checkpoint, delete_runs, delete_thread
    from .retention.restore import empty, restore
    from .retention.sweep import collect, prune, prune_to_latest, sweep
    from .retention.trash import listed
    from .standing import standing
    from .stats import failed_probe, probe, take_stats, weigh_named
    from .threads import Asked, Listing, count_threads, describe, heads
    from .tiering.running import plan_tier, restore_tier, run_tier, tier_status
    from .updates import put_update
    from .usage import shares

_NAMES = {
    "history.branch": "copy_thread discard fork",
    "history.diff": "diff_between",
    "history.log": "read_log",
    "history.merge": "merge",
    "history.state": "mark_at point_at read_state writes_at writes_by_task",
    "integrity.fsck": "check",
    "integrity.quarantine": "quarantine quarantined unquarantine",
    "integrity.repair": "repair",
    "interrupts": "answer",
    "keys": "key_uses keys_in_use rotate",
    "leases": "end locks",
    "lifecycle": "create pin set_status tag unpin untag",
    "listing": "channel_versions",
    "retention.loosen": "compact",
    "retention.prune": "delete delete_checkpoint delete_runs delete_thread",
    "retention.restore": "empty restore",
    "retention.sweep": "collect prune prune_to_latest sweep",
    "retention.trash": "listed",
    "standing": "standing",
    "stats": "failed_probe probe take_stats weigh_named",
    "threads": "Asked Listing count_threads describe heads",
    "tiering.running": "plan_tier restore_tier run_tier tier_status",
    "updates": "put_update",
    "usage": "shares",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

P = ParamSpec("P")
T = TypeVar("T")
OfContext = Callable[Concatenate[Context, P], Coroutine[Any, Any, T]]
OfBackend = Callable[Concatenate[Backend, P], Coroutine[Any, Any, T]]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(name)
    found = getattr(importlib.import_module(f".{_MODULES[name]}", __package__), name)
    globals()[name] = found
    return found


async def opened(store: Context) -> None:
    """Nothing more: a store is open when an operation on it begins."""


class Face:
    """One engine and one set of tools: `_run` opens the store for an operation, `_ask` asks the backend alone."""

    def __init__(self, engine: Engine, tools: Tools) -> None:
        self._engine, self._tools = engine, tools

    def _run(self, operation: OfContext[P, T], *args: P.args, **options: P.kwargs) -> T:
        return self._engine.run(bound(self._tools, operation, *args, **options))

    async def _arun(self, operation: OfContext[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await self._engine.arun(bound(self._tools, operation, *args, **options))

    def _ask(self, operation: OfBackend[P, T], *args: P.args, **options: P.kwargs) -> T:
        return self._engine.run(lambda backend: operation(backend, *args, **options))

    async def _aask(self, operation: OfBackend[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await self._engine.arun(lambda backend: operation(backend, *args, **options))
