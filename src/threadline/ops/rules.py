"""Alerting rules for Prometheus, made of the names and the thresholds of this room.

The rules are data first: `threadline metrics rules` prints them as YAML, and the tests let promtool check them and
play series against them. A duration counts for latency only where it does not grow with the rows of a store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .judging import Thresholds
from .names import DURATION, LONG, REFUSALS, metric

__all__ = ["Rule", "rules", "rules_yaml"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One alert: when it fires, for how long that must hold, and what to do then."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    advice: str


def rules(thresholds: Thresholds | None = None) -> list[Rule]:
    """All alerts, with these thresholds."""
    limits = thresholds or Thresholds()
    return [*_of_calls(limits), *_of_store(limits), *_of_events()]


def _of_calls(t: Thresholds) -> list[Rule]:
    quick = f'db_operation_name!~"{"|".join(sorted(LONG))}"'
    refusals = "|".join(sorted(REFUSALS))
    calls = metric(DURATION).prometheus
    return [
        Rule(
            name="ThreadlineSlow",
            expression=(
                f"histogram_quantile(0.95, sum by (le, db_system_name) (rate({calls}_bucket{{{quick}}}[5m])))"
                f" > {t.latency_ms / 1000:g}"
            ),
            lasts="5m",
            severity="warning",
            summary="One call in twenty takes longer than {{ $value | humanizeDuration }}.",
            advice="Run `threadline doctor`; look at the pool (pending requests), the disk and long transactions.",
        ),
        Rule(
            name="ThreadlineFailing",
            expression=(
                f'sum by (db_system_name) (rate({calls}_count{{error_type!="",error_type!~"{refusals}"}}[5m]))'
                f" / sum by (db_system_name) (rate({calls}_count[5m])) > {t.error_rate:g}"
            ),
            lasts="5m",
            severity="critical",
            summary="{{ $value | humanizePercentage }} of the calls of the storage fail.",
            advice="The label error_type says how; docs/errors.md says what each error means.",
        ),
        Rule(
            name="ThreadlineIdle",
            expression=(
                f"sum(rate({calls}_count[5m])) < {t.least_per_second:g} and on() sum(threadline_leases_held) > 0"
            ),
            lasts="10m",
            severity="warning",
            summary="Runs hold threads, and there are only {{ $value | humanize }} calls a second.",
            advice="Runs may hang: `threadline locks` says who holds which thread, `threadline why` where it stands.",
        ),
    ]


def _of_store(t: Thresholds) -> list[Rule]:
    return [
        Rule(
            name="ThreadlineDown",
            expression="threadline_store_up == 0",
            lasts="2m",
            severity="critical",
            summary="The store {{ $labels.db_system_name }} does not answer.",
            advice="Run `threadline doctor`; look whether the server runs and its disk has room.",
        ),
        Rule(
            name="ThreadlineGrowing",
            expression=(
                f"predict_linear(threadline_store_size_bytes[6h], 86400)"
                f" > {t.growth_factor:g} * threadline_store_size_bytes"
                f" and threadline_store_size_bytes > {t.growth_from_bytes:g}"
            ),
            lasts="1h",
            severity="warning",
            summary="At this rate the store will hold {{ $value | humanize1024 }}B in a day.",
            advice="`threadline stats --by thread` says where the bytes are; retention and sweeps remove them.",
        ),
        Rule(
            name="ThreadlineQuestionWaits",
            expression=f"threadline_questions_oldest_age_seconds > {t.question_seconds:g}",
            lasts="5m",
            severity="warning",
            summary="The oldest question has waited for {{ $value | humanizeDuration }}.",
            advice="`threadline interrupts` lists what waits, `threadline answer` answers it.",
        ),
        Rule(
            name="ThreadlineSweepOverdue",
            expression=f"time() - threadline_sweep_last_time_seconds > {t.sweep_seconds:g}",
            lasts="10m",
            severity="warning",
            summary="The store was last swept {{ $value | humanizeDuration }} ago.",
            advice="Look at the process that sweeps; `threadline sweep --yes` does it now.",
        ),
    ]


def _of_events() -> list[Rule]:
    return [
        Rule(
            name="ThreadlineDamaged",
            expression="increase(threadline_corrupt_total[15m]) > 0",
            lasts="0m",
            severity="critical",
            summary="Damaged bytes were met.",
            advice="`threadline fsck` says where; docs/repair.md says what to do.",
        ),
        Rule(
            name="ThreadlineLeaseLost",
            expression="increase(threadline_leases_lost_total[15m]) > 0",
            lasts="0m",
            severity="warning",
            summary="A run lost its thread: it did not renew its lease in time.",
            advice="Its next put is refused. Look for pauses of its process, or raise the time to live of its leases.",
        ),
    ]


def rules_yaml(thresholds: Thresholds | None = None) -> str:
    """The alerts as a file of rules. Every text is quoted as JSON has it, which is YAML as well."""
    lines = ["groups:", "  - name: threadline", "    rules:"]
    for rule in rules(thresholds):
        lines += [f"      - alert: {rule.name}", f"        expr: {_quoted(rule.expression)}"]
        if rule.lasts != "0m":
            lines.append(f"        for: {rule.lasts}")
        lines += ["        labels:", f"          severity: {rule.severity}", "        annotations:"]
        lines += [f"          summary: {_quoted(rule.summary)}", f"          description: {_quoted(rule.advice)}"]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)
