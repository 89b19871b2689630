"""What waits for an answer, from pending writes alone. Rules:

- A question is open while it is asked at the newest checkpoint of its namespace, by a task that has written nothing
  since, and has no note that it was answered. The state of the checkpoint is never read.
- Of the writes, only the special ones are decoded. What they hold of a class that is not here is read as a structure
  (codec/structure.py), the classes of LangGraph included: no question is hidden because of what it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..backends.port import Backend, CheckpointKey, WriteRow
from ..chunks.read import Pile
from ..errors import Corrupt, NotAllowed, NotFound
from ..model import ANSWERED, INTERRUPT, RESUME, WRITES_IDX_MAP, answered_ids
from ..namespaces import ROOT
from .documents import read_metadata
from .pages import learn_keys_of
from .reading import name_of_write, write_ref
from .tools import Tools
from .words import living

__all__ = ["Question", "open_at_head", "open_questions", "questions"]

_SPOKEN = frozenset((INTERRUPT, RESUME, ANSWERED))


class Question(NamedTuple):
    """An interrupt that waits, and where."""

    # None where whoever asked gave it no id: such a question is listed, and cannot be answered by its id.
    id: str | None
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
    asking = {write.namespace for write in await backend.thread_writes(thread_id) if write.channel == INTERRUPT}
    head = await backend.find(thread_id, ROOT, None)
    waiting: dict[Any, Question] = {}
    for namespace in sorted(asking, key=lambda name: (len(name), name)):
        found = head if namespace == ROOT else await backend.find(thread_id, namespace, None)
        if found is None or head is None:
            continue
        if namespace != ROOT:
            await learn_keys_of(backend, tools, [found])
            parents = read_metadata(found, tools.lenient.codec, tools.envelope).get("parents")
            above = parents.get(ROOT) if isinstance(parents, Mapping) else None
            if (above or head.row.id) != head.row.id:
                continue  # left over from an earlier step
        for place, question in enumerate(await open_questions(backend, tools, thread_id, found.pool, found.writes)):
            name = question.id or (namespace, place)
            seen = waiting.get(name)  # the deepest namespace is where it was raised
            waiting[name] = question._replace(above=(*seen.above, seen.key) if seen else ())
    return list(waiting.values())


async def open_at_head(
    backend: Backend, tools: Tools, thread_id: str, pool: int, writes: Sequence[WriteRow]
) -> list[Question]:
    """The open questions among the writes at a thread's head, which may have moved on since they were read."""
    try:
        return await open_questions(backend, tools, thread_id, pool, writes)
    except Corrupt:
        again = await backend.find(thread_id, ROOT, None)
        if again is not None and again.writes == list(writes):
            raise
    return await open_questions(backend, tools, thread_id, again.pool, again.writes) if again is not None else []


async def open_questions(
    backend: Backend, tools: Tools, thread_id: str, pool: int, writes: Sequence[WriteRow]
) -> list[Question]:
    """The open questions among the pending writes of one checkpoint."""
    finished = {write.task_id for write in writes if write.channel not in WRITES_IDX_MAP}
    asked = [write for write in writes if write.channel == INTERRUPT and write.task_id not in finished]
    if not asked:
        return []
    spoken = await _spoken(backend, tools, thread_id, pool, [write for write in writes if write.channel in _SPOKEN])
    settled = answered_ids([(write.task_id, write.channel, value) for write, value in spoken])
    resumed = {write.task_id: value for write, value in spoken if write.channel == RESUME}
    found: list[Question] = []
    for write, interrupts in spoken:
        if write.channel != INTERRUPT or write.task_id in finished:
            continue
        earlier = resumed.get(write.task_id)
        before = tuple(earlier) if isinstance(earlier, list) else () if earlier is None else (earlier,)
        key = CheckpointKey(write.namespace, write.checkpoint_id)
        for interrupt in interrupts if isinstance(interrupts, (list, tuple)) else [interrupts]:
            interrupt_id = getattr(interrupt, "id", None)
            interrupt_id = interrupt_id if isinstance(interrupt_id, str) else None
            if interrupt_id not in settled:
                value = getattr(interrupt, "value", interrupt)
                found.append(Question(interrupt_id, value, key, write.task_id, before))
    return found


async def _spoken(
    backend: Backend, tools: Tools, thread_id: str, pool: int, writes: Sequence[WriteRow]
) -> list[tuple[WriteRow, Any]]:
    """These writes with their values; what is of a class that is not here is a structure."""
    await tools.learn_keys(backend, [write.form for write in writes])
    refs = [write_ref(tools, thread_id, write) for write in writes]
    pile, reader = Pile(), tools.lenient.reader
    await reader.gather(pool, refs, partial(tools.fetch, backend, pool), pile)
    found: list[tuple[WriteRow, Any]] = []
    for write, ref in zip(writes, refs, strict=True):
        try:
            found.append((write, reader.value(ref, pile)))
        except (Corrupt, NotAllowed, NotFound) as error:
            raise type(error)(f"{name_of_write(thread_id, write)}: {error}") from None
    return found
