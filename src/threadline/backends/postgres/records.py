"""Named records on PostgreSQL: plain puts and deletions are one statement for all rows, in one round trip.

Each column travels as one array, so a batch of any size is the same prepared statement. A statement alone is a
transaction of its own. It sets how long it may wait for a row that another transaction holds before it touches one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from ...ports.records import RecordChange
from ..sql.records import RECORD_COLUMNS, SqlRecords
from .binary import BytesArray, RealsArray, TextsArray, WholesArray

if TYPE_CHECKING:
    from .backend import PostgresDatabase
    from .wire import Step

__all__ = ["PostgresRecords"]

# How a column is sent, in the order of the table's columns: as one value, and as an array.
_COLUMNS: list[tuple[str, type]] = [
    ("bigint", WholesArray),
    ("bytea", BytesArray),
    ("bigint", WholesArray),
    ("bytea", BytesArray),
    ("text", TextsArray),
    ("float8", RealsArray),
    ("float8", RealsArray),
    ("float8", RealsArray),
    ("bigint", WholesArray),
]
_PATIENCE = "(SELECT set_config('lock_timeout', %s, true)) AS patience"
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
        for change in changes:
            if change[3] is not None:
                return await super().write_records(changes)
        steps = self._plain.steps(changes, self.database.tables.lock_timeout)
        if steps:
            await self.database.at_once(steps)
        return None


class _Plain:
    """The statements of changes without a condition."""

    def __init__(self, table: str) -> None:
        names = RECORD_COLUMNS.split(", ")
        held = {"space", "path", "created", "version"}
        raised = ", ".join(f"{name} = excluded.{name}" for name in names if name not in held)
        # By the name of the primary key: a policy that adds a tenant to it need not change a statement.
        key = f"{table.rpartition('.')[2]}_pkey"
        conflict = f"ON CONFLICT ON CONSTRAINT {key} DO UPDATE SET {raised}, version = held.version + 1"
        insert = f"INSERT INTO {table} AS held ({RECORD_COLUMNS})"
        values = ", ".join(f"%s::{kind}" + "::jsonb" * (kind == "text") for kind, _ in _COLUMNS)
        arrays = ", ".join(f"%s::{kind}[]" for kind, _ in _COLUMNS)
        shown = RECORD_COLUMNS.replace("searchable", "searchable::jsonb")
        self._one = f"{insert} SELECT {values} FROM {_PATIENCE} {conflict}"
        self._many = (
            f"{insert} SELECT {shown} FROM {_PATIENCE} CROSS JOIN unnest({arrays}) AS new ({RECORD_COLUMNS}) {conflict}"
        )
        self._drop = (
            f"DELETE FROM {table} AS held USING {_PATIENCE} CROSS JOIN unnest(%s::bigint[], %s::bytea[]) "
            f"AS gone (space, path) WHERE held.space = gone.space AND held.path = gone.path"
        )

    def steps(self, changes: Sequence[RecordChange], patience: str) -> list[Step]:
        """The statements that make all changes; of several to one name the last one holds."""
        if len(changes) == 1:
            [(space, name, record, _)] = changes
            if record is not None:
                return [(self._one, (int(space), *record[:7], 1, patience))]
            return [(self._drop, (patience, WholesArray((int(space),)), BytesArray((name,))))]
        last = {(int(space), name): record for space, name, record, _ in changes}
        # In the order of their names: two transactions that change the same rows wait in one direction only.
        puts = sorted([(place[0], *one[:7], 1) for place, one in last.items() if one is not None], key=_by_place)
        drops = sorted(place for place, one in last.items() if one is None)
        steps: list[Step] = []
        for start in range(0, len(puts), _MOST_ROWS):
            columns = zip(*puts[start : start + _MOST_ROWS], strict=True)
            arrays = [kind(column) for (_, kind), column in zip(_COLUMNS, columns, strict=True)]
            steps.append((self._many, (patience, *arrays)))
        for start in range(0, len(drops), _MOST_ROWS):
            spaces, names = zip(*drops[start : start + _MOST_ROWS], strict=True)
            steps.append((self._drop, (patience, WholesArray(spaces), BytesArray(names))))
        return steps
