"""MySQL's dialect, and its statements where they differ from the common ones.

A pool is locked by its row in `pools`: MySQL has no advisory locks that can be shared.
"""

from __future__ import annotations

import json
from typing import Any

from ...ports.rules import HIDDEN
from ..sql.records import RECORD_COLUMNS, REPLACED, record_marks
from ..sql.statements import Dialect, Statements
from .binding import DIGEST_BYTES, KEYED, Insert, encoded

__all__ = ["LOCKS", "MysqlDialect", "MysqlStatements"]

# Keyed texts whose whole is read back.
_WHOLE = ("thread_id", "namespace", "task_id")
# Both servers know these words; FOR SHARE is only MySQL's.
_SHARED = "LOCK IN SHARE MODE"
LOCKS = {False: _SHARED, True: "FOR UPDATE"}


class MysqlDialect(Dialect):
    """The common SQL with keyed columns; upserts, JSON and placeholders in MySQL's way."""

    share_lock = f" {_SHARED}"
    space_of_items = "space"

    def mark(self, column: str = "") -> str:
        name = column.rpartition(".")[2]
        return f"?[{name}]" if name in KEYED else "?"

    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        names, marks = [], []
        for column in columns.split(", "):
            names += [column, f"{column}_full"] if column in _WHOLE else [column]
            marks.append(f"?[{column}_full]" if column in _WHOLE else self.mark(column))
        into, row = f"INTO {table} ({', '.join(names)}) VALUES ", f"({', '.join(marks)})"
        if replace:
            return Insert(f"REPLACE {into}", row)
        # Whether it was there is asked for some: see MysqlTransaction.run. IGNORE would also swallow what does not fit.
        is_asked = key in ("name", "thread_id", "space, path")
        return Insert(f"INSERT {into}", row, "" if is_asked else " ON DUPLICATE KEY UPDATE pool = pool")

    def upsert(self, table: str, rows: int = 1) -> str:
        changes = ", ".join(f"{name} = VALUES({name})" for name in REPLACED)
        tail = f" ON DUPLICATE KEY UPDATE {changes}, version = version + 1"
        return Insert(f"INSERT INTO {table} ({RECORD_COLUMNS}) VALUES ", record_marks("?", rows), tail)

    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        # The JSON is ours and flat: a key and a value that are there stand in it as these very bytes. A longer
        # value may match as well, which the core sorts out.
        return f"instr({column}, concat(?, ?)) > 0", [f"{json.dumps(key)}:", json.dumps(value)]

    def json_may_equal(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        condition, bound = self.json_equals(column, key, value)
        return f"({column} IS NULL OR instr({column}, ?) = 0 OR {condition})", [bound[0], *bound]


class MysqlStatements(Statements):
    """The common statements, with those that MySQL needs in another form, or in addition."""

    def __init__(self, dialect: Dialect, prefix: str) -> None:
        super().__init__(dialect, prefix)
        t, c, k, p = self.t, self.c, self.k, prefix + "pools"
        of_pool = self.compared("pool")
        self.newest_id = f"SELECT max(id) AS id FROM {c} WHERE {self.at}"
        # MySQL documents that DISTINCT, too, may compare no more than max_sort_length bytes: roots would be lost.
        self.roots = f"SELECT links, 1 FROM {c} WHERE {of_pool} UNION ALL SELECT links, 0 FROM {self.w} WHERE {of_pool}"
        # How many rows each table has, and the bytes in them.
        self.counts = [f"SELECT count(*), {size} FROM {table}" for table, size in self.sizes()]
        # The chunks of a pool and its lock, in one.
        self.drop_pool = f"DELETE p, k FROM {p} p LEFT JOIN {k} k ON k.pool = p.pool WHERE p.{of_pool}"
        self.add_pool = f"INSERT INTO {p} (pool) VALUES ({dialect.mark()})"
        one, of_thread = f"SELECT pool FROM {p} WHERE", f"(SELECT pool FROM {t} WHERE {self.compared('thread_id')})"
        # A pool's lock by its number, or by its thread. A subquery's rows are read and not locked.
        self.hold = f"{one} {of_pool} {LOCKS[True]}"
        self.hold_of = {exclusive: f"{one} pool = {of_thread} {kind}" for exclusive, kind in LOCKS.items()}
        # The number of rows that these change is not asked for: they travel with a later statement.
        self.can_wait = frozenset((
            self.put_checkpoint, self.touch, self.own_pool, self.add_pool, self.drop_writes, self.drop_checkpoints,
            self.bury, self.ask, self.settle, self.ask_again, self.drop_pool, self.raise_epoch,
        ))  # fmt: skip

    def newest_of(self, namespace: str) -> str:
        # At the end of a range of the primary key. For max() the server would read the ids of the whole thread; left to
        # itself, it may go by age through the checkpoints of all threads.
        here = f"n.pool = t.pool AND n.thread = t.serial AND n.namespace = {namespace}"
        return f"SELECT n.id FROM {self.c} n FORCE INDEX (PRIMARY) WHERE {here} ORDER BY n.id DESC LIMIT 1"

    def read(self, columns: str) -> str:
        return ", ".join(map(_read, columns.split(", ")))

    def begins_with(self, prefix: str) -> tuple[str, list[Any]]:
        # The key of a long id has the id's first bytes only, behind them a digest: a range of keys narrows down to
        # those bytes, and whatever the prefix has beyond them is compared with the whole id.
        text = encoded(prefix)
        head = text[: KEYED["thread_id"] - DIGEST_BYTES]
        # No byte of UTF-8 is as high as 255. Bounds that are no keys stand on the left, where none is made of them.
        # Without a prefix, hidden threads are left out: their ids come behind all others.
        end = head[:-1] + bytes([head[-1] + 1]) if head else encoded(HIDDEN)
        condition, bound = "? <= thread_id AND ? > thread_id", [head, end]
        if head == text:
            return condition, bound
        whole = "coalesce(thread_id_full, thread_id)"
        return f"{condition} AND left({whole}, ?) = ?", [*bound, len(text), text]


def _read(column: str) -> str:
    """The whole text of a keyed column."""
    name = column.rpartition(".")[2]
    return f"coalesce({column}_full, {column}) AS {name}_text" if name in _WHOLE else column
