"""From looks at a store to events: what the monitor notes at every turn, the same for both halves.

Where the saver has metrics, the windows are those of its calls. Otherwise the probe of each turn is the call that is
timed, and the work is the checkpoints that anybody put meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..core.context import Context
from ..core.retention.policy import seconds_of
from ..errors import InvalidRequest
from ..ports.checkpoints import Query
from ..show.figures import counted
from .judging import Event, Judge, Reading, Thresholds
from .meter import Meter
from .names import system_of
from .survey import Survey, publish, survey, unreachable
from .windows import Figures, Growth, Window

__all__ = ["Look", "Turn", "Watch", "look"]

_MOST_TURNS = 1_000
_PAGE = 500
_PROBE = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A look at a store, and how many checkpoints were put since a time; None where nobody asked."""

    survey: Survey
    puts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn of a monitor found."""

    at: float
    figures: Figures
    survey: Survey
    # Whether work was expected, and how much of it there was a second.
    is_busy: bool
    work_per_second: float | None
    events: tuple[Event, ...]


async def look(store: Context, now: float, since: float | None, most: int) -> Look:
    """A look at a store; with `since`, how many checkpoints were put since then, counted up to `most`."""
    found = await survey(store, now)
    if since is None or not found.is_up or not found.leases:
        return Look(survey=found)
    puts, query = 0, Query(limit=min(most, _PAGE), with_writes=False)
    while puts < most:
        page = await store.backend.page(query)
        young = sum(one.row.created >= since for one in page)
        puts += young
        if young < len(page) or len(page) < query.limit:
            break
        query = Query(limit=query.limit, with_writes=False, after=page[-1].cursor)
    return Look(survey=found, puts=puts)


class Watch:
    """Remembers windows and what is firing, within a bound."""

    def __init__(
        self,
        meter: Meter | None,
        url: str,
        *,
        thresholds: Thresholds | None = None,
        window: Any = "5m",
        repeat: Any = "4h",
        work_expected: bool | Callable[[], bool] | None = None,
    ) -> None:
        window_seconds, repeat_seconds = seconds_of(window, "window"), seconds_of(repeat, "repeat")
        if not window_seconds or repeat_seconds is None:
            raise InvalidRequest("window is a span of time above 0 such as 5m, repeat one such as 4h")
        if not isinstance(thresholds, Thresholds | None):
            raise InvalidRequest(f"thresholds are Thresholds(…), not {type(thresholds).__name__}")
        if not (work_expected is None or isinstance(work_expected, bool) or callable(work_expected)):
            raise InvalidRequest("work_expected is True, False, a function or None")
        self.thresholds = thresholds or Thresholds()
        self.turns: deque[Turn] = deque(maxlen=_MOST_TURNS)
        self.events: deque[Event] = deque(maxlen=_MOST_TURNS)
        self.window_seconds = window_seconds
        self.is_metered = meter is not None
        self.meter = meter or Meter()
        self._system = system_of(url)
        self._window = Window(window_seconds)
        self._growth = Growth()
        self._judge = Judge(repeat_seconds)
        self._work_expected = work_expected
        # What was counted before says nothing about the time from now on.
        self._began = time.time()
        self._window.add(self._began, self.meter.calls())

    def nothing(self, error: Exception, now: float) -> Look:
        """A look that failed."""
        return Look(survey=unreachable(error, now))

    @property
    def firing(self) -> tuple[str, ...]:
        """The names of what is firing now."""
        return self._judge.firing

    def puts_since(self, now: float) -> float | None:
        """Since when checkpoints are to be counted by the next look; None where the meter knows, or it is too early."""
        if self.is_metered or now - self._began < self.window_seconds:
            return None
        return now - self.window_seconds

    @property
    def most_puts(self) -> int:
        """How many are enough to say that there is work enough."""
        return int(self.thresholds.least_per_second * (1 + self.thresholds.hysteresis) * self.window_seconds) + 1

    def note(self, found: Look, now: float) -> Turn:
        """Note a look; what is to be told of it is in the turn."""
        seen = found.survey
        if not self.is_metered:
            tell = self.meter.timing(self._system, _PROBE)
            tell(seen.probe_seconds, None if seen.is_up else _failure(seen.error))
        publish(self.meter, seen, self._system)
        figures = self._window.add(now, self.meter.calls())
        per_second = figures.per_second if self.is_metered else None
        if found.puts is not None:
            per_second = found.puts / self.window_seconds
        is_busy = self._is_busy(seen)
        growth = self._growth.add(now, seen.size_bytes) if seen.size_bytes is not None else None
        readings = [
            *self._of_calls(figures),
            *self._of_work(is_busy, per_second, now),
            *self._of_store(seen, growth, now),
        ]
        events = tuple(self._judge.judge(readings, now))
        self.events.extend(events)
        turn = Turn(at=now, figures=figures, survey=seen, is_busy=is_busy, work_per_second=per_second, events=events)
        self.turns.append(turn)
        return turn

    def _is_busy(self, seen: Survey) -> bool:
        if self._work_expected is None:
            return bool(seen.leases)
        return self._work_expected if isinstance(self._work_expected, bool) else bool(self._work_expected())

    def _of_calls(self, figures: Figures) -> Iterator[Reading]:
        limits = self.thresholds
        if figures.latency_ms is not None:
            yield Reading.above(
                "latency",
                figures.latency_ms,
                limits.latency_ms,
                limits.hysteresis,
                f"one call in twenty takes {figures.latency_ms:,.0f} ms or more (limit {limits.latency_ms:,g} ms)",
                "run `threadline doctor`; look at the pool of connections, the disk and long transactions",
            )
        rate = figures.error_rate
        if rate is not None:
            yield Reading.above(
                "errors",
                rate,
                limits.error_rate,
                limits.hysteresis,
                f"{figures.failures:,} of {figures.calls:,} calls failed, {rate:.1%} (limit {limits.error_rate:.1%})",
                "run `threadline doctor`; the log of the application names the errors",
            )

    def _of_work(self, is_busy: bool, per_second: float | None, now: float) -> Iterator[Reading]:
        limits = self.thresholds
        advice = "`threadline locks` says who holds which thread, `threadline why` where it stands"
        if not is_busy:
            yield Reading.plain("rate", False, "no work is expected now", advice)
        elif per_second is not None and now - self._began >= self.window_seconds:
            what = "calls" if self.is_metered else "checkpoints"
            yield Reading.below(
                "rate",
                per_second,
                limits.least_per_second,
                limits.hysteresis,
                f"work is expected, and there are {per_second:.1f} {what} a second (limit {limits.least_per_second:g})",
                advice,
            )

    def _of_store(self, seen: Survey, growth: float | None, now: float) -> Iterator[Reading]:
        limits, slack = self.thresholds, self.thresholds.hysteresis
        trouble = "the store answers" if seen.is_up else f"the store does not answer ({seen.error})"
        yield Reading.plain("down", not seen.is_up, trouble, "look whether the server runs and its disk has room")
        if seen.oldest_question_seconds is not None:
            hours = seen.oldest_question_seconds / 3600
            yield Reading.above(
                "question",
                seen.oldest_question_seconds,
                limits.question_seconds,
                slack,
                f"{counted(seen.questions or 0, 'question')} waiting, the oldest for {hours:,.1f} h",
                "`threadline interrupts` lists what waits, `threadline answer` answers it",
            )
        if seen.swept_at is not None:
            age = now - seen.swept_at
            yield Reading.above(
                "sweep",
                age,
                limits.sweep_seconds,
                slack,
                f"the store was last swept {age / 3600:,.1f} h ago",
                "look at the process that sweeps; `threadline sweep --yes` does it now",
            )
        if growth is not None and seen.size_bytes is not None and seen.size_bytes >= limits.growth_from_bytes:
            yield Reading.above(
                "growth",
                growth,
                limits.growth_factor * seen.size_bytes,
                slack,
                f"the store holds {seen.size_bytes:,} bytes, and at this rate {growth:,.0f} in a day",
                "`threadline stats --by thread` says where the bytes are; a retention policy and sweeps remove them",
            )


def _failure(error: str | None) -> Exception:
    """An error of the class that a look names."""
    from .. import errors

    kind = getattr(errors, error or "", errors.Unavailable)
    made: Exception = kind()
    return made
