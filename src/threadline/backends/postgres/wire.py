"""How statements travel to PostgreSQL: one prepared statement, or a batch, each in one round trip, with a deadline.

`ask` is the way of puts and gets: one statement, without a cursor of the driver's, which would cost more than the rest
of a put. `batch` is the way of everything else. Each is a transaction of its own unless one was begun.

A batch ends with its Sync. The driver's own pipeline sends a Flush behind the last Sync. The server has nothing left
to answer then, but PgBouncer in transaction mode (1.18) gives a Flush that arrives alone a server connection, and waits
for ever for the end of a transaction that never began. A Sync makes the server send all it has: no Flush is needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from ...base.drive import settled
from ...base.hashing import blake2b
from ..layers.patience import is_unhurried
from .binary import ADAPTERS, bound, plain, wired

__all__ = [
    "MOST_PREPARED", "NoAnswer", "Question", "Result", "Session", "Statement", "Step", "is_between_batches", "is_idle",
]  # fmt: skip

# So many statements may be on their way at once; more would only pile up in memory.
_MOST_STEPS = 256
# So many statements are prepared on a connection, by `ask` and by the driver: those of every shape of a put that
# programs have.
MOST_PREPARED = 250
# For so long an answer is waited for before the driver's own waiting begins.
_QUICK_MILLISECONDS = 50
# For so long a server may take to hear that a statement is not waited for any more.
_CANCEL_SECONDS = 5.0
# The forms of so many parameters; no statement has more.
_BINARY = [Format.BINARY] * 256
# A name that stands for nothing or for something else, and a plan of tables that were altered since.
_FORGOTTEN = ("26000", "42P05", "0A000")


class Statement:
    """A statement whose parameters are numbered, and the name under which it is prepared.

    The name says what the text is. Behind a pooler, where sessions have several clients, a name that is taken already
    is therefore that of this very statement.
    """

    __slots__ = ("name", "text")

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self.name = b"threadline_" + blake2b(self.text, digest_size=16).hexdigest().encode()


# A statement and what it binds: for `batch`, and for `ask_all`.
Step = tuple[str, Sequence[Any]]
Question = tuple[Statement, Sequence[Any]]


class Result(NamedTuple):
    """The row count and rows of one statement."""

    changed: int
    rows: list[Any]


class Session:
    """One connection of either half, as its backend uses it."""

    def __init__(
        self,
        connection: Any,
        generation: int = 0,
        patience: float | None = None,
        waits: Callable[[int], Any] | None = None,
    ) -> None:
        self.connection = connection
        self.pgconn = connection.pgconn
        # How often the server had been lost when the connection was made.
        self.generation = generation
        # For how many seconds a statement waits for its answer; None for as long as it takes.
        self._patience = patience
        # Waits for so many milliseconds until something can be read; None for a connection that was given.
        self.waits = waits
        # Whether the calling thread may wait for an answer.
        self.asks_at_once = waits is not None and not isinstance(connection, psycopg.AsyncConnection)
        self._memory = _memory_of(connection)

    def is_at_rest(self) -> bool:
        """Whether the connection is in no transaction and in the middle of nothing, as far as the driver knows."""
        pgconn = self.pgconn
        return bool(
            pgconn.transaction_status == TransactionStatus.IDLE
            and pgconn.pipeline_status == PipelineStatus.OFF
            and self.connection._pipeline is None
        )

    async def ask(self, statement: Statement, values: Sequence[Any]) -> list[Any]:
        """The rows that a statement gives; it is prepared when first used, where the connection allows that."""
        memory, rows = self._memory, None
        if self.asks_at_once:
            rows = self.asked(statement, values)
        elif statement.name in memory.prepared:
            [result] = await self._answered(memory.asked(self.pgconn, statement, wired(values)))
            rows = memory.rows_unless_forgotten(result)
        return (await self.ask_all([(statement, values)]))[0] if rows is None else rows

    def asked(self, statement: Statement, values: Sequence[Any]) -> list[Any] | None:
        """The same on a session that `asks_at_once`; None where the statement has to be prepared first."""
        memory = self._memory
        if statement.name not in memory.prepared:
            return None
        return memory.rows_unless_forgotten(self._asked_at_once(statement.name, wired(values)))

    def _asked_at_once(self, name: bytes, values: list[Any]) -> Any:
        """The result of a statement that is prepared: what `_answered` gives, where no generator has to be driven.

        The driver waits where the server is not quick. An interrupt at any line leaves a connection that is closed, so
        the server is told to stop.
        """
        pgconn, results = self.pgconn, list[Any]()
        try:
            pgconn.send_query_prepared(name, values, _BINARY[: len(values)], Format.BINARY)
            if pgconn.flush():  # more than fits into the socket's buffer
                return self._answered_now(execute(pgconn))[0]
            while True:
                if not pgconn.is_busy():
                    result = pgconn.get_result()
                    if result is None:
                        return results[0]
                    results.append(result)
                elif self.waits(_QUICK_MILLISECONDS):  # type: ignore[misc]
                    pgconn.consume_input()
                else:
                    return (results + self._answered_now(fetch_many(pgconn)))[0]
        except psycopg.Error:
            if results and results[0].status == ExecStatus.FATAL_ERROR:
                return results[0]  # the reason why the connection was lost then
            raise
        except BaseException:
            if pgconn.transaction_status == TransactionStatus.ACTIVE:
                with suppress(psycopg.Error):
                    self.connection.cancel_safe(timeout=_CANCEL_SECONDS)
            raise

    async def ask_all(self, questions: Sequence[Question]) -> list[list[Any]]:
        """The rows that each of these statements gives; all of them, up to the one Sync, are one transaction."""
        memory = self._memory
        sent = [(statement, wired(values)) for statement, values in questions]
        results = await self._answered(memory.asked_all(self.pgconn, sent))
        if any([memory.is_of_pooler(one) for one in results if one.status == ExecStatus.FATAL_ERROR]):
            results = await self._answered(memory.asked_all(self.pgconn, sent))
        return [memory.rows(result) for result in results]

    async def _answered(self, asked: Generator[Any, Any, list[Any]]) -> list[Any]:
        """The results of what a generator asks the server."""
        connection = self.connection
        if not isinstance(connection, psycopg.AsyncConnection):
            return self._answered_now(asked)
        async with connection.lock:
            return await connection.wait(answered(asked, self.pgconn, self._deadline()))

    def _answered_now(self, asked: Generator[Any, Any, list[Any]]) -> list[Any]:
        connection = self.connection
        with connection.lock:
            results: list[Any] = connection.wait(answered(asked, self.pgconn, self._deadline()))
        return results

    async def batch(self, steps: Sequence[Step]) -> list[Result]:
        """Run statements in order, in one round trip; the first that fails ends the batch, and is raised."""
        connection, deadline = self.connection, self._deadline()
        kind = _AsyncCursor if isinstance(connection, psycopg.AsyncConnection) else _Cursor
        cursors: list[Any] = [kind(connection, deadline) for _ in steps]
        if len(steps) == 1:
            await settled(cursors[0].execute(steps[0][0], bound(steps[0][1]), binary=True))
        for start in range(0, len(steps) if len(steps) > 1 else 0, _MOST_STEPS):
            end_with_sync(connection, deadline)
            async with _Entered(connection.pipeline()):
                for cursor, (statement, values) in zip(
                    cursors[start : start + _MOST_STEPS], steps[start : start + _MOST_STEPS], strict=True
                ):
                    await settled(cursor.execute(statement, bound(values), binary=True))
        return [
            Result(cursor.rowcount, plain(await settled(cursor.fetchall())) if has_rows(cursor) else [])
            for cursor in cursors
        ]

    def _deadline(self) -> float:
        if self._patience is None or is_unhurried.get():
            return math.inf
        return time.monotonic() + self._patience


class _Memory:
    """State kept for one connection between uses: its prepared statements."""

    connection = None

    def __init__(self, *, prepares: bool) -> None:
        self.prepares = prepares
        self.prepared: set[bytes] = set()
        self.adapters = ADAPTERS
        self._loading = Transformer(self)

    def asked(self, pgconn: Any, statement: Statement, values: list[Any]) -> Generator[Any, Any, list[Any]]:
        """The result of a statement that is prepared."""
        pgconn.send_query_prepared(statement.name, values, _BINARY[: len(values)], Format.BINARY)
        return (yield from execute(pgconn))  # type: ignore[no-any-return]

    def asked_all(
        self, pgconn: Any, questions: Sequence[tuple[Statement, list[Any]]]
    ) -> Generator[Any, Any, list[Any]]:
        """The results of statements, each prepared if need be; of one that cannot be, what the server said to that."""
        pgconn.enter_pipeline_mode()
        preparing = [self._send(pgconn, statement, values) for statement, values in questions]
        pgconn.pipeline_sync()
        yield from send(pgconn)
        results = []
        for (statement, _), is_prepared_now in zip(questions, preparing, strict=True):
            refusal = (yield from fetch_many(pgconn))[0] if is_prepared_now else None
            [result] = yield from fetch_many(pgconn)
            if refusal is not None and refusal.status == ExecStatus.COMMAND_OK:
                self.prepared.add(statement.name)  # whatever came of it: no rollback takes it back
                refusal = None
            results.append(refusal or result)
        yield from fetch_many(pgconn)  # the answer to the Sync
        pgconn.exit_pipeline_mode()
        return results

    def _send(self, pgconn: Any, statement: Statement, values: list[Any]) -> bool:
        """Send a statement; whether it is prepared by that."""
        formats = _BINARY[: len(values)]
        is_prepared = statement.name in self.prepared
        if not is_prepared and (not self.prepares or len(self.prepared) >= MOST_PREPARED):
            pgconn.send_query_params(statement.text, values, None, formats, Format.BINARY)
            return False
        if not is_prepared:
            pgconn.send_prepare(statement.name, statement.text)
        pgconn.send_query_prepared(statement.name, values, formats, Format.BINARY)
        return not is_prepared

    def is_of_pooler(self, result: Any) -> bool:
        """Whether a name stands for nothing, or for something already: another session answers than the one before. Or
        for a plan that does not hold any more, because a table was altered.

        From then on nothing is prepared here.
        """
        if result.status != ExecStatus.FATAL_ERROR or error_from_result(result).sqlstate not in _FORGOTTEN:
            return False
        self.prepares = False
        self.prepared.clear()
        return True

    def rows_unless_forgotten(self, result: Any) -> list[Any] | None:
        """The rows of a result; None where the statement is to be prepared anew."""
        if result.status != ExecStatus.TUPLES_OK and self.is_of_pooler(result):
            return None
        return self.rows(result)

    def rows(self, result: Any) -> list[Any]:
        """The rows of a result; raises what the server said instead."""
        if result.status == ExecStatus.TUPLES_OK:
            count: int = result.ntuples
            if not count or not result.nfields:
                return [()] * count
            loading = self._loading
            loading.set_pgresult(result)
            try:
                return plain(loading.load_rows(0, count, tuple))
            finally:
                loading.set_pgresult(None)
        raise error_from_result(result)


# Not in an attribute: a connection that is lost to an interrupt must end with the last reference to it.
_memories: WeakKeyDictionary[Any, _Memory] = WeakKeyDictionary()


def _memory_of(connection: Any) -> _Memory:
    memory = _memories.get(connection)
    if memory is None:
        memory = _memories[connection] = _Memory(prepares=connection.prepare_threshold is not None)
    return memory


class _Entered:
    """A context manager of either half's driver."""

    def __init__(self, manager: Any) -> None:
        is_async = hasattr(manager, "__aenter__")
        self._enter = manager.__aenter__ if is_async else manager.__enter__
        self._exit = manager.__aexit__ if is_async else manager.__exit__

    async def __aenter__(self) -> None:
        await settled(self._enter())

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await settled(self._exit(*raised))


def has_rows(cursor: Any) -> bool:
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def is_idle(connection: Any) -> bool:
    """Whether the connection is in no transaction."""
    return bool(connection.pgconn.transaction_status == TransactionStatus.IDLE)


def is_between_batches(connection: Any) -> bool:
    """Whether the connection is in the middle of no batch, as far as the driver knows."""
    return connection._pipeline is None and connection.pgconn.pipeline_status == PipelineStatus.OFF


class _OurCursor:
    """Our types and rows, whatever a given connection makes of its own, and an end of waiting."""

    def __init__(self, connection: Any, deadline: float) -> None:
        super().__init__(connection, row_factory=tuple_row)  # type: ignore[call-arg]
        self._deadline = deadline

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS

    def _execute_gen(self, *args: Any, **options: Any) -> Any:
        generator = super()._execute_gen(*args, **options)  # type: ignore[misc]
        return answered(generator, self._pgconn, self._deadline)  # type: ignore[attr-defined]


class _Cursor(_OurCursor, psycopg.Cursor[Any]):
    """A cursor of the sync half."""


class _AsyncCursor(_OurCursor, psycopg.AsyncCursor[Any]):
    """A cursor on a loop."""


class NoAnswer(psycopg.OperationalError):
    """The server said nothing for too long; its connection was closed."""


def answered(generator: Any, pgconn: Any, deadline: float) -> Generator[Any, Any, Any]:
    """A generator of the driver, ended when the deadline has passed and the server is silent.

    The driver resumes its generators every tenth of a second, whether something can be read or not.
    """
    try:
        wanted = next(generator)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                # It may be in the middle of an answer, and so cannot be used again.
                pgconn.finish()
                raise NoAnswer("no answer in time")
            wanted = generator.send(ready)
    except StopIteration as done:
        return done.value


def end_with_sync(connection: Any, deadline: float) -> None:
    """Let the next pipeline of a connection end with its Sync, and wait for no longer than the deadline."""
    if connection._pipeline is not None:
        return  # a given connection, inside a pipeline of its owner's
    kind = _AsyncPipeline if isinstance(connection, psycopg.AsyncConnection) else _Pipeline
    pipeline = kind(connection)
    pipeline.deadline = deadline
    connection._pipeline = pipeline


class _EndsWithSync:
    """Sends a Sync where psycopg's pipeline sends a Flush, and waits for the answer until a deadline."""

    deadline: float
    pgconn: Any
    _enqueue_sync: Any
    _communicate_gen: Any
    _is_over = False

    def _exit_gen(self) -> Any:
        if self.pgconn.status != ConnStatus.BAD:
            yield from answered(self._ended(), self.pgconn, self.deadline)
        self._is_over = True

    def _ended(self) -> Any:
        # Not in a `finally`, as the driver has it: an interrupt closes this generator, which must not go on then.
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        except psycopg.Error:
            yield from self._fetch_gen(flush=False)
            raise
        yield from self._fetch_gen(flush=False)

    def _exit(self, error: BaseException | None) -> None:
        try:
            super()._exit(error)  # type: ignore[misc]
        except psycopg.OperationalError:
            # Cut short in the middle: it is closed, and what is raised is what cut it short.
            self.pgconn.finish()
            if self._is_over:
                raise

    def _fetch_gen(self, *, flush: bool) -> Any:
        # First the rest of a batch that did not fit into the socket's buffer: from here on the driver only reads.
        yield from send(self.pgconn)
        yield from super()._fetch_gen(flush=False)  # type: ignore[misc]


class _Pipeline(_EndsWithSync, psycopg.Pipeline):
    """A pipeline of the sync half."""


class _AsyncPipeline(_EndsWithSync, psycopg.AsyncPipeline):
    """A pipeline of the async half."""
