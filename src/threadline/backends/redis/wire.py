"""How a script or a command gets to the server, for both halves, and how many do so at once.

A script is a file in lua/, whose first line says which other files it `uses`. All values are bound: KEYS are those of
keys.py, in order. Arguments are taken one by one, because Lua cannot spread a long list over a call. A script ends
within a batch; large pools are read page by page.

A *generation* (backends/server.py) ends when a connection breaks, when a new one leads to another run of a server, and
when a server answers that does not know our scripts: it was restarted, or another took its place. Nothing that was
known in an earlier generation is relied on.

Blocking connections are lent by turns. The driver's pools count a connection as lent for ever when the exception of a
signal handler arrives between two lines, and take back one whose answer was never read: the next command would take
that answer for its own. A turn holds the connections that its thread took. They return to their pools when the turn has
ended well, and are closed when it has not. A connection that an interrupt loses between two lines is freed with its
memory.
"""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import redis
from redis import exceptions

from ...base.drive import run_now, settled
from ...errors import InvalidRequest, StorageFull, ThreadlineError, Unavailable
from ..lending import Places, PoolFigures, Undisturbed
from ..server import GENERATION_SHIFT, ServerIdentity, exhausted, has_input
from .errors import AnotherServer, NewGeneration, translate

__all__ = ["GivenTurns", "Link", "LoopTurns", "NoTurns", "Script", "TurnPool", "Turns", "script"]

T = TypeVar("T")
Call = tuple[str, Sequence[bytes], Sequence[Any]]  # the name of a script, keys, arguments
Work = Callable[[], Coroutine[Any, Any, T]]
_USES = "-- uses: "
# Commands whose answer the driver's client leaves as it is.
_PLAIN = frozenset(("EVAL", "EVALSHA", "GET", "HGET", "HMGET"))
# What the driver raises; the one of asyncio AttributeError where another task closed the connection under a command.
_ERRORS = (redis.RedisError, exceptions.RedisClusterException, OSError, AttributeError, UnicodeError)
# The turn that a thread is in the middle of.
_here = threading.local()


class Script(NamedTuple):
    """A script and the digest under which a server knows it."""

    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script of a name, composed with the files that it uses."""
    own = _file(name)
    first = own.partition("\n")[0]
    used = first.removeprefix(_USES).split(", ") if first.startswith(_USES) else []
    text = "\n".join([*map(_file, used), own])
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _file(name: str) -> str:
    return files(__package__).joinpath(f"lua/{name}.lua").read_text(encoding="utf-8")


class Link:
    """A way to one server or cluster, over a blocking client or one of asyncio."""

    def __init__(
        self, make: Callable[[], Any], identity: ServerIdentity, turns: NoTurns, *, is_cluster: bool, where: str
    ) -> None:
        self._make = make
        self.made: Any = None
        self.turns = turns
        self._lock = threading.Lock()
        self.identity = identity
        self.is_cluster = is_cluster
        self.where = where

    @property
    def client(self) -> Any:
        """The driver's client, made on first use: that of a cluster connects at once, and may fail."""
        made = self.made  # read once: another thread may drop it meanwhile
        if made is None:
            with self._lock:
                made = self.made
                if made is None:
                    made = self.made = self._make()
        return made

    def stamped(self, epoch: Any, generation: int | None = None) -> int:
        """An epoch as callers see it, below the generation: it is stale once the pool's epoch or the server changed."""
        return int(epoch or 0) + ((self.identity.generation if generation is None else generation) << GENERATION_SHIFT)

    async def call(
        self, name: str, keys: Sequence[bytes], args: Sequence[Any] = (), *, generation: int | None = None
    ) -> Any:
        """The answer of a script. Raises NewGeneration where the server is not that of the `generation`."""
        one = script(name)
        words = (len(keys), *keys, *args)
        try:
            try:
                return await self._do("EVALSHA", one.sha, *words)
            except exceptions.NoScriptError:
                if generation is not None and self.identity.generation == generation:
                    self.identity.lose()
                    raise NewGeneration from None
                return await self._do("EVAL", one.text, *words)
        except _ERRORS as error:
            raise self._translated(error) from None

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        """The answers of several scripts, in one go."""
        words = [("EVALSHA", script(name).sha, len(keys), *keys, *args) for name, keys, args in calls]
        answers = await self._pipelined(words)
        for position, answer in enumerate(answers):
            if isinstance(answer, exceptions.NoScriptError):
                answers[position] = await self.call(*calls[position])
        return self._checked(answers)

    async def command(self, *words: Any) -> Any:
        """The answer of one command."""
        try:
            return await self._do(*words)
        except _ERRORS as error:
            raise self._translated(error) from None

    @property
    def is_direct(self) -> bool:
        """Whether commands go to one server over blocking connections of our own."""
        return self.turns.renews_client and not self.is_cluster

    async def exchange(self, *commands: Sequence[Any]) -> list[Any]:
        """The answers of commands that are sent together, in order, by a link that is direct."""
        try:
            return await self._in_turn(partial(_exchange_all, self.client.connection_pool, commands))
        except _ERRORS as error:
            raise self._translated(error) from None

    async def batch(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers of several commands, in one go."""
        return self._checked(await self._pipelined(commands))

    async def _do(self, *words: Any) -> Any:
        if words[0] in _PLAIN and self.is_direct:
            return await self._in_turn(partial(_exchange, self.client.connection_pool, words))

        async def execute() -> Any:
            # The client of a cluster is made in turn: an interrupt of that is looked for there.
            return await settled(self.client.execute_command(*words))

        return await self._in_turn(execute)

    async def _pipelined(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers of several commands; an error is an answer too."""

        async def execute() -> list[Any]:
            client = self.client
            if self.is_cluster and hasattr(client, "initialize"):
                await client.initialize()
            pipeline = client.pipeline(transaction=False)
            for words in commands:
                pipeline.execute_command(*words)
            return list(await settled(pipeline.execute(raise_on_error=False)))

        try:
            if len(commands) == 1:
                return [await self._do(*commands[0])]
            return await self._in_turn(execute) if commands else []
        except exceptions.ResponseError as error:
            return [error]
        except _ERRORS as error:
            raise self._translated(error) from None

    async def _in_turn(self, work: Work[T]) -> T:
        try:
            return await self.turns.run(work)
        except BaseException as error:
            cause = error.__cause__ if isinstance(error, exceptions.RedisClusterException) else error
            is_of_driver = isinstance(cause, (redis.RedisError, OSError))
            if self.is_cluster and self.turns.renews_client and cause is not None and not is_of_driver:
                # The interrupt may have met the client while it learned about its cluster: the next call makes another.
                # The client takes the exception of a signal handler for a node that does not answer.
                self.made = None
                raise cause from None
            raise

    def _checked(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._translated(answer) from None
        return answers

    def _translated(self, error: Exception) -> ThreadlineError:
        """An error of the driver as one of our tree; where the server did not answer, a new generation begins.

        Raised without its cause: the driver's words may hold what was sent.
        """
        if isinstance(error, ThreadlineError):
            return error
        if isinstance(error, UnicodeError):
            return InvalidRequest("ids and names must be text that UTF-8 can hold")
        made = NewGeneration() if isinstance(error, AnotherServer) else translate(error, self.where)
        if isinstance(made, Unavailable) and not isinstance(made, StorageFull):
            self.identity.lose()
        return made


async def _exchange(pool: TurnPool, words: Sequence[Any]) -> Any:
    """The answer of one command: what the driver's client does, without its counts and callbacks."""
    connection = pool.get_connection()
    try:
        connection.send_packed_command((packed(words),), check_health=False)
        return connection.read_response()
    finally:
        pool.release(connection)


async def _exchange_all(pool: TurnPool, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """The answers to several commands. All are read before an error is raised: none may stay unread."""
    connection = pool.get_connection()
    try:
        connection.send_packed_command((b"".join(map(packed, commands)),), check_health=False)
        answers = [_answer(connection) for _ in commands]
    finally:
        pool.release(connection)
    for answer in answers:
        if isinstance(answer, redis.ResponseError):
            raise answer
    return answers


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


def packed(words: Sequence[Any]) -> bytes:
    """A command as it stands on the wire."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if type(word) is not bytes:
            word = word if isinstance(word, (bytes, bytearray, memoryview)) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)


class NoTurns:
    """All calls go on at once; a given client counts by itself, and so does the pool of an event loop."""

    # Whether an interrupt may leave the client of a cluster half changed, so that another one is made.
    renews_client = False

    async def run(self, work: Work[T]) -> T:
        """The result of work, once it is its turn."""
        return await work()

    def figures(self, client: Any) -> PoolFigures | None:
        """The connections of a client; None where the client or its pool counts them."""
        return None


class GivenTurns(NoTurns):
    """Calls of a given blocking client go on at once, but never on the main thread, where a signal handler may raise.

    The pool of a client counts a connection as lent for ever when an interrupt meets it between two lines.
    """

    def __init__(self) -> None:
        self._undisturbed = Undisturbed()

    async def run(self, work: Work[T]) -> T:
        return self._undisturbed.run(lambda: run_now(work()))


class LoopTurns(NoTurns):
    """Turns for the tasks of an event loop: the asyncio client of a cluster fails where it should wait."""

    def __init__(self, count: int) -> None:
        import asyncio

        self._semaphore = asyncio.Semaphore(count)

    async def run(self, work: Work[T]) -> T:
        async with self._semaphore:
            return await work()


class Turns(NoTurns):
    """Turns for a number of threads, which wait at most so many seconds.

    On its way to several nodes the client of a cluster takes one connection after the other. Without turns, two threads
    could each hold the connection that the other one waits for.
    """

    renews_client = True

    def __init__(self, count: int, seconds: float | None, where: str) -> None:
        self._count = count
        self._seconds = seconds
        self._where = where
        self._places = Places(count)

    async def run(self, work: Work[T]) -> T:
        turn = _Turn()
        try:
            if not self._places.take(turn, self._seconds):
                raise exhausted(self._count, self._where, self._seconds or 0.0)
            _here.turn = turn
            result = await work()
            turn.is_well = True
            return result
        except BaseException as error:
            # The server's refusal is the whole of its answer: the connection is in the middle of nothing.
            turn.is_well = isinstance(error, redis.ResponseError)
            raise
        finally:
            try:
                self._end(turn)
            except BaseException:  # an interrupt may arrive here too
                turn.is_well = False
                self._end(turn)
                raise

    def figures(self, client: Any) -> PoolFigures | None:
        # The client of a cluster has a pool for each node.
        idle = len(getattr(getattr(client, "connection_pool", None), "_available_connections", ()))
        return PoolFigures(idle, self._places.taken, self._count, self._places.waiting)

    def _end(self, turn: _Turn) -> None:
        _here.turn = None
        turn.end()
        self._places.leave(turn)


class _Turn:
    """The connections that one call of a client holds."""

    __slots__ = ("_held", "is_well", "returned")

    def __init__(self) -> None:
        self.is_well = False
        self._held: list[tuple[TurnPool, Any]] = []
        # Given back by the driver, which may ask for them again within the turn.
        self.returned: list[tuple[TurnPool, Any]] = []

    def hold(self, pool: TurnPool, connection: Any) -> None:
        self._held.append((pool, connection))

    def again(self, pool: TurnPool) -> Any:
        """A connection to the same server that this turn has had before, or None."""
        for position, (owner, connection) in enumerate(self.returned):
            if owner is pool:
                del self.returned[position]
                return connection
        return None

    def end(self) -> None:
        """Let go of all connections; after an interrupt the rest is closed."""
        while self._held:
            pool, connection = self._held.pop()
            if self.is_well and any(connection is one for _, one in self.returned):
                pool.keep(connection)
            else:
                connection.disconnect()


class TurnPool(redis.ConnectionPool):
    """Connections to one server; the turns decide how many there are."""

    def get_connection(self, *_: Any, **__: Any) -> Any:
        turn = getattr(_here, "turn", None)
        connection = turn.again(self) if turn is not None else None
        if connection is None:
            connection = self._resting() or self.connection_class(**self.connection_kwargs)
            if turn is not None:
                turn.hold(self, connection)
        if getattr(connection, "_sock", None) is None:
            connection.connect()
        # Something unasked waits there, or the server has gone.
        if _can_read(connection):
            connection.disconnect()
            connection.connect()
        return connection

    def release(self, connection: Any) -> None:
        turn = getattr(_here, "turn", None)
        if turn is not None:
            turn.returned.append((self, connection))
        else:
            self.keep(connection)

    def keep(self, connection: Any) -> None:
        """A connection rests until it is asked for again."""
        if connection.should_reconnect():
            connection.disconnect()
        self._available_connections.append(connection)

    def _resting(self) -> Any:
        try:
            return self._available_connections.pop()
        except IndexError:
            return None


def _can_read(connection: Any) -> bool:
    try:
        sock, parser = getattr(connection, "_sock", None), getattr(connection, "_parser", None)
        buffer = getattr(parser, "_buffer", None)
        # Of TLS the socket does not know what is decrypted already.
        if type(sock) is not socket.socket or buffer is None:
            return bool(connection.can_read())
        # What the driver does by changing the timeout of the socket, reading, and changing it back.
        return has_input(sock) or bool(buffer.unread_bytes())
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        return True
