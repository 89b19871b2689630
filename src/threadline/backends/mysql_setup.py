"""How a store comes to be in a MySQL database: its format, its tables, and who makes them.

Decided here: DDL is not transactional, so tables are made under a named lock of the server, by statements
that can be run again, and the format number is written last.
"""

from __future__ import annotations

import hashlib
import logging

import pymysql

from ..errors import Corrupt, InvalidRequest, NewerFormat, Unavailable
from ..printable import printable
from .mysql import Wire, bound
from .mysql_schema import migrations
from .sql.schema import FORMAT

__all__ = ["MysqlSetup"]

log = logging.getLogger("threadline")


class MysqlSetup:
    """Looks at what is in a database, and makes what is missing where that is wanted."""

    def __init__(self, prefix: str, shown: str, mode: str | bool, timeout: float, *, read_only: bool) -> None:
        self.prefix = prefix
        self.url = shown
        self.mode = mode
        self.timeout = timeout
        self.read_only = read_only
        self.most_bytes = 0  # what the server accepts in one packet; known when the store is open

    def ddl(self) -> str:
        """Everything that is executed on an empty database."""
        written = f"REPLACE INTO {self.prefix}meta (name, value) VALUES ('format', '{FORMAT}')"
        steps = [f"-- {step.number}: {step.reason}\n" + ";\n".join(step.statements) for step in migrations(self.prefix)]
        return ";\n".join([*steps, written]) + ";\n"

    async def open(self, wire: Wire) -> None:
        """Look at what is there, once, and create it where that is wanted."""
        [answer] = await wire.send([b"SELECT @@max_allowed_packet, DATABASE()"])
        size, database = answer.rows[0]
        if database is None:
            raise InvalidRequest("the given connection has no database: choose one with USE, or connect with one")
        found = await self._format(wire)
        self._refuse_newer(found or 0)
        if found is None:
            if self.mode is False or self.read_only:
                raise InvalidRequest(
                    "the database has no Threadline tables: call setup() once, or open it with setup='create'"
                )
            await self.create(wire)
        elif found < FORMAT and self.mode != "migrate":
            raise InvalidRequest(
                f"the database has format {found}: open it once with setup='migrate' to bring it to {FORMAT}"
            )
        elif found < FORMAT:
            await self.create(wire)
        await self._say_what_is_not_imported(wire)
        # The server counts a byte for the command, and a little besides.
        self.most_bytes = int(size) - 64

    async def create(self, wire: Wire) -> None:
        """Apply the migrations that are missing, one process at a time."""
        [answer] = await wire.send([b"SELECT DATABASE()"])
        name = hashlib.blake2b(f"{answer.rows[0][0]}/{self.prefix}".encode(), digest_size=16).hexdigest()
        lock = f"threadline-{name}".encode()
        wait = max(1, int(self.timeout))
        [answer] = await wire.send([b"SELECT GET_LOCK('%b', %d)" % (lock, wait)])
        if answer.rows[0][0] != 1:
            raise Unavailable(f"another process has been setting up {self.url} for {wait} s: try again")
        try:
            found = await self._format(wire) or 0
            self._refuse_newer(found)
            for step in migrations(self.prefix):
                if found < step.number:
                    for statement in step.statements:
                        await wire.send([statement.encode()])
            values = (b"%d" % FORMAT,)
            written = f"REPLACE INTO {self.prefix}meta (name, value) VALUES ('format', ?)"
            await wire.send([bound(written, values), b"COMMIT"])
        finally:
            await wire.send([b"SELECT RELEASE_LOCK('%b')" % lock])

    def _refuse_newer(self, found: int) -> None:
        if found > FORMAT:
            raise NewerFormat(f"the database has format {found}, this version reads up to {FORMAT}: upgrade threadline")

    async def _format(self, wire: Wire) -> int | None:
        try:
            [answer] = await wire.send([f"SELECT value FROM {self.prefix}meta WHERE name = 'format'".encode()])
        except pymysql.err.ProgrammingError as error:
            if error.args[0] == pymysql.constants.ER.NO_SUCH_TABLE:
                return None
            raise
        try:
            return int(bytes(answer.rows[0][0])) if answer.rows else None
        except (TypeError, ValueError):
            raise Corrupt(f"{self.url}: the record of the store's format is damaged") from None

    async def _say_what_is_not_imported(self, wire: Wire) -> None:
        """LangGraph's own tables are never touched; threads in them must not seem lost."""
        [answer] = await wire.send(
            [
                b"SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = "
                b"'checkpoints' AND column_name IN ('thread_id', 'checkpoint_ns', 'parent_checkpoint_id')"
            ]
        )
        if answer.rows[0][0] != 3:
            return
        [ours] = await wire.send([f"SELECT 1 FROM {self.prefix}threads LIMIT 1".encode()])
        [theirs] = await wire.send([b"SELECT 1 FROM checkpoints LIMIT 1"])
        if theirs.rows and not ours.rows:
            log.warning(
                "%s holds threads of LangGraph's own saver, which Threadline does not read in place: "
                "bring them over with `threadline import`",
                printable(self.url),
            )
