"""The engine of MySQL 8 and MariaDB 10.6 and later: both halves, the schema, and life after a fork.

Decided here: writes run in READ COMMITTED, so that what is read after a lock is what is there; reads of
several statements run on one snapshot, and a read that proves to be a single statement needs none. A put is as
durable as the server's commit.
"""

from __future__ import annotations

import math
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pymysql

from ..drive import BlockingClock, LoopClock, run_now
from ..errors import InvalidRequest, Unavailable
from .engine import Operation
from .layers import ReadOnlyLayer
from .mysql import MysqlBackend, MysqlDialect, MysqlTransaction, NeedsSnapshot, translate
from .mysql_given import GivenConnection, GivenFactory, GivenLoop
from .mysql_pools import (
    BlockingPool,
    BlockingWire,
    LoopPool,
    LoopWire,
    connect_on_loop,
    is_in_step,
    is_lost,
    refuse_if_closed,
)
from .mysql_schema import MysqlStatements, tables
from .mysql_setup import MysqlSetup
from .mysql_sight import Sight
from .mysql_url import Address
from .patience import UnhurriedLayer, patience_of
from .port import Space
from .retry import Retry, RetryLayer
from .sql.reader import DOUBT_SHIFT, Transaction
from .sql.statements import check_prefix

__all__ = ["MysqlEngine"]

T = TypeVar("T")
Work = Callable[[Transaction], Coroutine[Any, Any, T]]
_engines: weakref.WeakSet[MysqlEngine] = weakref.WeakSet()
_inherited: list[LoopPool] = []

_WRITING = (b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", b"START TRANSACTION")
_SNAPSHOT = (b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", b"START TRANSACTION READ ONLY")
# What InnoDB adds to a row: its header, the key, and where long columns lie.
_ROW_BYTES = 80


class MysqlEngine:
    """Operations on one database of a MySQL or MariaDB server."""

    opens_inline = False
    is_in_memory = False

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: Any = None,
        pool: Any = None,
        table_prefix: str = "threadline_",
        pool_size: int = 10,
        retry: int | tuple[int, float] | None = Retry(),
        timeout: float = 30.0,
        setup: str | bool = "create",
        read_only: bool = False,
    ) -> None:
        self.prefix = check_prefix(table_prefix)
        self.timeout = timeout
        # Reads that proved to have more than one statement, by their code.
        self.several: set[Any] = set()
        self._read_only = read_only
        self._pool_size = pool_size
        self._address = Address.of(url) if url is not None else None
        self.url = self._address.shown if self._address else "mysql://"
        self.setup = MysqlSetup(self.prefix, self.url, setup, timeout, read_only=read_only)
        self.sight = Sight()
        self.is_given = connection is not None or pool is not None
        # What was given is used as it is. The wait for a lock is set in whole seconds.
        self.patience = None if self.is_given else patience_of(math.ceil(timeout))
        has_own = self._address is not None and "read_timeout" in self._address.options
        self.blocking_patience = None if has_own else self.patience
        self.blocking_pool = self._make_blocking_pool(connection)
        self._given_loop = _given_loop(connection, pool)
        self._loop_pools: dict[Any, LoopPool] = {}
        self._is_closed = False
        self.sql = MysqlStatements(MysqlDialect(), self.prefix)
        policy = _policy(retry)
        self._blocking = self._layered(_BlockingMysql(self), policy, BlockingClock())
        self._on_loop = self._layered(_LoopMysql(self), policy, LoopClock())
        _engines.add(self)

    def run(self, operation: Operation[T]) -> T:
        refuse_if_closed(self._is_closed)
        return run_now(operation(self._blocking))

    async def arun(self, operation: Operation[T]) -> T:
        refuse_if_closed(self._is_closed)
        if isinstance(self.blocking_pool, (GivenConnection, GivenFactory)):
            import asyncio

            # A given connection blocks, so a thread of its own waits for it.
            return await asyncio.to_thread(self.run, operation)
        return await operation(self._on_loop)

    async def awrite(self, operation: Operation[T]) -> T:
        return await self.arun(operation)

    def ddl(self) -> str:
        """Everything that `setup` would execute on an empty database."""
        return self.setup.ddl()

    def close(self) -> None:
        self._is_closed = True
        if self.blocking_pool is not None:
            self.blocking_pool.close()
        if self._given_loop is not None:
            self._given_loop.close()
        for loop, pool in list(self._loop_pools.items()):
            # A transport may be touched on its own loop only.
            if not loop.is_closed():
                loop.call_soon_threadsafe(pool.close)
        self._loop_pools = {}

    async def aclose(self) -> None:
        import asyncio

        pool = self._loop_pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()
        self.close()

    def after_fork_in_child(self) -> None:
        if self.blocking_pool is not None:
            self.blocking_pool.restart()
        # Closing an inherited transport would take it out of the parent's selector, too: it is only kept.
        _inherited.extend(self._loop_pools.values())
        self._loop_pools = {}

    def loop_pool(self) -> LoopPool | GivenLoop:
        """The connections of the running loop."""
        import asyncio

        if self._given_loop is not None:
            return self._given_loop
        loop = asyncio.get_running_loop()
        pool = self._loop_pools.get(loop)
        if pool is None:
            pool = LoopPool(self._connect_on_loop, self._pool_size, self.timeout, self.sight)
            # A pool holds its loop. What belongs to loops that ended closes with its memory.
            self._loop_pools = {each: kept for each, kept in self._loop_pools.items() if not each.is_closed()}
            self._loop_pools[loop] = pool
        return pool

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the driver as errors of our tree."""
        try:
            yield
        except (pymysql.err.MySQLError, EOFError) as error:
            if is_lost(error):
                self.sight.lose()
            raise translate(error, self.url, is_given=self.is_given) from error
        except OSError as error:
            if isinstance(error, Unavailable):
                raise
            self.sight.lose()
            raise translate(error, self.url) from error

    def _layered(self, database: Any, policy: Retry, clock: Any) -> Any:
        backend: Any = RetryLayer(UnhurriedLayer(MysqlBackend(database, self.sql)), policy, clock)
        return ReadOnlyLayer(backend) if self._read_only else backend

    def _make_blocking_pool(self, connection: Any) -> BlockingPool | GivenConnection | GivenFactory | None:
        if isinstance(connection, pymysql.connections.Connection):
            return GivenConnection(connection)
        if callable(connection):
            return GivenFactory(connection)
        if self.is_given:
            return None
        return BlockingPool(self._connect, self._pool_size, self.timeout, self.sight)

    def _connect(self) -> Any:
        assert self._address is not None
        return pymysql.connect(**self._address.blocking_options(self.timeout))

    async def _connect_on_loop(self) -> Any:
        assert self._address is not None
        return await connect_on_loop(self._address.loop_options(self.timeout))


def _given_loop(connection: Any, pool: Any) -> GivenLoop | None:
    if pool is not None:
        if not hasattr(pool, "acquire"):
            raise InvalidRequest("pool takes a pool of aiomysql; PyMySQL has none")
        return GivenLoop(pool=pool)
    if connection is None or callable(connection) or isinstance(connection, pymysql.connections.Connection):
        return None
    return GivenLoop(connection=connection)


def _policy(retry: Any) -> Retry:
    if retry is None or retry is False:
        return Retry(tries=1)
    return Retry(tries=retry) if isinstance(retry, int) else Retry(*retry)


class _Mysql(ABC):
    """What the Database port does alike on both kinds of connection."""

    def __init__(self, engine: MysqlEngine) -> None:
        self._engine = engine

    @abstractmethod
    async def _wired(self, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a wire, alone on it."""

    async def read(self, work: Work[T]) -> T:
        async def act(wire: Any) -> T:
            return await self._reading(await self._opened(wire), work)

        return await self._wired(act)

    async def write(self, work: Work[T]) -> T:
        async def act(wire: Any) -> T:
            return await self._inside(await self._opened(wire), work, _WRITING)

        return await self._wired(act)

    async def setup(self) -> None:
        await self._wired(self._set_up)

    async def compact(self) -> None:
        async def act(wire: Any) -> None:
            await self._compacted(await self._opened(wire))

        await self._wired(act)

    async def size_bytes(self) -> int:
        async def act(wire: Any) -> int:
            return await self._sized(await self._opened(wire))

        return await self._wired(act)

    async def space(self) -> Space:
        # InnoDB's figures are those of pages in use; its free space is shared with other tables.
        return Space(await self.size_bytes(), 0)

    async def _reading(self, wire: Any, work: Work[T]) -> T:
        """Work that only reads: a single statement as it is, several on one snapshot."""
        engine = self._engine
        code = getattr(work, "__code__", None)
        if not engine.is_given and code is not None and code not in engine.several:
            try:
                return await work(MysqlTransaction(wire, engine.sql, (), is_single=True))
            except NeedsSnapshot:
                engine.several.add(code)
        return await self._inside(wire, work, _SNAPSHOT)

    async def _inside(self, wire: Any, work: Work[T], begin: tuple[bytes, ...]) -> T:
        if self._engine.is_given:
            wire.refuse_foreign_transaction()
        transaction = MysqlTransaction(wire, self._engine.sql, begin)
        try:
            result = await work(transaction)
            await transaction.finish()
            return result
        except BaseException as error:
            if transaction.has_begun and is_in_step(error):
                await wire.send([b"ROLLBACK"])
            raise

    async def _opened(self, wire: Any) -> Any:
        setup, sight = self._engine.setup, self._engine.sight
        if not self._engine.is_given:
            await sight.meet(wire)
        wire.doubted = sight.generation(wire.connection) << DOUBT_SHIFT
        if not setup.most_bytes:
            if self._engine.is_given:
                wire.refuse_foreign_transaction()
            await setup.open(wire)
            if self._engine.is_given:
                # Looking began a transaction where the connection does not commit by itself.
                await wire.send([b"ROLLBACK"])
        wire.most_bytes = setup.most_bytes
        return wire

    async def _set_up(self, wire: Any) -> None:
        self._engine.setup.mode = "migrate"
        await self._engine.setup.create(wire)
        await self._opened(wire)

    async def _compacted(self, wire: Any) -> None:
        await wire.send([f"OPTIMIZE TABLE {', '.join(tables(self._engine.prefix))}".encode()])

    async def _sized(self, wire: Any) -> int:
        """What the rows take. Files grow by megabytes, and the server's own figures lag behind."""
        sql = self._engine.sql
        answers = [
            await wire.send([each.encode()]) for each in (sql.count_checkpoints, sql.count_writes, sql.count_chunks)
        ]
        return sum(int(answer.rows[0][0]) * _ROW_BYTES + int(answer.rows[0][1]) for [answer] in answers)


class _BlockingMysql(_Mysql):
    """The Database port of the sync half; never suspends."""

    async def _wired(self, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        pool = self._engine.blocking_pool
        if pool is None:
            raise InvalidRequest("what aiomysql made belongs to its event loop: use the saver's async methods")
        with self._engine.translated():
            return await pool.lend(lambda connection: act(BlockingWire(connection, self._engine.blocking_patience)))


class _LoopMysql(_Mysql):
    """The Database port of the async half."""

    async def _wired(self, act: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        with self._engine.translated():
            pool, patience = self._engine.loop_pool(), self._engine.patience
            return await pool.lend(lambda connection: act(LoopWire(connection, patience)))


def _after_fork_in_child() -> None:
    for engine in list(_engines):
        engine.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
