"""The facts about a machine that make its figures comparable: versions, cores, and the disk."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter

PACKAGES = (
    "threadline",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-mysql",
    "langchain-core",
    "pydantic",
    "ormsgpack",
    "aiosqlite",
    "psycopg",
    "PyMySQL",
    "aiomysql",
    "redis",
)

SERVERS = {"postgresql": "postgres", "mariadb": "mariadbd", "redis server": "redis-server"}


def facts(directory: Path) -> dict[str, str]:
    """Name and value of each, in the order of the report."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "sqlite": sqlite3.sqlite_version,
        **{name: _server_version(program) for name, program in SERVERS.items()},
        "sync of 4 KB to disk": f"{sync_seconds(directory) * 1000:.2f} ms",
        **{name: _version(name) for name in PACKAGES},
    }


def load() -> str | None:
    """A warning when others are using the machine, where the system tells."""
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if busy < (os.cpu_count() or 1) / 4:
        return None
    return f"the machine is busy (load {busy:.1f}): expect the figures to waver"


def sync_seconds(directory: Path, times: int = 50) -> float:
    """How long the disk takes to promise 4 KB: the floor under every durable put."""
    seconds: list[float] = []
    path = directory / "sync"
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            start = perf_counter()
            file.write(b"\0" * 4_096)
            os.fsync(file.fileno())
            seconds.append(perf_counter() - start)
    path.unlink()
    return median(seconds)


def _server_version(program: str) -> str:
    """The first number with dots that the program says of itself."""
    from tests.servers.binaries import find

    path = find(program)
    if path is None:
        return "not installed"
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+(\.\d+)+", said)
    return number[0] if number else "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
