"""Many threads of conversation at once in one store: 64 tasks of one loop, then 16 OS threads.

Each has a thread_id of its own and a state of 10 KB: a window of 7 messages, of which every step
drops the oldest and adds one, as a trimmed chat does. A step is one put and one put of writes;
each of the two counts as one operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from time import perf_counter

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from bench.arena import Arena, Entrant, Reading
from bench.chat import Conversation, Step, make_message
from bench.checks import check, check_equal
from bench.savers import Saver, Side
from bench.text import Writer

TASK_COUNT = 64
OS_THREAD_COUNT = 16
WINDOW = 7
OPERATIONS_PER_STEP = 2
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: its thread and the window of messages that each step puts."""

    thread_id: str
    windows: list[list[BaseMessage]]

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": ""}}


def tasks(arena: Arena) -> Iterator[Reading]:
    talks = _talks(TASK_COUNT, arena.size.task_steps)

    def rate(entrant: Entrant) -> float:
        place = arena.new_place(entrant)
        seconds = asyncio.run(_talk_in_tasks(entrant.side, place, talks))
        _check_stored(entrant.side, place, talks)
        return _operations(talks) / seconds

    pair = arena.medians(REPEATS, rate)
    yield Reading("tasks.rate", pair.ours, pair.peer)


def threads(arena: Arena) -> Iterator[Reading]:
    talks = _talks(OS_THREAD_COUNT, arena.size.thread_steps)

    def rate(entrant: Entrant) -> float:
        place = arena.new_place(entrant)
        with entrant.side.open_for_threads(place) as saver:
            seconds = _talk_in_os_threads(saver, talks)
        _check_stored(entrant.side, place, talks)
        return _operations(talks) / seconds

    pair = arena.medians(REPEATS, rate)
    yield Reading("threads.rate", pair.ours, pair.peer)


def _talks(count: int, step_count: int) -> list[Talk]:
    writer = Writer(seed=3)
    talks: list[Talk] = []
    for number in range(count):
        messages = [make_message(writer, n) for n in range(WINDOW + step_count - 1)]
        windows = [messages[start : start + WINDOW] for start in range(step_count)]
        talks.append(Talk(f"talk-{number}", windows))
    return talks


def _operations(talks: list[Talk]) -> int:
    return sum(len(talk.windows) for talk in talks) * OPERATIONS_PER_STEP


async def _talk_in_tasks(side: Side, place: Path, talks: list[Talk]) -> float:
    async with side.open_for_tasks(place) as saver:
        start = perf_counter()
        await asyncio.gather(*(_talk_async(saver, talk) for talk in talks))
        return perf_counter() - start


async def _talk_async(saver: Saver, talk: Talk) -> None:
    conversation, config = Conversation(saver), talk.config
    for number, window in enumerate(talk.windows):
        config = await saver.aput(config, *conversation.advance(number, _step(window)))
        await saver.aput_writes(config, [("recent", window[-1])], _task_id(number))


def _talk_in_os_threads(saver: Saver, talks: list[Talk]) -> float:
    gate = Barrier(len(talks) + 1)

    def talk_when_all_are_ready(talk: Talk) -> None:
        gate.wait()
        _talk(saver, talk)

    with ThreadPoolExecutor(len(talks)) as pool:
        running = [pool.submit(talk_when_all_are_ready, talk) for talk in talks]
        gate.wait()
        start = perf_counter()
        for each in running:
            each.result()
        return perf_counter() - start


def _talk(saver: Saver, talk: Talk) -> None:
    conversation, config = Conversation(saver), talk.config
    for number, window in enumerate(talk.windows):
        config = saver.put(config, *conversation.advance(number, _step(window)))
        saver.put_writes(config, [("recent", window[-1])], _task_id(number))


def _step(window: list[BaseMessage]) -> Step:
    return Step("agent", "agent", {"recent": window})


def _task_id(number: int) -> str:
    return f"task-{number:06}"


def _check_stored(side: Side, place: Path, talks: list[Talk]) -> None:
    """Read the head of every thread, with its pending write, from the reopened place."""
    with side.open(place) as saver:
        for talk in talks:
            found = saver.get_tuple(talk.config)
            check(found is not None, f"{talk.thread_id} is gone")
            assert found is not None
            expected = {"recent": talk.windows[-1], "branch:to:agent": None}
            check_equal(found.checkpoint["channel_values"], expected, talk.thread_id)
            writes = [(_task_id(len(talk.windows) - 1), "recent", talk.windows[-1][-1])]
            check(found.pending_writes == writes, f"{talk.thread_id}: other pending writes")
