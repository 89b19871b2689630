"""The measurements, one function per section of the table: a round in, its readings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.arena import Arena, Reading
from bench.sections import codec, concurrency, graph, history, longchat, memory, opening, servers

Section = Callable[[Arena], Iterator[Reading]]

SECTIONS: dict[str, Section] = {
    "disk": longchat.disk,
    "put": longchat.puts,
    "get": longchat.head,
    "list": longchat.listing,
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
}

__all__ = ["SECTIONS", "Section"]
