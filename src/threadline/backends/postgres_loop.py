"""Where the connections of the async half come from: postgres_sources.py, with a pool for each event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
import psycopg_pool

from ..errors import Unavailable
from .postgres_sessions import LoopSession, Session, is_idle
from .postgres_settings import GLANCE_SECONDS, Settings, abandoned, check_usable, has_input, is_rested

__all__ = ["LoopSource"]

T = TypeVar("T")


class LoopSource:
    """Connections of the async half."""

    def __init__(self, settings: Settings, connection: Any = None, pool: Any = None) -> None:
        self._settings = settings
        self._given = connection
        self._given_pool = pool
        self._is_ours = connection is None and pool is None
        self._loops: dict[asyncio.AbstractEventLoop, _OfLoop] = {}

    async def lend(self, act: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a session, alone on it, on tables that are there."""
        session = await self._take()
        try:
            session.patience = self._settings.patience if self._given is None else None
            return await act(session)
        finally:
            await self._give(session)

    async def _take(self) -> Session:
        self._settings.check_open()
        here = self._here()
        if self._is_ours and here.pool is None:
            async with here.lock:
                if here.pool is None:
                    await self._first()
                    here.pool = await self._made_pool(here)
        session = await self._taken(here)
        try:
            await self._prepare(session)
            if not self._settings.is_ready():
                await self._settings.prepare(session)
        except BaseException:
            await self._give(session)
            raise
        return session

    async def _give(self, session: Session) -> None:
        """Back where it came from, in no transaction."""
        connection = session.connection
        here = self._here()
        try:
            if not connection.closed and not is_idle(connection):
                await session.batch([("ROLLBACK", ())])
            if session.is_restored and not connection.closed:
                await connection.set_autocommit(False)
        except psycopg.Error:
            connection.pgconn.finish()
        except BaseException:
            # Cancelled on the way: nobody knows what the connection is in the middle of.
            connection.pgconn.finish()
            raise
        finally:
            if session.pool is None:
                here.lock.release()
            else:
                here.lent.discard(id(connection))
                if self._is_ours:
                    self._settings.used(connection)
                await asyncio.shield(session.pool.putconn(connection))

    async def set_up(self, act: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        """Work on a connection whose tables need not be there yet."""
        self._settings.check_open()
        if self._is_ours:
            async with await self._connect() as connection:
                return await act(LoopSession(connection))
        session = await self._taken(self._here())
        try:
            await self._prepare(session)
            return await act(session)
        finally:
            await self._give(session)

    async def aclose(self) -> None:
        """Close the pool of this loop, and let the others know."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None and here.pool is not None:
            await _close_pool(here)
        self.close()

    def close(self) -> None:
        """Close every pool as its loop allows: a loop that runs closes its own, one that does not has no say."""
        loops, self._loops = self._loops, {}
        for loop, there in loops.items():
            if there.pool is None:
                continue
            if loop.is_running():
                loop.call_soon_threadsafe(_close_soon, loop, there)
            else:
                for connection in list(there.connections):
                    connection.pgconn.finish()

    def abandon(self) -> None:
        """After a fork, in the child: the connections are the parent's."""
        abandoned.extend(self._loops.values())
        self._loops = {}

    async def _first(self) -> None:
        """A direct attempt: whatever is wrong with the address, the user or the tables is raised here."""
        async with await self._connect() as connection:
            if not self._settings.is_ready():
                await self._settings.prepare(LoopSession(connection))

    async def _prepare(self, session: Session) -> None:
        if session.connection.closed and self._is_ours:
            raise Unavailable("the connection to the server is closed; try again")
        check_usable(session.connection)
        if not session.connection.autocommit:
            await session.connection.set_autocommit(True)
            session.is_restored = True

    async def _taken(self, here: _OfLoop) -> Session:
        if self._given is not None:
            await here.lock.acquire()
            return LoopSession(self._given, generation=self._settings.losses)
        if self._given_pool is not None:
            generation = self._settings.losses
            return LoopSession(await self._given_pool.getconn(), self._given_pool, generation)
        settings, pool = self._settings, here.pool
        deadline = time.monotonic() + settings.timeout
        while True:
            try:
                connection = await pool.getconn(timeout=max(0.01, min(deadline - time.monotonic(), GLANCE_SECONDS)))
            except psycopg_pool.PoolTimeout as busy:
                if len(here.lent) < settings.pool_size:
                    await (await self._connect()).close()  # raises what is wrong
                if time.monotonic() >= deadline:
                    raise settings.exhausted() from busy
                continue
            generation = settings.losses
            is_gone = has_input(connection)
            if not is_gone and settings.is_current(connection):
                here.lent.add(id(connection))
                return LoopSession(connection, pool, generation)
            if is_gone:
                settings.lose()
            await connection.close()
            await pool.putconn(connection)

    async def _connect(self) -> Any:
        return await psycopg.AsyncConnection.connect(self._settings.conninfo, **self._settings.kwargs)

    async def _made_pool(self, here: _OfLoop) -> Any:
        settings = self._settings

        async def configure(connection: Any) -> None:
            settings.configure(connection)
            here.connections[connection] = None

        pool: Any = psycopg_pool.AsyncConnectionPool(
            settings.conninfo, check=self._check, configure=configure, **settings.pool_options()
        )
        await pool.open()
        here.guard = asyncio.create_task(_end_with_loop(pool.name), name="threadline-guard")
        return pool

    async def _check(self, connection: Any) -> None:
        if is_rested(self._settings.idle_seconds(connection)):
            try:
                await psycopg_pool.AsyncConnectionPool.check_connection(connection)
            except psycopg.Error:
                self._settings.lose()
                raise

    def _here(self) -> _OfLoop:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other)
            here = self._loops[loop] = _OfLoop()
        return here


class _OfLoop:
    """What belongs to one event loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.pool: Any = None
        self.guard: asyncio.Task[None] | None = None
        self.lent: set[int] = set()
        self.connections: WeakKeyDictionary[Any, None] = WeakKeyDictionary()


# A task that nobody holds may be collected before it is done.
_closing: set[asyncio.Task[None]] = set()


def _close_soon(loop: asyncio.AbstractEventLoop, there: _OfLoop) -> None:
    task = loop.create_task(_close_pool(there))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _close_pool(there: _OfLoop) -> None:
    await there.pool.close(timeout=2.0)
    if there.guard is not None:
        there.guard.cancel()


async def _end_with_loop(pool_name: str) -> None:
    """Wait until the loop ends, and see to it that the pool's tasks end too.

    A loop that ends cancels its tasks once. Those of the pool take a cancellation that meets them at work for
    a failed piece of work, and go on, so that `asyncio.run` would never return.
    """
    try:
        await asyncio.Event().wait()
    finally:
        own = asyncio.current_task()
        while left := [
            task for task in asyncio.all_tasks() if task.get_name().startswith(f"{pool_name}-") and task is not own
        ]:
            for task in left:
                task.cancel()
            await asyncio.sleep(0)
