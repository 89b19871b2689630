"""A change as one packet of statements, to all of which the server answers with counts: rows cost the driver most.

    START TRANSACTION; hold the pool; decide; insert chunks; …; COMMIT

One query decides. It puts pool and serial of the thread into variables of the session where thread, stamp, witnesses,
head and lease are as the change expects, else NULL. All rows are inserted under these variables, and their columns take
no NULL: a change that is refused fails at its first row. The server ends a packet at the first statement that fails, so
COMMIT is not reached, and nothing is written. Why it was refused is found out by the general way (sql/changes.py).
A session that is not strict would take several rows with NULL: ours are strict (url.py), and given ones, which need not
be, never send such a packet.

What decides is read after the pool was held, by a statement of its own: a statement does not see what was committed
while it waited. The thread's row is not held, so that who raises its epoch, and holds the pool, never waits for us.

A thread that nobody has begun is begun by its first put in the same way; where there is one, its key is taken.
"""

from __future__ import annotations

from ...ports.checkpoints import Change
from ...ports.rules import GENERATION_SHIFT, asked_at, lease_key, split_writes
from .binding import Expression, bound, bound_many
from .statements import LOCKS, MysqlStatements

__all__ = ["PutStatements"]

_POOL, _THREAD, _LEASE = map(Expression, ("@threadline_pool", "@threadline_thread", "@threadline_lease"))
_MADE = Expression("LAST_INSERT_ID()")


class PutStatements:
    """The statements of a change that can be made at once."""

    def __init__(self, sql: MysqlStatements) -> None:
        self._sql = sql
        t, c = sql.t, sql.c
        of_witness = " AND ".join(map(sql.compared, ("w.namespace", "w.id", "w.created")))
        self._hold = {
            exclusive: f"SELECT pool INTO {_POOL} FROM {sql.prefix}pools WHERE {sql.compared('pool')} {kind}"
            for exclusive, kind in LOCKS.items()
        }
        v, named = sql.dialect.mark(), sql.compared("name")
        self._hold_lease = f"SELECT max(left(value, {v})) INTO {_LEASE} FROM {sql.m} WHERE {named} {LOCKS[False]}"
        self._decide = (
            f"SELECT max(t.pool), max(t.serial) INTO {_POOL}, {_THREAD} FROM {t} t WHERE {sql.compared('t.thread_id')} "
            f"AND t.pool = {v} AND t.epoch = {v} AND t.status NOT IN ('archived', 'deleted')"
        )
        # A thread that was begun anew may refuse what continues something of before.
        self._is_after = f" AND (t.deleted_before IS NULL OR t.deleted_before < {v})"
        self._has_witness = (
            f" AND EXISTS (SELECT 1 FROM {c} w WHERE w.pool = t.pool AND w.thread = t.serial AND {of_witness})"
        )
        self._has_head = f" AND ({sql.newest_of(sql.dialect.mark('namespace'))}) <=> {v}"
        self._has_lease = f" AND {_LEASE} = {v}"
        self._own_pool = f"UPDATE {t} SET pool = serial WHERE serial = {_MADE}".encode()
        self._touch = f"UPDATE {t} SET active = greatest(active, {v}) WHERE serial = {_THREAD}"

    def known(self, change: Change, epoch_base: int, *, touches: bool) -> list[bytes] | None:
        """A change of a thread that is known; None where the general way has to be taken."""
        assert change.stamp is not None
        pool, epoch = change.stamp[0], change.stamp[1] - epoch_base
        rows = self._rows(change, _POOL, _THREAD)
        if not rows or change.joins is not None or change.firsts or epoch < 0 or epoch >> GENERATION_SHIFT:
            return None
        decide, values = self._decide, [change.thread_id, pool, epoch]
        held = []
        if change.continues is not None:
            decide, values = decide + self._is_after, [*values, change.continues]
        for witness in change.witnesses:
            decide, values = decide + self._has_witness, [*values, *witness]
        if change.head is not None:
            decide, values = decide + self._has_head, [*values, *change.head]
        if change.lease is not None:
            decide, values = decide + self._has_lease, [*values, change.lease]
            held = [bound(self._hold_lease, (len(change.lease), lease_key(change.thread_id)))]
        # Writers who expect the same head must not pass each other: one has to see the other.
        hold = bound(self._hold[change.head is not None], (pool,))
        if touches:
            rows.append(bound(self._touch, (change.now,)))
        return [b"START TRANSACTION", hold, *held, bound(decide, values), *rows, b"COMMIT"]

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

    def _rows(self, change: Change, pool: Expression, thread: Expression) -> list[bytes]:
        sql = self._sql
        # Statements of any size: a packet that is too large is not sent at once.
        made: list[bytes] = []
        for statement, chunks in ((sql.add_chunk, change.chunks), (sql.move_chunk, change.moved)):
            made += bound_many(statement, [(pool, *chunk) for chunk in sorted(chunks)])
        for row in change.checkpoints:
            made.append(bound(sql.put_checkpoint, (pool, thread, *row)))
        if change.writes:
            writes = split_writes(change.writes, pool, thread)
            for statement, rows in zip((sql.add_write, sql.replace_write), writes, strict=True):
                made += bound_many(statement, rows)
            asked = asked_at(change)
            if asked is not None:
                made.append(bound(sql.ask, (asked, change.thread_id, asked)))
        if made and change.settles is not None:
            made.append(bound(sql.settle, (change.thread_id, change.settles)))
        return made
