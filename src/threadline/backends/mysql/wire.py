"""How statements travel to MySQL: in packets of several, on a connection of either driver, with an end of waiting.

PyMySQL's connections block, aiomysql's belong to an event loop; this file is the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT, COMMAND, CR, ER, SERVER_STATUS

from ...base.drive import run_now
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
# Numbers from here on stand for a number in so many bytes behind them.
_LONGER, _SIZES = 0xFB, {0xFC: 2, 0xFD: 3, 0xFE: 8}
_MORE = int(SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS)
# A count with the words behind it; whatever is longer is left to the driver.
_MOST_COUNT = 1024
_SHORT = 7
_UNSET = object()
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
        if not self.is_of_loop:
            return self.put_now(statements)
        if not self._has_room_for(statements):
            return None
        try:
            return await self._counted(b";".join(statements))
        except pymysql.err.MySQLError as error:
            if not is_useless(error):
                await self.send([b"ROLLBACK"])
            if error.args[0] in _REFUSED:
                return None
            raise

    def put_now(self, statements: Sequence[bytes]) -> int | None:
        """`put` on a connection that blocks."""
        if not self._has_room_for(statements):
            return None
        try:
            return self._counted_now(b";".join(statements))
        except pymysql.err.MySQLError as error:
            if not is_useless(error):
                run_now(self.send([b"ROLLBACK"]))
            if error.args[0] in _REFUSED:
                return None
            raise

    def _has_room_for(self, statements: Sequence[bytes]) -> bool:
        return self._can_join and sum(map(len, statements)) + len(statements) <= self.most_bytes

    async def _counted(self, packet: bytes) -> int:
        """Send statements that are answered with counts; returns the key that the second one made, or 0.

        The drivers read an answer in twenty steps, of which most are for results that these statements do not have.
        """
        connection, counts = self.connection, _Counts()
        end = self._limited()
        try:
            await connection._execute_command(COMMAND.COM_QUERY, packet)
            while counts.status & _MORE:
                counts.add((await connection._read_packet())._data)
        finally:
            if end is not None:
                end.cancel()
        connection.server_status = counts.status
        return counts.key

    def _counted_now(self, packet: bytes) -> int:
        """The same. All counts that have come are looked at in the driver's buffer, and taken out at once."""
        connection, counts = self.connection, _Counts()
        self._limited()
        connection._execute_command(COMMAND.COM_QUERY, packet)
        answers = connection._rfile
        if getattr(connection, "_current_timeout", _UNSET) != connection._read_timeout:
            connection._sock.settimeout(connection._read_timeout)
            connection._current_timeout = connection._read_timeout
        while counts.status & _MORE:
            end, number = counts.add_from(_peeked(answers), connection._next_seq_id)
            if end:
                answers.read(end)
                connection._next_seq_id = number
            else:  # an error, or in pieces, or nothing came
                counts.add(connection._read_packet()._data)
        connection.server_status = counts.status
        return counts.key

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


class _Counts:
    """The answers to a packet of statements without rows."""

    __slots__ = ("key", "number", "status")

    def __init__(self) -> None:
        self.number = self.key = 0
        self.status = _MORE

    def add(self, answer: bytes) -> None:
        """Take one answer, without its head."""
        made, self.status = _read_count(answer)
        self.number += 1
        if self.number == 2:
            self.key = made

    def add_from(self, read: bytes, number: int) -> tuple[int, int]:
        """Take what is whole at the head of what was read; returns where that ends, and the number that is next."""
        at, most = 0, len(read)
        while self.status & _MORE:
            size = int.from_bytes(read[at : at + 3], "little")
            start, end = at + 4, at + 4 + size
            if not _MOST_COUNT >= size > 0 or end > most or read[at + 3] != number or read[start]:
                break
            if size == _SHORT:  # both numbers are in a byte each
                self.status = read[at + 7] | read[at + 8] << 8
                self.number += 1
                if self.number == 2:
                    self.key = read[at + 6]
            else:
                self.add(read[start:end])
            at, number = end, (number + 1) % 256
        return at, number


def _peeked(answers: Any) -> bytes:
    """What the server has said so far, and at least a byte of it; nothing where the driver has to say why."""
    try:
        return answers.peek()  # type: ignore[no-any-return]
    except OSError:
        return b""


def _read_count(answer: bytes) -> tuple[int, int]:
    """The key that a statement made, and the state of its session, from the packet that the protocol calls OK."""
    try:
        if answer[0] == 0:
            _, at = _read_length(answer, 1)
            key, at = _read_length(answer, at)
            return key, answer[at] | answer[at + 1] << 8
    except (IndexError, KeyError):
        pass
    out_of_step = "a statement that has no rows was not answered with a count"
    raise pymysql.err.OperationalError(CR.CR_COMMANDS_OUT_OF_SYNC, out_of_step)


def _read_length(answer: bytes, at: int) -> tuple[int, int]:
    """A number that says by its first byte how long it is, and where it ends."""
    first = answer[at]
    if first < _LONGER:
        return first, at + 1
    size = _SIZES[first]
    return int.from_bytes(answer[at + 1 : at + 1 + size], "little"), at + 1 + size
