"""Crashes on cue: whether a graph, ours or LangGraph's, comes to the same end when it is killed at any point.

    report = crashes(graph, {"messages": ["hi"]})
    assert report.is_safe, str(report)

A crash is an exception that is no Exception, so that no node can swallow it. The saver raises it before or after one of
its operations, and from then on refuses everything, as a process does that is gone. The run is resumed on the same
storage, and its end is compared with that of a run without crash.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

import threadline

from .._base import InvalidRequest, run_now
from .answering import resuming, taker

__all__ = ["Crash", "CrashReport", "CrashRun", "CrashSaver", "crash_after", "crashes"]

When = Literal["before", "after"]
# What a run asks of its saver. Reads crash a process as well, but change nothing.
_WRITING = ("put", "put_writes", "put_batch", "put_many")
_inside: ContextVar[bool] = ContextVar("threadline_crash_saver_inside", default=False)


class Crash(BaseException):
    """The process is gone. It is no Exception: `except Exception` in a node does not survive it."""


@dataclass(slots=True)
class _Watch:
    """What one run did to its saver, and where it is to crash."""

    at: int | None = None
    when: When = "before"
    step: int | None = None
    operations: list[str] = field(default_factory=list)
    writes: list[tuple[str, str]] = field(default_factory=list)
    is_dead: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str) -> int:
        """Count an operation; raises where the run crashes before it."""
        with self.lock:
            if self.is_dead:
                raise Crash(f"the process was gone before {name}")
            number = len(self.operations)
            self.operations.append(name)
            if self.at == number and self.when == "before":
                self.is_dead = True
                raise Crash(f"before operation {number}, {name}")
            return number

    def end(self, number: int, name: str, args: tuple[Any, ...]) -> None:
        """The operation is done; raises where the run crashes after it."""
        with self.lock:
            parts = args[0] if name == "put_batch" else [(name, *args)]
            for part in parts:
                if part[0] == "put_writes":
                    self.writes += [(part[3], channel) for channel, _ in part[2]]
            steps = [part[3].get("step") for part in parts if part[0] == "put"]
            if (self.step is not None and self.step in steps) or (self.at == number and self.when == "after"):
                self.is_dead = True
                raise Crash(f"after operation {number}, {name}")


def CrashSaver(saver: Any, *, at: int | None = None, when: When = "before", step: int | None = None) -> Any:
    """The saver, crashing before or after its operation number `at`, or after the checkpoint of a step.

    It is of the saver's own class, so that every library takes it. `saver.watch.operations` counts what was asked.
    """
    watched = copy.copy(saver)
    watched.watch = _Watch(at=at, when=when, step=step)
    watched.__class__ = _crashing(type(saver))
    return watched


@contextmanager
def crash_after(graph: Any, step: int) -> Iterator[Any]:
    """The graph, crashing after the checkpoint of a step; the crash itself is expected and does not leave the block."""
    try:
        yield _with_saver(graph, CrashSaver(graph.checkpointer, step=step))
    except Crash:
        return
    raise AssertionError(f"the run never stored a checkpoint of step {step}, so it did not crash")


@dataclass(frozen=True, slots=True)
class CrashRun:
    """One run with a crash, and its resumption."""

    operation: str
    number: int
    when: When
    is_same: bool
    repeated_nodes: tuple[str, ...]
    # (node, channel): stored before the crash, and stored again after it.
    repeated_writes: tuple[tuple[str, str], ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What came of a crash at every point."""

    operations: int
    runs: tuple[CrashRun, ...]

    @property
    def is_safe(self) -> bool:
        """Whether every crash came to the same end."""
        return all(run.is_same and run.error is None for run in self.runs)

    @property
    def repeated_nodes(self) -> dict[str, int]:
        """The nodes that ran again after a crash, and at how many of the points."""
        return dict(Counter(name for run in self.runs for name in run.repeated_nodes))

    @property
    def repeated_writes(self) -> dict[tuple[str, str], int]:
        """The writes, as (node, channel), that were stored again after a crash, and at how many of the points."""
        return dict(Counter(write for run in self.runs for write in run.repeated_writes))

    def __str__(self) -> str:
        lines = [f"{len(self.runs)} crashes around {self.operations} storage operations"]
        for run in self.runs:
            if not run.is_same or run.error:
                lines.append(
                    f"  {run.when} {run.operation} ({run.number}): {run.error or 'the end is another one'}; "
                    f"ran again: {', '.join(run.repeated_nodes) or 'nothing'}"
                )
        repeated = ", ".join(f"{name} ({times}x)" for name, times in self.repeated_nodes.items())
        lines.append(f"  nodes that ran again after a crash: {repeated or 'none'}")
        return "\n".join(lines)


def crashes(
    graph: Any,
    given: Any,
    config: Any = None,
    *,
    answers: Mapping[Any, Any] | Callable[[Any], Any] | None = None,
    make_saver: Callable[[], Any] | None = None,
    durability: str = "sync",
    is_async: bool = False,
    same: Callable[[Any, Any], bool] | None = None,
) -> CrashReport:
    """Run a graph once, then again with a crash before and after each of its storage operations, and resume.

    `answers` are the answers to the graph's questions, as `answering` takes them: by the question, not by its place,
    since a crash may make the graph ask again. `make_saver` gives an empty saver for each run: by default
    `threadline.connect("memory://")`, for a graph of LangGraph its InMemorySaver. With `is_async` the graph runs on an
    event loop of its own. `same` compares two final states; by default they must be equal.
    """
    if answers is not None and not callable(answers) and not isinstance(answers, Mapping):
        raise InvalidRequest("answers are a mapping of questions or a function: a crash may make the graph ask again")
    address = {**(config or {})}
    address["configurable"] = {"thread_id": "crashes", **address.get("configurable", {})}
    trial = _Trial(graph, given, address, answers, durability, is_async)
    make = make_saver or _saver_maker(graph)
    calm = CrashSaver(make())
    expected = trial.run(calm, given)
    is_same = same or (lambda one, other: one == other)
    runs = []
    points: tuple[When, ...] = ("before", "after")
    for number, when in itertools.product(range(len(calm.watch.operations)), points):
        storage = make()
        crashing = CrashSaver(storage, at=number, when=when)
        runs.append(_crashed_run(trial, storage, crashing, expected.state, is_same))
    return CrashReport(len(calm.watch.operations), tuple(runs))


@dataclass(slots=True)
class _Outcome:
    state: Any = None
    started: set[tuple[str, str]] = field(default_factory=set)
    # A task whose result was found in the store is announced, and has no end: it did not run.
    ended: set[tuple[str, str]] = field(default_factory=set)

    def note(self, event: Any) -> None:
        """A task began or ended."""
        (self.started if "triggers" in event else self.ended).add((event["name"], event["id"]))


@dataclass(frozen=True, slots=True)
class _Trial:
    """A graph and how to run it, whatever its saver."""

    graph: Any
    given: Any
    config: Any
    answers: Any
    durability: str
    is_async: bool

    def run(self, saver: Any, given: Any) -> _Outcome:
        """Run to the end, or to a crash: then there is no state."""
        outcome = _Outcome()
        try:
            running = self._run(_with_saver(self.graph, saver), given, outcome)
            outcome.state = asyncio.run(running) if self.is_async else run_now(running)
        except Crash:
            outcome.state = None
        return outcome

    async def _run(self, graph: Any, given: Any, outcome: _Outcome) -> Any:
        while True:
            await self._stream(graph, given, outcome)
            found = await graph.aget_state(self.config) if self.is_async else graph.get_state(self.config)
            questions = found.interrupts
            if not questions or self.answers is None:
                return found.values
            take = taker(self.answers)
            given = resuming(graph, {question.id: take(question.value) for question in questions})

    async def _stream(self, graph: Any, given: Any, outcome: _Outcome) -> None:
        options = {"stream_mode": "tasks", "durability": self.durability}
        if not self.is_async:
            for event in graph.stream(given, self.config, **options):
                outcome.note(event)
            return
        async for event in graph.astream(given, self.config, **options):
            outcome.note(event)


def _crashed_run(
    trial: _Trial, storage: Any, crashing: Any, expected: Any, same: Callable[[Any, Any], bool]
) -> CrashRun:
    first = trial.run(crashing, trial.given)
    watch = crashing.watch
    number = watch.at or 0
    operation = watch.operations[number] if number < len(watch.operations) else "none"
    resumed, error, second = CrashSaver(storage), None, _Outcome()
    try:
        # A crash before the first checkpoint leaves nothing: the caller starts over.
        second = trial.run(resumed, None if storage.get_tuple(trial.config) is not None else trial.given)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    ran = sorted({name for name, _ in first.started & second.ended})
    names = {task_id: name for name, task_id in first.started | second.started}
    again = {*watch.writes} & {*resumed.watch.writes}
    written = sorted((names.get(task_id, task_id), channel) for task_id, channel in again)
    return CrashRun(operation, number, watch.when, same(second.state, expected), tuple(ran), tuple(written), error)


def _with_saver(graph: Any, saver: Any) -> Any:
    other = copy.copy(graph)
    other.checkpointer = saver
    return other


def _saver_maker(graph: Any) -> Callable[[], Any]:
    if type(graph).__module__.startswith("langgraph."):
        import importlib

        return importlib.import_module("langgraph.checkpoint.memory").InMemorySaver  # type: ignore[no-any-return]
    return lambda: threadline.connect("memory://")


def _crashing(cls: type) -> type:
    """A class like the saver's, whose writing operations ask the watch first."""
    # Each step is stored by itself: a crash after one of them must not come after the next.
    members: dict[str, Any] = {"prefers_batches": False}
    for name in _WRITING:
        if hasattr(cls, name):
            members[name] = _watched(name, getattr(cls, name))
        if hasattr(cls, f"a{name}"):
            members[f"a{name}"] = _awatched(name, getattr(cls, f"a{name}"))
    return type(f"Crashing{cls.__name__}", (cls,), members)


def _watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _inside.get():  # one operation may be made of another
            return method(self, *args, **kwargs)
        number = self.watch.begin(name)
        token = _inside.set(True)
        try:
            result = method(self, *args, **kwargs)
        finally:
            _inside.reset(token)
        self.watch.end(number, name, _positional(args, kwargs))
        return result

    return call


def _awatched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _inside.get():
            return await method(self, *args, **kwargs)
        number = self.watch.begin(name)
        token = _inside.set(True)
        try:
            result = await method(self, *args, **kwargs)
        finally:
            _inside.reset(token)
        self.watch.end(number, name, _positional(args, kwargs))
        return result

    return call


def _positional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return (*args, *kwargs.values())
