"""The store itself, whatever it lives in: large threads, late answers, sweeps that did not come, damage."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ...core.context import Context
from ...core.integrity.fsck import check
from ...core.leases import locks
from ...core.paging import each_thread
from ...core.retention.sweep import SWEEPER
from ...core.retention.trash import listed
from ...core.stats import ThreadWeight, probe, weigh
from ...core.threads import Asked, count_threads
from ...core.usage import shares
from ...errors import Corrupt, NotAllowed, NotFound
from ...ports.checkpoints import ThreadRow
from ...ports.rules import is_hidden
from ...show.figures import counted, readable_bytes, readable_latency
from ..survey import asked_at
from ..sweeps import last_sweep
from .findings import Finding, note, ok, problem, warning

__all__ = ["examine_store"]

_MOST = 10
_SOME = 3
_DAY = 86_400.0
_SLOW_SECONDS = 1.0
# With more, their sizes are a matter of minutes.
_MOST_THREADS = 100_000
# What a quick check reads at most: threads that were active last, as long as they are not larger than this together.
_QUICK_THREADS = 25
_QUICK_BYTES = 64_000_000
# More unused space than this is worth giving back.
_UNUSED_BYTES = 100_000_000


async def examine_store(store: Context, now: float) -> list[Finding]:
    """All findings; changes nothing but the record of the probe, which it removes."""
    found = [await _answers(store)]
    rows, weights = await _threads(store)
    sections: dict[str, Callable[[], Coroutine[Any, Any, list[Finding]]]] = {
        "size": lambda: _space(store),
        "largest threads": lambda: _largest(store, weights),
        "questions": lambda: _questions(store, now),
        "sweeps": lambda: _sweeps(store, rows, now),
        "runs": lambda: _held(store, now),
        "damage": lambda: _damage(store, rows, weights),
    }
    for subject, section in sections.items():
        try:
            found += await section()
        except (Corrupt, NotAllowed, NotFound) as error:
            advice = "`threadline fsck` reads everything and says what to run next"
            found.append(problem(subject, f"{type(error).__name__}: {error}", advice))
    return found


async def _answers(store: Context) -> Finding:
    health = await probe(store.backend)
    if not health.ok:
        return problem("answers", f"the store took no record: {health.error}", "the message says what to do")
    took = f"a record was written, read and removed in {readable_latency(health.latency_seconds)}"
    if health.latency_seconds > _SLOW_SECONDS:
        return warning("answers", took, "look at the disk, at long transactions and at the way to the server")
    return ok("answers", took)


async def _space(store: Context) -> list[Finding]:
    space = await store.backend.space()
    told = f"{readable_bytes(space.taken_bytes)} taken, {readable_bytes(space.free_bytes)} of it unused"
    if space.free_bytes > max(_UNUSED_BYTES, space.taken_bytes / 2):
        return [note("size", told, "`threadline compact` gives the unused space back to the system")]
    return [ok("size", told)]


async def _threads(store: Context) -> tuple[list[ThreadRow], dict[str, ThreadWeight]]:
    """The rows and the weights of all threads; nothing where there are too many for a quick look."""
    if await count_threads(store.backend, "") > _MOST_THREADS:
        return [], {}
    # The trash and what is in quarantine are threads too, and nobody's.
    rows = [row async for row in each_thread(store) if not is_hidden(row.thread_id)]
    return rows, await weigh(store.backend, rows)


async def _largest(store: Context, weights: dict[str, ThreadWeight]) -> list[Finding]:
    if not weights:
        count = await count_threads(store.backend, "")
        advice = "`threadline stats --by thread` weighs them, and takes a while" if count else ""
        return [
            note("threads", f"{count:,} threads; their sizes were not looked at" if count else "no threads", advice)
        ]
    top = heapq.nlargest(_MOST, weights.items(), key=lambda pair: pair[1].stored_bytes)
    total = sum(weight.stored_bytes for weight in weights.values()) or 1
    advice = "`threadline prune` deletes old checkpoints of a thread, a retention policy does so for all"
    found = [
        note(
            "largest threads", f"{counted(len(weights), 'thread')} with {readable_bytes(total)}; the largest are:", ""
        ),
        *(
            note("", f"{readable_bytes(weight.stored_bytes)} in {counted(weight.checkpoints, 'checkpoint')}: {name!r}")
            for name, weight in top
        ),
    ]
    name, weight = top[0]
    if weight.stored_bytes > max(total / 2, 1_000_000_000):
        found.append(warning("largest threads", f"{name!r} has more than half of all bytes", advice))
    sizes: dict[str, int] = defaultdict(int)
    for name, _ in top:
        for share in await shares(store, "channel", name):
            sizes[share.name] += share.stored_bytes
    channels = heapq.nlargest(_MOST, sizes.items(), key=lambda pair: pair[1])
    found.append(note("largest channels", "of these threads:"))
    found += [note("", f"{readable_bytes(size)}: {name!r}") for name, size in channels]
    return found


async def _questions(store: Context, now: float) -> list[Finding]:
    asking, count, old = Asked(), 0, []
    while page := await asking.next_threads(store):
        for row, questions in page:
            count += len(questions)
            asked = min(asked_at(question.key.id, row) for question in questions)
            if now - asked > _DAY:
                old.append((asked, row.thread_id))
    if not old:
        return [ok("questions", f"{counted(count, 'question')} waiting, none for longer than a day")]
    oldest = ", ".join(f"{name!r} ({(now - asked) / _DAY:.0f} days)" for asked, name in sorted(old)[:_SOME])
    told = f"{counted(len(old), 'thread')} waiting for longer than a day; the oldest: {oldest}"
    return [warning("questions", told, "`threadline interrupts` lists them, `threadline answer` answers")]


async def _sweeps(store: Context, rows: Sequence[ThreadRow], now: float) -> list[Finding]:
    swept = await last_sweep(store.backend)
    late = [row for row in rows if row.expires is not None and row.expires < now - _DAY]
    trash = [one for one in await listed(store.backend, "") if one.until < now - _DAY]
    last = "never" if swept is None else f"{(now - swept) / _DAY:.1f} days ago"
    advice = "run `threadline sweep --yes` regularly, or saver.sweeper(every='1h') in one process"
    if late or trash:
        told = (
            f"{len(late):,} threads and {len(trash):,} entries of the trash expired more than a day ago and are there"
        )
        return [problem("sweeps", f"{told}; last sweep: {last}", advice)]
    if swept is not None and now - swept > 2 * _DAY:
        return [warning("sweeps", f"the last sweep was {last}", advice)]
    return [ok("sweeps", f"nothing is overdue; last sweep: {last}")]


async def _held(store: Context, now: float) -> list[Finding]:
    held = [one for one in await locks(store.backend, now) if one.thread_id != SWEEPER]
    old = [one for one in held if one.since is not None and now - one.since > _DAY]
    if old:
        named = ", ".join(f"{one.thread_id!r} by {one.holder or 'somebody'}" for one in old[:_SOME])
        advice = "`threadline locks` lists them; `threadline unlock` ends the lease of a holder that is gone"
        return [warning("runs", f"{counted(len(old), 'thread')} held for longer than a day: {named}", advice)]
    return [ok("runs", f"{counted(len(held), 'thread')} held by runs")]


async def _damage(store: Context, rows: Sequence[ThreadRow], weights: dict[str, ThreadWeight]) -> list[Finding]:
    chosen: list[str] = []
    left = _QUICK_BYTES
    for row in heapq.nlargest(_QUICK_THREADS, rows, key=lambda row: row.active):
        left -= weights[row.thread_id].stored_bytes
        if left < 0 and chosen:
            break
        chosen.append(row.thread_id)
    if not chosen:
        return [note("damage", "was not looked for", "`threadline fsck` reads and verifies everything")]
    report = await check(store, chosen, None)
    told = f"{counted(len(chosen), 'thread')}, the last that were active"
    if report.ok:
        return [ok("damage", f"none in {told}; `threadline fsck` reads all of them")]
    advice = "`threadline fsck` says what can still be read and what to run next; docs/repair.md explains"
    return [problem("damage", f"{counted(len(report.damaged), 'damaged value or row')} in {told}", advice)]
