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
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ...base.hashing import blake2b
from ...errors import InvalidRequest
from ...ports.checkpoints import CheckpointKeys
from ...ports.rules import HIDDEN, is_hidden

__all__ = ["Dialect", "Statements", "check_prefix", "index_name", "indexed_keys"]

T = TypeVar("T")

CHECKPOINT_COLUMNS = (
    "namespace, id, parent, links, form, document, metadata_form, metadata, step, source, run_id, created, searchable"
)
CHECKPOINT_KEY = "pool, thread, namespace, id"
WRITE_COLUMNS = "namespace, checkpoint_id, task_id, idx, task_path, channel, links, form, data"
WRITE_KEY = "pool, thread, namespace, checkpoint_id, task_id, idx"
CHUNK_COLUMNS = "digest, links, form, data"
CHUNK_KEY = "pool, digest"
THREAD_COLUMNS = (
    "thread_id, serial, pool, epoch, status, deleted_before, forked_from, created, active, expires, tags, metadata"
)


class Dialect(ABC):
    """What differs between SQL databases, with what holds for most of them."""

    # How many values one statement may bind.
    most_values = 512
    # Lists of values are padded to one of these lengths, so that statements stay prepared; empty where none need be.
    padded_to: tuple[int, ...] = ()
    # What a query ends with so that the rows it found stay as they are until the transaction ends.
    share_lock = ""
    # How many rows one upsert takes where there are so many; 1 where that gains nothing.
    rows_together = 1
    # How a statement names the column `space` so that an index of items is used. Without statistics the primary key
    # looks cheaper than any other index; as an expression, it is none of that key.
    space_of_items = "space + 0"

    def __init__(self, indexed: Sequence[str] = (), *, may_index: bool = True) -> None:
        self.indexed = frozenset(indexed)
        self.may_index = may_index

    def mark(self, column: str = "") -> str:
        """What stands in a statement for a bound value, or for one that is compared with this column."""
        return "?"

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """A condition: the column is one of these; and what it binds."""
        return f"{column} IN ({', '.join([self.mark(column)] * len(values))})", list(values)

    @abstractmethod
    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        """An insert that ignores, or replaces, a row with the same key."""

    @abstractmethod
    def upsert(self, table: str, rows: int = 1) -> str:
        """An insert of records that replaces those of the same names, but keeps `created` and raises `version`."""

    @abstractmethod
    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        """A condition: the JSON in `column` has this value at this key; and what it binds."""

    @abstractmethod
    def json_may_equal(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        """A condition: the JSON in `column` has this value at this key, or does not have the key; and what it binds."""

    def record_index(self, table: str, name: str, key: str) -> tuple[str, str] | None:
        """What finds the index of items by a key, and what makes it; None where the database has no such index."""
        return None


def check_prefix(prefix: str) -> str:
    """A table prefix that may stand in a statement."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,40}|", prefix):
        raise InvalidRequest(
            "table_prefix takes letters, digits and underscores, at most 41, not starting with a digit"
        )
    return prefix


class Statements:
    """The statements of one store, ready for its driver."""

    # What a transaction that reads whole threads runs first.
    before_wholes = ""

    def __init__(self, dialect: Dialect, prefix: str) -> None:
        self.dialect = dialect
        self.prefix = prefix
        t, c, w, k, m = (prefix + name for name in ("threads", "checkpoints", "writes", "chunks", "meta"))
        self.t, self.c, self.w, self.k, self.m = t, c, w, k, m
        v, insert, read = dialect.mark(), dialect.insert, self.read
        by_id, by_namespace, by_name = (self.compared(name) for name in ("thread_id", "namespace", "name"))
        between = f"{self.compared('name', '>=')} AND {self.compared('name', '<')}"
        of_thread = f"pool = {v} AND thread = {v}"
        at = self.at = f"{of_thread} AND {by_namespace}"
        c_columns = f"pool, thread, {CHECKPOINT_COLUMNS}"
        w_columns = f"pool, thread, {WRITE_COLUMNS}"
        qualified = self.read_of("c", CHECKPOINT_COLUMNS)

        # A thread by its id, deleted ones included.
        self.thread = f"SELECT {read(THREAD_COLUMNS)} FROM {t} WHERE {by_id}"
        # A new thread, whose pool is set right after.
        t_columns = "thread_id, pool, epoch, status, deleted_before, forked_from, created, active, tags"
        self.new_thread = insert(t, t_columns, "thread_id", replace=False)
        # A thread that begins its own pool takes its serial as the pool's id; empty where the table does so by itself.
        self.own_pool = f"UPDATE {t} SET pool = serial WHERE {by_id}"
        # The row of a deleted thread makes way for its successor, unless another writer's has come first.
        self.drop_thread = f"DELETE FROM {t} WHERE {by_id} AND serial = {v} AND status = 'deleted'"
        # What people and policies say of a thread, if nobody has said otherwise meanwhile.
        self.swap_thread = (
            f"UPDATE {t} SET status = {v}, expires = {v}, tags = {v}, metadata = {v} WHERE {by_id} AND serial = {v} "
            f"AND status = {v} AND coalesce(expires, -1) = coalesce({v}, -1) AND tags = {v} "
            f"AND coalesce(metadata, {v}) = {v}"
        )
        # A thread was used.
        self.touch = f"UPDATE {t} SET active = {v} WHERE {by_id}"
        # What remains of a deleted thread.
        self.bury = (
            f"UPDATE {t} SET status = 'deleted', deleted_before = {v}, active = {v}, tags = '[]', metadata = NULL, "
            f"asked = NULL WHERE {by_id}"
        )
        # The newest checkpoint of the root graph at which a thread asked something. It is forgotten when a newer one is
        # put by who knew of the question, so that few threads have one; a thread never asks beyond it.
        self.ask = f"UPDATE {t} SET asked = {v} WHERE {by_id} AND (asked IS NULL OR asked < {v})"
        self.settle = f"UPDATE {t} SET asked = NULL WHERE {by_id} AND asked < {v}"
        # The same found anew after checkpoints were deleted: an earlier one may be the newest again.
        root = f"{of_thread} AND namespace = ''"
        newest_root = f"SELECT max(id) FROM {c} WHERE {root}"
        self.ask_again = (
            f"UPDATE {t} SET asked = (SELECT max(checkpoint_id) FROM {w} WHERE {root} AND channel = {v} "
            f"AND checkpoint_id >= coalesce(({newest_root}), '')) WHERE {by_id}"
        )
        # Whether other living threads use a pool.
        self.pool_mates = f"SELECT count(*) FROM {t} WHERE pool = {v} AND status <> 'deleted'"
        # A pool lost chunks.
        self.raise_epoch = f"UPDATE {t} SET epoch = epoch + 1 WHERE pool = {v}"

        # A checkpoint; the same id again replaces it.
        self.put_checkpoint = insert(c, c_columns, CHECKPOINT_KEY, replace=True)
        # Checkpoints with their thread's place, one or a page; the last column is the thread's serial.
        self.found = f"SELECT {read('t.thread_id')}, t.pool, t.epoch, {qualified}, c.thread"
        self.joined = f"FROM {t} t JOIN {c} c ON c.pool = t.pool AND c.thread = t.serial WHERE"
        inside = f"{self.joined} t.{by_id} AND c.{by_namespace}"
        self.newest_id = f"SELECT max(id) FROM {c} WHERE {at}"
        self.find = f"{self.found} {inside} AND c.id = {v}"
        self.newest = f"{self.found} {inside} ORDER BY c.id DESC LIMIT 1"
        # All checkpoints of a thread as they lie: from the first, on in a namespace, and over to the next.
        as_they_lie = f"ORDER BY c.namespace, c.id LIMIT {v}"
        walks = (
            f"{self.joined} t.{by_id} {as_they_lie}",
            f"{inside} AND c.id > {v} ORDER BY c.id LIMIT {v}",
            f"{self.joined} t.{by_id} AND {self.compared('c.namespace', '>')} {as_they_lie}",
        )
        self.walks = [f"{self.found} {walk}" for walk in walks]
        # The same without what they hold.
        outlined = read("c.namespace, c.id, c.parent, c.step, c.source, c.created")
        self.outlines = [f"SELECT {outlined} {walk}" for walk in walks]
        # A checkpoint and its ancestors, nearest first.
        here = f"c.pool = {v} AND c.thread = {v} AND c.{by_namespace}"
        self.chain = (
            f"WITH RECURSIVE line(id, depth) AS (SELECT c.id, 0 FROM {c} c WHERE {here} AND c.id = {v} "
            f"UNION ALL SELECT c.parent, line.depth + 1 FROM line JOIN {c} c ON {here} AND c.id = line.id "
            f"WHERE c.parent IS NOT NULL AND line.depth < {v}) "
            f"SELECT {qualified} FROM line JOIN {c} c ON {here} AND c.id = line.id ORDER BY line.depth"
        )
        self.has_checkpoint = f"SELECT 1 FROM {c} WHERE {of_thread} AND id = {v} LIMIT 1"
        # Whether a row by which a writer knows of chunks is there, as it was put.
        self.has_witness = f"SELECT 1 FROM {c} WHERE {at} AND id = {v} AND created = {v}"
        # Both in one look: the thread that a put goes to, and whether such a row is there.
        witness = f"SELECT 1 FROM {c} w WHERE w.pool = t.pool AND w.thread = t.serial"
        self.thread_and_witness = (
            f"SELECT serial, pool, epoch, status, deleted_before, active, "
            f"EXISTS ({witness} AND w.namespace = {v} AND w.id = {v} AND w.created = {v}) "
            f"FROM {t} t WHERE thread_id = {v}"
        )
        self.drop_checkpoints = f"DELETE FROM {c} WHERE {of_thread}"

        # A write of a task stays; a special one (error, interrupt, resume) replaces its predecessor.
        self.add_write = insert(w, w_columns, WRITE_KEY, replace=False)
        self.replace_write = insert(w, w_columns, WRITE_KEY, replace=True)
        self.writes = f"SELECT {read(WRITE_COLUMNS)} FROM {w} WHERE {at} AND checkpoint_id = {v}"
        of_key = " AND ".join(map(self.compared, WRITE_KEY.split(", ")))
        self.write_data = f"SELECT data FROM {w} WHERE {of_key}"
        self.thread_writes = f"SELECT {read(WRITE_COLUMNS)} FROM {w} WHERE {of_thread}"
        # The writes of all checkpoints between two ids.
        self.writes_between = (
            f"SELECT {read(WRITE_COLUMNS)} FROM {w} WHERE {at} AND checkpoint_id >= {v} AND checkpoint_id <= {v}"
        )
        self.drop_writes = f"DELETE FROM {w} WHERE {of_thread}"

        # A chunk; a second writer of the same digest is harmless.
        k_columns = f"pool, {CHUNK_COLUMNS}"
        self.add_chunk = insert(k, k_columns, CHUNK_KEY, replace=False)
        # A chunk that takes the place of the row of its digest.
        self.move_chunk = insert(k, k_columns, CHUNK_KEY, replace=True)
        self.pools = f"SELECT DISTINCT pool FROM {k} WHERE pool > {v} ORDER BY pool LIMIT {v}"
        self.drop_pool = f"DELETE FROM {k} WHERE pool = {v}"
        # What there is in a pool, and what each chunk takes.
        self.chunk_sizes = (
            f"SELECT digest, links, form, length(data) FROM {k} "
            f"WHERE pool = {v} AND digest > {v} ORDER BY digest LIMIT {v}"
        )
        # The roots of a pool, and how many checkpoints have them.
        self.roots = (
            f"SELECT links, count(*) FROM {c} WHERE pool = {v} GROUP BY links "
            f"UNION ALL SELECT DISTINCT links, 0 FROM {w} WHERE pool = {v}"
        )

        # New bytes for a row, if nobody has changed it meanwhile.
        self.rewrap_chunk = (
            f"UPDATE {k} SET links = {v}, form = {v}, data = {v} "
            f"WHERE pool = {v} AND digest = {v} AND form = {v} AND data = {v}"
        )
        self.rewrap_checkpoint = (
            f"UPDATE {c} SET form = {v}, document = {v}, metadata_form = {v}, metadata = {v} "
            f"WHERE {at} AND id = {v} AND document = {v}"
        )
        self.rewrap_write = (
            f"UPDATE {w} SET form = {v}, data = {v} WHERE {at} AND checkpoint_id = {v} "
            f"AND {self.compared('task_id')} AND idx = {v} AND data = {v}"
        )

        # The format's number and the leases of threads, by name; and all leases.
        self.meta = f"SELECT value FROM {m} WHERE {by_name}"
        self.meta_values = f"SELECT value FROM {m} WHERE {between}"
        # A record that nobody may change before this transaction ends.
        self.held_meta = f"SELECT value FROM {m} WHERE {by_name}{dialect.share_lock}"
        # Each is one statement that changes a row or none, so that two writers cannot both succeed.
        self.add_meta = insert(m, "name, value", "name", replace=False)
        self.swap_meta = f"UPDATE {m} SET value = {v} WHERE {by_name} AND value = {v}"
        self.drop_meta = f"DELETE FROM {m} WHERE {by_name} AND value = {v}"
        # How many rows have which forms; a checkpoint has two.
        self.forms = [
            f"SELECT form, {other}, count(*) FROM {table} GROUP BY form, {other}"
            for table, other in ((c, "metadata_form"), (w, "form"), (k, "form"), (f"{prefix}records", "form"))
        ]

    def batches(self, values: Sequence[T]) -> Iterator[Sequence[T]]:
        """Values in parts that one statement takes; the last value is repeated where that has to be padded."""
        most, sizes = self.dialect.most_values, self.dialect.padded_to
        for start in range(0, len(values), most):
            part = values[start : start + most]
            if sizes:
                size = next((size for size in sizes if len(part) <= size), most)
                part = [*part, *[part[-1]] * (size - len(part))]
            yield part

    def parts(self, keys: CheckpointKeys) -> Iterator[tuple[str, Sequence[str]]]:
        """Checkpoints by namespace, in parts that one statement takes."""
        ids: dict[str, list[str]] = defaultdict(list)
        for namespace, checkpoint_id in keys:
            ids[namespace].append(checkpoint_id)
        for namespace, inside in ids.items():
            for part in self.batches(inside):
                yield namespace, part

    def heads(self, thread_ids: Sequence[str], namespace: str) -> tuple[str, list[Any]]:
        """The newest checkpoints of these threads in a namespace, and what the statement binds."""
        condition, bound = self.dialect.among("t.thread_id", thread_ids)
        newest = self.newest_of(self.dialect.mark("namespace"))
        statement = f"{self.found} {self.joined} {condition} AND {self.compared('c.namespace')} AND c.id = ({newest})"
        return statement, [*bound, namespace, namespace]

    def weights(self, pools: Sequence[int]) -> list[tuple[str, list[Any]]]:
        """Pool, thread, rows and bytes of checkpoints, of writes and of chunks; and what each statement binds."""
        condition, bound = self.dialect.among("pool", pools)
        groups = (("thread", "pool, thread"), ("thread", "pool, thread"), ("0", "pool"))
        return [
            (f"SELECT pool, {thread}, count(*), {size} FROM {table} WHERE {condition} GROUP BY {group}", list(bound))
            for (table, size), (thread, group) in zip(self.sizes(), groups, strict=True)
        ]

    def sizes(self) -> list[tuple[str, str]]:
        """The tables that grow with use, and what the bytes in their rows come to."""
        columns = {self.c: "document) + length(metadata", self.w: "data", self.k: "data"}
        return [(table, f"coalesce(sum(length({of}) + length(links)), 0)") for table, of in columns.items()]

    def recent(self, pools: Sequence[int], since: float) -> tuple[str, list[Any]]:
        """When the checkpoints of some pools were made that were made since, and what the statement binds."""
        condition, bound = self.dialect.among("pool", pools)
        return f"SELECT created FROM {self.c} WHERE {condition} AND {self.compared('created', '>=')}", [*bound, since]

    def threads(self, after: str, prefix: str, limit: int, *, asking: bool = False) -> tuple[str, list[Any]]:
        """Living threads by id, all or those that asked something, and what the statement binds."""
        condition, bound = self.begins_with(prefix)
        asked = "asked IS NOT NULL AND " if asking else ""
        living = f"{asked}{self.compared('thread_id', '>')} AND {condition} AND status <> 'deleted'"
        columns, limited = self.read(THREAD_COLUMNS), f"LIMIT {self.dialect.mark()}"
        return f"SELECT {columns} FROM {self.t} WHERE {living} ORDER BY thread_id {limited}", [after, *bound, limit]

    def wholes(self, thread_ids: Sequence[str]) -> list[tuple[str, list[Any]]]:
        """These threads; their checkpoints and writes, each behind its thread's serial; and what each binds."""
        condition, bound = self.dialect.among("t.thread_id", thread_ids)
        kinds = ((self.c, CHECKPOINT_COLUMNS, " ORDER BY r.namespace, r.id"), (self.w, WRITE_COLUMNS, ""))
        rows = [
            f"SELECT t.serial, {self.read_of('r', columns)} FROM {self.t} t "
            f"JOIN {table} r ON r.pool = t.pool AND r.thread = t.serial WHERE {condition}{order}"
            for table, columns, order in kinds
        ]
        statements = [f"SELECT {self.read_of('t', THREAD_COLUMNS)} FROM {self.t} t WHERE {condition}", *rows]
        return [(statement, list(bound)) for statement in statements]

    def chunks_of(self, pools: Sequence[int]) -> tuple[str, list[Any]]:
        """All chunks of these pools, each behind its pool, and what the statement binds."""
        condition, bound = self.dialect.among("pool", pools)
        return f"SELECT pool, {CHUNK_COLUMNS} FROM {self.k} WHERE {condition}", bound

    def newest_writes_of(self, thread_ids: Sequence[str]) -> tuple[str, list[Any]]:
        """The pending writes at the newest root checkpoints of these threads, each behind the serial of its thread."""
        condition, bound = self.dialect.among("t.thread_id", thread_ids)
        columns, newest = self.read_of("w", WRITE_COLUMNS), self.newest_of("''")
        statement = (
            f"SELECT {columns}, t.serial FROM {self.t} t JOIN {self.w} w ON w.pool = t.pool AND w.thread = t.serial "
            f"WHERE {condition} AND w.namespace = '' AND w.checkpoint_id = ({newest})"
        )
        return statement, bound

    def count_threads(self, prefix: str) -> tuple[str, list[Any]]:
        """How many living threads there are, and what the statement binds."""
        condition, bound = self.begins_with(prefix)
        statement = f"SELECT count(*) FROM {self.t} WHERE {condition} AND status <> 'deleted'"
        return statement, bound

    def newest_of(self, namespace: str) -> str:
        """The newest id in a namespace of the thread `t`."""
        here = f"n.pool = t.pool AND n.thread = t.serial AND n.namespace = {namespace}"
        return f"SELECT max(n.id) FROM {self.c} n WHERE {here}"

    def compared(self, column: str, sign: str = "=") -> str:
        """A condition: the column has this relation to a bound value."""
        return f"{column} {sign} {self.dialect.mark(column)}"

    def read(self, columns: str) -> str:
        """Columns as a query that reaches the caller selects them."""
        return columns

    def read_of(self, table: str, columns: str) -> str:
        """The same of a table that a query names so."""
        return self.read(", ".join(f"{table}.{column}" for column in columns.split(", ")))

    def begins_with(self, prefix: str) -> tuple[str, list[Any]]:
        """A condition: the thread's id begins with this text; and what it binds."""
        from_here, end = self.compared("thread_id", ">="), _end_of(prefix)
        if end is None:
            if is_hidden(prefix):
                return from_here, [prefix]
            end = HIDDEN
        return f"{from_here} AND {self.compared('thread_id', '<')}", [prefix, end]

    def chunks_in(self, columns: str, pool: int, digests: Sequence[bytes]) -> tuple[str, list[Any]]:
        """Some columns of these chunks of a pool, and what the statement binds."""
        return self._of_chunks(f"SELECT {columns}", pool, digests)

    def drop_chunks(self, pool: int, digests: Sequence[bytes]) -> tuple[str, list[Any]]:
        """Delete these chunks of a pool, and what the statement binds."""
        return self._of_chunks("DELETE", pool, digests)

    def _of_chunks(self, act: str, pool: int, digests: Sequence[bytes]) -> tuple[str, list[Any]]:
        condition, bound = self.dialect.among("digest", digests)
        return f"{act} FROM {self.k} WHERE {self.compared('pool')} AND {condition}", [pool, *bound]

    def child_ids(self, place: tuple[int, int, str], ids: Sequence[str]) -> tuple[str, list[Any]]:
        """Which checkpoints of a namespace have one of these for their parent, and what the statement binds."""
        condition, bound = self.dialect.among("parent", ids)
        return f"SELECT id FROM {self.c} WHERE {self.at} AND {condition}", [*place, *bound]

    def children(self, place: tuple[int, int, str], ids: Sequence[str]) -> tuple[str, list[Any]]:
        """The rows of the checkpoints that have one of these for their parent, and what the statement binds."""
        # Their ids by the index of parents first: for whole rows SQLite would rather read the whole thread.
        named, bound = self.child_ids(place, ids)
        columns = self.read(CHECKPOINT_COLUMNS)
        return f"SELECT {columns} FROM {self.c} WHERE {self.at} AND id IN ({named})", [*place, *bound]

    def drop_among(
        self, table: str, column: str, place: tuple[int, int, str], ids: Sequence[str]
    ) -> tuple[str, list[Any]]:
        """Delete what a table has of these checkpoints of a namespace, and what the statement binds."""
        condition, bound = self.dialect.among(column, ids)
        return f"DELETE FROM {table} WHERE {self.at} AND {condition}", [*place, *bound]


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
