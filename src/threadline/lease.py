"""`saver.lock(thread_id)`: a lease that works across processes, for `with` and `async with`.

Puts of the same saver are made under it: one whose lease was lost is refused, in its own transaction.
While it is held it renews itself at a third of its time to live: by a daemon thread, or by a task of the
loop. When the holder dies it runs out by itself.
"""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .backends.engine import Engine, Operation
from .core.leases import held, release, take, told
from .core.requests import text_id
from .core.tools import Tools
from .errors import Conflict, InvalidRequest, ThreadlineError

if TYPE_CHECKING:
    import asyncio

    from .core.leases import LockInfo

__all__ = ["Lease", "this_process"]

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
        deadline = self._deadline()
        while not self._took(self._engine.run(self._taking())):
            if time.monotonic() >= deadline:
                raise self._refusal(self._engine.run(self._looking()))
            time.sleep(random.uniform(0.01, 0.05))
        self._stop = threading.Event()
        renewing = (self._stop, self._taking())
        threading.Thread(target=self._renew, args=renewing, name="threadline-lease", daemon=True).start()
        return self

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


def this_process() -> str:
    """This process as others are told of it: the name of the machine, and the number of the process."""
    import socket

    return f"{socket.gethostname()} (process {os.getpid()})"
