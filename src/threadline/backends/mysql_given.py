"""Connections to MySQL and MariaDB that the caller opened, or has a way to open; they are used as they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Closed
from .mysql_pools import is_lost, refuse_if_closed

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Act = Callable[[Any], Coroutine[Any, Any, T]]

__all__ = ["GivenConnection", "GivenFactory", "GivenLoop"]


class GivenConnection:
    """A PyMySQL connection that the caller opened and will close."""

    def __init__(self, connection: Any) -> None:
        self._given = connection
        self._is_closed = False
        self.restart()

    def restart(self) -> None:
        self._lock = threading.RLock()

    async def lend(self, act: Act[T]) -> T:
        refuse_if_closed(self._is_closed)
        with self._lock:
            if not self._given.open:
                raise Closed("the given connection was closed")
            return await act(self._given)

    def close(self) -> None:
        self._is_closed = True


class GivenFactory:
    """A function that gives a PyMySQL connection, such as the `connect` of a pool; closing it gives it back."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self._factory = factory
        self._is_closed = False

    def restart(self) -> None:
        """What a fork makes of the function's connections is its owner's business."""

    async def lend(self, act: Act[T]) -> T:
        refuse_if_closed(self._is_closed)
        connection = None
        try:
            connection = self._factory()
            return await act(connection)
        finally:
            if connection is not None:
                connection.close()

    def close(self) -> None:
        self._is_closed = True


class GivenLoop:
    """An aiomysql connection or pool that the caller opened and will close."""

    def __init__(self, *, connection: Any = None, pool: Any = None) -> None:
        self._given = connection
        self._pool = pool
        self._is_closed = False
        self._lock: asyncio.Lock | None = None

    async def lend(self, act: Act[T]) -> T:
        import asyncio

        refuse_if_closed(self._is_closed)
        if self._pool is not None:
            async with self._pool.acquire() as connection:
                try:
                    return await act(connection)
                except BaseException as error:
                    if is_lost(error):
                        connection.close()
                    raise
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._given.closed:
                raise Closed("the given connection was closed")
            return await act(self._given)

    async def aclose(self) -> None:
        self._is_closed = True

    def close(self) -> None:
        self._is_closed = True
