"""PostgreSQL: the dialect, transactions, and a put in one round trip.

Writes are READ COMMITTED: the pool's advisory lock is granted first, and what is looked at afterwards is what
holds now. Reads of several statements share one REPEATABLE READ snapshot; a single one needs no transaction.
BEGIN travels with the first statement. Nothing is set for a session, so that connections can be shared through
PgBouncer in transaction mode; the tenant is set for each transaction.

A put whose thread is known is one batch, which the server takes for one transaction: the lock alone, and one
statement that inserts everything if the thread is still what the put was prepared for. If it is not, nothing was
written, and the general way finds out why. Puts that wait at the same time share such a batch (gather.py).

A server that fails over may have lost what it acknowledged. Whoever relies on chunks that it does not send is
therefore told that its stamp has passed when a connection was lost meanwhile, or when the server is another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .lending import is_of_work
from .port import Applied, Change, Found, Space, Stale
from .postgres_put import PutStatements, split_writes
from .postgres_sessions import BytesArray
from .rules import is_usual
from .sql.backend import SqlBackend, Transaction
from .sql.reader import DOUBT_SHIFT, found_row, ordered_writes
from .sql.statements import Statements

if TYPE_CHECKING:
    from .postgres_schema import PostgresTables
    from .postgres_sessions import Result, Session, Step

__all__ = [
    "Gatherer",
    "PostgresBackend",
    "PostgresDatabase",
    "PostgresDialect",
    "PostgresTransaction",
]

T = TypeVar("T")
_MOST_AMONG = 2000
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Does a change together with others that wait, if it can; tells whether it was made.
Gatherer = Callable[[Change], Coroutine[Any, Any, bool]]


class PostgresDialect:
    """The common SQL, with psycopg's placeholders, upserts and arrays."""

    name = "postgresql"
    most_values = _MOST_AMONG
    share_lock = " FOR SHARE"

    def __init__(self, indexed: Sequence[str] = ()) -> None:
        self._indexed = frozenset(indexed)

    def text(self, statement: str) -> str:
        return statement.replace("?", "%s")

    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        names = [name.strip() for name in columns.split(",")]
        marks = ", ".join("?" * len(names))
        return f"INSERT INTO {table} ({columns}) VALUES ({marks}) {on_conflict(names, key, replace=replace)}"

    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        if key in self._indexed:
            return f"({column} -> '{key}') = ?::jsonb", [json.dumps(value)]
        return f"{column} @> ?::jsonb", [json.dumps({key: value})]

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        array = BytesArray(values) if values and isinstance(values[0], bytes) else list(values)
        return f"{column} = ANY(?)", [array]


def on_conflict(names: Sequence[str], key: str, *, replace: bool) -> str:
    """What an insert does where its row is there already."""
    if not replace:
        # Without naming the key: whoever adds a tenant to the keys need not change a statement.
        return "ON CONFLICT DO NOTHING"
    keys = [name.strip() for name in key.split(",")]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keys)
    return f"ON CONFLICT ({key}) DO UPDATE SET {changes}"


class PostgresTransaction:
    """Statements on one session; what opens the transaction travels with the first of them."""

    def __init__(self, session: Session, tables: PostgresTables, opening: Sequence[Step]) -> None:
        self._session = session
        self._tables = tables
        self._opening = opening
        self.doubted = session.generation << DOUBT_SHIFT

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return (await self._send([(statement, values)]))[0].rows

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        return (await self._send([(statement, values)]))[0].changed

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        if values:
            await self._send([(statement, one) for one in values])

    async def lock(self, pool: int, *, exclusive: bool) -> bool:
        await self._send([lock_step(self._tables, pool, exclusive=exclusive)])
        return True

    async def _send(self, steps: Sequence[Step]) -> list[Result]:
        opening, self._opening = self._opening, ()
        return (await self._session.batch([*opening, *steps]))[len(opening) :]


def lock_step(tables: PostgresTables, pool: int, *, exclusive: bool) -> Step:
    kind = "" if exclusive else "_shared"
    return f"SELECT pg_advisory_xact_lock{kind}(%s)", (tables.lock_key(pool),)


class PostgresDatabase:
    """The Database port of one half. `lend` lends a session to an act and translates what it raises."""

    def __init__(
        self,
        lend: Callable[[Callable[[Session], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]],
        prepare: Callable[[], Coroutine[Any, Any, None]],
        tables: PostgresTables,
        tenant: str | None,
    ) -> None:
        self._lend = lend
        self._prepare = prepare
        self.tables = tables
        self._opening = [("SELECT set_config('threadline.tenant', %s, true)", (tenant,))] if tenant else []
        # In the same round trip as BEGIN: nobody waits for ever for a lock that another holds.
        self._writing = [(_WRITING, ()), ("SELECT set_config('lock_timeout', %s, true)", (tables.lock_timeout,))]

    async def read(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self._within(work, [(_READING, ()), *self._opening])

    async def read_once(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        """The result of queries that need no common snapshot: no transaction, unless there is a tenant to name."""
        return await self._within(work, [(_READING, ()), *self._opening] if self._opening else [])

    async def write(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self._within(work, [*self._writing, *self._opening])

    async def at_once(self, steps: Sequence[Step], generations: Collection[int]) -> list[Result] | None:
        """A whole transaction in one round trip: what is sent up to one Sync commits together, without BEGIN.

        None, and nothing is sent, where the session is of another generation than any of these.
        """
        opening = self._opening

        async def act(session: Session) -> list[Result] | None:
            if any(generation != session.generation for generation in generations):
                return None
            return (await session.batch([*opening, *steps]))[len(opening) :]

        return await self._lent(act)

    async def setup(self) -> None:
        await self._prepare()

    async def compact(self) -> None:
        names = ", ".join(self.tables.names())
        await self._lent(lambda session: session.batch([(f"VACUUM {names}", ())]))

    async def size_bytes(self) -> int:
        named = "(SELECT to_regclass(name)::oid FROM unnest(%s::text[]) AS name)"
        statement = (
            f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_catalog.pg_class WHERE oid IN {named} "
            f"OR oid IN (SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent IN {named})"
        )
        names = self.tables.names()
        results: list[Result] = await self._lent(lambda session: session.batch([(statement, (names, names))]))
        return int(results[0].rows[0][0])

    async def space(self) -> Space:
        # How much of its files is free, PostgreSQL tells only where an extension is installed.
        return Space(await self.size_bytes(), 0)

    async def _within(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], opening: Sequence[Step]) -> T:
        async def act(session: Session) -> T:
            tx = PostgresTransaction(session, self.tables, opening)
            result = await work(tx)
            if opening and not tx._opening:
                await session.batch([("COMMIT", ())])
            return result

        found: T = await self._lent(act)
        return found

    async def _lent(self, act: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        found: T = await self._lend(act)
        return found


class PostgresBackend(SqlBackend):
    """The Backend port on PostgreSQL. `lose` counts a loss of the server, and tells how many there were."""

    database: PostgresDatabase

    def __init__(
        self,
        database: PostgresDatabase,
        statements: Statements,
        losses: Callable[[], int],
        lose: Callable[[], int],
        gather: Callable[[PostgresBackend], Gatherer],
    ) -> None:
        super().__init__(database, statements)
        self._put = PutStatements(statements)
        self._losses = losses
        self._lose = lose
        self._gatherer = gather(self)

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        if len(changes) == 1:
            [change] = changes
            if change.stamp is not None and is_usual(change) and await self._gatherer(change):
                return [Applied(change.stamp)]
        return await super().apply(changes)

    async def put_together(self, changes: Sequence[Change]) -> list[bool]:
        """Whether each change was made, in one round trip for all; they are of the usual kind, and share no pool.

        What is not made goes the general way, alone, also when all of it failed because of one. Only a lost server
        is everybody's loss.
        """
        # Whoever relies on chunks it does not send must have learnt of them from the server that answers now.
        generations = {change.stamp[1] >> DOUBT_SHIFT for change in changes if change.stamp is not None}
        before = self._losses()
        try:
            results = await self.database.at_once(self._put.steps(changes, self.database.tables), generations)
        except Exception as error:
            if len(changes) == 1 or self._losses() != before or not is_of_work(error, ValueError, TypeError):
                raise
            results = None
        made = {pool for (pool,) in results[-1].rows} if results is not None else set()
        return [change.stamp is not None and change.stamp[0] in made for change in changes]

    async def _apply_all(self, changes: Sequence[Change], tx: Transaction) -> list[Applied | Stale]:
        if any(change.stamp is not None for change in changes):
            await self._note_server(tx)
        return await super()._apply_all(changes, tx)

    async def _note_server(self, tx: Transaction) -> None:
        """Count a loss where the server is another than the one that was known."""
        [(born,)] = await tx.rows(self._put.server_born)
        tables = self.database.tables
        if born != tables.server_born:
            # First the loss: whoever prepares a put between these lines must not pass for one who knows this server.
            tx.doubted = self._lose() << DOUBT_SHIFT
            tables.server_born = born

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        """One checkpoint with its writes, in one query."""
        place = (thread_id, namespace) if checkpoint_id is None else (thread_id, namespace, checkpoint_id)
        if with_writes:
            statement = self._put.newest_with_writes if checkpoint_id is None else self._put.find_with_writes
        else:
            statement = self.sql.newest if checkpoint_id is None else self.sql.find

        async def work(tx: Transaction) -> Found | None:
            rows = await tx.rows(statement, place)
            if not rows:
                return None
            found, writes = split_writes(rows) if with_writes else (rows[0], [])
            return found_row(found, tx.doubted)._replace(writes=ordered_writes(writes))

        return await self._read_once(work)

    async def _read_once(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self.database.read_once(work)

    def _batches(self, values: Sequence[T]) -> Iterator[Sequence[T]]:
        # An array is one value, whatever its length: nothing to pad.
        for start in range(0, len(values), _MOST_AMONG):
            yield values[start : start + _MOST_AMONG]
