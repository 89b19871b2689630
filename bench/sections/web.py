"""The page: server time of the list of many threads and of the tree of a long thread, and what a diff page reads.

The stores are built once, in the first round: this is about their size.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import median
from typing import Any

import httpx

import threadline
from bench import servers
from bench.arena import Arena, Entrant, Reading, Skipped
from bench.checks import check
from bench.savers import Ours
from threadline.base.checkpoint import empty_checkpoint
from threadline.base.ids import id_after
from threadline.core.context import Context
from threadline.web import app

REPEATS = 5
PUTS_PER_BATCH = 500
LONG = "a-long-thread"
# The tree has twice as many checkpoints as the long thread of other sections has messages.
STEPS_PER_MESSAGE = 2
TIMING = re.compile(r"page;dur=([\d.]+)")

Put = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, int]]


def web(arena: Arena) -> Iterator[Reading]:
    if arena.round_number:
        return
    place = arena.new_place(Entrant("ours", Ours()))
    yield from _measure(arena, f"sqlite:///{place}", "sqlite")
    try:
        with servers.postgres() as server:
            yield from _measure(arena, server.url(arena.new_place(Entrant("ours", Ours()))), "postgres")
    except Skipped as skipped:
        raise Skipped(f"on PostgreSQL: {skipped}") from skipped


def _measure(arena: Arena, url: str, name: str) -> Iterator[Reading]:
    with closing(threadline.connect(url)) as saver:
        chunks = _build(saver, arena)
    pages = {"threads": "/threads", "threads_by_id": "/threads?sort=id", "tree": f"/thread?id={LONG}"}
    for key, seconds in asyncio.run(_looked_at(url, pages)).items():
        yield Reading(f"web.{name}_{key}", seconds)
    yield Reading(f"web.{name}_diff", asyncio.run(_read_by_a_diff(url)) / chunks)


def _build(saver: Any, arena: Arena) -> int:
    """Many threads, one long one, and two long states; gives how many chunks the two states have."""
    size = arena.size
    parent: str | None = None
    steps: list[Put] = []
    for step in range(STEPS_PER_MESSAGE * size.long_thread):
        put = _put(LONG, {"step": step}, step, parent)
        parent = put[1]["id"]
        steps.append(put)
    _put_all(saver, steps)
    _put_all(saver, [_put(f"user-{number:06}", {"n": number}, 0, None) for number in range(size.many_threads)])
    before = saver.stats().chunks
    messages = [{"id": f"m{number}", "content": f"message {number} " + "x" * 200} for number in range(size.long_thread)]
    chat = saver.thread("chat")
    chat.put({"messages": messages})
    chat.put({"messages": [*messages, {"id": "new", "content": "one more"}]})
    return int(saver.stats().chunks - before)


def _put_all(saver: Any, puts: Sequence[Put]) -> None:
    for start in range(0, len(puts), PUTS_PER_BATCH):
        saver.put_many(puts[start : start + PUTS_PER_BATCH])


def _put(thread_id: str, values: dict[str, Any], step: int, parent: str | None) -> Put:
    versions = dict.fromkeys(values, step + 1)
    checkpoint = {**empty_checkpoint(), "id": id_after(parent), "channel_values": values, "channel_versions": versions}
    place = {"thread_id": thread_id, "checkpoint_ns": "", **({"checkpoint_id": parent} if parent else {})}
    return {"configurable": place}, checkpoint, {"source": "loop", "step": step}, versions


async def _looked_at(url: str, pages: dict[str, str]) -> dict[str, float]:
    """Seconds that the server takes for each page, each time by a new application that has seen nothing yet."""
    saver = threadline.connect(url, read_only=True)
    found = {}
    try:
        for key, path in pages.items():
            times = []
            for _ in range(REPEATS + 1):
                async with _client(saver) as client:
                    times.append(await _seconds(client, path))
            found[key] = median(times[1:])  # the first opens connections and loads templates
    finally:
        await saver.aclose()
    return found


async def _read_by_a_diff(url: str) -> int:
    """How many chunks a diff page of two long states asks for."""
    asked = 0
    real = Context.chunks

    async def chunks(self: Context, pool: int, digests: Sequence[bytes]) -> Any:
        nonlocal asked
        asked += len(digests)
        return await real(self, pool, digests)

    saver = threadline.connect(url, read_only=True)
    Context.chunks = chunks  # type: ignore[method-assign]
    try:
        async with _client(saver) as client:
            check("one more" in (await client.get("/diff?id=chat")).text, "the diff page does not show what was added")
    finally:
        Context.chunks = real  # type: ignore[method-assign]
        await saver.aclose()
    return asked


def _client(saver: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app(saver)), base_url="http://bench", timeout=300)


async def _seconds(client: httpx.AsyncClient, path: str) -> float:
    answer = await client.get(path)
    check(answer.status_code == 200, f"{path} is answered with {answer.status_code}")
    timing = TIMING.search(answer.headers["server-timing"])
    check(timing is not None, f"{path} does not tell its time")
    assert timing is not None
    return float(timing[1]) / 1000
