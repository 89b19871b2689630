"""Deleting: which checkpoints may go, and the collection of chunks nobody needs any more.

What may go is decided by pure functions over stamps of the history; acting takes the plan. A checkpoint
that another one's delta channel is replayed from is never let go: for such channels, writes are state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from ...base.attempts import ATTEMPTS, gave_up
from ...base.ids import id_of_now
from ...errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotFound
from ...ports.checkpoints import Backend, CheckpointKey, Found, Guard, Query
from ...ports.rules import ASIDE, hidden_ids_of, kind_of
from ..context import Context
from ..history.graph import History, history_from, history_of
from ..history.revisions import At, resolve
from ..integrity.evidence import forget_evidence
from ..lifecycle import forget_checkpoint, living, marks_of, tags_of
from ..paging import ChunkWeights, chunk_weights, each_found, each_thread, has_chunks, thread_rows
from ..requests import Place, plain_text, text_ids
from ..rows import fits_column
from .policy import seconds_of
from .trash import Bin, trash_thread

__all__ = [
    "Going",
    "collect_pool",
    "delete",
    "delete_checkpoint",
    "delete_runs",
    "delete_thread",
    "marked_in",
    "prune",
    "remove",
    "remove_batch",
]

_PAGE = 256
_BATCH = 500
# How many chunks go in one transaction, which keeps writers out of the pool: deleting so many takes about as long as
# the marking before it. Beyond that, how often a pool is marked while it is collected.
_CHUNK_BATCH = 5_000
_MOST_MARKINGS = 8
# A pool of so many chunks is marked for every checkpoint that is deleted by itself, another after so many of them.
_SMALL_POOL = 256
_FEW_DELETIONS = 64
# What LangGraph calls the channels that only say what runs next: no delta channel has such a name.
_PASSING = ("__", "branch:")


async def prune(
    store: Context,
    thread_id: str,
    choose: Callable[[History], set[CheckpointKey]],
    *,
    spares_marked: bool = False,
) -> int:
    """Delete the checkpoints that `choose` does not keep; returns how many went."""
    history = await history_of(store, thread_id)
    doomed = history.keys() - choose(history)
    return await remove(store, thread_id, doomed, history, spares_marked=spares_marked)


async def delete(store: Context, thread_id: str, at: At, namespace: str, trash: Any, now: float) -> None:
    """Delete a thread, or the checkpoint at a place of it; with `trash`, a span of time, restorable until then."""
    namespace = plain_text(namespace, "namespace")
    seconds = seconds_of(trash, "trash")
    if at is None:
        await living(store, thread_id)
        if seconds:
            await trash_thread(store, thread_id, seconds, now)
        else:
            await delete_thread(store.backend, thread_id, now)
        return
    key = await resolve(store, thread_id, at, namespace)
    into = Bin(store.backend, thread_id, seconds, now) if seconds else None
    await delete_checkpoint(store, Place(thread_id, *key), into)
    await forget_checkpoint(store.backend, thread_id, key)


async def delete_thread(backend: Backend, thread_id: str, now: float) -> None:
    """Delete a thread; what descends from before is refused from now on, a new start is not.

    What the trash and quarantine have of the thread goes as well: this is how data is erased on request.
    """
    thread = await backend.thread(thread_id)
    await _erase_hidden(backend, thread_id, now)
    if thread is None:
        return
    [*newest] = await backend.page(Query(thread_id=thread_id, limit=1, with_writes=False))
    # What descends from any checkpoint made until now is refused, also from one that never arrived.
    until = max(newest[0].row.id if newest else "", id_of_now())
    await backend.remove_thread(thread_id, until, now)
    if await has_chunks(backend, thread.pool):  # the last thread of a pool takes them along
        await collect_pool(backend, thread.pool)


async def _erase_hidden(backend: Backend, thread_id: str, now: float) -> None:
    """Delete what was taken out of a thread before and is still kept."""
    pools = set()
    async for row in each_thread(backend, hidden_ids_of(thread_id)):
        if kind_of(row.thread_id) == ASIDE:
            await forget_evidence(backend, thread_id, await thread_rows(backend, row.thread_id))
        await backend.remove_thread(row.thread_id, "0", now)
        pools.add(row.pool)
    for pool in sorted(pools):
        if await has_chunks(backend, pool):
            await collect_pool(backend, pool)


async def delete_runs(store: Context, run_ids: Sequence[str]) -> int:
    """Delete the checkpoints of some runs, except those that others are replayed from."""
    run_ids = text_ids(run_ids, "run_ids")
    # A run id that no column holds exactly is looked for in every thread's metadata.
    indexed = [run_id for run_id in run_ids if fits_column(run_id)]
    parts = [tuple(indexed[start : start + _BATCH]) for start in range(0, len(indexed), _BATCH)]
    threads: set[str] = set()
    for part in parts if len(indexed) == len(run_ids) else [None]:
        threads |= await _threads_with(store.backend, part)
    wanted = frozenset(run_ids)

    def others(history: History) -> set[CheckpointKey]:
        return history.with_chains([key for key, step in history.items() if step.run_id not in wanted])

    removed = 0
    for thread_id in sorted(threads):
        removed += await prune(store, thread_id, others)
    return removed


async def _threads_with(backend: Backend, run_ids: tuple[str, ...] | None) -> set[str]:
    """The threads that have checkpoints of some runs, or any checkpoints at all."""
    query = Query(run_ids=run_ids, limit=_PAGE, with_writes=False)
    return {found.thread_id async for found in each_found(backend, query, growth=4)}


async def delete_checkpoint(store: Context, place: Place, into: Bin | None = None) -> None:
    """Delete one checkpoint; Conflict when the state of another is replayed from it.

    Reads the checkpoint and those that descend from it as far as its state may reach, not the thread.
    """
    if place.checkpoint_id is None:
        raise InvalidRequest("delete_checkpoint needs a config with a checkpoint_id")
    key = CheckpointKey(place.namespace, place.checkpoint_id)
    found = await store.find(place.thread_id, *key, with_writes=False)
    if found is None:
        raise NotFound(f"thread {place.thread_id!r} has no checkpoint {place.checkpoint_id}")
    children = await _children(store, place.thread_id, [key])
    if await _is_replayed(store, found, children):
        raise Conflict(f"checkpoint {key.id} cannot go: later checkpoints replay a delta channel from it")
    if into is not None:
        thread = await store.backend.thread(place.thread_id)
        await into.keep([key], tags=marks_of(thread, key) if thread is not None else "[]")
    removed = await store.backend.remove_checkpoints(place.thread_id, [key], guard=Guard(list(children)))
    if into is not None:
        into.went([key] if removed else [])
        await into.close()
    if removed is None:
        raise Conflict(f"checkpoint {key.id} cannot go: somebody went on from it at this moment")
    if removed:
        await _collect_when_due(store, found.pool)


async def _children(store: Context, thread_id: str, keys: Sequence[CheckpointKey]) -> History:
    return history_from(store.tools, await store.children(thread_id, keys))


async def _is_replayed(store: Context, found: Found, children: History) -> bool:
    """Whether a delta channel of any descendant is replayed from a checkpoint, or from what is before it."""
    passes: frozenset[str] | None = None  # channels whose state may come through it; None: any
    try:
        versions = store.tools.document(found).roots.versions
        passes = frozenset(name for name in versions if not name.startswith(_PASSING))
    except (Corrupt, NotAllowed):
        pass
    # Of each descendant on the way: the channels that were held since.
    held: dict[CheckpointKey, frozenset[str]] = {found.key: frozenset()}
    while children:
        following: list[CheckpointKey] = []
        for key, step in children.items():
            if key in held or step.parent is None:
                continue
            if step.wants - held[step.parent]:
                return True
            held[key] = held[step.parent] | step.holds
            if passes is None or passes - held[key]:
                following.append(key)
        children = await _children(store, found.thread_id, following) if following else History()
    return False


async def collect_pool(backend: Backend, pool: int) -> int:
    """Delete the chunks of a pool that nothing refers to; returns how many went.

    First a forecast without any lock; then batches, each of which marks again. However many chunks go, there are few
    batches: what marking reads grows with the pool, and not with its square.
    """
    removed, _ = await _collect(backend, pool)
    return removed


async def _collect(backend: Backend, pool: int) -> tuple[int, int]:
    """Collect a pool; returns how many chunks went, and how many there were."""
    chunks = await chunk_weights(backend, pool)
    reachable = chunks.reached_from(await backend.roots(pool))
    candidates = in_order(chunks, [one for one in chunks if one not in reachable])
    size = max(_CHUNK_BATCH, -(-len(candidates) // _MOST_MARKINGS))
    removed = 0
    for start in range(0, len(candidates), size):
        # From the rows anew, not from the forecast: an item that was followed may point to a pack by now.
        removed += await backend.collect(pool, candidates[start : start + size], set())
    return removed, len(chunks)


def in_order(chunks: ChunkWeights, digests: Iterable[bytes]) -> list[bytes]:
    """Chunks in the order in which they may be deleted, batch by batch: no pointer outlives its pack.

    Otherwise a put of the item that it stands for, between two batches, would find the row of the pointer and not bring
    the item again. A backend may part a batch further, where room is short. The row of a pack may be a pointer too, and
    goes after those that point to it.
    """
    return sorted([one for one in digests if one in chunks], key=partial(_rank, chunks))


def _rank(chunks: ChunkWeights, digest: bytes) -> int:
    links = chunks[digest][0]
    return 2 if not links else 1 if links not in chunks or not chunks[links][0] else 0


async def _collect_when_due(store: Context, pool: int) -> None:
    """Collect after a single deletion: at once in a small pool, else after a share of what the pool has.

    Which chunks nothing needs is found by marking all of them. Done for each checkpoint that is deleted by itself,
    that would read the pool again and again.
    """
    count, due = store.tools.uncollected.get(pool) or (0, 0)
    if not due:  # not asked again for a large pool: a backend without an order reads all names to answer
        due = _FEW_DELETIONS if await has_chunks(store.backend, pool, _SMALL_POOL) else 1
    count += 1
    if count < due:
        store.tools.uncollected.put(pool, (count, due), 100)
        return
    _, chunks = await _collect(store.backend, pool)
    store.tools.uncollected.put(pool, (0, max(_FEW_DELETIONS, chunks // 16) if chunks > _SMALL_POOL else 0), 100)


async def remove(
    store: Context,
    thread_id: str,
    doomed: Collection[CheckpointKey],
    history: History,
    progress: Callable[[int, int], None] | None = None,
    *,
    spares_marked: bool = False,
    into: Bin | None = None,
) -> int:
    """Delete checkpoints in batches, then the chunks that nothing needs any more; returns how many went.

    `history` is what was known when it was decided. What came since may be replayed from checkpoints that were to
    go: those stay. So do, if asked for, those that were tagged since. Children go before their parents: whatever is
    there at any moment, however this ends, has all that it is replayed from.
    """
    going = Going(history, frozenset(doomed))
    order = [key for key in history.children_first() if key in going.doomed]
    removed = 0
    for start in range(0, len(order), _BATCH):
        part = order[start : start + _BATCH]
        removed += await remove_batch(store, thread_id, part, (), going, spares_marked=spares_marked, into=into)
        if progress is not None:
            progress(min(start + _BATCH, len(order)), len(order))
    if removed:
        thread = await store.backend.thread(thread_id)
        if thread is not None:
            await collect_pool(store.backend, thread.pool)
    return removed


class Going:
    """The checkpoints to delete, and those spared because new children need them."""

    def __init__(self, history: History, doomed: frozenset[CheckpointKey] = frozenset()) -> None:
        self.doomed = doomed
        self.spared: set[CheckpointKey] = set()
        self._known = history.keys()
        self._see(history)
        # Who goes on from one of these needs what is deleted, though its parent stays.
        self.guarded = history.partly_kept(doomed)

    def _see(self, history: History) -> None:
        self._history = history
        self._children = history.children()

    def look_again(self, history: History) -> None:
        """Take the history as it is now, and spare the checkpoints that new rows need."""
        self._see(history)
        self.spared |= history.needed_since(self._known)

    def spare(self, keys: Iterable[CheckpointKey]) -> None:
        """Keep these as well, with all they are replayed from."""
        new = [key for key in keys if key not in self.spared and key in self._history]
        if new:
            self.spared |= self._history.with_chains(new)

    def children(self, keys: Iterable[CheckpointKey]) -> list[CheckpointKey]:
        """Those that are known to have one of these for their parent."""
        return [child for key in keys for child in self._children.get(key, ())]


async def remove_batch(
    store: Context,
    thread_id: str,
    doomed: Sequence[CheckpointKey],
    emptied: Sequence[CheckpointKey],
    going: Going,
    *,
    spares_marked: bool = False,
    into: Bin | None = None,
) -> int:
    """Delete checkpoints, and the writes of others, but for those that what came since needs; how many went.

    The store refuses if somebody went on from one of them since the thread was looked at: then it is looked again.
    """
    for _ in range(ATTEMPTS):
        if spares_marked:
            going.spare(await marked_in(store.backend, thread_id))
        keys, settled = ([key for key in part if key not in going.spared] for part in (doomed, emptied))
        guard = Guard(going.children([*keys, *settled, *going.guarded]), going.guarded)
        if into is not None:
            await into.keep(keys, settled)
        removed = await store.backend.remove_checkpoints(thread_id, keys, settled, guard)
        if removed is not None:
            if into is not None:
                into.went(keys, settled)
            return removed
        going.look_again(await history_of(store, thread_id))
    raise gave_up(f"deletion in thread {thread_id!r}", "a put built on one of the checkpoints during each of them")


async def marked_in(backend: Backend, thread_id: str) -> set[CheckpointKey]:
    """The checkpoints of a thread that people have tagged or pinned."""
    thread = await backend.thread(thread_id)
    return {tag.key for tag in tags_of(thread)} if thread is not None else set()
