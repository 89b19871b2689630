"""The engine of MySQL 8 and MariaDB 10.6 and later: its options, and what both halves are made of."""

from __future__ import annotations

import math
from typing import Any

import pymysql

from ...errors import InvalidRequest, ThreadlineError
from ...ports.checkpoints import Backend
from ..layers.patience import patience_of
from ..layers.retry import Retry
from ..lending import Given, Pool
from ..server import Lend, ServerEngine, exhausted
from ..sql.statements import check_prefix
from .backend import MysqlBackend, MysqlDatabase
from .errors import is_useless, translate
from .pools import GivenMysql, MysqlDriver
from .schema import MysqlTables
from .statements import MysqlDialect, MysqlStatements
from .url import Address

__all__ = ["MysqlEngine"]


class MysqlEngine(ServerEngine):
    """Operations on one database of a MySQL or MariaDB server."""

    driver_errors = (pymysql.err.MySQLError, EOFError, OSError)

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
        super().__init__()
        self.prefix = check_prefix(table_prefix)
        self._address = Address.of(url) if url is not None else None
        self.url = self._address.shown if self._address else "mysql://"
        self._given = (connection, pool) if connection is not None or pool is not None else None
        self._pool_size, self._timeout = pool_size, timeout
        # A given connection is used as it is. The wait for a lock is set in whole seconds.
        self._patience = None if self._given else patience_of(math.ceil(timeout))
        has_own = self._address is not None and "read_timeout" in self._address.options
        self._blocking_patience = None if has_own else self._patience
        self._tables = MysqlTables(self.prefix, self.url, setup, timeout, read_only=read_only)
        self.sql = MysqlStatements(MysqlDialect(), self.prefix)
        self.start(retry, read_only=read_only)

    def ddl(self) -> str:
        """Every statement that `setup()` runs on an empty database."""
        return self._tables.ddl()

    def blocking_backend(self) -> Backend:
        if isinstance(self.blocking, GivenMysql) and not self.blocking.is_blocking:
            raise InvalidRequest(
                "an aiomysql connection or pool serves the async methods only: give a pymysql connection, or a URL"
            )
        return super().blocking_backend()

    def loop_backend(self) -> Backend | None:
        if isinstance(self.blocking, GivenMysql) and self.blocking.is_blocking:
            return None
        return super().loop_backend()

    def source(self, *, is_of_loop: bool) -> Pool | Given:
        if self._address is None:
            connection, pool = self._given or (None, None)
            return GivenMysql(connection, pool, self.identity)
        patience = self._patience if is_of_loop else self._blocking_patience
        driver = MysqlDriver(self._address, self.identity, self._timeout, patience, is_of_loop=is_of_loop)
        size, where, timeout = self._pool_size, self.url, self._timeout
        return Pool(driver, size, timeout, lambda: exhausted(size, where, timeout), is_of_loop=is_of_loop)

    def backend(self, lend: Lend, *, is_of_loop: bool) -> Backend:
        return MysqlBackend(MysqlDatabase(lend, self._tables, self.sql, is_given=bool(self._given)), self.sql)

    def translated(self, error: Exception) -> ThreadlineError:
        if is_useless(error):
            self.identity.lose()
        return translate(error, self.url, is_given=bool(self._given))
