"""The engine of PostgreSQL: its options, and what both halves are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import psycopg

from ...errors import ThreadlineError
from ...ports.checkpoints import Backend
from ..layers.patience import patience_of
from ..layers.retry import Retry
from ..lending import Given, Pool
from ..server import Lend, ServerEngine, exhausted
from ..sql.statements import indexed_keys
from .backend import PostgresBackend, PostgresDatabase, PostgresDialect, PostgresStatements
from .errors import is_lost, translate
from .pools import GivenPostgres, PostgresDriver, half_of, other_half
from .put import PutStatements
from .schema import PostgresTables
from .url import read_given, read_url

__all__ = ["PostgresEngine"]


class PostgresEngine(ServerEngine):
    """Operations on one PostgreSQL database."""

    driver_errors = (psycopg.Error,)

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
        super().__init__()
        self._given, self._given_half = (connection, pool), half_of(connection, pool)
        self._conninfo, self._where, self.url = read_url(url) if url is not None else read_given(connection)
        self._pool_size, self._timeout, self._prepare_threshold = pool_size, timeout, prepare_threshold
        self._patience = patience_of(timeout) if self._given_half is None else None
        self._tenant = tenant
        self._tables = PostgresTables(
            self.identity,
            schema=schema,
            prefix=table_prefix,
            partitions=partitions,
            setup=setup,
            read_only=read_only,
            shown_url=self.url,
            indexed=indexed_keys(index_metadata),
            timeout=timeout,
        )
        self._backends: list[PostgresBackend] = []
        self.start(retry, read_only=read_only)

    def watch(self, note: Callable[[int, float | None], None]) -> None:
        """Have `note` told of each transaction that puts share: how many they are, how long the first one waited."""
        for backend in self._backends:
            backend.watch(note)

    def ddl(self) -> str:
        """Every statement that `setup()` runs on a new database, for those who run them themselves."""
        return self._tables.ddl()

    def blocking_backend(self) -> Backend:
        if self._given_half == "async":
            raise other_half("async")
        return super().blocking_backend()

    def loop_backend(self) -> Backend | None:
        if self._given_half == "sync":
            raise other_half("sync")
        return super().loop_backend()

    def source(self, *, is_of_loop: bool) -> Pool | Given:
        if self._given_half is not None:
            return GivenPostgres(*self._given, self.identity)
        driver = PostgresDriver(
            self._conninfo,
            self.identity,
            timeout=self._timeout,
            patience=self._patience,
            prepare_threshold=self._prepare_threshold,
            is_of_loop=is_of_loop,
        )
        size, where, timeout = self._pool_size, self._where, self._timeout
        return Pool(driver, size, timeout, lambda: exhausted(size, where, timeout), is_of_loop=is_of_loop)

    def backend(self, lend: Lend, *, is_of_loop: bool) -> Backend:
        tables = self._tables
        dialect = PostgresDialect(tables.indexed, may_index=tables.may_write)
        statements = PostgresStatements(dialect, tables.prefix)
        put = PutStatements(statements, tables.lock_timeout)
        database = PostgresDatabase(lend, tables, put.pool_held_alone, self._tenant)
        made = PostgresBackend(database, statements, put, self.identity, is_of_loop=is_of_loop)
        self._backends.append(made)
        return made

    def translated(self, error: Exception) -> ThreadlineError:
        if is_lost(error):
            self.identity.lose()
        return translate(error, self._where)

    def abandon(self) -> list[Any]:
        for backend in self._backends:
            backend.forget_waiting()
        return super().abandon()
