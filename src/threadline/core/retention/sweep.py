"""Carrying out retention: plan, prune in batches, sweep over all threads, collect what nothing needs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...base.checkpoint import RESUME, waiting
from ...base.printable import printable
from ...errors import Conflict, Corrupt, InvalidRequest, NotAllowed, NotFound
from ...ports.checkpoints import Backend, CheckpointKey, Found, ThreadRow, WriteRow
from ...ports.rules import ACTIVITY_SECONDS
from .. import leases
from ..context import Context
from ..history.graph import History, history_from
from ..lifecycle import living, note_went_on, tags_of, went_on
from ..paging import chunk_weights, each_pool, each_thread, thread_rows
from ..records.upkeep import ExpiredRecords, sweep_records
from ..requests import plain_text
from . import prune as retention
from .loosen import collect_loosened
from .plan import Plan, choose, choose_latest
from .policy import Policy, seconds_of
from .prune import Going, collect_pool, delete_thread, remove, remove_batch
from .restore import tidy
from .trash import Bin, trash_thread

__all__ = [
    "SWEEPER",
    "Swept",
    "collect",
    "collect_all",
    "drop_late_writes",
    "each_garbage",
    "freed_bytes",
    "keep_newest",
    "make_plan",
    "prune",
    "prune_to_latest",
    "sweep",
]

log = logging.getLogger("threadline")
_BATCH = 500
# The lease that a sweep takes, so that one replica at a time sweeps.
SWEEPER = "threadline:sweeper"
_SWEEPER_SECONDS = 600.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The result of a sweep, or its forecast."""

    threads: int
    expired: tuple[str, ...]
    checkpoints: int
    chunks: int
    freed_bytes: int
    # Of stores and caches: what has expired there. A sweep of a part of the threads leaves it alone.
    items: int = 0
    cached: int = 0
    # Whether another replica is sweeping, so that this one left it alone.
    is_elsewhere: bool = False


async def make_plan(store: Context, thread_id: str, policy: Policy, now: float) -> Plan:
    """The plan of a policy for a thread; nothing is changed."""
    plan, _ = await _planned(store, thread_id, policy, now)
    return plan


async def _planned(store: Context, thread_id: str, policy: Policy, now: float) -> tuple[Plan, History]:
    """A plan, and the history it was made of."""
    thread = await living(store, thread_id)
    rows = await thread_rows(store, thread_id)
    history = history_from(store.tools, rows)
    passed = went_on(thread)
    written, settled = await _written(store.backend, thread_id, history)
    marked = [tag.key for tag in tags_of(thread)]
    kept = choose(history, policy, now, marked=marked, unsettled=written - settled, passed=passed)
    doomed = sorted(history.keys() - kept)
    parents = {history[key].parent for key in doomed}
    goes_on = sorted(key for key in kept if key in parents)
    # Once its children are gone, nobody can tell that its writes were taken up: they go along.
    empties = sorted(settled & (kept if policy.drop_settled_writes else set(goes_on)))
    plan = Plan(
        thread_id=thread_id,
        keeps=tuple(sorted(kept)),
        removes=tuple(doomed),
        empties=tuple(empties),
        goes_on=tuple(goes_on),
        freed_bytes=await freed_bytes(store.backend, thread.pool, rows, set(doomed)) if doomed else 0,
    )
    return plan, history


async def prune(
    store: Context,
    thread_id: str,
    policy: Policy,
    now: float,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Carry a policy out on one thread, in batches; returns what was planned."""
    plan, history = await _planned(store, thread_id, policy, now)
    if not dry_run:
        keep_seconds = seconds_of(policy.trash, "trash")
        into = Bin(store.backend, thread_id, keep_seconds, now) if keep_seconds else None
        await _carry_out(store, plan, history, progress, into)
        if into is not None:
            await into.close()
    return plan


async def _carry_out(store: Context, plan: Plan, history: History, progress: Progress | None, into: Bin | None) -> None:
    thread_id = plan.thread_id
    emptying = Going(history)
    for start in range(0, len(plan.empties), _BATCH):
        # Whoever went on from one of these since may be replayed from its writes.
        part = plan.empties[start : start + _BATCH]
        await remove_batch(store, thread_id, (), part, emptying, into=into)
    if plan.removes:
        await note_went_on(store.backend, thread_id, plan.goes_on, set(plan.keeps))
    await remove(store, thread_id, plan.removes, history, progress, spares_marked=True, into=into)
    if plan.empties and not plan.removes:
        await collect_pool(store.backend, (await living(store, thread_id)).pool)


async def prune_to_latest(store: Context, thread_id: str) -> int:
    """Keep the newest checkpoint of each namespace, and what people tagged or pinned; returns how many went."""
    marked = await retention.marked_in(store.backend, thread_id)
    return await retention.prune(store, thread_id, partial(choose_latest, marked=marked), spares_marked=True)


async def keep_newest(store: Context, thread_id: str) -> None:
    """Keep the newest checkpoint of each namespace only, and none of the writes of those that went."""
    await prune_to_latest(store, thread_id)
    # A run does not wait for its writes: some arrive when the next checkpoint has taken the place of theirs.
    await drop_late_writes(store, thread_id)


async def drop_late_writes(store: Context, thread_id: str) -> None:
    """Delete writes that came after their checkpoint had gone. Those of a checkpoint to come wait for it."""
    writes = await store.backend.thread_writes(thread_id)
    written = {CheckpointKey(one.namespace, one.checkpoint_id) for one in writes}
    if not written:
        return
    there = {found.key for found in await thread_rows(store, thread_id)}
    newest: dict[str, str] = {}
    for key in there:
        newest[key.namespace] = max(key.id, newest.get(key.namespace, ""))
    late = sorted(key for key in written - there if key.id < newest.get(key.namespace, ""))
    if late:
        await store.backend.remove_checkpoints(thread_id, [], late)


async def sweep(
    store: Context,
    policy: Policy | None,
    now: float,
    *,
    prefix: str = "",
    trash: Any = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Swept:
    """Delete threads, items and cached results that have expired, prune the other threads, collect.

    One sweeper works at a time among replicas.
    """
    if policy is not None and not isinstance(policy, Policy):
        raise InvalidRequest(f"sweep takes a Policy, not {type(policy).__name__}")
    prefix = plain_text(prefix, "prefix")
    trash = seconds_of(trash, "trash")
    policy = policy or store.tools.options.retention
    if policy is not None and trash is not None:
        policy = replace(policy, trash=trash)
    trash = seconds_of(policy.trash, "trash") if policy is not None else trash
    token = None
    if not dry_run:
        token = await leases.take(store.backend, SWEEPER, _SWEEPER_SECONDS, now, None)
        if token is None:
            return Swept(threads=0, expired=(), checkpoints=0, chunks=0, freed_bytes=0, is_elsewhere=True)
    try:
        return await _sweep(store, policy, now, prefix, trash, dry_run, progress)
    finally:
        if token is not None:
            await leases.release(store.backend, SWEEPER, token)


async def _sweep(
    store: Context,
    policy: Policy | None,
    now: float,
    prefix: str,
    trash: float | None,
    dry_run: bool,
    progress: Progress | None,
) -> Swept:
    total = await store.backend.count_threads(prefix)
    done = checkpoints = freed = 0
    expired: list[str] = []
    async for row in each_thread(store, prefix):
        try:
            if _has_expired(row, store.tools.options.ttl, now):
                # The page may be minutes old, and the thread in use again.
                again = await living(store, row.thread_id)
                if not _has_expired(again, store.tools.options.ttl, now):
                    continue
                expired.append(row.thread_id)
                if not dry_run and trash:
                    await trash_thread(store, row.thread_id, trash, now)
                elif not dry_run:
                    await delete_thread(store.backend, row.thread_id, now)
            elif policy is not None and row.status != "archived":
                plan = await prune(store, row.thread_id, policy, now, dry_run=dry_run)
                checkpoints += len(plan.removes)
                freed += plan.freed_bytes
        except (Conflict, Corrupt, NotAllowed, NotFound) as trouble:
            if isinstance(trouble, NotFound) and await _is_gone(store.backend, row.thread_id):
                continue  # deleted meanwhile
            log.error("thread %r was not swept: %s", row.thread_id, printable(trouble))
        done += 1
        if progress is not None:
            progress(done, max(total, done))
    if not dry_run:
        await tidy(store, now, prefix)
    chunks = 0 if dry_run else await collect_all(store)
    is_whole = not prefix and not getattr(store.backend, "prefix", "")
    records = await sweep_records(store, now, dry_run=dry_run) if is_whole else ExpiredRecords()
    return Swept(
        threads=done,
        expired=tuple(expired),
        checkpoints=checkpoints,
        chunks=chunks,
        freed_bytes=freed,
        items=records.items,
        cached=records.cached,
    )


async def _is_gone(backend: Backend, thread_id: str) -> bool:
    row = await backend.thread(thread_id)
    return row is None or row.status == "deleted"


def _has_expired(row: ThreadRow, ttl_seconds: float | None, now: float) -> bool:
    """A thread's own time decides; without one, how long it has been idle, which is noted once a minute."""
    if row.expires is not None:
        return row.expires <= now
    return ttl_seconds is not None and row.active + ACTIVITY_SECONDS + ttl_seconds <= now


async def collect(store: Context, progress: Progress | None, now: float) -> int:
    """Empty the trash of what has expired, then delete the chunks that nothing refers to; returns how many went."""
    await tidy(store, now)
    return await collect_all(store, progress)


async def collect_all(store: Context, progress: Progress | None = None) -> int:
    """Delete chunks that nothing refers to, and dead parts of packs, in every pool; returns how many chunks went."""
    removed = done = 0
    async for pool in each_pool(store.backend):
        removed += await collect_loosened(store, pool)
        done += 1
        if progress is not None:
            progress(done, done)
    return removed


async def each_garbage(backend: Backend) -> AsyncIterator[tuple[int, Set[bytes], int]]:
    """A forecast of garbage collection, without locks: each pool, its unreferenced chunks, and their bytes."""
    async for pool in each_pool(backend):
        weights = await chunk_weights(backend, pool)
        unneeded = weights.keys() - weights.reached_from(await backend.roots(pool))
        yield pool, unneeded, weights.total(unneeded)


async def _written(backend: Backend, thread_id: str, history: History) -> tuple[set[CheckpointKey], set[CheckpointKey]]:
    """The checkpoints that have pending writes, and those whose writes a child in the loop has taken up."""
    written: dict[CheckpointKey, list[WriteRow]] = {}
    for write in await backend.thread_writes(thread_id):
        written.setdefault(write.key, []).append(write)
    children = {key: [history[child] for child in found] for key, found in history.children().items()}
    settled = {
        key
        for key, writes in written.items()
        if any(child.source == "loop" for child in children.get(key, ()))
        and not _asks(writes)
        # For a delta channel the writes are the state: they stay while any child is replayed from them.
        and not any(child.is_unreadable or {w.channel for w in writes} & child.replays for child in children[key])
    }
    return set(written), settled


def _asks(writes: Sequence[WriteRow]) -> bool:
    """Whether a task waits for an answer: it has asked, and neither an answer nor a result is there."""
    return bool(waiting(writes)) and all(write.channel != RESUME for write in writes)


async def freed_bytes(backend: Backend, pool: int, rows: Sequence[Found], doomed: set[CheckpointKey]) -> int:
    """The bytes that removing checkpoints would free: their rows, and chunks that nothing else needs."""
    going = [found.row for found in rows if found.key in doomed]
    staying = {found.row.links for found in rows} - {row.links for row in going}
    weights = await chunk_weights(backend, pool)
    others = (await backend.roots(pool)).keys() - {row.links for row in going}
    return weights.total(weights.keys() - weights.reached_from([*staying, *others])) + sum(
        len(row.document) + len(row.metadata) + len(row.links) for row in going
    )
