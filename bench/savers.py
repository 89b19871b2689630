"""The sides of a comparison: how each opens a store, a memory saver, a serializer.

A *place* is where one store lives: the path of a SQLite file. On a server (bench/servers.py) it is the database, or
the beginning of the keys, that has the path's last part for a name.

`PEER` is LangGraph's own; `OURS` is Threadline; a calibration puts the peer on both sides, where
every ratio that is not close to 1 is noise of the machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

Saver = BaseCheckpointSaver[Any]

SYNCHRONOUS_FULL = 2
NO_THREAD: RunnableConfig = {"configurable": {"thread_id": "nobody", "checkpoint_ns": ""}}


class Serializer(Protocol):
    """What LangGraph asks of a serializer."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...
    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


class Side(Protocol):
    """One contestant.

    Each `open…` gives a new saver, closed at the end. A saver of a place has been used once, on
    a thread that does not exist: it is connected and set up, and its caches are cold.
    """

    opening: str
    """A program that imports, and opens the file named in its first argument as `saver`."""

    def open(
        self, place: Path, *, trust_identity: bool = False, share_decoded: bool = False
    ) -> AbstractContextManager[Saver]: ...

    def open_for_threads(self, place: Path) -> AbstractContextManager[Saver]:
        """The saver that many OS threads share."""
        ...

    def open_for_tasks(self, place: Path) -> AbstractAsyncContextManager[Saver]:
        """The saver that many tasks share."""
        ...

    def bytes_of(self, place: Path) -> int:
        """What a place takes once everybody has left it."""
        ...

    def growth_of(self, place: Path) -> Callable[[], int] | None:
        """What a place takes while it is written, where that can be asked without disturbing."""
        ...

    def is_durable(self, place: Path) -> bool: ...

    def open_memory(self) -> AbstractContextManager[Saver]: ...

    def serializer(self, types: tuple[type, ...]) -> Serializer:
        """A serializer that may rebuild `types`."""
        ...


class UnequalDurability(Exception):
    """The peer's connection is not as durable as ours, so the comparison would mislead."""


class OnFiles:
    """What both sides have in common where a place is a SQLite file."""

    def bytes_of(self, place: Path) -> int:
        """The bytes of a database file and of the log beside it."""
        return sum(part.stat().st_size for part in place.parent.glob(f"{place.name}*"))

    def growth_of(self, place: Path) -> Callable[[], int] | None:
        return lambda: self.bytes_of(place)

    def is_durable(self, place: Path) -> bool:
        """Whether the file says of itself that it is written ahead (the mode is kept in its header)."""
        connection = sqlite3.connect(place)
        try:
            return bool(connection.execute(_PRAGMAS[0]).fetchone()[0] == "wal")
        finally:
            connection.close()


class Peer(OnFiles):
    """LangGraph's SqliteSaver, AsyncSqliteSaver, InMemorySaver and JsonPlusSerializer."""

    opening = (
        "import sqlite3, sys\n"
        "from langgraph.checkpoint.sqlite import SqliteSaver\n"
        "saver = SqliteSaver(sqlite3.connect(sys.argv[1], check_same_thread=False))\n"
    )

    @contextmanager
    def open(self, place: Path, *, trust_identity: bool = False, share_decoded: bool = False) -> Iterator[Saver]:
        """The peer knows neither option: it re-encodes and decodes everything, always."""
        with SqliteSaver.from_conn_string(str(place)) as saver:
            saver.get_tuple(NO_THREAD)
            _check_durability(*_pragmas(saver.conn))
            yield saver

    def open_for_threads(self, place: Path) -> AbstractContextManager[Saver]:
        return self.open(place)

    @asynccontextmanager
    async def open_for_tasks(self, place: Path) -> AsyncIterator[Saver]:
        async with AsyncSqliteSaver.from_conn_string(str(place)) as saver:
            await saver.aget_tuple(NO_THREAD)
            modes = [next(iter(await saver.conn.execute_fetchall(p)))[0] for p in _PRAGMAS]
            _check_durability(*modes)
            yield saver

    @contextmanager
    def open_memory(self) -> Iterator[Saver]:
        yield InMemorySaver()

    def serializer(self, types: tuple[type, ...]) -> Serializer:
        return JsonPlusSerializer(allowed_msgpack_modules=types)


class Ours(OnFiles):
    """Threadline. Imported when asked for, so that a calibration runs without it."""

    opening = "import sys, threadline\nsaver = threadline.connect(sys.argv[1])\n"

    def connection(self, place: Path) -> dict[str, Any]:
        """How Threadline is told where a place is."""
        return {"url": f"sqlite:///{place}"}

    @contextmanager
    def open(
        self, place: Path, *, trust_identity: bool = False, share_decoded: bool = False, **options: Any
    ) -> Iterator[Saver]:
        from threadline.langgraph import Checkpointer

        where = self.connection(place)
        saver = Checkpointer(**where, trust_identity=trust_identity, share_decoded=share_decoded, **options)
        try:
            saver.get_tuple(NO_THREAD)
            yield saver
        finally:
            saver.close()

    def open_for_threads(self, place: Path) -> AbstractContextManager[Saver]:
        return self.open(place)

    @asynccontextmanager
    async def open_for_tasks(self, place: Path) -> AsyncIterator[Saver]:
        from threadline.langgraph import Checkpointer

        async with Checkpointer(**self.connection(place)) as saver:
            await saver.aget_tuple(NO_THREAD)
            yield saver

    @contextmanager
    def open_memory(self) -> Iterator[Saver]:
        from threadline.langgraph import Checkpointer

        saver = Checkpointer("memory://")
        try:
            yield saver
        finally:
            saver.close()

    def serializer(self, types: tuple[type, ...]) -> Serializer:
        from threadline.codec import Serializer as ThreadlineSerializer

        return ThreadlineSerializer()


OURS: Side = Ours()
PEER: Side = Peer()

_PRAGMAS = ("PRAGMA journal_mode", "PRAGMA synchronous")


def _pragmas(connection: sqlite3.Connection) -> tuple[str, int]:
    journal, synchronous = (connection.execute(p).fetchone()[0] for p in _PRAGMAS)
    return journal, synchronous


def _check_durability(journal: str, synchronous: int) -> None:
    if journal != "wal" or synchronous != SYNCHRONOUS_FULL:
        raise UnequalDurability(f"the peer runs with {journal=} {synchronous=}")
