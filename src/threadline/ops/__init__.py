"""Running a store: metrics, alerts, reports and the doctor.

`connect(url, metrics=True)` counts in this process (`saver.metrics`), `metrics="otel"` tells OpenTelemetry as well.
`saver.monitor(…)` watches and alerts. `threadline metrics`, `monitor`, `report` and `doctor` are the same on the
command line. See docs/operations.md.
"""

from __future__ import annotations

from .judging import Thresholds
from .meter import Meter

__all__ = ["Meter", "Thresholds"]
