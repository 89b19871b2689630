"""Connections to MySQL and MariaDB: how they are opened, kept, checked and given back, blocking and async side by side.

Decided here: a pool opens a connection when none is idle, up to its size. An idle connection that the server
has closed shows as readable, so it costs no round trip to notice; one that was idle for long is asked. When
one connection is lost, all idle ones are let go: they most likely went the same way.
"""

from __future__ import annotations

import select
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS

from ..errors import Closed, Conflict, Unavailable
from .lending import Pool, is_of_work
from .mysql import LOST, READ_ONLY, Answer
from .mysql_sight import Sight
from .patience import is_unhurried

__all__ = [
    "BlockingPool",
    "BlockingWire",
    "LoopPool",
    "LoopWire",
    "connect_on_loop",
    "is_in_step",
    "is_lost",
    "refuse_if_closed",
]

T = TypeVar("T")
# Networks forget connections that are silent for long.
_LONG_IDLE_SECONDS = 60.0


def is_lost(error: BaseException) -> bool:
    """Whether the connection cannot be used after this error: it broke, or was left in the middle of an answer."""
    if isinstance(error, pymysql.err.MySQLError):
        return not error.args or error.args[0] in LOST or isinstance(error, pymysql.err.InterfaceError)
    return isinstance(error, (OSError, EOFError)) or not isinstance(error, Exception)


def is_in_step(error: BaseException) -> bool:
    """Whether the connection can be used after this error: work raised it, not an interrupt in the middle of it."""
    return is_of_work(error, pymysql.err.MySQLError) and not is_useless(error)


def is_useless(error: BaseException) -> bool:
    """Whether a new connection may do better: this one is lost, or its server only reads by now."""
    return is_lost(error) or (isinstance(error, pymysql.err.MySQLError) and error.args[0] in READ_ONLY)


class _Wire:
    """What both kinds of connection tell of themselves."""

    most_bytes = 0
    doubted = 0

    def __init__(self, connection: Any, patience: float | None = None) -> None:
        self.connection = connection
        self._patience = patience
        self._can_join = bool(connection.client_flag & CLIENT.MULTI_STATEMENTS)

    def _packets(self, statements: Sequence[bytes]) -> Sequence[bytes]:
        return [b";".join(statements)] if self._can_join else statements

    def _seconds(self) -> float | None:
        """For how long an answer is waited for; None for as long as it takes."""
        return None if is_unhurried.get() else self._patience

    def refuse_foreign_transaction(self) -> None:
        """A given connection may be busy with work of its owner, which ours must not commit."""
        if self.connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            raise Conflict("the given connection is inside a transaction of yours: commit it before using the saver")


def _answer(cursor: Any, rows: Sequence[Any]) -> Answer:
    return Answer(rows, tuple([column[0] for column in cursor.description or ()]), cursor.rowcount)


class BlockingWire(_Wire):
    """A PyMySQL connection; never suspends."""

    async def send(self, statements: Sequence[bytes]) -> list[Answer]:
        answers = []
        if self._patience is not None:
            self.connection._read_timeout = self._seconds()
        cursor = self.connection.cursor(pymysql.cursors.Cursor)
        for packet in self._packets(statements):
            cursor.execute(packet)
            answers.append(_answer(cursor, cursor.fetchall()))
            while cursor.nextset():
                answers.append(_answer(cursor, cursor.fetchall()))
        return answers


class LoopWire(_Wire):
    """An aiomysql connection."""

    async def send(self, statements: Sequence[bytes]) -> list[Answer]:
        import asyncio

        seconds = self._seconds()
        if seconds is None:
            return await self._sent(statements)
        # Closed under it, a read ends with the error of a lost connection.
        end = asyncio.get_running_loop().call_later(seconds, self.connection.close)
        try:
            return await self._sent(statements)
        finally:
            end.cancel()

    async def _sent(self, statements: Sequence[bytes]) -> list[Answer]:
        import aiomysql

        answers = []
        cursor = await self.connection.cursor(aiomysql.Cursor)
        for packet in self._packets(statements):
            await cursor.execute(packet)
            answers.append(_answer(cursor, await cursor.fetchall() if cursor.description else ()))
            while await cursor.nextset():
                answers.append(_answer(cursor, await cursor.fetchall() if cursor.description else ()))
        return answers


class BlockingPool:
    """PyMySQL connections for the threads of this process."""

    def __init__(self, connect: Callable[[], Any], size: int, timeout: float, sight: Sight) -> None:
        self._driver = _Driver(connect, sight)
        self._size = size
        self._timeout = timeout
        self.restart()

    def restart(self) -> None:
        """Begin anew in a forked process; what was inherited is closed without a word to the server."""
        self.pool = Pool(self._driver, self._size, self._timeout, lambda: exhausted(self._size, self._timeout))

    async def lend(self, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a connection, alone on it."""
        try:
            return await self.pool.lend(act)
        except Exception as error:
            if is_useless(error):
                self.pool.drop_idle()
            raise

    def close(self) -> None:
        self.pool.close()


class _Driver:
    """What the pool has to know of PyMySQL's connections."""

    def __init__(self, connect: Callable[[], Any], sight: Sight) -> None:
        self.connect = connect
        self._sight = sight

    def is_good(self, connection: Any, idle_seconds: float) -> bool:
        if not self._sight.is_current(connection):
            return False
        if not _works(connection, idle_seconds):
            self._sight.lose()
            return False
        return True

    def is_reusable(self, connection: Any, error: BaseException | None) -> bool:
        return bool(connection.open) and (error is None or is_in_step(error))

    def close(self, connection: Any) -> None:
        connection._force_close()

    def part(self, connection: Any) -> None:
        try:
            connection.close()
        except (pymysql.err.MySQLError, OSError):
            connection._force_close()


def _works(connection: Any, idle_seconds: float) -> bool:
    if not connection.open or _is_readable(connection._sock):
        return False
    if idle_seconds > _LONG_IDLE_SECONDS:
        try:
            connection.ping(reconnect=False)
        except (pymysql.err.MySQLError, OSError):
            return False
    return True


def _is_readable(sock: Any) -> bool:
    """Whether the server has said something unasked, which can only be a goodbye."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


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


async def connect_on_loop(options: dict[str, Any]) -> Any:
    """A new connection of the running loop."""
    connection = _quiet_connection()(**options)
    await connection._connect()
    return connection


class LoopPool:
    """aiomysql connections for the tasks of one event loop."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int, timeout: float, sight: Sight) -> None:
        import asyncio

        self._connect = connect
        self._sight = sight
        self._size = size
        self._timeout = timeout
        self._is_closed = False
        self._places = asyncio.Semaphore(size)
        self._idle: list[tuple[Any, float]] = []

    async def lend(self, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a connection, alone on it."""
        import asyncio

        refuse_if_closed(self._is_closed)
        try:
            if self._places.locked():
                await asyncio.wait_for(self._places.acquire(), self._timeout)
            else:
                await self._places.acquire()
        except asyncio.TimeoutError:
            raise exhausted(self._size, self._timeout) from None
        try:
            refuse_if_closed(self._is_closed)
            return await self._on(await self._taken() or await self._connect(), act)
        finally:
            self._places.release()

    async def _on(self, connection: Any, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        try:
            return await act(connection)
        except BaseException as error:
            if not is_in_step(error):
                connection.close()
            if isinstance(error, Exception) and is_useless(error):
                self._drop_idle()
            raise
        finally:
            if self._is_closed:
                connection.close()
            elif not connection.closed:
                self._idle.append((connection, time.monotonic()))

    async def aclose(self) -> None:
        self._is_closed = True
        while self._idle:
            await self._idle.pop()[0].ensure_closed()

    def close(self) -> None:
        """Let go of connections whose loop has ended, or is about to."""
        self._is_closed = True
        self._drop_idle()

    async def _taken(self) -> Any:
        while self._idle:
            connection, since = self._idle.pop()
            if self._sight.is_current(connection):
                if await _works_on_loop(connection, time.monotonic() - since):
                    return connection
                self._sight.lose()
            connection.close()
        return None

    def _drop_idle(self) -> None:
        for connection, _ in self._idle:
            connection.close()
        self._idle.clear()


async def _works_on_loop(connection: Any, idle_seconds: float) -> bool:
    reader = connection._reader
    if connection.closed or reader.at_eof() or reader.exception() or getattr(reader, "eof_received", False):
        return False
    if idle_seconds > _LONG_IDLE_SECONDS:
        try:
            await connection.ping(reconnect=False)
        except (pymysql.err.MySQLError, OSError):
            return False
    return True


def refuse_if_closed(is_closed: bool) -> None:
    """Raise Closed after `close`."""
    if is_closed:
        raise Closed("this saver was closed; open a new one with threadline.connect()")


def exhausted(size: int, timeout: float) -> Unavailable:
    """All connections are in use."""
    return Unavailable(f"all {size} connections were in use for {timeout:g} s: raise pool_size, or timeout")
