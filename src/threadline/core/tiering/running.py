"""The verbs of the cold tier: plan, run, restore, status. One process at a time runs; others leave it alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ...errors import InvalidRequest, NotFound, Unavailable
from ...ports.checkpoints import Backend, ThreadRow
from ...ports.objects import Tier, tier_of
from ...ports.rules import HIDDEN
from .. import leases
from ..context import Context
from ..integrity.evidence import objects_of_evidence
from ..paging import each_pool, each_thread
from ..retention.policy import TierPolicy, seconds_of
from ..stats import add_up
from .choosing import Due, choose_chunks, cold_chunks, due_of, reachable_from
from .place import settle_place
from .registry import ObjectRecord, forget_object, note_orphan, registered
from .relocating import Mover, restore_chunks
from .shapes import PackUse, Restored, Tiered, TierPlan, TierStatus, chosen_to_rewrite

__all__ = ["TIERER", "plan_tier", "restore_tier", "run_tier", "tier_status"]

Progress = Callable[[int, int], None]
TIERER = "threadline:tier"
_TIERER_SECONDS = 600.0
GRACE = "1d"


async def plan_tier(
    store: Context, policy: Any, now: float, *, thread_ids: Sequence[str] | None = None, grace: Any = GRACE
) -> TierPlan:
    """What a run would do now; changes nothing, and reads no object."""
    rules, tier = _rules(store, policy), _tier(store)
    grace_seconds = seconds_of(grace, "grace") or 0.0
    threads: list[str] = []
    chunks = size = 0
    for pool, due in (await _due_pools(store, rules, now, thread_ids)).items():
        chosen = await choose_chunks(store.backend, pool, due, rules)
        if chosen:
            threads += [thread.thread_id for thread in due.whole if not thread.thread_id.startswith(HIDDEN)]
        chunks += len(chosen)
        size += sum(one.size for one in chosen)
    records = await registered(store.backend)
    uses = await _uses(store.backend, tier, records)
    rewrites = [pack for packs in _by_pool(uses).values() for pack in chosen_to_rewrite(packs)]
    orphans = [records[pack.name] for pack in uses if pack.is_orphan]
    return TierPlan(
        threads=tuple(sorted(threads)),
        chunks=chunks,
        bytes=size,
        rewrites=tuple(pack.name for pack in rewrites),
        dead_bytes=sum(pack.dead_bytes for pack in rewrites),
        orphans=tuple(sorted(one.name for one in orphans)),
        deletes=tuple(sorted(one.name for one in orphans if _is_over(one, now, grace_seconds))),
    )


async def run_tier(
    store: Context,
    policy: Any,
    now: float,
    *,
    thread_ids: Sequence[str] | None = None,
    grace: Any = GRACE,
    moved: bool = False,
    progress: Progress | None = None,
) -> Tiered:
    """Move what is due, write packs anew of which too much is dead, delete objects that were orphans for the grace.

    With `moved` the objects are at another place than before.
    """
    rules, tier = _rules(store, policy), _tier(store)
    grace_seconds = seconds_of(grace, "grace") or 0.0
    lease = _Lease(store.backend, now)
    if not await lease.take():
        held = await leases.held(store.backend, TIERER, now)
        return Tiered(
            is_elsewhere=True,
            holder=held.holder if held is not None else "",
            seconds_left=held.ends - now if held is not None else 0.0,
        )
    try:
        await settle_place(store.backend, tier, partial(_uses_now, store.backend, tier), moved=moved)
        mover = Mover(store.backend, tier, now, lease.renew)
        due_pools = await _due_pools(store, rules, now, thread_ids)
        for done, (pool, due) in enumerate(due_pools.items()):
            await mover.move(pool, await choose_chunks(store.backend, pool, due, rules))
            if progress is not None:
                progress(done + 1, len(due_pools))
        chunks, size = mover.chunks, mover.bytes
        rewritten = await _rewrite(store.backend, tier, mover)
        deleted = await _delete_orphans(store.backend, tier, now, grace_seconds, lease)
        if chunks:
            await store.backend.trim()
    finally:
        await lease.release()
    return Tiered(
        chunks=chunks,
        bytes=size,
        objects=mover.objects,
        rewritten=rewritten,
        deleted=deleted,
        problems=tuple(
            f"the object {name} of {tier.objects.where} {fate}: it could not be written anew"
            for name, fate in sorted(mover.unreadable.items())
        ),
    )


async def restore_tier(
    store: Context, thread_ids: Sequence[str] | None = None, progress: Progress | None = None
) -> Restored:
    """Bring the chunks of these threads, or of all, back into the database; their objects become orphans."""
    tier, backend = _tier(store), store.backend
    pools: dict[int, list[ThreadRow]] = {}
    if thread_ids is None:
        pools = {pool: [] async for pool in each_pool(backend)}
    else:
        for thread in await _named(store, thread_ids):
            pools.setdefault(thread.pool, []).append(thread)
    found = [Restored(chunks=0, bytes=0, lost=0)]
    for done, (pool, threads) in enumerate(pools.items()):
        cold = await cold_chunks(backend, tier, pool)
        if threads:
            wanted = await reachable_from(backend, pool, threads)
            cold = [one for one in cold if one[0].digest in wanted]
        found.append(await restore_chunks(backend, tier, pool, cold))
        if progress is not None:
            progress(done + 1, len(pools))
    return Restored(
        chunks=sum(one.chunks for one in found),
        bytes=sum(one.bytes for one in found),
        lost=sum(one.lost for one in found),
        why_lost=tuple(dict.fromkeys(why for one in found for why in one.why_lost)),
    )


async def tier_status(store: Context) -> TierStatus:
    """What is where, in figures; reads no object."""
    tier, backend = _tier(store), store.backend
    totals = await add_up(backend)
    cold = cold_bytes = reference_bytes = 0
    async for pool in each_pool(backend):
        for row, reference in await cold_chunks(backend, tier, pool):
            cold += 1
            cold_bytes += reference.length
            reference_bytes += len(row.links) + len(row.data)
    records = await registered(backend)
    uses = await _uses(backend, tier, records)
    return TierStatus(
        where=tier.objects.where,
        hot_chunks=totals.chunks - cold,
        hot_bytes=totals.chunk_bytes - reference_bytes,
        cold_chunks=cold,
        cold_bytes=cold_bytes,
        row_bytes=totals.row_bytes,
        reference_bytes=reference_bytes,
        objects=len(records),
        object_bytes=sum(record.size for record in records.values()),
        dead_bytes=sum(pack.dead_bytes for pack in uses),
        orphans=sum(pack.is_orphan for pack in uses),
    )


class _Lease:
    """The right to run, which is renewed before each step: a process that stood still too long must not go on."""

    def __init__(self, backend: Backend, now: float) -> None:
        self._backend, self._ahead = backend, now - time.time()
        self._token: bytes | None = None
        self._until = 0.0

    async def take(self) -> bool:
        holder = leases.this_process()
        self._token = await leases.take(self._backend, TIERER, _TIERER_SECONDS, self._now(), None, holder)
        self._until = self._now() + _TIERER_SECONDS / 2
        return self._token is not None

    async def renew(self) -> None:
        if self._now() < self._until or self._token is None:
            return
        if await leases.take(self._backend, TIERER, _TIERER_SECONDS, self._now(), self._token) is None:
            raise Unavailable("another process began to run the cold tier while this one stood still: run it again")
        self._until = self._now() + _TIERER_SECONDS / 2

    async def release(self) -> None:
        if self._token is not None:
            await leases.release(self._backend, TIERER, self._token)

    def _now(self) -> float:
        return time.time() + self._ahead


def _rules(store: Context, policy: Any) -> TierPolicy:
    return TierPolicy.of(policy if policy is not None else store.tools.options.cold_after)


def _tier(store: Context) -> Tier:
    prefix = getattr(store.backend, "prefix", "")
    if prefix:
        # Threads that are not seen from here may need the same chunks.
        raise InvalidRequest(f"the cold tier is about the whole store; this saver sees only threads {prefix!r}…")
    tier = tier_of(store.backend)
    if tier is None:
        raise InvalidRequest(
            "this store was opened without a cold tier: open it with cold='s3://bucket/prefix', or set THREADLINE_COLD "
            "for commands"
        )
    return tier


async def _due_pools(store: Context, rules: TierPolicy, now: float, thread_ids: Sequence[str] | None) -> dict[int, Due]:
    """The pools that have threads of which something is due: those of archived threads first, then by activity."""
    named = {thread.thread_id for thread in await _named(store, thread_ids)} if thread_ids is not None else None
    pools: dict[int, list[ThreadRow]] = {}
    for prefix in ("", HIDDEN):
        async for thread in each_thread(store.backend, prefix):
            pools.setdefault(thread.pool, []).append(thread)
    due = {pool: due_of(threads, rules, now, named) for pool, threads in pools.items()}
    if named is not None:
        due = {pool: one for pool, one in due.items() if named & {thread.thread_id for thread in one.whole}}
    chosen = [(pool, one) for pool, one in due.items() if one.whole or one.large]
    return dict(sorted(chosen, key=lambda entry: _turn(entry[1])))


def _turn(due: Due) -> tuple[bool, float]:
    threads = due.whole or due.large
    is_archived = any(thread.status == "archived" for thread in due.whole)
    return not is_archived, max(thread.active for thread in threads)


async def _named(store: Context, thread_ids: Sequence[str]) -> list[ThreadRow]:
    found: list[ThreadRow] = []
    for thread_id in thread_ids:
        thread = await store.backend.thread(thread_id)
        if thread is None or thread.status == "deleted":
            raise NotFound(f"there is no thread {thread_id!r}")
        found.append(thread)
    return found


async def _uses_now(backend: Backend, tier: Tier) -> list[PackUse]:
    return await _uses(backend, tier, await registered(backend))


async def _uses(backend: Backend, tier: Tier, records: dict[str, ObjectRecord]) -> list[PackUse]:
    """How much of each registered object is needed, counted from the rows of its pool."""
    live = dict.fromkeys(records, 0)
    for pool in sorted({record.pool for record in records.values()}):
        for _, reference in await cold_chunks(backend, tier, pool):
            if reference.object_name in live:
                live[reference.object_name] += reference.length
    held = await objects_of_evidence(backend) if records else set()
    return [
        PackUse(
            name=name,
            pool=record.pool,
            chunk_bytes=record.chunk_bytes,
            live_bytes=live[name],
            is_held=held is None or name in held,
        )
        for name, record in records.items()
    ]


def _by_pool(uses: Iterable[PackUse]) -> dict[int, list[PackUse]]:
    pools: dict[int, list[PackUse]] = {}
    for pack in uses:
        pools.setdefault(pack.pool, []).append(pack)
    return pools


async def _rewrite(backend: Backend, tier: Tier, mover: Mover) -> int:
    rewritten = 0
    for pool, packs in _by_pool(await _uses_now(backend, tier)).items():
        chosen = {pack.name for pack in chosen_to_rewrite(packs)}
        if not chosen:
            continue
        cold = [one for one in await cold_chunks(backend, tier, pool) if one[1].object_name in chosen]
        await mover.rewrite(pool, cold)
        rewritten += len(chosen - mover.unreadable.keys())
    return rewritten


async def _delete_orphans(backend: Backend, tier: Tier, now: float, grace_seconds: float, lease: _Lease) -> int:
    """Note which objects no row names, and delete those that were so for the grace: first the object."""
    records = await registered(backend)
    doomed: list[ObjectRecord] = []
    deleted = 0
    for pack in await _uses(backend, tier, records):
        record = records[pack.name]
        if not pack.is_orphan:
            await note_orphan(backend, record, None)
            continue
        record = await note_orphan(backend, record, record.orphaned if record.orphaned is not None else now)
        if _is_over(record, now, grace_seconds):
            doomed.append(record)
    if doomed:
        await lease.renew()
        for record in doomed:
            await tier.objects.delete([record.name])
            # Some servers say that they deleted what they did not: then the record stays, and the next run tries again.
            if await tier.objects.size(record.name) is None:
                await forget_object(backend, record.name)
                deleted += 1
    return deleted


def _is_over(record: ObjectRecord, now: float, grace_seconds: float) -> bool:
    return now - (record.orphaned if record.orphaned is not None else now) >= grace_seconds
