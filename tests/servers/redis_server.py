"""Redis alone, and as a cluster of three. Both keep every command on disk before they answer."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TYPE_CHECKING

from .processes import BUS, wait_until
from .server import Server, StartFailed, program

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RedisCluster", "RedisServer"]

SLOTS = 16384
DURABLE = {"appendonly": "yes", "appendfsync": "always", "save": ""}


class RedisServer(Server):
    kind = "redis"

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self.settings = {**DURABLE, **{name.replace("_", "-"): value for name, value in settings.items()}}

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def ask(self, *words: object) -> str:
        """The answer to a command, as it stands on the wire, up to 64 KiB; for set-up that needs no driver."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(" ".join(map(str, words)).encode() + b"\r\n")
            return connection.recv(65536).decode(errors="replace")

    def _command(self) -> list[str]:
        own = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.folder), "daemonize": "no"}
        options = [part for name, value in {**own, **self.settings}.items() for part in (f"--{name}", value)]
        return [program("redis-server"), *options]

    def _answers(self) -> bool:
        # While it reads what it stored, it answers with an error.
        try:
            return self.ask("PING").startswith("+PONG")
        except OSError:
            return False


class RedisCluster:
    """Three nodes that share the slots, without replicas. A node can be killed and started like any server."""

    def __init__(self) -> None:
        # Long enough that a busy machine is not taken for a dead node.
        settings = {"cluster_enabled": "yes", "cluster_node_timeout": "5000"}
        self.nodes = [RedisServer(**settings) for _ in range(3)]

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    @property
    def pids(self) -> list[int]:
        return [pid for node in self.nodes for pid in node.pids]

    def start(self) -> Self:
        """Returns when every node serves every slot, itself or by sending to another."""
        for node in self.nodes:
            node.start()
        first = self.nodes[0]
        if "cluster_slots_assigned:0" in first.ask("CLUSTER", "INFO"):
            self._deal()
        if not wait_until(self._is_whole, seconds=30):
            raise StartFailed(f"the Redis Cluster does not come together:\n{first.ask('CLUSTER', 'NODES')}")
        return self

    def stop_hard(self) -> None:
        for node in self.nodes:
            node.stop_hard()

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()

    def _deal(self) -> None:
        first = self.nodes[0]
        share = -(-SLOTS // len(self.nodes))
        for number, node in enumerate(self.nodes):
            # Equal epochs would collide when the nodes meet, and mending that takes seconds.
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "ADDSLOTS", *range(number * share, min(SLOTS, (number + 1) * share)))
            if node is not first:
                node.ask("CLUSTER", "MEET", "127.0.0.1", first.port, first.port + BUS)

    def _is_whole(self) -> bool:
        reports = [node.ask("CLUSTER", "INFO") for node in self.nodes]
        return all("cluster_state:ok" in report and "cluster_known_nodes:3" in report for report in reports)
