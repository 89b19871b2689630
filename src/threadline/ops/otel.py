"""OpenTelemetry: the same figures as instruments, and spans for put, get and prune. Only its API is used.

What becomes of them is decided by the SDK that the application sets up; without one, nothing. A span is a child of the
span that its caller is in. It also links to the run that wrote the checkpoint, whose id is in the row that is put or
got: to its span, where a graph of `threadline.graph` runs in this process. Otherwise the ids of the linked span are
made of the run's id as LangSmith makes them when it exports runs to OpenTelemetry: the trace has the bytes of the
UUID, the span the first eight of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from ..errors import MissingExtra
from ..ports.checkpoints import Backend, Change
from ..ports.engine import Operation
from .meter import WRITTEN, Labels, Meter, Sample, Written, labelled
from .names import CATALOGUE, COUNTER, DURATION, HISTOGRAM, REFUSALS, Metric, metric

try:
    from opentelemetry import context, trace
    from opentelemetry import metrics as api
except ImportError as error:
    raise MissingExtra("metrics='otel' needs the package opentelemetry-api: pip install 'threadline[otel]'") from error

__all__ = ["OtelMeter", "note_run", "run_link", "the_meter"]

T = TypeVar("T")
# Port calls that have a span, and what it is called.
_SPANS = {
    "apply": "put",
    "find": "get",
    "chunks": "get chunks",
    "remove_checkpoints": "prune",
    "remove_thread": "delete",
    "collect": "collect",
}
# A batch may hold the checkpoints of many runs.
_MOST_LINKS = 16


@cache
def the_meter() -> OtelMeter:
    """The meter of this process: instruments of one name are made once."""
    return OtelMeter()


class OtelMeter(Meter):
    """Counts in this process, and tells OpenTelemetry."""

    def __init__(self) -> None:
        super().__init__()
        meter = api.get_meter("threadline")
        self._tracer = trace.get_tracer("threadline")
        self._instruments: dict[str, Any] = {}
        for one in CATALOGUE:
            if one.kind == HISTOGRAM:
                self._instruments[one.name] = meter.create_histogram(
                    one.name, one.unit, one.about, explicit_bucket_boundaries_advisory=list(one.bounds)
                )
            elif one.kind == COUNTER and one.name != "threadline.retries":
                self._instruments[one.name] = meter.create_counter(one.name, one.unit, one.about)
            else:
                self._observe_later(meter, one)

    def _observe_later(self, meter: Any, one: Metric) -> None:
        """Figures that are looked up when the SDK collects."""
        is_up_down = one.name.startswith("db.client.connection.") and not one.name.endswith(".max")
        kind = "counter" if one.kind == COUNTER else "up_down_counter" if is_up_down else "gauge"
        create = getattr(meter, f"create_observable_{kind}")

        def observed(_: Any) -> Iterable[Any]:
            found = [sample for sample in (*self.gauges(), *self.asked()) if sample.name == one.name]
            summed: dict[Labels, float] = {}
            for sample in found:
                summed[sample.labels] = summed.get(sample.labels, 0) + sample.value
            return [api.Observation(value, _attributes(one.name, labels)) for labels, value in summed.items()]

        create(one.name, [observed], one.unit, one.about)

    def timing(self, system: str, operation: str) -> Callable[[float, Exception | None], None]:
        tell_meter, record = super().timing(system, operation), self._instruments[DURATION].record
        usual = _attributes(DURATION, (system, operation, ""))

        def tell(seconds: float, error: Exception | None) -> None:
            tell_meter(seconds, error)
            if error is None:
                record(seconds, usual)

        return tell

    def putting(self, system: str) -> Callable[[float, Sequence[Change]], Written]:
        tell_meter, record = super().putting(system), self._instruments[DURATION].record
        usual = _attributes(DURATION, (system, "apply", ""))
        counters = [self._instruments[name] for name in WRITTEN]

        def tell(seconds: float, changes: Sequence[Change]) -> Written:
            written = tell_meter(seconds, changes)
            record(seconds, usual)
            for counter, number in zip(counters, written, strict=True):
                counter.add(number)
            return written

        return tell

    def count(self, name: str, number: float = 1, labels: Labels = ()) -> None:
        super().count(name, number, labels)
        self._instruments[name].add(number, _attributes(name, labels))

    def observe(self, name: str, value: float, labels: Labels = ()) -> None:
        super().observe(name, value, labels)
        self._instruments[name].record(value, _attributes(name, labels))

    def carried(self, operation: Operation[T]) -> Operation[T]:
        """The operation, with its spans below that of its caller: on SQLite it is run by another thread."""
        here = context.get_current()

        async def carried(backend: Backend) -> T:
            token = context.attach(here)
            try:
                return await operation(backend)
            finally:
                context.detach(token)

        return carried

    def spans(self, system: str, operation: str) -> Callable[..., Any] | None:
        """A span of kind client for each call that people think of as one: put, get, prune, delete, collect."""
        name = _SPANS.get(operation)
        if name is None:
            return None
        attributes = {"db.system.name": system, "db.operation.name": operation}

        @contextmanager
        def opened(*args: Any) -> Iterator[Callable[[Any], None]]:
            links = _links(args[0]) if operation == "apply" else []

            def note_result(found: Any) -> None:
                link = run_link(found.row.run_id) if operation == "find" and found is not None else None
                if link is not None:
                    span.add_link(link.context, link.attributes)

            with self._tracer.start_as_current_span(
                f"threadline {name}",
                kind=trace.SpanKind.CLIENT,
                attributes=attributes,
                links=links,
                # The message of an error may name threads.
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield note_result
                except Exception as error:
                    span.set_attribute("error.type", type(error).__name__)
                    if type(error).__name__ not in REFUSALS:
                        span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                    raise

        return opened


# The spans of runs that this process has begun, the last of them. A put may come when its run is over.
_runs: dict[str, Any] = {}
_MOST_RUNS = 1_000


def note_run(run_id: Any, span: Any) -> None:
    """A run of this process has begun, and this is its span."""
    there = span.get_span_context()
    if run_id is not None and there.is_valid:
        _runs[str(run_id)] = there
        if len(_runs) > _MOST_RUNS:
            _runs.pop(next(iter(_runs)), None)


def run_link(run_id: str | None) -> Any:
    """A link to the span of a run; None where it is not known and its id is no UUID."""
    noted = _runs.get(run_id or "")
    if noted is not None:
        return trace.Link(noted, {"threadline.run.id": run_id or ""})
    try:
        run = uuid.UUID(run_id or "")
    except ValueError:
        return None
    there = trace.SpanContext(
        trace_id=run.int,
        span_id=int.from_bytes(run.bytes[:8], "big"),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.Link(there, {"threadline.run.id": str(run)}) if there.is_valid else None


def _links(changes: Sequence[Change]) -> list[Any]:
    runs = dict.fromkeys(row.run_id for change in changes for row in change.checkpoints)
    return [link for run_id in list(runs)[:_MOST_LINKS] if (link := run_link(run_id)) is not None]


def _attributes(name: str, labels: Labels) -> dict[str, str]:
    return dict(labelled(Sample(metric(name).name, labels, 0)))
