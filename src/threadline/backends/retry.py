"""The retry layer: a transient fault of the storage is tried again, and never applied twice.

Drivers say what is transient by raising `Unavailable`; what is not (`StorageFull`, a wrong password, a
conflict) goes straight through. The Backend port makes a second try safe: rows are written whole under
their own keys, swaps compare first, and a fork knows itself again.
"""

from __future__ import annotations

import logging
import random
from typing import Any, NamedTuple

from ..drive import Clock
from ..errors import StorageFull, Unavailable
from ..printable import printable
from .port import Backend

__all__ = ["Retry", "RetryLayer"]

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


class RetryLayer:
    """A backend whose transient faults are tried again."""

    def __init__(self, inner: Backend, policy: Retry, clock: Clock) -> None:
        self._inner = inner
        self._policy = policy
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            began = self._clock.now()
            for attempt in range(1, self._policy.tries + 1):
                try:
                    return await method(*args, **options)
                except StorageFull:
                    raise
                except Unavailable as error:
                    pause = _FIRST_PAUSE_SECONDS * _GROWTH ** (attempt - 1) * random.uniform(0.5, 1.5)
                    spent = self._clock.now() - began
                    is_late = attempt > 1 and spent + pause > self._policy.seconds
                    if attempt == self._policy.tries or is_late:
                        raise
                    if pause >= _SHORT_SECONDS:
                        log.info("the store does not answer (%s): trying again in %.1f s", printable(error), pause)
                await self._clock.sleep(pause)
            raise AssertionError("a policy has at least one try")

        return call
