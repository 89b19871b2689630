"""The retry layer: a transient fault of the storage is tried again, and never applied twice.

Drivers say what is transient by raising `Unavailable`; what is not (`StorageFull`, a wrong password, a
conflict) goes straight through. The Backend port makes a second try safe: rows are written whole under
their own keys, swaps compare first, and a fork knows itself again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ...base.drive import Clock, run_now
from ...base.printable import printable
from ...errors import StorageFull, Unavailable
from ...ports.checkpoints import Change, Stamp
from ...ports.engine import PutUsual
from ...ports.marks import Mark
from .layer import Call, Layer

__all__ = ["Retry", "RetryLayer", "retry_policy"]

log = logging.getLogger("threadline.retry")

_FIRST_PAUSE_SECONDS = 0.05
_GROWTH = 4
# A pause that nobody notices is not worth a line.
_SHORT_SECONDS = 0.3


class Retry(NamedTuple):
    """How often and how long a call is tried before its error is the caller's.

    What fails once is tried a second time however long it took: an attempt may last for the whole of `timeout`.
    """

    tries: int = 5
    seconds: float = 30.0


def retry_policy(retry: int | tuple[int, float] | None) -> Retry:
    """The policy that the option `retry` asks for; without one a call is made once."""
    if retry is None or retry is False:
        return Retry(tries=1)
    return Retry(*retry) if isinstance(retry, tuple) else Retry(tries=retry)


class RetryLayer(Layer):
    """Tries a call again after a transient fault. Every method of the ports is safe to call twice."""

    def __init__(self, inner: Any, policy: Retry, clock: Clock, note_retry: Callable[[], None] = lambda: None) -> None:
        self._policy = policy
        self._clock = clock
        # Told of each call that is tried again.
        self._note_retry = note_retry
        super().__init__(inner)

    def wrapped(self, name: str, mark: Mark, call: Call) -> Call:
        if self._policy.tries == 1:
            return call

        async def retried(*args: Any, **options: Any) -> Any:
            began = self._clock.now()
            try:
                return await call(*args, **options)
            except StorageFull:
                raise
            except Unavailable as error:
                first = error
            return await self._again(partial(call, *args, **options), began, first)

        return retried

    def put(self, put: PutUsual) -> PutUsual:
        """A usual put that is tried again as other calls are."""
        if self._policy.tries == 1:
            return put

        async def again(change: Change) -> Stamp | None:
            return put(change)

        def retried(change: Change) -> Stamp | None:
            began = self._clock.now()
            try:
                return put(change)
            except StorageFull:
                raise
            except Unavailable as error:
                first = error
            stamp: Stamp | None = run_now(self._again(partial(again, change), began, first))
            return stamp

        return retried

    async def _again(self, call: Call, began: float, error: Unavailable) -> Any:
        """The result of a call whose first try failed."""
        attempt = 1
        while True:
            pause = self._pause(attempt, began, error)
            self._note_retry()
            await self._clock.sleep(pause)
            attempt += 1
            try:
                return await call()
            except StorageFull:
                raise
            except Unavailable as failed:
                error = failed

    def _pause(self, attempt: int, began: float, error: Unavailable) -> float:
        """How many seconds to wait before the next try; raises the error when there is none."""
        pause: float = _FIRST_PAUSE_SECONDS * _GROWTH ** (attempt - 1) * random.uniform(0.5, 1.5)
        is_late = attempt > 1 and self._clock.now() - began + pause > self._policy.seconds
        if attempt >= self._policy.tries or is_late:
            raise error
        if pause >= _SHORT_SECONDS:
            log.info("the store does not answer (%s): trying again in %.1f s", printable(error), pause)
        return pause
