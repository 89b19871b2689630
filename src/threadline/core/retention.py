"""Deleting: which checkpoints may go, and the collection of chunks nobody needs any more.

What may go is decided by pure functions over stamps of the history; acting takes the plan. A checkpoint
that another one's delta channel is replayed from is never let go: for such channels, writes are state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..backends.port import Backend, CheckpointKey, Found, Query
from ..backends.rules import mark
from ..errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotFound, Unavailable
from ..ids import id_of_now
from .documents import fits_column, read_document, read_metadata
from .pages import each_found, thread_rows
from .requests import Place
from .tools import Tools
from .words import tags_of

__all__ = [
    "DELTA_COUNTERS",
    "History",
    "Step",
    "collect_pool",
    "delete_checkpoint",
    "delete_runs",
    "delete_thread",
    "history_from",
    "history_of",
    "keep_latest",
    "marked_in",
    "prune",
    "remove",
    "remove_batch",
    "with_chains",
]

_PAGE = 256
_BATCH = 500
# How often a deletion looks again because somebody went on from what was to go.
_MOST_LOOKS = 16
DELTA_COUNTERS = "counters_since_delta_snapshot"


@dataclass(frozen=True, slots=True)
class Step:
    """What retention needs to know of one checkpoint."""

    key: CheckpointKey
    parent: CheckpointKey | None
    run_id: Any
    # Channels whose value is replayed from ancestors, because this checkpoint does not hold it.
    replays: frozenset[str]
    holds: frozenset[str]
    source: str | None
    created: float
    # For a subgraph's checkpoint: the checkpoints of the graphs above, by namespace.
    parents: Mapping[str, str]
    # It cannot be read here (damaged, or of types that are not allowed): what it needs is not known.
    is_unreadable: bool = False


History = dict[CheckpointKey, Step]


def keep_latest(history: History) -> set[CheckpointKey]:
    """The newest checkpoint of each namespace, and what their delta channels are replayed from."""
    newest: dict[str, CheckpointKey] = {}
    for key in history:
        if key.namespace not in newest or key.id > newest[key.namespace].id:
            newest[key.namespace] = key
    return with_chains(history, newest.values())


def with_chains(history: History, kept: Iterable[CheckpointKey]) -> set[CheckpointKey]:
    """The checkpoints to keep, and the ancestors from which their delta channels are replayed."""
    needed: set[CheckpointKey] = set()
    for key in kept:
        needed.add(key)
        step = history[key]
        missing, ancestor, seen = set(step.replays), step.parent, {key}
        # What cannot be read may need everything before it.
        while (missing or step.is_unreadable) and ancestor in history and ancestor not in seen:
            seen.add(ancestor)
            missing -= history[ancestor].holds
            ancestor = history[ancestor].parent
        needed |= seen
    return needed


async def prune(
    backend: Backend,
    tools: Tools,
    thread_id: str,
    choose: Callable[[History], set[CheckpointKey]],
    *,
    spares_marked: bool = False,
) -> int:
    """Delete the checkpoints that `choose` does not keep; returns how many went."""
    await tools.open(backend)
    history = await history_of(backend, tools, thread_id)
    doomed = sorted(history.keys() - choose(history))
    return await remove(backend, tools, thread_id, doomed, history, spares_marked=spares_marked)


async def delete_thread(backend: Backend, tools: Tools, thread_id: str, now: float) -> None:
    """Delete a thread; what descends from before is refused from now on, a new start is not."""
    thread = await backend.thread(thread_id)
    if thread is None:
        return
    [*newest] = await backend.page(Query(thread_id=thread_id, limit=1, with_writes=False))
    # What descends from any checkpoint made until now is refused, also from one that never arrived.
    until = max(newest[0].row.id if newest else "", id_of_now())
    await backend.remove_thread(thread_id, until, now)
    tools.stamps.drop(thread_id)
    if await _has_mates(backend, thread.pool):
        await collect_pool(backend, thread.pool)


async def delete_runs(backend: Backend, tools: Tools, run_ids: Sequence[str]) -> int:
    """Delete the checkpoints of some runs, except those that others are replayed from."""
    await tools.open(backend)
    # A run id that no column holds exactly is looked for in every thread's metadata.
    indexed = [run_id for run_id in run_ids if fits_column(run_id)]
    parts = [tuple(indexed[start : start + _BATCH]) for start in range(0, len(indexed), _BATCH)]
    threads: set[str] = set()
    for part in parts if len(indexed) == len(run_ids) else [None]:
        threads |= await _threads_with(backend, part)
    wanted = frozenset(run_ids)

    def others(history: History) -> set[CheckpointKey]:
        return with_chains(history, [key for key, step in history.items() if step.run_id not in wanted])

    removed = 0
    for thread_id in sorted(threads):
        removed += await prune(backend, tools, thread_id, others)
    return removed


async def _threads_with(backend: Backend, run_ids: tuple[str, ...] | None) -> set[str]:
    """The threads that have checkpoints of some runs, or any checkpoints at all."""
    query = Query(run_ids=run_ids, limit=_PAGE, with_writes=False)
    return {found.thread_id async for found in each_found(backend, query)}


async def delete_checkpoint(backend: Backend, tools: Tools, place: Place) -> None:
    """Delete one checkpoint; Conflict when the state of another is replayed from it."""
    await tools.open(backend)
    if place.checkpoint_id is None:
        raise InvalidRequest("delete_checkpoint needs a config with a checkpoint_id")
    key = CheckpointKey(place.namespace, place.checkpoint_id)
    history = await history_of(backend, tools, place.thread_id)
    if key not in history:
        raise NotFound(f"thread {place.thread_id!r} has no checkpoint {place.checkpoint_id}")
    if key in with_chains(history, history.keys() - {key}) - (history.keys() - {key}):
        raise Conflict(f"checkpoint {key.id} cannot go: later checkpoints replay a delta channel from it")
    removed = await remove(backend, tools, place.thread_id, [key], history)
    if not removed and await backend.find(place.thread_id, place.namespace, key.id, with_writes=False) is not None:
        raise Conflict(f"checkpoint {key.id} cannot go: somebody went on from it at this moment")


async def collect_pool(backend: Backend, pool: int) -> int:
    """Delete the chunks of a pool that nothing refers to; returns how many went.

    First a forecast without any lock; then batches, each of which marks again what was added since.
    """
    reachable: set[bytes] = set()
    await mark(await backend.pool_links(pool), reachable, partial(backend.links, pool))
    candidates: list[bytes] = []
    after = b""
    while True:
        digests = await backend.pool_digests(pool, after, 10_000)
        candidates.extend(digest for digest in digests if digest not in reachable)
        if len(digests) < 10_000:
            break
        after = digests[-1]
    removed = 0
    for start in range(0, len(candidates), _BATCH):
        removed += await backend.collect(pool, candidates[start : start + _BATCH], reachable)
    return removed


async def remove(
    backend: Backend,
    tools: Tools,
    thread_id: str,
    doomed: Sequence[CheckpointKey],
    known: Collection[CheckpointKey],
    progress: Callable[[int, int], None] | None = None,
    *,
    spares_marked: bool = False,
) -> int:
    """Delete checkpoints in batches, then the chunks that nothing needs any more; returns how many went.

    `known` are the checkpoints that were there when it was decided. What came since may be replayed from
    checkpoints that were to go: those stay. So do, if asked for, those that were tagged since.
    """
    removed = 0
    for start in range(0, len(doomed), _BATCH):
        part = doomed[start : start + _BATCH]
        removed += await remove_batch(backend, tools, thread_id, part, (), known, spares_marked=spares_marked)
        if progress is not None:
            progress(min(start + _BATCH, len(doomed)), len(doomed))
    if removed:
        thread = await backend.thread(thread_id)
        if thread is not None:
            await collect_pool(backend, thread.pool)
    return removed


async def remove_batch(
    backend: Backend,
    tools: Tools,
    thread_id: str,
    doomed: Sequence[CheckpointKey],
    emptied: Sequence[CheckpointKey],
    known: Collection[CheckpointKey],
    *,
    spares_marked: bool = False,
) -> int:
    """Delete checkpoints, and the writes of others, but for those that what came since needs; how many went.

    The store refuses if somebody went on from one of them after the last look: then it is looked again.
    """
    for _ in range(_MOST_LOOKS):
        history = await history_of(backend, tools, thread_id)
        spared = _needed_since(history, known)
        if spares_marked:
            spared |= await marked_in(backend, thread_id)
        keys, settled = ([key for key in part if key not in spared] for part in (doomed, emptied))
        removed = await backend.remove_checkpoints(thread_id, keys, settled, seen=history.keys())
        if removed is not None:
            return removed
    raise Unavailable(
        f"thread {thread_id!r}: others went on from checkpoints that were to be deleted, again and again: try again"
    )


def _needed_since(history: History, known: Collection[CheckpointKey]) -> set[CheckpointKey]:
    """What must stay because of checkpoints that came since: what they descend from, and are replayed from."""
    newcomers = [step for key, step in history.items() if key not in known]
    parents = {step.parent for step in newcomers if step.parent is not None}
    return with_chains(history, [step.key for step in newcomers]) | parents


async def marked_in(backend: Backend, thread_id: str) -> set[CheckpointKey]:
    """The checkpoints of a thread that people have tagged or pinned."""
    thread = await backend.thread(thread_id)
    return {tag.key for tag in tags_of(thread)} if thread is not None else set()


async def _has_mates(backend: Backend, pool: int) -> bool:
    """Whether a pool still has chunks; the last thread out took them along."""
    return bool(await backend.pool_digests(pool, b"", 1))


async def history_of(backend: Backend, tools: Tools, thread_id: str) -> History:
    """All checkpoints of a thread, as far as retention needs to know them."""
    return history_from(tools, await thread_rows(backend, thread_id, tools=tools))


def history_from(tools: Tools, rows: Iterable[Found]) -> History:
    """The same of rows that were read already."""
    return {step.key: step for step in (_step(tools, found) for found in rows)}


def _step(tools: Tools, found: Found) -> Step:
    row = found.row
    metadata: dict[str, Any] = {}
    holds: frozenset[str] = frozenset()
    is_unreadable = False
    try:
        metadata = read_metadata(found, tools.codec, tools.envelope)
        holds = frozenset(read_document(found, tools.codec, tools.envelope).roots.refs)
    except (Corrupt, NotAllowed):
        is_unreadable = True
        metadata = metadata or {"run_id": row.run_id}  # a damaged checkpoint can still be deleted
    deltas = metadata.get(DELTA_COUNTERS) or {}
    if not isinstance(deltas, Mapping):
        deltas, is_unreadable = {}, True
    parents = metadata.get("parents")
    above = parents if isinstance(parents, Mapping) else {}
    return Step(
        key=CheckpointKey(row.namespace, row.id),
        parent=CheckpointKey(row.namespace, row.parent) if row.parent else None,
        run_id=metadata.get("run_id"),
        replays=frozenset(deltas) - holds,
        holds=holds,
        source=metadata.get("source"),
        created=row.created,
        parents={ns: at for ns, at in above.items() if isinstance(ns, str) and isinstance(at, str)},
        is_unreadable=is_unreadable,
    )
