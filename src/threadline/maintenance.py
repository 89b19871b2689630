"""The verbs for a store as a whole: open, close, set up, figures, health, keys, the trash, fsck and repair.

Nothing here is about any one thread, which is why it is a class of its own; `Saver` adds the contract of graphs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .core import operations as ops
from .core.operations import Face, OfContext, P, T, opened
from .core.retention.policy import Policy
from .errors import ThreadlineError

if TYPE_CHECKING:
    from .background import Monitor, Sweeper
    from .core.history.state import Totals
    from .core.integrity.quarantine import Quarantined
    from .core.integrity.report import Damage, Report
    from .core.keys import KeyUse
    from .core.retention.sweep import Progress, Swept
    from .core.retention.trash import Trashed
    from .core.stats import Health, Stats, ThreadWeight
    from .core.tiering.shapes import Restored, Tiered, TierPlan, TierStatus
    from .core.usage import Share
    from .ops.meter import Meter

__all__ = ["Maintenance"]

S = TypeVar("S", bound="Maintenance")


class Maintenance(Face):
    """The part of a saver that is not about any one thread; `a…` twins mean the same."""

    @property
    def metrics(self) -> Meter | None:
        """What is counted of this store in this process; None unless it was opened with `metrics=`."""
        meter: Meter | None = getattr(self._engine, "meter", None)
        return meter

    @property
    def url(self) -> str:
        """Where the store is, as errors and pages name it: without a password."""
        return self._engine.url

    @property
    def tiers_by_itself(self) -> bool:
        """Whether a sweeper moves chunks to the cold tier: the store was opened with `cold_after=`."""
        return self._tools.options.cold_after is not None

    def stats(self) -> Stats:
        """The store in figures."""
        return self._ask(ops.take_stats, time.time())

    async def astats(self) -> Stats:
        return await self._aask(ops.take_stats, time.time())

    def health(self) -> Health:
        """Write, read and remove a record; says what is wrong instead of raising."""
        try:
            return self._ask(ops.probe)
        except ThreadlineError as error:
            return ops.failed_probe(error)

    async def ahealth(self) -> Health:
        try:
            return await self._aask(ops.probe)
        except ThreadlineError as error:
            return ops.failed_probe(error)

    def keys_in_use(self) -> set[str]:
        """The ids of the keys that stored bytes are sealed under."""
        return self._run(ops.keys_in_use)

    async def akeys_in_use(self) -> set[str]:
        return await self._arun(ops.keys_in_use)

    def keys(self) -> list[KeyUse]:
        """The keys that the store knows, with the rows under each; none for a store that is not encrypted."""
        return self._run(ops.key_uses)

    async def akeys(self) -> list[KeyUse]:
        return await self._arun(ops.key_uses)

    def rotate_keys(self, progress: Callable[[int], None] | None = None) -> int:
        """Seal everything under the ring's current key; returns how many rows changed."""
        return self._run(ops.rotate, progress)

    async def arotate_keys(self, progress: Callable[[int], None] | None = None) -> int:
        return await self._arun(ops.rotate, progress)

    def sweep(
        self,
        policy: Policy | None = None,
        *,
        prefix: str = "",
        trash: Any = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Swept:
        """Delete expired threads, items and cached results, prune the other threads by a policy, collect.

        With `trash`, a span of time, what goes can be restored until then.
        """
        from .ops.sweeps import sweep

        return self._run(sweep, policy, time.time(), prefix=prefix, trash=trash, dry_run=dry_run, progress=progress)

    async def asweep(
        self,
        policy: Policy | None = None,
        *,
        prefix: str = "",
        trash: Any = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Swept:
        from .ops.sweeps import sweep

        return await self._arun(
            sweep, policy, time.time(), prefix=prefix, trash=trash, dry_run=dry_run, progress=progress
        )

    def sweeper(self, every: Any = "1h", policy: Policy | None = None) -> Sweeper:
        """A sweeper in the background, for `with` or `async with`."""
        from .background import Sweeper

        return Sweeper(self, every, policy)

    def monitor(self, every: Any = "30s", **options: Any) -> Monitor:
        """A monitor in the background, for `with` or `async with`; docs/operations.md has its options."""
        from .background import Monitor

        return Monitor(self._engine, self._tools, every, **options)

    def tier_plan(self, policy: Any = None, *, thread_ids: Sequence[str] | None = None, grace: Any = "1d") -> TierPlan:
        """What `tier` would do now: which chunks go to the cold tier, which packs are rewritten, which objects go."""
        return self._run(ops.plan_tier, policy, time.time(), thread_ids=thread_ids, grace=grace)

    async def atier_plan(
        self, policy: Any = None, *, thread_ids: Sequence[str] | None = None, grace: Any = "1d"
    ) -> TierPlan:
        return await self._arun(ops.plan_tier, policy, time.time(), thread_ids=thread_ids, grace=grace)

    def tier(
        self,
        policy: Any = None,
        *,
        thread_ids: Sequence[str] | None = None,
        grace: Any = "1d",
        moved: bool = False,
        progress: Progress | None = None,
    ) -> Tiered:
        """Move chunks to the cold tier by a policy or span of idle time, else as `cold_after=` says; or these threads.

        Objects that nothing needs any more go after the grace. Another place than that of the store's objects is
        refused; `moved` says that the objects were moved there.
        """
        return self._run(
            ops.run_tier, policy, time.time(), thread_ids=thread_ids, grace=grace, moved=moved, progress=progress
        )

    async def atier(
        self,
        policy: Any = None,
        *,
        thread_ids: Sequence[str] | None = None,
        grace: Any = "1d",
        moved: bool = False,
        progress: Progress | None = None,
    ) -> Tiered:
        return await self._arun(
            ops.run_tier, policy, time.time(), thread_ids=thread_ids, grace=grace, moved=moved, progress=progress
        )

    def tier_restore(self, thread_ids: Sequence[str] | None = None, progress: Progress | None = None) -> Restored:
        """Bring the chunks of these threads, or of all, back into the database."""
        return self._run(ops.restore_tier, thread_ids, progress)

    async def atier_restore(
        self, thread_ids: Sequence[str] | None = None, progress: Progress | None = None
    ) -> Restored:
        return await self._arun(ops.restore_tier, thread_ids, progress)

    def tier_status(self) -> TierStatus:
        """What is in the database and what is in objects, in figures."""
        return self._run(ops.tier_status)

    async def atier_status(self) -> TierStatus:
        return await self._arun(ops.tier_status)

    def collect(self, progress: Progress | None = None) -> int:
        """Delete the chunks that nothing refers to; returns how many went."""
        return self._run(ops.collect, progress, time.time())

    async def acollect(self, progress: Progress | None = None) -> int:
        return await self._arun(ops.collect, progress, time.time())

    def trash(self, *, prefix: str = "") -> list[Trashed]:
        """The deletions that can be restored, newest first."""
        return self._ask(ops.listed, prefix)

    async def atrash(self, *, prefix: str = "") -> list[Trashed]:
        return await self._aask(ops.listed, prefix)

    def restore_trash(self, name: str) -> Trashed:
        """Put back what was deleted: by the id of an entry, or of a thread that has one entry.

        NotFound without it; Conflict where the thread was begun anew since.
        """
        return self._run(ops.restore, name, time.time())

    async def arestore_trash(self, name: str) -> Trashed:
        return await self._arun(ops.restore, name, time.time())

    def empty_trash(self, names: Sequence[str] | None = None, *, prefix: str = "") -> int:
        """Delete for good what is in the trash, or these entries of it; returns how many went."""
        return self._run(ops.empty, names, time.time(), prefix)

    async def aempty_trash(self, names: Sequence[str] | None = None, *, prefix: str = "") -> int:
        return await self._arun(ops.empty, names, time.time(), prefix)

    def compact(self) -> None:
        """Give the space of what was deleted back to the system."""
        self._run(ops.compact)

    async def acompact(self) -> None:
        await self._arun(ops.compact)

    def writes_by_task(self, *, thread_id: str | None = None, prefix: str = "", since: float | None = None) -> Totals:
        """The writes of the tasks of each name, over threads and time, against the bytes of the checkpoints."""
        return self._ask(ops.writes_by_task, thread_id=thread_id, prefix=prefix, since=since)

    async def awrites_by_task(
        self, *, thread_id: str | None = None, prefix: str = "", since: float | None = None
    ) -> Totals:
        return await self._aask(ops.writes_by_task, thread_id=thread_id, prefix=prefix, since=since)

    def bytes_by(self, what: str, *, prefix: str = "", since: float | None = None) -> list[Share]:
        """Where the bytes are, largest first: by `thread`, by `channel`, or by the `type` of what is stored."""
        return self._run(ops.shares, what, prefix, since)

    async def abytes_by(self, what: str, *, prefix: str = "", since: float | None = None) -> list[Share]:
        return await self._arun(ops.shares, what, prefix, since)

    def weigh(self, thread_ids: Sequence[str]) -> dict[str, ThreadWeight]:
        """How many checkpoints and bytes these threads have; those that do not exist are left out."""
        return self._ask(ops.weigh_named, thread_ids)

    async def aweigh(self, thread_ids: Sequence[str]) -> dict[str, ThreadWeight]:
        return await self._aask(ops.weigh_named, thread_ids)

    def fsck(
        self, thread_ids: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Report:
        """Read and verify every checkpoint, write and chunk of all threads, or of these; changes nothing.

        Writers and prunes may go on. `progress` hears how many threads are done, and how many there are.
        """
        return self._run(ops.check, thread_ids, progress)

    async def afsck(
        self, thread_ids: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Report:
        return await self._arun(ops.check, thread_ids, progress)

    def quarantine(self, damages: Sequence[Damage], *, dry_run: bool = False) -> int:
        """Set damaged checkpoints of a report aside, so that their threads can be used; returns how many went.

        With `dry_run` nothing is done, and it tells how many would go.
        """
        return len(self._run(ops.quarantine, damages, time.time(), dry_run=dry_run))

    async def aquarantine(self, damages: Sequence[Damage], *, dry_run: bool = False) -> int:
        return len(await self._arun(ops.quarantine, damages, time.time(), dry_run=dry_run))

    def quarantined(self, thread_id: str | None = None) -> list[Quarantined]:
        """The quarantined checkpoints of all threads, or of one."""
        return self._ask(ops.quarantined, thread_id)

    async def aquarantined(self, thread_id: str | None = None) -> list[Quarantined]:
        return await self._aask(ops.quarantined, thread_id)

    def unquarantine(self, chosen: Sequence[Quarantined]) -> int:
        """Put checkpoints that were set aside back as they were; returns how many.

        Conflict where the thread was deleted since, or has the checkpoint again.
        """
        return self._run(ops.unquarantine, chosen, time.time())

    async def aunquarantine(self, chosen: Sequence[Quarantined]) -> int:
        return await self._arun(ops.unquarantine, chosen, time.time())

    def repair(
        self, damages: Sequence[Damage], *, reducers: Mapping[str, Callable[[Any, Any], Any]], exact: bool = True
    ) -> list[Damage]:
        """Rebuild damaged channels from their parents' values and writes; returns what is still damaged.

        A value that is not the very one that was lost is refused, unless `exact=False`.
        """
        return self._run(ops.repair, damages, reducers, time.time(), exact=exact)

    async def arepair(
        self, damages: Sequence[Damage], *, reducers: Mapping[str, Callable[[Any, Any], Any]], exact: bool = True
    ) -> list[Damage]:
        return await self._arun(ops.repair, damages, reducers, time.time(), exact=exact)

    def run(self, operation: OfContext[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run an operation that no method has: a coroutine function whose first argument is a `Context` (core/)."""
        return self._run(operation, *args, **options)

    async def arun(self, operation: OfContext[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await self._arun(operation, *args, **options)

    def clear_cache(self) -> None:
        """Forget everything remembered in this process; the store is asked again."""
        self._tools.forget()

    async def aclear_cache(self) -> None:
        self._tools.forget()

    def setup(self) -> None:
        """Create or migrate the tables now; otherwise first use creates them."""
        self._ask(lambda backend: backend.setup())

    async def asetup(self) -> None:
        await self._aask(lambda backend: backend.setup())

    def open(self: S) -> S:
        """Open now, so that errors surface here; otherwise first use opens."""
        self._run(opened)
        return self

    async def aopen(self: S) -> S:
        await self._arun(opened)
        return self

    def close(self) -> None:
        """Release connections and threads; later use raises Closed."""
        self._engine.close()

    async def aclose(self) -> None:
        await self._engine.aclose()

    def __enter__(self: S) -> S:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: S) -> S:
        return await self.aopen()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _aopen(self) -> None:
        """Open for a first async put. Encoding needs the store's keys and must come before the first await,
        so an engine that can opens here and now."""
        if self._engine.opens_inline:
            self.open()
        else:
            await self.aopen()
