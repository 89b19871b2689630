"""LangGraph's savers under their own names: the import line changes, the rest of the program does not."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ..backends.aiosqlite_engine import AiosqliteEngine
from ..connecting import make_engine, split_options
from ..errors import InvalidRequest
from .checkpointer import Checkpointer, make_tools
from .records import Records, blobs_of, storage_of, writes_of

if TYPE_CHECKING:
    import aiosqlite

__all__ = ["AsyncSqliteSaver", "InMemorySaver", "MemorySaver", "SqliteSaver"]


class InMemorySaver(Checkpointer):
    """Checkpoints in this process, as `langgraph.checkpoint.memory.InMemorySaver`."""

    def __init__(self, *, serde: Any = None, factory: Any = None, **options: Any) -> None:
        if factory is not None:
            raise InvalidRequest("InMemorySaver keeps bytes, not dicts: for a file use SqliteSaver instead of factory=")
        super().__init__("memory://", serde=serde, **options)

    @property
    def storage(self) -> Records:
        """The checkpoints, as the dict that LangGraph's has: by thread, namespace and id. A read-only view."""
        return storage_of(self)

    @property
    def writes(self) -> Records:
        """The pending writes, as the dict that LangGraph's has. A read-only view."""
        return writes_of(self)

    @property
    def blobs(self) -> Records:
        """The values by channel and version, as the dict that LangGraph's has. A read-only view."""
        return blobs_of(self)

    # LangGraph's own stays usable after its `with` block; so does this.
    def __exit__(self, *_: object) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


MemorySaver = InMemorySaver


class SqliteSaver(Checkpointer):
    """Checkpoints in SQLite, as `langgraph.checkpoint.sqlite.SqliteSaver`; its async half works too."""

    def __init__(self, conn: sqlite3.Connection, *, serde: Any = None, **options: Any) -> None:
        if not isinstance(conn, sqlite3.Connection):
            raise InvalidRequest("SqliteSaver takes a sqlite3.Connection; for a path use SqliteSaver.from_conn_string")
        engine_options, tool_options = split_options({**options, "serde": serde})
        self.conn = conn
        engine = make_engine(connection=conn, **engine_options)
        self._start(engine, make_tools(engine, **tool_options))

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, **options: Any) -> Iterator[SqliteSaver]:
        """A saver for a path or `:memory:`, closed at the end of the `with` block."""
        saver = cls.__new__(cls)
        Checkpointer.__init__(saver, conn_string, **options)
        with saver:
            saver.conn = saver._engine.writing_connection()  # type: ignore[attr-defined]
            yield saver

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """A cursor of the connection that writes, alone on it; what was done is committed unless told otherwise."""
        with self._engine.alone() as connection:  # type: ignore[attr-defined]
            cursor = connection.cursor()
            try:
                yield cursor
            finally:
                if transaction:
                    connection.commit()
                cursor.close()

    def _limit(self, limit: int | None) -> int | None:
        return _sqlite_limit(limit)


class AsyncSqliteSaver(Checkpointer):
    """Checkpoints in SQLite, as `langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver`."""

    def __init__(self, conn: aiosqlite.Connection, *, serde: Any = None, **options: Any) -> None:
        engine_options, tool_options = split_options({**options, "serde": serde})
        engine_options.pop("ttl", None)  # SQLite expires nothing by itself; a sweep does
        self.conn = conn
        engine = AiosqliteEngine(conn, **engine_options)
        self._start(engine, make_tools(engine, **tool_options))

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string: str, **options: Any) -> AsyncIterator[AsyncSqliteSaver]:
        """A saver for a path or `:memory:`, closed at the end of the `async with` block."""
        saver = cls.__new__(cls)
        Checkpointer.__init__(saver, conn_string, **options)
        async with saver:
            yield saver

    async def setup(self) -> None:  # type: ignore[override]
        """Create the tables now; awaited, as in the original."""
        await self.asetup()

    def _limit(self, limit: int | None) -> int | None:
        return _sqlite_limit(limit)


def _sqlite_limit(limit: int | None) -> int | None:
    """SQLite takes a negative LIMIT for none at all."""
    return None if type(limit) is int and limit < 0 else limit
