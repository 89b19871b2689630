"""What happened in the last minutes, from counts that only grow. Pure, and of a bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .meter import Calls
from .names import DURATION_BOUNDS, LONG, REFUSALS

__all__ = ["Figures", "Growth", "Window", "quantile"]

_MOST_POINTS = 1_000
_QUANTILE = 0.95
# A forecast of a day needs some time to be made of.
_LEAST_GROWTH_SECONDS = 3600.0
_MOST_GROWTH_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The calls of a window; None where there were none to say it of."""

    seconds: float
    calls: int
    failures: int
    latency_ms: float | None

    @property
    def error_rate(self) -> float | None:
        """The part of the calls that failed."""
        return self.failures / self.calls if self.calls else None

    @property
    def per_second(self) -> float | None:
        """How many calls there were a second; None for a window without a length."""
        return self.calls / self.seconds if self.seconds > 0 else None


class Window:
    """The calls of the last `seconds`, as far as they were noted."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # When, and how many calls, failures and durations between two boundaries there were until then.
        self._points: deque[tuple[float, int, int, tuple[int, ...]]] = deque(maxlen=_MOST_POINTS)

    def add(self, now: float, so_far: Iterable[Calls]) -> Figures:
        """Note how many calls there were until now; the figures of the window that ends now."""
        calls = failures = 0
        durations = [0] * (len(DURATION_BOUNDS) + 1)
        for one in so_far:
            number = sum(one.counts)
            calls += number
            if one.error and one.error not in REFUSALS:
                failures += number
            if one.operation not in LONG:
                durations = [had + more for had, more in zip(durations, one.counts, strict=True)]
        self._points.append((now, calls, failures, tuple(durations)))
        # One point before the window stays: what came since then is inside it.
        while len(self._points) > 2 and self._points[1][0] <= now - self.seconds:
            self._points.popleft()
        began, calls_then, failures_then, durations_then = self._points[0]
        spent = [now_count - then for now_count, then in zip(durations, durations_then, strict=True)]
        latency = quantile(spent, DURATION_BOUNDS, _QUANTILE)
        return Figures(
            seconds=now - began,
            calls=calls - calls_then,
            failures=failures - failures_then,
            latency_ms=None if latency is None else latency * 1000,
        )


def quantile(counts: Sequence[int], bounds: Sequence[float], part: float) -> float | None:
    """The value below which this part of all values lies, as far as boundaries tell; None without values."""
    total = sum(counts)
    if not total:
        return None
    rank, below = part * total, 0
    for place, count in enumerate(counts):
        if count and below + count >= rank:
            if place == len(bounds):
                return bounds[-1]
            low = bounds[place - 1] if place else 0.0
            return low + (bounds[place] - low) * (rank - below) / count
        below += count
    return bounds[-1]


class Growth:
    """How fast a store grows, from its sizes of the last day."""

    def __init__(self) -> None:
        self._sizes: deque[tuple[float, int]] = deque(maxlen=_MOST_POINTS)

    def add(self, now: float, size_bytes: int) -> float | None:
        """Note a size; how many bytes the store will hold in a day at this rate, None where it is too early to say."""
        # Few points: one for each thousandth of the time that is looked at.
        if not self._sizes or now - self._sizes[-1][0] >= _MOST_GROWTH_SECONDS / _MOST_POINTS:
            self._sizes.append((now, size_bytes))
        while now - self._sizes[0][0] > _MOST_GROWTH_SECONDS:
            self._sizes.popleft()
        then, size_then = self._sizes[0]
        if now - then < _LEAST_GROWTH_SECONDS:
            return None
        return size_bytes + (size_bytes - size_then) / (now - then) * 86_400
