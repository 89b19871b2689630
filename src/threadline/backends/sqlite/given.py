"""The engine over a given aiosqlite connection: every operation runs whole on that connection's thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import Closed, InvalidRequest
from ...ports.engine import Operation, Shortcuts
from .engine import SqliteEngine

if TYPE_CHECKING:
    import aiosqlite

__all__ = ["AiosqliteEngine"]

T = TypeVar("T")


class AiosqliteEngine(Shortcuts):
    """Operations on a connection that lives on aiosqlite's own thread.

    The async half belongs to the loop that made the connection. The sync half may be used from any other
    thread while that loop runs; on the loop's own thread it would wait for itself, and says so instead.
    """

    url = "sqlite://"
    opens_inline = False
    is_in_memory = False
    prefers_batches = False

    def __init__(self, connection: aiosqlite.Connection, **options: Any) -> None:
        if not hasattr(connection, "_execute"):
            raise InvalidRequest("AsyncSqliteSaver takes an aiosqlite.Connection; for a path use from_conn_string")
        self._connection = connection
        self._options = options
        self._inner: SqliteEngine | None = None
        self._is_closed = False
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    def run(self, operation: Operation[T]) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if self._loop is None or not self._loop.is_running():
            raise InvalidRequest("the loop of this aiosqlite connection does not run: use the a… methods on it")
        if running is self._loop:
            raise InvalidRequest(
                "a sync call on the loop of its aiosqlite connection would wait for itself: use the a… method"
            )
        return asyncio.run_coroutine_threadsafe(self.arun(operation), self._loop).result()

    async def arun(self, operation: Operation[T]) -> T:
        if self._is_closed:
            raise Closed
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if getattr(self._connection, "_connection", None) is None:
            await self._connection
        return await self._on_thread(lambda: self._engine().run(operation))

    async def awrite(self, operation: Operation[T]) -> T:
        return await self.arun(operation)

    def close(self) -> None:
        """The given connection stays open; it is its owner's."""
        self._is_closed = True

    async def aclose(self) -> None:
        self.close()

    def _engine(self) -> SqliteEngine:
        if self._inner is None:
            raw: sqlite3.Connection = self._connection._conn
            self._inner = SqliteEngine(None, connection=raw, **self._options)
        return self._inner

    async def _on_thread(self, call: Callable[[], T]) -> T:
        # One hop for the whole operation; aiosqlite's public methods would hop once per statement.
        return await self._connection._execute(call)  # type: ignore[no-any-return, no-untyped-call]
