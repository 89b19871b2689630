"""How many Python functions an operation calls: exact, the same on every machine, and what a small thread pays for.

Counted are the calls of the thread that asks, by `sys.setprofile`, with the collector of garbage off. Entering a
coroutine or a generator again counts as a call; functions written in C do not. The work is that of short threads, on an
open saver that has played some already; a figure is the median of the calls of an operation in the threads after that.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from statistics import median_low
from typing import Any

from bench.chat import Conversation
from bench.savers import Saver
from bench.short import OPERATIONS, ShortThread, short_thread, writes_of

LENGTH = 10
WARM_UP, THREADS = 8, 5


def calls_of(saver: Saver) -> dict[str, int]:
    """The calls of a put, of a put of writes and of a get, in threads of ten small checkpoints."""
    counts: dict[str, list[int]] = {operation: [] for operation in OPERATIONS}
    gc.collect()
    gc.disable()
    try:
        for number in range(WARM_UP + THREADS):
            if number == WARM_UP:
                counts = {operation: [] for operation in OPERATIONS}
            _play(saver, short_thread(f"counted-{number}", LENGTH), counts)
    finally:
        gc.enable()
    return {operation: median_low(found) for operation, found in counts.items()}


def _play(saver: Saver, thread: ShortThread, counts: dict[str, list[int]]) -> None:
    conversation, config = Conversation(saver), thread.config
    for number, step in enumerate(thread.steps):
        checkpoint, metadata, versions = conversation.advance(number, step)
        # Ids and times are those of every run: what they are cut and compared by must not differ.
        checkpoint["id"] = f"1f000000-0000-6000-8000-{number:012}"
        checkpoint["ts"] = f"2026-01-01T00:00:{number:02}+00:00"
        config, calls = _counted(saver.put, config, checkpoint, metadata, versions)
        counts["put"].append(calls)
        _, calls = _counted(saver.put_writes, config, writes_of(step), f"task-{number}")
        counts["put_writes"].append(calls)
    _, calls = _counted(saver.get_tuple, thread.config)
    counts["get"].append(calls)


def _counted(act: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a call gives, and how many functions it called, itself included."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call":
            calls += 1

    sys.setprofile(count)
    try:
        result = act(*arguments)
    finally:
        sys.setprofile(None)
    return result, calls
