"""Puts to several threads as one statement, whose parameters are arrays: each thread, row and write is an element.

What a put costs the server is mostly to begin and end its statement. The statement locks and checks as that of one put
does (put.py): each thread with its witness by itself, so that one that is not as expected keeps nobody else from
being written to. What is inserted goes in the order in which it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from ...ports.rules import split_writes
from ..sql.statements import (
    CHECKPOINT_COLUMNS,
    CHECKPOINT_KEY,
    CHUNK_COLUMNS,
    WRITE_COLUMNS,
    Statements,
)
from .binary import arrays
from .put import CHECKPOINT_TYPES, CHUNK_TYPES, WRITE_TYPES, Marks, Put, expected_thread, latest, replacing
from .wire import Question, Statement

__all__ = ["SeveralStatements", "runs"]

# Fewer take as long one by one.
_FEWEST = 4
_THREAD = {
    "thread_id": "text", "pool": "bigint", "epoch": "bigint", "namespace": "text", "id": "text", "created": "float8"
}  # fmt: skip


def runs(works: Sequence[Put]) -> Iterator[list[Put]]:
    """Puts in their order, those together that one statement makes."""
    for are_alike, group in groupby(works, _likeness):
        run = list(group)
        if are_alike and len(run) >= _FEWEST:
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
        values = [*arrays([*_THREAD.values()], threads), works[0].values[3]]
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
            inserts.append(_insert(mark, sql.k, "pool", CHUNK_COLUMNS, CHUNK_TYPES, "ON CONFLICT DO NOTHING"))
        if has_checkpoints:
            conflict = replacing(CHECKPOINT_COLUMNS, CHECKPOINT_KEY)
            inserts.append(_insert(mark, sql.c, "pool, serial", CHECKPOINT_COLUMNS, CHECKPOINT_TYPES, conflict))
        if has_writes:
            inserts.append(_insert(mark, sql.w, "pool, serial", WRITE_COLUMNS, WRITE_TYPES, "ON CONFLICT DO NOTHING"))
        # They run from the last to the first.
        parts += [f"part{number} AS ({part})" for number, part in enumerate(reversed(inserts))]
        return Statement(f"WITH {', '.join(parts)} SELECT at FROM live")

    def _live(self, mark: Marks) -> str:
        """The threads that are as expected, each locked with its witness."""
        sql = self._sql
        given = ", ".join(mark(f"{kind}[]") for kind in _THREAD.values())
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
            f"unnest({given}) WITH ORDINALITY AS g ({', '.join(_THREAD)}, at), LATERAL ({one}) AS l"
        )


def _insert(mark: Marks, table: str, place: str, columns: str, types: Sequence[str], conflict: str) -> str:
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
