"""Checkpoints on a time axis: equal times are equal lengths, and idle time is folded to a short gap. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

__all__ = ["Axis", "Gap", "lay_out", "spoken_span"]

# Idle is what lasts longer than so many usual steps, and longer than this.
_USUAL_STEPS = 12
_LEAST_IDLE_SECONDS = 2.0
# The share of the axis that one folded gap takes.
_GAP_SHARE = 0.04


@dataclass(frozen=True, slots=True)
class Gap:
    """Idle time that was folded: where it is on the axis, from 0 to 1, and how long it was."""

    start: float
    end: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Axis:
    """Places from 0 to 1, one for each moment, and the gaps between."""

    places: tuple[float, ...]
    gaps: tuple[Gap, ...]


def lay_out(moments: Sequence[float]) -> Axis:
    """The places of some moments, which are in order."""
    if len(moments) < 2:
        return Axis(tuple(0.5 for _ in moments), ())
    pauses = [max(later - earlier, 0.0) for earlier, later in pairwise(moments)]
    idle_from = max(_LEAST_IDLE_SECONDS, _USUAL_STEPS * median(pauses))
    busy = sum(pause for pause in pauses if pause <= idle_from)
    idle = [pause for pause in pauses if pause > idle_from]
    share = min(_GAP_SHARE, 0.5 / len(idle)) if idle else 0.0
    scale = (1.0 - share * len(idle)) / busy if busy else 0.0
    at = 0.0
    places, gaps = [0.0], []
    for pause in pauses:
        if pause > idle_from:
            gaps.append(Gap(at, at + share, pause))
            at += share
        else:
            at += pause * scale
        places.append(min(at, 1.0))
    return Axis(tuple(places), tuple(gaps))


def spoken_span(seconds: float) -> str:
    """A span of time in its largest unit: `3 h`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
