"""Servers with settings of their own, and a look behind the saver."""

import socket
import subprocess
import time

import redis


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


def client_of(url):
    """The driver's own client, to look behind the saver."""
    if url.startswith("redis+cluster"):
        return redis.cluster.RedisCluster.from_url(url.replace("+cluster", ""))
    return redis.Redis.from_url(url)


def keys_of(client, prefix):
    return sorted(key for key in client.scan_iter(match="*", count=10_000) if key.startswith(prefix.encode() + b":"))
