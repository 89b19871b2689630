"""When something is worth a message: limits with hysteresis, told again while it lasts and when it is over. Pure.

The limits are those of the monitor and of the rules for Prometheus alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

from ..errors import InvalidRequest

__all__ = ["Event", "FIRING", "Judge", "RESOLVED", "Reading", "STILL", "Thresholds"]

FIRING, STILL, RESOLVED = "firing", "still firing", "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When something is worth a message."""

    # One call in twenty takes longer.
    latency_ms: float = 1000.0
    # The part of calls that the storage fails; what it refuses, such as a conflict, is no failure.
    error_rate: float = 0.05
    # Fewer calls a second, while work is expected.
    least_per_second: float = 10.0
    # A question waits for longer.
    question_seconds: float = 86_400.0
    # The store was last swept so long ago; one that never was is not expected to be.
    sweep_seconds: float = 2 * 86_400.0
    # The store grows by this factor in a day, once it holds so much.
    growth_factor: float = 2.0
    growth_from_bytes: float = 1_000_000_000.0
    # What has crossed a limit is over when it is back by this part of the limit.
    hysteresis: float = 0.1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                raise InvalidRequest(f"{field.name} is a number, 0 or more, not {value!r}")
        if self.error_rate > 1:
            raise InvalidRequest(f"error_rate is a part of all calls, such as 0.05, not {self.error_rate:g}")
        if self.hysteresis >= 1:
            raise InvalidRequest(f"hysteresis is a part of a limit, such as 0.1, not {self.hysteresis:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A figure and its limit, with hysteresis: between limit and clear value the previous state stays."""

    name: str
    is_over: bool
    is_clear: bool
    # The figure and what to do about it, in words without any state.
    text: str
    advice: str

    @classmethod
    def above(cls, name: str, value: float, limit: float, hysteresis: float, text: str, advice: str) -> Reading:
        """A figure that must not rise above its limit."""
        clear = value <= limit * (1 - hysteresis)
        return cls(name=name, is_over=value > limit, is_clear=clear, text=text, advice=advice)

    @classmethod
    def below(cls, name: str, value: float, limit: float, hysteresis: float, text: str, advice: str) -> Reading:
        """A figure that must not fall below its limit."""
        clear = value >= limit * (1 + hysteresis)
        return cls(name=name, is_over=value < limit, is_clear=clear, text=text, advice=advice)

    @classmethod
    def plain(cls, name: str, is_over: bool, text: str, advice: str) -> Reading:
        """Something that is so or not."""
        return cls(name=name, is_over=is_over, is_clear=not is_over, text=text, advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to tell."""

    kind: str
    name: str
    at: float
    # Since when it has been firing.
    since: float
    text: str
    advice: str


class Judge:
    """Knows what is firing. A figure that nobody could read changes nothing."""

    def __init__(self, repeat_seconds: float) -> None:
        self._repeat_seconds = repeat_seconds
        # What is firing: since when, and when it was last told.
        self._firing: dict[str, tuple[float, float]] = {}

    @property
    def firing(self) -> tuple[str, ...]:
        """What is firing now."""
        return tuple(self._firing)

    def judge(self, readings: Iterable[Reading], now: float) -> list[Event]:
        """What is to be told of these readings."""
        return [event for reading in readings if (event := self._judge(reading, now)) is not None]

    def _judge(self, reading: Reading, now: float) -> Event | None:
        held = self._firing.get(reading.name)
        if held is None:
            if not reading.is_over:
                return None
            self._firing[reading.name] = (now, now)
            return _event(FIRING, reading, now, now)
        since, told = held
        if reading.is_clear:
            del self._firing[reading.name]
            return _event(RESOLVED, reading, now, since)
        if now - told < self._repeat_seconds:
            return None
        self._firing[reading.name] = (since, now)
        return _event(STILL, reading, now, since)


def _event(kind: str, reading: Reading, now: float, since: float) -> Event:
    return Event(kind=kind, name=reading.name, at=now, since=since, text=reading.text, advice=reading.advice)
