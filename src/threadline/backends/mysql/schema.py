"""The tables in MySQL: how they look, and how they are made by many processes at once.

DDL is not transactional, so tables are made under a named lock of the server, by statements that can be run again, and
the format number is written last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pymysql

from ...errors import Unavailable
from ...ports.records import MOST_NAME_BYTES
from ...ports.rules import FORMAT
from ..sql.records import record_columns
from ..sql.setup import Migration, SqlSetup
from .binding import ID_BYTES, KEYED
from .wire import Wire

__all__ = ["MysqlTables", "tables"]


def tables(prefix: str) -> list[str]:
    """Every table of a store."""
    return [prefix + name for name in ("meta", "pools", "threads", "checkpoints", "writes", "chunks", "records")]


class MysqlTables(SqlSetup):
    """The tables of one store, and what opening found out about the server."""

    def __init__(self, prefix: str, shown_url: str, mode: str | bool, timeout: float, *, read_only: bool) -> None:
        super().__init__(prefix, shown_url, mode, read_only=read_only)
        self._timeout = timeout
        self.most_bytes = 0  # what the server accepts in one packet

    def _steps(self) -> list[Migration]:
        return _migrations(self.prefix)

    def _numbering(self, *, replaces: bool) -> str:
        verb = "REPLACE" if replaces else "INSERT IGNORE"
        return f"{verb} INTO {self.prefix}meta (name, value) VALUES ('format', '{FORMAT}')"

    async def _alone(self, wire: Wire, act: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        [answer] = await wire.send([b"SELECT DATABASE()"])
        name = hashlib.blake2b(f"{answer.rows[0][0]}/{self.prefix}".encode(), digest_size=16).hexdigest()
        lock = f"threadline-{name}".encode()
        wait = max(1, int(self._timeout))
        [answer] = await wire.send([b"SELECT GET_LOCK('%b', %d)" % (lock, wait)])
        if answer.rows[0][0] != 1:
            raise Unavailable(f"another process has been setting up {self._where} for {wait} s: try again")
        try:
            await act(wire)
            await wire.send([b"COMMIT"])
        finally:
            await wire.send([b"SELECT RELEASE_LOCK('%b')" % lock])

    async def _execute(self, wire: Wire, statements: Sequence[str]) -> None:
        for statement in statements:
            await wire.send([statement.encode()])

    async def _written_format(self, wire: Wire) -> Any:
        try:
            [answer] = await wire.send([f"SELECT value FROM {self.prefix}meta WHERE name = 'format'".encode()])
        except pymysql.err.ProgrammingError as error:
            if error.args[0] == pymysql.constants.ER.NO_SUCH_TABLE:
                return None
            raise
        return answer.rows[0][0] if answer.rows else None

    async def _look_around(self, wire: Wire) -> None:
        [answer] = await wire.send([b"SELECT @@max_allowed_packet"])
        # The server counts a byte for the command, and a little besides.
        self.most_bytes = int(answer.rows[0][0]) - 64

    async def _has_threads(self, wire: Wire) -> bool:
        [ours] = await wire.send([f"SELECT 1 FROM {self.prefix}threads LIMIT 1".encode()])
        return bool(ours.rows)

    async def _holds_langgraphs(self, wire: Wire) -> bool:
        [answer] = await wire.send(
            [
                b"SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = "
                b"'checkpoints' AND column_name IN ('thread_id', 'checkpoint_ns', 'parent_checkpoint_id')"
            ]
        )
        if answer.rows[0][0] != 3:
            return False
        [theirs] = await wire.send([b"SELECT 1 FROM checkpoints LIMIT 1"])
        return bool(theirs.rows)


_RECORD_TYPES = {
    "whole": "BIGINT",
    "path": f"VARBINARY({MOST_NAME_BYTES})",
    "blob": "LONGBLOB",
    "json": "LONGBLOB",
    "real": "DOUBLE",
}


def _migrations(prefix: str) -> list[Migration]:
    """All steps, in order. DDL commits as it goes, so each statement can be run again."""
    whole, blob, id_type = "BIGINT NOT NULL", "LONGBLOB NOT NULL", f"VARBINARY({ID_BYTES})"

    def table(name: str, *columns: str) -> str:
        end = "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4"
        return f"CREATE TABLE IF NOT EXISTS {prefix}{name} ({', '.join(columns)}) {end}"

    def keyed(name: str) -> str:
        return f"{name} VARBINARY({KEYED[name]}) NOT NULL, {name}_full LONGBLOB"

    place = f"pool {whole}, thread {whole}, {keyed('namespace')}"
    statements = (
        table("meta", f"name VARBINARY({KEYED['name']}) NOT NULL PRIMARY KEY", "value LONGBLOB"),
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
            # Whether a checkpoint has children is asked before it is deleted.
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
        table("records", record_columns(_RECORD_TYPES), "KEY by_expiry (space, expires)"),
    )
    return [Migration(1, "the tables of format 1", statements)]
