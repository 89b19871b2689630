"""Where connections to MySQL and MariaDB come from, for both halves: pools of ours, or what the caller gave.

Every new connection is asked which server it leads to: after a failover another one may answer, or
one that lost commits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, TypeVar

import pymysql

from ...base.drive import settled
from ...errors import Closed, InvalidRequest
from ..lending import Given, LoopPlaces, Places, is_of_work
from ..server import ServerDriver, ServerIdentity, watching
from .errors import is_in_step, is_lost
from .url import Address
from .wire import Wire, is_of_loop

__all__ = ["GivenMysql", "MysqlDriver"]

T = TypeVar("T")


class MysqlDriver(ServerDriver):
    """Connections of PyMySQL or aiomysql, as a pool lends them."""

    def __init__(
        self, address: Address, identity: ServerIdentity, timeout: float, patience: float | None, *, is_of_loop: bool
    ) -> None:
        super().__init__(identity)
        self._address = address
        self._timeout = timeout
        self._patience = patience
        self._is_of_loop = is_of_loop

    async def connect(self) -> Any:
        generation = self.identity.generation
        if self._is_of_loop:
            connection = _quiet_connection()(**self._address.loop_options(self._timeout))
            await connection._connect()
        else:
            connection = pymysql.connect(**self._address.blocking_options(self._timeout))
        wire = Wire(connection, generation, self._patience)
        try:
            wire.generation = self.identity.met(await wire.server(), generation)
            if not self._is_of_loop:
                wire.waits = watching(connection._sock)
        except BaseException:
            self.close(wire)
            raise
        return wire

    def has_ended(self, wire: Wire) -> bool:
        connection = wire.connection
        if wire.waits is not None:
            return connection._sock is None or bool(wire.waits(0))
        if connection.closed:
            return True
        reader = connection._reader
        return bool(reader.at_eof() or reader.exception() or getattr(reader, "eof_received", False))

    async def answers(self, wire: Wire) -> bool:
        try:
            await settled(wire.connection.ping(reconnect=False))
        except (pymysql.err.MySQLError, OSError):
            return False
        return True

    def is_reusable(self, wire: Wire, error: BaseException | None) -> bool:
        connection = wire.connection
        is_open = not connection.closed if self._is_of_loop else connection._sock is not None
        return is_open and (error is None or is_in_step(error))

    def close(self, wire: Wire) -> None:
        connection = wire.connection
        if not self._is_of_loop:
            connection._force_close()
        elif not connection._loop.is_closed():  # else it ends with its memory
            connection.close()

    async def part(self, wire: Wire) -> None:
        connection = wire.connection
        try:
            await settled(connection.ensure_closed() if self._is_of_loop else connection.close())
        except (pymysql.err.MySQLError, OSError):
            self.close(wire)


class GivenMysql(Given):
    """A connection of either driver, a pool of aiomysql's, or a function such as the `connect` of another pool."""

    def __init__(self, connection: Any, pool: Any, identity: ServerIdentity) -> None:
        self._identity = identity
        # Of the sync half; the async half lets a thread wait for it.
        self.is_blocking = isinstance(connection, pymysql.connections.Connection) or callable(connection)
        self._is_single = pool is None and not callable(connection)
        if pool is not None:
            if not hasattr(pool, "acquire"):
                raise InvalidRequest("pool takes a pool of aiomysql; PyMySQL has none")
            super().__init__(LoopPlaces(math.inf), pool.acquire, pool.release)
        elif callable(connection):
            # Closing a connection of a pool gives it back.
            super().__init__(Places(math.inf), connection, lambda given: given.close())
        else:
            super().__init__(Places(1) if self.is_blocking else LoopPlaces(1), lambda: connection)

    async def lend(self, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async def as_given(connection: Any) -> T:
            if self._is_single and not _is_open(connection):
                raise Closed("the given connection was closed")
            try:
                return await act(Wire(connection, self._identity.generation))
            except BaseException as error:
                if not is_of_work(error, pymysql.err.MySQLError, OSError, EOFError):
                    # Interrupted between a question and its answer, which the next call would take for its own.
                    getattr(connection, "_force_close", connection.close)()
                elif not self._is_single and is_lost(error):
                    connection.close()  # so that its pool does not lend it again
                raise

        return await super().lend(as_given)


def _is_open(connection: Any) -> bool:
    return not connection.closed if is_of_loop(connection) else bool(connection.open)


@lru_cache(maxsize=1)
def _quiet_connection() -> type:
    """aiomysql's connection, for loops that end before anybody closed the saver."""
    import aiomysql

    class QuietConnection(aiomysql.Connection):  # type: ignore[misc]
        # The original closes its transport from whichever thread collects it, or complains that its loop is closed.
        def __del__(self) -> None:
            writer, self._writer = getattr(self, "_writer", None), None
            if writer is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(writer.transport.close)

    return QuietConnection
