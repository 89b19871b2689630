"""Looking a whole store over: what can be read, what is damaged, what nobody needs.

Safe beside writers and prunes. What looks damaged is read again, row and chunks: it is reported only when
its row was the same before and after, because chunks of a living row are never collected.

    damaged           a checkpoint or pending write that a read would refuse, or that is its own ancestor
    missing           chunks that are not there, with the checkpoints that need them (which are damaged, too)
    lost_objects      objects of the cold tier that are gone or altered, with what needs them (which is damaged, too)
    warnings          values that are whole, of types that the rules in force do not rebuild, or that take more memory
                      than there is
    orphaned          chunks that no row leads to: not an error, collecting removes them
    spoiled           orphaned chunks that are damaged: a put of the same content would rely on them
    damaged_records   items, former values, embeddings and cached results that a read would refuse
    leaked            pools whose chunks no living thread can reach
    damaged_trash     what an entry of the trash has and could not be read once it is restored
    notes             gaps that pruning left, names that point nowhere
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...base.attempts import ATTEMPTS
from ...errors import Corrupt
from ...ports.checkpoints import Backend, CheckpointKey, Found, Query, ThreadRow, WriteRow
from ...ports.objects import Absence
from ...ports.rules import HIDDEN, hidden_ids_of, mark
from ..context import Context
from ..history.graph import on_a_cycle
from ..lifecycle import tags_of
from ..paging import checkpoint_pages, chunk_pages, each_pool, has_chunks, thread_rows
from ..records.upkeep import damaged_records
from ..requests import text_ids
from ..retention.trash import each_entry, id_of_entry, origin_of
from ..stats import all_threads
from .report import Damage, LostObject, MissingChunk, Report, Verdict
from .verify import TOO_LARGE, Subject, Walk, batches, subject_of, subject_of_write

__all__ = ["Damage", "MissingChunk", "Report", "Verdict", "check", "judge"]

_PAGE = 64
_BATCH = 256
_MOST_NAMED = 3

Progress = Callable[[int, int], None]
Reread = Callable[[Iterable[Any]], Awaitable[dict[Any, Subject]]]


async def check(store: Context, thread_ids: Sequence[str] | None = None, progress: Progress | None = None) -> Report:
    """Look over all threads, or these, with the chunks of their pools; `progress` hears of threads done and in all.

    Leaked pools and records are looked at only where all threads are. A key that the ring lacks raises NotFound.
    """
    thread_ids = None if thread_ids is None else text_ids(thread_ids, "thread_ids")
    pools = [pool async for pool in each_pool(store.backend)] if thread_ids is None else []
    inquiry = _Inquiry(store)
    groups = await inquiry.group(thread_ids)
    trash = await inquiry.group_trash(thread_ids)
    total = sum(len(group) for group in groups.values())
    for pool in sorted(groups.keys() | trash.keys()):
        walk = Walk(store, pool)
        for entry in trash.get(pool, ()):
            await inquiry.look_into_trash(entry, walk)
        for thread in groups.get(pool, ()):
            await inquiry.look_over(thread, walk)
            if progress is not None:
                progress(inquiry.threads, total)
        await inquiry.count_orphans(walk)
        inquiry.unknown.update(walk.unknown)
    leaked = await _leaked(store.backend, [pool for pool in pools if pool not in groups and pool not in trash])
    report = inquiry.report(leaked)
    if thread_ids is not None:
        return report
    records, damaged = await damaged_records(store)
    return replace(report, records=records, damaged_records=tuple(damaged))


async def judge(walk: Walk, thread_id: str, subjects: Sequence[Subject]) -> list[Verdict]:
    """The verdict on each of these rows of one thread."""
    await walk.take([ref for subject in subjects for _, _, ref in subject.values])
    return [_verdict(walk, thread_id, subject) for subject in subjects]


class _Inquiry:
    """A check in progress."""

    def __init__(self, store: Context) -> None:
        self.store, self.backend, self.tools = store, store.backend, store.tools
        self.threads = self.checkpoints = self.writes = self.chunks = 0
        self.orphaned_chunks = self.orphaned_bytes = 0
        self.found = Verdict()
        self.needed: dict[tuple[int, bytes], list[Damage]] = defaultdict(list)
        self.lost: dict[Absence, list[tuple[str, Damage]]] = defaultdict(list)
        self.spoiled: list[str] = []
        self.notes: list[str] = []
        self.damaged_trash: dict[str, tuple[Damage, ...]] = {}
        self.unknown: Counter[str] = Counter()

    async def group(self, thread_ids: Sequence[str] | None) -> dict[int, list[ThreadRow]]:
        """The threads to look over, by the pool that they share."""
        groups: dict[int, list[ThreadRow]] = defaultdict(list)
        if thread_ids is None:
            for thread in await all_threads(self.backend):
                groups[thread.pool].append(thread)
            return groups
        for thread_id in dict.fromkeys(thread_ids):
            named = await self.backend.thread(thread_id)
            if named is None or named.status == "deleted":
                self.notes.append(f"there is no thread {thread_id!r}")
            else:
                groups[named.pool].append(named)
        return groups

    async def group_trash(self, thread_ids: Sequence[str] | None) -> dict[int, list[ThreadRow]]:
        """The entries of the trash, of all threads or of these, by their pool."""
        entries: dict[int, list[ThreadRow]] = defaultdict(list)
        for prefix in [HIDDEN] if thread_ids is None else map(hidden_ids_of, dict.fromkeys(thread_ids)):
            async for entry in each_entry(self.backend, prefix):
                entries[entry.pool].append(entry)
        return entries

    async def look_into_trash(self, entry: ThreadRow, walk: Walk) -> None:
        """All rows of an entry, which are sealed for the thread that they came from; damage is seen twice."""
        origin = origin_of(entry)
        for is_first in (True, False):
            found = [one for one in await thread_rows(self.store, entry.thread_id) if one.pool == walk.pool]
            subjects = self._checkpoints(one._replace(thread_id=origin) for one in found)
            subjects |= self._writes(origin, await self._writes_of(entry.thread_id, walk.pool))
            damages = [one for verdict in await judge(walk, origin, [*subjects.values()]) for one in verdict.damages]
            again = await self.backend.thread(entry.thread_id)
            if not damages or again is None or again.created != entry.created or again.status == "deleted":
                return  # sound, or restored or emptied meanwhile
            if is_first:
                walk.forget_troubles()
        self.damaged_trash[id_of_entry(entry)] = tuple(damages)

    async def look_over(self, thread: ThreadRow, walk: Walk) -> None:
        """All checkpoints and writes of a thread, and how they hang together."""
        self.threads += 1
        thread_id = thread.thread_id
        parents: dict[CheckpointKey, CheckpointKey | None] = {}
        query = Query(thread_id=thread_id, limit=_PAGE, with_writes=False)
        async for page in checkpoint_pages(self.store, query):
            # A thread that was deleted and begun anew meanwhile has nothing left of what was to be looked at.
            own = [found for found in page if found.pool == walk.pool]
            parents.update((found.key, found.parent) for found in own)
            self.checkpoints += len(own)
            await self._judge(walk, thread_id, self._checkpoints(own), self._reread(thread_id, walk.pool))
        reread_writes = self._reread_writes(thread_id, walk.pool)
        for batch in batches(await self._writes_of(thread_id, walk.pool), _BATCH):
            self.writes += len(batch)
            await self._judge(walk, thread_id, self._writes(thread_id, batch), reread_writes)
        await self._look_at_lineage(thread, parents)

    async def count_orphans(self, walk: Walk) -> None:
        """The chunks of a pool that no row leads to, and which of them are damaged."""
        self.chunks += walk.count()
        unmet: list[bytes] = []
        async for page in chunk_pages(self.backend, walk.pool):
            unmet += [one[0] for one in page if one[0] not in walk.sound and one[0] not in walk.troubled]
        if not unmet:
            return
        # Marked after they were listed: a chunk that a writer brought meanwhile has its row by now.
        reachable: set[bytes] = set()

        async def links_of(digests: list[bytes]) -> dict[bytes, bytes]:
            links = await self.backend.links(walk.pool, digests)
            return {digest: below if type(below) is bytes else b"" for digest, below in links.items()}

        roots = [links for links in await self.backend.roots(walk.pool) if type(links) is bytes]
        await mark(roots, reachable, links_of)
        for batch in batches([digest for digest in unmet if digest not in reachable], _BATCH):
            found = await walk.fetch(batch)
            self.spoiled += [digest.hex() for digest in await walk.spoiled(found)]
            for stored in found:
                self.chunks += 1
                self.orphaned_chunks += 1
                self.orphaned_bytes += sum(len(part) for part in (stored[1], stored[3]) if type(part) is bytes)

    def report(self, leaked: tuple[int, ...]) -> Report:
        return Report(
            threads=self.threads,
            checkpoints=self.checkpoints,
            writes=self.writes,
            chunks=self.chunks,
            damaged=tuple(self.found.damages),
            missing=tuple(
                MissingChunk(pool=pool, digest=digest.hex(), needed_by=tuple(damages))
                for (pool, digest), damages in sorted(self.needed.items())
            ),
            lost_objects=tuple(_lost_object(absence, of) for absence, of in sorted(self.lost.items(), key=_first)),
            warnings=tuple(self.found.warnings),
            orphaned_chunks=self.orphaned_chunks,
            orphaned_bytes=self.orphaned_bytes,
            spoiled_chunks=tuple(self.spoiled),
            leaked_pools=leaked,
            notes=tuple(self.notes),
            unknown_types=dict(self.unknown),
            damaged_trash=self.damaged_trash,
        )

    async def _judge(self, walk: Walk, thread_id: str, subjects: dict[Any, Subject], reread: Reread) -> None:
        """Note what is wrong with some rows, once it was seen twice."""
        suspects = []
        for key, verdict in zip(subjects, await judge(walk, thread_id, list(subjects.values())), strict=True):
            if verdict.damages:
                suspects.append(key)
            self.found.warnings += verdict.warnings
        for _ in range(ATTEMPTS):
            if not suspects:
                return
            walk.forget_troubles()
            now = await reread(suspects)
            judged = await judge(walk, thread_id, list(now.values()))
            bad = {key: verdict for key, verdict in zip(now, judged, strict=True) if verdict.damages}
            then = await reread(bad)
            for key in [key for key in bad if key in then and then[key].row == now[key].row]:
                verdict = bad.pop(key)
                self.found.damages += verdict.damages
                for digest, damage in verdict.missing:
                    self.needed[walk.pool, digest].append(damage)
                for absence, chunk, damage in verdict.lost:
                    self.lost[absence].append((chunk, damage))
            suspects = [key for key in bad if key in then]

    def _checkpoints(self, rows: Iterable[Found]) -> dict[Any, Subject]:
        return {found.key: subject_of(self.tools, found) for found in rows}

    def _writes(self, thread_id: str, writes: Iterable[WriteRow]) -> dict[Any, Subject]:
        return {_key_of(write): subject_of_write(self.tools, thread_id, write) for write in writes}

    async def _writes_of(self, thread_id: str, pool: int) -> list[WriteRow]:
        """The writes of a thread, none if it was begun anew in another pool: pools are never used again."""
        writes = await self.store.thread_writes(thread_id)
        thread = await self.backend.thread(thread_id)
        return writes if thread is not None and thread.pool == pool else []

    def _reread(self, thread_id: str, pool: int) -> Reread:
        async def reread(keys: Iterable[CheckpointKey]) -> dict[Any, Subject]:
            found = [await self.store.find(thread_id, *key, with_writes=False) for key in keys]
            return self._checkpoints(one for one in found if one is not None and one.pool == pool)

        return reread

    def _reread_writes(self, thread_id: str, pool: int) -> Reread:
        async def reread(keys: Iterable[Any]) -> dict[Any, Subject]:
            wanted = set(keys)
            found = await self._writes_of(thread_id, pool) if wanted else []
            return self._writes(thread_id, (write for write in found if _key_of(write) in wanted))

        return reread

    async def _look_at_lineage(self, thread: ThreadRow, parents: Mapping[CheckpointKey, CheckpointKey | None]) -> None:
        thread_id = thread.thread_id
        for key in on_a_cycle(parents):
            again = await self.store.find(thread_id, *key, with_writes=False)
            parent = parents[key]
            if again is not None and parent is not None and again.parent == parent:
                what = f"it is its own ancestor, through {parent.id}"
                self.found.damages.append(_damage(thread_id, key, None, what))
        gaps = {key: parent for key, parent in parents.items() if parent is not None and parent not in parents}
        count = len(gaps) - await self._count_forked(thread, gaps)
        if count:
            told = "1 checkpoint has" if count == 1 else f"{count} checkpoints have"
            self.notes.append(f"thread {thread_id!r}: {told} a parent that is gone, as after a prune")
        ids = {key.id for key in parents}
        for name, target in sorted(_pointers(thread)):
            if target not in ids:
                self.notes.append(f"thread {thread_id!r}: the name {name!r} points to {target}, which is gone")

    async def _count_forked(self, thread: ThreadRow, gaps: Mapping[CheckpointKey, CheckpointKey]) -> int:
        """How many of these gaps are none: a fork's first checkpoints have their parents in the thread it came from."""
        origin = await self.backend.thread(thread.forked_from) if thread.forked_from and gaps else None
        if thread.forked_from is None or not gaps:
            return 0
        first = {key.namespace: gaps[key] for key in sorted(gaps, reverse=True)}
        if origin is None or origin.status == "deleted":
            return len(first)
        found = [await self.store.find(origin.thread_id, *parent, with_writes=False) for parent in first.values()]
        return sum(one is not None for one in found)


def _verdict(walk: Walk, thread_id: str, subject: Subject) -> Verdict:
    verdict = Verdict()
    row = subject.row
    key = CheckpointKey(row.namespace, row.checkpoint_id if isinstance(row, WriteRow) else row.id)
    for channel, what, is_forbidden in subject.faults:
        damage = _damage(thread_id, key, channel, what)
        (verdict.warnings if is_forbidden else verdict.damages).append(damage)
    for channel, label, ref in subject.values:
        prefix = f"{label}: " if label else ""
        troubles = walk.troubles_of(ref)
        forbidden = [trouble for trouble in troubles if trouble.is_forbidden]
        if forbidden:
            is_large = all(trouble.what == TOO_LARGE for trouble in forbidden)
            what = f"{prefix}{'' if is_large else 'type not allowed here: '}{_named(forbidden)}"
            verdict.warnings.append(_damage(thread_id, key, channel, what))
        broken = [trouble for trouble in troubles if not trouble.is_forbidden]
        if broken:
            chunks = tuple(trouble.digest.hex() for trouble in broken if trouble.digest)
            damage = replace(_damage(thread_id, key, channel, prefix + _named(broken)), chunks=chunks)
            verdict.damages.append(damage)
            verdict.missing += [(trouble.digest, damage) for trouble in broken if trouble.is_missing]
            verdict.lost += [(trouble.absence, trouble.digest.hex(), damage) for trouble in broken if trouble.absence]
    return verdict


def _first(pair: tuple[Absence, Any]) -> Absence:
    return pair[0]


def _lost_object(absence: Absence, needs: Sequence[tuple[str, Damage]]) -> LostObject:
    chunks, damages = dict.fromkeys(chunk for chunk, _ in needs), dict.fromkeys(damage for _, damage in needs)
    return LostObject(**absence._asdict(), chunks=tuple(sorted(chunks)), needed_by=tuple(damages))


def _named(troubles: Sequence[Any]) -> str:
    more = f"; and {len(troubles) - _MOST_NAMED} more" if len(troubles) > _MOST_NAMED else ""
    return "; ".join(str(trouble) for trouble in troubles[:_MOST_NAMED]) + more


def _damage(thread_id: str, key: CheckpointKey, channel: str | None, what: str) -> Damage:
    return Damage(thread_id=thread_id, namespace=key.namespace, checkpoint_id=key.id, channel=channel, what=what)


def _key_of(write: WriteRow) -> tuple[str, str, str, int]:
    return (write.namespace, write.checkpoint_id, write.task_id, write.idx)


def _pointers(thread: ThreadRow) -> set[tuple[str, str]]:
    """The tags and pins of a thread, with the ids they stand for."""
    try:
        return {(tag.name or "(a pin)", tag.key.id) for tag in tags_of(thread)}
    except Corrupt:
        return {("(its tags)", "nothing that can be read")}


async def _leaked(backend: Backend, suspects: Sequence[int]) -> tuple[int, ...]:
    """Which of these pools no living thread uses, and still have chunks, now that the threads are listed again."""
    if not suspects:
        return ()
    used = {thread.pool for prefix in ("", HIDDEN) for thread in await all_threads(backend, prefix)}
    return tuple([pool for pool in suspects if pool not in used and await has_chunks(backend, pool)])
