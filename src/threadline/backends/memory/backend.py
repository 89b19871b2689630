"""Threads in this process: the model that the other backends are compared with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ...base.namespaces import ROOT
from ...errors import NotFound
from ...ports import rules
from ...ports.checkpoints import (
    Applied,
    Asking,
    Change,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Found,
    Guard,
    Pairs,
    Query,
    Stale,
    Stamp,
    ThreadRow,
    Weight,
    Weights,
    WriteRow,
)
from ...ports.rules import is_hidden
from ...ports.storage import Space
from ...ports.whole import WithoutOutlines, WithoutWholes
from .records import MemoryRecords
from .rows import ThreadRows

__all__ = ["MemoryBackend"]

_new = tuple.__new__


class MemoryBackend(WithoutWholes, WithoutOutlines, MemoryRecords):
    """Dicts under one lock; nothing survives the process. Its part of the port `Records` is `MemoryRecords`."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: dict[str, ThreadRow] = {}
        self._serial = 0
        self._rows = ThreadRows()
        # The threads that have asked something at any time.
        self._asked: set[str] = set()
        # By pool: the threads that are in it, deleted ones included.
        self._mates: dict[int, set[str]] = defaultdict(set)
        self._chunks: dict[int, dict[bytes, tuple[bytes, int, bytes]]] = defaultdict(dict)
        self._leases: dict[str, bytes] = {}

    async def setup(self) -> None:
        """Nothing, as `trim` and `compact`: dicts need no preparation and free by themselves what is deleted."""

    trim = compact = setup

    # -- writing

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        stamp = self.put_usual(changes[0]) if len(changes) == 1 and rules.is_quick(changes[0]) else None
        if stamp is not None:
            return [_new(Applied, (stamp,))]
        with self._lock:
            return self._apply_all(changes)

    def put_usual(self, change: Change) -> Stamp | None:
        """Make a change of the usual kind, as `PutUsual` in ports/engine.py has it."""
        stamp, checkpoints = change.stamp, self._rows.checkpoints
        with self._lock:
            thread = self._threads.get(change.thread_id)
            if stamp is None:
                return self._apply(change)[0] if thread is None else None
            if thread is None:
                return None
            _, serial, pool, epoch, status, deleted_before, *_ = thread
            if (pool, epoch) != stamp or status != "active" or deleted_before is not None:
                return None  # the last: it was deleted once, and the general way looks closer
            for namespace, checkpoint_id, created in change.witnesses:
                row = checkpoints.get((serial, namespace, checkpoint_id))
                if row is None or row[11] != created:
                    return None
            if change.checkpoints or change.chunks or change.now - thread[8] > rules.ACTIVITY_SECONDS:
                self._add(thread, change)
            else:
                self._rows.add_writes(serial, change.writes)
        return stamp

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
            rules.refuse_if_lease_lost(change, self._leases.get(change.thread_id))
        if change.head is not None:
            ids = self._rows.namespaces(thread.serial).get(change.head[0]) if thread else None
            rules.refuse_if_head_moved(change, ids[-1] if ids else None)
        if thread is None or thread.status == "deleted":
            if change.joins is None:
                # The thread will be new, in a new pool: nothing that was left out is there.
                return None if change.stamp is None else Stale((0, 0))
            thread = self._alive(change.joins)
            if thread is None:
                raise NotFound(f"there is no thread {change.joins!r}")
        elif rules.needs_parent_row(thread, change) and not self._rows.has(thread.serial, change.continues):
            raise rules.no_parent_row(change)
        for write in change.firsts:
            held = self._rows.writes.get((thread.serial, write.namespace, write.checkpoint_id), {})
            found = held.get((write.task_id, write.idx))
            rules.refuse_if_not_first(write, found.data if found is not None else None)
        stamp = (thread.pool, thread.epoch)
        is_stale = change.stamp is not None and (change.stamp != stamp or not self._has_all(thread, change))
        return Stale(stamp) if is_stale else None

    def _has_all(self, thread: ThreadRow, change: Change) -> bool:
        """Whether the rows by which the writer knows of chunks are there."""
        for namespace, checkpoint_id, created in change.witnesses:
            row = self._rows.checkpoints.get((thread.serial, namespace, checkpoint_id))
            if row is None or row.created != created:
                return False
        return True

    def _apply(self, change: Change) -> Applied:
        thread = self._alive(change.thread_id) or self._begin(change)
        # First the mark, then what it stands for: an interrupt may come in between.
        if rules.asked_at(change) is not None:
            self._asked.add(change.thread_id)
        self._add(thread, change)
        return Applied((thread.pool, thread.epoch))

    def _add(self, thread: ThreadRow, change: Change) -> None:
        if change.chunks or change.moved:
            held = self._chunks[thread[2]]
            for digest, links, form, data in change.chunks:
                held.setdefault(digest, (links, form, data))
            for digest, links, form, data in change.moved:
                held[digest] = (links, form, data)
        for row in change.checkpoints:
            self._rows.place(thread[1], row)
        if change.writes or change.firsts:
            self._rows.add_writes(thread[1], (*change.writes, *change.firsts) if change.firsts else change.writes)
        if change.now - thread[8] > rules.ACTIVITY_SECONDS:
            self._threads[change.thread_id] = thread._replace(active=change.now)

    def _begin(self, change: Change) -> ThreadRow:
        self._serial += 1
        deleted = self._threads.get(change.thread_id)
        origin = self._alive(change.joins) if change.joins is not None else None
        made = rules.new_thread(change, self._serial, origin, deleted)
        if deleted is not None:
            self._mates[deleted.pool].discard(change.thread_id)
        self._mates[made.pool].add(change.thread_id)
        self._threads[change.thread_id] = made
        return made

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        with self._lock:
            thread = self._alive(thread_id)
            if thread is None:
                return
            # First of all, so that an interrupt leaves it whole or gone.
            self._threads[thread_id] = thread._replace(status="deleted", deleted_before=deleted_before, active=now)
            self._asked.discard(thread_id)
            self._rows.drop(thread.serial)
            if all(self._alive(mate) is None for mate in self._mates[thread.pool]):
                self._chunks.pop(thread.pool, None)

    async def remove_checkpoints(
        self, thread_id: str, keys: CheckpointKeys, settled: CheckpointKeys = (), guard: Guard | None = None
    ) -> int | None:
        with self._lock:
            thread = self._alive(thread_id)
            if thread is None:
                return 0
            if guard is not None:
                heirs = self._rows.child_keys(thread.serial, (*keys, *settled, *guard.staying))
                if not set(guard.seen).issuperset(heirs):
                    return None
            return self._rows.remove(thread.serial, keys, settled)

    async def children(self, thread_id: str, keys: CheckpointKeys) -> list[Found]:
        with self._lock:
            thread = self._alive(thread_id)
            found = [(thread.serial, *key) for key in self._rows.child_keys(thread.serial, keys)] if thread else []
            return [self._found(thread, self._rows.checkpoints[place], False) for place in found if thread]

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        with self._lock:
            await rules.mark(await self.roots(pool), reachable, lambda digests: self.links(pool, digests))
            doomed = [digest for digest in candidates if digest not in reachable]
            # The epoch first: whoever relies on a chunk that an interrupted collection took must be refused.
            for thread_id in list(self._mates[pool]) if doomed else ():
                mate = self._threads[thread_id]
                self._threads[thread_id] = mate._replace(epoch=mate.epoch + 1)
            for digest in doomed:
                self._chunks[pool].pop(digest, None)
            return len(doomed)

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        with self._lock:
            thread = self._threads.get(before.thread_id)
            if thread is None or rules.own_words(thread) not in (rules.own_words(before), rules.own_words(after)):
                return False
            self._threads[before.thread_id] = after._replace(pool=thread.pool, epoch=thread.epoch, active=thread.active)
            return True

    async def leases(self, thread_id: str | None = None) -> list[bytes]:
        if thread_id is not None:
            record = self._leases.get(thread_id)
            return [] if record is None else [record]
        return list(self._leases.copy().values())

    async def swap_lease(self, thread_id: str, before: bytes | None, after: bytes | None) -> bool:
        with self._lock:
            if self._leases.get(thread_id) not in (before, after):
                return False
            if after is None:
                self._leases.pop(thread_id, None)
            else:
                self._leases[thread_id] = after
            return True

    async def rewrap(
        self,
        pool: int,
        chunks: Pairs[ChunkRow] = (),
        *,
        thread: int = 0,
        checkpoints: Pairs[CheckpointRow] = (),
        writes: Pairs[WriteRow] = (),
    ) -> None:
        with self._lock:
            held = self._chunks[pool] if chunks else {}
            for chunk, anew in chunks:
                if held.get(chunk.digest) == chunk[1:]:
                    held[chunk.digest] = anew[1:]
            for old, new in checkpoints:
                place = (thread, old.namespace, old.id)
                if self._rows.checkpoints.get(place) == old:
                    self._rows.checkpoints[place] = new
            for was, now in writes:
                written = self._rows.writes.get((thread, was.namespace, was.checkpoint_id), {})
                if written.get((was.task_id, was.idx)) == was:
                    written[was.task_id, was.idx] = now

    # -- reading

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        return self.find_now(thread_id, namespace, checkpoint_id, with_writes)

    def find_now(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, with_writes: bool = True
    ) -> Found | None:
        """`find`, without a coroutine."""
        with self._lock:
            thread = self._alive(thread_id)
            if thread is None:
                return None
            ids = self._rows.namespaces(thread.serial).get(namespace)
            if not ids:
                return None
            if checkpoint_id is None:
                checkpoint_id = ids[-1]
            # A row without its id is of a put that was interrupted: nothing keeps its chunks.
            elif checkpoint_id not in ids[(at := bisect_left(ids, checkpoint_id)) : at + 1]:
                return None
            return self._found(thread, self._rows.checkpoints[thread.serial, namespace, checkpoint_id], with_writes)

    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        found = [await self.find(thread_id, namespace, None, with_writes=False) for thread_id in thread_ids]
        return [one for one in found if one is not None]

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        with self._lock:
            found: list[Asking] = []
            hidden = is_hidden(prefix)
            asked = [one for one in self._asked if one.startswith(prefix) and is_hidden(one) is hidden]
            for thread_id in sorted(one for one in asked if one > after):
                thread = self._alive(thread_id)
                ids = self._rows.namespaces(thread.serial).get(ROOT) if thread is not None else None
                if thread is None or not ids:
                    continue
                writes = self._rows.writes_at(thread.serial, ROOT, ids[-1])
                if any(map(rules.asks, writes)):
                    found.append(Asking(thread, writes))
                if len(found) == limit:
                    break
            return found

    async def page(self, query: Query) -> list[Found]:
        with self._lock:
            if query.thread_id is None:
                threads: Iterable[ThreadRow] = self._shown("")
            else:
                thread = self._alive(query.thread_id)
                threads = [thread] if thread else []
            if query.as_they_lie:
                return [found for one in threads for found in self._walk(one, query)]
            matches = [
                (thread, self._rows.checkpoints[thread.serial, namespace, checkpoint_id])
                for thread in threads
                for namespace in self._rows.namespaces(thread.serial)
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

    def _walk(self, thread: ThreadRow, query: Query) -> list[Found]:
        found: list[Found] = []
        after = query.after
        for namespace, ids in sorted(self._rows.namespaces(thread.serial).items()):
            if after is not None and namespace < after[2]:
                continue
            start = bisect_right(ids, after[0]) if after is not None and namespace == after[2] else 0
            for at in ids[start : start + query.limit - len(found)]:
                row = self._rows.checkpoints[thread.serial, namespace, at]
                found.append(self._found(thread, row, query.with_writes))
            if len(found) == query.limit:
                break
        return found

    def _ids_before(self, thread: ThreadRow, namespace: str, query: Query) -> list[str]:
        """The newest ids of a namespace that the query's bounds leave, hardly more than a page of them."""
        ids = self._rows.ids[thread.serial][namespace]
        if query.checkpoint_id is not None:
            place = (thread.serial, namespace, query.checkpoint_id)
            ids = [query.checkpoint_id] if place in self._rows.checkpoints else []
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
                row = self._rows.checkpoints.get((thread.serial, namespace, current))
                if row is None:
                    break
                found.append(self._found(thread, row, True))
                current = row.parent
            return found

    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        with self._lock:
            thread = self._alive(thread_id)
            return list(self._rows.writes_of(thread.serial)) if thread else []

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        held = self._chunks.get(pool, {})
        return [(digest, *held[digest]) for digest in digests if digest in held]

    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        held = self._chunks.get(pool, {})
        return {digest: held[digest][0] for digest in digests if digest in held}

    async def thread(self, thread_id: str) -> ThreadRow | None:
        return self._threads.get(thread_id)

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        with self._lock:
            alive = self._shown(prefix)
        return sorted((t for t in alive if t.thread_id > after), key=lambda t: t.thread_id)[:limit]

    async def count_threads(self, prefix: str = "") -> int:
        with self._lock:
            return len(self._shown(prefix))

    def _shown(self, prefix: str) -> list[ThreadRow]:
        """The living threads that begin with a prefix, hidden ones only if the prefix is theirs."""
        hidden = is_hidden(prefix)
        return [
            thread
            for thread in self._threads.values()
            if thread.status != "deleted"
            and thread.thread_id.startswith(prefix)
            and is_hidden(thread.thread_id) is hidden
        ]

    # -- reading whole pools

    async def roots(self, pool: int) -> dict[bytes, int]:
        with self._lock:
            found = Counter(row.links for serial in self._serials(pool) for row in self._rows.of_thread(serial))
            found.update({write.links: 0 for serial in self._serials(pool) for write in self._rows.writes_of(serial)})
            found.pop(b"", None)
            return found

    async def pools(self, after: int, limit: int) -> list[int]:
        return sorted(pool for pool, held in self._chunks.items() if held and pool > after)[:limit]

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int, int]]:
        with self._lock:
            held = self._chunks.get(pool, {})
            digests = sorted(digest for digest in held if digest > after)[:limit]
            return [(digest, *held[digest][:2], len(held[digest][2])) for digest in digests]

    async def space(self) -> Space:
        weights = await self.weights([*self._mates, *self._chunks])
        size = sum(one.bytes for kind in weights[:3] for one in kind)
        return Space(size, size)

    async def forms(self) -> dict[int, int]:
        with self._lock:
            found = Counter(form for row in self._rows.checkpoints.values() for form in {row.form, row.metadata_form})
            found.update(write.form for held in self._rows.writes.values() for write in held.values())
            found.update(form for pool in self._chunks.values() for _, form, _ in pool.values())
            found.update(one.form for space in self._spaces.values() for one in space.records.values())
            return found

    async def weights(self, pools: Sequence[int], since: float | None = None) -> Weights:
        with self._lock:
            found = Weights([], [], [], [])
            for pool in dict.fromkeys(pools):
                for serial in self._serials(pool):
                    rows, writes = list(self._rows.of_thread(serial)), self._rows.writes_of(serial)
                    sizes = [len(row.document) + len(row.metadata) + len(row.links) for row in rows]
                    _weigh(found.checkpoints, pool, serial, sizes)
                    _weigh(found.writes, pool, serial, [len(write.data) + len(write.links) for write in writes])
                    if since is not None:
                        found.recent.extend(row.created for row in rows if row.created >= since)
                held = self._chunks.get(pool, {}).values()
                _weigh(found.chunks, pool, 0, [len(data) + len(links) for links, _, data in held])
            return found

    # -- what the above share

    def _alive(self, thread_id: str) -> ThreadRow | None:
        thread = self._threads.get(thread_id)
        return thread if thread is not None and thread.status != "deleted" else None

    def _serials(self, pool: int) -> set[int]:
        return {self._threads[thread_id].serial for thread_id in self._mates.get(pool, ())}

    def _found(self, thread: ThreadRow, row: CheckpointRow, with_writes: bool) -> Found:
        writes = self._rows.writes_at(thread.serial, row.namespace, row.id) if with_writes else []
        return Found(thread.thread_id, thread.pool, thread.epoch, row, writes)


def _weigh(kind: list[Weight], pool: int, serial: int, sizes: list[int]) -> None:
    if sizes:
        kind.append(Weight(pool, serial, len(sizes), sum(sizes)))
