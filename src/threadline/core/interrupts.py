"""Open questions (interrupts that wait for an answer), told from pending writes alone, and answering them. Rules:

- A question is open while it is asked at the newest checkpoint of its namespace, by a task that has written nothing
  since, and has no note that it was answered. The state of the checkpoint is never read.
- Of the writes, only the special ones are decoded. What they hold of a class that is not here is read as a structure
  (codec/structural.py), the classes of LangGraph included: no question is hidden because of its value. Of what is of a
  class that is here only stored fields are looked at: listing questions runs nothing of an application.
- A damaged write hides only itself: a question that cannot be read waits all the same, and its value is `Damaged`.
- An answer is stored as the resume value of its task, so that any process can go on.

LangGraph reads a task's resume values from its pending writes; after `answer`, any worker runs
`graph.invoke(None, config)`. An interrupt within a subgraph is answered where it was raised. What was answered
waits no longer, and cannot be answered again: of two answers at the same time one is stored, and the other a Conflict.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.checkpoint import ANSWERED, INTERRUPT, RESUME, answered_ids, config_of, waiting
from ..base.damage import Damaged
from ..base.fields import stored_field
from ..base.namespaces import ROOT
from ..codec.structural import Structure
from ..errors import Conflict, Corrupt, InvalidRequest, NotFound
from ..ports.checkpoints import CheckpointKey, Found, WriteRow
from .context import Context
from .get import read_writes
from .lifecycle import living
from .prepare import prepare_writes
from .put import put_all

__all__ = ["Question", "answer", "open_at_head", "open_questions", "questions"]


_SPECIAL = frozenset((INTERRUPT, RESUME, ANSWERED))
# What the task of a note that a question was answered is called, before the question's id.
_NOTE = "answered:"


class Question(NamedTuple):
    """An interrupt that waits, and where."""

    # None where whoever asked gave it no id, or it cannot be read: it is listed, and cannot be answered by its id.
    id: str | None
    # `Damaged` where it cannot be read.
    value: Any
    key: CheckpointKey
    task_id: str
    # Answers that the same task was given before; `Damaged` where these cannot be read.
    earlier: tuple[Any, ...] | Damaged
    # Where else the same interrupt shows: at the graphs above a subgraph.
    above: tuple[CheckpointKey, ...] = ()


async def questions(store: Context, thread_id: str) -> list[Question]:
    """The open questions of a thread: at its head, and in the subgraphs that run below it."""
    await living(store, thread_id)
    asking = {write.namespace for write in await store.thread_writes(thread_id) if write.channel == INTERRUPT}
    head = await store.find(thread_id, ROOT, None)
    found_open: dict[Any, Question] = {}
    for namespace in sorted(asking, key=lambda name: (len(name), name)):
        found = head if namespace == ROOT else await store.find(thread_id, namespace, None)
        if found is None or head is None:
            continue
        if namespace != ROOT:
            parents = store.tools.lenient.metadata(found).get("parents")
            above = parents.get(ROOT) if isinstance(parents, Mapping) else None
            if (above or head.row.id) != head.row.id:
                continue  # left over from an earlier step
        for place, question in enumerate(await _open_at(store, thread_id, namespace, found)):
            name = question.id or (namespace, place)
            seen = found_open.get(name)  # the deepest namespace is where it was raised
            found_open[name] = question._replace(above=(*seen.above, seen.key) if seen else ())
    return list(found_open.values())


async def open_at_head(store: Context, thread_id: str, pool: int, writes: Sequence[WriteRow]) -> list[Question]:
    """The open questions among the writes at a thread's head, which may have moved on since they were read."""
    asked = await open_questions(store, thread_id, pool, writes)
    if not any(map(_is_damaged, asked)):
        return asked
    again = await store.find(thread_id, ROOT, None)
    if again is None or again.writes == list(writes):
        return asked if again is not None else []
    return await open_questions(store, thread_id, again.pool, again.writes)


async def _open_at(store: Context, thread_id: str, namespace: str, found: Found) -> list[Question]:
    """The open questions at the newest checkpoint of a namespace; what looks damaged is read again."""
    asked = await open_questions(store, thread_id, found.pool, found.writes)
    if not any(map(_is_damaged, asked)):
        return asked
    again = await store.find(thread_id, namespace, None)
    return await open_questions(store, thread_id, again.pool, again.writes) if again is not None else []


def _is_damaged(question: Question) -> bool:
    return isinstance(question.value, Damaged) or isinstance(question.earlier, Damaged)


async def open_questions(store: Context, thread_id: str, pool: int, writes: Sequence[WriteRow]) -> list[Question]:
    """The open questions among the pending writes of one checkpoint."""
    asked = waiting(writes)
    if not asked:
        return []
    # By a reader that needs no class: what is of one that is not here is a structure.
    chosen = [write for write in writes if write.channel in _SPECIAL]
    read = await read_writes(store, store.tools.lenient, thread_id, pool, chosen)
    special = [(write, value) for write, value, _ in read]
    settled = answered_ids([(write.task_id, write.channel, value) for write, value in special])
    # A note that cannot be read names its question all the same.
    unread = {write.task_id for write, value in special if write.channel == ANSWERED and isinstance(value, Damaged)}
    settled |= {task_id.removeprefix(_NOTE) for task_id in unread}
    resumed = {write.task_id: value for write, value in special if write.channel == RESUME}
    found: list[Question] = []
    for write, interrupts in special:
        if write not in asked:
            continue
        before = _answers(resumed.get(write.task_id))
        key = write.key
        for interrupt in interrupts if type(interrupts) in (list, tuple) else [interrupts]:
            interrupt_id = _field(interrupt, "id")
            interrupt_id = interrupt_id if type(interrupt_id) is str else None
            if interrupt_id not in settled:
                value = _field(interrupt, "value", interrupt)
                found.append(Question(interrupt_id, value, key, write.task_id, before))
    return found


def _answers(resumed: Any) -> tuple[Any, ...] | Damaged:
    """The answers that a task was given."""
    if isinstance(resumed, Damaged):
        return resumed
    return tuple(resumed) if type(resumed) is list else () if resumed is None else (resumed,)


def _field(interrupt: Any, name: str, default: Any = None) -> Any:
    """A field of an interrupt of any class, or of the structure of one."""
    if type(interrupt) is Structure:
        return (interrupt.fields or {}).get(name, default)
    return stored_field(interrupt, name, default)


async def answer(store: Context, thread_id: str, answers: Mapping[str, Any], now: float) -> None:
    """Store the answers to interrupts by their ids; all of them, or none."""
    if not answers or not hasattr(answers, "items"):
        raise InvalidRequest("answer takes a dict of interrupt ids and values; saver.interrupts() lists the ids")
    asks = {asked.id: asked for asked in await questions(store, thread_id) if asked.id is not None}
    unknown = [one for one in answers if one not in asks]
    if unknown:
        noted = {write.task_id for write in await store.thread_writes(thread_id) if write.channel == ANSWERED}
        taken = [one for one in unknown if f"{_NOTE}{one}" in noted]
        if taken:  # the same error, however short before it was
            raise Conflict(
                f"thread {thread_id!r}: {taken[0]!r} was answered already, and that answer stands; nothing of this "
                f"call was stored"
            )
        listed = ", ".join(asks) or "nothing"
        raise NotFound(f"thread {thread_id!r} does not wait for {unknown[0]!r}; it waits for {listed}")
    prepared = []
    # What the same task was told before may be of classes that are not here, and is stored again as it was.
    writing = store.tools.lenient
    token = os.urandom(16)  # tells this call's notes from those of another who answers the same
    for interrupt_id, value in answers.items():
        asked = asks[interrupt_id]
        if isinstance(asked.earlier, Damaged):  # the task would be run without the answers that it was given
            raise Corrupt(asked.earlier.why)
        config = config_of(thread_id, *asked.key)
        prepared.append(prepare_writes(writing, config, [(RESUME, [*asked.earlier, value])], asked.task_id, ""))
        # A second answer must not be taken for one to the task's next question.
        for key in (asked.key, *asked.above):
            note, task_id = [(ANSWERED, [interrupt_id, token])], f"{_NOTE}{interrupt_id}"
            prepared.append(prepare_writes(writing, config_of(thread_id, *key), note, task_id, "", are_first=True))
    try:
        await put_all(Context(store.backend, writing), prepared, now)
    except Conflict:
        open_now = {question.id for question in await questions(store, thread_id)}
        taken = [one for one in answers if one not in open_now]
        if not taken:
            raise
        raise Conflict(
            f"thread {thread_id!r}: {taken[0]!r} was answered by somebody else at the same time, and that answer "
            f"stands; nothing of this call was stored"
        ) from None
