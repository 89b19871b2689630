"""A dashboard for Grafana, made of the names of this room; `threadline metrics dashboard` prints it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .names import DURATION, LONG, REFUSALS, metric

__all__ = ["PANELS", "Panel", "dashboard_json"]

_CALLS = metric(DURATION).prometheus
_QUICK = f'db_operation_name!~"{"|".join(sorted(LONG))}"'
_FAILED = f'error_type!="",error_type!~"{"|".join(sorted(REFUSALS))}"'
# Grafana puts a span in here that fits its own resolution and the scrape interval.
_RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: its curves, each with what stands in the legend."""

    title: str
    unit: str
    curves: tuple[tuple[str, str], ...]
    about: str = ""


def _quantile(part: float) -> str:
    return f"histogram_quantile({part}, sum by (le) (rate({_CALLS}_bucket{{{_QUICK}}}[{_RATE}])))"


def _mean(name: str) -> str:
    histogram = metric(name).prometheus
    return f"sum(rate({histogram}_sum[{_RATE}])) / sum(rate({histogram}_count[{_RATE}]))"


def _per_second(name: str) -> str:
    return f"sum(rate({metric(name).prometheus}[{_RATE}]))"


PANELS: tuple[Panel, ...] = (
    Panel(title="Store answers", unit="bool_on_off", curves=(("min(threadline_store_up)", "up"),)),
    Panel(
        title="Latency",
        unit="s",
        curves=tuple((_quantile(part), f"p{part * 100:g}") for part in (0.5, 0.95, 0.99)),
        about="Calls whose duration does not grow with the rows of the store.",
    ),
    Panel(
        title="Calls a second",
        unit="ops",
        curves=((f"sum by (db_operation_name) (rate({_CALLS}_count[{_RATE}]))", "{{db_operation_name}}"),),
    ),
    Panel(
        title="Failures",
        unit="percentunit",
        curves=(
            (
                f"sum by (error_type) (rate({_CALLS}_count{{{_FAILED}}}[{_RATE}]))"
                f" / ignoring(error_type) group_left sum(rate({_CALLS}_count[{_RATE}]))",
                "{{error_type}}",
            ),
        ),
        about="What the storage failed to do, as a part of all calls; refusals such as conflicts are no failures.",
    ),
    Panel(
        title="Conflicts, stale puts, retries",
        unit="ops",
        curves=(
            (_per_second("threadline.conflicts"), "conflicts"),
            (_per_second("threadline.puts.stale"), "stale"),
            (_per_second("threadline.retries"), "retries"),
        ),
    ),
    Panel(
        title="Bytes written a second",
        unit="Bps",
        curves=((_per_second("threadline.written.raw"), "raw"), (_per_second("threadline.written.stored"), "stored")),
    ),
    Panel(
        title="Chunks a second",
        unit="ops",
        curves=(
            (_per_second("threadline.chunks.written"), "written"),
            (_per_second("threadline.chunks.known"), "known"),
        ),
        about="Known chunks were stored before, and are not written again.",
    ),
    Panel(title="Callers that share a commit", unit="short", curves=((_mean("threadline.commit.group.size"), "mean"),)),
    Panel(title="Wait for a shared commit", unit="s", curves=((_mean("threadline.commit.group.wait"), "mean"),)),
    Panel(
        title="Connections",
        unit="short",
        curves=(
            (
                "sum by (db_client_connection_state) (db_client_connection_count)",
                "{{db_client_connection_state}}",
            ),
            ("sum(db_client_connection_max)", "most"),
            ("sum(db_client_connection_pending_requests)", "waiting"),
        ),
    ),
    Panel(title="Size of the store", unit="bytes", curves=(("max(threadline_store_size_bytes)", "size"),)),
    Panel(
        title="Threads and questions",
        unit="short",
        curves=(
            ("max(threadline_store_threads)", "threads"),
            ("max(threadline_questions_waiting)", "questions"),
            ("max(threadline_leases_held)", "runs"),
        ),
    ),
    Panel(
        title="Oldest question",
        unit="s",
        curves=(("max(threadline_questions_oldest_age_seconds)", "age"),),
    ),
    Panel(
        title="Since the last sweep",
        unit="s",
        curves=(("time() - max(threadline_sweep_last_time_seconds)", "age"),),
    ),
    Panel(
        title="Damage and lost leases",
        unit="short",
        curves=(
            ("sum(increase(threadline_corrupt_total[1h]))", "damage"),
            ("sum(increase(threadline_leases_lost_total[1h]))", "leases lost"),
        ),
    ),
    Panel(
        title="Sweeps",
        unit="short",
        curves=(
            (
                "sum by (threadline_sweep_outcome) (increase(threadline_sweeps_total[1d]))",
                "{{threadline_sweep_outcome}}",
            ),
        ),
    ),
)
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


def dashboard_json() -> str:
    """The dashboard as Grafana imports it; it asks for the data source."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    return json.dumps(
        {
            "title": "Threadline",
            "uid": "threadline",
            "tags": ["threadline"],
            "schemaVersion": 39,
            "time": {"from": "now-6h", "to": "now"},
            "refresh": "30s",
            "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
            "panels": [_panel(number, panel, source) for number, panel in enumerate(PANELS)],
        },
        indent=2,
    )


def _panel(number: int, panel: Panel, source: dict[str, str]) -> dict[str, Any]:
    place = {"x": number % _COLUMNS * _WIDTH, "y": number // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend, "datasource": source}
            for place, (expression, legend) in enumerate(panel.curves)
        ],
    }
