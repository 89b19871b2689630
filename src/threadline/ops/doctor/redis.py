"""A Redis or Valkey server: what it keeps at a crash, what it throws away when it is full, whose replica it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...base.drive import run_now
from ...show.figures import readable_bytes
from .findings import Finding, checked, ok, problem, warning

__all__ = ["examine_redis"]

_SETTINGS = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy", "active-replica")


def examine_redis(engine: Any) -> list[Finding]:
    """What the server says; of a cluster, the node that answers."""
    link = engine.blocking_half().link

    def command(*words: Any) -> Any:
        return run_now(link.command(*words))

    info: dict[str, str] = {}

    def learn() -> Iterable[Finding]:
        info.update(_parsed(command("INFO")))
        return _server(info)

    found = checked("backend", learn)
    for subject, check in (
        ("durability", lambda: _durability(_settings(command), info)),
        ("memory", lambda: _memory(_settings(command), info)),
        ("replica", lambda: _replica(_settings(command), info)),
        ("cluster", lambda: _cluster(command) if link.is_cluster else ()),
    ):
        found += checked(subject, check)
    return found


def _parsed(answer: Any) -> dict[str, str]:
    """The facts of INFO; a driver may have parsed them already, and a cluster's answers for each node."""
    if isinstance(answer, dict):
        nested = [value for value in answer.values() if isinstance(value, (dict, bytes))]
        if nested and len(nested) == len(answer):
            return _parsed(nested[0])
        return {_plain(key): _plain(value) for key, value in answer.items()}
    return dict(line.split(":", 1) for line in _plain(answer).splitlines() if ":" in line)


def _settings(command: Any) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name in _SETTINGS:
        answer = command("CONFIG GET", name)
        pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
        settings.update({_plain(key): _plain(value) for key, value in pairs})
    return settings


def _server(info: Mapping[str, str]) -> Iterable[Finding]:
    days = float(info.get("uptime_in_seconds", 0)) / 86_400
    yield ok("backend", f"Redis {info.get('redis_version', '?')}, up for {days:,.1f} days")


def _durability(settings: Mapping[str, str], info: Mapping[str, str]) -> Iterable[Finding]:
    file, sync = settings.get("appendonly"), settings.get("appendfsync")
    told = f"appendonly {file}, appendfsync {sync}"
    if file == "no":
        kept = "only snapshots are kept: a crash takes the last minutes" if settings.get("save") else "nothing is kept"
        yield problem("durability", f"{told}; {kept}", "set appendonly yes and appendfsync always")
    elif sync != "always":
        yield warning("durability", f"{told}; a crash may take the last second", "set appendfsync always")
    else:
        yield ok("durability", told)
    for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if info.get(name, "ok") != "ok":
            yield problem("durability", f"{name} is {info[name]}", "look at the disk of the server: it cannot write")


def _memory(settings: Mapping[str, str], info: Mapping[str, str]) -> Iterable[Finding]:
    used, most = int(info.get("used_memory", 0)), int(settings.get("maxmemory") or 0)
    policy, evicted = settings.get("maxmemory-policy", "?"), int(info.get("evicted_keys", 0))
    told = f"{readable_bytes(used)} used of {readable_bytes(most) if most else 'no limit'}, {policy}"
    if evicted:
        advice = "set maxmemory-policy noeviction, then run `threadline fsck`: parts of threads may be gone"
        yield problem("memory", f"{told}; {evicted:,} keys were evicted since the server started", advice)
    elif most and policy.startswith("allkeys-"):
        yield problem("memory", told, "a full server evicts parts of threads: set maxmemory-policy noeviction")
    elif most and used > most * 0.9:
        yield warning("memory", told, "raise maxmemory, or let threads expire: at the limit nothing can be put")
    else:
        yield ok("memory", told)


def _replica(settings: Mapping[str, str], info: Mapping[str, str]) -> Iterable[Finding]:
    if info.get("role", "master") != "master":
        yield problem("replica", "this is a replica: nothing can be put", "connect to the primary")
    elif settings.get("active-replica") == "yes":
        yield problem(
            "replica", "several servers take writes (active-replica)", "let all clients write to one, without it"
        )
    else:
        count = info.get("connected_slaves", "0")
        yield ok("replica", f"this server takes the writes, and {count} replicas follow")


def _cluster(command: Any) -> Iterable[Finding]:
    held = _parsed(command("CLUSTER INFO"))
    told = f"{held.get('cluster_known_nodes', '?')} nodes, {held.get('cluster_slots_ok', '?')} slots served"
    if held.get("cluster_state") != "ok":
        yield problem("cluster", f"{told}, state {held.get('cluster_state')}", "bring the missing nodes back")
    else:
        yield ok("cluster", told)


def _plain(word: Any) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
