"""A sweeper in the background: `with saver.sweeper(every="1h"):`, or `async with`.

It sweeps by the store's retention, now and then again after each pause. Among replicas one sweeps at a time,
by a lease; a store that is away is tried again at the next turn.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from .core.policy import Policy, seconds_of
from .errors import InvalidRequest
from .printable import printable

if TYPE_CHECKING:
    from .upkeep import Upkeep

__all__ = ["Sweeper"]

log = logging.getLogger("threadline")


class Sweeper:
    """Sweeps until it is stopped: on a daemon thread, or as a task of the loop."""

    def __init__(self, saver: Upkeep, every: Any, policy: Policy | None) -> None:
        seconds = seconds_of(every, "every")
        if not seconds:
            raise InvalidRequest("every is a span of time above 0, such as 1h")
        self.every_seconds = seconds
        self._saver = saver
        self._policy = policy
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> Sweeper:
        """Begin to sweep on a daemon thread."""
        self._thread = threading.Thread(target=self._run, name="threadline-sweeper", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the sweep under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Sweeper:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Sweeper:
        self._task = asyncio.create_task(self._arun())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _run(self) -> None:
        while True:
            try:
                self._saver.sweep(self._policy)
            except Exception as error:  # whatever it is, the next turn comes
                log.error("the sweep failed and is tried again in %.0f s: %s", self.every_seconds, printable(error))
            if self._stop.wait(self.every_seconds):
                return

    async def _arun(self) -> None:
        while True:
            try:
                await self._saver.asweep(self._policy)
            except Exception as error:  # whatever it is, the next turn comes
                log.error("the sweep failed and is tried again in %.0f s: %s", self.every_seconds, printable(error))
            await asyncio.sleep(self.every_seconds)
