"""Which server a process sees: after a failover another one may answer, without a word, or one that lost commits.

Every loss begins a new generation of connections; those of an older one are not used again. What is read on a
connection is stamped with its generation (sql/reader.py).
"""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Sight"]

_IDENTITY = (b"SELECT @@hostname, @@port, @@server_id", b"SHOW GLOBAL STATUS LIKE 'Uptime'")
# A server tells its age in whole seconds, and clocks are set.
_TOLERANCE_SECONDS = 5.0


class Sight:
    """What both halves of an engine know of its server."""

    def __init__(self) -> None:
        self.losses = 0
        self._server: Any = None
        self._started = 0.0
        self._generations: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def lose(self) -> None:
        """A connection is gone, or led to another server: what was known of the store may be wrong since."""
        self.losses += 1

    def is_current(self, connection: Any) -> bool:
        """Whether a connection was made after the last loss."""
        return self._generations.get(connection, self.losses) == self.losses

    def generation(self, connection: Any) -> int:
        """How often the server had been lost when this connection was met."""
        return self._generations.get(connection, self.losses)

    async def meet(self, wire: Any) -> None:
        """Ask a new connection which server it leads to, and since when that runs."""
        if wire.connection in self._generations:
            return
        before = self.losses
        [[server], [(_, age)]] = [answer.rows for answer in await wire.send(_IDENTITY)]
        started = time.time() - float(age)
        if self._server is not None and (server != self._server or abs(started - self._started) > _TOLERANCE_SECONDS):
            self.lose()
            before = self.losses
        self._server, self._started = server, started
        self._generations[wire.connection] = before
