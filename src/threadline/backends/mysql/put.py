"""A change as one packet of statements, to all of which the server answers with counts: rows cost the driver most.

    START TRANSACTION; insert chunks; put checkpoints; …; COMMIT

The first row decides. In the place of its pool is a query, which holds pool, thread and witnesses, and gives NULL where
one of them is not as the change expects; no column of a pool takes NULL. So a change that is refused fails at its first
row. The server ends a packet at the first statement that fails: COMMIT is not reached, and nothing is written. Why it
was refused is found out by the general way (sql/changes.py). A session that is not strict would take several rows with
NULL: ours are strict (url.py), and given ones, which need not be, never send such a packet. A change that is one
statement is a transaction by itself.

The query reads by unique keys: the pool's row, the thread, its witnesses, in this order, and locks each. What is locked
is read as it is once the lock was granted, however long that took. All writers hold the pool before they lock anything
of its threads. A packet that changes the thread's row locks it for that at once: two that share it would wait for each
other. The query is a statement of its own where the first row is a checkpoint's, since no statement reads a table that
it writes. A head and a lease are looked at behind that, by a statement that sees what was committed while it waited.

`LAST_INSERT_ID(…)` keeps the number of the thread for all rows, and is 0 for a change that was refused.

A thread that nobody has begun is begun by its first put in the same way; where there is one, its key is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ...ports.checkpoints import Change
from ...ports.rules import GENERATION_SHIFT, asked_at, lease_key, split_writes
from .binding import Expression, bound, bound_many, bound_text
from .statements import LOCKS, MysqlStatements

__all__ = ["PutStatements"]

_MADE = Expression("LAST_INSERT_ID()")
_MOST_WITNESSES = 3


class PutStatements:
    """The statements of a change that can be made at once."""

    def __init__(self, sql: MysqlStatements) -> None:
        self._sql = sql
        v, t = sql.dialect.mark(), sql.t
        self._living = (
            f" WHERE p.{sql.compared('pool')} AND {sql.compared('t.thread_id')} AND t.pool = p.pool AND t.epoch = {v} "
            f"AND t.status NOT IN ('archived', 'deleted')"
        )
        self._hold = lru_cache(maxsize=None)(self._made_hold)
        self._agree = f"SELECT t.serial FROM {t} t WHERE {sql.compared('t.thread_id')} AND t.serial = {_MADE}"
        self._has_head = f" AND ({sql.newest_of(sql.dialect.mark('namespace'))}) <=> {v}"
        self._has_lease = (
            f" AND (SELECT left(value, {v}) FROM {sql.m} WHERE {sql.compared('name')} {LOCKS[False]}) = {v}"
        )
        self._own_pool = f"UPDATE {t} SET pool = serial WHERE serial = {_MADE}".encode()

    def known(self, change: Change, epoch_base: int, *, touches: bool) -> list[bytes] | None:
        """A change of a thread that is known; None where the general way has to be taken."""
        assert change.stamp is not None
        pool, epoch = change.stamp[0], change.stamp[1] - epoch_base
        if change.joins is not None or change.firsts or epoch < 0 or epoch >> GENERATION_SHIFT:
            return None
        if len(change.witnesses) > _MOST_WITNESSES:
            return None
        hold = self._held(change, epoch, touches=touches)
        decided = list[bytes]()
        agreed = self._agreed(change) if change.head is not None or change.lease is not None else decided
        if agreed or (change.checkpoints and not change.chunks and not change.moved):
            decided = [f"DO LAST_INSERT_ID({hold})".encode(), *agreed]
            hold = ""
        rows = self._rows(change, Expression(f"IF(LAST_INSERT_ID({hold}), {int(pool)}, NULL)"), pool)
        if not rows:
            return None
        if touches:
            rows.append(bound(self._sql.touch, (change.now, change.thread_id)))
        if len(rows) == 1 and not decided:
            return rows
        return [b"START TRANSACTION", *decided, *rows, b"COMMIT"]

    def _held(self, change: Change, epoch: int, *, touches: bool) -> str:
        """The query that holds what the change relies on, in brackets; it gives the number of the thread."""
        assert change.stamp is not None
        values: list[Any] = [change.stamp[0], change.thread_id, epoch]
        if change.continues is not None:
            values.append(change.continues)
        for witness in change.witnesses:
            values += witness
        # Writers who expect the same head must not pass each other: one has to see the other.
        is_alone = touches or change.settles is not None or change.head is not None or asked_at(change) is not None
        return bound_text(self._hold(len(change.witnesses), change.continues is not None, is_alone), values)

    def _made_hold(self, witnesses: int, continues: bool, is_alone: bool) -> str:
        sql = self._sql
        tables, where = [f"{sql.prefix}pools p", f"{sql.t} t"], self._living
        # A thread that was begun anew refuses what descends from before its deletion. A change that does not name what
        # it continues, as usual writes do not, takes the general way there.
        later = f" OR t.deleted_before < {sql.dialect.mark()}" * continues
        where += f" AND (t.deleted_before IS NULL{later})"
        for w in map("w{}".format, range(witnesses)):
            tables.append(f"{sql.c} {w}")
            of_witness = " AND ".join(map(sql.compared, (f"{w}.namespace", f"{w}.id", f"{w}.created")))
            where += f" AND {w}.pool = p.pool AND {w}.thread = t.serial AND {of_witness}"
        return f"(SELECT t.serial FROM {' STRAIGHT_JOIN '.join(tables)}{where} {LOCKS[is_alone]})"

    def _agreed(self, change: Change) -> list[bytes]:
        """The statement that looks at a head, a lease, or both."""
        agree, values = self._agree, list[Any]([change.thread_id])
        if change.head is not None:
            agree, values = agree + self._has_head, [*values, *change.head]
        if change.lease is not None:
            agree += self._has_lease
            values += (len(change.lease), lease_key(change.thread_id), change.lease)
        return [bound(f"DO LAST_INSERT_ID(({agree}))", values)]

    def new(self, change: Change) -> list[bytes] | None:
        """A change that begins its thread, which nobody has begun; the same, and the second statement makes the thread.

        None where the thread may well be there, or more has to be looked at.
        """
        is_plain = change.continues is None and change.joins is None and change.lease is None and not change.firsts
        rows = self._rows(change, _MADE, _MADE)
        if not rows or not is_plain or (change.head is not None and change.head[1] is not None):
            return None
        forked_from, created = change.beginning
        row = (change.thread_id, 0, 0, "active", None, forked_from, created, change.now, "[]")
        return [
            b"START TRANSACTION",
            bound(self._sql.new_thread, row),
            self._own_pool,
            bound(self._sql.add_pool, (_MADE,)),
            *rows,
            b"COMMIT",
        ]

    def _rows(self, change: Change, first: Expression, pool: int | Expression) -> list[bytes]:
        """What inserts the rows of a change. The pool of the first of them is `first`."""
        sql = self._sql
        groups: list[tuple[str, Sequence[Sequence[Any]]]] = [
            (sql.add_chunk, [(pool, *chunk) for chunk in sorted(change.chunks)]),
            (sql.move_chunk, [(pool, *chunk) for chunk in sorted(change.moved)] if change.moved else ()),
            (sql.put_checkpoint, [(pool, _MADE, *row) for row in change.checkpoints]),
        ]
        if change.writes:
            groups += zip((sql.add_write, sql.replace_write), split_writes(change.writes, pool, _MADE), strict=True)
        # Statements of any size: a packet that is too large is not sent at once.
        made: list[bytes] = []
        for statement, rows in groups:
            if rows:
                placed = rows if made else [(first, *rows[0][1:]), *rows[1:]]
                made += bound_many(statement, placed)
        asked = asked_at(change) if change.writes else None
        if asked is not None:
            made.append(bound(sql.ask, (asked, change.thread_id, asked)))
        if made and change.settles is not None:
            made.append(bound(sql.settle, (change.thread_id, change.settles)))
        return made
