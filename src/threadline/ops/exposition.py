"""Figures as Prometheus reads them: its text format, version 0.0.4, written here and without a library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .meter import Sample, labelled
from .names import CATALOGUE, HISTOGRAM

__all__ = ["CONTENT_TYPE", "prometheus_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(samples: Iterable[Sample]) -> str:
    """All samples, those of one metric together, in the order of the catalogue."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for metric in CATALOGUE:
        found = by_name.get(metric.name)
        if not found:
            continue
        name = metric.prometheus
        lines += [f"# HELP {name} {_escaped(metric.about)}", f"# TYPE {name} {metric.kind}"]
        for sample in sorted(found, key=lambda one: one.labels):
            labels = {key.replace(".", "_"): value for key, value in labelled(sample).items()}
            if metric.kind == HISTOGRAM:
                lines += _histogram(name, labels, metric.bounds, sample)
            else:
                lines.append(f"{name}{_shown(labels)} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def _histogram(name: str, labels: Mapping[str, str], bounds: tuple[float, ...], sample: Sample) -> list[str]:
    lines, below = [], 0
    for bound, count in zip((*bounds, None), sample.counts, strict=True):
        below += count
        upto = "+Inf" if bound is None else _number(bound)
        lines.append(f"{name}_bucket{_shown({**labels, 'le': upto})} {below}")
    return [*lines, f"{name}_sum{_shown(labels)} {_number(sample.value)}", f"{name}_count{_shown(labels)} {below}"]


def _shown(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value, quoted=True)}"' for name, value in labels.items())
    return "{" + inside + "}"


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
