"""The short-thread work: small states, as most threads have them. A message of 200 characters a step, a short todo."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from langchain_core.runnables import RunnableConfig

from bench.chat import NODES, Conversation, Step, Values, make_message, merge
from bench.checks import check, check_equal, look_at
from bench.savers import Saver
from bench.text import Writer

MESSAGE_LENGTH = 200
OPERATIONS = ("put", "put_writes", "get")


@dataclass(frozen=True, slots=True)
class ShortThread:
    """The steps of one thread, and the state they end in."""

    thread_id: str
    steps: list[Step]
    values: Values

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": ""}}


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every call."""

    put: list[float] = field(default_factory=list)
    put_writes: list[float] = field(default_factory=list)
    get: list[float] = field(default_factory=list)


def short_thread(thread_id: str, step_count: int) -> ShortThread:
    writer = Writer(seed=step_count)
    steps: list[Step] = []
    values: Values = {}
    for number in range(step_count):
        node, following = NODES[number % 2], NODES[(number + 1) % 2]
        update: Values = {"messages": [make_message(writer, number, MESSAGE_LENGTH)]}
        if number % 5 == 0:
            update["todo"] = writer.text(40)
        steps.append(Step(node, following, update))
        values = merge(values, update)
    values[f"branch:to:{steps[-1].following}"] = None
    return ShortThread(thread_id, steps, values)


def play_short(saver: Saver, thread: ShortThread, times: Times, *, writes: bool = True) -> None:
    """Each step put, with the writes that lead to the next; then the head read, and compared with what was put."""
    conversation, config = Conversation(saver), thread.config
    for number, step in enumerate(thread.steps):
        arguments = conversation.advance(number, step)
        start = perf_counter()
        config = saver.put(config, *arguments)
        times.put.append(perf_counter() - start)
        if writes:
            written = writes_of(step)
            start = perf_counter()
            saver.put_writes(config, written, f"task-{number}")
            times.put_writes.append(perf_counter() - start)
    start = perf_counter()
    found = saver.get_tuple(thread.config)
    assert found is not None
    look_at(found.checkpoint["channel_values"])
    times.get.append(perf_counter() - start)
    check_equal(found.checkpoint["channel_values"], thread.values, thread.thread_id)
    check(len(found.pending_writes or ()) == (2 if writes else 0), f"{thread.thread_id}: other pending writes")


def writes_of(step: Step) -> list[tuple[str, Any]]:
    """What a task writes when it has run."""
    return [("messages", step.update["messages"]), (f"branch:to:{step.node}", None)]
