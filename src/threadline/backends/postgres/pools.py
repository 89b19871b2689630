"""Where connections to PostgreSQL come from, for both halves: pools of ours, a given pool, or a given connection.

A given connection is used as it is, left as it was found, and not closed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus

from ...base.drive import settled
from ...errors import Closed, Conflict, InvalidRequest
from ..lending import Given, LoopPlaces, Places, is_of_work
from ..server import ServerDriver, ServerIdentity, watching
from .wire import MOST_PREPARED, Session, is_between_batches, is_idle

__all__ = ["GivenPostgres", "PostgresDriver", "half_of", "other_half"]

T = TypeVar("T")
Act = Callable[[Any], Coroutine[Any, Any, T]]


class PostgresDriver(ServerDriver):
    """psycopg's connections, as a pool lends them."""

    def __init__(
        self,
        conninfo: str,
        identity: ServerIdentity,
        *,
        timeout: float,
        patience: float | None,
        prepare_threshold: int | None,
        is_of_loop: bool,
    ) -> None:
        super().__init__(identity)
        self._conninfo = conninfo
        self._patience = patience
        self._connect: Any = psycopg.AsyncConnection.connect if is_of_loop else psycopg.connect
        self._options: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": prepare_threshold,
            "client_encoding": "utf8",
        }
        if "connect_timeout" not in conninfo_to_dict(conninfo):
            self._options["connect_timeout"] = max(2, min(10, int(timeout)))

    async def connect(self) -> Any:
        generation = self.identity.generation
        try:
            connection = await settled(self._connect(self._conninfo, **self._options))
        except psycopg.ProgrammingError as error:
            # psycopg takes whatever is raised while it reads a number for a wrong number, an interrupt too.
            hidden = error.__context__
            if hidden is None or isinstance(hidden, (ValueError, TypeError, OverflowError)):
                raise
            raise hidden from None
        connection._pool = None  # one that is lost to an interrupt ends with its memory, without a warning
        connection.prepared_max = MOST_PREPARED
        return Session(connection, generation, self._patience, watching(connection.pgconn.socket))

    def has_ended(self, wire: Session) -> bool:
        return wire.pgconn.status == ConnStatus.BAD or (wire.waits is not None and bool(wire.waits(0)))

    async def answers(self, wire: Session) -> bool:
        try:
            await wire.batch([("SELECT 1", ())])
        except psycopg.Error:
            return False
        return True

    def is_reusable(self, wire: Session, error: BaseException | None) -> bool | Awaitable[bool]:
        if error is None and wire.is_at_rest():
            return True
        return _is_reusable(wire.connection, error)

    def close(self, wire: Session) -> None:
        wire.pgconn.finish()

    async def part(self, wire: Session) -> None:
        wire.pgconn.finish()


class GivenPostgres(Given):
    """A connection or a pool that the caller opened."""

    def __init__(self, connection: Any, pool: Any, identity: ServerIdentity) -> None:
        self._identity = identity
        is_async = half_of(connection, pool) == "async"
        places = LoopPlaces if is_async else Places
        if pool is not None:
            super().__init__(places(math.inf), pool.getconn, pool.putconn)
        else:
            super().__init__(places(1), lambda: connection)

    async def lend(self, act: Act[T]) -> T:
        async def as_found(connection: Any) -> T:
            return await _as_found(connection, act, self._identity.generation)

        return await super().lend(as_found)


async def _as_found(connection: Any, act: Act[T], generation: int) -> T:
    """The result of work on a given connection; it is left as it was found, or closed."""
    _check_usable(connection)
    is_restored = not connection.autocommit
    is_kept = False
    try:
        if is_restored:
            await settled(connection.set_autocommit(True))
        result = await act(Session(connection, generation))
        is_kept = True
        return result
    except BaseException as error:
        is_kept = await _is_reusable(connection, error)
        raise
    finally:
        if not is_kept:
            connection.pgconn.finish()
        elif is_restored:
            await settled(connection.set_autocommit(False))


def half_of(connection: Any, pool: Any) -> str | None:
    """Which half a given connection or pool serves."""
    if connection is None and pool is None:
        return None
    if isinstance(connection, psycopg.Connection) or isinstance(pool, psycopg_pool.ConnectionPool):
        return "sync"
    if isinstance(connection, psycopg.AsyncConnection) or isinstance(pool, psycopg_pool.AsyncConnectionPool):
        return "async"
    raise InvalidRequest(
        "connection takes a psycopg Connection or AsyncConnection, pool a psycopg_pool ConnectionPool or "
        "AsyncConnectionPool"
    )


def other_half(kind: str) -> InvalidRequest:
    """What is raised by the half that a given connection or pool cannot serve."""
    other, wanted = ("async", "AsyncConnection") if kind == "sync" else ("sync", "Connection")
    return InvalidRequest(
        f"what was given serves the {kind} half only: for the {other} half give a psycopg {wanted} or its pool, "
        f"or a URL for both"
    )


def _check_usable(connection: Any) -> None:
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


async def _is_reusable(connection: Any, error: BaseException | None) -> bool:
    """Whether a connection is in no transaction any more, and in the middle of nothing."""
    if connection.closed or (error is not None and _may_be_interrupt(connection, error)):
        return False
    if not is_between_batches(connection):
        return False
    try:
        if not is_idle(connection):
            await settled(connection.execute("ROLLBACK"))
    except psycopg.Error:
        return False
    return is_idle(connection)


def _may_be_interrupt(connection: Any, error: BaseException) -> bool:
    """Whether an error may have come between any two lines, and so in the middle of an answer."""
    if isinstance(connection, psycopg.AsyncConnection):
        # The driver ends a statement whose task is cancelled, and reads its answer.
        return not isinstance(error, (Exception, asyncio.CancelledError))
    return not is_of_work(error, psycopg.Error)
