"""Servers for the tests of Redis: started in a folder of their own, and stopped when the run ends."""

import shutil
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import redis
import threadline
from tests.servers.plugin import require_server
from tests.servers.shared import shared_url

HERE = Path(__file__).parent
# Some helpers of the tests of durability make and check states that can be made again from their step.
sys.path.insert(0, str(HERE.parent / "durability"))
pytest.register_assert_rewrite("threadline.testing")


class Server:
    """One redis-server that can be killed and started again on the same files."""

    def __init__(self, folder, *settings):
        self.folder = folder
        self.port = free_port()
        self.settings = settings
        self.process = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([*words, *self.settings], stdout=log, stderr=log)
        wait_until(self.answers)

    def answers(self):
        try:
            return redis.Redis(port=self.port).ping()
        except redis.AuthenticationError:
            return True
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


def free_port():
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        if port < 50000:  # a cluster talks on port + 10000 too
            return port


def wait_until(is_so, seconds=30):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "the server did not come up"
        time.sleep(0.02)


DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")


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


def client_of(url):
    """The driver's own client, to look behind the saver."""
    if url.startswith("redis+cluster"):
        return redis.cluster.RedisCluster.from_url(url.replace("+cluster", ""))
    return redis.Redis.from_url(url)


def keys_of(client, prefix):
    return sorted(key for key in client.scan_iter(match="*", count=10_000) if key.startswith(prefix.encode() + b":"))


@pytest.fixture
def prefix(url):
    """A key prefix of the test's own; its keys are deleted afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    client = client_of(url)
    for key in keys_of(client, name):
        client.unlink(key)
    client.close()


@pytest.fixture
def connect(url, prefix):
    """Opens savers that are closed when the test ends."""
    opened = []

    def open_saver(**options):
        opened.append(threadline.connect(url, **{"key_prefix": prefix, **options}))
        return opened[-1]

    yield open_saver
    for saver in opened:
        saver.close()


@pytest.fixture
def client(url):
    made = client_of(url)
    yield made
    made.close()
