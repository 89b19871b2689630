"""Moving house: a copy from SQLite to PostgreSQL, and the export of one long thread. Ours alone, against bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import threadline
from bench import servers
from bench.arena import Arena, Entrant, Reading, Skipped
from bench.checks import check

STEPS = 100
EXPORTED = 1_000


def moving(arena: Arena) -> Iterator[Reading]:
    """Measured in the first round only: what takes long is to build it."""
    if arena.is_calibration or arena.round_number:
        return
    yield from _export(arena)
    count = arena.size.moved_checkpoints
    place = arena.new_place(Entrant("moved", arena.ours))
    with threadline.connect(place, synchronous="OFF") as source:
        for number in range(count // STEPS):
            _chat(source, f"chat-{number}", STEPS)
    try:
        with servers.postgres() as server:
            yield from _copy(arena, place, server.url(arena.new_place(Entrant("moved", arena.ours))), count)
            yield from _copy_threads(arena, server.url(arena.new_place(Entrant("threads", arena.ours))), count)
    except Skipped:
        return


def _copy(arena: Arena, place: Path, url: str, count: int) -> Iterator[Reading]:
    with threadline.connect(place) as source, threadline.connect(url) as target:
        target.setup()
        for key, copied in (("copy", count), ("again", 0)):
            begun = perf_counter()
            report = source.copy_to(target)
            seconds = perf_counter() - begun
            check(report.is_complete and report.checkpoints.copied == copied, "the copy is complete")
            yield Reading(f"moving.{key}", seconds / count * 1_000)


def _copy_threads(arena: Arena, url: str, count: int) -> Iterator[Reading]:
    place = arena.new_place(Entrant("threads", arena.ours))
    with threadline.connect(place, synchronous="OFF") as source:
        for number in range(count):
            _chat(source, f"chat-{number}", 1)
    with threadline.connect(place) as source, threadline.connect(url) as target:
        target.setup()
        begun = perf_counter()
        report = source.copy_to(target)
        yield Reading("moving.threads", (perf_counter() - begun) / count * 1_000)
    check(report.is_complete and report.checkpoints.copied == count, "the copy of many threads is complete")


def _export(arena: Arena) -> Iterator[Reading]:
    place = arena.new_place(Entrant("exported", arena.ours))
    with threadline.connect(place, synchronous="OFF") as source:
        _chat(source, "long", EXPORTED)
    file = place.with_suffix(".tla")
    with threadline.connect(place) as source:
        begun = perf_counter()
        done = source.export(file, threads=["long"])
        yield Reading("moving.export", perf_counter() - begun)
    check(done.is_complete, "the export is complete")
    begun = perf_counter()
    with threadline.connect(f"archive:///{file}") as archive:
        head = archive.get_tuple({"configurable": {"thread_id": "long"}})
    yield Reading("moving.open", perf_counter() - begun)
    check(head is not None and len(head.checkpoint["channel_values"]["messages"]) > 0, "the file has the thread")


def _chat(saver: Any, thread_id: str, steps: int) -> None:
    """A thread that grows by a message a step, with a pending write each."""
    at: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    messages: list[Any] = []
    for step in range(steps):
        messages = [*messages, {"role": "user", "content": f"{thread_id} {step}: " + "some words of a message " * 10}]
        made = threadline.empty_checkpoint()
        made["channel_values"] = {"messages": messages, "turn": step}
        made["channel_versions"] = {"messages": step + 1, "turn": step + 1}
        at = saver.put(at, made, {"source": "loop", "step": step}, made["channel_versions"])
        saver.put_writes(at, [("turn", step + 1)], f"task-{step}")
