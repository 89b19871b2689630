"""PostgreSQL: the dialect, transactions, and a put in one statement.

Writes are READ COMMITTED: rows that are read after a lock was granted are as they are now. Reads of several statements
share one REPEATABLE READ snapshot; a single one needs no transaction. BEGIN travels with the first statement. Nothing
is set for a session, so that connections can be shared through PgBouncer in transaction mode; the tenant is set for
each transaction.

The locks are those of the rows of threads. A transaction that writes to a thread, or forks it, holds its row FOR KEY
SHARE. One that must be alone with it holds it FOR UPDATE: it expects a head, or deletes checkpoints. A collection and
the deletion of a thread hold all living threads of the pool so. Rows are locked before anything else is written,
several of them in the order of their serials.

A change of the usual kind is one statement (put.py), which is a transaction of its own. If the thread is not what it
expects, nothing was written, and the general way finds out why.

A server that fails over may have lost what it acknowledged. A put that relies on chunks that it does not send
therefore has a stale stamp if a connection was lost meanwhile, or if the server is another one (*generation*).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...base.drive import run_now
from ...errors import ThreadlineError
from ...ports.checkpoints import Applied, Change, CheckpointRow, Found, Stale, Stamp
from ...ports.rules import ACTIVITY_SECONDS, GENERATION_SHIFT
from ...ports.storage import Space
from ..layers.patience import unhurried
from ..server import PerLoop
from ..sql.backend import SqlBackend
from ..sql.changes import LastNoted
from ..sql.records import record_marks, standard_upsert
from ..sql.rows import Work, ordered_writes
from ..sql.statements import Dialect, Statements
from .binary import BytesArray
from .put import Put, PutStatements, replacing, split_found, usual
from .records import PostgresRecords, record_key
from .together import PostgresChanges, SeveralStatements, Together, runs
from .vectors import PostgresVectors
from .wire import Statement

if TYPE_CHECKING:
    from ..server import Lend, LendNow, ServerIdentity
    from .schema import PostgresTables
    from .wire import Question, Result, Session, Step

__all__ = ["PostgresBackend", "PostgresDatabase", "PostgresDialect", "PostgresStatements", "PostgresTransaction"]

T = TypeVar("T")
# So few values are looked for one by one, whatever the server knows of the table.
_FEW = 8
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# For one transaction. A store that is being filled has no statistics, and a plan that was made for its first rows, and
# kept since, reads whole tables when they have grown.
_WAYS = ("seqscan", "hashjoin", "mergejoin")
_BY_INDEX = "SELECT " + ", ".join(f"set_config('enable_{way}', 'off', true)" for way in _WAYS)

# Stands for a key that a record does not have: one look-up then finds these records as well.
_ABSENT = "'\"\"'::jsonb"


def _noted_at(column: str, key: str) -> str:
    return f"coalesce({column} -> '{key}', {_ABSENT})"


class PostgresDialect(Dialect):
    """The common SQL, with psycopg's placeholders, upserts and arrays."""

    most_values = 2000
    share_lock = " FOR SHARE"
    rows_together = 25

    def mark(self, column: str = "") -> str:
        return "%s"

    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        marks = ", ".join(["%s"] * len(columns.split(", ")))
        # An insert that ignores names no key: a policy that adds a tenant to the keys need not change a statement.
        conflict = replacing(columns, key) if replace else "ON CONFLICT DO NOTHING"
        return f"INSERT INTO {table} ({columns}) VALUES ({marks}) {conflict}"

    def upsert(self, table: str, rows: int = 1) -> str:
        return standard_upsert(table, record_marks("%s", rows), record_key(table))

    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        if key in self.indexed:
            return f"({column} -> '{key}') = %s::jsonb", [json.dumps(value)]
        return f"{column} @> %s::jsonb", [json.dumps({key: value})]

    def json_may_equal(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        return f"{_noted_at(column, key)} IN (%s::jsonb, {_ABSENT})", [json.dumps(value)]

    def record_index(self, table: str, name: str, key: str) -> tuple[str, str] | None:
        there = (
            f"SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
            f"WHERE i.indrelid = to_regclass('{table}') AND c.relname = lower('{name}')"
        )
        at = f"(({_noted_at('searchable', key)}), path) WHERE {self.space_of_items} = 1"
        made = f"CREATE INDEX IF NOT EXISTS {name} ON {table} {at}"
        return there, made

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        array = BytesArray(values) if values and isinstance(values[0], bytes) else list(values)
        if len(array) <= _FEW or not isinstance(array[0], str):
            return f"{column} = ANY(%s)", [array]
        # Of a table without statistics the server would read a whole thread for each batch: bounds keep it from that.
        return f"{column} = ANY(%s) AND {column} BETWEEN %s AND %s", [array, min(array), max(array)]


class PostgresStatements(Statements):
    """The common statements, where a thread that joins no pool has one of its own by itself."""

    before_wholes = _BY_INDEX

    def __init__(self, dialect: PostgresDialect, prefix: str) -> None:
        super().__init__(dialect, prefix)
        columns = "thread_id, joined, epoch, status, deleted_before, forked_from, created, active, tags"
        self.new_thread = (
            f"INSERT INTO {self.t} ({columns}) VALUES (%s, nullif(%s, 0), {', '.join(['%s'] * 7)}) "
            f"ON CONFLICT DO NOTHING"
        )
        self.own_pool = ""


class PostgresTransaction:
    """Statements on one session; what opens the transaction travels with the first of them."""

    def __init__(self, session: Session, opening: Sequence[Step], pool_held_alone: str) -> None:
        self._session = session
        self._opening = opening
        self._pool_held_alone = pool_held_alone
        self.epoch_base = session.generation << GENERATION_SHIFT

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return (await self._send([(statement, values)]))[0].rows

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        return (await self._send([(statement, values)]))[0].changed

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        if values:
            await self._send([(statement, one) for one in values])

    async def lock(self, pool: int) -> None:
        known: set[Any] | None = None
        while True:
            held = set(await self.rows(self._pool_held_alone, (pool,)))
            # A fork that joined while this waited is found by the next look. When one finds none, nobody can join any
            # more: who forks holds the row of a living thread of the pool.
            if known is not None and held <= known:
                return
            known = held

    async def _send(self, steps: Sequence[Step]) -> list[Result]:
        opening, self._opening = self._opening, ()
        return (await self._session.batch([*opening, *steps]))[len(opening) :]


class PostgresDatabase:
    """The Database port of one half, over sessions that are lent."""

    def __init__(self, lend: Lend, tables: PostgresTables, pool_held_alone: str, tenant: str | None) -> None:
        self._lend = lend
        self.tables = tables
        self._pool_held_alone = pool_held_alone
        naming = "SELECT set_config('threadline.tenant', {}, true)"
        self._opening = [(naming.format("%s"), (tenant,))] if tenant else []
        self._naming = [(Statement(naming.format("$1::text")), (tenant,))] if tenant else []
        self.has_tenant = bool(tenant)
        # In the same round trip as BEGIN: no transaction waits for ever for a lock that another holds.
        self._writing = [(_WRITING, ()), ("SELECT set_config('lock_timeout', %s, true)", (tables.lock_timeout,))]

    async def read(self, work: Work[T]) -> T:
        return await self._within(work, [(_READING, ()), *self._opening])

    async def read_once(self, work: Work[T]) -> T:
        # No transaction, unless there is a tenant to name.
        return await self._within(work, [(_READING, ()), *self._opening] if self._opening else [])

    async def write(self, work: Work[T]) -> T:
        return await self._within(work, [*self._writing, *self._opening])

    async def ask(self, statement: Statement, values: Sequence[Any]) -> tuple[list[Any], int]:
        """The rows of one statement, and the generation of the session that it was asked on, shifted."""

        async def act(session: Session) -> tuple[list[Any], int]:
            if self._naming:
                [rows] = await self.asked(session, [(statement, values)])
            else:
                rows = await session.ask(statement, values)
            return rows, session.generation << GENERATION_SHIFT

        return await self.lent(act)

    async def asked(self, session: Session, questions: Sequence[Question]) -> list[list[Any]]:
        """The rows of each of these statements, in one round trip and one transaction."""
        naming = self._naming
        if len(questions) == 1 and not naming:
            return [await session.ask(*questions[0])]
        return (await session.ask_all([*naming, *questions]))[len(naming) :]

    async def setup(self) -> None:
        await self._lend(self.tables.create)

    async def compact(self) -> None:
        names = ", ".join(self.tables.names())
        await self.lent(lambda session: session.batch([(f"VACUUM {names}", ())]))

    async def trim(self) -> None:
        return None  # autovacuum does

    async def space(self) -> Space:
        named = "(SELECT to_regclass(name)::oid FROM unnest(%s::text[]) AS name)"
        statement = (
            f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_catalog.pg_class WHERE oid IN {named} "
            f"OR oid IN (SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent IN {named})"
        )
        names = self.tables.names()
        results: list[Result] = await self.lent(lambda session: session.batch([(statement, (names, names))]))
        # How much of its files is free, PostgreSQL tells only where an extension is installed.
        size = int(results[0].rows[0][0])
        return Space(size, size)

    async def _within(self, work: Work[T], opening: Sequence[Step]) -> T:
        async def act(session: Session) -> T:
            tx = PostgresTransaction(session, opening, self._pool_held_alone)
            result = await work(tx)
            if opening and not tx._opening:
                await session.batch([("COMMIT", ())])
            return result

        return await self.lent(act)

    async def lent(self, act: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """The result of work on a session, on tables that are there."""
        found: T = await self._lend(act if self.tables.is_ready else partial(self._opened, act))
        return found

    async def _opened(self, act: Callable[[Session], Coroutine[Any, Any, T]], session: Session) -> T:
        with unhurried():
            await self.tables.open(session)
        return await act(session)


class PostgresBackend(PostgresRecords, PostgresVectors, SqlBackend):
    """The Backend port on PostgreSQL."""

    database: PostgresDatabase

    def __init__(
        self,
        database: PostgresDatabase,
        statements: Statements,
        put: PutStatements,
        identity: ServerIdentity,
        *,
        is_of_loop: bool,
    ) -> None:
        super().__init__(database, statements, PostgresChanges(statements, put, identity))
        self._put = put
        self._several = SeveralStatements(statements, put.lock_timeout)
        self._identity = identity
        self._together = PerLoop(lambda: Together(self.put_all)) if is_of_loop else None
        self._noted = LastNoted()
        self._note: Callable[[int, float | None], None] | None = None

    def forget_waiting(self) -> None:
        """In a forked child: what waits is the parent's."""
        if self._together is not None:
            self._together.take_all()

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        work = self._usual(changes[0]) if len(changes) == 1 else None
        if work is not None:
            if self._together is not None and work.can_wait:
                stamp = await self._together.here().put(work)
            else:
                [stamp] = await self.put_all([work])
            if stamp is not None:
                return [Applied(stamp)]
        # It is not of the usual kind, or its thread is not as expected.
        return await super().apply(changes)

    def put_now(self, lend: LendNow, change: Change) -> Stamp | None:
        """Make a change on the calling thread; None where the general way has to be taken (`PutUsual`)."""
        work = self._usual(change) if self.database.tables.is_ready else None
        if work is None:
            return None
        if self._note is not None:
            self._note(1, None)
        stamp: Stamp | None = lend(partial(self._put_one, work))
        return stamp

    def watch(self, note: Callable[[int, float | None], None]) -> None:
        """Have `note` told how many puts each transaction has."""
        self._note = note

    async def put_all(self, works: Sequence[Put]) -> list[Stamp | None]:
        """The stamps of changes that were made, in one transaction; None for each whose thread is not as expected.

        When several fail because of one, each goes the general way, alone. Only the loss of the server is an error of
        all.
        """
        if self._note is not None:
            self._note(len(works), None)
        before = self._identity.generation
        try:
            return await self.database.lent(partial(self._put_on, works))
        except ThreadlineError:
            if len(works) == 1 or self._identity.generation != before:
                raise
            return [None] * len(works)

    def _usual(self, change: Change) -> Put | None:
        """A change as one statement; None for one that needs several."""
        is_idle = change.now - self._noted[change.thread_id] > ACTIVITY_SECONDS
        return usual(change, self._identity.server or 0.0, may_touch=is_idle)

    def _put_one(self, work: Put, session: Session) -> Stamp | None:
        """`_put_on` for one change, on the calling thread."""
        change, shape, values = work
        if not self.database.has_tenant and not shape.is_headed and _is_of_server(change, session):
            rows = session.asked(self._put.of(shape), values)
            if rows is not None:
                return self._stamp_of(change, rows, session.generation)
        return run_now(self._put_on([work], session))[0]

    async def _put_on(self, works: Sequence[Put], session: Session) -> list[Stamp | None]:
        generation = session.generation
        if not all([_is_of_server(work.change, session) for work in works]):
            return [None] * len(works)
        parts = [*runs(works)] if len(works) > 1 else [works]
        asked = [self._question(part) for part in parts]
        if works[0].shape.is_headed:
            asked.insert(0, (self._put.held_for_head, [works[0].change.thread_id]))
        if len(asked) == 1 and not self.database.has_tenant:
            answers = [await session.ask(*asked[0])]
        else:
            answers = (await self.database.asked(session, asked))[-len(parts) :]
        stamps: list[Stamp | None] = []
        for part, rows in zip(parts, answers, strict=True):
            if len(part) == 1:
                stamps.append(self._stamp_of(part[0].change, rows, generation))
            else:
                made = {place for (place,) in rows}
                stamps += [work.change.stamp if place in made else None for place, work in enumerate(part, 1)]
        return stamps

    def _question(self, works: Sequence[Put]) -> Question:
        """The statement that makes these puts."""
        if len(works) > 1:
            return self._several.question(works)
        return self._put.of(works[0].shape), works[0].values

    def _stamp_of(self, change: Change, rows: list[Any], generation: int) -> Stamp | None:
        """The stamp under which a change was made, from the rows of its statement."""
        if not rows or not rows[0]:
            return change.stamp if rows else None
        [(pool, epoch, active)] = rows
        self._noted[change.thread_id] = active if change.now - active <= ACTIVITY_SECONDS else change.now
        return change.stamp or (pool, epoch + (generation << GENERATION_SHIFT))

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        """One checkpoint with its writes, in one query."""
        place = (thread_id, namespace) if checkpoint_id is None else (thread_id, namespace, checkpoint_id)
        statements = self._put.find_with_writes if with_writes else self._put.find
        rows, epoch_base = await self.database.ask(statements[checkpoint_id is None], place)
        if not rows:
            return None
        found, writes = split_found(rows, namespace)
        row = CheckpointRow(namespace, *found[2:])
        return Found(thread_id, found[0], found[1] + epoch_base, row, ordered_writes(writes) if writes else [])

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        found: list[tuple[bytes, bytes, int, bytes]] = []
        for part in self.sql.batches(digests):
            found += (await self.database.ask(self._put.chunks, (pool, BytesArray(part))))[0]
        return found


def _is_of_server(change: Change, session: Session) -> bool:
    """Whether what a put relies on, and does not send, was learnt from the server that answers now."""
    return change.stamp is None or change.stamp[1] >> GENERATION_SHIFT == session.generation
