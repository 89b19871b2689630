"""The limits that alerts go by, for Prometheus' rules and for the monitor alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..errors import InvalidRequest

__all__ = ["Thresholds"]


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
