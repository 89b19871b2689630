"""How statements travel to PostgreSQL: a batch ends with its Sync, and the wait for its answer has an end.

The driver's own pipeline sends a Flush behind the last Sync. The server has nothing left to answer then, but PgBouncer
in transaction mode (1.18) gives a Flush that arrives alone a server connection, and waits for ever for the end of a
transaction that never began. A Sync makes the server send all it has: no Flush is needed.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.generators import send
from psycopg.pq import ConnStatus

__all__ = ["NoAnswer", "answered", "end_with_sync"]


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
                # What it is in the middle of is not known: nobody may use it again.
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
    """What both kinds of pipeline do otherwise than the driver's own."""

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
        # What does not fit into the socket's buffer is sent here; nobody would send it while answers are waited for.
        yield from send(self.pgconn)
        yield from super()._fetch_gen(flush=False)  # type: ignore[misc]


class _Pipeline(_EndsWithSync, psycopg.Pipeline):
    """A pipeline of the sync half."""


class _AsyncPipeline(_EndsWithSync, psycopg.AsyncPipeline):
    """A pipeline of the async half."""
