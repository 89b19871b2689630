"""The drawing beside the table: two curves over the growth of a thread, and all ratios as bars.

Written by hand as SVG, with its own background and both colour schemes, so that it reads the same in
a browser, on a page of a repository, and at night.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from bench.arena import ChatFiles
from bench.report import short_title
from bench.results import Result, show, show_ratio
from bench.targets import Unit

WIDTH = 880
MARGIN = 28
HEADER = 58
PANEL_WIDTH, PANEL_HEIGHT = 400, 250
LABEL_WIDTH = 400
BAR_PITCH = 22
POINTS = 50

STYLE = """
.back { fill: #ffffff; stroke: #d1d9e0; }
.ink { fill: #1f2328; } .dim { fill: #59636e; } .grid { stroke: #d1d9e0; }
.ours { stroke: #0969da; } .trusted { stroke: #1a7f37; } .peer { stroke: #bc4c00; }
.ours-fill { fill: #0969da; } .trusted-fill { fill: #1a7f37; } .peer-fill { fill: #bc4c00; }
.bar { fill: #54aeff; } .plain { fill: #afb8c1; } .missed { fill: #fb8f44; }
.goal { stroke: #1f2328; }
text { font: 12px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.title { font-size: 16px; font-weight: 600; } .head { font-weight: 600; }
.small { font-size: 11px; } .end { text-anchor: end; } .middle { text-anchor: middle; }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
  .back { fill: #0d1117; stroke: #3d444d; }
  .ink { fill: #e6edf3; } .dim { fill: #9198a1; } .grid { stroke: #3d444d; }
  .ours { stroke: #4493f8; } .trusted { stroke: #3fb950; } .peer { stroke: #f0883e; }
  .ours-fill { fill: #4493f8; } .trusted-fill { fill: #3fb950; } .peer-fill { fill: #f0883e; }
  .bar { fill: #1f6feb; } .plain { fill: #656c76; } .missed { fill: #bd561d; }
  .goal { stroke: #e6edf3; }
}
"""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a panel: values at evenly spaced checkpoints."""

    kind: str
    name: str
    values: list[float]


def draw(results: Sequence[Result], files: ChatFiles | None) -> str:
    """The whole drawing; without chat files, the bars alone."""
    shown = [result for result in results if result.ratio is not None and result.row.unit is not Unit.FACTOR]
    # Short threads have many rows; those with a target are enough for a picture.
    bars = [result for result in shown if result.row.section != "short" or result.row.has_target]
    top = HEADER + (PANEL_HEIGHT if files else 0)
    height = top + 52 + BAR_PITCH * len(bars) + MARGIN + 8
    parts = [
        f'<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(MARGIN, 36, "Threadline side by side with LangGraph's savers", "ink title"),
    ]
    if files:
        parts.extend(_panels(files))
    parts.extend(_bars(bars, top))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="Benchmarks of Threadline">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _panels(files: ChatFiles) -> Iterator[str]:
    put_curves = [
        Curve("peer", "SqliteSaver", _smooth(files.peer.played.put_seconds)),
        Curve("ours", "Threadline", _smooth(files.ours.played.put_seconds)),
        Curve("trusted", "with trust_identity", _smooth(files.trusted.played.put_seconds)),
    ]
    size_curves = [
        Curve("peer", "SqliteSaver", [float(size) for size in files.peer.played.sizes]),
        Curve("ours", "Threadline", [float(size) for size in files.ours.played.sizes]),
    ]
    steps = len(files.peer.played.put_seconds)
    yield from _panel(MARGIN, "put, by checkpoints in the thread", put_curves, Unit.SECONDS, steps)
    right = WIDTH - MARGIN - PANEL_WIDTH
    yield from _panel(right, "file size, by checkpoints in the thread", size_curves, Unit.BYTES, steps)


def _smooth(seconds: Sequence[float]) -> list[float]:
    """Medians of equal stretches, so that the odd slow disk does not draw the picture."""
    stretch = max(len(seconds) // POINTS, 1)
    return [median(seconds[start : start + stretch]) for start in range(0, len(seconds), stretch)]


def _panel(left: float, title: str, curves: list[Curve], unit: Unit, steps: int) -> Iterator[str]:
    plot_left, plot_right = left + 58, left + PANEL_WIDTH
    plot_top, plot_bottom = HEADER + 34, HEADER + PANEL_HEIGHT - 30
    ceiling, ticks = _axis(max(value for curve in curves for value in curve.values))

    def y(value: float) -> float:
        return plot_bottom - (plot_bottom - plot_top) * min(value / ceiling, 1)

    yield _text(left, HEADER + 16, title, "ink head")
    for tick in ticks:
        yield _line(plot_left, y(tick), plot_right, y(tick), "grid")
        yield _text(plot_left - 6, y(tick) + 4, show(tick, unit) if tick else "0", "dim small end")
    for share in (0, 0.5, 1):
        x = plot_left + (plot_right - plot_left) * share
        yield _text(x, plot_bottom + 16, f"{steps * share:,.0f}", "dim small middle")
    for number, curve in enumerate(curves):
        span = max(len(curve.values) - 1, 1)
        points = " ".join(
            f"{plot_left + (plot_right - plot_left) * index / span:.1f},{y(value):.1f}"
            for index, value in enumerate(curve.values)
        )
        yield f'<polyline class="{curve.kind}" points="{points}"/>'
        label = f"{curve.name}: {show(curve.values[-1], unit)}"
        legend_y = plot_top + 14 + 17 * number
        yield _rectangle(plot_left + 10, legend_y - 6, 12, 3, f"{curve.kind}-fill")
        yield _text(plot_left + 28, legend_y, label, "ink small")


def _bars(results: Sequence[Result], top: float) -> Iterator[str]:
    """Bars from 1 outwards on a logarithmic axis; a tick where a ratio was to be reached."""
    plot_left, plot_right = MARGIN + LABEL_WIDTH, WIDTH - MARGIN - 70
    ratios = [result.ratio or 1.0 for result in results]
    low, high = math.log10(min([0.4, *ratios])), math.log10(max([200, *ratios]))
    first = top + 52
    bottom = first + BAR_PITCH * len(results)

    def x(ratio: float) -> float:
        return plot_left + (plot_right - plot_left) * (math.log10(ratio) - low) / (high - low)

    yield _text(MARGIN, top + 28, "How many times faster, smaller, or more per second", "ink head")
    for power in range(math.ceil(low), math.floor(high) + 1):
        yield _line(x(10**power), first - 6, x(10**power), bottom, "grid")
        yield _text(x(10**power), first - 10, f"{10.0**power:g} x", "dim small middle")
    for number, (result, ratio) in enumerate(zip(results, ratios, strict=True)):
        goal = None if result.row.at_least is None else x(result.row.at_least)
        yield from _bar(result, first + BAR_PITCH * number, x(1), x(ratio), goal)
    yield _text(MARGIN, bottom + 14, "upright mark: at least · orange: missed · grey: no target", "dim small")


def _bar(result: Result, y: float, origin: float, end: float, goal: float | None) -> Iterator[str]:
    kind = {True: "bar", False: "missed", None: "plain"}[result.reached]
    yield _text(MARGIN, y + 11, short_title(result.row), "ink small")
    yield _rectangle(min(origin, end), y, max(abs(end - origin), 1), 14, kind)
    if goal is not None:
        yield _line(goal, y - 1, goal, y + 15, "goal", width=2)
    label = show_ratio(result.ratio) + (" missed" if result.reached is False else "")
    yield _text(max(origin, end, goal or 0) + 8, y + 11, label, "ink small")


def _axis(highest: float) -> tuple[float, list[float]]:
    """A round ceiling not far above the highest value, and the ticks up to it."""
    step = 10 ** math.floor(math.log10(highest / 2)) if highest > 0 else 1.0
    for factor in (1, 2, 2.5, 5, 10):
        if highest / (step * factor) <= 5:
            step *= factor
            break
    count = math.ceil(highest / step)
    return step * count, [step * number for number in range(count + 1)]


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:g}" rx="{min(height / 2, 2):g}"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, width: float = 1) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke-width="{width:g}"/>'
