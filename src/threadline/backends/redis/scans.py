"""Reads of whole pools and of the store, for garbage collection, statistics and checks; page by page."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ...errors import InvalidRequest
from ...ports.checkpoints import Weight, Weights
from ...ports.storage import Space
from .directory import Directory
from .keys import POOL_KEYS, Keys
from .reader import batches
from .records import RedisRecords
from .wire import Link

__all__ = ["RedisScans"]

_PAGE = 1000
# The scripts that tell of a pool's rows give serial, links and size of each first.
_ROWS, _WRITES = "row_heads", "write_heads"


class RedisScans:
    """The part of the ports that reads pools."""

    def __init__(self, link: Link, keys: Keys, directory: Directory, records: RedisRecords) -> None:
        self._link = link
        self._keys = keys
        self._directory = directory
        self._records = records

    async def trim(self) -> None:
        return None  # the server gives memory back by itself

    async def roots(self, pool: int) -> dict[bytes, int]:
        found = Counter[bytes]()
        for script, count in ((_ROWS, 1), (_WRITES, 0)):
            async for head in self._heads(script, pool):
                found[head[1]] += count
        found.pop(b"", None)
        return found

    async def pools(self, after: int, limit: int) -> list[int]:
        found: list[int] = []
        async for pools in self._directory.pools(b"(%d" % after, _PAGE):
            sizes = await self._link.batch([("HLEN", self._keys.of(pool, "chunks")) for pool in pools])
            found += [pool for pool, size in zip(pools, sizes, strict=True) if size]
            if len(found) >= limit:
                break
        return found[:limit]

    async def chunk_sizes(
        self, pool: int, after: bytes = b"", limit: int | None = None
    ) -> list[tuple[bytes, bytes, int, int]]:
        # A hash has no order: its names are sorted here, which is little beside what is done with them.
        names = await self._link.command("HKEYS", self._keys.of(pool, "chunks"))
        found: list[Any] = []
        for part in batches(sorted(digest for digest in names if digest > after)[:limit], _PAGE):
            found += await self._link.call("chunk_heads", self._keys.pool(pool), part)
        return [(digest, links, int(form), size) for digest, links, form, size in found]

    async def weights(self, pools: Sequence[int], since: float | None = None) -> Weights:
        found = Weights([], [], [], [])
        for pool in dict.fromkeys(pools):
            for kind, script in ((found.checkpoints, _ROWS), (found.writes, _WRITES)):
                rows, sizes = Counter[int](), Counter[int]()
                async for serial, links, size, _, *rest in self._heads(script, pool):
                    rows[int(serial)] += 1
                    sizes[int(serial)] += size + len(links)
                    if since is not None and rest and float(rest[1]) >= since:
                        found.recent.append(float(rest[1]))
                kind += [Weight(pool, serial, rows[serial], sizes[serial]) for serial in rows]
            chunks = await self.chunk_sizes(pool)
            if chunks:
                size = sum(size + len(links) for _, links, _, size in chunks)
                found.chunks.append(Weight(pool, 0, len(chunks), size))
        return found

    async def forms(self) -> dict[int, int]:
        found = await self._records.forms()
        async for pools in self._directory.pools():
            for pool in pools:
                async for head in self._heads(_ROWS, pool):
                    found.update({int(head[3]), int(head[4])})
                async for head in self._heads(_WRITES, pool):
                    found[int(head[3])] += 1
                found.update(form for _, _, form, _ in await self.chunk_sizes(pool))
        return found

    async def space(self) -> Space:
        """The memory that the keys take in the server; where it will not say, the bytes they hold."""
        total = 0
        try:
            async for pools in self._directory.pools():
                keys = [self._keys.of(pool, name) for pool in pools for name in POOL_KEYS[:-1]]
                sizes = await self._link.batch([("MEMORY USAGE", key, "SAMPLES", 0) for key in keys])
                total += sum(size or 0 for size in sizes)
            return Space(total, total)
        except InvalidRequest:
            weights = [await self.weights(pools) async for pools in self._directory.pools()]
            total = sum(one.bytes for found in weights for kind in found[:3] for one in kind)
            return Space(total, total)

    async def _heads(self, script: str, pool: int) -> AsyncIterator[Any]:
        """What a script tells of each row of a pool; a page of them is read at a time."""
        low = b""
        while True:
            low, count, heads = await self._link.call(script, self._keys.pool(pool), [low, _PAGE])
            for head in heads:
                yield head
            if count < _PAGE:
                return
