"""How a script or a command gets to the server, for both halves, and how many do so at once.

A script is a file in lua/, whose first line says which other files it `uses`. All values are bound: KEYS are those of
keys.py, in order. Arguments are taken one by one, because Lua cannot spread a long list over a call. A script ends
within a batch; large pools are read page by page.

A *generation* (backends/server.py) ends when a connection breaks, when a new one leads to another run of a server, and
when a server answers that does not know our scripts: it was restarted, or another took its place. Nothing that was
known in an earlier generation is relied on.

Each call has a turn, which a pool lends (backends/lending.py). The driver's pools count a connection as lent for ever
when the exception of a signal handler arrives between two lines, and take back one whose answer was never read: the
next command would take that answer for its own. So a turn of the sync half holds connections of its own, one for each
server that it went to. They are closed when the turn has not ended well. A connection that an interrupt loses between
two lines is freed with its memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import redis
from redis import exceptions

from ...base.drive import settled
from ...errors import ThreadlineError
from ..lending import Pool
from ..server import GENERATION_SHIFT, Lend, ServerIdentity, has_input
from .errors import NewGeneration

__all__ = ["ClientPool", "Link", "Script", "Turn", "TurnDriver", "TurnPool", "script"]

T = TypeVar("T")
Call = tuple[str, Sequence[bytes], Sequence[Any]]  # the name of a script, keys, arguments
Work = Callable[[Any], Coroutine[Any, Any, T]]  # on a client
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
        self,
        lend: Lend,
        identity: ServerIdentity,
        translated: Callable[[Exception], ThreadlineError],
        *,
        has_lines: bool,
        is_cluster: bool,
        where: str,
    ) -> None:
        self._lend = lend
        self.identity = identity
        self._translated = translated
        # Whether turns hold the connections; those of an event loop and of a given client are held by that client.
        self._has_lines = has_lines
        self.is_cluster = is_cluster
        # Whether commands go to one server over blocking connections of our own.
        self.is_direct = has_lines and not is_cluster
        self.where = where

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

    async def exchange(self, *commands: Sequence[Any]) -> list[Any]:
        """The answers of commands that are sent together, in order, by a link that is direct."""
        try:
            return await self._in_turn(partial(_exchange_all, commands))
        except _ERRORS as error:
            raise self._translated(error) from None

    async def batch(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers of several commands, in one go."""
        return self._checked(await self._pipelined(commands))

    async def _do(self, *words: Any) -> Any:
        if words[0] in _PLAIN and self.is_direct:
            return await self._in_turn(partial(_exchange, words))

        async def execute(client: Any) -> Any:
            return await settled(client.execute_command(*words))

        return await self._in_turn(execute)

    async def _pipelined(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers of several commands; an error is an answer too."""

        async def execute(client: Any) -> list[Any]:
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
        async def act(turn: Turn) -> T:
            if not self._has_lines:
                return await work(turn.client)
            before, _here.turn = getattr(_here, "turn", None), turn  # a signal handler may make a call within a call
            try:
                return await work(turn.client)
            finally:
                _here.turn = before

        try:
            return await self._lend(act)  # type: ignore[no-any-return]
        except exceptions.RedisClusterException as error:
            if _is_of_driver(error):
                raise
            raise error.__cause__ from None  # type: ignore[misc]

    def _checked(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._translated(answer) from None
        return answers


def _is_of_driver(error: BaseException) -> bool:
    """Whether the driver failed, and no signal handler raised.

    The client of a cluster takes the exception of a signal handler for a node that does not answer.
    """
    cause = error.__cause__ or error if isinstance(error, exceptions.RedisClusterException) else error
    return isinstance(cause, (redis.RedisError, exceptions.RedisClusterException, OSError))


async def _exchange(words: Sequence[Any], client: Any) -> Any:
    """The answer of one command: what the driver's client does, without its counts and callbacks."""
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_packed_command((packed(words),), check_health=False)
        return connection.read_response()
    finally:
        pool.release(connection)


async def _exchange_all(commands: Sequence[Sequence[Any]], client: Any) -> list[Any]:
    """The answers to several commands. All are read before an error is raised: none may stay unread."""
    pool = client.connection_pool
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


class TurnDriver:
    """Turns of one client, as a pool lends them."""

    def __init__(self, make: Callable[[], Any], *, renews_client: bool = False) -> None:
        self._make = make
        # Whether an interrupt may leave the client half changed, so that another one is made.
        self._renews_client = renews_client
        self._lock = threading.Lock()
        self.made: Any = None

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

    async def connect(self) -> Turn:
        return Turn(self)

    def is_good(self, turn: Turn, idle_seconds: float) -> bool:
        # Each connection is looked at when it is used; those of a client that was dropped are used no more.
        return turn.used is None or turn.used is self.made

    def is_reusable(self, turn: Turn, error: BaseException | None) -> bool:
        if self._renews_client and error is not None and not _is_of_driver(error):
            self.made = None
        # The server's refusal is the whole of its answer: the connection is in the middle of nothing.
        is_well = error is None or isinstance(error, redis.ResponseError)
        return is_well and len(turn.free) == len(turn.all)

    def close(self, turn: Turn) -> None:
        turn.close()

    async def part(self, turn: Turn) -> None:
        turn.close()


class Turn:
    """The connections that one call of a client may use, one for each server: alone, so that no two calls wait for each
    other on their way to several nodes of a cluster."""

    __slots__ = ("_driver", "all", "free", "used")

    def __init__(self, driver: TurnDriver) -> None:
        self._driver = driver
        self.used: Any = None  # the client whose connections these are
        self.all: list[Any] = []
        # Those that the driver has given back: it may ask for them again, within this turn or the next one.
        self.free: list[tuple[TurnPool, Any]] = []

    @property
    def client(self) -> Any:
        """The client of this call."""
        made = self._driver.made
        self.used = made if made is not None else self._driver.client
        return self.used

    def close(self) -> None:
        for connection in self.all:
            connection.disconnect()


class ClientPool(Pool):
    """Turns of the tasks of one event loop, whose client has the connections."""

    _driver: TurnDriver

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop = asyncio.get_running_loop()

    async def aclose(self) -> None:
        await super().aclose()
        if self._driver.made is not None and not self._places.taken:
            await self._driver.made.aclose()

    def _give_back(self, hold: Any) -> None:
        super()._give_back(hold)
        if self._is_closed and not self._places.taken:  # the last call that was under way
            self._close_soon()

    def shut(self) -> None:
        super().shut()
        self._close_soon()

    def _close_soon(self) -> None:
        if self._loop.is_running():  # this is called on it; else the connections end with their memory
            self._closing = self._loop.create_task(self.aclose())


class TurnPool(redis.ConnectionPool):
    """Connections to one server, all of them in turns."""

    def get_connection(self, *_: Any, **__: Any) -> Any:
        turn = _here.turn
        for position, resting in enumerate(turn.free):
            if resting[0] is self:
                connection = resting[1]
                del turn.free[position]
                break
        else:
            connection = self.connection_class(**self.connection_kwargs)
            turn.all.append(connection)
        if getattr(connection, "_sock", None) is None:
            connection.connect()
        # Something unasked waits there, or the server has gone.
        if _can_read(connection):
            connection.disconnect()
            connection.connect()
        return connection

    def release(self, connection: Any) -> None:
        if connection.should_reconnect():
            connection.disconnect()
        _here.turn.free.append((self, connection))


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
