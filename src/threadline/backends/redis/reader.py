"""What is read of threads, checkpoints and chunks; each of these is one script, atomic on its pool.

A list over all threads asks every pool for the places of its newest checkpoints, keeps the newest of all, and
then reads these: what it costs grows with the number of pools, not with the length of their histories.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ...namespaces import ROOT
from ..hidden import HIDDEN, is_hidden
from ..port import Asking, CheckpointKey, CheckpointKeys, Found, Query, ThreadRow, WriteRow
from ..rules import asks, write_order
from .directory import Directory
from .heirs import CHILDREN, WALK
from .layout import (
    Entry,
    Keys,
    chunk_of,
    decoded,
    encoded,
    escaped,
    head_of,
    index_parts,
    optional,
    place_of,
    thread_of,
    unpack_checkpoint,
    unpack_write,
)
from .link import Link
from .scripts import CHAIN, CHUNK_HEADS, FIND, MISSING, PAGE, POOL_PLACES, ROWS, THREAD, THREAD_WRITES, Script

__all__ = ["RedisReader", "batches"]

T = TypeVar("T")
Spot = tuple[str, str, bytes]  # checkpoint id, thread, place
_BATCH = 1000
_POOLS_AT_ONCE = 64
# The doubts of a process (link.py) stand above the epoch of a pool, which is a time in milliseconds at first.
_DOUBT_SHIFT = 48


class RedisReader:
    """The half of the Backend port that reads threads."""

    def __init__(self, link: Link, keys: Keys, directory: Directory) -> None:
        self.link = link
        self.keys = keys
        self.directory = directory

    def known_epoch(self, epoch: Any) -> int:
        """An epoch as callers see it: it passes when the pool's does, and when the server is doubted."""
        return int(epoch or 0) + (self.link.sight.doubts << _DOUBT_SHIFT)

    async def _on_thread(self, script: Script, thread_id: str, *args: Any) -> tuple[int, Any]:
        """The answer of a script of a thread, and its pool; None where the thread does not live."""
        argv = [encoded(thread_id), *args]
        pool = self.directory.remembered(thread_id)
        if pool is not None:
            answer = await self.link.call(script, self.keys.pool(pool), argv)
            if answer is not None:
                return pool, answer
            self.directory.forget(thread_id)
        while True:
            entry = await self.directory.entry(thread_id)
            if entry is None:
                return 0, None
            answer = await self.link.call(script, self.keys.pool(entry.pool), argv)
            if answer is not None:
                self.directory.remember(thread_id, entry.pool)
                return entry.pool, answer
            # It may have been deleted and begun anew elsewhere between the two reads.
            if await self.directory.entry(thread_id) == entry:
                return 0, None

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        args = (escaped(namespace), optional(checkpoint_id), int(with_writes))
        pool, answer = await self._on_thread(FIND, thread_id, *args)
        if answer is None or len(answer) < 2 or answer[1] is None:
            return None
        return self._found(thread_id, pool, answer[0], answer[1])

    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        found: list[Found] = []
        for part in batches(thread_ids, _BATCH):
            values = await self.link.batch([("GET", self.keys.directory(thread_id)) for thread_id in part])
            there = [(one, Entry.unpacked(value).pool) for one, value in zip(part, values, strict=True) if value]
            args = (escaped(namespace), b"", 0)
            calls = [(FIND, self.keys.pool(pool), [encoded(thread_id), *args]) for thread_id, pool in there]
            answers = await self.link.calls(calls) if calls else []
            for (thread_id, pool), answer in zip(there, answers, strict=True):
                if answer is not None and len(answer) > 1 and answer[1] is not None:
                    found.append(self._found(thread_id, pool, answer[0], answer[1]))
        return found

    async def page(self, query: Query) -> list[Found]:
        if query.thread_id is None:
            return await self._page_of_all(query)
        after = query.after
        # The thread's own place in the order decides whether the rest of the last id is before or after it.
        own = encoded(query.thread_id)
        if after is not None and encoded(after[1]) != own:
            last_namespace = None if encoded(after[1]) < own else "\U0010ffff" * 3
        else:
            last_namespace = after[2] if after is not None else None
        spoken = b"=" + escaped(last_namespace) if last_namespace is not None else b""
        args = [int(query.with_writes), spoken, query.limit, *_wanted(query, query.limit + 1)]
        pool, answer = await self._on_thread(PAGE, query.thread_id, *args)
        if answer is None:
            return []
        return [self._found(query.thread_id, pool, answer[0], one) for one in answer[1:]]

    async def walk(
        self, thread_id: str, after: CheckpointKey | None, limit: int, *, with_writes: bool = False
    ) -> list[Found]:
        args = (int(with_writes), b"=" + place_of(*after) if after is not None else b"", limit)
        pool, answer = await self._on_thread(WALK, thread_id, *args)
        return [self._found(thread_id, pool, answer[0], one) for one in answer[1:]] if answer is not None else []

    async def _page_of_all(self, query: Query) -> list[Found]:
        found: list[Found] = []
        after = query.after
        while len(found) < query.limit:
            spots = await self._newest_spots(query, after)
            found += await self._at(spots, query.with_writes)
            if len(spots) < query.limit:
                return found[: query.limit]
            # Some may have been deleted since; a short page would look like the last one.
            last_id, last_thread, place = spots[-1]
            after = (last_id, last_thread, decoded(place[: -len(encoded(last_id)) - 1].replace(b"\0\xff", b"\0")))
        return found[: query.limit]

    async def _newest_spots(self, query: Query, after: tuple[str, str, str] | None) -> list[tuple[str, str, bytes]]:
        """The places of one page over all threads, in order."""
        best: list[tuple[tuple[Any, ...], Spot]] = []
        last = _order(after[0], after[1], place_of(after[2], after[0])) if after is not None else None
        floor: bytes = b""
        async for pools in self._all_pools():
            wanted = _wanted(query, query.limit + 1, floor=floor, after=after)
            for answer in await self.link.calls([(POOL_PLACES, self.keys.pool(pool), wanted) for pool in pools]):
                for thread, place in zip(answer[::2], answer[1::2], strict=True):
                    thread_id, checkpoint_id = decoded(thread), unpack_place(place)
                    key = _order(checkpoint_id, thread_id, place)
                    if (last is None or key > last) and not is_hidden(thread_id):
                        best.append((key, (checkpoint_id, thread_id, place)))
            best = heapq.nsmallest(query.limit, best)
            if len(best) == query.limit:
                floor = b"=" + encoded(best[-1][1][0])
        return [spot for _, spot in best]

    async def _at(self, spots: Sequence[Spot], with_writes: bool) -> list[Found]:
        """The checkpoints at some places, in the same order, without those that are gone."""
        wanted: dict[str, list[bytes]] = defaultdict(list)
        for _, thread_id, place in spots:
            wanted[thread_id].append(place)
        found: dict[tuple[str, bytes], Found] = {}
        for thread_id, places in wanted.items():
            args = (int(with_writes), len(places), *places)
            pool, answer = await self._on_thread(ROWS, thread_id, *args)
            for one in answer[1:] if answer is not None else ():
                found[thread_id, one[0]] = self._found(thread_id, pool, answer[0], one)
        return [found[thread_id, place] for _, thread_id, place in spots if (thread_id, place) in found]

    async def _all_pools(self) -> Any:
        """The numbers of all pools, some at a time."""
        low: bytes = b"-inf"
        while True:
            words = ("ZRANGEBYSCORE", self.keys.pools, low, b"+inf", "LIMIT", 0, _POOLS_AT_ONCE)
            pools = [int(pool) for pool in await self.link.command(*words)]
            if pools:
                yield pools
            if len(pools) < _POOLS_AT_ONCE:
                return
            low = b"(%d" % pools[-1]

    async def chain(self, thread_id: str, namespace: str, checkpoint_id: str, limit: int) -> list[Found]:
        args = (escaped(namespace), optional(checkpoint_id), limit)
        pool, answer = await self._on_thread(CHAIN, thread_id, *args)
        return [self._found(thread_id, pool, answer[0], one) for one in answer[1:]] if answer is not None else []

    async def children(self, thread_id: str, keys: CheckpointKeys) -> list[Found]:
        found: list[Found] = []
        for part in batches([head_of(*key) for key in keys], _BATCH):
            pool, answer = await self._on_thread(CHILDREN, thread_id, *part)
            found += [self._found(thread_id, pool, answer[0], one) for one in answer[1:]] if answer is not None else []
        return found

    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        _, answer = await self._on_thread(THREAD_WRITES, thread_id)
        return _writes(answer) if answer is not None else []

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        key = self.keys.of(pool, "chunks")
        found: list[tuple[bytes, bytes, int, bytes]] = []
        parts = list(batches(digests, _BATCH))
        answers = await self.link.batch([("HMGET", key, *part) for part in parts])
        for part, values in zip(parts, answers, strict=True):
            found += [(digest, *chunk_of(value)) for digest, value in zip(part, values, strict=True) if value]
        return found

    async def missing(self, pool: int, digests: Sequence[bytes]) -> set[bytes]:
        absent: set[bytes] = set()
        for part in batches(digests, _BATCH):
            absent.update(await self.link.call(MISSING, self.keys.pool(pool), part))
        return absent

    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for part in batches(digests, _BATCH):
            heads = await self.link.call(CHUNK_HEADS, self.keys.pool(pool), part)
            found.update({digest: links for digest, links, _, _ in heads})
        return found

    async def thread(self, thread_id: str) -> ThreadRow | None:
        pool = self.directory.remembered(thread_id)
        if pool is not None:
            row = await self._row(thread_id, pool)
            if row is not None and row.status not in ("deleted", "moved"):
                return row
            self.directory.forget(thread_id)
        while True:
            entry = await self.directory.entry(thread_id)
            if entry is None:
                return None
            row = await self._row(thread_id, entry.pool)
            if row is not None and row.status not in ("deleted", "moved"):
                self.directory.remember(thread_id, entry.pool)
                return row
            if await self.directory.entry(thread_id) == entry:
                return self._buried(thread_id, entry, row)

    def _buried(self, thread_id: str, entry: Entry, row: ThreadRow | None) -> ThreadRow | None:
        """What is known of a thread that does not live: its tombstone, wherever its last deletion is noted."""
        before = (row.deleted_before if row is not None else None) or entry.before
        if before is None:
            return None
        if row is not None:
            return row._replace(status="deleted", deleted_before=before)
        return ThreadRow(thread_id, entry.ticket, entry.pool, 0, "deleted", before, None, 0.0, 0.0, None, "[]", b"")

    async def _row(self, thread_id: str, pool: int) -> ThreadRow | None:
        answer = await self.link.call(THREAD, self.keys.pool(pool), [encoded(thread_id)])
        if not answer or answer[0] is None:
            return None
        return thread_of(thread_id, pool, self.known_epoch(answer[1]), answer[0])

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        found: list[ThreadRow] = []
        async for rows in self._living(after, prefix, max(limit, 16)):
            found += rows
            if len(found) >= limit:
                return found[:limit]
        return found

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        found: list[Asking] = []
        async for rows in self._living(after, prefix, max(limit, 16), self.keys.asking):
            args = (escaped(ROOT), b"", 1)
            calls = [(FIND, self.keys.pool(row.pool), [encoded(row.thread_id), *args]) for row in rows]
            for row, answer in zip(rows, await self.link.calls(calls) if calls else [], strict=True):
                if answer is not None and len(answer) > 1 and answer[1] is not None:
                    writes = _writes(answer[1][2:])
                    if any(map(asks, writes)):
                        found.append(Asking(row, writes))
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
            words = ("ZRANGEBYLEX", index or self.keys.threads, low, high, "LIMIT", 0, min(most, _BATCH))
            members = await self.link.command(*words)
            yield await self._rows_of(members)
            if len(members) < min(most, _BATCH):
                return
            low = b"(" + members[-1]

    async def _rows_of(self, members: Sequence[bytes]) -> list[ThreadRow]:
        lives = [index_parts(member) for member in members]
        commands: list[Sequence[Any]] = []
        for thread_id, _, pool in lives:
            commands.append(("HGET", self.keys.of(pool, "threads"), encoded(thread_id)))
            commands.append(("HGET", self.keys.of(pool, "pool"), "epoch"))
        answers = await self.link.batch(commands)
        rows: list[ThreadRow] = []
        for (thread_id, ticket, pool), value, epoch in zip(lives, answers[::2], answers[1::2], strict=True):
            row = thread_of(thread_id, pool, self.known_epoch(epoch), value) if value is not None else None
            if row is not None and row.serial == ticket and row.status not in ("deleted", "moved"):
                rows.append(row)
        return rows

    def _found(self, thread_id: str, pool: int, epoch: Any, shown: Sequence[bytes]) -> Found:
        row = unpack_checkpoint(shown[0], shown[1])
        return Found(thread_id, pool, self.known_epoch(epoch), row, _writes(shown[2:]))


def batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def unpack_place(place: bytes) -> str:
    """The checkpoint id of a place."""
    at = place.index(b"\0")
    while place[at + 1 : at + 2] == b"\xff":
        at = place.index(b"\0", at + 2)
    return decoded(place[at + 1 :])


def _writes(flat: Sequence[bytes]) -> list[WriteRow]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    writes = [unpack_write(place, value) for place, value in pairs]
    writes.sort(key=lambda write: write_order(write.task_path, write.task_id, write.idx))
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
