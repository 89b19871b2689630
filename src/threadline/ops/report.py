"""The statistics of a store on one page: as text, as JSON and as HTML.

Names of threads and channels come from outside: as text they are made printable, in HTML they are escaped. The page
loads nothing and runs nothing.
"""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from ..base.printable import printable
from ..core.context import Context
from ..core.stats import Stats, take_stats
from ..core.usage import Share, shares
from ..show.figures import counted, iso_time, readable_bytes, readable_latency, readable_span
from .survey import Survey, survey

__all__ = ["Report", "as_html", "as_json", "as_text", "make_report"]

_MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A store in figures at one moment."""

    url: str
    version: str
    at: float
    survey: Survey
    stats: Stats
    # The largest, by bytes.
    threads: tuple[Share, ...]
    channels: tuple[Share, ...]


async def make_report(store: Context, url: str, version: str, now: float) -> Report:
    """All figures of a store; reads the links of every chunk and the documents of every checkpoint, but no value."""
    return Report(
        url=url,
        version=version,
        at=now,
        survey=await survey(store, now),
        stats=await take_stats(store.backend, now),
        threads=tuple((await shares(store, "thread"))[:_MOST]),
        channels=tuple((await shares(store, "channel"))[:_MOST]),
    )


def as_json(report: Report) -> str:
    """For programs."""
    told = dataclasses.asdict(report)
    told["at"] = iso_time(report.at)
    told["survey"].update(at=iso_time(report.survey.at), swept_at=iso_time(report.survey.swept_at))
    told["stats"]["bytes_saved"] = report.stats.bytes_saved
    return json.dumps(told, indent=2)


def as_text(report: Report) -> str:
    """For a terminal or a mail."""
    lines = [f"{report.url}, {_moment(report.at)}, threadline {report.version}", ""]
    facts = _facts(report)
    width = max(len(name) for name, _ in facts)
    lines += [f"{name:<{width}}  {value}" for name, value in facts]
    for title, rows in _tables(report):
        lines += ["", f"{title}:"]
        size = max((len(row[0]) for row in rows), default=0)
        lines += [f"  {row[0]:>{size}}  {row[1]}" for row in rows]
    lines += ["", "checkpoints in each of the last 24 hours, the newest last:", f"  {_bars(_hours(report))}"]
    return "".join(f"{printable(line)}\n" for line in lines)


def as_html(report: Report) -> str:
    """A page for a browser; light and dark, and without anything that is loaded or run."""
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in _facts(report)
    )
    tables = "".join(_html_table(title, rows) for title, rows in _tables(report))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Threadline report</title><style>{_STYLE}</style></head><body><h1>Threadline report</h1>"
        f"<p>{html.escape(printable(report.url))}, {_moment(report.at)}, threadline {html.escape(report.version)}</p>"
        f"<table>{facts}</table>{tables}"
        f"<h2>Checkpoints in each of the last 24 hours</h2>{_html_bars(_hours(report))}</body></html>\n"
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    stats, seen = report.stats, report.survey
    answered = f"in {readable_latency(seen.probe_seconds)}" if seen.is_up else f"no ({seen.error})"
    swept = _moment(seen.swept_at) if seen.swept_at is not None else "never"
    oldest = f", the oldest for {readable_span(seen.oldest_question_seconds or 0)}" if seen.questions else ""
    facts = [
        ("answers", answered),
        ("threads", f"{stats.threads:,}, {seen.leases or 0:,} held by runs"),
        ("checkpoints", f"{stats.checkpoints:,}, {sum(stats.checkpoints_per_hour):,} of the last 24 hours"),
        ("pending writes", f"{stats.writes:,}"),
        ("questions", f"{seen.questions or 0:,}{oldest}"),
        ("chunks", f"{stats.chunks:,}"),
        ("in use", readable_bytes(stats.bytes_stored)),
        ("on disk", f"{readable_bytes(stats.bytes_on_disk)}, {readable_bytes(stats.bytes_free)} of it free"),
        (
            "without sharing",
            f"{readable_bytes(stats.bytes_without_sharing)}; sharing saves {readable_bytes(stats.bytes_saved)}",
        ),
        ("mean checkpoint", readable_bytes(stats.mean_checkpoint_bytes)),
        ("in the trash", f"{counted(stats.trash_checkpoints, 'checkpoint')}, {readable_bytes(stats.trash_bytes)}"),
        ("last swept", swept),
    ]
    return facts


def _tables(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    return [("largest threads", _rows(report.threads)), ("largest channels", _rows(report.channels))]


def _rows(found: Sequence[Share]) -> list[tuple[str, str]]:
    return [(readable_bytes(one.stored_bytes), printable(one.name)) for one in found]


def _hours(report: Report) -> list[int]:
    """Checkpoints by hour, the oldest first."""
    return [max(count, 0) for count in reversed(report.stats.checkpoints_per_hour)]


def _bars(counts: Sequence[int]) -> str:
    most = max(counts, default=0) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(count * 8 // most, 7)] if count else "·" for count in counts)


def _html_table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{html.escape(size)}</td><td>{html.escape(name)}</td></tr>" for size, name in rows)
    return f"<h2>{title.capitalize()}</h2><table>{cells}</table>"


def _html_bars(counts: Sequence[int]) -> str:
    most = max(counts, default=0) or 1
    bars = "".join(
        f'<rect x="{place * 20}" y="{100 - count * 100 // most}" width="16" height="{count * 100 // most}">'
        f"<title>{count:,}</title></rect>"
        for place, count in enumerate(counts)
    )
    return f'<svg viewBox="0 0 {len(counts) * 20} 100" role="img" aria-label="checkpoints by hour">{bars}</svg>'


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}table{border-collapse:collapse}td,th{text-align:left;padding:.2rem 1.5rem .2rem 0;"
    "vertical-align:top;overflow-wrap:anywhere}svg{width:100%;height:8rem;fill:currentColor;opacity:.7}"
)
