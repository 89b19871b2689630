"""The measurements, one function per section of the table: a round in, its readings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.arena import Arena, Reading
from bench.sections import (
    calls,
    codec,
    concurrency,
    graph,
    history,
    longchat,
    memory,
    moving,
    opening,
    runtime,
    servers,
    short,
    store,
    tiers,
    web,
)
from bench.sections import metrics as metering

Section = Callable[[Arena], Iterator[Reading]]

SECTIONS: dict[str, Section] = {
    "short": short.short,
    "calls": calls.calls,
    "disk": longchat.disk,
    "put": longchat.puts,
    "get": longchat.head,
    "list": longchat.listing,
    "compact": longchat.compaction,
    "tasks": concurrency.tasks,
    "threads": concurrency.threads,
    "graph": graph.turns,
    "open": opening.imports,
    "memory": memory.memory,
    "codec": codec.codec,
    "postgres": servers.postgres,
    "mysql": servers.mysql,
    "redis": servers.redis,
    "history": history.history,
    "moving": moving.moving,
    "runtime": runtime.runtime,
    "store": store.store,
    "metrics": metering.metrics,
    "tiers": tiers.tiers,
    "web": web.web,
}

__all__ = ["SECTIONS", "Section"]
