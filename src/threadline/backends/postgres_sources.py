"""Where the connections of the sync half come from: a pool of ours, a given pool, or a given connection.

A connection that is lent again is looked at without asking the server: nothing waits in its socket, so it is good; only
after a rest it is asked. What was given is used as it is, and not closed. postgres_loop.py is the same for the async
half.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import psycopg

from ..locks import renew_after_fork
from .lending import Pool, is_of_work
from .postgres_sessions import BlockingSession, Session, is_between_batches, is_idle
from .postgres_settings import Settings, abandoned, check_usable, has_input, is_rested

__all__ = ["BlockingSource"]

T = TypeVar("T")
Act = Callable[[Session], Coroutine[Any, Any, T]]


class BlockingSource:
    """Connections of the sync half."""

    _lock: threading.RLock  # looking at the tables for the first time, and all work on a given connection

    def __init__(self, settings: Settings, connection: Any = None, pool: Any = None) -> None:
        self._settings = settings
        self._given = connection
        self._given_pool = pool
        self._driver = _Driver(settings)
        self.pool = self._made_pool()
        renew_after_fork(self)

    async def lend(self, act: Act[T]) -> T:
        """The result of work on a session, alone on it, on tables that are there."""
        settings = self._settings

        async def on_tables(session: Session) -> T:
            if not settings.is_ready():
                with self._lock:
                    if not settings.is_ready():
                        await settings.prepare(session)
            # Making tables takes what it takes; everything else has its time.
            session.patience = settings.patience if self._given is None else None
            return await act(session)

        settings.check_open()
        return await self._lend(on_tables)

    async def set_up(self, act: Act[None]) -> None:
        """Work on a connection whose tables need not be there yet."""
        self._settings.check_open()
        await self._lend(act)

    def close(self) -> None:
        self.pool.close()

    def abandon(self) -> None:
        """After a fork, in the child: the parent goes on using its connections, and nobody may touch them here."""
        abandoned.append(self.pool)
        self.pool = self._made_pool()

    async def _lend(self, act: Act[T]) -> T:
        settings = self._settings
        if self._given is not None:
            with self._lock:
                return await _on_given(self._given, settings, act)
        if self._given_pool is not None:
            return await self._lend_given_pool(act)
        return await self.pool.lend(
            lambda connection: act(BlockingSession(connection, generation=settings.generation(connection)))
        )

    async def _lend_given_pool(self, act: Act[T]) -> T:
        connection = None
        try:
            connection = self._given_pool.getconn()
            return await _on_given(connection, self._settings, act)
        finally:
            if connection is not None:
                self._given_pool.putconn(connection)

    def _made_pool(self) -> Pool:
        return Pool(self._driver, self._settings.pool_size, self._settings.timeout, self._settings.exhausted)


async def _on_given(connection: Any, settings: Settings, act: Act[T]) -> T:
    """The result of work on a connection that somebody else opened; it is left as it was found, or closed."""
    check_usable(connection)
    is_restored = not connection.autocommit
    try:
        if is_restored:
            connection.autocommit = True
        result = await act(BlockingSession(connection, generation=settings.losses))
        if is_restored:
            connection.autocommit = False
        return result
    except BaseException as error:
        if not _is_reusable(connection, error):
            connection.pgconn.finish()
        elif is_restored:
            connection.autocommit = False
        raise


class _Driver:
    """What the pool has to know of psycopg's connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def connect(self) -> Any:
        generation = self._settings.losses
        connection = psycopg.connect(self._settings.conninfo, **self._settings.kwargs)
        self._settings.configure(connection, generation)
        return connection

    def is_good(self, connection: Any, idle_seconds: float) -> bool:
        settings = self._settings
        if connection.closed or not settings.is_current(connection):
            return False
        if has_input(connection) or (is_rested(idle_seconds) and not _answers(connection)):
            settings.lose()
            return False
        return True

    def is_reusable(self, connection: Any, error: BaseException | None) -> bool:
        return _is_reusable(connection, error)

    def close(self, connection: Any) -> None:
        connection.pgconn.finish()

    part = close


def _is_reusable(connection: Any, error: BaseException | None) -> bool:
    """Whether a connection is in no transaction any more, and in the middle of nothing."""
    if connection.closed or (error is not None and not is_of_work(error, psycopg.Error)):
        return False
    if not is_between_batches(connection):
        return False
    try:
        if not is_idle(connection):
            connection.execute("ROLLBACK")
    except psycopg.Error:
        return False
    return is_idle(connection)


def _answers(connection: Any) -> bool:
    try:
        connection.execute("")
    except psycopg.Error:
        return False
    return True
