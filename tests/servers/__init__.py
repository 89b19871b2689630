"""Real servers for tests and benchmarks, started on 127.0.0.1 by whoever needs them.

    with PostgresServer() as server:
        psycopg.connect(server.url)

Rules of this package:
- Nothing is left behind: servers live in the folder of a keeper, whose guard kills and removes all of it when the
  last process that holds the folder ends, whatever ended it.
- As root, servers run as `nobody`: PostgreSQL and PgBouncer refuse root. That is why their folders are not in
  `tmp_path`, which only its owner can enter.
- Importing it imports no driver.

Fixtures are in `plugin.py`: `postgres`, `mysql`, `redis_server`, `redis_cluster` and `pgbouncer` give a test a place
of its own on a server that the whole session shares; `private_postgres`, `private_mysql` and `private_redis` give
it a server that it may kill.
"""

from __future__ import annotations

from .binaries import KINDS, missing
from .mariadb import MariadbServer
from .pgbouncer import PgbouncerServer
from .postgres import PostgresServer
from .redis_server import RedisCluster, RedisServer
from .server import Server, StartFailed

__all__ = [
    "KINDS",
    "MariadbServer",
    "PgbouncerServer",
    "PostgresServer",
    "RedisCluster",
    "RedisServer",
    "Server",
    "StartFailed",
    "missing",
]
