"""How to connect to one PostgreSQL server, what became of its connections, and which of them are still good."""

from __future__ import annotations

import itertools
import select
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from psycopg.conninfo import conninfo_to_dict

from ..errors import Closed, Conflict, InvalidRequest, Unavailable
from .patience import patience_of
from .postgres_sessions import Session, is_idle

if TYPE_CHECKING:
    from .postgres_errors import Whereabouts

__all__ = ["GLANCE_SECONDS", "Settings", "abandoned", "check_usable", "has_input", "is_rested", "other_half"]

# Who waits for a connection looks this often whether the server is there at all.
GLANCE_SECONDS = 2.0
# A connection that rested longer is asked for a sign of life: firewalls forget the quiet ones without a word.
_RESTED_SECONDS = 30.0
_MOST_PREPARED = 250

_numbers = itertools.count(1)

# What a forked child must not close: the connections are its parent's.
abandoned: list[Any] = []


class Settings:
    """What both halves share: how to connect, and what became of it."""

    def __init__(
        self,
        conninfo: str,
        where: Whereabouts,
        *,
        pool_size: int,
        timeout: float,
        prepare_threshold: int | None,
        prepare: Callable[[Session], Coroutine[Any, Any, None]],
        is_ready: Callable[[], bool],
    ) -> None:
        self.conninfo = conninfo
        self.where = where
        self.pool_size = pool_size
        self.timeout = timeout
        # For how long a batch of statements waits for its answer.
        self.patience = patience_of(timeout)
        self.prepare = prepare
        self.is_ready = is_ready
        self.losses = 0
        self.is_closed = False
        self.kwargs: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": prepare_threshold,
            "client_encoding": "utf8",
        }
        if "connect_timeout" not in conninfo_to_dict(conninfo):
            self.kwargs["connect_timeout"] = max(2, min(10, int(timeout)))
        self._used: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self._generations: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("this saver was closed; open a new one with threadline.connect()")

    def lose(self) -> int:
        """A connection is gone: what this process knows of the server may be wrong now."""
        self.losses += 1
        return self.losses

    def is_current(self, connection: Any) -> bool:
        """Whether a connection of ours was made after the last loss: an older one may lead to a former server."""
        return self._generations.get(connection, self.losses) == self.losses

    def generation(self, connection: Any) -> int:
        """How often the server had been lost when a connection of ours was made."""
        return self._generations.get(connection, self.losses)

    def used(self, connection: Any) -> None:
        self._used[connection] = time.monotonic()

    def idle_seconds(self, connection: Any) -> float:
        return time.monotonic() - self._used.get(connection, 0.0)

    def pool_options(self) -> dict[str, Any]:
        return {
            "kwargs": self.kwargs,
            "min_size": 1,
            "max_size": self.pool_size,
            "num_workers": 1,
            "timeout": self.timeout,
            "name": f"threadline-pool-{next(_numbers)}",
            "open": False,
        }

    def exhausted(self) -> Unavailable:
        return Unavailable(
            f"all {self.pool_size} connections to {self.where} were busy for {self.timeout:g} s: raise pool_size"
        )

    def configure(self, connection: Any, generation: int | None = None) -> None:
        """A new connection of ours; the server has just answered it."""
        connection._pool = None  # one that is lost to an interrupt ends with its memory, without a warning
        connection.prepared_max = _MOST_PREPARED
        self.used(connection)
        self._generations[connection] = self.losses if generation is None else generation


def is_rested(idle_seconds: float) -> bool:
    """Whether a connection was not used for so long that it may be dead without anybody having said so."""
    return idle_seconds > _RESTED_SECONDS


def check_usable(connection: Any) -> None:
    """Refuse a given connection that its owner closed or is in the middle of using."""
    if connection.closed:
        raise Closed("the given connection is closed: it must stay open as long as its saver")
    if connection.pgconn.pipeline_status:
        raise Conflict(
            "the given connection is in pipeline mode: leave its pipeline() block before using the saver, which needs "
            "no pipeline of yours"
        )
    if not is_idle(connection):
        raise Conflict("the given connection is inside a transaction of yours: commit it before using the saver")


def has_input(connection: Any) -> bool:
    """Whether the server has sent something that nobody asked for: mostly its farewell."""
    if connection.closed:
        return True
    descriptor = connection.pgconn.socket
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


def other_half(kind: str) -> InvalidRequest:
    """What is raised by the half that a given connection or pool cannot serve."""
    other, wanted = ("async", "AsyncConnection") if kind == "sync" else ("sync", "Connection")
    return InvalidRequest(
        f"what was given serves the {kind} half only: for the {other} half give a psycopg {wanted} or its pool, "
        f"or a URL for both"
    )
