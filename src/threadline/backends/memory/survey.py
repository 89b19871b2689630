"""What a store in memory holds, and what is read of whole pools: for collecting, figures and checks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from ...base.forks import renew_after_fork
from ...ports.checkpoints import CheckpointRow, ThreadRow, Weight, Weights, WriteRow
from ...ports.storage import Space
from ...ports.whole import WithoutOutlines, WithoutWholes
from .records import MemoryRecords

__all__ = ["MemorySurvey", "Place"]

Place = tuple[int, str, str]  # thread serial, namespace, checkpoint id


class MemorySurvey(WithoutWholes, WithoutOutlines, MemoryRecords):
    """The records, and the half of the Backend port that reads pools."""

    def __init__(self) -> None:
        super().__init__()
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
        self._leases: dict[str, bytes] = {}

    async def trim(self) -> None:
        return None

    async def roots(self, pool: int) -> dict[bytes, int]:
        with self._lock:
            found = Counter(row.links for serial in self._serials(pool) for row in self._rows_of(serial))
            found.update({write.links: 0 for serial in self._serials(pool) for write in self._writes_of(serial)})
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
            found = Counter(form for row in self._checkpoints.values() for form in {row.form, row.metadata_form})
            found.update(write.form for held in self._writes.values() for write in held.values())
            found.update(form for pool in self._chunks.values() for _, form, _ in pool.values())
            found.update(one.form for space in self._spaces.values() for one in space.records.values())
            return found

    async def weights(self, pools: Sequence[int], since: float | None = None) -> Weights:
        with self._lock:
            found = Weights([], [], [], [])
            for pool in dict.fromkeys(pools):
                for serial in self._serials(pool):
                    rows, writes = list(self._rows_of(serial)), list(self._writes_of(serial))
                    size = sum(len(row.document) + len(row.metadata) + len(row.links) for row in rows)
                    found.checkpoints.append(Weight(pool, serial, len(rows), size))
                    write_size = sum(len(write.data) + len(write.links) for write in writes)
                    found.writes.append(Weight(pool, serial, len(writes), write_size))
                    if since is not None:
                        found.recent.extend(row.created for row in rows if row.created >= since)
                held = self._chunks.get(pool, {})
                size = sum(len(data) + len(links) for links, _, data in held.values())
                found.chunks.append(Weight(pool, 0, len(held), size))
            for kind in found[:3]:
                kind[:] = [one for one in kind if one.rows]
            return found

    def _alive(self, thread_id: str) -> ThreadRow | None:
        thread = self._threads.get(thread_id)
        return thread if thread is not None and thread.status != "deleted" else None

    def _serials(self, pool: int) -> set[int]:
        return {self._threads[thread_id].serial for thread_id in self._mates.get(pool, ())}

    def _rows_of(self, serial: int) -> Iterator[CheckpointRow]:
        for namespace, ids in self._ids.get(serial, {}).items():
            for checkpoint_id in ids:
                yield self._checkpoints[serial, namespace, checkpoint_id]

    def _writes_of(self, serial: int) -> Iterator[WriteRow]:
        for namespace, checkpoint_id in self._written.get(serial, ()):
            yield from self._writes[serial, namespace, checkpoint_id].values()
