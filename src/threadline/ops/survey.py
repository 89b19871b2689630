"""A look at a store as a whole: whether it answers, what it holds, what waits. It reads no state.

The monitor, the exporter and the report are made of it. What is read grows with the threads that ask, and with the
leases that are held; the sizes are those that the storage counts by itself.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from ..core.context import Context
from ..core.leases import locks
from ..core.retention.sweep import SWEEPER
from ..core.stats import probe
from ..core.store_records import KEYS, read_record
from ..core.threads import Asked, count_threads
from ..errors import ThreadlineError
from ..ports.checkpoints import ThreadRow
from .meter import Meter
from .sweeps import last_sweep

__all__ = ["Survey", "asked_at", "publish", "survey", "unreachable"]

# Between the start of the Gregorian calendar, where the time of a uuid6 begins, and 1970.
_GREGORIAN_SECONDS = 12_219_292_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A store at one moment; figures are None where the store did not tell them."""

    at: float
    is_up: bool
    probe_seconds: float
    # The class of what went wrong: a message could name threads.
    error: str | None = None
    size_bytes: int | None = None
    threads: int | None = None
    questions: int | None = None
    oldest_question_seconds: float | None = None
    # Threads that a run holds; the lease of a sweep is not counted.
    leases: int | None = None
    swept_at: float | None = None


def unreachable(error: Exception, now: float, probe_seconds: float = 0.0) -> Survey:
    """A look at a store that could not even be opened."""
    return Survey(at=now, is_up=False, probe_seconds=probe_seconds, error=type(error).__name__)


async def survey(store: Context, now: float) -> Survey:
    """A look at a store now. What fails is told, not raised."""
    backend = store.backend
    began = time.perf_counter()
    try:
        health = await probe(backend)
        error = health.error.partition(":")[0] if health.error else None
        if error == "ReadOnly":  # a store that may only be read answers when it can be read
            await read_record(backend, KEYS)
            error = None
        seconds = health.latency_seconds
        if error is not None:
            return Survey(at=now, is_up=False, probe_seconds=seconds, error=error)
        count, oldest = await _questions(store, now)
        held = [one for one in await locks(backend, now) if one.thread_id != SWEEPER]
        return Survey(
            at=now,
            is_up=True,
            probe_seconds=seconds,
            size_bytes=(await backend.space()).held_bytes,
            threads=await count_threads(backend, ""),
            questions=count,
            oldest_question_seconds=oldest,
            leases=len(held),
            swept_at=await last_sweep(backend),
        )
    except ThreadlineError as trouble:
        return unreachable(trouble, now, time.perf_counter() - began)


def publish(meter: Meter, found: Survey, system: str) -> None:
    """Show a survey as gauges; what it does not tell is taken away."""
    for name, value in _gauges(found):
        meter.show(name, value, (system,))


def _gauges(found: Survey) -> Iterator[tuple[str, float | None]]:
    yield "threadline.store.up", float(found.is_up)
    yield "threadline.probe.duration", found.probe_seconds if found.is_up else None
    yield "threadline.store.size", found.size_bytes
    yield "threadline.store.threads", found.threads
    yield "threadline.questions.waiting", found.questions
    yield "threadline.questions.oldest.age", found.oldest_question_seconds
    yield "threadline.leases.held", found.leases
    yield "threadline.sweep.last.time", found.swept_at


async def _questions(store: Context, now: float) -> tuple[int, float]:
    """How many questions wait, and for how many seconds the oldest one does."""
    asking, count, oldest = Asked(), 0, now
    while page := await asking.next_threads(store):
        for row, questions in page:
            count += len(questions)
            oldest = min([oldest, *(asked_at(question.key.id, row) for question in questions)])
    return count, max(now - oldest, 0.0)


def asked_at(checkpoint_id: str, row: ThreadRow) -> float:
    """When something was asked: the time in the id of its checkpoint, or else when its thread was last active."""
    try:
        parsed = uuid.UUID(checkpoint_id)
    except ValueError:
        return row.active
    if parsed.version != 6:
        return row.active
    ticks = ((parsed.int >> 80) << 12) | ((parsed.int >> 64) & 0xFFF)
    return ticks / 1e7 - _GREGORIAN_SECONDS
