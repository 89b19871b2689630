"""Python functions called by an operation on a small thread: ours alone, the same in every round."""

from __future__ import annotations

from collections.abc import Iterator

from bench.arena import Arena, Entrant, Reading
from bench.calls import calls_of


def calls(arena: Arena) -> Iterator[Reading]:
    if arena.is_calibration or arena.round_number:
        return
    place = arena.new_place(Entrant("calls", arena.ours))
    for name, opened in (("memory", arena.ours.open_memory()), ("sqlite", arena.ours.open(place))):
        with opened as saver:
            for operation, count in calls_of(saver).items():
                yield Reading(f"calls.{name}_{operation}", count)
