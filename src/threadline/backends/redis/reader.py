"""Reads of threads, checkpoints and chunks; each of them is one script, atomic on its pool.

A list over all threads asks every pool for the places of its newest checkpoints, keeps the newest of all, and then
reads these: its cost grows with the number of pools, not with the length of their histories.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ...base.namespaces import ROOT
from ...ports.checkpoints import Asking, CheckpointKeys, Found, Query, ThreadRow, WriteRow
from ...ports.rules import HIDDEN, asks, is_hidden, write_order
from ...ports.whole import WithoutOutlines
from .directory import Directory
from .keys import (
    Entry,
    Keys,
    chunk_of,
    decoded,
    encoded,
    escaped,
    head_of,
    index_parts,
    lives,
    optional,
    place_of,
    place_parts,
    tombstone,
    unpack_checkpoint,
    unpack_write,
)
from .wire import Link

__all__ = ["RedisReader", "batches"]

T = TypeVar("T")
_BATCH = 1000


class Spot(NamedTuple):
    """Where a checkpoint is, or without an id the newest of a namespace."""

    thread_id: str
    pool: int
    namespace: str
    id: str | None = None

    def arguments(self, with_writes: bool) -> list[Any]:
        """As find.lua takes them."""
        return [encoded(self.thread_id), escaped(self.namespace), optional(self.id), int(with_writes)]


class RedisReader(WithoutOutlines):
    """The part of the ports that reads threads."""

    def __init__(self, link: Link, keys: Keys, directory: Directory) -> None:
        self._link = link
        self._keys = keys
        self._directory = directory

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        args = (escaped(namespace), optional(checkpoint_id), int(with_writes))
        return self._one(thread_id, *await self._directory.call("find", thread_id, *args))

    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        found: list[Found] = []
        for part in batches(thread_ids, _BATCH):
            values = await self._link.batch([("GET", self._keys.directory(thread_id)) for thread_id in part])
            pools = [Entry.unpacked(value).pool if value else 0 for value in values]
            spots = [Spot(one, pool, namespace) for one, pool in zip(part, pools, strict=True) if pool]
            found += await self._at(spots, with_writes=False)
        return found

    async def _at(self, spots: Sequence[Spot], *, with_writes: bool) -> list[Found]:
        """The checkpoints at some spots, in their order, without those that are gone."""
        found: list[Found] = []
        for part in batches(spots, _BATCH):
            answers = await self._link.calls(
                [("find", self._keys.pool(s.pool), s.arguments(with_writes)) for s in part]
            )
            made = [self._one(spot.thread_id, spot.pool, answer) for spot, answer in zip(part, answers, strict=True)]
            found += [one for one in made if one is not None]
        return found

    async def page(self, query: Query) -> list[Found]:
        if query.thread_id is None:
            return await self._page_of_all(query)
        after = query.after
        if query.as_they_lie:
            spoken = b"=" + place_of(after[2], after[0]) if after is not None else b""
            return await self._all("walk", query.thread_id, int(query.with_writes), spoken, query.limit)
        # The thread's own place in the order decides whether the rest of the last id is before or after it.
        own = encoded(query.thread_id)
        if after is not None and encoded(after[1]) != own:
            last_namespace = None if encoded(after[1]) < own else "\U0010ffff" * 3
        else:
            last_namespace = after[2] if after is not None else None
        spoken = b"=" + escaped(last_namespace) if last_namespace is not None else b""
        args = [int(query.with_writes), spoken, query.limit, *_wanted(query, query.limit + 1)]
        return await self._all("page", query.thread_id, *args)

    async def _page_of_all(self, query: Query) -> list[Found]:
        found: list[Found] = []
        after = query.after
        while len(found) < query.limit:
            spots = await self._newest_spots(query, after)
            found += await self._at(spots, with_writes=query.with_writes)
            if len(spots) < query.limit:
                break
            # Some may have been deleted since; a short page would look like the last one.
            after = (spots[-1].id or "", spots[-1].thread_id, spots[-1].namespace)
        return found[: query.limit]

    async def _newest_spots(self, query: Query, after: tuple[str, str, str] | None) -> list[Spot]:
        """The spots of one page over all threads, in order."""
        best: list[tuple[tuple[Any, ...], Spot]] = []
        last = _order(after[0], after[1], place_of(after[2], after[0])) if after is not None else None
        floor: bytes = b""
        async for pools in self._directory.pools():
            wanted = _wanted(query, query.limit + 1, floor=floor, after=after)
            answers = await self._link.calls([("pool_places", self._keys.pool(pool), wanted) for pool in pools])
            for pool, answer in zip(pools, answers, strict=True):
                for thread, place in zip(answer[::2], answer[1::2], strict=True):
                    spot = Spot(decoded(thread), pool, *place_parts(place))
                    key = _order(spot.id or "", spot.thread_id, place)
                    if (last is None or key > last) and not is_hidden(spot.thread_id):
                        best.append((key, spot))
            best = heapq.nsmallest(query.limit, best)
            if len(best) == query.limit:
                floor = optional(best[-1][1].id)
        return [spot for _, spot in best]

    async def chain(self, thread_id: str, namespace: str, checkpoint_id: str, limit: int) -> list[Found]:
        return await self._all("chain", thread_id, escaped(namespace), optional(checkpoint_id), limit)

    async def children(self, thread_id: str, keys: CheckpointKeys) -> list[Found]:
        found: list[Found] = []
        for part in batches([head_of(*key) for key in keys], _BATCH):
            found += await self._all("children", thread_id, *part)
        return found

    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        _, answer = await self._directory.call("thread_writes", thread_id)
        return _writes(answer) if answer is not None else []

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        key = self._keys.of(pool, "chunks")
        found: list[tuple[bytes, bytes, int, bytes]] = []
        parts = list(batches(digests, _BATCH))
        answers = await self._link.batch([("HMGET", key, *part) for part in parts])
        for part, values in zip(parts, answers, strict=True):
            found += [(digest, *chunk_of(value)) for digest, value in zip(part, values, strict=True) if value]
        return found

    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for part in batches(digests, _BATCH):
            heads = await self._link.call("chunk_heads", self._keys.pool(pool), part)
            found.update({digest: links for digest, links, _, _ in heads})
        return found

    async def thread(self, thread_id: str) -> ThreadRow | None:
        pool = self._directory.remembered(thread_id)
        if pool is not None:
            row = await self._directory.row(thread_id, pool)
            if lives(row):
                return row
            self._directory.forget(thread_id)
        while True:
            entry = await self._directory.entry(thread_id)
            if entry is None:
                return None
            row = await self._directory.row(thread_id, entry.pool)
            if lives(row):
                self._directory.remember(thread_id, entry.pool)
                return row
            if await self._directory.entry(thread_id) == entry:
                return _buried(thread_id, entry, row)

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        found: list[ThreadRow] = []
        async for rows in self._living(after, prefix, max(limit, 16)):
            found += rows
            if len(found) >= limit:
                return found[:limit]
        return found

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        found: list[Asking] = []
        async for rows in self._living(after, prefix, max(limit, 16), self._keys.asking):
            by_id = {row.thread_id: row for row in rows}
            newest = await self._at([Spot(row.thread_id, row.pool, ROOT) for row in rows], with_writes=True)
            found += [Asking(by_id[one.thread_id], one.writes) for one in newest if any(map(asks, one.writes))]
            if len(found) >= limit:
                return found[:limit]
        return found

    async def count_threads(self, prefix: str = "") -> int:
        count = 0
        async for rows in self._living("", prefix, _BATCH):
            count += len(rows)
        return count

    async def _living(self, after: str, prefix: str, most: int, index: bytes | None = None) -> Any:
        """Rows of living threads by id, some at a time; entries of the index that lead nowhere are left out."""
        head, follows = escaped(prefix)[:-1], escaped(after) + b";"
        low = b"(" + follows if after and follows > head else b"[" + head
        high = b"(" + (head + b"\xff" if is_hidden(prefix) else min(head + b"\xff", encoded(HIDDEN)))
        while True:
            words = ("ZRANGEBYLEX", index or self._keys.threads, low, high, "LIMIT", 0, min(most, _BATCH))
            members = await self._link.command(*words)
            yield await self._rows_of(members)
            if len(members) < min(most, _BATCH):
                return
            low = b"(" + members[-1]

    async def _rows_of(self, members: Sequence[bytes]) -> list[ThreadRow]:
        listed = [index_parts(member) for member in members]
        calls = [("thread", self._keys.pool(pool), [encoded(thread_id)]) for thread_id, _, pool in listed]
        answers = await self._link.calls(calls)
        rows: list[ThreadRow] = []
        for (thread_id, ticket, pool), answer in zip(listed, answers, strict=True):
            row = self._directory.row_of(thread_id, pool, answer)
            if row is not None and row.serial == ticket and lives(row):
                rows.append(row)
        return rows

    async def _all(self, script: str, thread_id: str, *args: Any) -> list[Found]:
        """The checkpoints that a script gives behind the epoch of the pool."""
        pool, answer = await self._directory.call(script, thread_id, *args)
        return [self._found(thread_id, pool, answer[0], one) for one in answer[1:]] if answer is not None else []

    def _one(self, thread_id: str, pool: int, answer: Any) -> Found | None:
        """The checkpoint that the script `find` gives, if there is one."""
        is_there = answer is not None and len(answer) > 1 and answer[1] is not None
        return self._found(thread_id, pool, answer[0], answer[1]) if is_there else None

    def _found(self, thread_id: str, pool: int, epoch: Any, shown: Sequence[bytes]) -> Found:
        row = unpack_checkpoint(shown[0], shown[1])
        return Found(thread_id, pool, self._link.stamped(epoch), row, _writes(shown[2:]))


def _buried(thread_id: str, entry: Entry, row: ThreadRow | None) -> ThreadRow | None:
    """The tombstone of a thread that does not live, wherever its last deletion is noted."""
    before = (row.deleted_before if row is not None else None) or entry.before
    if before is None:
        return None
    if row is None:
        return tombstone(thread_id, entry.pool, entry.ticket, before)
    return row._replace(status="deleted", deleted_before=before)


def batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _writes(flat: Sequence[bytes]) -> list[WriteRow]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    writes = [unpack_write(place, value) for place, value in pairs]
    if len(writes) > 1:
        writes.sort(key=write_order)
    return writes


class _Descending(bytes):
    """Bytes that sort the other way round."""

    def __lt__(self, other: bytes) -> bool:
        return bytes.__gt__(self, other)

    def __gt__(self, other: bytes) -> bool:
        return bytes.__lt__(self, other)


def _order(checkpoint_id: str, thread_id: str, place: bytes) -> tuple[_Descending, bytes, bytes]:
    """Newest id first, then by thread and namespace."""
    return _Descending(encoded(checkpoint_id)), encoded(thread_id), place


def _wanted(
    query: Query, most: int, *, floor: bytes = b"", after: tuple[str, str, str] | None = None
) -> list[bytes | int]:
    """The arguments that say which places are looked for."""
    last = after or query.after
    runs = query.run_ids
    return [
        b"=" + escaped(query.namespace) if query.namespace is not None else b"",
        optional(query.checkpoint_id),
        optional(query.before),
        optional(last[0] if last is not None else None),
        floor,
        most,
        -1 if runs is None else len(runs),
        *(encoded(run_id) for run_id in runs or ()),
    ]
