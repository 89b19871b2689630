"""Times and counts the calls of the ports. A store whose metrics are off has no such layer.

It is the outermost layer: a call is timed as its caller waits for it, retries included. What a put wrote is counted
from the rows that it hands over. A call that was cancelled or interrupted is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

from ...errors import Conflict
from ...ports.checkpoints import Applied, Change, Stamp
from ...ports.engine import PutUsual
from ...ports.marks import Mark
from .layer import Call, Layer

__all__ = ["Meter", "MeteredLayer", "metered_put"]


class Meter(Protocol):
    """Is told of calls; `threadline.ops.meter` has the one that counts in this process."""

    def timing(self, system: str, operation: str) -> Callable[[float, Exception | None], None]:
        """A function that is told how many seconds each call of this operation took, and its error."""

    def putting(self, system: str) -> Callable[[float, Sequence[Change]], Any]:
        """A function that is told how many seconds a commit of these changes took."""

    def spans(self, system: str, operation: str) -> Callable[..., Any] | None:
        """A context manager factory for a span of one call; entering gives a function that takes the result.

        It is called with the arguments of the call. None where no span is wanted.
        """

    def count(self, name: str) -> None:
        """Add one to a counter."""


class MeteredLayer(Layer):
    """Tells a meter of every call."""

    def __init__(self, inner: Any, meter: Meter, system: str) -> None:
        self.meter = meter
        self._system = system
        super().__init__(inner)

    def wrapped(self, name: str, mark: Mark, call: Call) -> Call:
        tell = self.meter.timing(self._system, name)
        spans = self.meter.spans(self._system, name)
        if spans is not None:
            call = _spanned(call, spans)
        if name == "apply":
            return self._applying(call, tell)

        async def metered(*args: Any, **options: Any) -> Any:
            began = perf_counter()
            try:
                result = await call(*args, **options)
            except Exception as error:
                tell(perf_counter() - began, error)
                raise
            tell(perf_counter() - began, None)
            return result

        return metered

    def _applying(self, call: Call, tell: Callable[[float, Exception | None], None]) -> Call:
        """Puts are the hot path: one function does all of it."""
        meter, tell_put = self.meter, self.meter.putting(self._system)

        async def apply(changes: Sequence[Change]) -> Any:
            began = perf_counter()
            try:
                outcomes = await call(changes)
            except Exception as error:
                tell(perf_counter() - began, error)
                if isinstance(error, Conflict):
                    meter.count("threadline.conflicts")
                raise
            if outcomes and type(outcomes[0]) is Applied:
                tell_put(perf_counter() - began, changes)
            else:
                tell(perf_counter() - began, None)
                meter.count("threadline.puts.stale")
            return outcomes

        return apply


def metered_put(put: PutUsual, meter: Meter, system: str) -> PutUsual:
    """An engine's own way for usual puts, as `apply` of the layer. What it leaves to `apply` is counted there."""
    tell, tell_put = meter.timing(system, "apply"), meter.putting(system)

    def counted(change: Change) -> Stamp | None:
        began = perf_counter()
        try:
            stamp = put(change)
        except Exception as error:
            tell(perf_counter() - began, error)
            raise
        if stamp is not None:
            tell_put(perf_counter() - began, (change,))
        return stamp

    return counted


def _spanned(call: Call, spans: Callable[..., Any]) -> Call:
    async def spanned(*args: Any, **options: Any) -> Any:
        with spans(*args) as note_result:
            result = await call(*args, **options)
            note_result(result)
            return result

    return spanned
