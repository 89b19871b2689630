"""Where the bytes are: what threads, channels and types take."""

from __future__ import annotations

import time

from ...errors import InvalidRequest
from ..half import Half
from ..making import place, put
from ..raising import refused

_LONG = "a text that is too long to stand in the row of its checkpoint " * 40


async def test_threads_are_weighed(saver: Half, thread: str) -> None:
    small, large = thread + "-small", thread + "-large"
    await put(saver, place(small), {"n": 1})
    at = place(large)
    for number in range(5):
        at = await put(saver, at, {"text": f"{number} {_LONG * 3}"})
    await saver.put_writes(at, [("text", "w")], "task")
    weights = await saver.weigh([large, small, thread + "-none", large])
    assert list(weights) == [large, small]
    assert (weights[large].checkpoints, weights[large].writes) == (5, 1)
    assert (weights[small].checkpoints, weights[small].writes) == (1, 0)
    assert 0 < weights[small].stored_bytes < weights[large].stored_bytes


async def test_a_fork_is_weighed_by_what_it_leads_to(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), {"text": "first " + _LONG})
    await put(saver, first, {"text": "second " + _LONG, "more": "third " + _LONG})
    await saver.of(thread).fork(first, to=thread + "-fork")
    weights = await saver.weigh([thread, thread + "-fork"])
    assert 0 < weights[thread + "-fork"].stored_bytes < weights[thread].stored_bytes


async def test_bytes_are_told_by_thread_channel_and_type(saver: Half, thread: str) -> None:
    at = place(thread)
    for number in range(3):
        items = [f"{one} {_LONG}" for one in range(number + 1)]
        at = await put(saver, at, {"long": items, "number": number, "where": {"a": 1.5}})
    by_channel = {one.name: one for one in await saver.bytes_by("channel", prefix=thread)}
    assert by_channel["long"].stored_bytes > by_channel["number"].stored_bytes > 0
    assert by_channel["(checkpoint rows)"].count == 3
    by_type = {one.name: one for one in await saver.bytes_by("type", prefix=thread)}
    # Each text once, however many checkpoints have it.
    assert by_type["str"].count == 3
    assert by_type["int"].count == 3
    [own] = await saver.bytes_by("thread", prefix=thread)
    assert (own.name, own.count) == (thread, 3)
    assert own.stored_bytes == (await saver.weigh([thread]))[thread].stored_bytes
    # What is counted by channel is what the thread takes, but for a few bytes of packing.
    assert abs(sum(one.stored_bytes for one in by_channel.values()) - own.stored_bytes) < 200
    assert await saver.bytes_by("channel", prefix=thread, since=time.time() + 60) == []
    with refused(InvalidRequest):
        await saver.bytes_by("colour")


async def test_the_figures_say_what_the_system_counts(saver: Half, thread: str) -> None:
    await put(saver, place(thread), {"text": _LONG})
    figures = await saver.stats()
    assert figures.bytes_on_disk >= figures.bytes_free >= 0
    assert figures.bytes_on_disk > 0
