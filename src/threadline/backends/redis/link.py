"""How a script or a command gets to the server, in both halves, and what the server's errors mean.

`doubts` counts how often this process lost sight of the server: a connection broke, a new one led to another run of
a server, or one answered that does not know our scripts. It was started anew then, or another took its place, and
what was acknowledged before may be gone there: nothing that was known under an earlier count is relied on.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import redis
from redis import exceptions

from ...errors import InvalidRequest, StorageFull, ThreadlineError, Unavailable
from .scripts import Script

__all__ = ["AnotherServer", "BlockingLink", "Call", "Doubted", "Link", "LoopLink", "Sight", "translate"]

Call = tuple[Script, Sequence[bytes], Sequence[Any]]
_CHANGED = "the server was started anew, or another took its place: what it holds is asked again"


class Doubted(Unavailable):
    """The server may have lost what this process knows; nothing was changed."""


class AnotherServer(redis.ConnectionError):
    """A new connection led to a server that was not seen before; nothing was sent to it yet."""


class Sight:
    """What all links of an engine have seen of their server."""

    def __init__(self) -> None:
        self.doubts = 0
        self.server = ""

    def meet(self, run_id: str) -> None:
        """A connection was made to a server that calls this run of itself so."""
        # One that was met before and left may lack what its successor acknowledged: only the last one counts.
        before, self.server = self.server, run_id
        if before and before != run_id:
            # The driver reconnects on its own, with a command in its hands that may rely on the old one.
            raise AnotherServer


class Link(Protocol):
    """A way to one server or cluster."""

    is_cluster: bool
    where: str
    sight: Sight

    async def call(self, script: Script, keys: Sequence[bytes], args: Sequence[Any] = (), *, doubting: int = -1) -> Any:
        """The answer of a script. Raises Doubted when the server is not the one that was known at `doubting`."""

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        """The answers of several scripts, in one go where that is possible."""

    async def command(self, *words: Any) -> Any:
        """The answer of one command."""

    async def batch(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers of several commands, in one go."""


class BlockingLink:
    """Waits on the calling thread."""

    def __init__(
        self, make: Callable[[], Any], sight: Sight, *, is_cluster: bool, where: str, turns: Any = None
    ) -> None:
        self._make = make
        self.made: Any = None
        # On the way to several nodes the clients of a cluster take one connection after the other, each holding what
        # another waits for; and that of a loop fails where it should wait.
        self._turns: Any = turns if turns is not None else _AllAtOnce()
        self._is_ours = turns is not None
        self._lock = threading.Lock()
        self.sight = sight
        self.is_cluster = is_cluster
        self.where = where

    @property
    def client(self) -> Any:
        """The driver's client, made on first use: that of a cluster connects at once, and may fail."""
        made = self.made  # looked at once: another thread may let go of it meanwhile
        if made is None:
            with self._lock:
                made = self.made
                if made is None:
                    made = self.made = self._make()
        return made

    async def call(self, script: Script, keys: Sequence[bytes], args: Sequence[Any] = (), *, doubting: int = -1) -> Any:
        with translated(self):
            try:
                return self._do("EVALSHA", script.sha, len(keys), *keys, *args)
            except exceptions.NoScriptError:
                doubt(self.sight, doubting)
                return self._do("EVAL", script.text, len(keys), *keys, *args)

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        with translated(self):
            answers = self._turn(
                lambda: self._all([("EVALSHA", script.sha, len(keys), *keys, *args) for script, keys, args in calls])
            )
        return [await self._answer(call, answer) for call, answer in zip(calls, answers, strict=True)]

    async def _answer(self, call: Call, answer: Any) -> Any:
        if isinstance(answer, exceptions.NoScriptError):
            return await self.call(*call)
        return checked(self, answer)

    async def command(self, *words: Any) -> Any:
        with translated(self):
            return self._do(*words)

    async def batch(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        if not commands:
            return []
        with translated(self):
            answers = self._turn(lambda: self._all(commands))
        return [checked(self, answer) for answer in answers]

    def _do(self, *words: Any) -> Any:
        return self._turn(lambda: self.client.execute_command(*words))

    def _all(self, commands: Sequence[Sequence[Any]]) -> Any:
        pipeline = self.client.pipeline(transaction=False)
        for words in commands:
            pipeline.execute_command(*words)
        return pipeline.execute(raise_on_error=False)

    def _turn(self, work: Callable[[], Any]) -> Any:
        try:
            return self._turns.run(work)
        except BaseException as error:
            cause = error.__cause__ if isinstance(error, exceptions.RedisClusterException) else error
            if self.is_cluster and self._is_ours and not isinstance(cause, (redis.RedisError, OSError, type(None))):
                # What the client knows of its cluster was perhaps being changed: the next call makes another. And it
                # takes the exception of a signal handler for a node that does not answer.
                self.made = None
                raise cause from None
            raise


class _AllAtOnce(nullcontext[None]):
    """Nobody waits for anybody."""

    @staticmethod
    def run(work: Callable[[], Any]) -> Any:
        return work()


class LoopLink(BlockingLink):
    """Waits on the event loop that its client belongs to."""

    async def call(self, script: Script, keys: Sequence[bytes], args: Sequence[Any] = (), *, doubting: int = -1) -> Any:
        with translated(self):
            try:
                return await self._execute("EVALSHA", script.sha, len(keys), *keys, *args)
            except exceptions.NoScriptError:
                doubt(self.sight, doubting)
                return await self._execute("EVAL", script.text, len(keys), *keys, *args)

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        with translated(self):
            pipeline = await self._pipeline()
            for script, keys, args in calls:
                pipeline.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            async with self._turns:
                answers = await pipeline.execute(raise_on_error=False)
        return [await self._answer(call, answer) for call, answer in zip(calls, answers, strict=True)]

    async def command(self, *words: Any) -> Any:
        with translated(self):
            return await self._execute(*words)

    async def batch(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        if not commands:
            return []
        with translated(self):
            pipeline = await self._pipeline()
            for words in commands:
                pipeline.execute_command(*words)
            async with self._turns:
                answers = await pipeline.execute(raise_on_error=False)
        return [checked(self, answer) for answer in answers]

    async def _execute(self, *words: Any) -> Any:
        async with self._turns:
            return await self.client.execute_command(*words)

    async def _pipeline(self) -> Any:
        if self.is_cluster:
            await self.client.initialize()
            return self.client.pipeline()
        return self.client.pipeline(transaction=False)


def doubt(sight: Sight, known: int) -> None:
    """Note that a server answered which does not know us; refuse what relies on what was known of it."""
    if known >= 0 and sight.doubts == known:
        sight.doubts += 1
        raise Doubted(_CHANGED)


def checked(link: BlockingLink, answer: Any) -> Any:
    if isinstance(answer, Exception):
        with translated(link):
            raise answer
    return answer


@contextmanager
def translated(link: BlockingLink) -> Iterator[None]:
    """Errors of the driver as errors of our tree."""
    try:
        yield
    # The asyncio driver raises AttributeError where another task closed the connection under a command.
    except (redis.RedisError, exceptions.RedisClusterException, OSError, AttributeError) as error:
        if isinstance(error, ThreadlineError):
            raise
        made = translate(error, link.where)
        if isinstance(made, Unavailable) and not isinstance(made, StorageFull):
            link.sight.doubts += 1
        if isinstance(error, AnotherServer):
            made = Doubted(_CHANGED)
        raise made from None  # the driver's words may hold what was sent
    except UnicodeError:
        raise InvalidRequest("ids and names must be text that UTF-8 can hold") from None


# What the server says at the head of its answer, or inside the error of a script.
_SAID = re.compile(
    r"\b(OOM|NOPERM|NOAUTH|WRONGPASS|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|MISCONF|NOREPLICAS|"
    r"WRONGTYPE|CROSSSLOT|UNKILLABLE|MOVED|ASK)\b"
)
# The driver drops the word where it has a class for it.
_CLASSES: dict[type[BaseException], str] = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.AuthenticationError: "WRONGPASS",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
}
_WAITS = {
    "READONLY": "is a replica now; another server takes over",
    "LOADING": "is loading its data",
    "MASTERDOWN": "has lost its primary",
    "CLUSTERDOWN": "is a cluster with unreachable parts",
    "TRYAGAIN": "is moving keys between nodes",
    "BUSY": "is busy with somebody's script",
    "UNKILLABLE": "is busy with somebody's script",
    "MISCONF": "cannot save to its disk and refuses writes: see its log",
    "NOREPLICAS": "has too few replicas to accept writes",
    "MOVED": "is moving keys between nodes",
    "ASK": "is moving keys between nodes",
}


def translate(error: BaseException, where: str) -> ThreadlineError:
    """What an error of the driver means to the caller; never in the driver's words."""
    said = _SAID.search(str(error))
    code = said.group(1) if said else next((_CLASSES[one] for one in type(error).__mro__ if one in _CLASSES), "")
    if code == "OOM":
        return StorageFull(f"{where} has reached its maxmemory: give it more, or delete threads; nothing was written")
    if code == "NOAUTH":
        return InvalidRequest(f"{where} wants a password: give it in the URL, redis://user:password@host")
    if code == "WRONGPASS":
        return InvalidRequest(f"{where} refuses the user or password of the URL")
    if code == "NOPERM":
        return InvalidRequest(
            f"{where} forbids a command or key to this user: allow it the keys of key_prefix and "
            f"+@read +@write +@scripting +time (ACL SETUSER)"
        )
    if code == "WRONGTYPE":
        return InvalidRequest(f"{where} holds something else under this key_prefix: choose another one")
    if code == "CROSSSLOT":
        return InvalidRequest(f"{where} is a cluster: open it as redis+cluster://…")
    if code in _WAITS:
        return Unavailable(f"{where} {_WAITS[code]}; try again")
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, OSError)):
        return Unavailable(f"cannot reach {where}: is the server running, and the address right? ({kind_of(error)})")
    if isinstance(error, (exceptions.ClusterError, exceptions.RedisClusterException)):
        return Unavailable(f"{where} does not answer as a cluster with all its parts ({kind_of(error)})")
    if "unknown command" in str(error):
        return InvalidRequest(f"{where} lacks a command that Threadline needs: it needs Redis 6.2 or Valkey, or later")
    if isinstance(error, exceptions.DataError):
        return InvalidRequest(f"{where}: the driver cannot send this")
    return Unavailable(f"{where} failed ({kind_of(error)})")


def kind_of(error: BaseException) -> str:
    return type(error).__name__
