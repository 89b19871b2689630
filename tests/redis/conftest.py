"""Servers for the tests of Redis: started in a folder of their own, and stopped when the run ends."""

import shutil
import sys
import uuid
from pathlib import Path

import pytest

from tests.servers.plugin import require_server
from tests.servers.shared import shared_url
from tests.stores import savers

sys.path.insert(0, str(Path(__file__).parent))
from redis_tools import DURABLE, Server, client_of, keys_of  # noqa: F401

HERE = Path(__file__).parent
# Some helpers of the tests of durability make and check states that can be made again from their step.
sys.path.insert(0, str(HERE.parent / "durability"))
pytest.register_assert_rewrite("threadline.testing")


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """Starts servers with given settings."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    started = []

    def start(*settings):
        started.append(Server(tmp_path_factory.mktemp("redis"), *settings))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def redis_url():
    """The session's server, which keeps every acknowledged put, or the one that THREADLINE_TEST_REDIS names."""
    require_server("redis")
    return shared_url("redis")


@pytest.fixture(scope="session")
def cluster_url():
    """Three servers that are one cluster."""
    require_server("redis_cluster")
    return shared_url("redis_cluster")


@pytest.fixture(params=["single", "cluster"])
def url(request):
    """A server, then a cluster."""
    return request.getfixturevalue("redis_url" if request.param == "single" else "cluster_url")


@pytest.fixture(scope="session")
def sweeper():
    """A client of a shared server for all tests of this process: to ask a cluster for its nodes takes a while."""
    made = {}

    def of(url):
        if url not in made:
            made[url] = client_of(url)
        return made[url]

    yield of
    for client in made.values():
        client.close()


@pytest.fixture
def prefix(url, sweeper):
    """A key prefix of the test's own; its keys are deleted afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    client = sweeper(url)
    removing = client.pipeline(transaction=False)  # one by one, the server would flush its log for each
    for key in keys_of(client, name):
        removing.unlink(key)
    removing.execute()


@pytest.fixture
def connect(url, prefix):
    """Opens savers that are closed when the test ends."""
    with savers(url, key_prefix=prefix) as opening:
        yield opening


@pytest.fixture
def client(url):
    made = client_of(url)
    yield made
    made.close()
