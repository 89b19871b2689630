"""The engine of PostgreSQL: both halves over the same backend, retried; opening, closing, life after a fork."""

from __future__ import annotations

import atexit
import os
import re
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict

from ..drive import BlockingClock, Clock, LoopClock, run_now
from ..errors import InvalidRequest
from .engine import Operation
from .gather import Admits, Gather, Job, LoopGather
from .layers import ReadOnlyLayer
from .lending import is_of_work
from .patience import UnhurriedLayer
from .port import Change
from .postgres import Gatherer, PostgresBackend, PostgresDatabase, PostgresDialect
from .postgres_errors import Whereabouts, is_lost, translate
from .postgres_loop import LoopSource
from .postgres_put import begin_group
from .postgres_schema import PostgresTables
from .postgres_sessions import Session
from .postgres_settings import Settings, other_half
from .postgres_sources import BlockingSource
from .retry import Retry, RetryLayer
from .sql.keyed import indexed_keys
from .sql.statements import Statements

__all__ = ["PostgresEngine", "read_url", "url_of_keywords"]

T = TypeVar("T")
# So many transactions of puts go on at once; what comes meanwhile waits, and shares the next.
_MOST_LEADERS = 2
# Each put of a group holds a lock of the server's, which has room for some thousands.
_MOST_TOGETHER = 32
_engines: weakref.WeakSet[PostgresEngine] = weakref.WeakSet()


class PostgresEngine:
    """Operations on one PostgreSQL database."""

    opens_inline = False
    is_in_memory = False

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: Any = None,
        pool: Any = None,
        schema: str | None = None,
        table_prefix: str = "threadline_",
        pool_size: int = 10,
        prepare_threshold: int | None = 5,
        partitions: int | None = None,
        tenant: str | None = None,
        retry: int | tuple[int, float] | None = Retry(),
        timeout: float = 30.0,
        setup: str | bool = "create",
        read_only: bool = False,
        index_metadata: Iterable[str] = (),
    ) -> None:
        if connection is not None and pool is not None:
            raise InvalidRequest("give a connection or a pool, not both")
        self._given = _half_of(connection, pool)
        conninfo, where, self.url = read_url(url) if url is not None else _read_given(connection, pool)
        self._tables = PostgresTables(
            schema=schema,
            prefix=table_prefix,
            partitions=partitions,
            setup=setup,
            read_only=read_only,
            shown_url=self.url,
            indexed=indexed_keys(index_metadata),
            timeout=timeout,
        )
        tables = self._tables
        self._settings = Settings(
            conninfo,
            where,
            pool_size=pool_size,
            timeout=timeout,
            prepare_threshold=prepare_threshold,
            prepare=tables.open,
            is_ready=lambda: tables.is_ready,
        )
        self._blocking_source = BlockingSource(self._settings, connection, pool)
        self._loop_source = LoopSource(self._settings, connection, pool)
        self._gathers: list[Gather] = []
        policy = _policy(retry)
        self._blocking = self._layered(self._blocking_source, self._shared, BlockingClock(), tenant, policy, read_only)
        self._on_loop = self._layered(self._loop_source, _shared_on_loop, LoopClock(), tenant, policy, read_only)
        _engines.add(self)

    def _layered(
        self,
        source: BlockingSource | LoopSource,
        gather: Callable[[PostgresBackend], Gatherer],
        clock: Clock,
        tenant: str | None,
        policy: Retry,
        read_only: bool,
    ) -> Any:
        """The backend of one half, with its layers."""
        tables = self._tables
        database = PostgresDatabase(self._lender(source), self._setter(source), tables, tenant)
        settings, statements = self._settings, Statements(PostgresDialect(tables.indexed), tables.prefix)
        backend = PostgresBackend(database, statements, lambda: settings.losses, settings.lose, gather)
        retried = RetryLayer(UnhurriedLayer(backend), policy, clock)
        return ReadOnlyLayer(retried) if read_only else retried

    def run(self, operation: Operation[T]) -> T:
        if self._given == "async":
            raise other_half("async")
        self._settings.check_open()
        return run_now(operation(self._blocking))

    async def arun(self, operation: Operation[T]) -> T:
        if self._given == "sync":
            raise other_half("sync")
        self._settings.check_open()
        return await operation(self._on_loop)

    async def awrite(self, operation: Operation[T]) -> T:
        return await self.arun(operation)

    def ddl(self) -> str:
        """Every statement that `setup()` runs on a new database, for those who run them themselves."""
        return self._tables.ddl()

    def close(self) -> None:
        self._settings.is_closed = True
        self._loop_source.close()
        self._blocking_source.close()

    async def aclose(self) -> None:
        self._settings.is_closed = True
        await self._loop_source.aclose()
        self._blocking_source.close()

    def after_fork_in_child(self) -> None:
        for gather in self._gathers:
            gather.restart()
        self._blocking_source.abandon()
        self._loop_source.abandon()

    def _shared(self, backend: PostgresBackend) -> Gatherer:
        """Puts of threads that wait at the same time go together."""
        gather = _SharedPuts(backend)
        self._gathers.append(gather)

        async def put(change: Change) -> bool:
            made: bool = gather.run(change)
            return made

        return put

    def _lender(self, source: BlockingSource | LoopSource) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def lend(act: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
            try:
                return await source.lend(act)
            except psycopg.Error as error:
                raise self._translated(error) from error

        return lend

    def _setter(self, source: BlockingSource | LoopSource) -> Callable[[], Coroutine[Any, Any, None]]:
        async def set_up() -> None:
            try:
                await source.set_up(self._tables.create)
            except psycopg.Error as error:
                raise self._translated(error) from error

        return set_up

    def _translated(self, error: psycopg.Error) -> Exception:
        if is_lost(error):
            self._settings.lose()
        return translate(error, self._settings.where)


class _SharedPuts(Gather):
    """Puts of threads: those that wait at the same time are one transaction."""

    most_together = _MOST_TOGETHER

    def __init__(self, backend: PostgresBackend) -> None:
        super().__init__(_MOST_LEADERS)
        self._backend = backend

    def _begin_group(self) -> Admits:
        return begin_group()

    def _commit(self, group: list[Job]) -> None:
        try:
            made = run_now(self._backend.put_together([job.work for job in group]))
            for job, result in zip(group, made, strict=True):
                job.result = result
        except Exception as error:
            if not is_of_work(error, ValueError, TypeError, OverflowError, MemoryError):
                raise  # of a signal handler: the leader's alone
            for job in group:
                job.error = error
        self._tell(group)


def _shared_on_loop(backend: PostgresBackend) -> Gatherer:
    """Puts of tasks that wait at the same time go together."""
    gather = LoopGather(backend.put_together, begin_group, most_leaders=_MOST_LEADERS, most_together=_MOST_TOGETHER)
    return gather.run


def _policy(retry: int | tuple[int, float] | None) -> Retry:
    if retry is None or retry is False:
        return Retry(tries=1)
    return Retry(*retry) if isinstance(retry, tuple) else Retry(tries=retry)


def url_of_keywords(conninfo: str) -> str:
    """The URL that says what a connection string of libpq's keywords (`host=db dbname=agents`) says."""
    try:
        parts = conninfo_to_dict(conninfo)
    except psycopg.Error:
        parts = {}
    if not parts or "\0" in conninfo:
        # What libpq says here may quote the password.
        raise InvalidRequest(
            "this is neither a URL nor a connection string of PostgreSQL: write postgresql://user:password@host:5432/"
            "database, or keywords that libpq knows, such as host=… dbname=… user=…, with quotes around spaces"
        ) from None
    return "postgresql://?" + "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parts.items())


def read_url(url: str) -> tuple[str, Whereabouts, str]:
    """What the driver takes, how messages name it, and the URL without its password."""
    # A URL of SQLAlchemy's names the driver too.
    url = re.sub(r"^postgresql\+psycopg://", "postgresql://", url)
    authority = url.partition("://")[2].partition("?")[0]
    if authority.count("@") > 1:
        raise InvalidRequest("the URL has an @ in its user or password: write it as %40")
    if "@" in authority.partition("/")[2]:
        raise InvalidRequest("the URL has a / in its user or password: write it as %2F")
    if "\0" in url:
        raise InvalidRequest("the URL holds a NUL")
    try:
        parts = conninfo_to_dict(url)
        if not all(port.isdecimal() for port in str(parts.get("port") or "0").split(",") if port):
            raise ValueError("port")
    except (psycopg.Error, ValueError):
        # What libpq says here may quote the password.
        raise InvalidRequest(
            "the URL is not one of PostgreSQL: write postgresql://user:password@host:5432/database, with "
            "special characters of user and password as %XX, and only options that libpq knows"
        ) from None
    return url, *_shown(parts)


def _read_given(connection: Any, pool: Any) -> tuple[str, Whereabouts, str]:
    if connection is None:
        return "", Whereabouts("", "the given pool's database"), "postgresql://"
    info = connection.info if not connection.closed else None
    parts = {"user": info.user, "host": info.host, "port": info.port, "dbname": info.dbname} if info else {}
    return "", *_shown(parts)


def _shown(parts: dict[str, Any]) -> tuple[Whereabouts, str]:
    user, host, port, database = (str(parts.get(name) or "") for name in ("user", "host", "port", "dbname"))
    host = host or str(parts.get("hostaddr") or "localhost")
    place = f"{host}:{port or 5432}/{database}"
    shown = f"postgresql://{quote(user) + '@' if user else ''}{host}{':' + port if port else ''}/{quote(database)}"
    return Whereabouts(user, place), shown


def _half_of(connection: Any, pool: Any) -> str | None:
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


def _after_fork_in_child() -> None:
    for engine in list(_engines):
        engine.after_fork_in_child()


def _close_at_exit() -> None:
    """Say goodbye to servers whose savers nobody closed."""
    for engine in list(_engines):
        engine._blocking_source.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_at_exit)
