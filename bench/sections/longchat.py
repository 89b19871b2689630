"""The long chat: bytes on disk, `put`, `get_tuple` of the head, `list`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from statistics import median
from time import perf_counter

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from bench.arena import Arena, Entrant, Reading
from bench.chat import THREAD_ID, ChatWork
from bench.checks import check, check_equal, look_at
from bench.savers import Saver

THREAD: RunnableConfig = {"configurable": {"thread_id": THREAD_ID, "checkpoint_ns": ""}}


def disk(arena: Arena) -> Iterator[Reading]:
    files, changed = arena.chat_files, arena.work.changed_bytes
    ours, peer = files.ours.bytes_on_disk, files.peer.bytes_on_disk
    yield Reading("disk.bytes", ours, peer)
    yield Reading("disk.share", ours / changed, peer / changed)


def compaction(arena: Arena) -> Iterator[Reading]:
    """What `compact` leaves of our chat. Called when everything else has been measured on it."""
    if arena.is_calibration:
        return
    place = arena.chat_files.ours.place
    with arena.ours.open(place) as saver:
        saver.compact()  # type: ignore[attr-defined]
    yield Reading("compact.share", arena.ours.bytes_of(place) / arena.work.changed_bytes)


def puts(arena: Arena) -> Iterator[Reading]:
    files = arena.chat_files
    ours, trusted, peer = (
        first_and_last_tenth(file.played.put_seconds) for file in (files.ours, files.trusted, files.peer)
    )
    yield Reading("put.last", ours[1], peer[1])
    yield Reading("put.growth", ours[1] / ours[0], peer[1] / peer[0])
    yield Reading("put.trusted_last", trusted[1], peer[1])
    yield Reading("put.trusted_growth", trusted[1] / trusted[0], peer[1] / peer[0])


def head(arena: Arena) -> Iterator[Reading]:
    expected = arena.work.expected(len(arena.work.steps) - 1)

    def read_head(entrant: Entrant) -> float:
        with entrant.side.open(arena.chat_files.of(entrant).place) as saver:
            start = perf_counter()
            found = saver.get_tuple(THREAD)
            check(found is not None, f"{entrant.name}: the head is gone")
            assert found is not None
            look_at(found.checkpoint["channel_values"])
            seconds = perf_counter() - start
        check_equal(found.checkpoint["channel_values"], expected, entrant.name)
        return seconds

    pair = arena.medians(arena.size.reads, read_head)
    yield Reading("get.head", pair.ours, pair.peer)


def listing(arena: Arena) -> Iterator[Reading]:
    """The peer decodes everything whether looked at or not: one figure of it serves three rows."""

    def list_all(entrant: Entrant) -> float:
        return _list(arena, entrant, limit=None, looking=True)

    ours = Entrant("ours", arena.ours)
    seen = arena.both(list_all)
    unseen = median(_list(arena, ours, limit=None, looking=False) for _ in range(3))
    shared = _list(arena, ours, limit=None, looking=True, share_decoded=True)
    yield Reading("list.unseen", unseen, seen.peer)
    yield Reading("list.seen", seen.ours, seen.peer)
    yield Reading("list.shared", shared, seen.peer)
    yield from listing_ten(arena)


def listing_ten(arena: Arena) -> Iterator[Reading]:
    def list_ten(entrant: Entrant) -> float:
        return _list(arena, entrant, limit=10, looking=True)

    ours = Entrant("ours", arena.ours)
    ten = arena.medians(3, list_ten)
    first, again = (
        median(_list(arena, ours, limit=10, looking=True, share_decoded=True, in_use=in_use) for _ in range(3))
        for in_use in (False, True)
    )
    yield Reading("list.ten", ten.ours, ten.peer)
    yield Reading("list.ten_first", first, ten.peer)
    yield Reading("list.ten_shared", again, ten.peer)


def first_and_last_tenth(seconds: list[float]) -> tuple[float, float]:
    """The medians of the first and of the last tenth of the puts."""
    tenth = max(len(seconds) // 10, 1)
    return median(seconds[:tenth]), median(seconds[-tenth:])


def _list(
    arena: Arena,
    entrant: Entrant,
    *,
    limit: int | None,
    looking: bool,
    share_decoded: bool = False,
    in_use: bool = False,
) -> float:
    """Seconds to list a reopened place; the checks are made while the clock stands still.

    A saver in use has read the thread's newest checkpoint before.
    """
    file = arena.chat_files.of(entrant)
    gc.collect()
    with entrant.side.open(file.place, share_decoded=share_decoded) as saver:
        if in_use:
            found = saver.get_tuple(THREAD)
            assert found is not None
            look_at(found.checkpoint["channel_values"])
        return _timed_list(saver, arena.work, file.played.checkpoint_ids, limit, looking)


def _timed_list(saver: Saver, work: ChatWork, ids: list[str], limit: int | None, looking: bool) -> float:
    seconds = 0.0
    number = len(ids)
    start = perf_counter()
    tuples = saver.list(THREAD, limit=limit)
    while True:
        found = next(tuples, None)
        if found is not None and looking:
            look_at(found.checkpoint["channel_values"])
        seconds += perf_counter() - start
        if found is None:
            break
        number -= 1
        _check_listed(found, ids, work, number, looking)
        start = perf_counter()
    check(len(ids) - number == (limit or len(ids)), f"{len(ids) - number} checkpoints were listed")
    return seconds


def _check_listed(found: CheckpointTuple, ids: list[str], work: ChatWork, number: int, looked: bool) -> None:
    check(found.checkpoint["id"] == ids[number], f"checkpoint {number} is out of order")
    if looked:
        values = found.checkpoint["channel_values"]
        check_equal(values, work.expected(number), f"checkpoint {number}")
