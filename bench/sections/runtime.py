"""What a step of a graph costs in `threadline.graph` and in LangGraph: the same graphs, each with savers of its own."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from bench.arena import Arena, Entrant, Reading
from bench.runtime import Engine, Row, chat_turns, engines, measured, opened, rows
from bench.sections.longchat import first_and_last_tenth

KEYS = (
    "step",
    "step_memory",
    "step_sqlite",
    "step_sync",
    "loop",
    "loop_memory",
    "fan",
    "fan_memory",
    "fan_sqlite",
    "compile",
)


def runtime(arena: Arena) -> Iterator[Reading]:
    """Every row of the table; the chat only in the first round, since it takes LangGraph a minute and more."""
    ours, theirs = engines()
    sides = {"ours": theirs if arena.is_calibration else ours, "peer": theirs}
    for key, row in zip(KEYS, rows(arena.size.runtime_turns), strict=False):
        pair = _best(arena, row, sides)
        yield Reading(f"runtime.{key}", *pair)
    imported = [arena.both(lambda entrant: opened(sides[entrant.name].name)) for _ in range(arena.size.openings)]
    yield Reading("runtime.import", min(one.ours[0] for one in imported), min(one.peer[0] for one in imported))
    yield Reading("runtime.resident", min(one.ours[1] for one in imported), min(one.peer[1] for one in imported))
    if arena.round_number == 0:
        yield from _chat(arena, sides)


def _best(arena: Arena, row: Row, sides: dict[str, Engine]) -> tuple[float, float]:
    def run(entrant: Entrant) -> float:
        return measured(row, sides[entrant.name], perf_counter)

    pairs = [arena.both(run) for _ in range(arena.size.runtime_repeats)]
    return min(pair.ours for pair in pairs), min(pair.peer for pair in pairs)


def _chat(arena: Arena, sides: dict[str, Engine]) -> Iterator[Reading]:
    def run(entrant: Entrant) -> tuple[list[float], int]:
        place = arena.new_place(entrant)
        with sides[entrant.name].sqlite(place) as saver:
            seconds = chat_turns(sides[entrant.name], saver, perf_counter, arena.size.runtime_turns)
        return seconds, entrant.side.bytes_of(place)

    pair = arena.both(run)
    (ours, our_bytes), (peer, peer_bytes) = pair.ours, pair.peer
    yield Reading("runtime.chat", sum(ours), sum(peer))
    yield Reading("runtime.chat_bytes", our_bytes, peer_bytes)
    our_first, our_last = first_and_last_tenth(ours)
    peer_first, peer_last = first_and_last_tenth(peer)
    yield Reading("runtime.chat_growth", our_last / our_first, peer_last / peer_first)
