"""Embeddings in pgvector, beside their records: an index that the database itself keeps true.

For each number of dimensions there is a table of its own. Triggers of the table of records mark in it each embedding
that was added or replaced, and remove those that went, in the transaction that changes the record. So it does not
matter who writes: another process, an older version, a store that makes no embeddings. Whoever searches next fills
what is marked. The search itself compares all embeddings, as numpy does, but where they are: it needs no approximate
index and gives the same answers.

Used only where nothing is sealed, because pgvector must see the numbers, and without tenants.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...base.printable import printable
from ...errors import ThreadlineError
from ...ports.records import Embedded, Nearest, RecordSpace
from ..sql.records import SqlRecords, bounds_of
from .binary import BytesArray, RealsArray, TextsArray

if TYPE_CHECKING:
    from ..sql.rows import Transaction
    from .backend import PostgresDatabase

__all__ = ["PostgresVectors"]

log = logging.getLogger("threadline.store")
_VECTOR = int(RecordSpace.VECTOR)
# pgvector keeps at most so many numbers in one embedding.
_MOST_DIMS = 16_000
# The lock of those who make tables of embeddings; no pool has this number.
_MAKING = -2
# How many marks are told at once.
_MOST_MARKS = 1000
_SCHEMA_OF = (
    "SELECT quote_ident(n.nspname), e.installed_version IS NOT NULL FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "LEFT JOIN pg_catalog.pg_available_extensions e ON e.name = 'vector' "
    "WHERE c.oid = to_regclass(%s)"
)
_EXTENSION = (
    "SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
_AVAILABLE = "SELECT 1 FROM pg_catalog.pg_available_extensions WHERE name = 'vector'"
_RIGHTS = "SELECT to_regclass(%s) IS NOT NULL AND has_table_privilege(%s, 'SELECT, INSERT, UPDATE, DELETE')"


class PostgresVectors(SqlRecords):
    """The part of the Records port that is about embeddings."""

    database: PostgresDatabase

    def _vectors(self) -> dict[int, _Statements]:
        """The statements of the tables that are ready, by the number of dimensions."""
        found: dict[int, _Statements] = self.__dict__.setdefault("_ready_vectors", {})
        return found

    async def index_vectors(self, dims: int) -> bool:
        try:
            why_not = await self._made_ready(dims)
        except ThreadlineError as error:
            why_not = str(error)
        if why_not is None:
            return True
        log.warning(
            "semantic search goes without pgvector, reads all embeddings of a namespace and compares them here: %s",
            printable(why_not),
        )
        return False

    async def _made_ready(self, dims: int) -> str | None:
        """Make the table of these embeddings where it is missing; tells why there is none."""
        if self.database.has_tenant:
            return "embeddings of several tenants would be in one table"
        if dims > _MOST_DIMS:
            return f"an embedding has {dims:,} dimensions, and pgvector keeps at most {_MOST_DIMS:,}"
        if not await self.database.read_once(lambda tx: tx.rows(_AVAILABLE)):
            return "the server does not have the extension (its package is called postgresql-16-pgvector or so)"

        async def work(tx: Transaction) -> _Statements | str:
            return await _made(
                tx, self._sql.table, self._sql.bare_prefix, dims, may_make=self.database.tables.may_write
            )

        made = await self.database.write(work)
        if isinstance(made, str):
            return made
        self._vectors()[dims] = made
        return None

    async def nearest_vectors(self, dims: int, prefix: bytes, query: bytes, limit: int) -> Nearest:
        sql, (low, high) = self._vectors()[dims], bounds_of(prefix)

        async def work(tx: Transaction) -> Nearest:
            marks = await tx.rows(sql.marked, (low, high, _MOST_MARKS))
            found = await tx.rows(sql.nearest, (_text_of(query), low, high, limit)) if not marks else []
            return Nearest(
                [bytes(path) for (path,) in marks], [(bytes(path), float(distance)) for path, distance in found]
            )

        return await self.database.read(work)

    async def fill_vectors(self, dims: int, embedded: Sequence[Embedded]) -> None:
        sql, width = self._vectors()[dims], 4 * dims
        names, numbers, texts = BytesArray(), RealsArray(), TextsArray()
        for one in sorted(embedded):
            for number, start in enumerate(range(0, len(one.vectors), width)):
                names.append(one.name)
                numbers.append(float(number))
                texts.append(_text_of(one.vectors[start : start + width]))
        marked = [BytesArray(one.name for one in embedded), RealsArray(one.made for one in embedded)]
        await self.database.write(lambda tx: tx.run(sql.fill, (*marked, names, numbers, texts)))


class _Statements:
    """The statements of one table of embeddings."""

    def __init__(self, table: str, kind: str, schema: str) -> None:
        within = "path > %s AND path < %s"
        distance = f"embedding OPERATOR({schema}.<=>) %s::{kind}"
        self.marked = f"SELECT path FROM {table} WHERE number = -1 AND {within} ORDER BY path LIMIT %s"
        # An embedding without length is as near to all as one at a right angle.
        self.nearest = (
            f"SELECT path, min(CASE WHEN away = 'NaN'::float8 THEN 1 ELSE away END) AS away FROM "
            f"(SELECT path, {distance} AS away FROM {table} WHERE number >= 0 AND {within}) AS one "
            f"GROUP BY path ORDER BY away, path LIMIT %s"
        )
        # Only what is still marked for this very record: another may have filled it, or replaced the record.
        self.fill = (
            f"WITH done AS (DELETE FROM {table} AS held USING unnest(%s::bytea[], %s::float8[]) AS new (path, made) "
            f"WHERE held.path = new.path AND held.made = new.made AND held.number = -1 "
            f"RETURNING held.path, held.made) "
            f"INSERT INTO {table} (path, number, made, embedding) "
            f"SELECT done.path, new.number::integer, done.made, new.embedding::{kind} "
            f"FROM done JOIN unnest(%s::bytea[], %s::float8[], %s::text[]) AS new (path, number, embedding) "
            f"ON new.path = done.path ON CONFLICT DO NOTHING"
        )


async def _made(tx: Transaction, records: str, bare_prefix: str, dims: int, *, may_make: bool) -> _Statements | str:
    """The statements of the table for so many dimensions, which is made where it is missing; or why there is none."""
    await tx.lock(_MAKING)
    [(home, is_installed)] = await tx.rows(_SCHEMA_OF, (records,))
    if not is_installed:
        if not may_make:
            return "CREATE EXTENSION vector was not run in this database"
        await tx.run("CREATE EXTENSION IF NOT EXISTS vector")
    [(schema,)] = await tx.rows(_EXTENSION)
    bare = f"{bare_prefix}vectors_{dims}".lower()
    table, kind = f"{home}.{bare}", f"{schema}.vector({dims})"
    [(is_there,)] = await tx.rows("SELECT to_regclass(%s) IS NOT NULL", (table,))
    if not is_there:
        if not may_make:
            return f"the table {table} does not exist, and this store may not make it"
        for statement in _definitions(f"{home}.{bare_prefix}records", table, bare, kind):
            await tx.run(statement)
    [(may_use,)] = await tx.rows(_RIGHTS, (table, table))
    return _Statements(table, kind, schema) if may_use else f"this role may not use the table {table}"


def _definitions(records: str, table: str, bare: str, kind: str) -> list[str]:
    """The table, the triggers that keep it true, and a mark for each embedding that is there."""
    function = f"{table}_follow"
    return [
        f"CREATE TABLE {table} (path bytea NOT NULL, number integer NOT NULL, made double precision NOT NULL, "
        f"embedding {kind}, PRIMARY KEY (path, number))",
        f"CREATE INDEX {bare}_marked ON {table} (path) WHERE number = -1",
        # The rights of its owner: who may write records may not be able to write here.
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        f"SET search_path = pg_catalog, pg_temp AS $$ BEGIN "
        f"IF TG_OP <> 'INSERT' THEN DELETE FROM {table} WHERE path = OLD.path; END IF; "
        f"IF TG_OP <> 'DELETE' THEN INSERT INTO {table} (path, number, made) VALUES (NEW.path, -1, NEW.updated) "
        f"ON CONFLICT (path, number) DO UPDATE SET made = excluded.made; END IF; RETURN NULL; END $$",
        f"CREATE TRIGGER {bare}_put AFTER INSERT OR UPDATE ON {records} FOR EACH ROW "
        f"WHEN (NEW.space = {_VECTOR}) EXECUTE FUNCTION {function}()",
        f"CREATE TRIGGER {bare}_gone AFTER DELETE ON {records} FOR EACH ROW "
        f"WHEN (OLD.space = {_VECTOR}) EXECUTE FUNCTION {function}()",
        f"INSERT INTO {table} (path, number, made) SELECT path, -1, updated FROM {records} WHERE space = {_VECTOR}",
    ]


def _text_of(vector: bytes) -> str:
    """A vector as pgvector reads it; nine digits are all that a 32-bit float has."""
    numbers: Any = array("f", vector)
    return "[" + ",".join(["%.9g"] * len(numbers)) % tuple(numbers) + "]"
