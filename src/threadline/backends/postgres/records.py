"""Named records on PostgreSQL: plain puts and deletions are one statement for all rows, in one round trip.

Each column travels as one array, so a batch of any size is the same prepared statement. A statement alone is a
transaction of its own. It sets how long it may wait for a row that another transaction holds before it touches one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from ...ports.records import PlainPuts, RecordChange
from ..sql.records import RECORD_COLUMNS, SqlRecords, raising
from .binary import arrays
from .put import given
from .wire import Question, Statement

if TYPE_CHECKING:
    from .backend import PostgresDatabase

__all__ = ["PostgresRecords", "record_key"]

# In the order of the table's columns.
_TYPES = ("bigint", "bytea", "bigint", "bytea", "text", "float8", "float8", "float8", "bigint")
_PATIENCE = "(SELECT set_config('lock_timeout', $1::text, true)) AS patience"
# More rows than these are sent in several statements of one transaction, so that none grows without bound.
_MOST_ROWS = 1000
_by_place = itemgetter(0, 1)


class PostgresRecords(SqlRecords):
    """Named records in one table of PostgreSQL."""

    database: PostgresDatabase

    @cached_property
    def _plain(self) -> _Plain:
        return _Plain(self._sql.table)

    async def write_records(self, changes: Sequence[RecordChange]) -> int | None:
        if type(changes) is not PlainPuts:
            for change in changes:
                if change[3] is not None:
                    return await super().write_records(changes)
        questions = self._plain.questions(changes, self.database.tables.lock_timeout)
        if questions:
            await self.database.lent(lambda session: self.database.asked(session, questions))
        return None


def record_key(table: str) -> str:
    """The primary key by its name: a policy that adds a tenant to it need not change a statement."""
    return f"ON CONSTRAINT {table.rpartition('.')[2]}_pkey"


class _Plain:
    """The statements of changes without a condition. Each takes first how long it may wait."""

    def __init__(self, table: str) -> None:
        conflict = raising(record_key(table))
        insert = f"INSERT INTO {table} AS held ({RECORD_COLUMNS}) SELECT"
        values = ", ".join(f"${at}::{kind}" + "::jsonb" * (kind == "text") for at, kind in enumerate(_TYPES, 2))
        columns = ", ".join(f"${at}::{kind}[]" for at, kind in enumerate(_TYPES, 2))
        self._one = _writing(f"{insert} {values} FROM {_PATIENCE} {conflict}")
        self._many = _writing(
            f"{insert} {given(RECORD_COLUMNS)} FROM {_PATIENCE} CROSS JOIN unnest({columns}) AS new ({RECORD_COLUMNS}) "
            f"{conflict}"
        )
        self._alike = _writing(
            f"{insert} $2::bigint, path, $3::bigint, value, searchable::jsonb, $4::float8, $4::float8, $5::float8, 1 "
            f"FROM {_PATIENCE} CROSS JOIN unnest($6::bytea[], $7::bytea[], $8::text[]) "
            f"AS new (path, value, searchable) {conflict}"
        )
        self._drop = _writing(
            f"DELETE FROM {table} AS held USING {_PATIENCE} CROSS JOIN unnest($2::bigint[], $3::bytea[]) "
            f"AS gone (space, path) WHERE held.space = gone.space AND held.path = gone.path"
        )

    def questions(self, changes: Sequence[RecordChange], patience: str) -> list[Question]:
        """The statements that make all changes; of several to one name the last one holds."""
        if len(changes) == 1:
            [(space, name, record, _)] = changes
            if record is not None:
                return [(self._one, (patience, int(space), *record[:7], 1))]
            return [(self._drop, (patience, *arrays(_TYPES[:2], [(int(space), name)])))]
        if type(changes) is PlainPuts and changes.are_alike:
            return self._puts_alike(changes, patience)
        last = {(int(space), name): record for space, name, record, _ in changes}
        # In the order of their names: two transactions that change the same rows wait in one direction only.
        puts = sorted([(place[0], *one[:7], 1) for place, one in last.items() if one is not None], key=_by_place)
        drops = sorted(place for place, one in last.items() if one is None)
        questions: list[Question] = []
        for start in range(0, len(puts), _MOST_ROWS):
            questions.append((self._many, (patience, *arrays(_TYPES, puts[start : start + _MOST_ROWS]))))
        for start in range(0, len(drops), _MOST_ROWS):
            questions.append((self._drop, (patience, *arrays(_TYPES[:2], drops[start : start + _MOST_ROWS]))))
        return questions

    def _puts_alike(self, puts: PlainPuts, patience: str) -> list[Question]:
        """Rows that share form, time and expiry: only what differs is sent for each."""
        shared = (patience, int(puts.space), puts.forms[0], puts.now, puts.expires[0])
        rows = puts.rows()
        questions: list[Question] = []
        for start in range(0, len(rows), _MOST_ROWS):
            columns = arrays(("bytea", "bytea", "text"), rows[start : start + _MOST_ROWS])
            questions.append((self._alike, (*shared, *columns)))
        return questions


def _writing(statement: str) -> Statement:
    """A statement that writes, as one that gives no rows."""
    return Statement(f"WITH written AS ({statement}) SELECT WHERE false")
