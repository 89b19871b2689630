"""The Backend port on Redis: which script a change becomes, and what its answer means.

Every change of a pool is one script. Changes of several pools are one script too on a single server; a cluster
cannot run it, and refuses them before anything is changed. Collecting marks without a lock and deletes only if no
change came between; a pool that is written all the time is closed to writers for as long as one marking takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ...drive import Clock
from ...errors import InvalidRequest, NotFound, Unavailable
from ..port import (
    Applied,
    Change,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Stale,
    ThreadRow,
    WriteRow,
)
from ..rules import (
    asked_at,
    mark,
    no_parent_row,
    own_words,
    refuse_if_closed,
    refuse_if_head_moved,
    refuse_if_lease_lost,
    refuse_if_not_first,
)
from .directory import Directory
from .layout import (
    POOL_KEYS,
    Entry,
    Keys,
    decoded,
    encoded,
    escaped,
    head_of,
    index_member,
    optional,
    pack_checkpoint,
    pack_chunk,
    pack_write,
    place_of,
    thread_of,
    write_place_of,
)
from .link import Doubted, Link
from .survey import RedisSurvey
from .writing import (
    APPLY,
    COLLECT,
    REMOVE_CHECKPOINTS,
    REMOVE_THREAD,
    REWRAP,
    SHUT,
    SWAP_FIELD,
    SWAP_LEASE,
    SWAP_THREAD,
)

__all__ = ["RedisBackend"]

# How often a change follows a thread that others begin, delete and fork all the time.
_MOST_MOVES = 100
_GATE_PAUSE_SECONDS = 0.02
_GATE_PATIENCE_SECONDS = 20.0
# How often collecting lets a writer come between, and for how long it keeps them out then.
_FREE_TRIES = 3
_GATE_MS = (2_000, 8_000, 30_000)
_CHUNKS_FIELD, _ROWS_FIELD, _WRITES_FIELD = (POOL_KEYS.index(name) + 1 for name in ("chunks", "rows", "writes"))
_STALE = Stale((0, 0))


class Place(NamedTuple):
    """Where a change is sent; with a ticket it may begin its thread there."""

    pool: int
    ticket: int = 0
    before: str | None = None
    lease: bytes | None = None
    entry: Entry | None = None  # what the directory said; None if it was not asked


class RedisBackend(RedisSurvey):
    """Records in the keys of one prefix."""

    def __init__(self, link: Link, keys: Keys, directory: Directory, *, clock: Clock, ttl: float | None) -> None:
        super().__init__(link, keys, directory)
        self._clock = clock
        self._ttl_ms = max(1, int(ttl * 1000)) if ttl else 0

    async def setup(self) -> None:
        return None  # the engine has done it before the first call

    async def compact(self) -> None:
        """Drop entries of threads that have expired; the server gives memory back by itself."""
        for _ in range(64 if self._ttl_ms else 0):
            await self.directory.sweep()

    # -- changes

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        if not changes:
            return []
        places: dict[str, Place] = {}
        deadline = self._clock.now() + _GATE_PATIENCE_SECONDS
        for _ in range(_MOST_MOVES):
            for change in changes:
                if change.thread_id not in places:
                    place = await self._place(change)
                    if place is None:
                        return [_STALE for _ in changes]
                    places[change.thread_id] = place
            doubts = self.link.sight.doubts
            if any(change.stamp is not None and change.stamp[1] >> 48 != doubts for change in changes):
                return [_STALE for _ in changes]
            for change in changes:
                if asked_at(change) is not None:
                    await self._list_as_asking(change.thread_id, places[change.thread_id])
            try:
                answer = await self._send(changes, places, doubts)
            except Doubted:
                # Teach the script to whoever answers there now, by a call that changes nothing.
                await self.link.call(APPLY, self.keys.pool(places[changes[0].thread_id].pool), [0, 0, 0])
                continue
            kind = answer[0]
            if kind == b"ok":
                return self._acknowledged(changes, places, answer[1:])
            if kind == b"stale":
                return [Stale((int(answer[1]), self.known_epoch(answer[2]))) for _ in changes]
            change = changes[int(answer[1]) - 1]
            if kind == b"busy":
                await self._wait_for_collector(change, deadline)
            elif kind == b"unformatted":
                await self.directory.open_again()
                places.pop(change.thread_id)
            elif kind == b"again":
                moved = await self._moved(change, places.pop(change.thread_id), answer[2] if len(answer) > 2 else None)
                if moved is not None:
                    places[change.thread_id] = moved
            elif kind == b"unjoined":
                origin = await self.thread(change.joins or "")
                if origin is None or origin.status == "deleted":
                    raise NotFound(f"there is no thread {change.joins!r}")
                places.pop(change.thread_id)
            else:
                self._refuse(kind, change, places[change.thread_id], answer[2:])
        raise Unavailable(f"the thread {changes[0].thread_id!r} was deleted and begun again and again; try again")

    async def _place(self, change: Change) -> Place | None:
        """Where a thread lives or may begin; None when a change relies on a thread that is not there."""
        pool = self.directory.remembered(change.thread_id)
        if pool is not None:
            return Place(pool)
        while True:
            entry = await self.directory.entry(change.thread_id)
            origin = await self._origin(change) if change.joins is not None else None
            if entry is not None:
                # A thread may begin in a pool of its own, or in that of the thread it joins; elsewhere only live.
                may_begin = entry.pool == (origin.pool if origin is not None else entry.ticket)
                return Place(entry.pool, entry.ticket if may_begin else 0, entry.before, None, entry)
            if change.joins is None and change.stamp is not None:
                return None
            if self._ttl_ms:
                await self.directory.sweep()
            entry = await self.directory.enter(change.thread_id, pool=origin.pool if origin is not None else None)
            if entry is not None:
                return Place(entry.pool, entry.ticket, None, None, entry)

    async def _moved(self, change: Change, place: Place, raw: bytes | None) -> Place | None:
        """Where a thread goes that does not live where it was looked for; None: ask again."""
        self.directory.forget(change.thread_id)
        entry = place.entry
        if entry is None or await self.directory.entry(change.thread_id) != entry:
            return None
        if raw is not None:
            found = thread_of(change.thread_id, place.pool, 0, raw)
            refuse_if_closed(found._replace(status="deleted"), change)
        origin = await self._origin(change) if change.joins is not None else None
        left = await self.directory.leave(change.thread_id, entry)
        if left is None:
            return None
        pool = origin.pool if origin is not None else None
        made = await self.directory.enter(change.thread_id, pool=pool, before=left.before, instead_of=entry)
        if made is None:
            return None
        await self.directory.unlist(change.thread_id, entry, is_empty=entry.pool == entry.ticket and raw is None)
        return Place(made.pool, made.ticket, left.before, left.lease, made)

    async def _list_as_asking(self, thread_id: str, place: Place) -> None:
        """Before the question: the index may hold what never comes to be, and must not lack what is."""
        row = await self._row(thread_id, place.pool)
        is_there = row is not None and row.status not in ("deleted", "moved")
        ticket = row.serial if row is not None and is_there else place.ticket
        await self.link.command("ZADD", self.keys.asking, 0, index_member(thread_id, ticket, place.pool))

    async def _origin(self, change: Change) -> ThreadRow:
        assert change.joins is not None
        origin = await self.thread(change.joins)
        if origin is None or origin.status == "deleted":
            raise NotFound(f"there is no thread {change.joins!r}")
        return origin

    async def _send(self, changes: Sequence[Change], places: dict[str, Place], doubts: int) -> Any:
        pools = sorted({place.pool for place in places.values()})
        if len(pools) > 1 and self.link.is_cluster:
            raise InvalidRequest(
                "a cluster cannot change several threads in one piece unless they share a pool: put them one by one"
            )
        keys = [key for pool in pools for key in self.keys.pool(pool)]
        # A thread begins only where the store has its format. On a cluster that record is in another slot: there it is
        # asked for when the thread gets its number.
        begins = not self.link.is_cluster and any(places[change.thread_id].ticket for change in changes)
        keys += [self.keys.meta] if begins else []
        args: list[Any] = [self._ttl_ms, len(changes), len(keys) if begins else 0]
        for change in changes:
            place = places[change.thread_id]
            args += _arguments(change, place, pools.index(place.pool) + 1)
        relies = any(change.stamp is not None for change in changes)
        return await self.link.call(APPLY, keys, args, doubting=doubts if relies else -1)

    def _acknowledged(
        self, changes: Sequence[Change], places: dict[str, Place], epochs: Sequence[bytes]
    ) -> list[Applied | Stale]:
        for change in changes:
            self.directory.remember(change.thread_id, places[change.thread_id].pool)
        return [
            Applied((places[change.thread_id].pool, self.known_epoch(epoch)))
            for change, epoch in zip(changes, epochs, strict=True)
        ]

    async def _wait_for_collector(self, change: Change, deadline: float) -> None:
        if self._clock.now() > deadline:
            raise Unavailable(f"the chunks of thread {change.thread_id!r} are being collected; try again")
        await self._clock.sleep(_GATE_PAUSE_SECONDS)

    def _refuse(self, kind: bytes, change: Change, place: Place, rest: Sequence[bytes]) -> None:
        """Raise what a refusal of the script means, in the words of every backend."""
        if kind == b"closed":
            refuse_if_closed(thread_of(change.thread_id, place.pool, int(rest[0]), rest[1]), change)
        elif kind == b"deleted":
            refuse_if_closed(_tombstone(change.thread_id, place.pool, decoded(rest[0][1:])), change)
        elif kind == b"lease":
            refuse_if_lease_lost(change, None)
        elif kind == b"head":
            refuse_if_head_moved(change, decoded(rest[0][1:]) if rest[0] else None)
        elif kind == b"first":
            refuse_if_not_first(change.firsts[int(rest[0])], b"")
        raise no_parent_row(change)

    # -- deletion

    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        args = (optional(deleted_before), repr(now))
        pool, answer = await self._on_thread(REMOVE_THREAD, thread_id, *args)
        if answer is None:
            return
        self.directory.forget(thread_id)
        serial, living = answer
        entry = Entry(pool, int(serial), None)
        await self.directory.unlist(thread_id, entry, is_empty=int(living) <= 0)

    async def remove_checkpoints(
        self,
        thread_id: str,
        keys: CheckpointKeys,
        settled: CheckpointKeys = (),
        *,
        seen: CheckpointKeys | None = None,
        guarded: CheckpointKeys = (),
    ) -> int | None:
        looked = [head_of(*key) for key in (*keys, *settled, *guarded)] if seen is not None else []
        there = [place_of(*key) for key in seen or ()]
        places = [place_of(*key) for key in keys]
        emptied = [head_of(*key) for key in (*keys, *settled)]
        args = [len(looked), *looked, len(there), *there, len(places), *places, *emptied]
        _, removed = await self._on_thread(REMOVE_CHECKPOINTS, thread_id, *args)
        return None if removed == -1 else int(removed or 0)

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        keys = self.keys.pool(pool)
        for patience in (*(0 for _ in range(_FREE_TRIES)), *_GATE_MS):
            version = await self.link.call(SHUT, keys, [patience])
            await mark(await self.pool_links(pool), reachable, partial(self.links, pool))
            doomed = [digest for digest in candidates if digest not in reachable]
            if not doomed:
                if patience:
                    await self.link.command("DEL", self.keys.of(pool, "gate"))
                return 0
            if await self.link.call(COLLECT, keys, [version, *doomed]):
                return len(doomed)
        raise Unavailable(f"pool {pool} was written again and again while it was collected; try again")

    # -- swaps

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        args: list[Any] = [encoded(before.thread_id), self._ttl_ms, int((after.expires or 0.0) * 1000)]
        args += _words(before)
        args += _words(after)[1:]
        return bool(await self.link.call(SWAP_THREAD, self.keys.pool(before.pool), args))

    async def get_lease(self, thread_id: str) -> bytes | None:
        entry = await self.directory.entry(thread_id)
        if entry is None:
            return None
        record: bytes | None = await self.link.command("HGET", self.keys.of(entry.pool, "leases"), encoded(thread_id))
        return record

    async def swap_lease(self, thread_id: str, before: bytes | None, after: bytes | None) -> bool:
        was, becomes = (b"=" + record if record is not None else b"" for record in (before, after))
        for _ in range(_MOST_MOVES):
            entry = await self.directory.entry(thread_id)
            if entry is None:
                if after is None or before is not None:
                    return after is None
                entry = await self.directory.enter(thread_id)
                if entry is None:
                    continue
            args = [encoded(thread_id), self._ttl_ms, was, becomes]
            swapped = int(await self.link.call(SWAP_LEASE, self.keys.pool(entry.pool), args))
            if swapped >= 0:
                return swapped == 1
            await self._bring_home(thread_id, entry)
        raise Unavailable(f"the thread {thread_id!r} was deleted and begun again and again; try again")

    async def _bring_home(self, thread_id: str, entry: Entry) -> None:
        """Finish a move that somebody began and did not end, so that the thread's lease has a place."""
        left = await self.directory.leave(thread_id, entry)
        made = await self.directory.enter(thread_id, before=left.before, instead_of=entry) if left else None
        if made is not None and left is not None and left.lease is not None:
            args = [encoded(thread_id), self._ttl_ms, b"", b"=" + left.lease]
            await self.link.call(SWAP_LEASE, self.keys.pool(made.pool), args)

    async def get_meta(self, key: str) -> bytes | None:
        record: bytes | None = await self.link.command("HGET", self.keys.meta, optional(key))
        return record

    async def meta_keys(self, prefix: str) -> list[str]:
        head = optional(prefix)
        fields: list[bytes] = await self.link.command("HKEYS", self.keys.meta)
        return sorted(field[1:].decode() for field in fields if field.startswith(head))

    async def swap_meta(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        was, becomes = (b"=" + record if record is not None else b"" for record in (before, after))
        swapped = -1
        while swapped < 0:
            swapped = int(await self.link.call(SWAP_FIELD, [self.keys.meta], [optional(key), was, becomes]))
            if swapped < 0:
                await self.directory.open_again()
        return swapped == 1

    # -- new bytes for the same things

    async def rewrap_chunks(self, pool: int, rows: Sequence[tuple[ChunkRow, ChunkRow]]) -> None:
        args: list[Any] = [b""]
        for old, new in rows:
            args += [_CHUNKS_FIELD, old.digest, pack_chunk(*old[1:]), pack_chunk(*new[1:])]
        await self.link.call(REWRAP, self.keys.pool(pool), args)

    async def rewrap_rows(
        self,
        thread_id: str,
        checkpoints: Sequence[tuple[CheckpointRow, CheckpointRow]],
        writes: Sequence[tuple[WriteRow, WriteRow]],
    ) -> None:
        thread = await self.thread(thread_id)
        if thread is None or thread.status == "deleted":
            return
        args: list[Any] = [b"=" + encoded(thread_id)]
        for old, new in checkpoints:
            args += [_ROWS_FIELD, place_of(old.namespace, old.id), pack_checkpoint(old), pack_checkpoint(new)]
        for was, now in writes:
            args += [_WRITES_FIELD, write_place_of(was), pack_write(was), pack_write(now)]
        await self.link.call(REWRAP, self.keys.pool(thread.pool), args)


def _arguments(change: Change, place: Place, number: int) -> list[Any]:
    """A change as the script APPLY takes it."""
    stamp = change.stamp
    head = change.head
    args: list[Any] = [
        number,
        place.pool,
        encoded(change.thread_id),
        place.ticket,
        optional(place.before),
        b"=" + place.lease if place.lease is not None else b"",
        repr(change.now),
        b"%d:%d" % (stamp[0], stamp[1] & ((1 << 48) - 1)) if stamp is not None else b"",
        optional(change.continues),
        int(change.begins),
        optional(change.joins),
        optional(change.beginning[0]),
        repr(change.beginning[1]),
        b"=" + escaped(head[0]) if head is not None else b"",
        optional(head[1]) if head is not None else b"",
        b"=" + change.lease if change.lease is not None else b"",
        len(change.chunks),
        len(change.checkpoints),
        len(change.writes),
        len(change.witnesses),
        len(change.firsts),
    ]
    for chunk in change.chunks:
        args += [chunk.digest, pack_chunk(chunk.links, chunk.form, chunk.data)]
    for row in change.checkpoints:
        args += [place_of(row.namespace, row.id), pack_checkpoint(row)]
    for write in change.writes:
        args += [write_place_of(write), int(write.replaces), pack_write(write)]
    for witness in change.witnesses:
        args += [place_of(witness.namespace, witness.id), repr(witness.created)]
    for write in change.firsts:
        args += [write_place_of(write), pack_write(write)]
    return args


def _words(row: ThreadRow) -> list[bytes]:
    """What people and policies set of a thread, as fields."""
    serial, status, expires, tags, metadata = own_words(row)
    return [b"%d" % serial, encoded(status), optional(expires), encoded(tags), metadata]


def _tombstone(thread_id: str, pool: int, before: str) -> ThreadRow:
    return ThreadRow(thread_id, 0, pool, 0, "deleted", before, None, 0.0, 0.0, None, "[]", b"")
