"""The engine of SQLite: blocking and async side by side, the schema, and life after a fork."""

from __future__ import annotations

import logging
import os
import sqlite3
import weakref
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from ..drive import run_now
from ..errors import Corrupt, InvalidRequest, NewerFormat
from ..printable import printable
from .engine import Operation
from .group import GroupCommit
from .port import Change, Space
from .rules import IMPORTABLE
from .sql.backend import Transaction
from .sql.keyed import index_name, indexed_keys
from .sql.schema import FORMAT, Migration, migrations
from .sql.statements import Statements, check_prefix
from .sqlite import COLUMN_TYPES, SqliteConnections, SqliteDialect, SqliteTransaction, json_at, plain_rows
from .sqlite_put import SqliteBackend

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["SqliteEngine"]

T = TypeVar("T")
log = logging.getLogger("threadline")
_WORKERS = 4
_engines: weakref.WeakSet[SqliteEngine] = weakref.WeakSet()


class SqliteEngine:
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
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self._prefix = check_prefix(table_prefix)
        self._setup_mode = setup
        self._read_only = read_only
        self._indexed = indexed_keys(index_metadata)
        self._is_given = connection is not None
        if connection is not None and connection.text_factory is not str:
            raise InvalidRequest("the given connection has a text_factory: Threadline's ids are text")
        self._connections = SqliteConnections(
            path,
            connection=connection,
            prepare=self._prepare,
            synchronous=synchronous,
            timeout=timeout,
            read_only=read_only,
        )
        self._executor: Executor | None = None
        self._committer: Executor | None = None
        statements = Statements(SqliteDialect(self._indexed), self._prefix)
        self._group = GroupCommit(self._connections, statements)
        self._blocking = SqliteBackend(_BlockingSqlite(self), statements)
        self._on_loop = SqliteBackend(_LoopSqlite(self), statements)
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

        return await asyncio.get_running_loop().run_in_executor(self.executor(), call)

    def executor(self) -> Executor:
        """Threads for whole operations; they may wait for a commit."""
        if self._executor is None:
            self._executor = self._make_executor(_WORKERS)
        return self._executor

    def committer(self) -> Executor:
        """The thread that commits for tasks. A thread of its own: the others may all be waiting for a commit."""
        if self._committer is None:
            self._committer = self._make_executor(1)
        return self._committer

    def _make_executor(self, threads: int) -> Executor:
        self._connections.check_open()
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(threads, thread_name_prefix="threadline")

    def writing_connection(self) -> sqlite3.Connection:
        """The connection that writes, for programs that expect a saver to show it."""
        return self._connections.writer()

    def alone(self) -> AbstractContextManager[sqlite3.Connection]:
        """The connection that writes, for a caller who does so himself; nobody else writes through it meanwhile."""
        return self._connections.alone()

    def ddl(self) -> str:
        """Everything that is executed on an empty database."""
        written = f"INSERT OR REPLACE INTO {self._prefix}meta (name, value) VALUES ('format', CAST('{FORMAT}' AS BLOB))"
        steps = [f"-- {step.number}: {step.reason}\n" + ";\n".join(step.statements) for step in self._migrations()]
        return ";\n".join([*steps, written]) + ";\n"

    def close(self) -> None:
        self._connections.close()
        for executor in (self._executor, self._committer):
            if executor is not None:
                executor.shutdown(wait=False)
        self._executor = self._committer = None

    async def aclose(self) -> None:
        import asyncio

        for executor in (self._executor, self._committer):
            if executor is not None:
                await asyncio.get_running_loop().run_in_executor(executor, lambda: None)
        self.close()

    def before_fork(self) -> None:
        self._group.pause()
        self._connections.before_fork()

    def after_fork_in_parent(self) -> None:
        self._connections.after_fork_in_parent()
        self._group.resume()

    def after_fork_in_child(self) -> None:
        self._connections.after_fork_in_child()
        self._group.restart()
        self._executor = self._committer = None

    def migrate(self) -> None:
        """Apply what is missing of the schema, in one transaction; safe from many processes at once."""
        self._setup_mode = "migrate"
        self._connections.write(self._create)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check what is there, and create it where that is wanted."""
        found = self._format(connection)
        if found is None:
            if self._setup_mode is False or self._read_only:
                theirs = f"; {IMPORTABLE.format(self.url)}" if self._holds_langgraphs(connection) else ""
                raise InvalidRequest(
                    f"the database has no Threadline tables: call setup() once, or open it with setup='create'{theirs}"
                )
            self._connections.transact(connection, self._create)
        elif found > FORMAT:
            raise NewerFormat(f"the database has format {found}, this version reads up to {FORMAT}: upgrade threadline")
        elif found < FORMAT and self._setup_mode != "migrate":
            raise InvalidRequest(
                f"the database has format {found}: open it once with setup='migrate' to bring it to {FORMAT}"
            )
        self._index(connection)
        self._say_what_is_not_imported(connection)

    def _index(self, connection: sqlite3.Connection) -> None:
        """Make the indexes of named metadata keys that are missing; searching works without them, slowly."""
        named = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
        names = {index_name(self._prefix, key): key for key in self._indexed}
        missing = [name for name in names if not plain_rows(connection, named, (name,))]
        if not missing or self._setup_mode is False or self._read_only:
            return

        def make(connection: sqlite3.Connection) -> None:
            for name in missing:
                at = json_at("searchable", names[name])
                connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {self._prefix}checkpoints ({at}, id)")

        self._connections.transact(connection, make)

    def _format(self, connection: sqlite3.Connection) -> int | None:
        named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        if not plain_rows(connection, named, (self._prefix + "meta",)):
            return None
        rows = plain_rows(connection, f"SELECT value FROM {self._prefix}meta WHERE name = 'format'")
        try:
            return int(bytes(rows[0][0])) if rows else None
        except (TypeError, ValueError):
            raise Corrupt(f"{self.url}: the record of the store's format is damaged") from None

    def _create(self, connection: sqlite3.Connection) -> None:
        """Apply the migrations that are missing; inside a write transaction, so that nobody is in between."""
        found = self._format(connection) or 0
        for step in self._migrations():
            if step.number > found:
                for statement in step.statements:
                    connection.execute(statement)
        connection.execute(
            f"INSERT OR REPLACE INTO {self._prefix}meta (name, value) VALUES ('format', ?)", (b"%d" % FORMAT,)
        )

    def _migrations(self) -> list[Migration]:
        return migrations(self._prefix, COLUMN_TYPES)

    def _say_what_is_not_imported(self, connection: sqlite3.Connection) -> None:
        """LangGraph's own tables are never touched; threads in them must not seem lost."""
        if plain_rows(connection, f"SELECT 1 FROM {self._prefix}threads LIMIT 1"):
            return
        if self._holds_langgraphs(connection):
            log.warning(
                "%s holds threads of LangGraph's own saver, which Threadline does not read in place: "
                "bring them over with `threadline import %s`",
                printable(self._connections.path or "the database"),
                printable(self.url),
            )

    def _holds_langgraphs(self, connection: sqlite3.Connection) -> bool:
        """Whether the database has threads of LangGraph's own saver."""
        columns = {row[1] for row in plain_rows(connection, "PRAGMA table_info(checkpoints)")}
        if not {"thread_id", "checkpoint_ns", "parent_checkpoint_id"} <= columns:
            return False
        return bool(plain_rows(connection, "SELECT 1 FROM checkpoints LIMIT 1"))


class _BlockingSqlite:
    """The Database port of the sync half and of worker threads."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    async def read(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        with self._engine._connections.reading() as connection:
            return await work(SqliteTransaction(connection))

    async def write(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        result: T = self._engine._group.run(work)
        return result

    async def put(self, change: Change) -> bool:
        made: bool = self._engine._group.run(change)
        return made

    async def setup(self) -> None:
        self._engine.migrate()

    async def make_room(self) -> int:
        return self._engine._connections.make_room()

    async def compact(self) -> None:
        self._engine._connections.compact()

    async def size_bytes(self) -> int:
        with self._engine._connections.reading() as connection:
            pages, unused, page_bytes = (
                plain_rows(connection, f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
            )
            return int((pages - unused) * page_bytes)

    async def space(self) -> Space:
        connections = self._engine._connections
        with connections.reading() as connection:
            pages, unused, page_bytes = (
                plain_rows(connection, f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
            )
            return Space(connections.file_bytes() or int(pages * page_bytes), int(unused * page_bytes))


class _LoopSqlite:
    """The Database port of the async half: reads hop, writes wait for the shared commit."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    async def read(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        blocking = _BlockingSqlite(self._engine)
        return await self._engine.hop(lambda: run_now(blocking.read(work)))

    async def write(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        result: T = await self._committed(work)
        return result

    async def put(self, change: Change) -> bool:
        made: bool = await self._committed(change)
        return made

    async def _committed(self, work: Any) -> Any:
        engine = self._engine
        if engine._is_given:
            return engine._group.run(work)
        import asyncio

        committer = engine.committer()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        leader = engine._group.submit(work, future)
        if leader is not None:
            try:
                committer.submit(engine._group.drain, leader)
            except RuntimeError:  # closed meanwhile: whoever waits is told so
                engine._group.drain(leader)
            except BaseException:
                engine._group.refuse(leader)
                raise
        return await future

    async def setup(self) -> None:
        await self._engine.hop(self._engine.migrate)

    async def make_room(self) -> int:
        return await self._engine.hop(self._engine._connections.make_room)

    async def compact(self) -> None:
        await self._engine.hop(lambda: run_now(_BlockingSqlite(self._engine).compact()))

    async def size_bytes(self) -> int:
        return await self._engine.hop(lambda: run_now(_BlockingSqlite(self._engine).size_bytes()))

    async def space(self) -> Space:
        return await self._engine.hop(lambda: run_now(_BlockingSqlite(self._engine).space()))


_forking: list[SqliteEngine] = []


def _before_fork() -> None:
    _forking[:] = list(_engines)
    for engine in _forking:
        engine.before_fork()


def _after_fork_in_parent() -> None:
    for engine in _forking:
        engine.after_fork_in_parent()


def _after_fork_in_child() -> None:
    for engine in _forking:
        engine.after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
