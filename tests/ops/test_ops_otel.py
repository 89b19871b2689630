"""OpenTelemetry: instruments by their names, and spans for put, get and prune that lead to the run.

The API keeps one provider for a process, so each test runs in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

HERE = Path(__file__).parent
SETUP = """
import asyncio, json, sys
sys.path.insert(0, {here!r})
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
metrics.set_meter_provider(MeterProvider([reader]))
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)

import threadline
from ops_stores import ask, put

saver = threadline.connect({url!r}, metrics="otel")
RUN = "1f0c5d2e-8a4b-6c3d-9e7f-0123456789ab"

def told():
    points = {{}}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points[metric.name] = [
                    [dict(point.attributes), getattr(point, "value", None) or getattr(point, "count", 0), metric.unit]
                    for point in metric.data.data_points
                ]
    shown = [
        dict(
            name=span.name,
            kind=span.kind.name,
            attributes=dict(span.attributes),
            links=[
                [format(link.context.trace_id, "032x"), format(link.context.span_id, "016x")] for link in span.links
            ],
            parent=span.parent and format(span.parent.span_id, "016x"),
            span_id=format(span.context.span_id, "016x"),
            status=span.status.status_code.name,
            events=len(span.events),
        )
        for span in spans.get_finished_spans()
    ]
    print(json.dumps(dict(metrics=points, spans=shown)))
"""


def run(tmp_path: Path, body: str) -> Any:
    script = SETUP.format(here=str(HERE), url=f"sqlite:///{tmp_path / 'threads.db'}") + body
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "already" not in done.stderr
    return json.loads(done.stdout)


def test_instruments_have_the_names_of_the_conventions(tmp_path: Path) -> None:
    body = "put(saver)\nother = threadline.connect('memory://', metrics='otel')\nput(other)\n"
    body += "saver.sweep()\nsaver.monitor('1h').turn()\ntold()\n"
    found = run(tmp_path, body)["metrics"]
    durations = found["db.client.operation.duration"]
    assert [{"db.system.name": "sqlite", "db.operation.name": "apply"}, 1, "s"] in durations
    assert [{"db.system.name": "memory", "db.operation.name": "apply"}, 1, "s"] in durations
    assert found["threadline.checkpoints.written"] == [[{}, 2, "{checkpoint}"]]
    assert found["threadline.written.stored"][0][2] == "By"
    assert found["threadline.store.up"] == [[{"db.system.name": "sqlite"}, 1.0, "1"]]
    assert found["threadline.sweeps"] == [[{"threadline.sweep.outcome": "done"}, 1, "{sweep}"]]


def test_a_put_and_a_get_have_spans_that_lead_to_the_run(tmp_path: Path) -> None:
    body = "put(saver, run_id=RUN)\nsaver.get_tuple({'configurable': {'thread_id': 't'}})\n"
    body += "saver.prune(['t'])\nput(saver, step=2)\nsaver.prune(['t'])\ntold()\n"
    spans = run(tmp_path, body)["spans"]
    linked = [["1f0c5d2e8a4b6c3d9e7f0123456789ab", "1f0c5d2e8a4b6c3d"]]
    [first, _] = [span for span in spans if span["name"] == "threadline put"]
    assert (first["links"], first["kind"]) == (linked, "CLIENT")
    assert first["attributes"] == {"db.system.name": "sqlite", "db.operation.name": "apply"}
    assert next(span for span in spans if span["name"] == "threadline get")["links"] == linked
    assert "threadline prune" in {span["name"] for span in spans}
    assert not [span for span in spans if "t" in span["attributes"].values()]


def test_puts_of_a_graph_link_to_the_span_of_its_run(tmp_path: Path) -> None:
    body = """
from ops_stores import START, State, StateGraph
graph = StateGraph(State).add_node("work", lambda state: {"notes": ["x"]}).add_edge(START, "work").compile(saver)
graph.invoke({"notes": []}, {"configurable": {"thread_id": "t"}, "metadata": {"run_id": "run-7"}})
told()
"""
    spans = run(tmp_path, body)["spans"]
    of_run = next(span for span in spans if span["name"].startswith("graph "))
    puts = [span for span in spans if span["name"] == "threadline put" and span["links"]]
    assert puts
    assert {span["links"][0][1] for span in puts} == {of_run["span_id"]}


def test_spans_of_both_halves_are_below_that_of_their_caller(tmp_path: Path) -> None:
    body = """
put(saver)
tracer = trace.get_tracer("app")
async def other():
    with tracer.start_as_current_span("async caller"):
        await saver.aget_tuple({"configurable": {"thread_id": "t"}})
with tracer.start_as_current_span("caller"):
    saver.get_tuple({"configurable": {"thread_id": "t"}})
asyncio.run(other())
told()
"""
    spans = run(tmp_path, body)["spans"]
    for caller in ("caller", "async caller"):
        above = next(span for span in spans if span["name"] == caller)
        assert [span["name"] for span in spans if span["parent"] == above["span_id"]] == ["threadline get"]


def test_an_error_is_told_by_its_class_alone(tmp_path: Path) -> None:
    body = """
config = put(saver, run_id="no uuid")
import sqlite3
raw = sqlite3.connect(saver._engine.url.removeprefix("sqlite:///"), isolation_level=None)
raw.execute("ALTER TABLE threadline_checkpoints RENAME TO gone")
saver.clear_cache()
for act in (lambda: put(saver, config=config, step=2), lambda: saver.get_tuple(config)):
    try:
        act()
    except threadline.ThreadlineError as error:
        assert type(error).__name__ in ("Corrupt", "Unavailable", "InvalidRequest"), type(error)
    else:
        raise AssertionError
told()
"""
    found = run(tmp_path, body)
    failed = [span for span in found["spans"] if "error.type" in span["attributes"]]
    assert len(failed) == 2
    assert all(span["events"] == 0 for span in failed)
    assert [point for point in found["metrics"]["db.client.operation.duration"] if "error.type" in point[0]]


def test_without_the_api_the_extra_is_named(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None\nimport threadline\n"
        "try:\n    threadline.connect('memory://', metrics='otel')\n"
        "except threadline.MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "threadline[otel]" in done.stdout, done.stderr
