"""Records in this process: the model that the other backends are compared with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..errors import Conflict, NotFound
from ..locks import renew_after_fork
from . import rules
from .port import (
    Applied,
    Change,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Found,
    PoolSummary,
    Query,
    Stale,
    ThreadRow,
    WriteRow,
)

__all__ = ["MemoryBackend"]

Place = tuple[int, str, str]  # thread serial, namespace, checkpoint id


class MemoryBackend:
    """Dicts under one lock; nothing survives the process."""

    _lock: AbstractContextManager[Any]

    def __init__(self) -> None:
        renew_after_fork(self)
        self._threads: dict[str, ThreadRow] = {}
        self._serial = 0
        # By thread, then namespace: the ids in order, so that the newest is the last.
        self._ids: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._checkpoints: dict[Place, CheckpointRow] = {}
        self._writes: dict[Place, dict[tuple[str, int], WriteRow]] = defaultdict(dict)
        self._chunks: dict[int, dict[bytes, tuple[bytes, int, bytes]]] = defaultdict(dict)
        self._meta: dict[str, bytes] = {}

    async def setup(self) -> None:
        return None

    # -- writing

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        with self._lock:
            return self._apply_all(changes)

    def _apply_all(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        for change in changes:
            stale = self._check(change)
            if stale is not None:
                return [stale for _ in changes]
        return [self._apply(change) for change in changes]

    def _check(self, change: Change) -> Stale | None:
        """Everything that can refuse a change, before anything is changed."""
        thread = self._threads.get(change.thread_id)
        if thread is not None:
            rules.refuse_if_closed(thread, change)
        if change.lease is not None:
            rules.refuse_if_lease_lost(change, self._meta.get(rules.lease_key(change.thread_id)))
        if change.head is not None:
            ids = self._namespaces(thread).get(change.head[0]) if thread else None
            rules.refuse_if_head_moved(change, ids[-1] if ids else None)
        if thread is None or thread.status == "deleted":
            if change.joins is None:
                # The thread will be new, in a new pool: nothing that was left out is there.
                return None if change.stamp is None else Stale((0, 0))
            thread = self._alive(change.joins)
            if thread is None:
                raise NotFound(f"there is no thread {change.joins!r}")
        elif rules.needs_parent_row(thread, change) and not self._has_checkpoint(thread, change.continues):
            raise Conflict(f"the thread {change.thread_id!r} was deleted while this run was going on")
        stamp = (thread.pool, thread.epoch)
        return Stale(stamp) if change.stamp is not None and change.stamp != stamp else None

    def _apply(self, change: Change) -> Applied:
        thread = self._alive(change.thread_id) or self._begin(change)
        self._chunks[thread.pool].update((digest, (links, form, data)) for digest, links, form, data in change.chunks)
        for row in change.checkpoints:
            place = (thread.serial, row.namespace, row.id)
            if place not in self._checkpoints:
                insort(self._ids[thread.serial][row.namespace], row.id)
            self._checkpoints[place] = row
        for write in change.writes:
            held = self._writes[thread.serial, write.namespace, write.checkpoint_id]
            if write.replaces or (write.task_id, write.idx) not in held:
                held[write.task_id, write.idx] = write
        if change.now - thread.active > rules.ACTIVITY_SECONDS:
            self._threads[change.thread_id] = thread._replace(active=change.now)
        return Applied((thread.pool, thread.epoch))

    def _begin(self, change: Change) -> ThreadRow:
        self._serial += 1
        deleted = self._threads.get(change.thread_id)
        origin = self._alive(change.joins) if change.joins is not None else None
        made = rules.new_thread(change, self._serial, origin, deleted)
        self._threads[change.thread_id] = made
        return made

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        with self._lock:
            thread = self._alive(thread_id)
            if thread is None:
                return
            for namespace, ids in self._ids.pop(thread.serial, {}).items():
                for checkpoint_id in ids:
                    self._checkpoints.pop((thread.serial, namespace, checkpoint_id), None)
            for place in [place for place in self._writes if place[0] == thread.serial]:
                del self._writes[place]
            self._threads[thread_id] = thread._replace(status="deleted", deleted_before=deleted_before, active=now)
            if not any(mate.pool == thread.pool and mate.status != "deleted" for mate in self._threads.values()):
                self._chunks.pop(thread.pool, None)

    async def remove_checkpoints(
        self, thread_id: str, keys: CheckpointKeys, settled: CheckpointKeys = (), *, seen: CheckpointKeys | None = None
    ) -> int | None:
        with self._lock:
            thread = self._alive(thread_id)
            if thread is None:
                return 0
            if seen is not None and not self._parents_of_others(thread, seen).isdisjoint((*keys, *settled)):
                return None
            for key in (*keys, *settled):
                self._writes.pop((thread.serial, *key), None)
            removed = 0
            for key in keys:
                if self._checkpoints.pop((thread.serial, *key), None) is not None:
                    self._ids[thread.serial][key.namespace].remove(key.id)
                    removed += 1
            return removed

    def _parents_of_others(self, thread: ThreadRow, seen: CheckpointKeys) -> set[tuple[str, str | None]]:
        """What the checkpoints beside these descend from."""
        return {
            (namespace, self._checkpoints[thread.serial, namespace, other].parent)
            for namespace, ids in self._ids[thread.serial].items()
            for other in ids
            if (namespace, other) not in seen
        }

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        with self._lock:
            await rules.mark(await self.pool_links(pool), reachable, lambda digests: self.links(pool, digests))
            doomed = [digest for digest in candidates if digest not in reachable]
            for digest in doomed:
                self._chunks[pool].pop(digest, None)
            if doomed:
                for mate in list(self._threads.values()):
                    if mate.pool == pool:
                        self._threads[mate.thread_id] = mate._replace(epoch=mate.epoch + 1)
            return len(doomed)

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        with self._lock:
            thread = self._threads.get(before.thread_id)
            if thread is None or rules.own_words(thread) not in (rules.own_words(before), rules.own_words(after)):
                return False
            self._threads[before.thread_id] = after._replace(pool=thread.pool, epoch=thread.epoch, active=thread.active)
            return True

    async def get_lease(self, thread_id: str) -> bytes | None:
        return await self.get_meta(rules.lease_key(thread_id))

    async def swap_lease(self, thread_id: str, before: bytes | None, after: bytes | None) -> bool:
        return await self.swap_meta(rules.lease_key(thread_id), before, after)

    async def swap_meta(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        with self._lock:
            if self._meta.get(key) not in (before, after):
                return False
            if after is None:
                self._meta.pop(key, None)
            else:
                self._meta[key] = after
            return True

    async def rewrap_chunks(self, pool: int, rows: Sequence[tuple[ChunkRow, ChunkRow]]) -> None:
        with self._lock:
            held = self._chunks[pool]
            for old, new in rows:
                if held.get(old.digest) == old[1:]:
                    held[old.digest] = new[1:]

    async def rewrap_rows(
        self,
        thread_id: str,
        checkpoints: Sequence[tuple[CheckpointRow, CheckpointRow]],
        writes: Sequence[tuple[WriteRow, WriteRow]],
    ) -> None:
        with self._lock:
            thread = self._alive(thread_id)
            if thread is None:
                return
            for old, new in checkpoints:
                place = (thread.serial, old.namespace, old.id)
                if self._checkpoints.get(place) == old:
                    self._checkpoints[place] = new
            for was, now in writes:
                held = self._writes.get((thread.serial, was.namespace, was.checkpoint_id), {})
                if held.get((was.task_id, was.idx)) == was:
                    held[was.task_id, was.idx] = now

    async def forms(self) -> set[int]:
        with self._lock:
            found = {row.form for row in self._checkpoints.values()}
            found |= {row.metadata_form for row in self._checkpoints.values()}
            found |= {write.form for held in self._writes.values() for write in held.values()}
            return found | {form for pool in self._chunks.values() for _, form, _ in pool.values()}

    # -- reading

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        with self._lock:
            thread = self._alive(thread_id)
            if thread is None:
                return None
            if checkpoint_id is None:
                ids = self._namespaces(thread).get(namespace)
                if not ids:
                    return None
                checkpoint_id = ids[-1]
            row = self._checkpoints.get((thread.serial, namespace, checkpoint_id))
            return self._found(thread, row, with_writes) if row is not None else None

    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        found = [await self.find(thread_id, namespace, None, with_writes=False) for thread_id in thread_ids]
        return [one for one in found if one is not None]

    async def page(self, query: Query) -> list[Found]:
        with self._lock:
            if query.thread_id is None:
                threads: Iterable[ThreadRow] = [t for t in self._threads.values() if t.status != "deleted"]
            else:
                thread = self._alive(query.thread_id)
                threads = [thread] if thread else []
            matches = [
                (thread, self._checkpoints[thread.serial, namespace, checkpoint_id])
                for thread in threads
                for namespace in self._namespaces(thread)
                if query.namespace is None or namespace == query.namespace
                for checkpoint_id in self._ids_before(thread, namespace, query)
            ]
            if query.run_ids is not None:
                matches = [(thread, row) for thread, row in matches if row.run_id in query.run_ids]
            matches.sort(key=lambda match: (match[0].thread_id, match[1].namespace))
            matches.sort(key=lambda match: match[1].id, reverse=True)
            if query.after is not None:
                last_id, *last = query.after
                matches = [
                    (thread, row)
                    for thread, row in matches
                    if row.id < last_id or (row.id == last_id and [thread.thread_id, row.namespace] > last)
                ]
            return [self._found(thread, row, query.with_writes) for thread, row in matches[: query.limit]]

    def _ids_before(self, thread: ThreadRow, namespace: str, query: Query) -> list[str]:
        """The newest ids of a namespace that the query's bounds leave, hardly more than a page of them."""
        ids = self._ids[thread.serial][namespace]
        if query.checkpoint_id is not None:
            ids = [query.checkpoint_id] if (thread.serial, namespace, query.checkpoint_id) in self._checkpoints else []
        end = len(ids) if query.before is None else bisect_left(ids, query.before)
        if query.after is not None:
            end = min(end, bisect_right(ids, query.after[0]))
        start = 0 if query.run_ids is not None else max(0, end - query.limit - 1)
        return ids[start:end]

    async def chain(self, thread_id: str, namespace: str, checkpoint_id: str, limit: int) -> list[Found]:
        with self._lock:
            thread = self._alive(thread_id)
            found: list[Found] = []
            current: str | None = checkpoint_id
            while thread is not None and current is not None and len(found) < limit:
                row = self._checkpoints.get((thread.serial, namespace, current))
                if row is None:
                    break
                found.append(self._found(thread, row, True))
                current = row.parent
            return found

    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        with self._lock:
            thread = self._alive(thread_id)
            serial = thread.serial if thread else 0
            return [write for place, held in self._writes.items() if place[0] == serial for write in held.values()]

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        held = self._chunks.get(pool, {})
        return [(digest, *held[digest]) for digest in digests if digest in held]

    async def missing(self, pool: int, digests: Sequence[bytes]) -> set[bytes]:
        return set(digests) - self._chunks.get(pool, {}).keys()

    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        held = self._chunks.get(pool, {})
        return {digest: held[digest][0] for digest in digests if digest in held}

    async def pool_links(self, pool: int) -> list[bytes]:
        with self._lock:
            serials = self._serials(pool)
            rows: list[Any] = [row for place, row in self._checkpoints.items() if place[0] in serials]
            for place, writes in self._writes.items():
                if place[0] in serials:
                    rows.extend(writes.values())
            return list({row.links for row in rows if row.links})

    async def pools(self, after: int, limit: int) -> list[int]:
        return sorted(pool for pool, held in self._chunks.items() if held and pool > after)[:limit]

    async def pool_digests(self, pool: int, after: bytes, limit: int) -> list[bytes]:
        with self._lock:
            return sorted(digest for digest in self._chunks.get(pool, {}) if digest > after)[:limit]

    async def thread(self, thread_id: str) -> ThreadRow | None:
        return self._threads.get(thread_id)

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        with self._lock:
            alive = [t for t in self._threads.values() if t.status != "deleted" and t.thread_id.startswith(prefix)]
        return sorted((t for t in alive if t.thread_id > after), key=lambda t: t.thread_id)[:limit]

    async def count_threads(self, prefix: str = "") -> int:
        with self._lock:
            return sum(t.status != "deleted" and t.thread_id.startswith(prefix) for t in self._threads.values())

    async def get_meta(self, key: str) -> bytes | None:
        return self._meta.get(key)

    async def summary(self, now: float) -> PoolSummary:
        with self._lock:
            names = {thread.serial: thread.thread_id for thread in self._threads.values()}
            hours: dict[int, int] = defaultdict(int)
            busy: dict[str, int] = defaultdict(int)
            for (serial, _, _), row in self._checkpoints.items():
                busy[names[serial]] += 1
                if now - row.created < 24 * 3600:
                    hours[int((now - row.created) // 3600)] += 1
            writes = [write for held in self._writes.values() for write in held.values()]
            chunks = [chunk for pool in self._chunks.values() for chunk in pool.values()]
            rows = self._checkpoints.values()
            return PoolSummary(
                threads=sum(thread.status != "deleted" for thread in self._threads.values()),
                checkpoints=len(rows),
                writes=len(writes),
                chunks=len(chunks),
                chunk_bytes=sum(len(data) + len(links) for links, _, data in chunks),
                row_bytes=sum(len(r.document) + len(r.metadata) + len(r.links) for r in rows)
                + sum(len(write.data) + len(write.links) for write in writes),
                recent_hours=dict(hours),
                busiest=sorted(busy.items(), key=lambda pair: (-pair[1], pair[0]))[:10],
            )

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int]]:
        held = self._chunks.get(pool, {})
        return [(d, held[d][0], len(held[d][2])) for d in await self.pool_digests(pool, after, limit)]

    async def root_sizes(self, pool: int) -> list[tuple[bytes, int]]:
        with self._lock:
            serials = self._serials(pool)
            rows = [row for place, row in self._checkpoints.items() if place[0] in serials]
            return [(row.links, len(row.document) + len(row.metadata)) for row in rows]

    async def size_bytes(self) -> int:
        figures = await self.summary(0.0)
        return figures.chunk_bytes + figures.row_bytes

    async def compact(self) -> None:
        return None

    def _alive(self, thread_id: str) -> ThreadRow | None:
        thread = self._threads.get(thread_id)
        return thread if thread is not None and thread.status != "deleted" else None

    def _serials(self, pool: int) -> set[int]:
        return {thread.serial for thread in self._threads.values() if thread.pool == pool}

    def _has_checkpoint(self, thread: ThreadRow, checkpoint_id: str | None) -> bool:
        return any((thread.serial, ns, checkpoint_id) in self._checkpoints for ns in self._namespaces(thread))

    def _namespaces(self, thread: ThreadRow) -> dict[str, list[str]]:
        return self._ids.get(thread.serial, {})

    def _found(self, thread: ThreadRow, row: CheckpointRow, with_writes: bool) -> Found:
        writes: list[WriteRow] = []
        if with_writes:
            held = self._writes.get((thread.serial, row.namespace, row.id), {})
            writes = sorted(held.values(), key=lambda w: rules.write_order(w.task_path, w.task_id, w.idx))
        return Found(thread.thread_id, thread.pool, thread.epoch, row, writes)
