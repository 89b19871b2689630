"""Seeing a run from outside: a log of its steps, and spans for tracers.

The logger `threadline.graph.steps` gets one line a step when it is enabled for DEBUG: the nodes, how long they took and
how many bytes the step changed. OpenTelemetry gets a span for the run, each step and each task when the program has
set a provider of tracers. A question is an event of a span, not an error. Nothing of this costs anything when nobody
listens.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from .._base import printable
from ..errors import GraphBubbleUp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .loop import Run
    from .tasks import Task

__all__ = ["Observer", "install_observer", "observer_of"]

log = logging.getLogger("threadline.graph.steps")


class Observer:
    """Is told what a run does."""

    def run_begins(self, run: Run) -> None:
        """The run has loaded its state."""

    def run_ends(self, run: Run, error: BaseException | None) -> None:
        """The run is over."""

    def step_begins(self, run: Run) -> None:
        """The tasks of a step are about to run."""

    def step_ends(self, run: Run, updated: Iterable[str]) -> None:
        """The writes of a step were applied."""

    def task_begins(self, task: Task) -> None:
        """A task is about to run; called in the task's own context."""

    def configure(self, task: Task, config: dict[str, Any]) -> None:
        """The config of a task was made, and may be changed before anybody sees it."""

    def task_ends(self, task: Task) -> None:
        """A task has its outcome."""

    def span_of(self, task: Task) -> Any:
        """The span of a task that runs, for graphs inside of it; None where there are no spans."""
        return None


_makers: list[Callable[[Run], Observer | None]] = []


def install_observer(make: Callable[[Run], Observer | None]) -> None:
    """Let somebody else watch runs too: `make` gives an observer, or None where it has no interest."""
    if make not in _makers:
        _makers.append(make)


def observer_of(run: Run) -> Observer | None:
    """Who watches this run; None when nobody does."""
    watching: list[Observer] = []
    if log.isEnabledFor(logging.DEBUG):
        watching.append(StepLog())
    if (trace := sys.modules.get("opentelemetry.trace")) is not None and _is_traced(trace):
        watching.append(Spans(trace))
    watching += [one for make in _makers if (one := make(run)) is not None]
    if not watching:
        return None
    return watching[0] if len(watching) == 1 else Several(watching)


def _is_traced(trace: Any) -> bool:
    """Whether spans go anywhere: many libraries load the API, and only a program that sets a provider wants them."""
    return type(trace.get_tracer_provider()).__name__ not in ("ProxyTracerProvider", "NoOpTracerProvider")


class Several(Observer):
    """Tells several observers."""

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = observers

    def run_begins(self, run: Run) -> None:
        for one in self._observers:
            one.run_begins(run)

    def run_ends(self, run: Run, error: BaseException | None) -> None:
        for one in self._observers:
            one.run_ends(run, error)

    def step_begins(self, run: Run) -> None:
        for one in self._observers:
            one.step_begins(run)

    def step_ends(self, run: Run, updated: Iterable[str]) -> None:
        for one in self._observers:
            one.step_ends(run, updated)

    def task_begins(self, task: Task) -> None:
        for one in self._observers:
            one.task_begins(task)

    def configure(self, task: Task, config: dict[str, Any]) -> None:
        for one in self._observers:
            one.configure(task, config)

    def task_ends(self, task: Task) -> None:
        for one in self._observers:
            one.task_ends(task)

    def span_of(self, task: Task) -> Any:
        return next((span for one in self._observers if (span := one.span_of(task)) is not None), None)


class StepLog(Observer):
    """Writes a line a step."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    def step_begins(self, run: Run) -> None:
        self._begun = time.perf_counter()

    def step_ends(self, run: Run, updated: Iterable[str]) -> None:
        took = time.perf_counter() - self._begun
        names = ", ".join(task.name for task in run.tasks)
        log.debug(
            "thread %r%s step %d: %s in %.1f ms, %s changed",
            run.thread_id,
            printable(f" [{run.namespace}]" if run.namespace else ""),
            run.step,
            printable(names),
            took * 1000,
            printable(_size(run, updated)),
        )


def _size(run: Run, updated: Iterable[str]) -> str:
    """How many bytes the changed channels would take in the store; their number where they have no stored form."""
    from .._base import ThreadlineError, encode

    names = list(updated)
    try:
        return f"{sum(len(encode(run.state.channels[name].checkpoint())) for name in names)} bytes"
    except (ThreadlineError, TypeError, ValueError):
        return f"{len(names)} channels"


class Spans(Observer):
    """Makes OpenTelemetry spans: run > step > task."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._tracer = trace.get_tracer("threadline.graph")
        self._run: Any = None
        self._step: Any = None
        self._tasks: dict[str, Any] = {}

    def run_begins(self, run: Run) -> None:
        above = run.parent.run.observer if run.parent is not None else None
        parent = above.span_of(run.parent) if above is not None and run.parent is not None else None
        attributes = {"threadline.thread_id": str(run.thread_id), "threadline.namespace": run.namespace}
        self._run = self._start(f"graph {run.graph.name}", parent, attributes)
        # Where a saver tells OpenTelemetry of its puts, they link to this span.
        if (otel := sys.modules.get("threadline.ops.otel")) is not None:
            otel.note_run(run.run_id, self._run)

    def run_ends(self, run: Run, error: BaseException | None) -> None:
        if self._step is not None:
            self._step.end()
        if self._run is not None:
            for question in run.interrupts:
                self._run.add_event("interrupt", {"threadline.interrupt_id": question.id})
            self._end(self._run, error)

    def step_begins(self, run: Run) -> None:
        attributes = {"threadline.step": run.step, "threadline.nodes": [task.name for task in run.tasks]}
        self._step = self._start(f"step {run.step}", self._run, attributes)

    def step_ends(self, run: Run, updated: Iterable[str]) -> None:
        if self._step is not None:
            self._step.end()
            self._step = None

    def task_begins(self, task: Task) -> None:
        attributes = {"threadline.task_id": task.id, "threadline.node": task.name}
        self._tasks[task.id] = self._start(f"node {task.name}", self._step or self._run, attributes)

    def task_ends(self, task: Task) -> None:
        span = self._tasks.pop(task.id, None)
        if span is not None:
            for question in task.interrupts:
                span.add_event("interrupt", {"threadline.interrupt_id": question.id})
            span.set_attribute("threadline.attempts", task.attempt)
            self._end(span, task.error)

    def span_of(self, task: Task) -> Any:
        return self._tasks.get(task.id)

    def _start(self, name: str, parent: Any, attributes: dict[str, Any]) -> Any:
        context = self._trace.set_span_in_context(parent) if parent is not None else None
        return self._tracer.start_span(name, context=context, attributes=attributes)

    def _end(self, span: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, GraphBubbleUp):
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, type(error).__name__))
        span.end()
