"""The SQL statements of checkpoints, writes, chunks and threads, each with a name and a sentence.

Values are always bound; only table names, which `table_prefix` and `schema` make and `check_prefix` restricts, are
part of the text. The text is the common ground of SQLite and PostgreSQL; a dialect supplies the rest. Further
statements: search.py (pages of a query), records.py (named records), and those of one database in its folder.

`indexed_keys`: an index on an expression serves only statements with the very same expression. So here, and nowhere
else, a metadata key becomes part of a statement, and only letters, digits, `_` and `-` pass. Other keys are searched
without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ...base.hashing import blake2b
from ...errors import InvalidRequest
from ...ports.rules import HIDDEN, is_hidden

__all__ = ["Dialect", "Statements", "check_prefix", "index_name", "indexed_keys", "standard_upsert"]


CHECKPOINT_COLUMNS = (
    "namespace, id, parent, links, form, document, metadata_form, metadata, step, source, run_id, created, searchable"
)
WRITE_COLUMNS = "namespace, checkpoint_id, task_id, idx, task_path, channel, links, form, data"
THREAD_COLUMNS = (
    "thread_id, serial, pool, epoch, status, deleted_before, forked_from, created, active, expires, tags, metadata"
)


# Stands in the statement of a page for the conditions of its query.
CONDITIONS = "{conditions}"


class Dialect(Protocol):
    """What differs between SQL databases."""

    name: str
    # How many values one statement may bind.
    most_values: int
    # What a query ends with so that the rows it found stay as they are until the transaction ends.
    share_lock: str
    # How a statement names the column `space` so that an index of items is used and not the order of names.
    space_of_items: str

    def text(self, statement: str) -> str:
        """A statement with `?` placeholders in the dialect's own form."""

    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        """An insert that ignores, or replaces, a row with the same key."""

    # How many rows one upsert takes where there are so many; 1 where that gains nothing.
    rows_together: int

    def upsert(self, table: str, columns: str, key: str, *, kept: str, raised: str, rows: int = 1) -> str:
        """An insert that replaces rows with the same key, but keeps one column and raises another by one."""

    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        """A condition: the JSON in `column` has this value at this key; and what it binds."""

    def json_may_equal(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        """A condition: the JSON in `column` has this value at this key, or does not have the key; and what it binds."""

    def record_index(self, table: str, name: str, key: str) -> tuple[str, str] | None:
        """What finds the index of items by a key, and what makes it; None where the database has no such index."""

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """A condition: the column is one of these; and what it binds."""


def standard_upsert(
    table: str, columns: str, key: str, *, kept: str, raised: str, rows: int = 1, marks: str | None = None
) -> str:
    """The upsert of SQLite and PostgreSQL; of so many rows, or of those that `marks` stand for."""
    names = columns.split(", ")
    held = {*key.split(", "), kept, raised}
    changes = [f"{name} = excluded.{name}" for name in names if name not in held]
    marks = marks or ", ".join([f"({', '.join('?' * len(names))})"] * rows)
    return (
        f"INSERT INTO {table} AS held ({columns}) VALUES {marks} ON CONFLICT ({key}) "
        f"DO UPDATE SET {', '.join(changes)}, {raised} = held.{raised} + 1"
    )


def check_prefix(prefix: str) -> str:
    """A table prefix that may stand in a statement."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,40}|", prefix):
        raise InvalidRequest(
            "table_prefix takes letters, digits and underscores, at most 41, not starting with a digit"
        )
    return prefix


class Statements:
    """The statements of one store, ready for its driver."""

    # How often `heads` binds the namespace.
    namespaces_of_heads = 1

    def __init__(self, dialect: Dialect, prefix: str) -> None:
        self.dialect = dialect
        self.prefix = prefix
        t, c, w, k, m = (prefix + name for name in ("threads", "checkpoints", "writes", "chunks", "meta"))
        self.t, self.c, self.w, self.k, self.m = t, c, w, k, m
        text, insert, read = dialect.text, dialect.insert, self.read
        by_id, by_namespace, by_name = (self.compared(name) for name in ("thread_id", "namespace", "name"))
        between = f"{self.compared('name', '>=')} AND {self.compared('name', '<')}"
        at = f"pool = ? AND thread = ? AND {by_namespace}"
        c_columns = f"pool, thread, {CHECKPOINT_COLUMNS}"
        w_columns = f"pool, thread, {WRITE_COLUMNS}"
        w_key = "pool, thread, namespace, checkpoint_id, task_id, idx"
        qualified = read(", ".join("c." + column for column in CHECKPOINT_COLUMNS.split(", ")))

        # A thread by its id, deleted ones included.
        self.thread = text(f"SELECT {read(THREAD_COLUMNS)} FROM {t} WHERE {by_id}")
        # A new thread, whose pool is set right after.
        t_columns = "thread_id, pool, epoch, status, deleted_before, forked_from, created, active, tags"
        self.new_thread = text(insert(t, t_columns, "thread_id", replace=False))
        # A thread that begins its own pool takes its serial as the pool's id; empty where the table does so by itself.
        self.own_pool = text(f"UPDATE {t} SET pool = serial WHERE {by_id}")
        # The row of a deleted thread makes way for its successor, unless another writer's has come first.
        self.drop_thread = text(f"DELETE FROM {t} WHERE {by_id} AND serial = ? AND status = 'deleted'")
        # What people and policies say of a thread, if nobody has said otherwise meanwhile.
        self.swap_thread = text(
            f"UPDATE {t} SET status = ?, expires = ?, tags = ?, metadata = ? WHERE {by_id} AND serial = ? "
            f"AND status = ? AND coalesce(expires, -1) = coalesce(?, -1) AND tags = ? AND coalesce(metadata, ?) = ?"
        )
        # A thread was used.
        self.touch = text(f"UPDATE {t} SET active = ? WHERE {by_id}")
        # What remains of a deleted thread.
        self.bury = text(
            f"UPDATE {t} SET status = 'deleted', deleted_before = ?, active = ?, tags = '[]', metadata = NULL, "
            f"asked = NULL "
            f"WHERE {by_id}"
        )
        # The newest checkpoint of the root graph at which a thread asked something. It is forgotten when a newer one is
        # put by who knew of the question, so that few threads have one; a thread never asks beyond it.
        self.ask = text(f"UPDATE {t} SET asked = ? WHERE {by_id} AND (asked IS NULL OR asked < ?)")
        self.settle = text(f"UPDATE {t} SET asked = NULL WHERE {by_id} AND asked < ?")
        # The same found anew after checkpoints were deleted: an earlier one may be the newest again.
        root = "pool = ? AND thread = ? AND namespace = ''"
        newest_root = f"SELECT max(id) FROM {c} WHERE {root}"
        self.ask_again = text(
            f"UPDATE {t} SET asked = (SELECT max(checkpoint_id) FROM {w} WHERE {root} AND channel = ? "
            f"AND checkpoint_id >= coalesce(({newest_root}), '')) WHERE {by_id}"
        )
        # Whether other living threads use a pool.
        self.pool_mates = text(f"SELECT count(*) FROM {t} WHERE pool = ? AND status <> 'deleted'")
        # A pool lost chunks.
        self.raise_epoch = text(f"UPDATE {t} SET epoch = epoch + 1 WHERE pool = ?")

        # A checkpoint; the same id again replaces it.
        self.put_checkpoint = text(insert(c, c_columns, "pool, thread, namespace, id", replace=True))
        # Checkpoints with their thread's place, one or a page; the last column is the thread's serial.
        found = f"SELECT {read('t.thread_id')}, t.pool, t.epoch, {qualified}, c.thread"
        of_thread = f"{found} FROM {t} t JOIN {c} c ON c.pool = t.pool AND c.thread = t.serial WHERE"
        self.newest_id = text(f"SELECT max(id) FROM {c} WHERE {at}")
        self.find = text(f"{of_thread} t.{by_id} AND c.{by_namespace} AND c.id = ?")
        self.newest = text(f"{of_thread} t.{by_id} AND c.{by_namespace} ORDER BY c.id DESC LIMIT 1")
        # All checkpoints of a thread as they lie: from the first, on in a namespace, and over to the next.
        as_they_lie = "ORDER BY c.namespace, c.id LIMIT ?"
        self.walk = text(f"{of_thread} t.{by_id} {as_they_lie}")
        self.walk_on = text(f"{of_thread} t.{by_id} AND c.{by_namespace} AND c.id > ? ORDER BY c.id LIMIT ?")
        self.walk_over = text(f"{of_thread} t.{by_id} AND {self.compared('c.namespace', '>')} {as_they_lie}")
        # The same without what they hold.
        outlined = read("c.namespace, c.id, c.parent, c.step, c.source, c.created")
        self.outline, self.outline_on, self.outline_over = (
            one.replace(found, f"SELECT {outlined}", 1) for one in (self.walk, self.walk_on, self.walk_over)
        )
        self.heads = f"{of_thread} {CONDITIONS} AND c.{by_namespace} AND c.id = ({self.newest_of('c.namespace')})"
        joined = f"FROM {t} t JOIN {c} c ON c.pool = t.pool AND c.thread = t.serial"
        keys = f"SELECT c.pool, c.thread, c.namespace, c.id {joined}"
        self.page_of_thread = (
            f"{found} FROM ({keys} WHERE {CONDITIONS} ORDER BY c.id DESC, c.namespace LIMIT ?) k "
            f"JOIN {c} c ON c.pool = k.pool AND c.thread = k.thread AND c.namespace = k.namespace AND c.id = k.id "
            f"JOIN {t} t ON t.serial = k.thread"
        )
        self.page = f"{found} FROM {c} c JOIN {t} t ON t.serial = c.thread WHERE "
        # A checkpoint and its ancestors, nearest first.
        here = f"c.pool = ? AND c.thread = ? AND c.{by_namespace}"
        self.chain = text(
            f"WITH RECURSIVE line(id, depth) AS (SELECT c.id, 0 FROM {c} c WHERE {here} AND c.id = ? "
            f"UNION ALL SELECT c.parent, line.depth + 1 FROM line JOIN {c} c ON {here} AND c.id = line.id "
            f"WHERE c.parent IS NOT NULL AND line.depth < ?) "
            f"SELECT {qualified} FROM line JOIN {c} c ON {here} AND c.id = line.id ORDER BY line.depth"
        )
        self.has_checkpoint = text(f"SELECT 1 FROM {c} WHERE pool = ? AND thread = ? AND id = ? LIMIT 1")
        # Whether a row by which a writer knows of chunks is there, as it was put.
        self.has_witness = text(f"SELECT 1 FROM {c} WHERE {at} AND id = ? AND created = ?")
        # Both in one look: the thread that a put goes to, and whether such a row is there.
        witness = f"SELECT 1 FROM {c} w WHERE w.pool = t.pool AND w.thread = t.serial"
        self.thread_and_witness = text(
            f"SELECT serial, pool, epoch, status, deleted_before, active, "
            f"EXISTS ({witness} AND w.namespace = ? AND w.id = ? AND w.created = ?) FROM {t} t WHERE thread_id = ?"
        )
        self.drop_checkpoints = text(f"DELETE FROM {c} WHERE pool = ? AND thread = ?")

        # A write of a task stays; a special one (error, interrupt, resume) replaces its predecessor.
        self.add_write = text(insert(w, w_columns, w_key, replace=False))
        self.replace_write = text(insert(w, w_columns, w_key, replace=True))
        self.writes = text(f"SELECT {read(WRITE_COLUMNS)} FROM {w} WHERE {at} AND checkpoint_id = ?")
        of_key = " AND ".join(map(self.compared, w_key.split(", ")))
        self.write_data = text(f"SELECT data FROM {w} WHERE {of_key}")
        self.thread_writes = text(f"SELECT {read(WRITE_COLUMNS)} FROM {w} WHERE pool = ? AND thread = ?")
        # The writes of all checkpoints between two ids.
        self.writes_between = text(
            f"SELECT {read(WRITE_COLUMNS)} FROM {w} WHERE {at} AND checkpoint_id >= ? AND checkpoint_id <= ?"
        )
        self.drop_writes = text(f"DELETE FROM {w} WHERE pool = ? AND thread = ?")

        # A chunk; a second writer of the same digest is harmless.
        k_columns = "pool, digest, links, form, data"
        self.add_chunk = text(insert(k, k_columns, "pool, digest", replace=False))
        # A chunk that takes the place of the row of its digest.
        self.move_chunk = text(insert(k, k_columns, "pool, digest", replace=True))
        self.pools = text(f"SELECT DISTINCT pool FROM {k} WHERE pool > ? ORDER BY pool LIMIT ?")
        self.drop_pool = text(f"DELETE FROM {k} WHERE pool = ?")
        # What there is in a pool, and what each chunk takes.
        self.chunk_sizes = text(
            f"SELECT digest, links, form, length(data) FROM {k} WHERE pool = ? AND digest > ? ORDER BY digest LIMIT ?"
        )
        # The roots of a pool, and how many checkpoints have them.
        self.roots = text(
            f"SELECT links, count(*) FROM {c} WHERE pool = ? GROUP BY links "
            f"UNION ALL SELECT DISTINCT links, 0 FROM {w} WHERE pool = ?"
        )

        # New bytes for a row, if nobody has changed it meanwhile.
        self.rewrap_chunk = text(
            f"UPDATE {k} SET links = ?, form = ?, data = ? WHERE pool = ? AND digest = ? AND form = ? AND data = ?"
        )
        self.rewrap_checkpoint = text(
            f"UPDATE {c} SET form = ?, document = ?, metadata_form = ?, metadata = ? "
            f"WHERE {at} AND id = ? AND document = ?"
        )
        self.rewrap_write = text(
            f"UPDATE {w} SET form = ?, data = ? WHERE {at} AND checkpoint_id = ? "
            f"AND {self.compared('task_id')} AND idx = ? AND data = ?"
        )

        # The format's number and the leases of threads, by name; and all leases.
        self.meta = text(f"SELECT value FROM {m} WHERE {by_name}")
        self.meta_values = text(f"SELECT value FROM {m} WHERE {between}")
        # A record that nobody may change before this transaction ends.
        self.held_meta = text(f"SELECT value FROM {m} WHERE {by_name}{dialect.share_lock}")
        # Each is one statement that changes a row or none, so that two writers cannot both succeed.
        self.add_meta = text(insert(m, "name, value", "name", replace=False))
        self.swap_meta = text(f"UPDATE {m} SET value = ? WHERE {by_name} AND value = ?")
        self.drop_meta = text(f"DELETE FROM {m} WHERE {by_name} AND value = ?")
        # How many rows have which forms; a checkpoint has two.
        self.forms = [
            text(f"SELECT form, {other}, count(*) FROM {table} GROUP BY form, {other}")
            for table, other in ((c, "metadata_form"), (w, "form"), (k, "form"), (f"{prefix}records", "form"))
        ]

    def weights(self, pools: Sequence[int]) -> list[tuple[str, list[Any]]]:
        """Pool, thread, rows and bytes of checkpoints, of writes and of chunks; and what each statement binds."""
        condition, bound = self.dialect.among("pool", pools)
        held = "coalesce(sum(length({0}) + length(links)), 0)".format
        kinds = (
            (self.c, "thread", held("document) + length(metadata"), "pool, thread"),
            (self.w, "thread", held("data"), "pool, thread"),
            (self.k, "0", held("data"), "pool"),
        )
        return [
            (
                self.dialect.text(
                    f"SELECT pool, {thread}, count(*), {size} FROM {table} WHERE {condition} GROUP BY {group}"
                ),
                list(bound),
            )
            for table, thread, size, group in kinds
        ]

    def recent(self, pools: Sequence[int], since: float) -> tuple[str, list[Any]]:
        """When the checkpoints of some pools were made that were made since, and what the statement binds."""
        condition, bound = self.dialect.among("pool", pools)
        statement = f"SELECT created FROM {self.c} WHERE {condition} AND created >= ?"
        return self.dialect.text(statement), [*bound, since]

    def threads(self, after: str, prefix: str, limit: int) -> tuple[str, list[Any]]:
        """Living threads by id, and what the statement binds."""
        condition, bound = self.begins_with(prefix)
        living = f"{self.compared('thread_id', '>')} AND {condition} AND status <> 'deleted'"
        statement = f"SELECT {self.read(THREAD_COLUMNS)} FROM {self.t} WHERE {living} ORDER BY thread_id LIMIT ?"
        return self.dialect.text(statement), [after, *bound, limit]

    def asking(self, after: str, prefix: str, limit: int) -> tuple[str, list[Any]]:
        """Living threads that asked something, by id, and what the statement binds."""
        condition, bound = self.begins_with(prefix)
        living = f"asked IS NOT NULL AND {self.compared('thread_id', '>')} AND {condition} AND status <> 'deleted'"
        statement = f"SELECT {self.read(THREAD_COLUMNS)} FROM {self.t} WHERE {living} ORDER BY thread_id LIMIT ?"
        return self.dialect.text(statement), [after, *bound, limit]

    def wholes(self, thread_ids: Sequence[str]) -> list[tuple[str, list[Any]]]:
        """These threads; their checkpoints and writes, each behind its thread's serial; and what each binds."""
        condition, bound = self.dialect.among("t.thread_id", thread_ids)
        kinds = ((self.c, CHECKPOINT_COLUMNS, " ORDER BY r.namespace, r.id"), (self.w, WRITE_COLUMNS, ""))
        rows = [
            f"SELECT t.serial, {self.read(', '.join('r.' + column for column in columns.split(', ')))} FROM {self.t} t "
            f"JOIN {table} r ON r.pool = t.pool AND r.thread = t.serial WHERE {condition}{order}"
            for table, columns, order in kinds
        ]
        threads = self.read(", ".join("t." + column for column in THREAD_COLUMNS.split(", ")))
        statements = [f"SELECT {threads} FROM {self.t} t WHERE {condition}", *rows]
        return [(self.dialect.text(statement), list(bound)) for statement in statements]

    def chunks_of(self, pools: Sequence[int]) -> tuple[str, list[Any]]:
        """All chunks of these pools, each behind its pool, and what the statement binds."""
        condition, bound = self.dialect.among("pool", pools)
        return self.dialect.text(f"SELECT pool, digest, links, form, data FROM {self.k} WHERE {condition}"), bound

    def newest_writes_of(self, thread_ids: Sequence[str]) -> tuple[str, list[Any]]:
        """The pending writes at the newest root checkpoints of these threads, each behind the serial of its thread."""
        condition, bound = self.dialect.among("t.thread_id", thread_ids)
        columns = self.read(", ".join("w." + column for column in WRITE_COLUMNS.split(", ")))
        newest = self.newest_of("''")
        statement = (
            f"SELECT {columns}, t.serial FROM {self.t} t JOIN {self.w} w ON w.pool = t.pool AND w.thread = t.serial "
            f"WHERE {condition} AND w.namespace = '' AND w.checkpoint_id = ({newest})"
        )
        return self.dialect.text(statement), bound

    def count_threads(self, prefix: str) -> tuple[str, list[Any]]:
        """How many living threads there are, and what the statement binds."""
        condition, bound = self.begins_with(prefix)
        statement = f"SELECT count(*) FROM {self.t} WHERE {condition} AND status <> 'deleted'"
        return self.dialect.text(statement), bound

    def newest_of(self, namespace: str) -> str:
        """The newest id in a namespace of the thread `t`."""
        here = f"n.pool = t.pool AND n.thread = t.serial AND n.namespace = {namespace}"
        return f"SELECT max(n.id) FROM {self.c} n WHERE {here}"

    def compared(self, column: str, sign: str = "=") -> str:
        """A condition: the column has this relation to a bound value."""
        return f"{column} {sign} ?"

    def read(self, columns: str) -> str:
        """Columns as a query that reaches the caller selects them."""
        return columns

    def begins_with(self, prefix: str) -> tuple[str, list[Any]]:
        """A condition: the thread's id begins with this text; and what it binds."""
        end = _end_of(prefix)
        if end is None:
            if is_hidden(prefix):
                return "thread_id >= ?", [prefix]
            end = HIDDEN
        return "thread_id >= ? AND thread_id < ?", [prefix, end]

    def chunks_in(self, columns: str, pool: int, digests: Sequence[bytes]) -> tuple[str, list[Any]]:
        """Some columns of these chunks of a pool, and what the statement binds."""
        condition, bound = self.dialect.among("digest", digests)
        return self.dialect.text(f"SELECT {columns} FROM {self.k} WHERE pool = ? AND {condition}"), [pool, *bound]

    def drop_chunks(self, pool: int, digests: Sequence[bytes]) -> tuple[str, list[Any]]:
        """Delete these chunks of a pool, and what the statement binds."""
        condition, bound = self.dialect.among("digest", digests)
        return self.dialect.text(f"DELETE FROM {self.k} WHERE pool = ? AND {condition}"), [pool, *bound]

    def child_ids(self, place: tuple[int, int, str], ids: Sequence[str]) -> tuple[str, list[Any]]:
        """Which checkpoints of a namespace have one of these for their parent, and what the statement binds."""
        condition, bound = self.dialect.among("parent", ids)
        here = f"pool = ? AND thread = ? AND {self.compared('namespace')}"
        return self.dialect.text(f"SELECT id FROM {self.c} WHERE {here} AND {condition}"), [*place, *bound]

    def children(self, place: tuple[int, int, str], ids: Sequence[str]) -> tuple[str, list[Any]]:
        """The rows of the checkpoints that have one of these for their parent, and what the statement binds."""
        condition, bound = self.dialect.among("parent", ids)
        here = f"pool = ? AND thread = ? AND {self.compared('namespace')}"
        # Their ids by the index of parents first: for whole rows SQLite would rather read the whole thread.
        named = f"SELECT id FROM {self.c} WHERE {here} AND {condition}"
        statement = f"SELECT {self.read(CHECKPOINT_COLUMNS)} FROM {self.c} WHERE {here} AND id IN ({named})"
        return self.dialect.text(statement), [*place, *place, *bound]

    def drop_among(
        self, table: str, column: str, place: tuple[int, int, str], ids: Sequence[str]
    ) -> tuple[str, list[Any]]:
        """Delete what a table has of these checkpoints of a namespace, and what the statement binds."""
        condition, bound = self.dialect.among(column, ids)
        here = f"pool = ? AND thread = ? AND {self.compared('namespace')}"
        return self.dialect.text(f"DELETE FROM {table} WHERE {here} AND {condition}"), [*place, *bound]


def _end_of(prefix: str) -> str | None:
    """The first text after everything that begins with the prefix, by code points; None if nothing comes after it."""
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return None
    following = ord(head[-1]) + 1
    # No text that is stored has a surrogate.
    return head[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)


_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")
_OWN_COLUMNS = frozenset(("run_id", "source", "step"))


def indexed_keys(named: Iterable[str]) -> tuple[str, ...]:
    """The keys among these that get an index, in an order that every process has."""
    return tuple(sorted({key for key in named if _PLAIN_KEY.fullmatch(key)} - _OWN_COLUMNS))


def index_name(prefix: str, key: str) -> str:
    """A name that fits every database, however long the key."""
    return f"{prefix}found_by_{blake2b(key.encode(), digest_size=4).hexdigest()}"
