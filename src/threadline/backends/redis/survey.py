"""What is read of whole pools and of the store: for collecting, figures and checks; page by page, never all at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ...errors import InvalidRequest
from ..hidden import is_hidden
from ..port import PoolSummary, Space, Weight, Weights
from .layout import POOL_KEYS, encoded, thread_of
from .reader import RedisReader, batches
from .scripts import CHUNK_HEADS, ROW_HEADS, WRITE_HEADS, Script

__all__ = ["RedisSurvey"]

_PAGE = 1000
_DAY_SECONDS = 24 * 3600


class RedisSurvey(RedisReader):
    """The half of the Backend port that reads pools."""

    async def pool_links(self, pool: int) -> list[bytes]:
        found: set[bytes] = set()
        async for heads in self._heads(ROW_HEADS, pool):
            found.update(links for _, links, *_ in heads)
        async for heads in self._heads(WRITE_HEADS, pool):
            found.update(links for links, *_ in heads)
        found.discard(b"")
        return list(found)

    async def pools(self, after: int, limit: int) -> list[int]:
        found: list[int] = []
        low = b"(%d" % after
        while len(found) < limit:
            words = ("ZRANGEBYSCORE", self.keys.pools, low, b"+inf", "LIMIT", 0, _PAGE)
            pools = [int(pool) for pool in await self.link.command(*words)]
            sizes = await self.link.batch([("HLEN", self.keys.of(pool, "chunks")) for pool in pools])
            found += [pool for pool, size in zip(pools, sizes, strict=True) if size]
            if len(pools) < _PAGE:
                break
            low = b"(%d" % pools[-1]
        return found[:limit]

    async def has_chunks(self, pool: int, more_than: int = 0) -> bool:
        return int(await self.link.command("HLEN", self.keys.of(pool, "chunks"))) > more_than

    async def pool_digests(self, pool: int, after: bytes, limit: int) -> list[bytes]:
        # A hash has no order: its names are sorted here, which is little beside what is done with them.
        digests = await self.link.command("HKEYS", self.keys.of(pool, "chunks"))
        return sorted(digest for digest in digests if digest > after)[:limit]

    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int]]:
        digests = await self.pool_digests(pool, after, limit)
        return [(digest, links, size) for digest, links, _, size in await self._chunk_heads(pool, digests)]

    async def root_sizes(self, pool: int) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        async for heads in self._heads(ROW_HEADS, pool):
            found += [(links, size) for _, links, _, _, _, size in heads]
        return found

    async def leases(self) -> list[bytes]:
        found: list[bytes] = []
        async for pools in self._all_pools():
            for records in await self.link.batch([("HVALS", self.keys.of(pool, "leases")) for pool in pools]):
                found += records
        return found

    async def weights(self, pools: Sequence[int]) -> Weights:
        found = Weights([], [], [])
        for pool in dict.fromkeys(pools):
            for kind, script, links_at in ((found.checkpoints, ROW_HEADS, 1), (found.writes, WRITE_HEADS, 0)):
                sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
                async for heads in self._heads(script, pool):
                    for head in heads:
                        one = sums[int(head[0] if links_at else head[3])]
                        one[0] += 1
                        one[1] += len(head[links_at]) + int(head[5] if links_at else head[2])
                kind += [Weight(pool, serial, rows, size) for serial, (rows, size) in sums.items()]
            chunks = await self._chunk_heads(pool, await self.pool_digests(pool, b"", 1 << 62))
            if chunks:
                size = sum(size + len(links) for _, links, _, size in chunks)
                found.chunks.append(Weight(pool, 0, len(chunks), size))
        return found

    async def forms(self) -> dict[int, int]:
        found: dict[int, int] = defaultdict(int)
        async for pools in self._all_pools():
            for pool in pools:
                async for heads in self._heads(ROW_HEADS, pool):
                    for head in heads:
                        for form in {int(head[2]), int(head[3])}:
                            found[form] += 1
                async for heads in self._heads(WRITE_HEADS, pool):
                    for head in heads:
                        found[int(head[1])] += 1
                digests = await self.pool_digests(pool, b"", 1 << 62)
                for _, _, form, _ in await self._chunk_heads(pool, digests):
                    found[int(form)] += 1
        return dict(found)

    async def summary(self, now: float) -> PoolSummary:
        sums: dict[str, int] = defaultdict(int)
        hours: dict[int, int] = defaultdict(int)
        busy: dict[str, int] = defaultdict(int)
        async for pools in self._all_pools():
            for pool in pools:
                await self._sum_rows(pool, now, sums, hours, busy)
                digests = await self.pool_digests(pool, b"", 1 << 62)
                heads = await self._chunk_heads(pool, digests)
                sums["chunks"] += len(heads)
                sums["chunk_bytes"] += sum(size + len(links) for _, links, _, size in heads)
        return PoolSummary(
            threads=sums["threads"],
            checkpoints=sums["checkpoints"],
            writes=sums["writes"],
            chunks=sums["chunks"],
            chunk_bytes=sums["chunk_bytes"],
            row_bytes=sums["row_bytes"],
            recent_hours=dict(hours),
            busiest=sorted(busy.items(), key=lambda pair: (-pair[1], encoded(pair[0])))[:10],
        )

    async def _sum_rows(
        self, pool: int, now: float, sums: dict[str, int], hours: dict[int, int], busy: dict[str, int]
    ) -> None:
        names: dict[int, str] = {}
        flat = await self.link.command("HGETALL", self.keys.of(pool, "threads"))
        pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
        for thread, value in pairs:
            row = thread_of(thread.decode(errors="surrogatepass"), pool, 0, value)
            if row.status not in ("deleted", "moved") and not is_hidden(row.thread_id):
                names[row.serial] = row.thread_id
                sums["threads"] += 1
        async for heads in self._heads(ROW_HEADS, pool):
            for serial, links, _, _, created, size in heads:
                sums["checkpoints"] += 1
                sums["row_bytes"] += size + len(links)
                if int(serial) in names:
                    busy[names[int(serial)]] += 1
                if now - float(created) < _DAY_SECONDS:
                    hours[int((now - float(created)) // 3600)] += 1
        async for heads in self._heads(WRITE_HEADS, pool):
            sums["writes"] += len(heads)
            sums["row_bytes"] += sum(size + len(links) for links, _, size, _ in heads)

    async def size_bytes(self) -> int:
        """What the keys take in the server's memory; where it will not say, the bytes they hold."""
        total = 0
        try:
            async for pools in self._all_pools():
                keys = [self.keys.of(pool, name) for pool in pools for name in POOL_KEYS[:-1]]
                sizes = await self.link.batch([("MEMORY USAGE", key, "SAMPLES", 0) for key in keys])
                total += sum(size or 0 for size in sizes)
            return total
        except InvalidRequest:
            figures = await self.summary(0.0)
            return figures.chunk_bytes + figures.row_bytes

    async def space(self) -> Space:
        return Space(await self.size_bytes(), 0)

    async def _heads(self, script: Script, pool: int) -> Any:
        """What a script tells of the rows of a pool, some at a time."""
        low = b""
        while True:
            low, count, heads = await self.link.call(script, self.keys.pool(pool), [low, _PAGE])
            if heads:
                yield heads
            if count < _PAGE:
                return

    async def _chunk_heads(self, pool: int, digests: Sequence[bytes]) -> list[Any]:
        found: list[Any] = []
        for part in batches(digests, _PAGE):
            found += await self.link.call(CHUNK_HEADS, self.keys.pool(pool), part)
        return found
