"""The doctor's round: first the server or file itself, then the store in it."""

from __future__ import annotations

import platform
from typing import Any

from ...core.context import Tools, bound
from ...errors import NewerFormat, StorageFull, ThreadlineError, Unavailable
from ...ports.engine import Engine
from ..names import system_of
from .findings import Finding, note, ok, problem
from .store import examine_store

__all__ = ["examine", "examine_backend", "refused"]


def examine_backend(engine: Engine, version: str) -> list[Finding]:
    """What the server or the file says, without looking into the store."""
    kind = system_of(engine.url)
    found = [ok("version", f"threadline {version}, Python {platform.python_version()}, {platform.system()}")]
    if kind == "sqlite":
        from .sqlite import examine_sqlite

        return [*found, *examine_sqlite(engine)]
    if kind == "postgresql":
        from .postgres import examine_postgres

        return [*found, *examine_postgres(engine)]
    if kind == "mysql":
        from .mysql import examine_mysql

        return [*found, *examine_mysql(engine)]
    if kind == "redis":
        from .redis import examine_redis

        return [*found, *examine_redis(engine)]
    return [*found, note("backend", "records in the memory of this process", "use a database for what should last")]


def examine(engine: Engine, tools: Tools, now: float) -> list[Finding]:
    """What the store itself says: whether it answers, what is large, late, held or damaged."""
    try:
        return engine.run(bound(tools, examine_store, now))
    except ThreadlineError as error:
        return [refused(error)]


def refused(error: ThreadlineError) -> Finding:
    """A store that cannot be opened or read, as a finding."""
    told = f"{type(error).__name__}: {error}"
    advice: Any = "the message says what to do"
    if isinstance(error, NewerFormat):
        advice = "upgrade threadline in this process: a later version wrote the store"
    elif isinstance(error, StorageFull):
        advice = "make room where the database lives; `threadline prune` and `sweep` work on a full disk"
    elif isinstance(error, Unavailable):
        advice = "look whether the server runs, can be reached from here, and has connections left"
    return problem("store", told, advice)
