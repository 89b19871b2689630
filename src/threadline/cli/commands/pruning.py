"""`threadline prune`, `sweep`, `gc` and `compact`: deleting, which is told first and done with --yes."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ...core.retention.plan import Plan
from ...core.retention.policy import Policy, seconds_of
from ...core.retention.sweep import Swept, each_garbage
from ...errors import InvalidRequest, Unavailable
from ...ports.checkpoints import Backend
from ...ports.storage import Space
from ...show.forms import plan_json
from ..open import Store, open_store
from ..output import (
    AsJson,
    ThreadId,
    TrashSpan,
    Url,
    Yes,
    complain,
    counted,
    iso_time,
    one_line,
    print_facts,
    print_json,
    progress_bar,
    readable_bytes,
    readable_time,
    screen_width,
)

__all__ = ["compact", "ending", "gc", "prune", "some", "sweep"]

_MOST_LISTED = 20

KeepLast = Annotated[int | None, typer.Option("--keep-last", metavar="N", help="Keep the newest N.")]
KeepWithin = Annotated[
    str | None, typer.Option("--keep-within", metavar="SPAN", help="Keep what is younger: 36h, 30d.")
]
KeepHourly = Annotated[
    int | None, typer.Option("--keep-hourly", metavar="N", help="Keep the last of each of the newest N hours.")
]
KeepDaily = Annotated[
    int | None, typer.Option("--keep-daily", metavar="N", help="Keep the last of each of the newest N days.")
]
DropBranches = Annotated[
    str | None,
    typer.Option("--drop-branches-older-than", metavar="SPAN", help="Let other branches go that ended before that."),
]
DropWrites = Annotated[
    bool, typer.Option("--drop-settled-writes", help="Drop writes that a later checkpoint has taken up.")
]


def prune(
    url: Url,
    thread: ThreadId,
    keep_last: KeepLast = None,
    keep_within: KeepWithin = None,
    keep_hourly: KeepHourly = None,
    keep_daily: KeepDaily = None,
    drop_branches_older_than: DropBranches = None,
    drop_settled_writes: DropWrites = False,
    trash: TrashSpan = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the checkpoints of a thread that no rule keeps.

    Heads of branches, tagged and pinned checkpoints and unsettled writes are always kept.
    """
    policy = Policy(
        keep_last=keep_last,
        keep_within=keep_within,
        keep_hourly=keep_hourly,
        keep_daily=keep_daily,
        drop_branches_older_than=drop_branches_older_than,
        drop_settled_writes=drop_settled_writes,
        trash=trash,
    )
    with open_store(url, read_only=not yes) as store, progress_bar("pruning") as progress:
        plan = store.saver.thread(thread).prune(policy, dry_run=not yes, progress=progress)
    if as_json:
        print_json(plan_json(plan, yes))
        return
    print_facts([*_plan_facts(plan), ending(yes, "pruned", "this would be pruned", trash)])


def sweep(
    url: Url,
    keep_last: KeepLast = None,
    keep_within: KeepWithin = None,
    keep_hourly: KeepHourly = None,
    keep_daily: KeepDaily = None,
    drop_branches_older_than: DropBranches = None,
    drop_settled_writes: DropWrites = False,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only threads that begin so.")] = "",
    trash: TrashSpan = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="SPAN", help="Do it again and again, such as 1h, until stopped.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete what has expired, and prune the rest by a policy.

    Threads, items and cached results expire. One sweeper works at a time: where another replica is at it, this one
    leaves it alone.
    """
    rules = {
        "keep_last": keep_last,
        "keep_within": keep_within,
        "keep_hourly": keep_hourly,
        "keep_daily": keep_daily,
        "drop_branches_older_than": drop_branches_older_than,
        "drop_settled_writes": drop_settled_writes,
    }
    policy = Policy(**rules) if any(rules.values()) else None  # type: ignore[arg-type]
    seconds_of(trash, "--trash")
    seconds = seconds_of(every, "--every")
    if seconds is not None and (seconds <= 0 or not yes):
        raise InvalidRequest("--every needs --yes" if not yes else "--every is a span of time above 0, such as 1h")
    with open_store(url, read_only=not yes) as store:
        if seconds is not None:
            return _sweep_for_ever(store, policy, prefix, trash, seconds, as_json)
        with progress_bar("sweeping") as progress:
            swept = store.saver.sweep(policy, prefix=prefix, trash=trash, dry_run=not yes, progress=progress)
    if as_json:
        print_json({**dataclasses.asdict(swept), "done": yes and not swept.is_elsewhere})
    elif swept.is_elsewhere:
        print_facts([("left alone", "another process is sweeping this store")])
    else:
        print_facts([*_swept_facts(swept, yes), ending(yes, "swept", "this would be deleted", trash)])
    return None


def gc(url: Url, yes: Yes = False, as_json: AsJson = False) -> None:
    """Collect the chunks that nothing refers to."""
    with open_store(url, read_only=not yes) as store, progress_bar("collecting") as progress:
        chunks, size = store.engine.run(lambda backend: _garbage(backend, progress))
        if yes:
            chunks = store.saver.collect(progress)
    if as_json:
        print_json({"chunks": chunks, "bytes": size, "done": yes})
        return
    facts = [("chunks", f"{chunks:,}"), ("bytes", f"{size:,} ({readable_bytes(size)})")]
    print_facts([*facts, ending(yes, "collected", "these would be collected")])


async def _garbage(backend: Backend, progress: Callable[[int, int], None] | None) -> tuple[int, int]:
    """How many chunks of all pools nothing refers to, and their bytes."""
    chunks = size = done = 0
    async for _, unneeded, pool_bytes in each_garbage(backend):
        chunks, size, done = chunks + len(unneeded), size + pool_bytes, done + 1
        if progress is not None:
            progress(done, done)
    return chunks, size


def compact(url: Url, as_json: AsJson = False) -> None:
    """Give the space of what was deleted back to the system."""
    with open_store(url) as store:
        before = store.engine.run(lambda backend: backend.space())
        store.saver.compact()
        after = store.engine.run(lambda backend: backend.space())
    if as_json:
        print_json({"bytes_before": before.taken_bytes, "bytes_after": after.taken_bytes})
    else:
        sizes = (("before", before), ("after", after))
        print_facts([(name, f"{one.taken_bytes:,} bytes ({_free(one)})") for name, one in sizes])


def _free(space: Space) -> str:
    free = f", {readable_bytes(space.free_bytes)} free" if space.free_bytes else ""
    return f"{readable_bytes(space.taken_bytes)}{free}"


def _sweep_for_ever(
    store: Store, policy: Policy | None, prefix: str, trash: str | None, seconds: float, as_json: bool
) -> None:
    """Sweep until interrupted or told to end; a store that is away for a while is tried again next time."""
    with _ended_by_signals():
        while True:
            try:
                swept = store.saver.sweep(policy, prefix=prefix, trash=trash)
            except Unavailable as error:
                complain(one_line(error))
            else:
                _tell_round(swept, as_json)
            time.sleep(seconds)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """An interrupt, or the signal that containers are stopped by, ends the block quietly."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        complain("stopped")
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell_round(swept: Swept, as_json: bool) -> None:
    """One line for each round, at once: a log is read while it grows."""
    import json

    if as_json:
        told: dict[str, Any] = {"time": iso_time(time.time()), **dataclasses.asdict(swept)}
        print(json.dumps(told), flush=True)
        return
    said = "another process is sweeping" if swept.is_elsewhere else _sentence(swept)
    print(f"{readable_time(time.time())}  {said}", flush=True)


def _sentence(swept: Swept) -> str:
    return (
        f"{counted(swept.threads, 'thread')}, {len(swept.expired):,} expired, "
        f"{counted(swept.checkpoints, 'checkpoint')} and {counted(swept.chunks, 'chunk')} deleted, "
        f"{counted(swept.items, 'item')} and {counted(swept.cached, 'cached result')} expired"
    )


def _swept_facts(swept: Swept, is_done: bool) -> list[tuple[str, str]]:
    facts = [("threads", f"{swept.threads:,}"), ("expired", f"{len(swept.expired):,}")]
    facts += [("", str(line)) for line in told(some(swept.expired), len(swept.expired))]
    facts.append(
        ("checkpoints", f"{swept.checkpoints:,} to delete" if not is_done else f"{swept.checkpoints:,} deleted")
    )
    if is_done:
        facts.append(("chunks", f"{swept.chunks:,} deleted"))
    if swept.items or swept.cached:
        told_records = f"{counted(swept.items, 'item')} and {counted(swept.cached, 'cached result')}"
        facts.append(("records", f"{told_records} {'deleted' if is_done else 'to delete'}"))
    return [*facts, ("freed", f"about {readable_bytes(swept.freed_bytes)}")]


def _plan_facts(plan: Plan) -> list[tuple[str, str]]:
    facts = [("thread", plan.thread_id), ("keeps", counted(len(plan.keeps), "checkpoint"))]
    facts.append(("deletes", f"{counted(len(plan.removes), 'checkpoint')}, about {readable_bytes(plan.freed_bytes)}"))
    named = [f"{key.id}{f' in {key.namespace}' if key.namespace else ''}" for key in plan.removes]
    facts += [("", line) for line in told(some(named), len(named))]
    if plan.empties:
        facts.append(("writes", f"of {counted(len(plan.empties), 'checkpoint')} to keep are dropped"))
    return facts


def some(names: Any) -> list[Any]:
    """All of them; on a terminal only the first."""
    return list(names) if screen_width() is None else list(names[:_MOST_LISTED])


def told(shown: list[Any], count: int) -> list[Any]:
    """What is shown, and how many there are besides."""
    return [*shown, f"… {count - len(shown):,} more (--json lists them)"] if count > len(shown) else shown


def ending(is_done: bool, done: str, planned: str, trash: str | None = None) -> tuple[str, str]:
    """The last line: what was done, or what does it."""
    kept = f", restorable for {trash} (threadline trash)" if trash else ""
    return ("done", done + kept) if is_done else ("not done", f"{planned}{kept}; --yes does it")
