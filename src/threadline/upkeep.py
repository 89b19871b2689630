"""What a saver does for its store as a whole: open, close, set up, figures, health, keys, fsck and repair.

What a running graph never needs (sweeps, fsck, repair) is imported where it is used: opening a store is quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .backends.engine import Engine, Operation
from .core import rotation
from .core.health import Health, Stats, failed_probe, probe, take_stats
from .core.policy import Policy, seconds_of
from .core.requests import plain_text, text_id, text_ids
from .core.tools import Tools
from .errors import InvalidRequest, ThreadlineError

if TYPE_CHECKING:
    from .core.audit import Totals
    from .core.damage import Damage, Report
    from .core.quarantine import Aside
    from .core.shares import Share
    from .core.sweeping import Progress, Swept
    from .core.trash import Trashed
    from .core.unquarantine import Quarantined
    from .core.weights import ThreadWeight
    from .sweeper import Sweeper

__all__ = ["Upkeep"]

S = TypeVar("S", bound="Upkeep")


class Upkeep:
    """The part of a saver that is not about any one thread; `a…` twins mean the same."""

    def __init__(self, engine: Engine, tools: Tools) -> None:
        self._engine = engine
        self._tools = tools

    def stats(self) -> Stats:
        """The store in figures."""
        return self._engine.run(lambda backend: take_stats(backend, time.time()))

    async def astats(self) -> Stats:
        return await self._engine.arun(lambda backend: take_stats(backend, time.time()))

    def health(self) -> Health:
        """Write, read and remove a record; says what is wrong instead of raising."""
        try:
            return self._engine.run(probe)
        except ThreadlineError as error:
            return failed_probe(error)

    async def ahealth(self) -> Health:
        try:
            return await self._engine.arun(probe)
        except ThreadlineError as error:
            return failed_probe(error)

    def keys_in_use(self) -> set[str]:
        """The ids of the keys that stored bytes are sealed under."""
        return self._engine.run(lambda backend: rotation.keys_in_use(backend, self._tools))

    async def akeys_in_use(self) -> set[str]:
        return await self._engine.arun(lambda backend: rotation.keys_in_use(backend, self._tools))

    def keys(self) -> list[rotation.KeyUse]:
        """The keys that the store knows, with the rows under each; none for a store that is not encrypted."""
        return self._engine.run(lambda backend: rotation.key_uses(backend, self._tools))

    async def akeys(self) -> list[rotation.KeyUse]:
        return await self._engine.arun(lambda backend: rotation.key_uses(backend, self._tools))

    def rotate_keys(self, progress: Callable[[int], None] | None = None) -> int:
        """Seal everything under the ring's current key; returns how many rows changed."""
        return self._engine.run(lambda backend: rotation.rotate(backend, self._tools, progress))

    async def arotate_keys(self, progress: Callable[[int], None] | None = None) -> int:
        return await self._engine.arun(lambda backend: rotation.rotate(backend, self._tools, progress))

    def sweep(
        self,
        policy: Policy | None = None,
        *,
        prefix: str = "",
        trash: Any = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Swept:
        """Delete expired threads, prune the others by a policy, collect; one sweeper at a time among replicas.

        With `trash`, a span of time, what goes can be restored until then.
        """
        return self._engine.run(self._sweeping(policy, prefix, trash, dry_run, progress))

    async def asweep(
        self,
        policy: Policy | None = None,
        *,
        prefix: str = "",
        trash: Any = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Swept:
        return await self._engine.arun(self._sweeping(policy, prefix, trash, dry_run, progress))

    def sweeper(self, every: Any = "1h", policy: Policy | None = None) -> Sweeper:
        """A sweeper in the background, for `with` or `async with`."""
        from .sweeper import Sweeper

        return Sweeper(self, every, policy)

    def collect(self, progress: Progress | None = None) -> int:
        """Delete the chunks that nothing refers to; returns how many went."""
        return self._engine.run(self._collecting(progress))

    async def acollect(self, progress: Progress | None = None) -> int:
        return await self._engine.arun(self._collecting(progress))

    def trash(self, *, prefix: str = "") -> list[Trashed]:
        """What was deleted and can be restored, newest deletion first."""
        return self._engine.run(_listing_trash(prefix))

    async def atrash(self, *, prefix: str = "") -> list[Trashed]:
        return await self._engine.arun(_listing_trash(prefix))

    def restore_trash(self, name: str) -> Trashed:
        """Put back what was deleted: by the id of an entry, or of a thread that has one entry.

        NotFound without it; Conflict where the thread was begun anew since.
        """
        return self._engine.run(self._restoring(name))

    async def arestore_trash(self, name: str) -> Trashed:
        return await self._engine.arun(self._restoring(name))

    def empty_trash(self, names: Sequence[str] | None = None, *, prefix: str = "") -> int:
        """Delete for good what is in the trash, or these entries of it; returns how many went."""
        return self._engine.run(self._emptying(names, prefix))

    async def aempty_trash(self, names: Sequence[str] | None = None, *, prefix: str = "") -> int:
        return await self._engine.arun(self._emptying(names, prefix))

    def compact(self) -> None:
        """Give the space of what was deleted back to the system."""
        self._engine.run(lambda backend: backend.compact())

    async def acompact(self) -> None:
        await self._engine.arun(lambda backend: backend.compact())

    def writes_by_task(self, *, thread_id: str | None = None, prefix: str = "", since: float | None = None) -> Totals:
        """What the tasks of each name wrote, over threads and time, against the bytes of the checkpoints."""
        return self._engine.run(self._totalling(thread_id, prefix, since))

    async def awrites_by_task(
        self, *, thread_id: str | None = None, prefix: str = "", since: float | None = None
    ) -> Totals:
        return await self._engine.arun(self._totalling(thread_id, prefix, since))

    def bytes_by(self, what: str, *, prefix: str = "", since: float | None = None) -> list[Share]:
        """Where the bytes are, largest first: by `thread`, by `channel`, or by the `type` of what is stored."""
        return self._engine.run(self._sharing(what, prefix, since))

    async def abytes_by(self, what: str, *, prefix: str = "", since: float | None = None) -> list[Share]:
        return await self._engine.arun(self._sharing(what, prefix, since))

    def weigh(self, thread_ids: Sequence[str]) -> dict[str, ThreadWeight]:
        """How many checkpoints and bytes these threads have; those that do not exist are left out."""
        return self._engine.run(_weighing(thread_ids))

    async def aweigh(self, thread_ids: Sequence[str]) -> dict[str, ThreadWeight]:
        return await self._engine.arun(_weighing(thread_ids))

    def fsck(
        self, thread_ids: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Report:
        """Read and verify every checkpoint, write and chunk of all threads, or of these; changes nothing.

        Writers and prunes may go on. `progress` hears how many threads are done, and how many there are.
        """
        return self._engine.run(self._checking(thread_ids, progress))

    async def afsck(
        self, thread_ids: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Report:
        return await self._engine.arun(self._checking(thread_ids, progress))

    def quarantine(self, damages: Sequence[Damage], *, dry_run: bool = False) -> int:
        """Set damaged checkpoints of a report aside, so that their threads can be used; returns how many went.

        With `dry_run` nothing is done, and it tells how many would go.
        """
        return len(self._engine.run(self._quarantining(damages, dry_run)))

    async def aquarantine(self, damages: Sequence[Damage], *, dry_run: bool = False) -> int:
        return len(await self._engine.arun(self._quarantining(damages, dry_run)))

    def quarantined(self, thread_id: str | None = None) -> list[Quarantined]:
        """What was set aside, of all threads or of one."""
        return self._engine.run(self._listing_quarantine(thread_id))

    async def aquarantined(self, thread_id: str | None = None) -> list[Quarantined]:
        return await self._engine.arun(self._listing_quarantine(thread_id))

    def unquarantine(self, chosen: Sequence[Quarantined]) -> int:
        """Put checkpoints that were set aside back as they were; returns how many.

        Conflict where the thread was deleted since, or has the checkpoint again.
        """
        return self._engine.run(self._unquarantining(chosen))

    async def aunquarantine(self, chosen: Sequence[Quarantined]) -> int:
        return await self._engine.arun(self._unquarantining(chosen))

    def repair(
        self, damages: Sequence[Damage], *, reducers: Mapping[str, Callable[[Any, Any], Any]], exact: bool = True
    ) -> list[Damage]:
        """Rebuild damaged channels from their parents' values and writes; returns what is still damaged.

        A value that is not the very one that was lost is refused, unless `exact=False`.
        """
        return self._engine.run(self._repairing(damages, reducers, exact))

    async def arepair(
        self, damages: Sequence[Damage], *, reducers: Mapping[str, Callable[[Any, Any], Any]], exact: bool = True
    ) -> list[Damage]:
        return await self._engine.arun(self._repairing(damages, reducers, exact))

    def clear_cache(self) -> None:
        """Forget everything remembered in this process; the store is asked again."""
        self._tools.forget()

    async def aclear_cache(self) -> None:
        self._tools.forget()

    def setup(self) -> None:
        """Create or migrate the tables now; otherwise first use creates them."""
        self._engine.run(lambda backend: backend.setup())

    async def asetup(self) -> None:
        await self._engine.arun(lambda backend: backend.setup())

    def open(self: S) -> S:
        """Open now, so that errors surface here; otherwise first use opens."""
        self._engine.run(self._tools.open)
        return self

    async def aopen(self: S) -> S:
        await self._engine.arun(self._tools.open)
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

    def _sweeping(
        self, policy: Policy | None, prefix: str, trash: Any, dry_run: bool, progress: Progress | None
    ) -> Operation[Swept]:
        if policy is not None and not isinstance(policy, Policy):
            raise InvalidRequest(f"sweep takes a Policy, not {type(policy).__name__}")
        from .core.sweeping import sweep

        checked, seconds = plain_text(prefix, "prefix"), seconds_of(trash, "trash")
        return lambda backend: sweep(
            backend, self._tools, policy, time.time(), prefix=checked, trash=seconds, dry_run=dry_run, progress=progress
        )

    def _collecting(self, progress: Progress | None) -> Operation[int]:
        from .core.restoring import tidy
        from .core.sweeping import collect_all

        async def operation(backend: Any) -> int:
            await self._tools.open(backend)
            await tidy(backend, self._tools, time.time())
            return await collect_all(backend, progress)

        return operation

    def _totalling(self, thread_id: str | None, prefix: str, since: float | None) -> Operation[Totals]:
        from .core.audit import writes_by_task

        checked, young = plain_text(prefix, "prefix"), _moment(since)
        return lambda backend: writes_by_task(backend, thread_id=thread_id, prefix=checked, since=young)

    def _sharing(self, what: str, prefix: str, since: float | None) -> Operation[list[Share]]:
        from .core.shares import shares

        by, checked, young = plain_text(what, "what"), plain_text(prefix, "prefix"), _moment(since)
        return lambda backend: shares(backend, self._tools, by, checked, young)

    def _restoring(self, name: str) -> Operation[Trashed]:
        from .core.restoring import restore

        named = text_id(name, "name")
        return lambda backend: restore(backend, self._tools, named, time.time())

    def _emptying(self, names: Any, prefix: str) -> Operation[int]:
        from .core.restoring import empty

        named = None if names is None else text_ids(names, "names")
        checked = plain_text(prefix, "prefix")
        return lambda backend: empty(backend, self._tools, named, time.time(), checked)

    def _checking(self, thread_ids: Any, progress: Callable[[int, int], None] | None) -> Operation[Report]:
        from .core import fsck

        names = None if thread_ids is None else text_ids(thread_ids, "thread_ids")
        return lambda backend: fsck.check(backend, self._tools, names, progress)

    def _quarantining(self, damages: Any, dry_run: bool) -> Operation[list[Aside]]:
        from .core import quarantine

        named = _damages(damages)
        return lambda backend: quarantine.quarantine(backend, self._tools, named, time.time(), dry_run=dry_run)

    def _listing_quarantine(self, thread_id: str | None) -> Operation[list[Quarantined]]:
        from .core.unquarantine import quarantined

        named = None if thread_id is None else text_id(thread_id, "thread_id")

        async def operation(backend: Any) -> list[Quarantined]:
            # Records are of the whole store; a view shows those of its threads.
            return await quarantined(backend, named, getattr(backend, "prefix", ""))

        return operation

    def _unquarantining(self, chosen: Any) -> Operation[int]:
        from .core.unquarantine import Quarantined, unquarantine

        if not isinstance(chosen, Sequence) or not all(isinstance(one, Quarantined) for one in chosen):
            raise InvalidRequest("unquarantine takes a list of what quarantined() gives")
        return lambda backend: unquarantine(backend, self._tools, chosen, time.time())

    def _repairing(self, damages: Any, reducers: Any, exact: bool) -> Operation[list[Damage]]:
        from .core import repair

        named = _damages(damages)
        if not isinstance(reducers, Mapping) or not all(callable(reducer) for reducer in reducers.values()):
            raise InvalidRequest("reducers is a dict of functions by channel: value, write -> value")
        return lambda backend: repair.repair(backend, self._tools, named, reducers, time.time(), exact=exact)

    def _open(self) -> None:
        if not self._tools.is_open:
            self._engine.run(self._tools.open)

    async def _aopen(self) -> None:
        """Open for a first async put. Encoding needs the store's keys and must come before the first await,
        so an engine that can opens here and now."""
        if self._engine.opens_inline:
            self._open()
        else:
            await self._engine.arun(self._tools.open)


def _listing_trash(prefix: str) -> Operation[list[Trashed]]:
    from .core.trash import listed

    checked = plain_text(prefix, "prefix")
    return lambda backend: listed(backend, checked)


def _weighing(thread_ids: Sequence[str]) -> Operation[dict[str, ThreadWeight]]:
    from .core.weights import weigh

    names = dict.fromkeys(text_ids(thread_ids, "thread_ids"))

    async def operation(backend: Any) -> dict[str, ThreadWeight]:
        rows = [await backend.thread(name) for name in names]
        return await weigh(backend, [row for row in rows if row is not None and row.status != "deleted"])

    return operation


def _moment(since: Any) -> float | None:
    if since is not None and (isinstance(since, bool) or not isinstance(since, (int, float))):
        raise InvalidRequest(f"since is seconds since 1970, not {type(since).__name__}")
    return None if since is None else float(since)


def _damages(damages: Any) -> list[Damage]:
    """Damages of a report."""
    from .core.damage import Damage, Report

    if isinstance(damages, Report):
        raise InvalidRequest("pass what is damaged, not the whole report: report.damaged")
    if not isinstance(damages, Sequence) or not all(isinstance(damage, Damage) for damage in damages):
        raise InvalidRequest("damages is a list of Damage, as in the `damaged` of an fsck report")
    return list(damages)
