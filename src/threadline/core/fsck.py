"""Looking a whole store over: what can be read, what is damaged, what nobody needs.

Safe beside writers and prunes. What looks damaged is read again, row and chunks: it is reported only when
its row was the same before and after, because chunks of a living row are never collected.

    damaged           a checkpoint or pending write that a read would refuse, or that is its own ancestor
    missing           chunks that are not there, with the checkpoints that need them (which are damaged, too)
    warnings          values that are whole, of types that the rules in force do not rebuild
    orphaned          chunks that no row leads to: not an error, collecting removes them
    spoiled           orphaned chunks that are damaged: a put of the same content would rely on them
    leaked            pools whose chunks no living thread can reach
    notes             gaps that pruning left, names that point nowhere
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..backends.hidden import HIDDEN
from ..backends.port import Backend, CheckpointKey, Found, Query, ThreadRow, WriteRow
from ..backends.rules import mark
from ..errors import Corrupt
from .damage import Damage, MissingChunk, Report, Verdict
from .soundness import Subject, Walk, batches, subject_of, subject_of_write
from .tools import Tools
from .words import tags_of

__all__ = ["Damage", "MissingChunk", "Report", "Verdict", "check", "judge", "on_a_cycle"]

_PAGE = 64
_BATCH = 256
_THREADS = 500
_RETRIES = 5
_MOST_NAMED = 3

Progress = Callable[[int, int], None]
Reread = Callable[[Iterable[Any]], Awaitable[dict[Any, Subject]]]


async def check(
    backend: Backend, tools: Tools, thread_ids: Sequence[str] | None = None, progress: Progress | None = None
) -> Report:
    """Look over all threads, or these, with the chunks of their pools; `progress` hears of threads done and in all.

    Leaked pools are looked for only where all threads are. A key that the ring lacks raises NotFound.
    """
    await tools.open(backend)
    pools = await _pools(backend) if thread_ids is None else []
    inquiry = _Inquiry(backend, tools)
    groups = await inquiry.group(thread_ids)
    total = sum(len(group) for group in groups.values())
    for pool, group in sorted(groups.items()):
        walk = Walk(backend, tools, pool)
        for thread in group:
            await inquiry.look_over(thread, walk)
            if progress is not None:
                progress(inquiry.threads, total)
        await inquiry.count_orphans(walk)
        inquiry.unknown.update(walk.unknown)
    leaked = await _leaked(backend, [pool for pool in pools if pool not in groups])
    return inquiry.report(leaked)


async def judge(walk: Walk, thread_id: str, subjects: Sequence[Subject]) -> list[Verdict]:
    """What is wrong with each of these rows of one thread."""
    await walk.take([ref for subject in subjects for _, _, ref in subject.values])
    return [_verdict(walk, thread_id, subject) for subject in subjects]


def on_a_cycle(parents: Mapping[CheckpointKey, str | None]) -> list[CheckpointKey]:
    """The checkpoints that are their own ancestors."""
    found: list[CheckpointKey] = []
    done: set[CheckpointKey] = set()
    for start in parents:
        line: dict[CheckpointKey, None] = {}
        current: CheckpointKey | None = start
        while current is not None and current in parents and current not in done and current not in line:
            line[current] = None
            current = _parent(parents, current)
        if current in line:
            trail = list(line)
            found.extend(trail[trail.index(current) :])
        done.update(line)
    return sorted(found)


class _Inquiry:
    """A check in progress."""

    def __init__(self, backend: Backend, tools: Tools) -> None:
        self.backend, self.tools = backend, tools
        self.threads = self.checkpoints = self.writes = self.chunks = 0
        self.orphaned_chunks = self.orphaned_bytes = 0
        self.found = Verdict()
        self.needed: dict[tuple[int, bytes], list[Damage]] = defaultdict(list)
        self.spoiled: list[str] = []
        self.notes: list[str] = []
        self.unknown: Counter[str] = Counter()

    async def group(self, thread_ids: Sequence[str] | None) -> dict[int, list[ThreadRow]]:
        """The threads to look over, by the pool that they share."""
        groups: dict[int, list[ThreadRow]] = defaultdict(list)
        if thread_ids is None:
            for thread in await _living(self.backend):
                groups[thread.pool].append(thread)
            return groups
        for thread_id in dict.fromkeys(thread_ids):
            named = await self.backend.thread(thread_id)
            if named is None or named.status == "deleted":
                self.notes.append(f"there is no thread {thread_id!r}")
            else:
                groups[named.pool].append(named)
        return groups

    async def look_over(self, thread: ThreadRow, walk: Walk) -> None:
        """All checkpoints and writes of a thread, and how they hang together."""
        self.threads += 1
        thread_id = thread.thread_id
        parents: dict[CheckpointKey, str | None] = {}
        query = Query(thread_id=thread_id, limit=_PAGE, with_writes=False)
        while True:
            page = await self.backend.page(query)
            # A thread that was deleted and begun anew meanwhile has nothing left of what was to be looked at.
            own = [found for found in page if found.pool == walk.pool]
            parents.update((CheckpointKey(found.row.namespace, found.row.id), found.row.parent) for found in own)
            self.checkpoints += len(own)
            await self._judge(walk, thread_id, await self._checkpoints(own), self._reread(thread_id, walk.pool))
            if len(page) < query.limit:
                break
            query = replace(query, after=(page[-1].row.id, page[-1].thread_id, page[-1].row.namespace))
        reread_writes = self._reread_writes(thread_id, walk.pool)
        for batch in batches(await self._writes_of(thread_id, walk.pool), _BATCH):
            self.writes += len(batch)
            await self._judge(walk, thread_id, await self._writes(thread_id, batch), reread_writes)
        await self._look_at_lineage(thread, parents)

    async def count_orphans(self, walk: Walk) -> None:
        """The chunks of a pool that no row leads to, and which of them are damaged."""
        self.chunks += walk.count()
        unmet: list[bytes] = []
        after = b""
        while page := await self.backend.pool_digests(walk.pool, after, 10_000):
            unmet += [digest for digest in page if digest not in walk.sound and digest not in walk.troubled]
            after = page[-1]
        if not unmet:
            return
        # Marked after they were listed: a chunk that a writer brought meanwhile has its row by now.
        reachable: set[bytes] = set()

        async def links_of(digests: list[bytes]) -> dict[bytes, bytes]:
            links = await self.backend.links(walk.pool, digests)
            return {digest: below if type(below) is bytes else b"" for digest, below in links.items()}

        roots = [links for links in await self.backend.pool_links(walk.pool) if type(links) is bytes]
        await mark(roots, reachable, links_of)
        for batch in batches([digest for digest in unmet if digest not in reachable], _BATCH):
            for stored in await walk.fetch(batch):
                self.chunks += 1
                self.orphaned_chunks += 1
                fault = walk.fault_of(stored)
                if fault is not None:
                    self.spoiled.append(stored[0].hex())
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
            warnings=tuple(self.found.warnings),
            orphaned_chunks=self.orphaned_chunks,
            orphaned_bytes=self.orphaned_bytes,
            spoiled_chunks=tuple(self.spoiled),
            leaked_pools=leaked,
            notes=tuple(self.notes),
            unknown_types=dict(self.unknown),
        )

    async def _judge(self, walk: Walk, thread_id: str, subjects: dict[Any, Subject], reread: Reread) -> None:
        """Note what is wrong with some rows, once it was seen twice."""
        suspects = []
        for key, verdict in zip(subjects, await judge(walk, thread_id, list(subjects.values())), strict=True):
            if verdict.damages:
                suspects.append(key)
            self.found.warnings += verdict.warnings
        for _ in range(_RETRIES):
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
            suspects = [key for key in bad if key in then]

    async def _checkpoints(self, founds: Iterable[Found]) -> dict[Any, Subject]:
        rows = list(founds)
        await self._learn_keys([form for found in rows for form in (found.row.form, found.row.metadata_form)])
        return {CheckpointKey(f.row.namespace, f.row.id): subject_of(self.tools, f) for f in rows}

    async def _writes(self, thread_id: str, writes: Iterable[WriteRow]) -> dict[Any, Subject]:
        rows = list(writes)
        await self._learn_keys([write.form for write in rows])
        return {_key_of(write): subject_of_write(self.tools, thread_id, write) for write in rows}

    async def _writes_of(self, thread_id: str, pool: int) -> list[WriteRow]:
        """The writes of a thread, none if it was begun anew in another pool: pools are never used again."""
        writes = await self.backend.thread_writes(thread_id)
        thread = await self.backend.thread(thread_id)
        return writes if thread is not None and thread.pool == pool else []

    async def _learn_keys(self, forms: Iterable[Any]) -> None:
        """Keys that others began to use; where rows are damaged, a form may be anything."""
        await self.tools.learn_keys(self.backend, [form for form in forms if isinstance(form, int)])

    def _reread(self, thread_id: str, pool: int) -> Reread:
        async def reread(keys: Iterable[CheckpointKey]) -> dict[Any, Subject]:
            found = [await self.backend.find(thread_id, *key, with_writes=False) for key in keys]
            return await self._checkpoints(one for one in found if one is not None and one.pool == pool)

        return reread

    def _reread_writes(self, thread_id: str, pool: int) -> Reread:
        async def reread(keys: Iterable[Any]) -> dict[Any, Subject]:
            wanted = set(keys)
            found = await self._writes_of(thread_id, pool) if wanted else []
            return await self._writes(thread_id, (write for write in found if _key_of(write) in wanted))

        return reread

    async def _look_at_lineage(self, thread: ThreadRow, parents: Mapping[CheckpointKey, str | None]) -> None:
        thread_id = thread.thread_id
        for key in on_a_cycle(parents):
            again = await self.backend.find(thread_id, *key, with_writes=False)
            if again is not None and again.row.parent == parents[key]:
                what = f"it is its own ancestor, through {parents[key]}"
                self.found.damages.append(_damage(thread_id, key, None, what))
        gaps = sum(parent is not None and _parent(parents, key) not in parents for key, parent in parents.items())
        if gaps:
            self.notes.append(f"thread {thread_id!r}: {gaps} checkpoints have a parent that is gone, as after a prune")
        ids = {key.id for key in parents}
        for name, target in sorted(_pointers(thread)):
            if target not in ids:
                self.notes.append(f"thread {thread_id!r}: the name {name!r} points to {target}, which is gone")


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
            what = f"{prefix}type not allowed here: {_named(forbidden)}"
            verdict.warnings.append(_damage(thread_id, key, channel, what))
        broken = [trouble for trouble in troubles if not trouble.is_forbidden]
        if broken:
            chunks = tuple(trouble.digest.hex() for trouble in broken if trouble.digest)
            damage = replace(_damage(thread_id, key, channel, prefix + _named(broken)), chunks=chunks)
            verdict.damages.append(damage)
            verdict.missing += [(trouble.digest, damage) for trouble in broken if trouble.is_missing]
    return verdict


def _named(troubles: Sequence[Any]) -> str:
    more = f"; and {len(troubles) - _MOST_NAMED} more" if len(troubles) > _MOST_NAMED else ""
    return "; ".join(str(trouble) for trouble in troubles[:_MOST_NAMED]) + more


def _damage(thread_id: str, key: CheckpointKey, channel: str | None, what: str) -> Damage:
    return Damage(thread_id=thread_id, namespace=key.namespace, checkpoint_id=key.id, channel=channel, what=what)


def _parent(parents: Mapping[CheckpointKey, str | None], key: CheckpointKey) -> CheckpointKey | None:
    parent = parents[key]
    return CheckpointKey(key.namespace, parent) if parent is not None else None


def _key_of(write: WriteRow) -> tuple[str, str, str, int]:
    return (write.namespace, write.checkpoint_id, write.task_id, write.idx)


def _pointers(thread: ThreadRow) -> set[tuple[str, str]]:
    """The tags and pins of a thread, with the ids they stand for."""
    try:
        return {(tag.name or "(a pin)", tag.key.id) for tag in tags_of(thread)}
    except Corrupt:
        return {("(its tags)", "nothing that can be read")}


async def _living(backend: Backend, prefix: str = "") -> list[ThreadRow]:
    threads: list[ThreadRow] = []
    while True:
        page = await backend.threads(threads[-1].thread_id if threads else "", _THREADS, prefix)
        threads += page
        if len(page) < _THREADS:
            return threads


async def _pools(backend: Backend) -> list[int]:
    pools: list[int] = []
    while page := await backend.pools(pools[-1] if pools else -1, _THREADS):
        pools += page
    return pools


async def _leaked(backend: Backend, suspects: Sequence[int]) -> tuple[int, ...]:
    """Which of these pools no living thread uses, and still have chunks, now that the threads are listed again."""
    if not suspects:
        return ()
    used = {thread.pool for prefix in ("", HIDDEN) for thread in await _living(backend, prefix)}
    return tuple([pool for pool in suspects if pool not in used and await backend.pool_digests(pool, b"", 1)])
