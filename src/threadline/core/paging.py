"""Everything there is of one kind, page by page, by keyset cursors: nothing stays open between two pages.

Rows come through a `Context` where they are to be opened, because it learns the keys that they are sealed under.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..ports.checkpoints import Backend, CheckpointKey, Found, Query, ThreadRow, split_links
from ..ports.records import Record, RecordSpace, Scan
from ..ports.whole import Outline

if TYPE_CHECKING:
    from .context import Reads

__all__ = [
    "ChunkWeights",
    "ancestors",
    "checkpoint_pages",
    "chunk_pages",
    "chunk_weights",
    "each_found",
    "each_pool",
    "each_thread",
    "has_chunks",
    "outline_pages",
    "parts_of",
    "pool_pages",
    "record_pages",
    "thread_pages",
    "thread_rows",
    "walk",
    "walk_pages",
]

T = TypeVar("T")
C = TypeVar("C")
_PAGE = 500
_LONGEST_PAGE = 16_384
_CHAIN_PAGE = 200
# Few pages: on a storage without an order of its own each of them reads the names of all chunks.
_CHUNKS_PAGE = 1_000_000


class ChunkWeights(dict[bytes, tuple[bytes, int]]):
    """Links and stored size of chunks, by digest."""

    def below(self, digests: Iterable[bytes], seen: set[bytes]) -> int:
        """The bytes of these chunks and of all below them that are not in `seen`, which they are added to."""
        return sum(map(self.total, self._levels(digests, seen)))

    def reached_from(self, rows: Iterable[bytes]) -> set[bytes]:
        """The chunks that the links of some rows lead to."""
        reached: set[bytes] = set()
        for _ in self._levels((digest for links in rows for digest in split_links(links)), reached):
            pass
        return reached

    def _levels(self, digests: Iterable[bytes], seen: set[bytes]) -> Iterator[set[bytes]]:
        frontier = set(digests)
        while new := {digest for digest in frontier - seen if digest in self}:
            seen |= new
            yield new
            frontier = {child for digest in new if self[digest][0] for child in split_links(self[digest][0])}

    def total(self, digests: Iterable[bytes]) -> int:
        """The bytes of these chunks."""
        return sum(size + len(links) for links, size in map(self.__getitem__, digests))


async def _pages(
    read: Callable[[C, int], Awaitable[list[T]]], after: C, cursor: Callable[[T], C], limit: int = _PAGE
) -> AsyncIterator[list[T]]:
    """Pages of at most `limit`, each read after the last entry of the one before, until one is short."""
    while page := await read(after, limit):
        yield page
        if len(page) < limit:
            return
        after = cursor(page[-1])


def thread_pages(source: Reads, prefix: str = "") -> AsyncIterator[list[ThreadRow]]:
    """Living threads by id; hidden ones only where the prefix is that of hidden ones."""
    return _pages(lambda after, limit: source.threads(after, limit, prefix), "", lambda row: row.thread_id)


async def each_thread(source: Reads, prefix: str = "") -> AsyncIterator[ThreadRow]:
    """Living threads by id, one by one; hidden ones only where the prefix is that of hidden ones."""
    async for page in thread_pages(source, prefix):
        for row in page:
            yield row


def pool_pages(backend: Backend) -> AsyncIterator[list[int]]:
    """The pools that hold chunks, in order."""
    return _pages(backend.pools, -1, lambda pool: pool)


async def each_pool(backend: Backend) -> AsyncIterator[int]:
    """The pools that hold chunks, in order, one by one."""
    async for page in pool_pages(backend):
        for pool in page:
            yield pool


def chunk_pages(
    backend: Backend, pool: int, limit: int = _CHUNKS_PAGE
) -> AsyncIterator[list[tuple[bytes, bytes, int, int]]]:
    """Digest, links, form and stored size of every chunk of a pool."""
    return _pages(lambda after, size: backend.chunk_sizes(pool, after, size), b"", lambda one: one[0], limit)


async def chunk_weights(backend: Backend, pool: int) -> ChunkWeights:
    """Links and stored size of every chunk of a pool."""
    weights = ChunkWeights()
    async for page in chunk_pages(backend, pool):
        weights.update({digest: (links, size) for digest, links, _, size in page})
    return weights


async def checkpoint_pages(source: Reads, query: Query, *, growth: int = 1) -> AsyncIterator[list[Found]]:
    """The checkpoints of a query, newest first; each page may be some times as long as the one before.

    A search that no index orders sorts all it finds for every page: where all is wanted, pages should be few.
    """
    while page := await source.page(query):
        yield page
        if len(page) < query.limit:
            return
        query = replace(query, after=page[-1].cursor, limit=min(query.limit * growth, _LONGEST_PAGE))


async def each_found(source: Reads, query: Query, *, growth: int = 1) -> AsyncIterator[Found]:
    """The checkpoints of a query, newest first, one by one."""
    async for page in checkpoint_pages(source, query, growth=growth):
        for found in page:
            yield found


class Scans(Protocol):
    """What records are read from: a backend, or a context, which learns the keys that they are sealed under."""

    async def scan_records(self, space: RecordSpace, scan: Scan) -> list[Record]: ...


def record_pages(source: Scans, space: RecordSpace, scan: Scan) -> AsyncIterator[list[Record]]:
    """The records of a scan in the order of their names, in pages of its limit."""

    def read(after: bytes, limit: int) -> Awaitable[list[Record]]:
        return source.scan_records(space, scan._replace(after=after, limit=limit))

    return _pages(read, scan.after, lambda record: record.name, scan.limit)


async def ancestors(source: Reads, thread_id: str, key: CheckpointKey | None) -> AsyncIterator[Found]:
    """A checkpoint and its ancestors, nearest first, with their writes; a gap, or one that comes again, ends them."""
    seen: set[str] = set()
    while key is not None and key.id not in seen:
        page = await source.chain(thread_id, key.namespace, key.id, _CHAIN_PAGE)
        for found in page:
            seen.add(found.row.id)
            yield found
        key = page[-1].parent if len(page) == _CHAIN_PAGE else None


async def walk(source: Reads, thread_id: str, after: CheckpointKey | None, limit: int) -> list[Found]:
    """The next checkpoints of a thread by namespace and id, without writes."""
    cursor = (after.id, thread_id, after.namespace) if after is not None else None
    query = Query(thread_id=thread_id, as_they_lie=True, after=cursor, limit=limit, with_writes=False)
    return await source.page(query)


def walk_pages(
    source: Reads, thread_id: str, after: CheckpointKey | None = None, limit: int = _PAGE
) -> AsyncIterator[list[Found]]:
    """The checkpoints of a thread by namespace and id, without writes."""
    return _pages(lambda at, size: walk(source, thread_id, at, size), after, lambda found: found.key, limit)


def outline_pages(backend: Backend, thread_id: str, limit: int) -> AsyncIterator[list[Outline]]:
    """The checkpoints of a thread by namespace and id, without what they hold."""

    def read(after: CheckpointKey | None, size: int) -> Awaitable[list[Outline]]:
        return backend.outline(thread_id, after, size)

    return _pages(read, None, lambda row: CheckpointKey(*row[:2]), limit)


async def thread_rows(source: Reads, thread_id: str, *, with_writes: bool = False) -> list[Found]:
    """All checkpoints of a thread, in every namespace, newest first."""
    rows: list[Found] = []
    query = Query(thread_id=thread_id, as_they_lie=True, limit=_PAGE, with_writes=with_writes)
    async for page in checkpoint_pages(source, query):
        rows += page
    rows.sort(key=lambda found: found.row.namespace)
    rows.sort(key=lambda found: found.row.id, reverse=True)
    return rows


async def has_chunks(backend: Backend, pool: int, more_than: int = 0) -> bool:
    """Whether a pool holds more chunks than a number; reads one chunk more than that, on Redis all names."""
    return len(await backend.chunk_sizes(pool, b"", more_than + 1)) > more_than


def parts_of(entries: Sequence[T], weigh: Callable[[T], int], most_bytes: int, most: int = _PAGE) -> Iterator[list[T]]:
    """Entries in parts of at most so many, and of so many bytes unless one alone has more."""
    part: list[T] = []
    size = 0
    for entry in entries:
        if part and (len(part) >= most or size + weigh(entry) > most_bytes):
            yield part
            part, size = [], 0
        part.append(entry)
        size += weigh(entry)
    if part:
        yield part
