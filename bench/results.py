"""From the readings of several rounds to one line per row, with its verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from bench.arena import Reading
from bench.targets import ROWS, Row, Unit, is_reached


@dataclass(frozen=True, slots=True)
class Result:
    """A row as measured: medians over the rounds; the ratio is the median of the rounds' ratios."""

    row: Row
    ours: float
    peer: float | None = None
    ratio: float | None = None
    ratio_range: tuple[float, float] | None = None

    @property
    def reached(self) -> bool | None:
        return is_reached(self.row, self.ours, self.ratio)

    @property
    def aim_reached(self) -> bool:
        return self.row.aim is not None and self.ratio is not None and self.ratio >= self.row.aim


def summarise(readings: Iterable[Reading]) -> list[Result]:
    """One result for each row of the table that was measured, in the table's order."""
    by_key: defaultdict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        by_key[reading.key].append(reading)
    return [_result(row, by_key[row.key]) for row in ROWS if row.key in by_key]


def ratio_of(row: Row, reading: Reading) -> float | None:
    """How many times better ours is: faster, smaller, or more in the same time; None where there is no peer."""
    if reading.peer is None:
        return None
    if row.unit.more_is_better:
        return reading.ours / reading.peer
    return reading.peer / reading.ours


def show(value: float | None, unit: Unit) -> str:
    """A figure in the unit that people would use for it."""
    if value is None:
        return "–"
    if unit is Unit.SECONDS:
        if value >= 1:
            return f"{value:.2f} s"
        return f"{_digits(value * 1e3)} ms" if value >= 1e-4 else f"{_digits(value * 1e6)} µs"
    if unit is Unit.BYTES:
        return f"{_digits(value / 1e6)} MB" if value >= 1e5 else f"{_digits(value / 1e3)} KB"
    if unit is Unit.PER_SECOND:
        return f"{value:,.0f} ops/s"
    if unit is Unit.SHARE:
        return f"{_digits(value * 100)} %"
    if unit is Unit.CALLS:
        return f"{value:,.0f} calls"
    return f"{_digits(value)} x"


def show_ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{_digits(ratio)} x"


def show_range(result: Result) -> str:
    """The lowest and the highest ratio of the rounds; empty where one shows no more than the other."""
    if result.ratio_range is None:
        return ""
    low, high = (_digits(ratio) for ratio in result.ratio_range)
    return "" if low == high else f"({low} – {high})"


def show_target(row: Row) -> str:
    parts: list[str] = []
    if row.at_least is not None:
        either = f", or at most {show_bound(row, row.or_at_most)}" if row.or_at_most is not None else ""
        parts.append(f"at least {row.at_least:g} x{either}")
    if row.at_most is not None:
        parts.append(f"at most {show_bound(row, row.at_most)}")
    if row.aim is not None:
        parts.append(f"aim {row.aim:g} x")
    return ", ".join(parts) or "–"


def show_bound(row: Row, bound: float) -> str:
    if row.unit is Unit.SECONDS:
        return f"{bound * 1_000:g} ms"
    if row.unit is Unit.BYTES:
        return f"{bound / 1e6:g} MB" if bound >= 1e6 else f"{bound / 1_000:g} KB"
    if row.unit is Unit.SHARE:
        return f"{bound * 100:g} %"
    if row.unit is Unit.CALLS:
        return f"{bound:g} calls"
    return f"{bound:g} x"


def show_verdict(result: Result) -> str:
    if result.reached is None:
        return "–"
    if not result.reached:
        return "no"
    return "yes, and the aim" if result.aim_reached else "yes"


def _result(row: Row, readings: list[Reading]) -> Result:
    ours = median(reading.ours for reading in readings)
    peers = [reading.peer for reading in readings if reading.peer is not None]
    ratios = [ratio for reading in readings if (ratio := ratio_of(row, reading)) is not None]
    if not ratios:
        return Result(row, ours)
    return Result(row, ours, median(peers), median(ratios), (min(ratios), max(ratios)))


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
