"""When something is worth a message: limits with hysteresis, told again while it lasts and when it is over. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Event", "FIRING", "Judge", "RESOLVED", "Reading", "STILL"]

FIRING, STILL, RESOLVED = "firing", "still firing", "resolved"


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
