"""Plans of deletions, and carrying out exactly what a plan showed: nothing more, whatever happened since.

A checkpoint that somebody needs since the plan was made stays. A thread that has changed since is not deleted: its plan
is refused with Conflict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.context import Context
from ..core.history.graph import history_of
from ..core.lifecycle import living, note_went_on, tags_of
from ..core.paging import chunk_weights, each_thread, thread_rows
from ..core.retention.plan import Plan
from ..core.retention.policy import Policy, seconds_of
from ..core.retention.prune import Going, collect_pool, in_order, remove, remove_batch
from ..core.retention.prune import delete as delete_at
from ..core.retention.sweep import each_garbage, freed_bytes, make_plan
from ..core.retention.trash import Bin
from ..errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotFound
from ..ports.checkpoints import CheckpointKey

__all__ = [
    "Doomed",
    "Garbage",
    "SweepPlan",
    "carry_out",
    "collect_exactly",
    "delete_exactly",
    "plan_deletion",
    "plan_garbage",
    "plan_sweep",
]

Progress = Callable[[int, int], None]
_BATCH = 500
_CHUNKS_AT_ONCE = 5_000
_MOST_DIGESTS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A thread, or one checkpoint of it, that is to be deleted as it was when the plan was made."""

    thread_id: str
    checkpoint: CheckpointKey | None
    checkpoints: int
    writes: int
    freed_bytes: int
    tags: tuple[str, ...]
    # What the thread was then: another thread of the same name, or a later checkpoint, is not what was shown.
    seen: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """The prunes of many threads, and the threads that have expired."""

    looked_at: int
    plans: tuple[Plan, ...]
    expired: tuple[Doomed, ...]
    trash: Any = None

    @property
    def freed_bytes(self) -> int:
        return sum(plan.freed_bytes for plan in self.plans) + sum(one.freed_bytes for one in self.expired)

    @property
    def checkpoints(self) -> int:
        return sum(len(plan.removes) for plan in self.plans) + sum(one.checkpoints for one in self.expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Chunks that nothing refers to, by pool."""

    freed_bytes: int
    by_pool: Mapping[int, Sequence[bytes]] = field(default_factory=dict)

    @property
    def chunks(self) -> int:
        return sum(map(len, self.by_pool.values()))


async def carry_out(store: Context, plan: Plan, trash: Any, progress: Progress | None = None) -> int:
    """Delete the checkpoints that a plan removes, but for those that are needed since; how many went."""
    thread_id, now = plan.thread_id, time.time()
    await living(store, thread_id)
    history = await history_of(store, thread_id)
    named = frozenset(plan.removes) & history.keys()
    doomed = named - history.with_chains([key for key in history if key not in named])
    keep_seconds = seconds_of(trash, "trash")
    into = Bin(store.backend, thread_id, keep_seconds, now) if keep_seconds else None
    emptied = [key for key in plan.empties if key in history]
    going = Going(history)
    for start in range(0, len(emptied), _BATCH):
        await remove_batch(store, thread_id, (), emptied[start : start + _BATCH], going, into=into)
    if doomed:
        await note_went_on(store.backend, thread_id, plan.goes_on, history.keys() - doomed)
    removed = await remove(store, thread_id, doomed, history, progress, spares_marked=True, into=into)
    if emptied and not doomed:
        await collect_pool(store.backend, (await living(store, thread_id)).pool)
    if into is not None:
        await into.close()
    return removed


async def plan_deletion(store: Context, thread_id: str, checkpoint: CheckpointKey | None = None) -> Doomed:
    """What goes with a thread, or with one checkpoint of it."""
    row = await living(store, thread_id)
    found = await thread_rows(store, thread_id, with_writes=True)
    keys = {one.key for one in found if checkpoint is None or one.key == checkpoint}
    marks = [tag for tag in tags_of(row) if tag.key in keys]
    return Doomed(
        thread_id=thread_id,
        checkpoint=checkpoint,
        checkpoints=len(keys),
        writes=sum(len(one.writes) for one in found if one.key in keys),
        freed_bytes=await freed_bytes(store.backend, row.pool, found, keys),
        tags=tuple(tag.name or "(pinned)" for tag in marks),
        seen=(row.serial, row.created, *sorted((*one.key, one.row.created) for one in found)),
    )


async def delete_exactly(store: Context, plan: Doomed, trash: Any) -> None:
    """Delete what a plan named; Conflict where its thread has changed since."""
    row = await living(store, plan.thread_id)
    found = await thread_rows(store, plan.thread_id)
    seen = (row.serial, row.created, *sorted((*one.key, one.row.created) for one in found))
    if seen != plan.seen:
        raise Conflict(f"thread {plan.thread_id!r} has changed since the plan was made: make the plan again")
    at = None if plan.checkpoint is None else plan.checkpoint.id
    namespace = "" if plan.checkpoint is None else plan.checkpoint.namespace
    await delete_at(store, plan.thread_id, at, namespace, trash, time.time())


async def plan_sweep(store: Context, policy: Policy | None, prefix: str, trash: Any, progress: Progress) -> SweepPlan:
    """What a sweep would take from all threads; nothing is changed."""
    now, looked = time.time(), 0
    plans: list[Plan] = []
    expired: list[Doomed] = []
    total = await store.backend.count_threads(prefix)
    async for row in each_thread(store, prefix):
        looked += 1
        try:
            if row.expires is not None and row.expires <= now:
                expired.append(await plan_deletion(store, row.thread_id))
            elif policy is not None and row.status != "archived":
                plan = await make_plan(store, row.thread_id, policy, now)
                if plan.removes or plan.empties:
                    plans.append(plan)
        except (Corrupt, NotAllowed, NotFound):
            continue  # it cannot be planned, so nothing of it goes
        progress(looked, max(total, looked))
    return SweepPlan(looked_at=looked, plans=tuple(plans), expired=tuple(expired), trash=trash)


async def plan_garbage(store: Context, progress: Progress) -> Garbage:
    """The chunks that nothing refers to at this moment."""
    by_pool: dict[int, list[bytes]] = {}
    size = count = done = 0
    async for pool, unneeded, pool_bytes in each_garbage(store.backend):
        if unneeded:
            by_pool[pool] = sorted(unneeded)
            size, count = size + pool_bytes, count + len(unneeded)
        if count > _MOST_DIGESTS:
            raise InvalidRequest("there is more garbage than a plan can name: `threadline gc --yes` collects it")
        done += 1
        progress(done, done)
    return Garbage(freed_bytes=size, by_pool=by_pool)


async def collect_exactly(store: Context, plan: Garbage, progress: Progress) -> int:
    """Delete the chunks that a plan named, but for those that something refers to since; how many went."""
    removed = 0
    for done, (pool, digests) in enumerate(plan.by_pool.items(), 1):
        going = in_order(await chunk_weights(store.backend, pool), digests)
        for start in range(0, len(going), _CHUNKS_AT_ONCE):
            # Marked anew each time: what was followed may point to a pack by now.
            removed += await store.backend.collect(pool, going[start : start + _CHUNKS_AT_ONCE], set())
        progress(done, len(plan.by_pool))
    return removed
