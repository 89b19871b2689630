"""The long chat in memory: bytes kept, `put` when the thread is long, `put` when it is short."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from statistics import median

from bench.arena import Arena, Entrant, Reading
from bench.chat import ChatWork, play
from bench.savers import Side
from bench.sections.longchat import first_and_last_tenth

SHORT_THREAD = 10


def memory(arena: Arena) -> Iterator[Reading]:
    def put_last(entrant: Entrant) -> float:
        with entrant.side.open_memory() as saver:
            return first_and_last_tenth(play(saver, arena.work).put_seconds)[1]

    def put_short(entrant: Entrant) -> float:
        with entrant.side.open_memory() as saver:
            return median(play(saver, short).put_seconds)

    def kept_bytes(entrant: Entrant) -> int:
        return bytes_kept(entrant.side, arena.work)

    short = arena.work.beginning(SHORT_THREAD)
    last = arena.both(put_last)
    yield Reading("memory.last", last.ours, last.peer)
    few = arena.medians(arena.size.short_threads, put_short)
    yield Reading("memory.short", few.ours, few.peer)
    if arena.round_number == 0:  # the same in every round
        kept = arena.both(kept_bytes)
        yield Reading("memory.bytes", kept.ours, kept.peer)


def bytes_kept(side: Side, work: ChatWork) -> int:
    """What Python holds for a saver once the work is done and everything else is let go.

    The messages of the work exist before the counting starts, so neither side is charged for them
    unless it made copies of its own. tracemalloc sees what Python allocates: both sides keep their
    bytes in Python objects.
    """
    tracemalloc.start()
    try:
        with side.open_memory() as saver:
            before, _ = tracemalloc.get_traced_memory()
            play(saver, work)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before
