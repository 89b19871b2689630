"""The engine of SQLite: both halves over the same connections and the same group commit; closing, and forks."""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from inspect import GEN_SUSPENDED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...base.drive import run_now
from ...errors import InvalidRequest
from ...ports.checkpoints import Change, Found, Stamp
from ...ports.engine import Operation, Shortcuts
from ...ports.records import Content, Record, RecordSpace
from ...ports.storage import Space
from ..layers.layer import Layering
from ..layers.read_only import ReadOnlyLayer
from ..sql.rows import Transaction
from ..sql.statements import check_prefix, indexed_keys
from .commit import SqliteCommit
from .connections import SqliteConnections
from .dialect import SqliteDialect, SqliteStatements, run_in
from .put import SqliteBackend, find_one
from .schema import SqliteSchema

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["SqliteEngine"]

T = TypeVar("T")
_WORKERS = 4
# How long a cache may go on with a file that was moved or deleted. To look costs as much as to read an entry.
_CACHE_PAUSE_SECONDS = 0.1
_engines: weakref.WeakSet[SqliteEngine] = weakref.WeakSet()


class SqliteEngine(Shortcuts):
    """Operations on one SQLite database."""

    opens_inline = True
    is_in_memory = False

    def __init__(
        self,
        path: str | None,
        *,
        connection: sqlite3.Connection | None = None,
        table_prefix: str = "threadline_",
        setup: str | bool = "create",
        synchronous: str = "FULL",
        timeout: float = 30.0,
        read_only: bool = False,
        index_metadata: Iterable[str] = (),
    ) -> None:
        if connection is not None and connection.text_factory is not str:
            raise InvalidRequest("the given connection has a text_factory: Threadline's ids are text")
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        prefix, indexed = check_prefix(table_prefix), indexed_keys(index_metadata)
        self._is_given = connection is not None
        self.prefers_batches = connection is None
        self._schema = SqliteSchema(self.url, prefix, setup, indexed, read_only=read_only)
        self._connections = SqliteConnections(
            path,
            self._schema,
            connection=connection,
            synchronous=synchronous,
            timeout=timeout,
            read_only=read_only,
        )
        self._executor: Executor | None = None
        may_index = setup is not False and not read_only
        self._statements = statements = SqliteStatements(SqliteDialect(indexed, may_index=may_index), prefix)
        self._commit = SqliteCommit(self._connections, statements, is_alone=_is_bound(connection))
        here = _Database(self._connections, _here, self._commit_here, self._commit, is_given=self._is_given)
        beside = _Database(self._connections, self.hop, self._commit_on_loop, None, is_given=self._is_given)
        bare: Any = SqliteBackend(here, statements), SqliteBackend(beside, statements)
        halves: Iterable[Any] = map(ReadOnlyLayer, bare) if read_only else bare
        self._blocking, self._on_loop = halves
        # The backend itself, for callers that read without a coroutine; None where a layer is between that reads.
        self._bare: SqliteBackend | None = bare[0]
        if not read_only:
            self.put_usual, self.find_now = self._commit.run, self._find_now
            self.aput_usual = None if self._is_given else self._aput_usual
        _engines.add(self)

    def run(self, operation: Operation[T]) -> T:
        self._connections.check_open()
        return run_now(operation(self._blocking))

    async def arun(self, operation: Operation[T]) -> T:
        return await self.hop(lambda: run_now(operation(self._blocking)))

    async def awrite(self, operation: Operation[T]) -> T:
        return await operation(self._on_loop)

    async def hop(self, call: Callable[[], T]) -> T:
        """Run a call on a worker thread; a given connection may be bound to this thread and stays here."""
        if self._is_given:
            return call()
        import asyncio

        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._connections.check_open()
            self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="threadline")
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def writing_connection(self) -> sqlite3.Connection:
        """The connection that writes, for programs that expect a saver to show it."""
        self._commit.show()
        self._connections.show()
        return self._connections.writer()

    def alone(self) -> AbstractContextManager[sqlite3.Connection]:
        """The connection that writes, for a caller that writes by itself; no put goes through it meanwhile."""
        self._commit.show()
        self._connections.show()
        return self._connections.alone()

    def add_layer(self, layer: Layering) -> None:
        """See both halves of the backend through one more layer; to be called before the first use."""
        self._blocking, self._on_loop = layer(self._blocking, False), layer(self._on_loop, True)
        self._bare = self.put_usual = self.aput_usual = self.find_now = None

    def may_forget(self) -> None:
        """This store is a cache: what is set into a file that was moved a moment ago is no loss."""
        self._connections.look_for_the_file_every(_CACHE_PAUSE_SECONDS)

    def record_reader(self, space: RecordSpace) -> Callable[[bytes], Record | None] | None:
        """Reads one record on the calling thread, without a coroutine; None where a layer is between."""
        return self._bare.record_reader(self._connections, space) if self._bare is not None else None

    def content_reader(self, space: RecordSpace) -> Callable[[bytes], Content | None] | None:
        """Reads only the content of a record, on the calling thread; None where a layer is between."""
        return self._bare.content_reader(self._connections, space) if self._bare is not None else None

    def watch(self, note: Callable[[int, float | None], None]) -> None:
        """Have `note` told of each commit that callers share: how many they are, how long the first one waited."""
        self._commit.watch(note)

    def ddl(self) -> str:
        """Everything that is executed on an empty database."""
        return self._schema.ddl()

    def close(self) -> None:
        self._connections.close()
        self._commit.end()
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    async def aclose(self) -> None:
        """`close`, once the puts that were handed in are committed."""
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self._commit.finish)
        self.close()

    def at_rest(self) -> Generator[None, None, None]:
        """From the first step of this generator to its end nothing is under way and no connection is open."""
        return self._commit.paused(self._connections.closed_to_fork())

    def after_fork_in_child(self) -> None:
        self._connections.after_fork_in_child()
        self._commit.restart()
        self._executor = None

    def _aput_usual(self, change: Change) -> Awaitable[Stamp | None]:
        self._connections.check_open()
        return self._commit.arun(change)

    def _find_now(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Found | None:
        return self._connections.read_briefly(
            partial(find_one, self._statements, thread_id, namespace, checkpoint_id, True)
        )

    async def _commit_here(self, work: Any) -> Any:
        return self._commit.run(work)

    async def _commit_on_loop(self, work: Any) -> Any:
        if self._is_given:
            return self._commit.run(work)
        self._connections.check_open()
        return await self._commit.arun(work)


def _is_bound(connection: sqlite3.Connection | None) -> bool:
    """Whether a given connection serves only the thread that made it (`check_same_thread`)."""
    if connection is None:
        return False
    free: list[sqlite3.Cursor] = []

    def probe() -> None:
        with suppress(sqlite3.Error):
            free.append(connection.cursor())

    thread = threading.Thread(target=probe)
    thread.start()
    thread.join()
    return not free


async def _here(call: Callable[[], T]) -> T:
    return call()


class _Call(Protocol):
    async def __call__(self, call: Callable[[], T], /) -> T: ...


class _Database:
    """The Database port: `call` runs a function that blocks, `commit` commits work; here, or beside an event loop."""

    def __init__(
        self,
        connections: SqliteConnections,
        call: _Call,
        commit: Callable[[Any], Coroutine[Any, Any, Any]],
        blocking: SqliteCommit | None,
        *,
        is_given: bool,
    ) -> None:
        self.is_given = is_given
        self._connections = connections
        self._call = call
        self._commit = commit
        self.blocking = blocking
        self.has_room = connections.has_room
        read_now: Callable[[Callable[[sqlite3.Connection], Any]], Any] = connections.read_briefly
        self.read_now = read_now if blocking is not None else None

    async def read(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self._call(lambda: self._connections.read(lambda connection: run_in(connection, work)))

    async def read_once(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        def read() -> T:
            return self._connections.read(lambda connection: run_in(connection, work), in_transaction=False)

        return await self._call(read)

    async def ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of one query."""
        return await self._call(lambda: self._connections.read(query, in_transaction=False))

    async def ask_in_one(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a few short queries that see one state."""
        return await self._call(partial(self._connections.read_briefly, query))

    async def write(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        result: T = await self._commit(work)
        return result

    async def put(self, change: Change) -> Stamp | None:
        made: Stamp | None = await self._commit(change)
        return made

    async def setup(self) -> None:
        await self._call(self._connections.set_up)

    async def make_room(self) -> int:
        return await self._call(self._connections.make_room)

    async def compact(self) -> None:
        await self._call(self._connections.compact)

    async def trim(self) -> None:
        await self._call(self._connections.trim)

    async def space(self) -> Space:
        return await self._call(self._connections.space)


# The engines of this process while it forks, each with what holds it at rest.
_forking: dict[SqliteEngine, Generator[None, None, None]] = {}
# Python prints what a hook of a fork raises, and forks all the same. So a step that is interrupted is taken again, but
# not for ever: an error of another kind may come each time.
_MOST_INTERRUPTS = 8


def _before_fork() -> None:
    _despite_interrupts(_bring_to_rest)


def _after_fork_in_parent() -> None:
    _despite_interrupts(_go_on)


def _after_fork_in_child() -> None:
    _despite_interrupts(_begin_anew)


def _despite_interrupts(act: Callable[[], None]) -> None:
    for _ in range(_MOST_INTERRUPTS):
        try:
            act()
            return
        except BaseException as error:
            interrupt = error
    raise interrupt


def _bring_to_rest() -> None:
    for engine in list(_engines):
        rest = _forking.get(engine)
        if rest is None or getgeneratorstate(rest) != GEN_SUSPENDED:
            # Noted before its first step: an interrupt may come between that and the next line.
            _forking[engine] = rest = engine.at_rest()
            next(rest)


def _go_on() -> None:
    for rest in list(_forking.values()):
        rest.close()
    _forking.clear()


def _begin_anew() -> None:
    for engine in list(_engines):
        engine.after_fork_in_child()
    _forking.clear()


def _at_exit() -> None:
    for engine in list(_engines):
        engine._commit.finish()


# Twice, and the second run finds nothing to do: a signal that comes during the fork itself is raised at the first line
# of the hook that runs next, and ends it there.
for _ in range(2):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
