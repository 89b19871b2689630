"""Carrying out retention: plan, prune in batches, sweep over all threads, collect what nothing needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..backends.port import Backend, CheckpointKey, Found, ThreadRow
from ..backends.rules import ACTIVITY_SECONDS, mark
from ..errors import Conflict, Corrupt, NotAllowed, NotFound
from ..model import INTERRUPT, RESUME, WRITES_IDX_MAP
from ..printable import printable
from . import leases, retention
from .lineage import History, Step, children_of
from .pages import thread_rows
from .policies import Plan, choose, choose_latest
from .policy import Policy, seconds_of
from .restoring import tidy
from .retention import Going, collect_pool, delete_thread, history_from, remove, remove_batch
from .timeline import chunk_weights
from .tools import Tools
from .trash import Bin, trash_thread
from .words import living, note_went_on, tags_of, went_on

__all__ = ["Swept", "collect_all", "freed_bytes", "make_plan", "prune", "prune_to_latest", "sweep"]

log = logging.getLogger("threadline")
_PAGE = 500
_BATCH = 500
_SWEEPER = "threadline:sweeper"
_SWEEPER_SECONDS = 600.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did, or would do."""

    threads: int
    expired: tuple[str, ...]
    checkpoints: int
    chunks: int
    freed_bytes: int
    # Whether another replica is sweeping, so that this one left it alone.
    is_elsewhere: bool = False


async def make_plan(backend: Backend, tools: Tools, thread_id: str, policy: Policy, now: float) -> Plan:
    """What a policy would do to a thread; nothing is changed."""
    plan, _ = await _planned(backend, tools, thread_id, policy, now)
    return plan


async def _planned(backend: Backend, tools: Tools, thread_id: str, policy: Policy, now: float) -> tuple[Plan, History]:
    """A plan, and the history it was made of."""
    await tools.open(backend)
    thread = await living(backend, thread_id)
    rows = await thread_rows(backend, thread_id, tools=tools)
    history = history_from(tools, rows)
    passed = went_on(thread)
    written, settled = await _written(backend, thread_id, history)
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
        freed_bytes=await freed_bytes(backend, thread.pool, rows, set(doomed)) if doomed else 0,
    )
    return plan, history


async def prune(
    backend: Backend,
    tools: Tools,
    thread_id: str,
    policy: Policy,
    now: float,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Carry a policy out on one thread, in batches; returns what was planned."""
    plan, history = await _planned(backend, tools, thread_id, policy, now)
    if not dry_run:
        keep_seconds = seconds_of(policy.trash, "trash")
        into = Bin(backend, thread_id, keep_seconds, now) if keep_seconds else None
        await _carry_out(backend, tools, plan, history, progress, into)
        if into is not None:
            await into.close()
    return plan


async def _carry_out(
    backend: Backend, tools: Tools, plan: Plan, history: History, progress: Progress | None, into: Bin | None
) -> None:
    thread_id = plan.thread_id
    emptying = Going(history)
    for start in range(0, len(plan.empties), _BATCH):
        # Whoever went on from one of these since may be replayed from its writes.
        part = plan.empties[start : start + _BATCH]
        await remove_batch(backend, tools, thread_id, (), part, emptying, into=into)
    if plan.removes:
        await note_went_on(backend, thread_id, plan.goes_on, set(plan.keeps))
    await remove(backend, tools, thread_id, plan.removes, history, progress, spares_marked=True, into=into)
    if plan.empties and not plan.removes:
        await collect_pool(backend, (await living(backend, thread_id)).pool)


async def prune_to_latest(backend: Backend, tools: Tools, thread_id: str) -> int:
    """Keep the newest checkpoint of each namespace, and what people tagged or pinned; returns how many went."""
    marked = await retention.marked_in(backend, thread_id)
    return await retention.prune(backend, tools, thread_id, partial(choose_latest, marked=marked), spares_marked=True)


async def sweep(
    backend: Backend,
    tools: Tools,
    policy: Policy | None,
    now: float,
    *,
    prefix: str = "",
    trash: float | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Swept:
    """Delete threads that have expired, prune the others, collect; one sweeper at a time among replicas."""
    await tools.open(backend)
    policy = policy or tools.retention
    if policy is not None and trash is not None:
        policy = replace(policy, trash=trash)
    trash = seconds_of(policy.trash, "trash") if policy is not None else trash
    token = None
    if not dry_run:
        token = await leases.take(backend, _SWEEPER, _SWEEPER_SECONDS, now, None)
        if token is None:
            return Swept(threads=0, expired=(), checkpoints=0, chunks=0, freed_bytes=0, is_elsewhere=True)
    try:
        return await _sweep(backend, tools, policy, now, prefix, trash, dry_run, progress)
    finally:
        if token is not None:
            await leases.release(backend, _SWEEPER, token)


async def _sweep(
    backend: Backend,
    tools: Tools,
    policy: Policy | None,
    now: float,
    prefix: str,
    trash: float | None,
    dry_run: bool,
    progress: Progress | None,
) -> Swept:
    total = await backend.count_threads(prefix)
    done = checkpoints = freed = 0
    expired: list[str] = []
    after = ""
    while page := await backend.threads(after, _PAGE, prefix):
        for row in page:
            try:
                if _has_expired(row, tools.ttl_seconds, now):
                    # The page may be minutes old, and the thread in use again.
                    again = await living(backend, row.thread_id)
                    if not _has_expired(again, tools.ttl_seconds, now):
                        continue
                    expired.append(row.thread_id)
                    if not dry_run and trash:
                        await trash_thread(backend, tools, row.thread_id, trash, now)
                    elif not dry_run:
                        await delete_thread(backend, tools, row.thread_id, now)
                elif policy is not None and row.status != "archived":
                    plan = await prune(backend, tools, row.thread_id, policy, now, dry_run=dry_run)
                    checkpoints += len(plan.removes)
                    freed += plan.freed_bytes
            except (Conflict, Corrupt, NotAllowed, NotFound) as trouble:
                if isinstance(trouble, NotFound) and await _is_gone(backend, row.thread_id):
                    continue  # deleted meanwhile
                log.error("thread %r was not swept: %s", row.thread_id, printable(trouble))
            done += 1
            if progress is not None:
                progress(done, max(total, done))
        after = page[-1].thread_id
    if not dry_run:
        await tidy(backend, tools, now, prefix)
    chunks = 0 if dry_run else await collect_all(backend)
    return Swept(threads=done, expired=tuple(expired), checkpoints=checkpoints, chunks=chunks, freed_bytes=freed)


async def _is_gone(backend: Backend, thread_id: str) -> bool:
    row = await backend.thread(thread_id)
    return row is None or row.status == "deleted"


def _has_expired(row: ThreadRow, ttl_seconds: float | None, now: float) -> bool:
    """A thread's own time decides; without one, how long it has been idle, which is noted once a minute."""
    if row.expires is not None:
        return row.expires <= now
    return ttl_seconds is not None and row.active + ACTIVITY_SECONDS + ttl_seconds <= now


async def collect_all(backend: Backend, progress: Progress | None = None) -> int:
    """Delete the chunks that nothing refers to, in every pool; returns how many went."""
    removed, after, done = 0, 0, 0
    while pools := await backend.pools(after, _PAGE):
        for pool in pools:
            removed += await collect_pool(backend, pool)
            done += 1
            if progress is not None:
                progress(done, done)
        after = pools[-1]
    return removed


async def _written(backend: Backend, thread_id: str, history: History) -> tuple[set[CheckpointKey], set[CheckpointKey]]:
    """The checkpoints that have pending writes, and those whose writes a child in the loop has taken up."""
    written: dict[CheckpointKey, dict[str, set[str]]] = {}
    for write in await backend.thread_writes(thread_id):
        tasks = written.setdefault(CheckpointKey(write.namespace, write.checkpoint_id), {})
        tasks.setdefault(write.task_id, set()).add(write.channel)
    children: dict[CheckpointKey, list[Step]] = {
        key: [history[child] for child in found] for key, found in children_of(history).items()
    }
    settled = {
        key
        for key, tasks in written.items()
        if any(child.source == "loop" for child in children.get(key, ()))
        and not _asks(tasks)
        # For a delta channel the writes are the state: they stay while any child is replayed from them.
        and not any(child.is_unreadable or set().union(*tasks.values()) & child.replays for child in children[key])
    }
    return set(written), settled


def _asks(tasks: Mapping[str, set[str]]) -> bool:
    """Whether a task waits for an answer: it has asked, and neither an answer nor a result is there."""
    if any(RESUME in channels for channels in tasks.values()):
        return False
    return any(INTERRUPT in channels and not channels - WRITES_IDX_MAP.keys() for channels in tasks.values())


async def freed_bytes(backend: Backend, pool: int, rows: Sequence[Found], doomed: set[CheckpointKey]) -> int:
    """The bytes that removing checkpoints would free: their rows, and chunks that nothing else needs."""
    going = [found.row for found in rows if CheckpointKey(found.row.namespace, found.row.id) in doomed]
    staying = {found.row.links for found in rows} - {row.links for row in going}
    others = set(await backend.pool_links(pool)) - {row.links for row in going}
    reachable: set[bytes] = set()
    await mark([*staying, *others], reachable, partial(backend.links, pool))
    weights = await chunk_weights(backend, pool)
    unneeded = sum(size + len(links) for digest, (links, size) in weights.items() if digest not in reachable)
    return unneeded + sum(len(row.document) + len(row.metadata) + len(row.links) for row in going)
