"""Where connections come from: a pool of ours for each half, a given pool, or a given connection.

Pools open on first use. Before that, one direct attempt to connect checks the tables, so that what is wrong is
said at once and by its name, which a pool would only log. A connection that is handed out again is looked at
without asking the server: if nothing waits in its socket it is good, and only after a pause is it asked. What
was given is used as it is, is not closed, and serves its own half only.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
import psycopg_pool

from ..errors import Closed, Conflict, InvalidRequest, Unavailable
from ..locks import renew_after_fork
from .postgres_sessions import BlockingSession, LoopSession, Session, is_idle

if TYPE_CHECKING:
    import asyncio

    from .postgres_errors import Whereabouts

__all__ = ["BlockingSource", "LoopSource", "Settings"]

# Who waits for a connection looks this often whether the server is there at all.
_GLANCE_SECONDS = 2.0
# A connection that rested longer is asked for a sign of life: firewalls forget the quiet ones without a word.
_RESTED_SECONDS = 30.0
_MOST_PREPARED = 250


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
        self.prepare = prepare
        self.is_ready = is_ready
        self.losses = 0
        self.when_lost: Callable[[], None] | None = None
        self.is_closed = False
        self.kwargs: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": prepare_threshold,
            "client_encoding": "utf8",
        }
        if "connect_timeout" not in psycopg.conninfo.conninfo_to_dict(conninfo):
            self.kwargs["connect_timeout"] = max(2, min(10, int(timeout)))
        self._used: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("this saver was closed; open a new one with threadline.connect()")

    def lose(self) -> None:
        """A connection is gone: what this process knows of the server may be wrong now."""
        self.losses += 1
        if self.when_lost is not None:
            self.when_lost()

    def used(self, connection: Any) -> None:
        self._used[connection] = time.monotonic()

    def is_fresh(self, connection: Any) -> bool:
        """Whether a connection was used a moment ago and the server has sent nothing since: no farewell."""
        rested = time.monotonic() - self._used.get(connection, 0.0)
        return rested < _RESTED_SECONDS and not _has_input(connection)

    def pool_options(self) -> dict[str, Any]:
        return {
            "kwargs": self.kwargs,
            "min_size": 1,
            "max_size": self.pool_size,
            "num_workers": 1,
            "timeout": self.timeout,
            "name": "threadline",
            "open": False,
        }

    def exhausted(self) -> Unavailable:
        return Unavailable(
            f"all {self.pool_size} connections to {self.where} were busy for {self.timeout:g} s: raise pool_size"
        )


class BlockingSource:
    """Connections of the sync half."""

    _lock: threading.RLock  # opening, and all work on a given connection

    def __init__(self, settings: Settings, connection: Any = None, pool: Any = None) -> None:
        self._settings = settings
        self._given = connection
        self._given_pool = pool
        self._pool: Any = None
        self._lent: set[int] = set()
        self._restore: bool | None = None
        renew_after_fork(self)

    async def take(self) -> Session:
        """A session for one piece of work, alone on it."""
        settings = self._settings
        settings.check_open()
        if self._given is None and self._given_pool is None and self._pool is None:
            with self._lock:
                if self._pool is None:
                    await self._first()
                    self._pool = self._made_pool()
        connection = self._take()
        try:
            check_given(connection)
            if not connection.autocommit:
                self._restore, connection.autocommit = True, True
            session = BlockingSession(connection)
            if not settings.is_ready():
                await settings.prepare(session)
            return session
        except BaseException:
            await self.give(BlockingSession(connection))
            raise

    async def give(self, session: Session) -> None:
        """Back where it came from, without a transaction."""
        connection = session.connection
        if not connection.closed and not is_idle(connection):
            try:
                await session.batch([("ROLLBACK", ())])
            except psycopg.Error:
                connection.close()
        if self._restore and not connection.closed:
            connection.autocommit = False
        if self._given is not None:
            self._lock.release()
        elif self._given_pool is not None:
            self._given_pool.putconn(connection)
        else:
            self._lent.discard(id(connection))
            self._settings.used(connection)
            self._pool_of(connection).putconn(connection)

    async def _first(self) -> None:
        """A direct attempt: whatever is wrong with the address, the user or the tables is raised here."""
        session = BlockingSession(self._connect())
        try:
            if not self._settings.is_ready():
                await self._settings.prepare(session)
        finally:
            session.connection.close()

    async def set_up(self, act: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        """Work on a connection whose tables need not be there yet."""
        self._settings.check_open()
        if self._given is None and self._given_pool is None:
            session = BlockingSession(self._connect())
            try:
                return await act(session)
            finally:
                session.connection.close()
        connection = self._take()
        try:
            check_given(connection)
            return await act(BlockingSession(connection))
        finally:
            await self.give(BlockingSession(connection))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close(timeout=2.0)
            self._pool = None

    def abandon(self) -> None:
        """After a fork, in the child: the parent goes on using its connections, and nobody may touch them here."""
        if self._pool is not None:
            self._pool._closed = True  # keeps its destructor from waiting for threads that stayed behind
            _abandoned.append(self._pool)
        self._pool, self._lent = None, set()

    def _take(self) -> Any:
        if self._given is not None:
            self._lock.acquire()
            return self._given
        if self._given_pool is not None:
            return self._given_pool.getconn()
        deadline = time.monotonic() + self._settings.timeout
        while True:
            try:
                left = max(0.01, deadline - time.monotonic())
                connection = self._pool.getconn(timeout=min(left, _GLANCE_SECONDS))
                self._lent.add(id(connection))
                return connection
            except psycopg_pool.PoolTimeout as busy:
                if len(self._lent) < self._settings.pool_size:
                    self._connect().close()  # raises what is wrong
                if time.monotonic() >= deadline:
                    raise self._settings.exhausted() from busy

    def _connect(self) -> Any:
        return psycopg.connect(self._settings.conninfo, **self._settings.kwargs)

    def _made_pool(self) -> Any:
        settings = self._settings
        pool: Any = psycopg_pool.ConnectionPool(
            settings.conninfo, check=self._check, configure=configure, **settings.pool_options()
        )
        pool.open()
        return pool

    def _check(self, connection: Any) -> None:
        if not self._settings.is_fresh(connection):
            try:
                psycopg_pool.ConnectionPool.check_connection(connection)
            except psycopg.Error:
                self._settings.lose()
                raise

    def _pool_of(self, connection: Any) -> Any:
        # A saver closed meanwhile has no pool any more; its connections know theirs.
        return self._pool or connection._pool


class LoopSource:
    """Connections of the async half: a pool for each event loop."""

    def __init__(self, settings: Settings, connection: Any = None, pool: Any = None) -> None:
        self._settings = settings
        self._given = connection
        self._given_pool = pool
        self._loops: dict[asyncio.AbstractEventLoop, _OfLoop] = {}
        self._restore: bool | None = None

    async def take(self) -> Session:
        settings = self._settings
        settings.check_open()
        here = self._here()
        if self._given is None and self._given_pool is None and here.pool is None:
            async with here.lock:
                if here.pool is None:
                    await self._first()
                    here.pool = await self._made_pool()
        connection = await self._take(here)
        try:
            check_given(connection)
            if not connection.autocommit:
                self._restore = True
                await connection.set_autocommit(True)
            session = LoopSession(connection)
            if not settings.is_ready():
                await settings.prepare(session)
            return session
        except BaseException:
            await self.give(LoopSession(connection))
            raise

    async def give(self, session: Session) -> None:
        connection = session.connection
        if not connection.closed and not is_idle(connection):
            try:
                await session.batch([("ROLLBACK", ())])
            except psycopg.Error:
                await connection.close()
        if self._restore and not connection.closed:
            await connection.set_autocommit(False)
        here = self._here()
        if self._given is not None:
            here.lock.release()
        elif self._given_pool is not None:
            await self._given_pool.putconn(connection)
        else:
            here.lent.discard(id(connection))
            self._settings.used(connection)
            await (here.pool or connection._pool).putconn(connection)

    async def _first(self) -> None:
        session = LoopSession(await self._connect())
        try:
            if not self._settings.is_ready():
                await self._settings.prepare(session)
        finally:
            await session.connection.close()

    async def set_up(self, act: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        """Work on a connection whose tables need not be there yet."""
        self._settings.check_open()
        if self._given is None and self._given_pool is None:
            session = LoopSession(await self._connect())
            try:
                return await act(session)
            finally:
                await session.connection.close()
        connection = await self._take(self._here())
        try:
            check_given(connection)
            return await act(LoopSession(connection))
        finally:
            await self.give(LoopSession(connection))

    async def aclose(self) -> None:
        """Close the pool of this loop, and let the others know."""
        import asyncio

        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None and here.pool is not None:
            await here.pool.close(timeout=2.0)
        self.close()

    def close(self) -> None:
        """Close every pool as its loop allows: a loop that runs closes its own, one that does not has no say."""
        loops, self._loops = self._loops, {}
        for loop, there in loops.items():
            if there.pool is None:
                continue
            if loop.is_running():
                loop.call_soon_threadsafe(_close_later, loop, there.pool)
            else:
                for connection in there.connections:
                    connection.pgconn.finish()

    def abandon(self) -> None:
        _abandoned.extend(self._loops.values())
        self._loops = {}

    async def _take(self, here: _OfLoop) -> Any:
        if self._given is not None:
            await here.lock.acquire()
            return self._given
        if self._given_pool is not None:
            return await self._given_pool.getconn()
        deadline = time.monotonic() + self._settings.timeout
        while True:
            try:
                left = max(0.01, deadline - time.monotonic())
                connection = await here.pool.getconn(timeout=min(left, _GLANCE_SECONDS))
                here.lent.add(id(connection))
                return connection
            except psycopg_pool.PoolTimeout as busy:
                if len(here.lent) < self._settings.pool_size:
                    await (await self._connect()).close()  # raises what is wrong
                if time.monotonic() >= deadline:
                    raise self._settings.exhausted() from busy

    async def _connect(self) -> Any:
        return await psycopg.AsyncConnection.connect(self._settings.conninfo, **self._settings.kwargs)

    async def _made_pool(self) -> Any:
        settings = self._settings
        here = self._here()

        async def remember(connection: Any) -> None:
            configure(connection)
            here.connections[connection] = None

        pool: Any = psycopg_pool.AsyncConnectionPool(
            settings.conninfo, check=self._check, configure=remember, **settings.pool_options()
        )
        await pool.open()
        return pool

    async def _check(self, connection: Any) -> None:
        if not self._settings.is_fresh(connection):
            try:
                await psycopg_pool.AsyncConnectionPool.check_connection(connection)
            except psycopg.Error:
                self._settings.lose()
                raise

    def _here(self) -> _OfLoop:
        import asyncio

        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other)
            here = self._loops[loop] = _OfLoop(asyncio.Lock())
        return here


class _OfLoop:
    """What belongs to one event loop."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self.lock = lock
        self.pool: Any = None
        self.lent: set[int] = set()
        self.connections: WeakKeyDictionary[Any, None] = WeakKeyDictionary()


# What a forked child must not close: the connections are its parent's.
_abandoned: list[Any] = []


def configure(connection: Any) -> None:
    """A new connection of ours."""
    connection.prepared_max = _MOST_PREPARED


def check_given(connection: Any) -> None:
    """Refuse a connection that its owner closed or is in the middle of using."""
    if connection.closed:
        raise Unavailable("the connection was closed; a given one must stay open as long as its saver")
    if not is_idle(connection):
        raise Conflict("the given connection is inside a transaction of yours: commit it before using the saver")


def _close_later(loop: Any, pool: Any) -> None:
    task = loop.create_task(pool.close(timeout=2.0))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


_closing: set[Any] = set()


def _has_input(connection: Any) -> bool:
    """Whether the server has sent something that nobody asked for."""
    descriptor = connection.pgconn.socket
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


def other_half(kind: str) -> InvalidRequest:
    """What is raised by the half that a given connection or pool cannot serve."""
    half, give = ("async", "an AsyncConnection or AsyncConnectionPool") if kind == "sync" else ("sync", "a Connection")
    return InvalidRequest(
        f"the given {kind} connection or pool serves the {kind} half only; for the {half} half {give}"
    )
