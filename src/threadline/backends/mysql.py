"""MySQL and MariaDB: the dialect, a transaction, and what an error of the server means.

Decided here: values are bound by us, as hexadecimal literals, which no character set or mode of a server can
misread, so that both drivers send the same and nothing is re-encoded. Statements whose answer nobody needs
wait, and travel with the next one that has one, or with COMMIT: a put takes two round trips. A server stops
at the first statement of a packet that fails, so a COMMIT behind it is never reached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from pymysql import err
from pymysql.constants import ER

from ..errors import Closed, Conflict, Corrupt, InvalidRequest, ReadOnly, StorageFull, ThreadlineError, Unavailable
from .mysql_schema import ID_BYTES, TEXT_COLUMNS, MysqlStatements, key_of, rewritten
from .port import Applied, Change, Found, Stale, ThreadRow, Witness
from .rules import own_words
from .sql.backend import SqlBackend, Transaction
from .sql.reader import found_row, ordered_writes

__all__ = [
    "Answer",
    "LOST",
    "MysqlBackend",
    "MysqlDialect",
    "MysqlTransaction",
    "NeedsSnapshot",
    "READ_ONLY",
    "Wire",
    "bound",
    "translate",
]

# Rows of one insert stay below this, whatever a packet may hold.
_MOST_INSERT_BYTES = 4 * 1024 * 1024
# Whoever loses this often against others who begin and delete the same thread gives up for now.
_MOST_TURNS = 50


class MysqlDialect:
    """The common SQL with keyed columns; upserts, JSON and placeholders in MySQL's way."""

    name = "mysql"
    most_values = 512
    share_lock = " LOCK IN SHARE MODE"  # FOR SHARE is only MySQL's; both servers know these words

    def text(self, statement: str) -> str:
        return rewritten(statement)

    def insert(self, table: str, columns: str, key: str, *, replace: bool) -> str:
        names, marks = [], []
        for column in columns.split(", "):
            if column == "name":
                names.append(column)
                marks.append("?name")
            elif column in ("thread_id", "namespace", "task_id"):
                names += [column, f"{column}_full"]
                marks.append(f"?{column}_full")
            else:
                names.append(column)
                marks.append("?")
        body = f"INTO {table} ({', '.join(names)}) VALUES ({', '.join(marks)})"
        if replace:
            return f"REPLACE {body}"
        if key in ("name", "thread_id"):
            return f"INSERT {body}"  # whether it was there is asked; see MysqlTransaction.run
        # IGNORE would also swallow what does not fit.
        return f"INSERT {body} ON DUPLICATE KEY UPDATE pool = pool"

    def json_equals(self, column: str, key: str, value: Any) -> tuple[str, list[Any]]:
        # The JSON is ours and flat: a key and a value that are there stand in it as these very bytes. A longer
        # value may match as well, which the core sorts out.
        return f"instr({column}, concat(?, ?)) > 0", [f"{json.dumps(key)}:", json.dumps(value)]

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        mark = "?thread_id" if column.endswith("thread_id") else "?"
        return f"{column} IN ({', '.join([mark] * len(values))})", list(values)


class Answer(NamedTuple):
    """What the server said to one statement."""

    rows: Sequence[Any]
    names: tuple[str, ...]
    changed: int


class Wire(Protocol):
    """A connection that statements travel on."""

    # How many bytes a packet may have.
    most_bytes: int
    # What is added to an epoch that is read here.
    doubted: int

    async def send(self, statements: Sequence[bytes]) -> list[Answer]:
        """The answers to these statements, in one round trip where the connection can do that."""


class NeedsSnapshot(Exception):
    """Work that was taken for a single statement has a second one."""


class MysqlTransaction:
    """A transaction on a wire; begins with its first packet."""

    def __init__(self, wire: Wire, sql: MysqlStatements, begin: Sequence[bytes], *, is_single: bool = False) -> None:
        self._wire = wire
        self._sql = sql
        self._waiting = list(begin)
        self._waiting_bytes = sum(map(len, begin))
        self._is_single = is_single
        self.doubted = wire.doubted
        self.has_begun = False
        # The rows that changes rely on, by thread, and how many of them were there when the thread was held.
        self.witnesses: dict[str, Sequence[Witness]] = {}
        self.found_witnesses: dict[str, int] = {}

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        if self._is_single and self.has_begun:
            raise NeedsSnapshot
        await self._add(bound(statement, values))
        return _with_text((await self._flush())[-1])

    async def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        await self._add(bound(statement, values))
        if statement in self._sql.can_wait:
            return 0
        try:
            return (await self._flush())[-1].changed
        except err.IntegrityError as error:
            if error.args[0] == ER.DUP_ENTRY:
                return 0  # only the statement is taken back
            raise

    async def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        most = min(_MOST_INSERT_BYTES, self._wire.most_bytes)
        for each in bound_many(statement, values, most_bytes=most):
            await self._add(each)

    async def lock(self, pool: int, *, exclusive: bool) -> bool:
        await self.rows(self._sql.hold[exclusive], (pool,))
        return True

    async def held(self, thread_id: str, *, exclusive: bool) -> tuple[int | None, ThreadRow | None]:
        """The pool that is held now, and the thread as it is thereafter, in one go."""
        await self._add(bound(self._sql.hold_of[exclusive], (thread_id,)))
        asked = self.witnesses.get(thread_id, ())
        for witness in asked:
            await self._add(bound(self._sql.witness_of_thread, (thread_id, *witness)))
        await self._add(bound(self._sql.thread, (thread_id,)))
        answers = await self._flush()
        self.found_witnesses[thread_id] = sum(len(answers.pop(-2).rows) for _ in asked)
        locked, threads = answers[-2].rows if len(answers) > 1 else (), _with_text(answers[-1])
        return (locked[0][0] if locked else None), (ThreadRow(*threads[0]) if threads else None)

    async def both(self, first: tuple[str, Sequence[Any]], second: tuple[str, Sequence[Any]]) -> list[list[Any]]:
        """The rows of two queries that do not depend on each other, and the end of the transaction."""
        if self._is_single:
            raise NeedsSnapshot
        for statement, values in (first, second):
            await self._add(bound(statement, values))
        await self._add(b"COMMIT")
        answers = await self._flush()
        self.has_begun = False
        return [_with_text(answers[-3]), _with_text(answers[-2])]

    async def finish(self) -> None:
        """Commit whatever there is."""
        if self._is_single or not (self.has_begun or self._waiting_bytes):
            return
        await self._add(b"COMMIT")
        await self._flush()
        self.has_begun = False

    async def _add(self, statement: bytes) -> None:
        if len(statement) > self._wire.most_bytes:
            raise InvalidRequest(
                f"a value takes {len(statement)} bytes to send, and the server accepts {self._wire.most_bytes} "
                f"(max_allowed_packet): raise that, nothing was written"
            )
        if self._waiting_bytes + len(statement) > self._wire.most_bytes:
            await self._flush()
        self._waiting.append(statement)
        self._waiting_bytes += len(statement) + 1

    async def _flush(self) -> list[Answer]:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self.has_begun = True
        return await self._wire.send(waiting)


class MysqlBackend(SqlBackend):
    """The common backend, with fewer round trips and rows for locks."""

    sql: MysqlStatements

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        for change in changes:
            for row in change.checkpoints:
                check_id(row.id)
                check_id(row.parent)
            for write in change.writes:
                check_id(write.checkpoint_id)
        return await super().apply(changes)

    async def _apply_all(self, changes: Sequence[Change], tx: Transaction) -> list[Applied | Stale]:
        assert isinstance(tx, MysqlTransaction)
        for change in changes:
            if change.witnesses:
                tx.witnesses[change.thread_id] = change.witnesses
        return await super()._apply_all(changes, tx)

    async def _has_all(self, change: Change, place: tuple[int, int], tx: Transaction) -> bool:
        assert isinstance(tx, MysqlTransaction)
        return tx.found_witnesses.get(change.thread_id, 0) >= len(change.witnesses)

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        if not with_writes:
            return await super().find(thread_id, namespace, checkpoint_id, with_writes=False)
        sql, place = self.sql, (thread_id, namespace)

        async def work(tx: Transaction) -> Found | None:
            assert isinstance(tx, MysqlTransaction)
            if checkpoint_id is None:
                rows, writes = await tx.both((sql.newest, place), (sql.newest_writes, (*place, *place)))
            else:
                named = (*place, checkpoint_id)
                rows, writes = await tx.both((sql.find, named), (sql.found_writes, named))
            return found_row(rows[0], tx.doubted)._replace(writes=ordered_writes(writes)) if rows else None

        return await self.database.read(work)

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        if own_words(before) != own_words(after):
            return await super().swap_thread(before, after)
        # A row that is set to what it was does not count as changed.
        now = await self.thread(before.thread_id)
        return now is not None and own_words(now) == own_words(before)

    async def _held(self, thread_id: str, tx: Transaction, *, exclusive: bool) -> ThreadRow | None:
        assert isinstance(tx, MysqlTransaction)
        for _ in range(_MOST_TURNS):
            pool, thread = await tx.held(thread_id, exclusive=exclusive)
            if thread is None or thread.status == "deleted" or thread.pool == pool:
                return thread
        raise Unavailable(f"others keep deleting and beginning the thread {thread_id!r}: try again")

    async def _begin(self, change: Change, deleted: ThreadRow | None, tx: Transaction) -> ThreadRow | None:
        made = await super()._begin(change, deleted, tx)
        if made is not None and change.joins is None:
            await tx.run(self.sql.add_pool, (made.pool,))
        return made


def check_id(checkpoint_id: str | None) -> None:
    """Refuse a checkpoint id that its key could not hold whole."""
    if checkpoint_id is not None and len(checkpoint_id) * 4 > ID_BYTES and len(_encoded(checkpoint_id)) > ID_BYTES:
        raise InvalidRequest(f"a checkpoint id may take {ID_BYTES} bytes on MySQL, not {len(_encoded(checkpoint_id))}")


def bound(statement: str, values: Sequence[Any]) -> bytes:
    """A statement with its values, ready to be sent."""
    pieces, kinds = _template(statement)
    parts = [pieces[0]]
    for kind, value, piece in zip(kinds, values, pieces[1:], strict=True):
        parts.append(_literal(value, kind))
        parts.append(piece)
    return b"".join(parts)


def bound_many(statement: str, values: Sequence[Sequence[Any]], *, most_bytes: int) -> list[bytes]:
    """The statements for several sets of values: inserts of many rows, or one statement for each."""
    head, mark, tail = statement.partition(" VALUES ")
    if not mark:
        return [bound(statement, each) for each in values]
    row, close, tail = tail.partition(")")
    start, end = (head + mark).encode(), tail.encode()
    made: list[bytes] = []
    rows: list[bytes] = []
    size = 0
    for each in values:
        one = bound(row + close, each)
        if rows and size + len(one) > most_bytes - len(start) - len(end):
            made.append(start + b", ".join(rows) + end)
            rows, size = [], 0
        rows.append(one)
        size += len(one) + 2
    return [*made, start + b", ".join(rows) + end] if rows else made


@lru_cache(maxsize=1024)
def _template(statement: str) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """The text around the values, and which kind of value goes where."""
    pieces = re.split(r"\?(\w*)", statement)
    return tuple(piece.encode() for piece in pieces[::2]), tuple(pieces[1::2])


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _literal(value: Any, kind: str) -> bytes:
    """A value as SQL; a kind makes it the key of a column, with its whole text behind it or not."""
    if value is None:
        return b"NULL"
    if isinstance(value, (str, bytearray, memoryview)):
        value = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
    if isinstance(value, bytes):
        if not kind:
            return _quoted(value)
        column = kind.removesuffix("_full")
        key = key_of(column, value)
        if kind == column:
            return _quoted(key)
        return _quoted(key) + b", " + (b"NULL" if key is value else _quoted(value))
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float) and value - value == 0:
        # An exponent makes it a double; without one it would be a decimal.
        return (repr(value) if "e" in repr(value) else f"{value!r}e0").encode()
    raise InvalidRequest(f"MySQL has no column for {type(value).__name__} values such as this one")


def _quoted(value: bytes) -> bytes:
    # Digits only: whatever character set or mode the server parses in, nothing can end the literal.
    return b"X'" + value.hex().encode() + b"'"


@lru_cache(maxsize=256)
def _text_positions(names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(position for position, name in enumerate(names) if name in TEXT_COLUMNS)


def _with_text(answer: Answer) -> list[Any]:
    """Rows whose text columns are text."""
    positions = _text_positions(answer.names)
    if not positions:
        return list(answer.rows)
    made = []
    for row in answer.rows:
        values = list(row)
        for position in positions:
            value = values[position]
            if value is not None:
                values[position] = value.decode("utf-8", "surrogatepass")
        made.append(values)
    return made


# The connection is gone, or never was.
LOST = frozenset([0, 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2014, 2027, 2055, 4031])
_BUSY = frozenset([1040, 1180, 1203, 1205, 1206, 1213, 1226, 1317, 1969, 3024, 3058, 3572])
_FULL = frozenset([1021, 1026, 1114, 1041])
_DENIED = frozenset([1044, 1045, 1130, 1698, 1862, 3118, 3955])
_NO_RIGHT = frozenset([1142, 1143, 1227, 1370])
READ_ONLY = frozenset([1290, 1792, 1836, 3100])
_DAMAGED = frozenset([1030, 1034, 1194, 1195, 1712, 1877])


def translate(error: BaseException, where: str, *, is_given: bool = False) -> ThreadlineError:
    """What an error of the driver means to the caller; never with what the server quotes of a statement."""
    code = error.args[0] if isinstance(error, err.MySQLError) and error.args else None
    if isinstance(error, err.InterfaceError) and code in (0, "(0, '')") and is_given:
        return Closed(f"the given connection to {where} was closed")
    if not isinstance(error, err.MySQLError):
        return Unavailable(f"cannot reach {where}: {type(error).__name__}")
    if code in LOST or (code is None and isinstance(error, err.OperationalError)):
        return Unavailable(f"the connection to {where} failed (error {code}): is the server up, and the address right?")
    if code in _BUSY:
        return Unavailable(f"{where} is busy, or another transaction was in the way (error {code}): try again")
    if code in _FULL:
        return StorageFull(f"no room left at {where} (error {code}): free some space, nothing was written")
    if code in READ_ONLY:
        return ReadOnly(f"{where} is read-only (error {code}): connect to the primary, or open it with read_only=True")
    return _translate_mistake(code, where)


def _translate_mistake(code: Any, where: str) -> ThreadlineError:
    if code in _DENIED:
        return InvalidRequest(f"{where} refused the login (error {code}): check user, password and the user's rights")
    if code == ER.BAD_DB_ERROR:
        return InvalidRequest(f"there is no such database at {where}: create it, or correct the URL")
    if code in _NO_RIGHT:
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, ALTER"
        return InvalidRequest(f"the user lacks a right at {where} (error {code}): GRANT {rights} ON the database")
    if code == ER.NO_SUCH_TABLE:
        return InvalidRequest(f"{where} has no Threadline tables under this table_prefix: call setup() once")
    if code == ER.BAD_FIELD_ERROR:
        return InvalidRequest(f"the tables at {where} are not Threadline's: choose another table_prefix")
    if code == ER.NET_PACKET_TOO_LARGE:
        return InvalidRequest(f"{where} refused a packet as too large: raise max_allowed_packet on the server")
    if code == ER.DATA_TOO_LONG:
        return InvalidRequest(f"an id is longer than its column at {where}: nothing was written")
    if code == 1665:
        return InvalidRequest(f"{where} logs statements, which READ COMMITTED cannot do: set binlog_format=ROW")
    if code in _DAMAGED:
        return Corrupt(f"{where} reports damaged tables (error {code}): check them with CHECK TABLE")
    if code == ER.DUP_ENTRY:
        return Conflict(f"another writer was first at {where}: try again")
    return InvalidRequest(f"{where} refused a statement (error {code}): its log says more")
