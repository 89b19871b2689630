"""The tables in PostgreSQL: how they look, how they are made by many processes at once, what is checked on opening.

Ids and names are `text COLLATE "C"`: ordered by code point, readable in psql. Stored bytes are compressed or
sealed before they come here, so they are kept EXTERNAL: the server does not try to compress them again. Tables
that lose rows are vacuumed early. With `partitions`, the tables that grow are partitioned by the pool's hash.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from ...base.printable import printable
from ...errors import InvalidRequest
from ...ports.rules import FORMAT
from ..server import ServerIdentity
from ..sql.records import record_columns
from ..sql.setup import Migration, SqlSetup
from ..sql.statements import check_prefix, index_name
from .wire import Session, Step

__all__ = ["PostgresTables", "SERVER_BORN"]

log = logging.getLogger("threadline")
_TABLES = ("meta", "threads", "checkpoints", "writes", "chunks", "records")


class PostgresTables(SqlSetup):
    """The tables of one store: their names, and what opening found out about them."""

    def __init__(
        self,
        identity: ServerIdentity,
        *,
        schema: str | None,
        prefix: str,
        partitions: int | None,
        setup: str | bool,
        read_only: bool,
        shown_url: str,
        indexed: Sequence[str] = (),
        timeout: float = 30.0,
    ) -> None:
        self.schema = _check_schema(schema)
        self.bare_prefix = check_prefix(prefix)
        super().__init__(f'"{self.schema}".{prefix}' if self.schema else prefix, shown_url, setup, read_only=read_only)
        self.indexed = indexed
        self._partitions = partitions or 0
        # Told when the server was started: another one may lack what this one acknowledged.
        self._identity = identity
        # How long a transaction waits for a lock, as the server's setting takes it: milliseconds, and 0 is for ever.
        self.lock_timeout = str(max(1, min(int(timeout * 1000), 2**31 - 1)))
        # Where the tables are, whatever the search path of this role.
        self._home = self.schema or ""

    def ddl(self) -> str:
        schema = f'CREATE SCHEMA IF NOT EXISTS "{self.schema}";\n' if self.schema else ""
        return schema + super().ddl() + "".join(f"{line};\n" for line in self._index_statements().values())

    async def _look_around(self, session: Session) -> None:
        """Learn where the tables are and which server this is."""
        where = (
            "SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)"
        )
        results = await session.batch([(where, (f"{self.prefix}chunks",)), (f"SELECT {SERVER_BORN}", ())])
        [[self._home]], [[born]] = [result.rows for result in results]
        self._identity.saw(born)
        await self._index(session)

    async def _alone(self, session: Session, act: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        await session.batch([("BEGIN ISOLATION LEVEL READ COMMITTED", ())])
        try:
            # CREATE … IF NOT EXISTS alone fails when two run at once.
            await session.batch([self._setup_lock()])
            await self._create_schema(session)
            await act(session)
            await session.batch([("COMMIT", ())])
        except BaseException:
            with suppress(psycopg.Error):
                await session.batch([("ROLLBACK", ())])
            raise

    async def _execute(self, session: Session, statements: Sequence[str]) -> None:
        await session.batch(_bare(statements))

    def _numbering(self, *, replaces: bool) -> str:
        conflict = "(name) DO UPDATE SET value = excluded.value" if replaces else "DO NOTHING"
        return f"INSERT INTO {self.prefix}meta (name, value) VALUES ('format', '{FORMAT}') ON CONFLICT {conflict}"

    async def _index(self, session: Session) -> None:
        """Make the indexes of named metadata keys that are missing; searching works without them, slowly."""
        wanted = self._index_statements()
        if not wanted:
            return
        there = (
            "SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = ANY(%s)"
        )
        [result] = await session.batch([(there, (self._home, [name.lower() for name in wanted]))])
        found = {name for (name,) in result.rows}
        missing = [statement for name, statement in wanted.items() if name.lower() not in found]
        if not missing or not self.may_write:
            return
        try:
            # One batch is one transaction: a process that comes second finds the index there.
            await session.batch([self._setup_lock(), *_bare(missing)])
        except psycopg.errors.InsufficientPrivilege:
            log.warning(
                "%s: this role may not make the indexes of index_metadata; filters are slow", printable(self._where)
            )

    def _setup_lock(self) -> Step:
        return "SELECT pg_advisory_xact_lock(%s)", (_key(f"threadline/setup/{self.bare_prefix.lower()}"),)

    def _index_statements(self) -> dict[str, str]:
        """What makes the index of each named metadata key, by the index's name."""
        names = {index_name(self.bare_prefix, key): key for key in self.indexed}
        table = f"{self.prefix}checkpoints"
        return {
            name: f"CREATE INDEX IF NOT EXISTS {name} ON {table} ((searchable -> '{key}'), id)"
            for name, key in names.items()
        }

    async def _create_schema(self, session: Session) -> None:
        if self.schema is None:
            return
        # Asked first, because a role that may use a schema need not have the right to create one.
        there = await session.batch([("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (self.schema,))])
        if not there[0].rows:
            await session.batch([(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"', ())])

    async def _written_format(self, session: Session) -> Any:
        # From the catalog: a session believes its own cache that a table is missing until it opens some table, and
        # so would make the tables that another has made while it waited for the lock.
        there = "SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass(%s)"
        [result] = await session.batch([(there, (f"{self.prefix}meta",))])
        if not result.rows:
            return None
        [result] = await session.batch([(f"SELECT value FROM {self.prefix}meta WHERE name = 'format'", ())])
        return result.rows[0][0] if result.rows else None

    async def _has_threads(self, session: Session) -> bool:
        with suppress(psycopg.Error):
            [ours] = await session.batch([(f"SELECT 1 FROM {self.prefix}threads LIMIT 1", ())])
            return bool(ours.rows)
        return False

    async def _holds_langgraphs(self, session: Session) -> bool:
        theirs = "SELECT to_regclass('checkpoints') IS NOT NULL AND to_regclass('checkpoint_blobs') IS NOT NULL"
        with suppress(psycopg.Error):  # a role that may not look there has no threads there
            [result] = await session.batch([(f"{theirs} AND to_regclass('checkpoint_writes') IS NOT NULL", ())])
            if result.rows[0][0]:
                [held] = await session.batch([("SELECT 1 FROM checkpoints LIMIT 1", ())])
                return bool(held.rows)
        return False

    def names(self) -> list[str]:
        """Every table, as a statement names it."""
        return [self.prefix + name for name in _TABLES]

    def _steps(self) -> list[Migration]:
        p, bare = self.prefix, self.bare_prefix
        tables = (
            f"CREATE TABLE {p}meta (name {_KEY} PRIMARY KEY, value bytea)",
            f"CREATE TABLE {p}threads (serial bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, "
            # A thread has a pool of its own unless it joined one.
            f"thread_id {_KEY}, joined bigint, pool bigint NOT NULL GENERATED ALWAYS AS (coalesce(joined, serial)) "
            f"STORED, epoch bigint NOT NULL, status text NOT NULL, "
            f"deleted_before {_NAME}, forked_from {_NAME}, created double precision NOT NULL, "
            # Room for a thread's activity to be noted without touching an index.
            f"active double precision NOT NULL, expires double precision, tags text NOT NULL, metadata bytea, "
            f"asked {_NAME}) "
            f"WITH (fillfactor = 80)",
            f"CREATE UNIQUE INDEX {bare}threads_by_id ON {p}threads (thread_id)",
            f"CREATE INDEX {bare}threads_by_pool ON {p}threads (pool)",
            # Threads that may wait for an answer: few, and no cost for the others.
            f"CREATE INDEX {bare}threads_asking ON {p}threads (thread_id) WHERE asked IS NOT NULL",
            *self._grown(
                "checkpoints",
                f"pool bigint NOT NULL, thread bigint NOT NULL, namespace {_KEY}, id {_KEY}, parent {_NAME}, "
                f"links bytea NOT NULL, form integer NOT NULL, document bytea NOT NULL, "
                f"metadata_form integer NOT NULL, metadata bytea NOT NULL, step bigint, source {_NAME}, "
                f"run_id {_NAME}, created double precision NOT NULL, searchable jsonb, "
                f"PRIMARY KEY (pool, thread, namespace, id)",
                ("links", "document", "metadata"),
            ),
            f"CREATE INDEX {bare}checkpoints_by_age ON {p}checkpoints (id)",
            f"CREATE INDEX {bare}checkpoints_by_run ON {p}checkpoints (run_id) WHERE run_id IS NOT NULL",
            # For deletions, which ask for children. If it began with the columns of the primary key, a server without
            # statistics would look up a checkpoint in this index, and read all of its thread.
            f"CREATE INDEX {bare}checkpoints_by_parent ON {p}checkpoints (parent, pool, thread, namespace)",
            *self._grown(
                "writes",
                f"pool bigint NOT NULL, thread bigint NOT NULL, namespace {_KEY}, checkpoint_id {_KEY}, "
                f"task_id {_KEY}, idx bigint NOT NULL, task_path {_KEY}, channel {_KEY}, links bytea NOT NULL, "
                f"form integer NOT NULL, data bytea NOT NULL, "
                f"PRIMARY KEY (pool, thread, namespace, checkpoint_id, task_id, idx)",
                ("links", "data"),
            ),
            *self._grown(
                "chunks",
                "pool bigint NOT NULL, digest bytea NOT NULL, links bytea NOT NULL, form integer NOT NULL, "
                "data bytea NOT NULL, PRIMARY KEY (pool, digest)",
                ("links", "data"),
            ),
            f"CREATE TABLE {p}records ({record_columns(_RECORD_TYPES)}) {_VACUUMED}",
            f"ALTER TABLE {p}records ALTER value SET STORAGE EXTERNAL",
            f"CREATE INDEX {bare}records_by_expiry ON {p}records (space, expires) WHERE expires IS NOT NULL",
        )
        return [Migration(1, "the tables of format 1", tables)]

    def _grown(self, name: str, columns: str, stored: Sequence[str]) -> list[str]:
        """A table that grows with use, with its partitions where there are some."""
        table, count = self.prefix + name, self._partitions
        external = ", ".join(f"ALTER {column} SET STORAGE EXTERNAL" for column in stored)
        if not count:
            return [f"CREATE TABLE {table} ({columns}) {_VACUUMED}", f"ALTER TABLE {table} {external}"]
        return [
            f"CREATE TABLE {table} ({columns}) PARTITION BY HASH (pool)",
            f"ALTER TABLE {table} {external}",
            *(
                f"CREATE TABLE {table}_{number} PARTITION OF {table} "
                f"FOR VALUES WITH (MODULUS {count}, REMAINDER {number}) {_VACUUMED}"
                for number in range(count)
            ),
        ]


_RECORD_TYPES = {"whole": "bigint", "path": "bytea", "blob": "bytea", "json": "jsonb", "real": "double precision"}
# Seconds since 1970 as a float: exact to the microsecond.
SERVER_BORN = "extract(epoch FROM pg_postmaster_start_time())::float8"
_NAME = 'text COLLATE "C"'
_KEY = f"{_NAME} NOT NULL"
# Retention deletes a few hundred rows at a time from tables that may be large: a fifth of such a table, the
# server's default, would be a long time of dead rows.
_VACUUMED = (
    "WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_analyze_scale_factor = 0.05)"
)


def _bare(statements: Sequence[str]) -> list[Step]:
    return [(statement, ()) for statement in statements]


def _key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def _check_schema(schema: Any) -> str | None:
    if schema is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]{0,62}", schema):
        raise InvalidRequest("schema takes letters, digits, underscores and $, at most 63, not starting with a digit")
    return schema  # type: ignore[no-any-return]
