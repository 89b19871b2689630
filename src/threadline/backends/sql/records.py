"""The Records port over any SQL database: one table, in the order of its key.

The table's columns are those of `Record`; the name is called `path`. A put is one upsert that keeps the time of
creation and raises the version. A put under a condition is one statement that changes a row or none
(compare-and-swap), so two writers cannot both succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from ...base.hashing import blake2b
from ...ports.records import (
    ABSENT,
    Expired,
    PlainPuts,
    Record,
    RecordChange,
    RecordSpace,
    Scan,
    WithoutVectors,
    end_of_prefix,
    first_version,
    group_of,
    is_made,
)
from .rows import Database, Transaction
from .statements import Dialect

__all__ = [
    "PlainWrites", "RECORD_COLUMNS", "REPLACED", "RecordStatements", "SqlRecords", "bounds_of", "raising",
    "record_columns", "record_marks", "record_of_row", "standard_upsert",
]  # fmt: skip

_COLUMNS = "path, form, value, searchable, created, updated, expires, version"
# In the order of the table, as a row binds them.
RECORD_COLUMNS = f"space, {_COLUMNS}"
# What an upsert takes over from the new row.
REPLACED = ("form", "value", "searchable", "updated", "expires")
# Above every packed name: no segment begins with this byte.
_END = b"\xff"
# The lock of those who make indexes; no pool has this number.
_INDEXING = -1


def record_columns(types: dict[str, str]) -> str:
    """The columns of the table in a dialect's types: `whole`, `path`, `blob`, `json`, `real`."""
    whole, real = types["whole"], types["real"]
    return (
        f"space {whole} NOT NULL, path {types['path']} NOT NULL, form {whole} NOT NULL, "
        f"value {types['blob']} NOT NULL, searchable {types['json']}, created {real} NOT NULL, "
        f"updated {real} NOT NULL, expires {real}, version {whole} NOT NULL, PRIMARY KEY (space, path)"
    )


class RecordStatements:
    """The statements of the table, ready for its driver."""

    def __init__(self, dialect: Dialect, prefix: str) -> None:
        table = f"{prefix}records"
        self.table, self.dialect = table, dialect
        # The keys by which items have an index, as far as this process knows.
        self.indexed: set[str] = set()
        # Without the schema: an index is in that of its table.
        self.bare_prefix = prefix.rpartition(".")[2]
        v = dialect.mark()
        here = f"space = {v} AND path = {v}"
        alive = self._alive = f"(expires IS NULL OR expires > {v})"
        self.upsert = dialect.upsert(table)
        self.upsert_together = dialect.upsert(table, dialect.rows_together)
        self.add = dialect.insert(table, RECORD_COLUMNS, "space, path", replace=False)
        changed = ", ".join([*(f"{name} = {v}" for name in REPLACED), "version = version + 1"])
        self.swap = f"UPDATE {table} SET {changed} WHERE {here} AND version = {v}"
        self.drop = f"DELETE FROM {table} WHERE {here}"
        self.drop_version = f"DELETE FROM {table} WHERE {here} AND version = {v}"
        self.touch = f"UPDATE {table} SET expires = {v} WHERE {here}"
        self.one = f"SELECT {_COLUMNS} FROM {table} WHERE {here}"
        self.content = f"SELECT form, value, expires FROM {table} WHERE {here}"
        # The first name in a range, of records that live.
        within = f"space = {v} AND path > {v} AND path < {v}"
        self.first = f"SELECT path FROM {table} WHERE {within} AND {alive} ORDER BY path LIMIT 1"
        self.count = f"SELECT count(*) FROM {table} WHERE {within} AND {alive}"
        self.drop_within = f"DELETE FROM {table} WHERE {within}"
        self.expired = (
            f"SELECT path, expires FROM {table} WHERE space = {v} AND expires IS NOT NULL AND expires <= {v} "
            f"ORDER BY expires LIMIT {v}"
        )
        self.rewrap = (
            f"UPDATE {table} SET form = {v}, value = {v} WHERE {here} AND version = {v} AND form = {v} AND value = {v}"
        )
        self.drop_expired = f"DELETE FROM {table} WHERE {here} AND expires IS NOT NULL AND expires <= {v}"

    def named(self, space: int, names: Sequence[bytes]) -> tuple[str, list[Any]]:
        """The records of these names, and what the statement binds."""
        condition, bound = self.dialect.among("path", names)
        here = f"space = {self.dialect.mark()} AND {condition}"
        return f"SELECT {_COLUMNS} FROM {self.table} WHERE {here}", [space, *bound]

    def scan(self, space: int, scan: Scan) -> tuple[str, list[Any]]:
        """A page of a scan, and what the statement binds."""
        low, high = bounds_of(scan.prefix)
        is_indexed = any(key in self.indexed for key, _ in scan.equals)
        # The number itself and no bound value: an index of items only is not used otherwise.
        in_space = f"{self.dialect.space_of_items if is_indexed else 'space'} = {space:d}"
        v = self.dialect.mark()
        conditions = [in_space, f"path > {v}", f"path < {v}"]
        values: list[Any] = [low if scan.newest_first else max(low, scan.after), high]
        if scan.newest_first and scan.after_time is not None:
            conditions.append(f"(updated < {v} OR (updated = {v} AND path > {v}))")
            values += [scan.after_time, scan.after_time, scan.after]
        if scan.now is not None:
            conditions.append(self._alive)
            values.append(scan.now)
        for key, value in scan.equals:
            condition, bound = self.dialect.json_may_equal("searchable", key, value)
            conditions.append(condition)
            values += bound
        where = " AND ".join(conditions)
        order = "updated DESC, path" if scan.newest_first else "path"
        statement = f"SELECT {_COLUMNS} FROM {self.table} WHERE {where} ORDER BY {order} LIMIT {v}"
        return statement, [*values, scan.limit]


def standard_upsert(table: str, marks: str, target: str = "(space, path)") -> str:
    """The upsert of SQLite and PostgreSQL, of the rows that the marks stand for."""
    return f"INSERT INTO {table} AS held ({RECORD_COLUMNS}) VALUES {marks} {raising(target)}"


def record_marks(mark: str, rows: int) -> str:
    """The marks of so many rows."""
    return ", ".join([f"({', '.join([mark] * len(RECORD_COLUMNS.split(', ')))})"] * rows)


def raising(target: str) -> str:
    """The end of such an upsert."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in REPLACED)
    return f"ON CONFLICT {target} DO UPDATE SET {changes}, version = held.version + 1"


class PlainWrites:
    """Changes without a condition, as work for a transaction; a group commit may make the puts of callers together."""

    __slots__ = ("_callers", "_sql")

    def __init__(self, statements: RecordStatements, *callers: Sequence[RecordChange]) -> None:
        self._sql = statements
        self._callers = callers

    @property
    def are_puts(self) -> bool:
        """Whether nothing is deleted: puts of several callers are then the same together as one after the other."""
        return all(
            type(changes) is PlainPuts or all(change.record is not None for change in changes)
            for changes in self._callers
        )

    def joined(self, others: Iterable[PlainWrites]) -> PlainWrites:
        """These changes and then those of others, as one piece of work."""
        return PlainWrites(self._sql, *self._callers, *(changes for one in others for changes in one._callers))

    async def __call__(self, tx: Transaction) -> None:
        puts: list[tuple[Any, ...]] = []
        drops: list[tuple[int, bytes]] = []
        for changes in self._callers:
            if len(changes) == 1 and (one := changes[0][2]) is not None:
                puts.append((int(changes[0][0]), *one[:7], 1))
                continue
            # Of several changes to one name the last one of a caller holds; that of each caller raises the version.
            last = {(int(space), name): record for space, name, record, _ in changes}
            puts += [(place[0], *record[:-1], 1) for place, record in last.items() if record is not None]
            drops += [place for place, record in last.items() if record is None]
        # Ordered by name, so that no two writers deadlock; callers stay in their order.
        if puts:
            await self._put(sorted(puts, key=_place), tx)
        if drops:
            await tx.many(self._sql.drop, sorted(drops))

    async def _put(self, rows: list[tuple[Any, ...]], tx: Transaction) -> None:
        """Upsert rows; as many as go together in statements of one size, which stay prepared."""
        most = self._sql.dialect.rows_together
        whole = len(rows) // most * most if most > 1 else 0
        if whole:
            parts = [[value for row in rows[at : at + most] for value in row] for at in range(0, whole, most)]
            await tx.many(self._sql.upsert_together, parts)
        if whole < len(rows):
            await tx.many(self._sql.upsert, rows[whole:])


class SqlRecords(WithoutVectors):
    """Named records in one table of a database."""

    def __init__(self, database: Database, statements: RecordStatements) -> None:
        self.database = database
        self._sql = statements

    async def read_records(self, space: RecordSpace, names: Sequence[bytes]) -> list[Record | None]:
        async def work(tx: Transaction) -> list[Record | None]:
            if len(names) == 1:
                rows = await tx.rows(self._sql.one, (int(space), names[0]))
                return [record_of_row(rows[0]) if rows else None]
            found: dict[bytes, Record] = {}
            most = self._sql.dialect.most_values - 1
            for start in range(0, len(names), most):
                for row in await tx.rows(*self._sql.named(int(space), names[start : start + most])):
                    record = record_of_row(row)
                    found[record.name] = record
            return [found.get(name) for name in names]

        return await (self.database.read_once(work) if len(names) == 1 else self.database.read(work))

    async def write_records(self, changes: Sequence[RecordChange]) -> int | None:
        if type(changes) is PlainPuts or all(change.if_version is None for change in changes):
            await self.database.write(self._plain_writes(changes))
            return None

        async def work(tx: Transaction) -> None:
            for position, change in enumerate(changes):
                if not await self._make(change, tx):
                    raise _Refused(position)

        try:
            await self.database.write(work)
        except _Refused as refused:
            return refused.position
        return None

    def _plain_writes(self, changes: Sequence[RecordChange]) -> PlainWrites:
        """Changes without a condition, as work for a transaction."""
        return PlainWrites(self._sql, changes)

    async def _make(self, change: RecordChange, tx: Transaction) -> bool:
        """Make one change where its condition holds; tells whether it does."""
        sql, expected, record = self._sql, change.if_version, change.record
        place = (int(change.space), change.name)
        if expected is None:
            await PlainWrites(sql, [change])(tx)
            return True
        if record is None:
            changed = expected != ABSENT and await tx.run(sql.drop_version, (*place, expected))
        elif expected == ABSENT:
            changed = await tx.run(sql.add, (int(change.space), *record[:-1], first_version(record)))
        else:
            new = (record.form, record.value, record.searchable, record.updated, record.expires)
            changed = await tx.run(sql.swap, (*new, *place, expected))
        if changed:
            return True
        # This very change may have been made before, and its answer lost.
        rows = await tx.rows(sql.one, place)
        if record is None or not rows:
            return record is None and not rows
        there = record_of_row(rows[0])
        return is_made(there, record, expected)

    async def touch_records(self, space: RecordSpace, names: Sequence[bytes], expires: float | None) -> None:
        values = [(expires, int(space), name) for name in sorted(names)]
        await self.database.write(lambda tx: tx.many(self._sql.touch, values))

    async def scan_records(self, space: RecordSpace, scan: Scan) -> list[Record]:
        rows = await self.database.read_once(lambda tx: tx.rows(*self._sql.scan(int(space), scan)))
        return [record_of_row(row) for row in rows]

    async def record_prefixes(
        self, space: RecordSpace, prefix: bytes, depth: int, after: bytes, limit: int, now: float | None = None
    ) -> list[bytes]:
        alive = now if now is not None else -1.0

        async def work(tx: Transaction) -> list[bytes]:
            low, high = bounds_of(prefix)
            groups: list[bytes] = []
            while len(groups) < limit:
                rows = await tx.rows(self._sql.first, (int(space), low, high, alive))
                if not rows:
                    break
                group, low = group_of(bytes(rows[0][0]), depth)
                if group > after and (not groups or groups[-1] != group):
                    groups.append(group)
            return groups

        return await self.database.read(work)

    async def count_records(self, space: RecordSpace, prefix: bytes, now: float | None = None) -> int:
        values = (int(space), *bounds_of(prefix), now if now is not None else -1.0)
        [(count,)] = await self.database.read_once(lambda tx: tx.rows(self._sql.count, values))
        return int(count)

    async def drop_records(self, space: RecordSpace, prefix: bytes) -> int:
        return await self.database.write(lambda tx: tx.run(self._sql.drop_within, (int(space), *bounds_of(prefix))))

    async def expire_records(self, space: RecordSpace, now: float, limit: int) -> list[Expired]:
        async def work(tx: Transaction) -> list[Expired]:
            rows = await tx.rows(self._sql.expired, (int(space), now, limit))
            expired = sorted(Expired(bytes(path), expires) for path, expires in rows)
            return [one for one in expired if await tx.run(self._sql.drop_expired, (int(space), one.name, now))]

        return await self.database.write(work)

    async def rewrap_records(self, space: RecordSpace, pairs: Sequence[tuple[Record, Record]]) -> None:
        values = [
            (new.form, new.value, int(space), old.name, old.version, old.form, old.value)
            for old, new in sorted(pairs, key=lambda pair: pair[0].name)
        ]
        await self.database.write(lambda tx: tx.many(self._sql.rewrap, values))

    async def index_records(self, keys: Sequence[str]) -> None:
        missing: list[str] = []
        found: list[str] = []
        for key in keys if self._sql.dialect.may_index else ():
            name = f"{self._sql.bare_prefix}items_by_{blake2b(key.encode(), digest_size=4).hexdigest()}"
            index = self._sql.dialect.record_index(self._sql.table, name, key)
            if index is not None:
                there, made = index
                found.append(key)
                if not await self.database.read_once(lambda tx, there=there: tx.rows(there)):  # type: ignore[misc]
                    missing.append(made)

        async def work(tx: Transaction) -> None:
            # One process at a time: the second finds the index there.
            await tx.lock(_INDEXING)
            for statement in missing:
                await tx.run(statement)

        if missing:
            await self.database.write(work)
        self._sql.indexed.update(found)


class _Refused(Exception):
    """Ends a transaction in which a condition does not hold."""

    def __init__(self, position: int) -> None:
        self.position = position


def bounds_of(prefix: bytes) -> tuple[bytes, bytes]:
    """Names below a prefix lie between these two; a name is longer than its prefix."""
    return prefix, end_of_prefix(prefix) or _END


_place = itemgetter(0, 1)


def record_of_row(row: Any) -> Record:
    """The record of a row as it is read."""
    path, form, value, searchable, created, updated, expires, version = row
    # What is no bytes at all, which SQLite keeps as well, is for the reader to find.
    stored: Any = value if isinstance(value, str) else bytes(value)
    return Record(bytes(path), form, stored, searchable, created, updated, expires, version)
