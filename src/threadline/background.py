"""Work that goes on beside the caller.

`Lease` (`saver.lock(thread_id)`) works across processes. Puts of the same saver are made under it: one whose lease was
lost is refused, in its own transaction. A daemon thread or a task of the loop renews it at a third of its time to
live. When the process of its holder dies, it runs out by itself.

`Sweeper` (`saver.sweeper(every="1h")`) sweeps by the store's retention, now and again after each pause. A lease lets
one replica sweep at a time. A store that cannot be reached is tried again at the next turn.

`Monitor` (`saver.monitor(every="30s", channels=[…])`) looks at the store likewise, and tells channels what crosses a
limit. What it looks for is in `ops/watch.py`.

`UnderWay` knows the puts of the async half that have begun and not ended. LangGraph does not always wait for the last
writes of a run, such as the error of one that was cancelled. Its own savers work in order, so that a read finds those
writes. Here puts of different tasks run side by side, and a read of a thread waits for those begun before it.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .base.printable import printable
from .core.context import Tools, bound
from .core.leases import held, release, take, this_process, told
from .core.requests import text_id
from .core.retention.policy import Policy, seconds_of
from .errors import Conflict, InvalidRequest, ThreadlineError
from .ports.engine import Engine, Operation

if TYPE_CHECKING:
    import asyncio

    from .core.leases import LockInfo
    from .maintenance import Maintenance
    from .ops.judging import Event, Thresholds
    from .ops.watch import Look, Turn


__all__ = ["Lease", "Monitor", "Sweeper", "UnderWay"]

R = TypeVar("R", bound="Repeating")
log = logging.getLogger("threadline")


class Lease:
    """A lease on one thread. Entering waits until it is free; leaving gives it back."""

    def __init__(
        self, engine: Engine, tools: Tools, thread_id: str, ttl: float, wait: float | None, holder: str | None = None
    ) -> None:
        for name, seconds in (("ttl", ttl), ("wait", wait)):
            if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float))):
                raise InvalidRequest(f"{name} is a number of seconds, not {type(seconds).__name__}")
        if not (ttl > 0 and math.isfinite(ttl)):
            raise InvalidRequest("ttl is a number of seconds above 0")
        self.thread_id = thread_id
        self.ttl = ttl
        # How others are told who holds it.
        self.holder = this_process() if holder is None else text_id(holder, "holder")
        self._engine = engine
        self._tools = tools
        self._wait = wait
        self._token: bytes | None = None
        # Whether the lease ran out under its holder, who should stop.
        self.is_lost = False
        self._stop: threading.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Lease:
        self._begin()
        self._stop = threading.Event()
        try:
            self._enter(self._stop)
        except BaseException:
            # Interrupted when it was taken already: nobody will leave it, and later puts would be made under it.
            if self._token is not None:
                self.__exit__()
            raise
        return self

    def _enter(self, stop: threading.Event) -> None:
        deadline = self._deadline()
        while not self._took(self._engine.run(self._taking())):
            if time.monotonic() >= deadline:
                raise self._refusal(self._engine.run(self._looking()))
            time.sleep(random.uniform(0.01, 0.05))
        renewing = (stop, self._taking())
        threading.Thread(target=self._renew, args=renewing, name="threadline-lease", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None
        self._stop.set()
        self._engine.run(self._releasing())

    async def __aenter__(self) -> Lease:
        import asyncio

        self._begin()
        deadline = self._deadline()
        while not self._took(await self._engine.arun(self._taking())):
            if time.monotonic() >= deadline:
                raise self._refusal(await self._engine.arun(self._looking()))
            await asyncio.sleep(random.uniform(0.01, 0.05))
        self._task = asyncio.create_task(self._arenew(self._taking()))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await self._engine.arun(self._releasing())

    def _begin(self) -> None:
        if self._token is not None:
            raise InvalidRequest("this lease is held already: make another one with saver.lock()")
        self.is_lost = False

    def _took(self, token: bytes | None) -> bool:
        if token is not None:
            self._token = token
            self._tools.leases[self.thread_id] = token
        return token is not None

    def _renew(self, stop: threading.Event, renewing: Operation[Any]) -> None:
        while not self.is_lost and not stop.wait(self.ttl / 3):
            with suppress(ThreadlineError):  # a store that is away now may be back before the lease ends
                self._note(self._engine.run(renewing), stop.is_set())

    async def _arenew(self, renewing: Operation[Any]) -> None:
        import asyncio

        while not self.is_lost:
            await asyncio.sleep(self.ttl / 3)
            with suppress(ThreadlineError):
                self._note(await self._engine.arun(renewing), False)

    def _note(self, renewed: bytes | None, is_released: bool) -> None:
        if renewed is None and not is_released:
            self.is_lost = True
            meter = getattr(self._engine, "meter", None)
            if meter is not None:
                meter.count("threadline.leases.lost")
            log.error("the lease on thread %r was lost: it ran out before it was renewed", self.thread_id)

    def _taking(self) -> Operation[Any]:
        # A renewal proves itself by the token it began with, and can never take a lease that was given back.
        token = self._token
        return lambda backend: take(backend, self.thread_id, self.ttl, time.time(), token, self.holder)

    def _looking(self) -> Operation[LockInfo | None]:
        return lambda backend: held(backend, self.thread_id, time.time())

    def _releasing(self) -> Operation[None]:
        token, self._token = self._token or b"", None
        if self._tools.leases.get(self.thread_id) == token:
            del self._tools.leases[self.thread_id]
        return lambda backend: release(backend, self.thread_id, token)

    def _deadline(self) -> float:
        return float("inf") if self._wait is None else time.monotonic() + self._wait

    def _refusal(self, other: LockInfo | None) -> Conflict:
        if other is None:
            return Conflict(f"thread {self.thread_id!r} was locked by another run until now; try again")
        return Conflict(
            f"thread {self.thread_id!r} is locked by {told(other, time.time())}; wait, or end it with "
            f"`threadline unlock` if its holder is gone"
        )


class Repeating(ABC):
    """Does something now and again after each pause, until it is stopped.

    `with` has it done by a daemon thread, `async with` by a task of the loop.
    """

    # How threads and the log name it.
    what = ""

    def __init__(self, every: Any) -> None:
        seconds = seconds_of(every, "every")
        if not seconds:
            raise InvalidRequest("every is a span of time above 0, such as 1h")
        self.every_seconds = seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def _act(self) -> object:
        """Do it once."""

    @abstractmethod
    async def _aact(self) -> object:
        """Do it once, from an event loop."""

    def start(self: R) -> R:
        """Begin on a daemon thread."""
        self._thread = threading.Thread(target=self._run, name=f"threadline-{self.what}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after what is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self: R) -> R:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self: R) -> R:
        import asyncio

        self._task = asyncio.create_task(self._arun())
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _run(self) -> None:
        while True:
            try:
                self._act()
            except Exception as error:  # whatever it is, the next turn comes
                self._complain(error)
            if self._stop.wait(self.every_seconds):
                return

    async def _arun(self) -> None:
        import asyncio

        while True:
            try:
                await self._aact()
            except Exception as error:  # whatever it is, the next turn comes
                self._complain(error)
            await asyncio.sleep(self.every_seconds)

    def _complain(self, error: Exception) -> None:
        log.error(
            "the %s failed and is tried again in %.0f s: %s", printable(self.what), self.every_seconds, printable(error)
        )


class Sweeper(Repeating):
    """Sweeps until it is stopped, and moves to the cold tier what is due where the saver has one and `cold_after`."""

    what = "sweep"

    def __init__(self, saver: Maintenance, every: Any, policy: Policy | None) -> None:
        super().__init__(every)
        self._saver = saver
        self._policy = policy

    def _act(self) -> object:
        swept = self._saver.sweep(self._policy)
        if self._saver.tiers_by_itself:
            self._saver.tier()
        return swept

    async def _aact(self) -> object:
        swept = await self._saver.asweep(self._policy)
        if self._saver.tiers_by_itself:
            await self._saver.atier()
        return swept


class Monitor(Repeating):
    """Looks at a store again and again, and tells channels what crosses a limit, until it is stopped.

    `window` and `repeat` are spans: over how long calls are judged, and how often what lasts is told again. `channels`
    are URLs as apprise has them. `on_event` is called with each event. `work_expected` says whether there should be
    work: True, False or a function; None is for as long as runs hold threads.
    """

    what = "monitor"

    def __init__(
        self,
        engine: Engine,
        tools: Tools,
        every: Any = "30s",
        *,
        thresholds: Thresholds | None = None,
        channels: Sequence[str] = (),
        window: Any = "5m",
        repeat: Any = "4h",
        work_expected: bool | Callable[[], bool] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        from .ops.alerts import Channels
        from .ops.watch import Watch

        super().__init__(every)
        self.channels = Channels(channels)
        self._engine, self._tools, self._on_event = engine, tools, on_event
        self.watch = Watch(
            getattr(engine, "meter", None),
            engine.url,
            thresholds=thresholds,
            window=window,
            repeat=repeat,
            work_expected=work_expected,
        )

    @property
    def history(self) -> list[Event]:
        """What was told so far; the last thousand."""
        return list(self.watch.events)

    def turn(self) -> Turn:
        """Look once, and tell what there is to tell."""
        now = time.time()
        try:
            found = self._engine.run(self._looking(now))
        except ThreadlineError as error:
            found = self.watch.nothing(error, now)
        turn = self.watch.note(found, now)
        self._tell(turn)
        return turn

    async def aturn(self) -> Turn:
        """`turn`, from an event loop."""
        import asyncio

        now = time.time()
        try:
            found = await self._engine.arun(self._looking(now))
        except ThreadlineError as error:
            found = self.watch.nothing(error, now)
        turn = self.watch.note(found, now)
        if turn.events:
            await asyncio.to_thread(self._tell, turn)  # a channel may take a while
        return turn

    _act, _aact = turn, aturn

    def _looking(self, now: float) -> Operation[Look]:
        from .ops.watch import look

        return bound(self._tools, look, now, self.watch.puts_since(now), self.watch.most_puts)

    def _tell(self, turn: Turn) -> None:
        for event in turn.events:
            log.warning("%s %s: %s", printable(event.name), printable(event.kind), printable(event.text))
            self.channels.send(event, self._engine.url)
            if self._on_event is not None:
                self._on_event(event)


class _Put:
    """A put that has begun and not ended, and the futures of those who wait for its end."""

    __slots__ = ("place", "waiters")

    def __init__(self, place: tuple[asyncio.AbstractEventLoop, str]) -> None:
        self.place = place
        self.waiters: list[asyncio.Future[None]] | None = None


class UnderWay:
    """Which puts are under way, by event loop and thread of the store; each loop sees its own."""

    def __init__(self) -> None:
        self._puts: dict[tuple[asyncio.AbstractEventLoop, str], set[_Put]] = {}

    def begin(self, thread_id: str) -> _Put:
        """Note that a put begins; what is returned belongs to `end`."""
        import asyncio  # nobody who stays in the sync half loads it

        place = asyncio.get_running_loop(), thread_id
        put = _Put(place)
        if (puts := self._puts.get(place)) is None:
            self._puts[place] = {put}
        else:
            puts.add(put)
        return put

    def end(self, put: _Put) -> None:
        """Note that a put is over, however it ended."""
        puts = self._puts.get(put.place)
        if puts is not None:
            puts.discard(put)
            if not puts:
                self._puts.pop(put.place, None)
        for waiter in put.waiters or ():
            # A loop that was closed in the middle of a put has nobody who waits.
            if not waiter.done() and not put.place[0].is_closed():
                waiter.set_result(None)

    async def settle(self, thread_id: str) -> None:
        """Wait for the puts of a thread that this loop has begun; how they ended is their callers' affair."""
        if not self._puts:
            return
        import asyncio

        loop = asyncio.get_running_loop()
        waiters: list[asyncio.Future[None]] = []
        for put in tuple(self._puts.get((loop, thread_id), ())):
            waiter: asyncio.Future[None] = loop.create_future()
            waiters.append(waiter)
            put.waiters = [*(put.waiters or ()), waiter]
            # The finalizer of an abandoned put may have ended it since the first line.
            if put not in self._puts.get(put.place, ()) and not waiter.done():
                waiter.set_result(None)
        if waiters:
            await asyncio.wait(waiters)
