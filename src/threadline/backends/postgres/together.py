"""Changes that share a transaction: puts of tasks that wait at the same time, and many changes of one caller.

A put that finds fewer than two others under way on its event loop is made at once, alone. Others wait; the next of the
two that ends has what waits by then made in one go: one connection, one round trip, one commit. With threads this does
not pay: to wake them one by one costs more than a connection for each.

Who waits may be cancelled, the puts of others may not: a group is made by a task of its own.

Most puts of a group are one statement, whose parameters are arrays: each thread, row and write is an element
(`SeveralStatements`). What a put costs the server is mostly to begin and end its statement. This one locks and checks
as that of one put does (put.py): each thread with its witness by itself, so that one that is not as expected keeps
nobody else from being written to. Chunks of all go before checkpoints of all, as with many changes of one caller; puts
of other kinds are statements of their own, one after the other. So two transactions that write the same rows of the
same threads, a put that another process tries again, may wait for each other in a circle. The server ends one of them
after a second, and its puts go the general way, each alone.

Many changes of one caller are a few statements with arrays, however many threads they go to (`PostgresChanges`). Only
those of the plain kind: to threads that they begin, or whose stamps they name, without anything further to check. If
one of the threads is not as expected, the general way is taken, in the same transaction; what was done until then is
what it would do first. Threads come before chunks, checkpoints and writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...errors import Unavailable
from ...ports.checkpoints import Applied, Change, Stale, Stamp, ThreadRow
from ...ports.rules import ACTIVITY_SECONDS, GENERATION_SHIFT, asked_at, split_writes
from ..sql.changes import Changes, is_exclusive
from ..sql.rows import Transaction, read_thread
from ..sql.statements import CHECKPOINT_COLUMNS, CHECKPOINT_KEY, CHUNK_COLUMNS, WRITE_COLUMNS, WRITE_KEY, Statements
from .binary import TextsArray, arrays
from .put import (
    CHECKPOINT_TYPES,
    CHUNK_TYPES,
    WRITE_TYPES,
    Marks,
    Put,
    PutStatements,
    expected_thread,
    given,
    latest,
    replacing,
)
from .wire import Question, Statement

if TYPE_CHECKING:
    from ..server import ServerIdentity

__all__ = ["PostgresChanges", "SeveralStatements", "Together", "runs"]

# So many are under way at once. With more the groups are smaller, and there are more commits.
_MOST_UNDER_WAY = 2
_MOST_TOGETHER = 32
# Changes of more bytes than this in one transaction would make the others wait.
_MOST_BYTES = 4 * 1024 * 1024
_CANCELLED = (
    "the task that committed this put with others was cancelled; whether it was stored is unknown: "
    "retry (a put is idempotent)"
)


class Together:
    """Groups the puts of the tasks of one event loop into shared transactions."""

    def __init__(self, put: Callable[[list[Put]], Coroutine[Any, Any, list[Stamp | None]]]) -> None:
        self._put = put
        self._waiting: deque[tuple[Put, asyncio.Future[Stamp | None]]] = deque()
        self._under_way = 0
        # The loop itself refers to its tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, work: Put) -> Stamp | None:
        """The stamp of a change that was made; None where its thread is not as expected."""
        if self._under_way >= _MOST_UNDER_WAY:
            future: asyncio.Future[Stamp | None] = asyncio.get_running_loop().create_future()
            self._waiting.append((work, future))
            return await future
        self._under_way += 1
        try:
            return (await self._put([work]))[0]
        finally:
            self._ended()

    def _ended(self) -> None:
        """One that was under way is over: begin with what waits."""
        self._under_way -= 1
        group = self._taken()
        if not group:
            return
        self._under_way += 1
        task = asyncio.get_running_loop().create_task(self._put_all(group))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Not inside the task: one that is cancelled before it begins would never come to it.
            self._tasks.discard(task)
            for _, future in group:
                if not future.done():
                    future.set_exception(Unavailable(_CANCELLED))
            self._ended()

        task.add_done_callback(ended)

    def _taken(self) -> list[tuple[Put, asyncio.Future[Stamp | None]]]:
        """The first that wait, of different pools."""
        group: dict[tuple[int, int, str], tuple[Put, asyncio.Future[Stamp | None]]] = {}
        size = 0
        while self._waiting and len(group) < _MOST_TOGETHER:
            work, future = self._waiting[0]
            if not future.done():  # it was not cancelled
                order = work.order
                size += work.size
                if group and (order in group or size > _MOST_BYTES):
                    break
                group[order] = work, future
            self._waiting.popleft()
        return [group[order] for order in sorted(group)]

    async def _put_all(self, group: list[tuple[Put, asyncio.Future[Stamp | None]]]) -> None:
        try:
            stamps = await self._put([work for work, _ in group])
        except Exception as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), stamp in zip(group, stamps, strict=True):
                if not future.done():
                    future.set_result(stamp)


_THREAD = ("text", "text", "float8", "float8", "text")
_CHUNK = ("bigint", *CHUNK_TYPES)
_CHECKPOINT = ("bigint", "bigint", *CHECKPOINT_TYPES)
_WRITE = ("bigint", "bigint", *WRITE_TYPES)
# Serial, pool and epoch of a thread.
Place = tuple[int, int, int]


class _ManyStatements:
    """The statements, each of which takes one array for each column."""

    def __init__(self, sql: Statements) -> None:
        begun = "thread_id, forked_from, created, active, asked"
        self.begin = (
            f"INSERT INTO {sql.t} ({begun}, epoch, status, tags) SELECT n.*, 0, 'active', '[]' "
            f"FROM {_unnested(_THREAD)} AS n ON CONFLICT DO NOTHING RETURNING thread_id, serial, pool, epoch"
        )
        # Of threads that are held by now.
        self.living = (
            f"SELECT thread_id, serial, pool, epoch, active FROM {sql.t} WHERE thread_id = ANY(%s::text[]) "
            f"AND status NOT IN ('deleted', 'archived') AND deleted_before IS NULL"
        )
        self.add_chunks = _insert(sql.k, f"pool, {CHUNK_COLUMNS}", _CHUNK, "ON CONFLICT DO NOTHING")
        columns = f"pool, thread, {CHECKPOINT_COLUMNS}"
        self.put_checkpoints = _insert(sql.c, columns, _CHECKPOINT, replacing(CHECKPOINT_COLUMNS, CHECKPOINT_KEY))
        columns = f"pool, thread, {WRITE_COLUMNS}"
        self.add_writes = _insert(sql.w, columns, _WRITE, "ON CONFLICT DO NOTHING")
        self.replace_writes = _insert(sql.w, columns, _WRITE, replacing(WRITE_COLUMNS, WRITE_KEY))


def _unnested(types: Sequence[str]) -> str:
    return f"unnest({', '.join(f'%s::{kind}[]' for kind in types)})"


def _insert(table: str, columns: str, types: Sequence[str], conflict: str) -> str:
    return (
        f"INSERT INTO {table} ({columns}) SELECT {given(columns)} FROM {_unnested(types)} AS n ({columns}) {conflict}"
    )


class PostgresChanges(Changes):
    """The general way, with rows of threads for locks; many plain changes are made together."""

    def __init__(self, sql: Statements, put: PutStatements, identity: ServerIdentity) -> None:
        super().__init__(sql)
        self._put = put
        self._many = _ManyStatements(sql)
        self._identity = identity

    async def apply_all(self, changes: Sequence[Change], tx: Transaction) -> list[Applied | Stale]:
        if any(change.stamp is not None for change in changes):
            await self._note_server(tx)
        if len(changes) > 1:
            named = {change.thread_id for change in changes} | {change.joins for change in changes if change.joins}
            alone = any(is_exclusive(change) for change in changes)
            await tx.rows(self._put.all_held_alone if alone else self._put.all_held, (sorted(named),))
            made = await _apply_many(self._many, changes, tx)
            if made is not None:
                return list(made)
        return await super().apply_all(changes, tx)

    async def _note_server(self, tx: Transaction) -> None:
        """Begin a new generation where the server is another than the one that was known."""
        [(born,)] = await tx.rows(self._put.server_born)
        begun = self._identity.saw(born)
        if begun is not None:
            tx.epoch_base = begun << GENERATION_SHIFT

    async def held(self, thread_id: str, tx: Transaction, *, exclusive: bool) -> ThreadRow | None:
        held = self._put.held_alone if exclusive else self._put.held
        while True:
            rows = await tx.rows(held, (thread_id,))
            # What is left of a deleted thread is not held: nothing is written to it.
            thread = ThreadRow(*rows[0]) if rows else await read_thread(self.sql, thread_id, tx)
            if rows or thread is None or thread.status == "deleted":
                return thread

    async def held_with_pool(self, thread_id: str, tx: Transaction) -> ThreadRow | None:
        thread = await read_thread(self.sql, thread_id, tx)
        if thread is not None and thread.status != "deleted":
            await tx.lock(thread.pool)
            # It may have been deleted, and begun anew in another pool.
            again = await read_thread(self.sql, thread_id, tx)
            return again if again is None or again.pool == thread.pool else await self.held_with_pool(thread_id, tx)
        return thread


async def _apply_many(sql: _ManyStatements, changes: Sequence[Change], tx: Transaction) -> list[Applied] | None:
    """Make changes whose threads are held; None where one is not of the plain kind, or its thread not as expected."""
    begins = all(map(_begins, changes))
    if not begins and not all(map(_continues, changes)):
        return None
    if len({change.thread_id for change in changes}) < len(changes):
        return None
    places = await (_begun if begins else _found)(sql, changes, tx)
    if places is None:
        return None
    chunks, checkpoints, adds, replaces = list[Any](), list[Any](), list[Any](), list[Any]()
    for change in changes:
        serial, pool, _ = places[change.thread_id]
        chunks += [(pool, *row) for row in change.chunks]
        checkpoints += [(pool, serial, *row) for row in change.checkpoints]
        added, replaced = split_writes(change.writes, pool, serial)
        adds += added
        replaces += replaced
    await _send(sql.add_chunks, sorted(chunks), _CHUNK, tx)
    await _send(sql.put_checkpoints, latest(checkpoints, 4), _CHECKPOINT, tx)
    await _send(sql.add_writes, sorted(adds), _WRITE, tx)
    await _send(sql.replace_writes, latest(replaces, 6), _WRITE, tx)
    return [Applied(_stamp(places[change.thread_id], tx)) for change in changes]


def _is_plain(change: Change) -> bool:
    return not (
        change.witnesses or change.moved or change.firsts or change.joins is not None or change.head is not None
        or change.settles is not None or change.lease is not None or change.continues is not None
    )  # fmt: skip


def _begins(change: Change) -> bool:
    return change.stamp is None and change.founded is not None and change.begins and _is_plain(change)


def _continues(change: Change) -> bool:
    return change.stamp is not None and _is_plain(change) and asked_at(change) is None


async def _begun(sql: _ManyStatements, changes: Sequence[Change], tx: Transaction) -> dict[str, Place] | None:
    """Begin the threads; None where there is one of them already."""
    rows = sorted((change.thread_id, *change.beginning, change.now, asked_at(change)) for change in changes)
    found = await _send(sql.begin, rows, _THREAD, tx)
    return {thread_id: tuple(place) for thread_id, *place in found} if len(found) == len(rows) else None


async def _found(sql: _ManyStatements, changes: Sequence[Change], tx: Transaction) -> dict[str, Place] | None:
    """The places of threads; None where a stamp is stale, or a thread is to be said to be in use."""
    found = {row[0]: row[1:] for row in await tx.rows(sql.living, [TextsArray(change.thread_id for change in changes)])}
    places: dict[str, Place] = {}
    for change in changes:
        if change.thread_id not in found:
            return None
        *place, active = found[change.thread_id]
        if _stamp(place, tx) != change.stamp or change.now - active > ACTIVITY_SECONDS:
            return None
        places[change.thread_id] = tuple(place)
    return places


def _stamp(place: Place, tx: Transaction) -> Stamp:
    return place[1], place[2] + tx.epoch_base


async def _send(statement: str, rows: Sequence[Any], types: Sequence[str], tx: Transaction) -> list[Any]:
    """The rows that a statement gives to these rows."""
    return await tx.rows(statement, arrays(types, rows)) if rows else []


_EXPECTED = {
    "thread_id": "text", "pool": "bigint", "epoch": "bigint", "namespace": "text", "id": "text", "created": "float8"
}  # fmt: skip


def runs(works: Sequence[Put]) -> Iterator[list[Put]]:
    """Puts in their order, those together that one statement makes."""
    for are_alike, group in groupby(works, _likeness):
        run = list(group)
        if are_alike:
            yield run
        else:
            yield from ([work] for work in run)


def _likeness(work: Put) -> Any:
    """When the server was born that a put expects; False for a put that does more than to add to a known thread."""
    shape = work.shape
    is_plain = shape.is_stamped and shape.witnesses == 1 and not (
        shape.is_leased or shape.is_headed or shape.noting or shape.moved or shape.replaces
    )  # fmt: skip
    return is_plain and (work.values[3],)


class SeveralStatements:
    """The statements, made when first needed: they differ in which kinds of rows there are."""

    def __init__(self, sql: Statements, lock_timeout: str) -> None:
        self._sql = sql
        self._lock_timeout = lock_timeout
        self._made: dict[tuple[bool, bool, bool], Statement] = {}

    def question(self, works: Sequence[Put]) -> Question:
        """The statement that makes these puts, and its values; it gives the places of those that were made, from 1."""
        changes = [work.change for work in works]
        threads = [
            (change.thread_id, *work.values[1:3], *change.witnesses[0])
            for change, work in zip(changes, works, strict=True)
        ]
        values = [*arrays([*_EXPECTED.values()], threads), works[0].values[3]]
        chunks, checkpoints, writes = list[Any](), list[Any](), list[Any]()
        for place, change in enumerate(changes, 1):
            chunks += [(place, *chunk) for chunk in sorted(change.chunks)]
            rows = change.checkpoints
            checkpoints += [(place, *row) for row in (latest(rows, 2) if len(rows) > 1 else rows)]
            if change.writes:
                writes += [(place, *write) for write in sorted(split_writes(change.writes)[0])]
        for rows, types in ((chunks, CHUNK_TYPES), (checkpoints, CHECKPOINT_TYPES), (writes, WRITE_TYPES)):
            if rows:
                values += arrays(("bigint", *types), rows)
        return self._of((bool(chunks), bool(checkpoints), bool(writes))), values

    def _of(self, kinds: tuple[bool, bool, bool]) -> Statement:
        made = self._made.get(kinds)
        if made is None:
            made = self._made[kinds] = self._make(*kinds)
        return made

    def _make(self, has_chunks: bool, has_checkpoints: bool, has_writes: bool) -> Statement:
        sql, mark = self._sql, Marks()
        parts = [f"live AS MATERIALIZED ({self._live(mark)})"]
        inserts = []
        if has_chunks:
            inserts.append(_added(mark, sql.k, "pool", CHUNK_COLUMNS, CHUNK_TYPES, "ON CONFLICT DO NOTHING"))
        if has_checkpoints:
            conflict = replacing(CHECKPOINT_COLUMNS, CHECKPOINT_KEY)
            inserts.append(_added(mark, sql.c, "pool, serial", CHECKPOINT_COLUMNS, CHECKPOINT_TYPES, conflict))
        if has_writes:
            inserts.append(_added(mark, sql.w, "pool, serial", WRITE_COLUMNS, WRITE_TYPES, "ON CONFLICT DO NOTHING"))
        # They run from the last to the first.
        parts += [f"part{number} AS ({part})" for number, part in enumerate(reversed(inserts))]
        return Statement(f"WITH {', '.join(parts)} SELECT at FROM live")

    def _live(self, mark: Marks) -> str:
        """The threads that are as expected, each locked with its witness."""
        sql = self._sql
        given = ", ".join(mark(f"{kind}[]") for kind in _EXPECTED.values())
        conditions = expected_thread("g.thread_id", "g.pool", "g.epoch", mark("float8"))
        witness = (
            "w.pool = g.pool AND w.thread = t.serial AND w.namespace = g.namespace AND w.id = g.id "
            "AND w.created = g.created"
        )
        # A query that locks is never merged into the one around it: each thread is looked up by its keys, whatever the
        # server knows of the tables.
        one = (
            f"SELECT t.serial, t.pool FROM {sql.t} t, {sql.c} w WHERE {' AND '.join(conditions)} AND {witness} "
            f"FOR KEY SHARE OF t SKIP LOCKED FOR KEY SHARE OF w SKIP LOCKED"
        )
        return (
            f"SELECT g.at, l.serial, l.pool FROM (SELECT {self._lock_timeout} OFFSET 0) AS s, "
            f"unnest({given}) WITH ORDINALITY AS g ({', '.join(_EXPECTED)}, at), LATERAL ({one}) AS l"
        )


def _added(mark: Marks, table: str, place: str, columns: str, types: Sequence[str], conflict: str) -> str:
    """Rows, each beside the place of its thread; a thread that is not live gets none."""
    rows = ", ".join(mark(f"{kind}[]") for kind in ("bigint", *types))
    named = [f"n.{name}::jsonb" if name == "searchable" else f"n.{name}" for name in columns.split(", ")]
    into = place.replace("serial", "thread")
    to = ", ".join(f"live.{name}" for name in place.split(", "))
    return (
        f"INSERT INTO {table} ({into}, {columns}) SELECT {to}, {', '.join(named)} "
        f"FROM unnest({rows}) WITH ORDINALITY AS n (at, {columns}, place) JOIN live ON live.at = n.at "
        f"ORDER BY n.place {conflict}"
    )
