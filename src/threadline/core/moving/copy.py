"""Copying threads from one store to another, by their rows: ids, times, tags, branches and pending writes stay.

Threads of one pool are copied together, so that forks share their chunks in the target, too. A thread of the target is
the copy of one of the source when it has the same id and was created at the same moment: a copy keeps both. Such a
thread is completed. Any other thread of that id is left alone, and the source's is refused, or comes beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ...base.attempts import ATTEMPTS, gave_up
from ...base.hashing import blake2b
from ...base.namespaces import ROOT
from ...errors import Conflict, Corrupt, NotFound, StorageFull
from ...ports.checkpoints import Applied, Change, CheckpointKey, Stamp, ThreadRow, WriteRow
from ...ports.rules import asks, own_words
from ..context import Context
from ..lifecycle import encoded_metadata, living, tags_text
from ..paging import each_thread
from ..threads import Listing
from .carrier import Carrier, WentStale
from .items import copy_items
from .reading import has_any
from .report import CopyChoice, CopyReport, Progress
from .small import Copied, SmallThreads
from .threads import ThreadCopy
from .translate import Fault, Translator

__all__ = ["Adopt", "copy_between", "threads_chosen"]

# Begins a thread of an archive as it is in its store.
Adopt = Callable[[ThreadRow], Stamp]


async def copy_between(
    source: Context,
    target: Context,
    choice: CopyChoice,
    progress: Progress | None = None,
    *,
    adopt: Adopt | None = None,
    is_kept: bool = True,
) -> CopyReport:
    """Copy the chosen threads, and with whole stores the items of its Store; what the target has is skipped.

    With `adopt`, threads are begun by it in the very pools that they have in the source, and nothing is translated:
    the target is an archive, and has the source's keys. Raises NotFound for a thread that was named and is not there.
    What is refused or damaged is a problem of the report, and the rest is copied. A full disk raises StorageFull, which
    says what is there, if the target is kept.
    """
    copy = _Copy(source, target, choice, progress, adopt)
    try:
        return await copy.run()
    except StorageFull as full:
        if not is_kept:
            raise
        raise StorageFull(_told_full(str(full), copy.report)) from full


async def threads_chosen(source: Context, choice: CopyChoice) -> list[ThreadRow]:
    """The living threads of a store that fit all of a choice; NotFound for one that was named and is not there."""
    if choice.thread_ids is not None:
        named = [await living(source, thread_id) for thread_id in dict.fromkeys(choice.thread_ids)]
        rows = [row for row in named if row.thread_id.startswith(choice.prefix)]
    else:
        rows = [row async for row in each_thread(source, choice.prefix)]
    rows = [row for row in rows if choice.since is None or row.active >= choice.since]
    if choice.filter:
        listing, wanted = Listing.of(prefix=choice.prefix, filter=choice.filter), set[str]()
        while page := await listing.next_page(source):
            wanted.update(info.thread_id for info in page)
        rows = [row for row in rows if row.thread_id in wanted]
    return rows


class _Copy:
    """One run."""

    def __init__(
        self,
        source: Context,
        target: Context,
        choice: CopyChoice,
        progress: Progress | None,
        adopt: Adopt | None,
    ) -> None:
        self.source, self.target, self.choice, self.progress = source, target, choice, progress
        self.adopt = adopt
        self.report = CopyReport()
        self.done = self.total = 0

    async def run(self) -> CopyReport:
        pools: dict[int, list[ThreadRow]] = {}
        for thread in await threads_chosen(self.source, self.choice):
            pools.setdefault(thread.pool, []).append(thread)
        await self._count(pools)
        await self._copy_small(pools)
        for pool, threads in pools.items():
            # A fork is younger than its origin.
            await self._copy_pool(pool, sorted(threads, key=lambda one: (one.created, one.thread_id)))
        if self.choice.records and not self.choice.is_part:
            await copy_items(self.source, self.target, self.report)
        return self.report

    async def _count(self, pools: dict[int, list[ThreadRow]]) -> None:
        if self.progress is None or not pools:
            return
        chosen = {thread.serial for threads in pools.values() for thread in threads}
        weights = await self.source.backend.weights(sorted(pools))
        self.total = sum(one.rows for one in weights.checkpoints if one.thread in chosen)
        self._advance(0)

    async def _copy_small(self, pools: dict[int, list[ThreadRow]]) -> None:
        """Copy small threads many at a time, and take them out of the pools that are left."""
        if self.adopt is not None or self.choice.is_bounded:
            return
        alone = {threads[0].thread_id: pool for pool, threads in pools.items() if len(threads) == 1}
        small = SmallThreads(self.source, self.target, self.report, self._advance, self._finish_small)
        for thread_id in await small.copy([pools[pool][0] for pool in alone.values()]):
            del pools[alone[thread_id]]

    def _advance(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            # The source may have grown since it was counted.
            self.progress(self.done, max(self.total, self.done))

    async def _copy_pool(self, pool: int, threads: Sequence[ThreadRow]) -> None:
        carriers: dict[int, Carrier] = {}
        mate: str | None = None
        for thread in threads:
            try:
                mate = await self._copy_thread(pool, thread, mate, carriers) or mate
            except (Conflict, Fault, WentStale) as trouble:
                # Archived, deleted or pruned in the target meanwhile, or read back otherwise than sent: the other
                # threads do not suffer for it, and what the target has is asked anew for them.
                self.report.problems.append(f"thread {thread.thread_id!r}: {trouble}")
                for carrier in carriers.values():
                    carrier.forget(carrier.stamp)
        for carrier in carriers.values():
            self.report.chunks += carrier.sent
            self.report.chunk_bytes += carrier.sent_bytes

    async def _copy_thread(
        self, pool: int, thread: ThreadRow, mate: str | None, carriers: dict[int, Carrier]
    ) -> str | None:
        """Copy one thread; returns its id in the target, where the next thread of its pool joins it."""
        if self.choice.is_bounded and not await has_any(self.source, thread, self.choice):
            return None
        target_id, held = await self._destination(thread)
        if target_id is None:
            self.report.problems.append(
                f"thread {thread.thread_id!r} exists in the target and is another one: nothing of it was copied. "
                f"Copy with merge to have it beside the other under a new id"
            )
            return None
        if held is not None and held.status == "archived":
            held = await self._set_words(held, held._replace(status="active"))
        stamp = held.stamp if held is not None else await self._begin(thread, target_id, mate)
        carrier = carriers.get(stamp[0])
        if carrier is None:
            is_new = held is None and mate is None
            carrier = carriers[stamp[0]] = Carrier(self.source, self.target, pool, stamp, is_new=is_new)
            carrier.translator.is_verbatim |= self.adopt is not None
        copy = ThreadCopy(
            self.source,
            self.target,
            thread,
            target_id,
            carrier,
            self.choice,
            self.report,
            is_new=held is None,
        )
        await copy.run(self._advance)
        if not copy.has_gone_on:
            writes = [one for key, some in copy.cut.writes.items() if key not in copy.left_out for one in some]
            await self._finish(thread, target_id, carrier.translator, copy.newest, writes, copy.left_out)
        self.report.threads += 1
        return target_id

    async def _destination(self, thread: ThreadRow) -> tuple[str | None, ThreadRow | None]:
        """The id under which a thread is copied, and what the target has of it; no id where that is refused."""
        names = [thread.thread_id, *([_beside(thread)] if self.choice.merge else [])]
        for name in names:
            held = await self.target.thread(name)
            if held is None or held.status == "deleted":
                if name != thread.thread_id:
                    self.report.renamed[thread.thread_id] = name
                return name, None
            if held.created == thread.created:
                if name != thread.thread_id:
                    self.report.renamed[thread.thread_id] = name
                return name, held
        return None, None

    async def _begin(self, thread: ThreadRow, target_id: str, mate: str | None) -> Stamp:
        """Begin a thread of the target, in a pool of its own or in that of the threads it shares chunks with."""
        if self.adopt is not None:
            return self.adopt(thread)
        origin = thread.forked_from
        founded = (self.report.renamed.get(origin, origin) if origin else None, thread.created)
        change = Change(thread_id=target_id, now=thread.active, joins=mate, founded=founded)
        [outcome] = await self.target.backend.apply([change])
        assert isinstance(outcome, Applied)
        return outcome.stamp

    async def _finish_small(self, copied: Sequence[Copied]) -> None:
        """What `_finish` does for one thread, for many that were just begun."""
        swaps: list[tuple[ThreadRow, ThreadRow]] = []
        for whole, held, translator in copied:
            newest = max((row.id for row in whole.checkpoints if row.namespace == ROOT), default=None)
            try:
                await self._settle(whole.thread, held.thread_id, newest, whole.writes)
            except Conflict as conflict:
                self.report.problems.append(f"thread {held.thread_id!r}: {conflict}")
                continue
            swaps.append((held, self._wanted(whole.thread, held, translator, ())))
        swaps = [(held, wanted) for held, wanted in swaps if own_words(held) != own_words(wanted)]
        made = await self.target.backend.swap_threads(swaps) if swaps else []
        for (held, wanted), is_made in zip(swaps, made, strict=True):
            if not is_made:
                await self._set_words(held, wanted)

    async def _finish(
        self,
        thread: ThreadRow,
        target_id: str,
        translator: Translator,
        newest: str | None,
        writes: Sequence[WriteRow],
        left_out: Container[CheckpointKey],
    ) -> None:
        """Set status, expiry, tags and metadata; settle questions that wait no longer."""
        await self._settle(thread, target_id, newest, writes)
        held = await self.target.thread(target_id)
        if held is None:
            raise NotFound(f"thread {target_id!r} was deleted from the target while it was copied")
        await self._set_words(held, self._wanted(thread, held, translator, left_out))

    async def _settle(self, thread: ThreadRow, target_id: str, newest: str | None, writes: Sequence[WriteRow]) -> None:
        asked = {write.checkpoint_id for write in writes if asks(write)}
        if newest is not None and asked and newest not in asked:
            await self.target.backend.apply([Change(thread_id=target_id, now=thread.active, settles=newest)])

    def _wanted(
        self, thread: ThreadRow, held: ThreadRow, translator: Translator, left_out: Container[CheckpointKey]
    ) -> ThreadRow:
        """A thread of the target with the status, expiry, tags and metadata of the source's."""
        try:
            metadata = translator.words(thread, held.thread_id)
            if metadata and encoded_metadata(self.target.tools, held) == encoded_metadata(self.source.tools, thread):
                metadata = held.metadata  # sealed anew it would only look different
        except Corrupt as fault:
            self.report.problems.append(f"{fault}; the thread was copied without it")
            metadata = b""
        tags = tags_text(thread, lambda key: key not in left_out)
        return held._replace(status=thread.status, expires=thread.expires, tags=tags, metadata=metadata)

    async def _set_words(self, held: ThreadRow, wanted: ThreadRow) -> ThreadRow:
        for _ in range(ATTEMPTS):
            if own_words(held) == own_words(wanted) or await self.target.backend.swap_thread(held, wanted):
                return wanted
            held = await living(self.target, held.thread_id)
            wanted = wanted._replace(serial=held.serial)
        raise gave_up(f"copy of thread {held.thread_id!r}", "another process changed its tags during each of them")


def _told_full(why: str, report: CopyReport) -> str:
    """Nothing was written of the last change alone."""
    why = why.removesuffix("nothing was written").rstrip(" ,;")
    return (
        f"{why}. Whole threads that are there: {report.threads:,}; checkpoints in all: {report.checkpoints.total:,}. "
        f"They can be read, and the same copy again goes on from them"
    )


def _beside(thread: ThreadRow) -> str:
    """The id of a thread that comes beside another one of its id; the same each time."""
    made = blake2b(repr(thread.created).encode(), digest_size=4).hexdigest()
    return f"{thread.thread_id}~{made}"
