"""One server of each kind for a whole test session, started by whichever worker needs it first.

What the workers know of it is a file in the keeper's folder; the server itself belongs to nobody but the guard.
Shared servers leave flushing to the system where they can: no test may crash them, so there is nothing to lose.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from .binaries import KINDS
from .keeper import keeper
from .mariadb import MariadbServer
from .pgbouncer import PgbouncerServer
from .postgres import PostgresServer
from .redis_server import RedisCluster, RedisServer
from .server import Server

__all__ = ["is_foreign", "own_url", "shared_url"]

_MAKERS: dict[str, Callable[[], Server | RedisCluster]] = {
    "postgres": lambda: PostgresServer(durable=False),
    "pgbouncer": lambda: PgbouncerServer(own_url("postgres")),
    "mysql": lambda: MariadbServer(durable=False),
    "redis": RedisServer,
    "redis_cluster": RedisCluster,
}
# Held so that their processes are not complained about while they run.
_started: list[Server | RedisCluster] = []


def shared_url(kind: str) -> str:
    """The URL of the session's server of this kind, or of the one that the environment names."""
    return os.environ.get(KINDS[kind].variable) or own_url(kind)


def own_url(kind: str) -> str:
    """The URL of the server of this kind that the session starts for itself."""
    kept = keeper()
    noted = kept.folder / f"{kind}.url"
    if not noted.exists():
        with kept.alone(f"shared-{kind}"):
            if not noted.exists():
                server = _MAKERS[kind]().start()
                _started.append(server)
                noted.write_text(server.url)
    return noted.read_text()


def is_foreign(kind: str) -> bool:
    """Whether the server is one that the environment names: it has other users, and rules of its own."""
    return bool(os.environ.get(KINDS[kind].variable))
