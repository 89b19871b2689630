"""Answering a question in one process so that another goes on: the answer is stored as the resume of its task.

LangGraph reads a task's resume values from its pending writes; after `answer`, any worker runs
`graph.invoke(None, config)`. An interrupt within a subgraph is answered where it was raised. What was answered
waits no longer, and cannot be answered again: of two answers at the same time one is stored, and the other a Conflict.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..backends.port import Backend, CheckpointKey
from ..errors import Conflict, InvalidRequest, NotFound
from ..model import ANSWERED, INTERRUPT, RESUME, WRITES_IDX_MAP, answered_ids
from .checkpoints import put_all
from .documents import read_metadata
from .pages import thread_rows
from .prepare import prepare_writes
from .reading import pending_writes, read_one
from .requests import Place
from .timeline import config_of
from .tools import Tools
from .words import living

__all__ = ["Question", "answer", "questions"]


class Question(NamedTuple):
    """An interrupt that waits, and where."""

    id: str
    value: Any
    key: CheckpointKey
    task_id: str
    # Answers that the same task was given before.
    earlier: tuple[Any, ...]
    # Where else the same interrupt shows: at the graphs above a subgraph.
    above: tuple[CheckpointKey, ...] = ()


async def questions(backend: Backend, tools: Tools, thread_id: str) -> list[Question]:
    """What waits for an answer in a thread: at its head, and in the subgraphs that run below it."""
    await living(backend, thread_id)
    newest: dict[str, CheckpointKey] = {}
    rows = {}
    for found in await thread_rows(backend, thread_id, tools=tools):
        key = CheckpointKey(found.row.namespace, found.row.id)
        if key.namespace not in newest:
            newest[key.namespace] = key
            rows[key] = found
    head = newest.get("")
    waiting: dict[str, Question] = {}
    for namespace, key in sorted(newest.items(), key=lambda item: len(item[0])):
        if namespace:
            parents = read_metadata(rows[key], tools.codec, tools.envelope).get("parents")
            above = parents.get("") if isinstance(parents, Mapping) else None
            if head is None or (above or head.id) != head.id:
                continue  # left over from an earlier step
        for question in await _asked(backend, tools, thread_id, key):
            seen = waiting.get(question.id)  # the deepest namespace is where it was raised
            waiting[question.id] = question._replace(above=(*seen.above, seen.key) if seen else ())
    return list(waiting.values())


async def answer(backend: Backend, tools: Tools, thread_id: str, answers: Mapping[str, Any], now: float) -> None:
    """Store the answers to interrupts by their ids; all of them, or none."""
    if not answers or not hasattr(answers, "items"):
        raise InvalidRequest("answer takes a dict of interrupt ids and values; saver.interrupts() lists the ids")
    await tools.open(backend)
    waiting = {question.id: question for question in await questions(backend, tools, thread_id)}
    unknown = [one for one in answers if one not in waiting]
    if unknown:
        listed = ", ".join(waiting) or "nothing"
        raise NotFound(f"thread {thread_id!r} does not wait for {unknown[0]!r}; it waits for {listed}")
    prepared = []
    token = secrets.token_bytes(16)  # tells this call's notes from those of another who answers the same
    for interrupt_id, value in answers.items():
        asked = waiting[interrupt_id]
        config = config_of(thread_id, asked.key)
        prepared.append(prepare_writes(tools, config, [(RESUME, [*asked.earlier, value])], asked.task_id, ""))
        # A second answer must not be taken for one to the task's next question.
        for key in (asked.key, *asked.above):
            note, task_id = [(ANSWERED, [interrupt_id, token])], f"answered:{interrupt_id}"
            prepared.append(prepare_writes(tools, config_of(thread_id, key), note, task_id, "", are_first=True))
    try:
        await put_all(backend, tools, prepared, now)
    except Conflict:
        open_now = {question.id for question in await questions(backend, tools, thread_id)}
        taken = [one for one in answers if one not in open_now]
        if not taken:
            raise
        raise Conflict(
            f"thread {thread_id!r}: {taken[0]!r} was answered by somebody else at the same time, and that answer "
            f"stands; nothing of this call was stored"
        ) from None


async def _asked(backend: Backend, tools: Tools, thread_id: str, key: CheckpointKey) -> list[Question]:
    read = await read_one(backend, tools, Place(thread_id, *key))
    if read is None:
        return []
    writes = pending_writes(tools, read)
    finished = {task_id for task_id, channel, _ in writes if channel not in WRITES_IDX_MAP}
    settled = answered_ids(writes)
    answered = {task_id: value for task_id, channel, value in writes if channel == RESUME}
    found: list[Question] = []
    for task_id, channel, interrupts in writes:
        if channel != INTERRUPT or task_id in finished:
            continue
        for interrupt in interrupts if isinstance(interrupts, (list, tuple)) else [interrupts]:
            interrupt_id = getattr(interrupt, "id", None)
            if isinstance(interrupt_id, str) and interrupt_id not in settled:
                earlier = answered.get(task_id)
                before = tuple(earlier) if isinstance(earlier, list) else () if earlier is None else (earlier,)
                found.append(Question(interrupt_id, getattr(interrupt, "value", None), key, task_id, before))
    return found
