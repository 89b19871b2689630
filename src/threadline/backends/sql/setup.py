"""First use of a SQL database: its format is read, and its tables are created or migrated where that is wanted.

Migrations are numbered. A store's `meta` names the last one applied; a later number than ours is refused. `Setup` has
the order of the steps for SQL servers; a subclass says how each is done.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from ...base.printable import printable
from ...errors import InvalidRequest
from ...ports.rules import FORMAT, IMPORTABLE, check_format
from .records import record_columns

__all__ = ["Migration", "Setup", "migrations"]

log = logging.getLogger("threadline")


class Migration(NamedTuple):
    """One step of the schema: its number, why it exists, and its statements."""

    number: int
    reason: str
    statements: tuple[str, ...]


class Setup(ABC):
    """Checks the format of a database; creates or migrates its tables if the options allow it.

    Every step is idempotent; `create` takes a lock, so two callers may run it one after the other.
    """

    def __init__(self, prefix: str, shown_url: str, mode: str | bool, *, read_only: bool) -> None:
        self.prefix = prefix
        self.is_ready = False
        self._shown_url = shown_url
        self._mode = mode
        self.may_write = mode is not False and not read_only

    async def open(self, wire: Any) -> None:
        """Check what is there, and create or migrate it where that is wanted."""
        found = await self._format(wire)
        if found is None and not self.may_write:
            theirs = f"; {IMPORTABLE.format(self._shown_url)}" if await self._holds_langgraphs(wire) else ""
            raise InvalidRequest(
                f"{self._shown_url} has no Threadline tables ({self.prefix}*): call setup() once, "
                f"or open it with setup='create'{theirs}"
            )
        if found is None or (found < FORMAT and self._mode == "migrate" and self.may_write):
            await self.create(wire)
        elif found < FORMAT:
            raise InvalidRequest(
                f"{self._shown_url} has format {found}: open it once with setup='migrate' to bring it to {FORMAT}"
            )
        await self._look_around(wire)
        self.is_ready = True
        # LangGraph's own tables are never touched; threads in them must not seem lost.
        if not await self._has_threads(wire) and await self._holds_langgraphs(wire):
            log.warning(
                "%s holds threads of LangGraph's own saver, which Threadline does not read in place: "
                "bring them over with `threadline import %s`",
                printable(self._shown_url),
                printable(self._shown_url),
            )

    @abstractmethod
    async def create(self, wire: Any) -> None:
        """Apply the migrations that are missing, one process at a time."""

    @abstractmethod
    async def _written_format(self, wire: Any) -> Any:
        """The record of the format; None without tables, or without the record."""

    @abstractmethod
    async def _look_around(self, wire: Any) -> None:
        """Learn what later calls need to know of the server and the tables; make the indexes that were asked for."""

    @abstractmethod
    async def _has_threads(self, wire: Any) -> bool:
        """Whether the store has a thread."""

    @abstractmethod
    async def _holds_langgraphs(self, wire: Any) -> bool:
        """Whether the database has threads of LangGraph's own saver."""

    async def _format(self, wire: Any) -> int | None:
        """The format of the tables that are there; None without any. Raises NewerFormat."""
        written = await self._written_format(wire)
        return check_format(written, self._shown_url) if written is not None else None


def migrations(prefix: str, types: dict[str, str]) -> list[Migration]:
    """All steps, in order; `types` maps the abstract column types to the dialect's."""
    serial, text, blob, whole, real = (types[name] for name in ("serial", "text", "blob", "whole", "real"))
    rowless, key = types["rowless"], types["key"]
    return [
        Migration(
            1,
            "the tables of format 1",
            (
                f"CREATE TABLE IF NOT EXISTS {prefix}meta (name {key} NOT NULL PRIMARY KEY, value {blob})",
                f"CREATE TABLE IF NOT EXISTS {prefix}threads (serial {serial}, thread_id {key} NOT NULL, "
                f"pool {whole} NOT NULL, epoch {whole} NOT NULL, status {text} NOT NULL, deleted_before {key}, "
                f"forked_from {key}, created {real} NOT NULL, active {real} NOT NULL, expires {real}, "
                f"tags {text} NOT NULL, metadata {blob}, asked {key})",
                f"CREATE UNIQUE INDEX IF NOT EXISTS {prefix}threads_by_id ON {prefix}threads (thread_id)",
                f"CREATE INDEX IF NOT EXISTS {prefix}threads_by_pool ON {prefix}threads (pool)",
                # Threads that may wait for an answer: few, and no cost for the others.
                f"CREATE INDEX IF NOT EXISTS {prefix}threads_asking ON {prefix}threads (thread_id) "
                f"WHERE asked IS NOT NULL",
                f"CREATE TABLE IF NOT EXISTS {prefix}checkpoints (pool {whole} NOT NULL, thread {whole} NOT NULL, "
                f"namespace {key} NOT NULL, id {key} NOT NULL, parent {key}, links {blob} NOT NULL, "
                f"form {whole} NOT NULL, document {blob} NOT NULL, metadata_form {whole} NOT NULL, "
                f"metadata {blob} NOT NULL, step {whole}, source {key}, run_id {key}, created {real} NOT NULL, "
                f"searchable {text}, PRIMARY KEY (pool, thread, namespace, id)){rowless}",
                f"CREATE INDEX IF NOT EXISTS {prefix}checkpoints_by_age ON {prefix}checkpoints (id)",
                f"CREATE INDEX IF NOT EXISTS {prefix}checkpoints_by_run ON {prefix}checkpoints (run_id) "
                f"WHERE run_id IS NOT NULL",
                # Whether a checkpoint has children is asked before it is deleted.
                f"CREATE INDEX IF NOT EXISTS {prefix}checkpoints_by_parent ON {prefix}checkpoints "
                f"(pool, thread, namespace, parent)",
                f"CREATE TABLE IF NOT EXISTS {prefix}writes (pool {whole} NOT NULL, thread {whole} NOT NULL, "
                f"namespace {key} NOT NULL, checkpoint_id {key} NOT NULL, task_id {key} NOT NULL, "
                f"idx {whole} NOT NULL, task_path {text} NOT NULL, channel {text} NOT NULL, links {blob} NOT NULL, "
                f"form {whole} NOT NULL, data {blob} NOT NULL, "
                f"PRIMARY KEY (pool, thread, namespace, checkpoint_id, task_id, idx)){rowless}",
                f"CREATE TABLE IF NOT EXISTS {prefix}chunks (pool {whole} NOT NULL, digest {blob} NOT NULL, "
                f"links {blob} NOT NULL, form {whole} NOT NULL, data {blob} NOT NULL)",
                f"CREATE UNIQUE INDEX IF NOT EXISTS {prefix}chunks_by_digest ON {prefix}chunks (pool, digest)",
                f"CREATE TABLE IF NOT EXISTS {prefix}records ({record_columns(types)}){rowless}",
                f"CREATE INDEX IF NOT EXISTS {prefix}records_by_expiry ON {prefix}records (space, expires) "
                f"WHERE expires IS NOT NULL",
            ),
        ),
    ]
