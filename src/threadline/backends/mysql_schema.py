"""MySQL's tables and statements, where they differ from the common ones.

Decided here: every text is stored as the bytes of its UTF-8, so that no collation, no NUL and no lone
surrogate ever matters. InnoDB's keys hold at most 3072 bytes, so a *keyed* text is stored twice at most: its
column has the text itself while that is short, else its head and a digest (`key_of`), and only then does
`<column>_full` have the whole. Short texts, which is all of them in practice, therefore keep their order;
longer ones keep some order, the same in every page. Checkpoint ids must be ordered exactly: they are limited.

A pool is locked by its row in `pools`: MySQL has no advisory locks that can be shared.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from .sql.schema import Migration
from .sql.statements import Dialect, Statements

__all__ = ["ID_BYTES", "MysqlStatements", "TEXT_COLUMNS", "key_of", "migrations", "rewritten", "tables"]

# How many bytes the keys take. With the numbers beside them they stay below InnoDB's 3072 in every table, and
# alone below max_sort_length (1024, less 2 for a length): what is longer would be sorted by its head only.
_KEYED = {"thread_id": 1016, "name": 1016, "namespace": 500, "task_id": 400}
ID_BYTES = 1000
_DIGEST_BYTES = 32

# Columns that hold text, as they are named in results; all others are bytes or numbers.
TEXT_COLUMNS = frozenset(
    [
        "channel",
        "checkpoint_id",
        "deleted_before",
        "forked_from",
        "id",
        "namespace_text",
        "parent",
        "run_id",
        "searchable",
        "source",
        "status",
        "tags",
        "task_id_text",
        "task_path",
        "thread_id_text",
    ]
)

_COMPARED = re.compile(r"\b(thread_id|namespace|task_id|name) (=|<|>|<=|>=) \?(?!\w)")
# A select list that reaches the caller; one in parentheses is matched with keys, and stays as it is.
_SELECTED = re.compile(r"(?<!\()SELECT (.*?) FROM ")
_READ = re.compile(r"((?:\w+\.)?)(thread_id|namespace|task_id)(?=,|$)")


def key_of(column: str, text: bytes) -> bytes:
    """What a keyed column holds for a text: itself, or its head and digest, which no short text can equal."""
    most = _KEYED[column]
    if len(text) < most:
        return text
    return text[: most - _DIGEST_BYTES] + hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()


def rewritten(statement: str) -> str:
    """A common statement over keyed columns: `?<column>` binds a key, and whole texts are what is read."""
    statement = _COMPARED.sub(r"\1 \2 ?\1", statement)
    return _SELECTED.sub(lambda found: f"SELECT {_READ.sub(_whole, found[1])} FROM ", statement)


def _whole(found: re.Match[str]) -> str:
    table, column = found.groups()
    return f"coalesce({table}{column}_full, {table}{column}) AS {column}_text"


def tables(prefix: str) -> list[str]:
    """Every table of a store."""
    return [prefix + name for name in ("meta", "pools", "threads", "checkpoints", "writes", "chunks")]


class MysqlStatements(Statements):
    """The common statements, with those that MySQL needs in another form, or in addition."""

    def __init__(self, dialect: Dialect, prefix: str) -> None:
        super().__init__(dialect, prefix)
        text, t, c, k, p = dialect.text, self.t, self.c, self.k, prefix + "pools"
        self.newest_id = text(f"SELECT max(id) AS id FROM {c} WHERE pool = ? AND thread = ? AND namespace = ?")
        # MySQL documents that DISTINCT, too, may compare no more than max_sort_length bytes: roots would be lost.
        self.checkpoint_links = text(f"SELECT links FROM {c} WHERE pool = ?")
        self.write_links = text(f"SELECT links FROM {self.w} WHERE pool = ?")
        # The chunks of a pool and its lock, in one.
        self.drop_pool = text(f"DELETE p, k FROM {p} p LEFT JOIN {k} k ON k.pool = p.pool WHERE p.pool = ?")
        self.add_pool = text(f"INSERT INTO {p} (pool) VALUES (?)")
        one, of_thread = f"SELECT pool FROM {p} WHERE pool = ", f"(SELECT pool FROM {t} WHERE thread_id = ?)"
        # A pool's lock by its number, or by its thread. A subquery's rows are read and not locked.
        self.hold = {exclusive: text(f"{one}? {kind}") for exclusive, kind in _LOCKS.items()}
        self.hold_of = {exclusive: text(f"{one}{of_thread} {kind}") for exclusive, kind in _LOCKS.items()}
        # A row by which a writer knows of chunks, found by its thread: it is asked for together with the lock.
        self.witness_of_thread = text(
            f"SELECT c.id FROM {t} t JOIN {c} c ON c.pool = t.pool AND c.thread = t.serial "
            f"WHERE t.thread_id = ? AND c.namespace = ? AND c.id = ? AND c.created = ?"
        )
        # The newest checkpoint of a namespace, or a named one, has these writes.
        here = f"FROM {t} t JOIN {self.w} w ON w.pool = t.pool AND w.thread = t.serial WHERE t.thread_id = ?"
        columns = "w.namespace, w.checkpoint_id, w.task_id, w.idx, w.task_path, w.channel, w.links, w.form, w.data"
        newest = f"SELECT max(n.id) FROM {t} o JOIN {c} n ON n.pool = o.pool AND n.thread = o.serial"
        self.found_writes = text(f"SELECT {columns} {here} AND w.namespace = ? AND w.checkpoint_id = ?")
        self.newest_writes = text(
            f"SELECT {columns} {here} AND w.namespace = ? AND w.checkpoint_id = "
            f"({newest} WHERE o.thread_id = ? AND n.namespace = ?)"
        )
        # Statements whose count of rows nobody asks for: they can wait for company. All others are answered.
        self.can_wait = frozenset(
            [
                self.put_checkpoint,
                self.touch,
                self.own_pool,
                self.add_pool,
                self.drop_writes,
                self.drop_checkpoints,
                self.bury,
                self.ask,
                self.settle,
                self.ask_again,
                self.drop_pool,
                self.raise_epoch,
            ]
        )

    def begins_with(self, prefix: str) -> tuple[str, list[Any]]:
        # The key of a long id has the id's first bytes only, behind them a digest: a range of keys narrows down to
        # those bytes, and whatever the prefix has beyond them is compared with the whole id.
        text = prefix.encode("utf-8", "surrogatepass")
        head = text[: _KEYED["thread_id"] - _DIGEST_BYTES]
        # No byte of UTF-8 is as high as 255. Bounds that are no keys stand on the left, where none is made of them.
        end = head[:-1] + bytes([head[-1] + 1]) if head else b"\xff"
        condition, bound = "? <= thread_id AND ? > thread_id", [head, end]
        if head == text:
            return condition, bound
        whole = "coalesce(thread_id_full, thread_id)"
        return f"{condition} AND left({whole}, ?) = ?", [*bound, len(text), text]


# Both servers know these words; FOR SHARE is only MySQL's.
_LOCKS = {False: "LOCK IN SHARE MODE", True: "FOR UPDATE"}


def migrations(prefix: str) -> list[Migration]:
    """All steps, in order. DDL commits as it goes, so each statement can be run again."""
    whole, blob, id_type = "BIGINT NOT NULL", "LONGBLOB NOT NULL", f"VARBINARY({ID_BYTES})"

    def table(name: str, *columns: str) -> str:
        end = "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4"
        return f"CREATE TABLE IF NOT EXISTS {prefix}{name} ({', '.join(columns)}) {end}"

    def keyed(name: str) -> str:
        return f"{name} VARBINARY({_KEYED[name]}) NOT NULL, {name}_full LONGBLOB"

    place = f"pool {whole}, thread {whole}, {keyed('namespace')}"
    return [
        Migration(
            1,
            "the tables of format 1",
            (
                table("meta", f"name VARBINARY({_KEYED['name']}) NOT NULL PRIMARY KEY", "value LONGBLOB"),
                table("pools", "pool BIGINT NOT NULL PRIMARY KEY"),
                table(
                    "threads",
                    "serial BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
                    f"{keyed('thread_id')}, pool {whole}, epoch {whole}, status VARBINARY(40) NOT NULL",
                    "deleted_before LONGBLOB, forked_from LONGBLOB, created DOUBLE NOT NULL, active DOUBLE NOT NULL",
                    f"expires DOUBLE, tags {blob}, metadata LONGBLOB, asked {id_type}",
                    "UNIQUE KEY by_id (thread_id), KEY by_pool (pool), KEY by_asked (asked)",
                ),
                table(
                    "checkpoints",
                    f"{place}, id {id_type} NOT NULL, parent {id_type}, links {blob}, form {whole}, document {blob}",
                    f"metadata_form {whole}, metadata {blob}, step BIGINT, source VARBINARY(512)",
                    "run_id VARBINARY(512), created DOUBLE NOT NULL, searchable LONGBLOB",
                    "PRIMARY KEY (pool, thread, namespace, id), KEY by_age (id), KEY by_run (run_id)",
                    # What somebody went on from, which is asked for everything that is to be deleted.
                    "KEY by_parent (pool, thread, namespace, parent)",
                ),
                table(
                    "writes",
                    f"{place}, checkpoint_id {id_type} NOT NULL, {keyed('task_id')}, idx {whole}, task_path {blob}",
                    f"channel {blob}, links {blob}, form {whole}, data {blob}",
                    "PRIMARY KEY (pool, thread, namespace, checkpoint_id, task_id, idx)",
                ),
                table(
                    "chunks",
                    f"pool {whole}, digest VARBINARY(64) NOT NULL, links {blob}, form {whole}, data {blob}",
                    "PRIMARY KEY (pool, digest)",
                ),
            ),
        ),
    ]
