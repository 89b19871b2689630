"""Reads of whole pools and of the store, for garbage collection, statistics and checks; page by page."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ...errors import InvalidRequest
from ...ports.checkpoints import PoolSummary, Space, Weight, Weights
from ...ports.rules import is_hidden
from .directory import Directory
from .keys import POOL_KEYS, Keys, decoded, encoded, lives, thread_of
from .reader import batches
from .wire import Link

__all__ = ["RedisScans"]

_PAGE = 1000
_DAY_SECONDS = 24 * 3600
# The scripts that tell of a pool's rows give serial, links and size of each first.
_ROWS, _WRITES = "row_heads", "write_heads"


class RedisScans:
    """The part of the ports that reads pools."""

    def __init__(self, link: Link, keys: Keys, directory: Directory) -> None:
        self._link = link
        self._keys = keys
        self._directory = directory

    async def trim(self) -> None:
        return None  # the server gives memory back by itself

    async def pool_links(self, pool: int) -> list[bytes]:
        return list({head[1] for script in (_ROWS, _WRITES) async for head in self._heads(script, pool)} - {b""})

    async def pools(self, after: int, limit: int) -> list[int]:
        found: list[int] = []
        async for pools in self._directory.pools(b"(%d" % after, _PAGE):
            sizes = await self._link.batch([("HLEN", self._keys.of(pool, "chunks")) for pool in pools])
            found += [pool for pool, size in zip(pools, sizes, strict=True) if size]
            if len(found) >= limit:
                break
        return found[:limit]

    async def pool_digests(self, pool: int, after: bytes, limit: int | None) -> list[bytes]:
        # A hash has no order: its names are sorted here, which is little beside what is done with them.
        digests = await self._link.command("HKEYS", self._keys.of(pool, "chunks"))
        return sorted(digest for digest in digests if digest > after)[:limit]

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int, int]]:
        heads = await self._chunk_heads(pool, await self.pool_digests(pool, after, limit))
        return [(digest, links, int(form), size) for digest, links, form, size in heads]

    async def root_sizes(self, pool: int) -> list[tuple[bytes, int]]:
        return [(head[1], head[2]) async for head in self._heads(_ROWS, pool)]

    async def leases(self) -> list[bytes]:
        found: list[bytes] = []
        async for pools in self._directory.pools():
            for records in await self._link.batch([("HVALS", self._keys.of(pool, "leases")) for pool in pools]):
                found += records
        return found

    async def weights(self, pools: Sequence[int]) -> Weights:
        found = Weights([], [], [])
        for pool in dict.fromkeys(pools):
            for kind, script in ((found.checkpoints, _ROWS), (found.writes, _WRITES)):
                rows, sizes = Counter[int](), Counter[int]()
                async for serial, links, size, *_ in self._heads(script, pool):
                    rows[int(serial)] += 1
                    sizes[int(serial)] += size + len(links)
                kind += [Weight(pool, serial, rows[serial], sizes[serial]) for serial in rows]
            chunks = await self._all_chunk_heads(pool)
            if chunks:
                found.chunks.append(Weight(pool, 0, len(chunks), _bytes_of(chunks)))
        return found

    async def forms(self) -> dict[int, int]:
        found = Counter[int]()
        async for pools in self._directory.pools():
            for pool in pools:
                async for head in self._heads(_ROWS, pool):
                    found.update({int(head[3]), int(head[4])})
                async for head in self._heads(_WRITES, pool):
                    found[int(head[3])] += 1
                found.update(int(form) for _, _, form, _ in await self._all_chunk_heads(pool))
        return dict(found)

    async def summary(self, now: float) -> PoolSummary:
        sums, hours, busy = Counter[str](), Counter[int](), Counter[str]()
        async for pools in self._directory.pools():
            for pool in pools:
                await self._sum_rows(pool, now, sums, hours, busy)
                chunks = await self._all_chunk_heads(pool)
                sums["chunks"] += len(chunks)
                sums["chunk_bytes"] += _bytes_of(chunks)
        names = ("threads", "checkpoints", "writes", "chunks", "chunk_bytes", "row_bytes")
        busiest = sorted(busy.items(), key=lambda pair: (-pair[1], encoded(pair[0])))[:10]
        return PoolSummary(**{name: sums[name] for name in names}, recent_hours=dict(hours), busiest=busiest)

    async def _sum_rows(
        self, pool: int, now: float, sums: Counter[str], hours: Counter[int], busy: Counter[str]
    ) -> None:
        names: dict[int, str] = {}
        flat = await self._link.command("HGETALL", self._keys.of(pool, "threads"))
        pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
        for thread, value in pairs:
            row = thread_of(decoded(thread), pool, 0, value)
            if lives(row) and not is_hidden(row.thread_id):
                names[row.serial] = row.thread_id
        sums["threads"] += len(names)
        async for serial, links, size, _, _, created in self._heads(_ROWS, pool):
            sums["checkpoints"] += 1
            sums["row_bytes"] += size + len(links)
            if int(serial) in names:
                busy[names[int(serial)]] += 1
            if now - float(created) < _DAY_SECONDS:
                hours[int((now - float(created)) // 3600)] += 1
        async for _, links, size, _ in self._heads(_WRITES, pool):
            sums["writes"] += 1
            sums["row_bytes"] += size + len(links)

    async def size_bytes(self) -> int:
        """The memory that the keys take in the server; where it will not say, the bytes they hold."""
        total = 0
        try:
            async for pools in self._directory.pools():
                keys = [self._keys.of(pool, name) for pool in pools for name in POOL_KEYS[:-1]]
                sizes = await self._link.batch([("MEMORY USAGE", key, "SAMPLES", 0) for key in keys])
                total += sum(size or 0 for size in sizes)
            return total
        except InvalidRequest:
            figures = await self.summary(0.0)
            return figures.chunk_bytes + figures.row_bytes

    async def space(self) -> Space:
        return Space(await self.size_bytes(), 0)

    async def _heads(self, script: str, pool: int) -> AsyncIterator[Any]:
        """What a script tells of each row of a pool; a page of them is read at a time."""
        low = b""
        while True:
            low, count, heads = await self._link.call(script, self._keys.pool(pool), [low, _PAGE])
            for head in heads:
                yield head
            if count < _PAGE:
                return

    async def _chunk_heads(self, pool: int, digests: Sequence[bytes]) -> list[Any]:
        """Digest, links, form and size of some chunks."""
        found: list[Any] = []
        for part in batches(digests, _PAGE):
            found += await self._link.call("chunk_heads", self._keys.pool(pool), part)
        return found

    async def _all_chunk_heads(self, pool: int) -> list[Any]:
        return await self._chunk_heads(pool, await self.pool_digests(pool, b"", None))


def _bytes_of(chunks: Sequence[Any]) -> int:
    return sum(size + len(links) for _, links, _, size in chunks)
