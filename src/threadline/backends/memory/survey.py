"""What a store in memory holds, and what is read of whole pools: for collecting, figures and checks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...base.forks import renew_after_fork
from ...ports.checkpoints import CheckpointRow, PoolSummary, Space, ThreadRow, Weight, Weights, WriteRow
from ...ports.rules import is_hidden
from ...ports.whole import WithoutOutlines, WithoutWholes

__all__ = ["MemorySurvey", "Place"]

Place = tuple[int, str, str]  # thread serial, namespace, checkpoint id


class MemorySurvey(WithoutWholes, WithoutOutlines):
    """The records, and the half of the Backend port that reads pools."""

    _lock: AbstractContextManager[Any]

    def __init__(self) -> None:
        renew_after_fork(self)
        self._threads: dict[str, ThreadRow] = {}
        self._serial = 0
        # By thread, then namespace: the ids in order, so that the newest is the last.
        self._ids: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._checkpoints: dict[Place, CheckpointRow] = {}
        # By thread, namespace and id: the ids that have it for their parent, so that nobody looks through all.
        self._children: dict[Place, set[str]] = defaultdict(set)
        self._writes: dict[Place, dict[tuple[str, int], WriteRow]] = defaultdict(dict)
        # By thread: which checkpoints have writes.
        self._written: dict[int, set[tuple[str, str]]] = defaultdict(set)
        # The threads that have asked something at any time.
        self._asked: set[str] = set()
        # By pool: the threads that are in it, deleted ones included.
        self._mates: dict[int, set[str]] = defaultdict(set)
        self._chunks: dict[int, dict[bytes, tuple[bytes, int, bytes]]] = defaultdict(dict)
        self._meta: dict[str, bytes] = {}

    async def trim(self) -> None:
        return None

    async def pool_links(self, pool: int) -> list[bytes]:
        with self._lock:
            rows: list[Any] = list(self._rows_of(pool))
            for serial in self._serials(pool):
                for namespace, checkpoint_id in self._written.get(serial, ()):
                    rows.extend(self._writes[serial, namespace, checkpoint_id].values())
            return list({row.links for row in rows if row.links})

    async def pools(self, after: int, limit: int) -> list[int]:
        return sorted(pool for pool, held in self._chunks.items() if held and pool > after)[:limit]

    async def pool_digests(self, pool: int, after: bytes, limit: int) -> list[bytes]:
        with self._lock:
            return sorted(digest for digest in self._chunks.get(pool, {}) if digest > after)[:limit]

    async def summary(self, now: float) -> PoolSummary:
        with self._lock:
            names = {thread.serial: thread.thread_id for thread in self._threads.values()}
            hours: dict[int, int] = defaultdict(int)
            busy: dict[str, int] = defaultdict(int)
            for (serial, _, _), row in self._checkpoints.items():
                if not is_hidden(names[serial]):
                    busy[names[serial]] += 1
                if now - row.created < 24 * 3600:
                    hours[int((now - row.created) // 3600)] += 1
            writes = [write for held in self._writes.values() for write in held.values()]
            chunks = [chunk for pool in self._chunks.values() for chunk in pool.values()]
            rows = self._checkpoints.values()
            return PoolSummary(
                threads=sum(t.status != "deleted" and not is_hidden(t.thread_id) for t in self._threads.values()),
                checkpoints=len(rows),
                writes=len(writes),
                chunks=len(chunks),
                chunk_bytes=sum(len(data) + len(links) for links, _, data in chunks),
                row_bytes=sum(len(r.document) + len(r.metadata) + len(r.links) for r in rows)
                + sum(len(write.data) + len(write.links) for write in writes),
                recent_hours=dict(hours),
                busiest=sorted(busy.items(), key=lambda pair: (-pair[1], pair[0]))[:10],
            )

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int, int]]:
        held = self._chunks.get(pool, {})
        return [(d, *held[d][:2], len(held[d][2])) for d in await self.pool_digests(pool, after, limit)]

    async def root_sizes(self, pool: int) -> list[tuple[bytes, int]]:
        with self._lock:
            return [(row.links, len(row.document) + len(row.metadata)) for row in self._rows_of(pool)]

    async def size_bytes(self) -> int:
        figures = await self.summary(0.0)
        return figures.chunk_bytes + figures.row_bytes

    async def space(self) -> Space:
        return Space(await self.size_bytes(), 0)

    async def forms(self) -> dict[int, int]:
        with self._lock:
            found = Counter(form for row in self._checkpoints.values() for form in {row.form, row.metadata_form})
            found.update(write.form for held in self._writes.values() for write in held.values())
            found.update(form for pool in self._chunks.values() for _, form, _ in pool.values())
            return dict(found)

    async def weights(self, pools: Sequence[int]) -> Weights:
        with self._lock:
            found = Weights([], [], [])
            for pool in dict.fromkeys(pools):
                for serial in self._serials(pool):
                    rows = list(self._rows_of_thread(serial))
                    size = sum(len(row.document) + len(row.metadata) + len(row.links) for row in rows)
                    places = self._written.get(serial, ())
                    writes = [one for space, id in places for one in self._writes[serial, space, id].values()]
                    found.checkpoints.append(Weight(pool, serial, len(rows), size))
                    write_size = sum(len(write.data) + len(write.links) for write in writes)
                    found.writes.append(Weight(pool, serial, len(writes), write_size))
                held = self._chunks.get(pool, {})
                size = sum(len(data) + len(links) for links, _, data in held.values())
                found.chunks.append(Weight(pool, 0, len(held), size))
            kinds = ([one for one in some if one.rows] for some in found)
            return Weights(*kinds)

    def _alive(self, thread_id: str) -> ThreadRow | None:
        thread = self._threads.get(thread_id)
        return thread if thread is not None and thread.status != "deleted" else None

    def _serials(self, pool: int) -> set[int]:
        return {self._threads[thread_id].serial for thread_id in self._mates.get(pool, ())}

    def _rows_of(self, pool: int) -> Iterator[CheckpointRow]:
        for serial in self._serials(pool):
            yield from self._rows_of_thread(serial)

    def _rows_of_thread(self, serial: int) -> Iterator[CheckpointRow]:
        for namespace, ids in self._ids.get(serial, {}).items():
            for checkpoint_id in ids:
                yield self._checkpoints[serial, namespace, checkpoint_id]
