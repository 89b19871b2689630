"""Places for stores on every backend, and object stores: a folder, and servers of S3."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tier_stores import Place, S3Place

from tests.servers.plugin import require_programs
from tests.servers.s3 import BUCKET, MotoServer, RcloneServer, S3Server, SeaweedServer
from tests.stores import savers

BACKENDS = ["memory", "sqlite", "postgres", "mysql", "redis"]
SERVERS: dict[str, type[S3Server]] = {"seaweedfs": SeaweedServer, "rclone": RcloneServer, "moto": MotoServer}


@pytest.fixture
def cold(tmp_path: Path) -> str:
    """A folder as the cold tier."""
    (tmp_path / "cold").mkdir()
    return f"file://{tmp_path / 'cold'}"


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place on each backend: its URL, and the options that keep tests apart."""
    kind = request.param
    if kind == "memory":
        return f"memory://{uuid.uuid4()}", {}
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'threads.db'}", {}
    if kind == "postgres":
        return request.getfixturevalue("postgres").url, {}
    found = request.getfixturevalue("mysql" if kind == "mysql" else "redis_server")
    option = "table_prefix" if kind == "mysql" else "key_prefix"
    return found.url, {option: getattr(found, option)}


@pytest.fixture
def opened(place: Place, cold: str) -> Iterator[Callable[..., Any]]:
    """Opens savers of the place with the cold tier; they are closed when the test ends."""
    with savers(place[0], **place[1], cold=cold) as opening:
        yield opening


@pytest.fixture(scope="session")
def _s3_servers() -> Iterator[dict[str, S3Server]]:
    started: dict[str, S3Server] = {}
    yield started
    for server in started.values():
        server.remove()


@pytest.fixture(params=list(SERVERS))
def s3(
    request: pytest.FixtureRequest, _s3_servers: dict[str, S3Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> S3Place:
    """A prefix of the test's own on each server of S3, with the environment that leads to it."""
    kind = request.param
    require_programs(kind)
    server = _s3_servers.get(kind)
    if server is None:
        server = _s3_servers[kind] = SERVERS[kind]().start()
        server.make_bucket()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return S3Place(f"s3://{BUCKET}/{uuid.uuid4()}", server)
