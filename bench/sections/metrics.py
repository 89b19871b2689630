"""What metrics cost: a small put with them, over one without, and between two savers that both have none."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import threadline
from bench.arena import Arena, Reading
from threadline.base.ids import new_id

# So many puts are timed at once, and so often, in turns: the processor's time of this thread, without its waiting.
PUTS, TURNS = 50, 40


def metrics(arena: Arena) -> Iterator[Reading]:
    """Shares of the processor's time; the second is what chance alone makes of two savers that are alike."""
    places = [arena.directory / f"metrics-{arena.round_number}-{name}.db" for name in ("off", "on", "again")]
    savers = [_saver(place, metrics=place is places[1]) for place in places]
    off, on, again = (putting(saver) for saver in savers)
    for put in (off, on, again):
        seconds_of_puts(put)
    turns = [(seconds_of_puts(off), seconds_of_puts(on), seconds_of_puts(again)) for _ in range(TURNS)]
    for saver in savers:
        saver.close()
    yield Reading("metrics.put", statistics.median(on / ((off + again) / 2) for off, on, again in turns) - 1)
    yield Reading("metrics.off", abs(statistics.median(again / off for off, _, again in turns) - 1))


def _saver(place: Path, *, metrics: bool) -> Any:
    # The flushing of the disk would hide what is measured.
    return threadline.connect(place, synchronous="OFF", metrics=metrics)


def putting(saver: Any) -> Callable[[], None]:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    step = 0

    def put() -> None:
        nonlocal config, step
        step += 1
        checkpoint = {
            "v": 4,
            "id": new_id(),
            "ts": "2026-01-02T03:04:05.678901+00:00",
            "channel_values": {"messages": f"message {step}", "count": step},
            "channel_versions": {"messages": step, "count": step},
            "versions_seen": {},
            "updated_channels": None,
        }
        versions = {"messages": step, "count": step}
        config = saver.put(config, checkpoint, {"source": "loop", "step": step}, versions)

    return put


def seconds_of_puts(put: Callable[[], None]) -> float:
    began = thread_time()
    for _ in range(PUTS):
        put()
    return thread_time() - began
