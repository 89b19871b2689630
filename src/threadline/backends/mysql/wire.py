"""How statements travel to MySQL: in packets of several, on a connection of either driver, with an end of waiting.

PyMySQL's connections block, aiomysql's belong to an event loop; this file is the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT, ER, SERVER_STATUS

from ...errors import Conflict
from ..layers.patience import is_unhurried
from .errors import is_useless

if TYPE_CHECKING:
    import asyncio

__all__ = ["ServerRun", "Wire", "is_of_loop"]

_IDENTITY = (
    b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    b"SELECT @@hostname, @@port, @@server_id",
    b"SHOW GLOBAL STATUS LIKE 'Uptime'",
)
# A server tells its age in whole seconds, and clocks are set.
_TOLERANCE_SECONDS = 5.0
# What a row of a change fails with whose thread is not as expected (put.py).
_REFUSED = (ER.BAD_NULL_ERROR, ER.DUP_ENTRY)


@dataclass(frozen=True, slots=True, eq=False)
class ServerRun:
    """Which server a connection leads to, and since when that runs."""

    name: tuple[Any, ...]
    started: float

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ServerRun):
            return NotImplemented
        return self.name == other.name and abs(self.started - other.started) <= _TOLERANCE_SECONDS


def is_of_loop(connection: Any) -> bool:
    """Whether a connection is aiomysql's; one that a function gave may be a proxy of PyMySQL's."""
    return hasattr(connection, "ensure_closed")


class Wire:
    """A connection, for the time that a thread or task works on it."""

    # How many bytes a packet may have.
    most_bytes = 0

    def __init__(self, connection: Any, generation: int = 0, patience: float | None = None) -> None:
        self.connection = connection
        # How often the server had been lost when the connection was made.
        self.generation = generation
        # For how many seconds an answer is waited for; None for as long as the connection itself waits.
        self.patience = patience
        self.is_of_loop = is_of_loop(connection)
        # Waits until something can be read; None where an event loop does that, or nobody asks.
        self.waits: Callable[[int], Any] | None = None
        self._can_join = bool(connection.client_flag & CLIENT.MULTI_STATEMENTS)

    async def send(self, statements: Sequence[bytes]) -> list[Any]:
        """The driver's results of these statements, in one round trip where the connection can do that."""
        connection, is_of_loop, results = self.connection, self.is_of_loop, []
        end = self._limited()
        try:
            for packet in [b";".join(statements)] if self._can_join else statements:
                answer = connection.query(packet)
                while answer is not None:
                    if is_of_loop:
                        await answer
                    results.append(connection._result)
                    answer = connection.next_result() if connection._result.has_next else None
        finally:
            if end is not None:
                end.cancel()
        return results

    async def put(self, statements: Sequence[bytes]) -> int | None:
        """Send a whole transaction in one packet; returns the key that its second statement made, or 0.

        None where the packet is too large, or a row was refused: then nothing is written.
        """
        if not self._can_join or sum(map(len, statements)) + len(statements) > self.most_bytes:
            return None
        try:
            return int((await self.send(statements))[1].insert_id)
        except pymysql.err.MySQLError as error:
            if not is_useless(error):
                await self.send([b"ROLLBACK"])
            if error.args[0] in _REFUSED:
                return None
            raise

    async def server(self) -> ServerRun:
        """Ask which server this is."""
        _, [name], [(_, age)] = [result.rows for result in await self.send(_IDENTITY)]
        return ServerRun(tuple(name), time.time() - float(age))

    def refuse_foreign_transaction(self) -> None:
        """A given connection may be busy with work of its owner, which ours must not commit."""
        if self.connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            raise Conflict("the given connection is inside a transaction of yours: commit it before using the saver")

    def _limited(self) -> asyncio.TimerHandle | None:
        """Begin to wait for an answer, and not for ever."""
        if self.patience is None:
            return None
        seconds = None if is_unhurried.get() else self.patience
        if not self.is_of_loop:
            self.connection._read_timeout = seconds
            return None
        if seconds is None:
            return None
        import asyncio

        # Closed under it, a read ends with the error of a lost connection.
        return asyncio.get_running_loop().call_later(seconds, self.connection.close)
