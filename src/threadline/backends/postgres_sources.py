"""Where the connections of the sync half come from: a pool of ours, a given pool, or a given connection.

A pool opens on first use. Before that, one direct attempt to connect checks the tables, so that what is wrong is
said at once and by its name, which a pool would only log. A connection that is handed out again is looked at
without asking the server: nothing waits in its socket, so it is good; only after a rest it is asked. What was
given is used as it is, and not closed. postgres_loop.py is the same for the async half.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import psycopg_pool

from ..locks import renew_after_fork
from .postgres_sessions import BlockingSession, Session, is_idle
from .postgres_settings import GLANCE_SECONDS, Settings, abandoned, check_usable, has_input

__all__ = ["BlockingSource"]


class BlockingSource:
    """Connections of the sync half."""

    _lock: threading.RLock  # opening, and all work on a given connection

    def __init__(self, settings: Settings, connection: Any = None, pool: Any = None) -> None:
        self._settings = settings
        self._given = connection
        self._given_pool = pool
        self._is_ours = connection is None and pool is None
        self._pool: Any = None
        self._lent: set[int] = set()
        renew_after_fork(self)

    async def take(self) -> Session:
        """A session for one piece of work, alone on it, on tables that are there."""
        self._settings.check_open()
        if self._is_ours and self._pool is None:
            with self._lock:
                if self._pool is None:
                    await self._first()
                    self._pool = self._made_pool()
        session = self._taken()
        try:
            await self._prepare(session)
            if not self._settings.is_ready():
                await self._settings.prepare(session)
        except BaseException:
            await self.give(session)
            raise
        return session

    async def give(self, session: Session) -> None:
        """Back where it came from, in no transaction."""
        connection = session.connection
        try:
            if not connection.closed and not is_idle(connection):
                await session.batch([("ROLLBACK", ())])
            if session.is_restored and not connection.closed:
                connection.autocommit = False
        except psycopg.Error:
            connection.pgconn.finish()
        except BaseException:
            # Interrupted on the way: nobody knows what the connection is in the middle of.
            connection.pgconn.finish()
            raise
        finally:
            if session.pool is None:
                self._lock.release()
            else:
                self._lent.discard(id(connection))
                if self._is_ours:
                    self._settings.used(connection)
                session.pool.putconn(connection)

    async def set_up(self, act: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        """Work on a connection whose tables need not be there yet."""
        self._settings.check_open()
        if self._is_ours:
            with self._connect() as connection:
                return await act(BlockingSession(connection))
        session = self._taken()
        try:
            await self._prepare(session)
            return await act(session)
        finally:
            await self.give(session)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close(timeout=2.0)
            self._pool = None

    def abandon(self) -> None:
        """After a fork, in the child: the parent goes on using its connections, and nobody may touch them here."""
        if self._pool is not None:
            self._pool._closed = True  # keeps its destructor from waiting for threads that stayed behind
            abandoned.append(self._pool)
        self._pool, self._lent = None, set()

    async def _first(self) -> None:
        """A direct attempt: whatever is wrong with the address, the user or the tables is raised here."""
        with self._connect() as connection:
            if not self._settings.is_ready():
                await self._settings.prepare(BlockingSession(connection))

    async def _prepare(self, session: Session) -> None:
        check_usable(session.connection, is_ours=self._is_ours)
        if not session.connection.autocommit:
            session.connection.autocommit = session.is_restored = True

    def _taken(self) -> Session:
        if self._given is not None:
            self._lock.acquire()
            return BlockingSession(self._given, generation=self._settings.losses)
        if self._given_pool is not None:
            generation = self._settings.losses
            return BlockingSession(self._given_pool.getconn(), self._given_pool, generation)
        settings, pool = self._settings, self._pool
        deadline = time.monotonic() + settings.timeout
        while True:
            try:
                connection = pool.getconn(timeout=max(0.01, min(deadline - time.monotonic(), GLANCE_SECONDS)))
            except psycopg_pool.PoolTimeout as busy:
                if len(self._lent) < settings.pool_size:
                    self._connect().close()  # raises what is wrong
                if time.monotonic() >= deadline:
                    raise settings.exhausted() from busy
                continue
            generation = settings.losses
            is_gone = has_input(connection)
            if not is_gone and settings.is_current(connection):
                self._lent.add(id(connection))
                return BlockingSession(connection, pool, generation)
            if is_gone:
                settings.lose()
            connection.close()
            pool.putconn(connection)

    def _connect(self) -> Any:
        return psycopg.connect(self._settings.conninfo, **self._settings.kwargs)

    def _made_pool(self) -> Any:
        settings = self._settings
        pool: Any = psycopg_pool.ConnectionPool(
            settings.conninfo, check=self._check, configure=settings.configure, **settings.pool_options()
        )
        pool.open()
        return pool

    def _check(self, connection: Any) -> None:
        if self._settings.is_rested(connection):
            try:
                psycopg_pool.ConnectionPool.check_connection(connection)
            except psycopg.Error:
                self._settings.lose()
                raise
