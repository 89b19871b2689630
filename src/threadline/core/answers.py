"""Answering a question in one process so that another goes on: the answer is stored as the resume of its task.

LangGraph reads a task's resume values from its pending writes; after `answer`, any worker runs
`graph.invoke(None, config)`. An interrupt within a subgraph is answered where it was raised. What was answered
waits no longer, and cannot be answered again: of two answers at the same time one is stored, and the other a Conflict.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from ..backends.port import Backend
from ..errors import Conflict, InvalidRequest, NotFound
from ..model import ANSWERED, RESUME
from .checkpoints import put_all
from .prepare import prepare_writes
from .questions import questions
from .timeline import config_of
from .tools import Tools

__all__ = ["answer"]


async def answer(backend: Backend, tools: Tools, thread_id: str, answers: Mapping[str, Any], now: float) -> None:
    """Store the answers to interrupts by their ids; all of them, or none."""
    if not answers or not hasattr(answers, "items"):
        raise InvalidRequest("answer takes a dict of interrupt ids and values; saver.interrupts() lists the ids")
    await tools.open(backend)
    waiting = {asked.id: asked for asked in await questions(backend, tools, thread_id) if asked.id is not None}
    unknown = [one for one in answers if one not in waiting]
    if unknown:
        listed = ", ".join(waiting) or "nothing"
        raise NotFound(f"thread {thread_id!r} does not wait for {unknown[0]!r}; it waits for {listed}")
    prepared = []
    # What the same task was told before may be of classes that are not here, and is stored again as it was.
    writing = tools.lenient
    token = secrets.token_bytes(16)  # tells this call's notes from those of another who answers the same
    for interrupt_id, value in answers.items():
        asked = waiting[interrupt_id]
        config = config_of(thread_id, asked.key)
        prepared.append(prepare_writes(writing, config, [(RESUME, [*asked.earlier, value])], asked.task_id, ""))
        # A second answer must not be taken for one to the task's next question.
        for key in (asked.key, *asked.above):
            note, task_id = [(ANSWERED, [interrupt_id, token])], f"answered:{interrupt_id}"
            prepared.append(prepare_writes(writing, config_of(thread_id, key), note, task_id, "", are_first=True))
    try:
        await put_all(backend, writing, prepared, now)
    except Conflict:
        open_now = {question.id for question in await questions(backend, tools, thread_id)}
        taken = [one for one in answers if one not in open_now]
        if not taken:
            raise
        raise Conflict(
            f"thread {thread_id!r}: {taken[0]!r} was answered by somebody else at the same time, and that answer "
            f"stands; nothing of this call was stored"
        ) from None
