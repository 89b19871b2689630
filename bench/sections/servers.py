"""The work of the sections on SQLite, once more on a server: Threadline and its counterpart on the same one.

A section starts a server of its own, so that every round finds it new, and calls its readings by names of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from bench import servers
from bench.arena import Arena, Reading
from bench.sections import concurrency, graph, longchat

POSTGRES_ROWS = {
    "disk.bytes": "postgres.bytes",
    "disk.share": "postgres.share",
    "compact.share": "postgres.compacted",
    "put.last": "postgres.put",
    "put.growth": "postgres.put_growth",
    "put.trusted_last": "postgres.put_trusted",
    "get.head": "postgres.head",
    "list.ten": "postgres.ten",
    "list.ten_first": "postgres.ten_first",
    "list.ten_shared": "postgres.ten_shared",
    "tasks.rate": "postgres.tasks",
    "threads.rate": "postgres.threads",
    "graph.turn": "postgres.turn",
    "graph.bytes": "postgres.turn_bytes",
}
MYSQL_ROWS = {
    "disk.bytes": "mysql.bytes",
    "put.last": "mysql.put",
    "put.growth": "mysql.put_growth",
    "get.head": "mysql.head",
    "tasks.rate": "mysql.tasks",
}
REDIS_ROWS = {"put.last": "redis.put", "get.head": "redis.head"}


def postgres(arena: Arena) -> Iterator[Reading]:
    with servers.postgres() as server:
        inside = arena.between(servers.OursOnServer(server), servers.PostgresPeer(server))
        yield from _named(longchat.disk(inside), POSTGRES_ROWS)
        yield from _named(longchat.puts(inside), POSTGRES_ROWS)
        yield from _named(longchat.head(inside), POSTGRES_ROWS)
        yield from _named(longchat.listing_ten(inside), POSTGRES_ROWS)
        yield from _named(longchat.compaction(inside), POSTGRES_ROWS)
        yield from _named(concurrency.tasks(inside), POSTGRES_ROWS)
        yield from _named(concurrency.threads(inside), POSTGRES_ROWS)
        yield from _named(graph.plain_turns(inside), POSTGRES_ROWS)


def mysql(arena: Arena) -> Iterator[Reading]:
    """Nothing is read while the chat is put, and its head once: on MariaDB the peer takes many seconds for that."""
    size = replace(arena.size, reads=1)
    with servers.mariadb() as server:
        sides = servers.OursOnServer(server), servers.MysqlPeer(server)
        inside = arena.between(*sides, size=size, reloads=False)
        yield from _named(longchat.disk(inside), MYSQL_ROWS)
        yield from _named(longchat.puts(inside), MYSQL_ROWS)
        yield from _named(longchat.head(inside), MYSQL_ROWS)
        yield from _named(concurrency.tasks(inside), MYSQL_ROWS)


def redis(arena: Arena) -> Iterator[Reading]:
    """Both sides are Threadline: there is nothing to calibrate."""
    if arena.is_calibration:
        return
    with servers.redis() as server, servers.postgres() as beside:
        inside = arena.between(servers.OursOnRedis(server), servers.OursOnServer(beside))
        yield from _named(longchat.puts(inside), REDIS_ROWS)
        yield from _named(longchat.head(inside), REDIS_ROWS)
        files, changed = inside.chat_files, arena.work.changed_bytes
        yield Reading("redis.share", files.ours.bytes_on_disk / changed, files.peer.bytes_on_disk / changed)


def _named(readings: Iterable[Reading], names: Mapping[str, str]) -> Iterator[Reading]:
    """The readings that have a name here, under it."""
    for reading in readings:
        if reading.key in names:
            yield Reading(names[reading.key], reading.ours, reading.peer)
