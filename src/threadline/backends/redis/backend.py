"""Changes of checkpoints and threads: which script a change becomes, and what its answer means.

Every change of a pool is one script. Changes of several pools are one script too on a single server; a cluster cannot
run it, and refuses them before anything is changed. Garbage collection marks without a lock and deletes only if no
change came between; a pool that is written all the time is closed to writers for as long as one marking takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ...base.drive import Clock
from ...errors import InvalidRequest, NotFound, Unavailable
from ...ports.checkpoints import (
    Applied,
    Change,
    CheckpointKeys,
    CheckpointRow,
    ChunkRow,
    Guard,
    Pairs,
    Stale,
    ThreadRow,
    WriteRow,
)
from ...ports.rules import (
    asked_at,
    mark,
    no_parent_row,
    own_words,
    refuse_if_closed,
    refuse_if_head_moved,
    refuse_if_lease_lost,
    refuse_if_not_first,
)
from ...ports.whole import WithoutWholes
from ..server import GENERATION_SHIFT
from .directory import Directory
from .errors import NewGeneration
from .keys import (
    POOL_KEYS,
    Entry,
    Keys,
    decoded,
    encoded,
    escaped,
    head_of,
    index_member,
    lives,
    optional,
    pack_checkpoint,
    pack_chunk,
    pack_fields,
    pack_write,
    place_of,
    thread_of,
    tombstone,
    write_place_of,
)
from .reader import RedisReader
from .scans import RedisScans
from .wire import Link

__all__ = ["RedisBackend"]

# How often a change follows a thread that other writers begin, delete and fork meanwhile.
_MOST_MOVES = 100
_GATE_PAUSE_SECONDS = 0.02
_GATE_PATIENCE_SECONDS = 20.0
# How often collecting lets a writer come between, and for how long it keeps them out then.
_FREE_TRIES = 3
_GATE_MS = (2_000, 8_000, 30_000)
_CHUNKS_FIELD, _ROWS_FIELD, _WRITES_FIELD = (POOL_KEYS.index(name) + 1 for name in ("chunks", "rows", "writes"))
_STALE = Stale((0, 0))
# The part of a stamp below the generation.
_EPOCH = (1 << GENERATION_SHIFT) - 1


class Address(NamedTuple):
    """The pool that a change is sent to; with a ticket the change may begin its thread there."""

    pool: int
    ticket: int = 0
    before: str | None = None
    lease: bytes | None = None
    entry: Entry | None = None  # of the directory; None if it was not asked


class RedisBackend(WithoutWholes):
    """The part of the ports that changes checkpoints and threads."""

    def __init__(
        self,
        link: Link,
        keys: Keys,
        directory: Directory,
        reader: RedisReader,
        scans: RedisScans,
        *,
        clock: Clock,
        ttl: float | None,
    ) -> None:
        self._link = link
        self._keys = keys
        self._directory = directory
        self._reader = reader
        self._scans = scans
        self._clock = clock
        self._ttl_ms = max(1, int(ttl * 1000)) if ttl else 0

    async def setup(self) -> None:
        return None  # the engine has done it before the first call

    async def compact(self) -> None:
        """Drop entries of threads that have expired; the server gives memory back by itself."""
        for _ in range(64 if self._ttl_ms else 0):
            await self._directory.sweep()

    # -- changes

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        if not changes:
            return []
        if len(changes) == 1:
            pool = self._directory.remembered(changes[0].thread_id)
            applied = await self._apply_known(changes[0], pool) if pool is not None else None
            if applied is not None:
                return [applied]
        addresses: dict[str, Address] = {}
        deadline = self._clock.now() + _GATE_PATIENCE_SECONDS
        for _ in range(_MOST_MOVES):
            for change in changes:
                if change.thread_id not in addresses:
                    address = await self._address(change)
                    if address is None:
                        return [_STALE for _ in changes]
                    addresses[change.thread_id] = address
            generation = self._link.identity.generation
            if any(change.stamp and change.stamp[1] >> GENERATION_SHIFT != generation for change in changes):
                return [_STALE for _ in changes]
            for change in changes:
                if asked_at(change) is not None:
                    await self._list_as_asking(change.thread_id, addresses[change.thread_id])
            try:
                answer = await self._send(changes, addresses, generation)
            except NewGeneration:
                await self._teach(addresses[changes[0].thread_id].pool)
                continue
            if answer[0] == b"ok":
                return self._acknowledged(changes, addresses, answer[1:], generation)
            if answer[0] == b"stale":
                return [Stale((int(answer[1]), self._link.stamped(answer[2]))) for _ in changes]
            await self._look_again(answer[0], changes[int(answer[1]) - 1], addresses, answer[2:], deadline)
        raise Unavailable(
            f"put to thread {changes[0].thread_id!r} failed after {_MOST_MOVES} attempts: the thread was deleted and "
            f"begun anew, or its server lost, during each of them; retry"
        )

    async def _apply_known(self, change: Change, pool: int) -> Applied | None:
        """Make a change of a thread where it was last seen; None where it did not apply, and nothing was changed."""
        generation, stamp = self._link.identity.generation, change.stamp
        if (stamp is not None and stamp[1] >> GENERATION_SHIFT != generation) or asked_at(change) is not None:
            return None
        args = [self._ttl_ms, 1, 0, *_arguments(change, Address(pool), 1)]
        relies_on = generation if stamp is not None else None
        try:
            answer = await self._link.call("apply", self._keys.pool(pool), args, generation=relies_on)
        except NewGeneration:
            await self._teach(pool)
            return None
        # Stamped with the generation of the attempt: the server that acknowledged it may be lost already.
        return Applied((pool, self._link.stamped(answer[1], generation))) if answer[0] == b"ok" else None

    async def _teach(self, pool: int) -> None:
        """Teach the script to the server that answers now, by a call that changes nothing."""
        await self._link.call("apply", self._keys.pool(pool), [0, 0, 0])

    async def _look_again(
        self, kind: bytes, change: Change, addresses: dict[str, Address], rest: Sequence[bytes], deadline: float
    ) -> None:
        """After the script refused a change: prepare the next attempt, or raise what the refusal means."""
        if kind == b"busy":
            if self._clock.now() > deadline:
                raise Unavailable(f"the chunks of thread {change.thread_id!r} are being collected; try again")
            await self._clock.sleep(_GATE_PAUSE_SECONDS)
            return
        if kind not in (b"unformatted", b"again", b"unjoined"):
            self._refuse(kind, change, addresses[change.thread_id], rest)
        address = addresses.pop(change.thread_id)
        if kind == b"unformatted":
            await self._directory.reopen()
        elif kind == b"unjoined":
            await self._origin(change)
        else:
            moved = await self._moved(change, address, rest[0] if rest else None)
            if moved is not None:
                addresses[change.thread_id] = moved

    async def _address(self, change: Change) -> Address | None:
        """Where the thread of a change lives or may begin; None when the change relies on a thread that is gone."""
        pool = self._directory.remembered(change.thread_id)
        if pool is not None:
            return Address(pool)
        if change.joins is None and change.stamp is None:
            if self._ttl_ms and await self._directory.entry(change.thread_id) is None:
                # Before there is an entry: it would be one without a pool.
                await self._directory.sweep()
            made = await self._directory.entry_or_new(change.thread_id)
            return Address(made.pool, made.ticket if made.pool == made.ticket else 0, made.before, None, made)
        while True:
            entry = await self._directory.entry(change.thread_id)
            origin = await self._origin(change) if change.joins is not None else None
            if entry is not None:
                # A thread may begin in a pool of its own, or in that of the thread it joins; elsewhere only live.
                may_begin = entry.pool == (origin.pool if origin is not None else entry.ticket)
                return Address(entry.pool, entry.ticket if may_begin else 0, entry.before, None, entry)
            if origin is None:
                return None
            entry = await self._directory.enter(change.thread_id, pool=origin.pool)
            if entry is not None:
                return Address(entry.pool, entry.ticket, None, None, entry)

    async def _moved(self, change: Change, address: Address, raw: bytes | None) -> Address | None:
        """Where a thread goes that does not live where it was looked for; None: ask again."""
        self._directory.forget(change.thread_id)
        entry = address.entry
        if entry is None or await self._directory.entry(change.thread_id) != entry:
            return None
        if raw is not None:
            found = thread_of(change.thread_id, address.pool, 0, raw)
            refuse_if_closed(found._replace(status="deleted"), change)
        origin = await self._origin(change) if change.joins is not None else None
        left = await self._directory.leave(change.thread_id, entry)
        if left is None:
            return None
        pool = origin.pool if origin is not None else None
        made = await self._directory.enter(change.thread_id, pool=pool, before=left.before, instead_of=entry)
        if made is None:
            return None
        await self._directory.unlist(change.thread_id, entry, is_empty=entry.pool == entry.ticket and raw is None)
        return Address(made.pool, made.ticket, left.before, left.lease, made)

    async def _list_as_asking(self, thread_id: str, address: Address) -> None:
        """Comes before the question: the index may hold a thread that asks nothing, and must not lack one that asks."""
        row = await self._directory.row(thread_id, address.pool)
        ticket = row.serial if row is not None and lives(row) else address.ticket
        await self._link.command("ZADD", self._keys.asking, 0, index_member(thread_id, ticket, address.pool))

    async def _origin(self, change: Change) -> ThreadRow:
        assert change.joins is not None
        origin = await self._reader.thread(change.joins)
        if origin is None or origin.status == "deleted":
            raise NotFound(f"there is no thread {change.joins!r}")
        return origin

    async def _send(self, changes: Sequence[Change], addresses: dict[str, Address], generation: int) -> Any:
        pools = sorted({address.pool for address in addresses.values()})
        if len(pools) > 1 and self._link.is_cluster:
            raise InvalidRequest(
                "a cluster cannot change several threads in one piece unless they share a pool: put them one by one"
            )
        keys = [key for pool in pools for key in self._keys.pool(pool)]
        # A thread begins only where the store has its format. On a cluster that record is in another slot: there it is
        # asked for when the thread gets its number.
        begins = not self._link.is_cluster and any(addresses[change.thread_id].ticket for change in changes)
        keys += [self._keys.meta] if begins else []
        args: list[Any] = [self._ttl_ms, len(changes), len(keys) if begins else 0]
        for change in changes:
            address = addresses[change.thread_id]
            args += _arguments(change, address, pools.index(address.pool) + 1)
        relies = any(change.stamp is not None for change in changes)
        return await self._link.call("apply", keys, args, generation=generation if relies else None)

    def _acknowledged(
        self, changes: Sequence[Change], addresses: dict[str, Address], epochs: Sequence[bytes], generation: int
    ) -> list[Applied | Stale]:
        # Stamped with the generation of the attempt: the server that acknowledged it may be lost already.
        for change in changes:
            self._directory.remember(change.thread_id, addresses[change.thread_id].pool)
        return [
            Applied((addresses[change.thread_id].pool, self._link.stamped(epoch, generation)))
            for change, epoch in zip(changes, epochs, strict=True)
        ]

    def _refuse(self, kind: bytes, change: Change, address: Address, rest: Sequence[bytes]) -> None:
        """Raise the error of a refusal, in the words of every backend."""
        if kind == b"closed":
            refuse_if_closed(thread_of(change.thread_id, address.pool, int(rest[0]), rest[1]), change)
        elif kind == b"deleted":
            refuse_if_closed(tombstone(change.thread_id, address.pool, 0, decoded(rest[0][1:])), change)
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
        pool, answer = await self._directory.call("remove_thread", thread_id, *args)
        if answer is None:
            return
        self._directory.forget(thread_id)
        serial, living = answer
        entry = Entry(pool, int(serial), None)
        await self._directory.unlist(thread_id, entry, is_empty=int(living) <= 0)

    async def remove_checkpoints(
        self, thread_id: str, keys: CheckpointKeys, settled: CheckpointKeys = (), guard: Guard | None = None
    ) -> int | None:
        looked = [head_of(*key) for key in (*keys, *settled, *guard.staying)] if guard is not None else []
        there = [place_of(*key) for key in guard.seen] if guard is not None else []
        places = [place_of(*key) for key in keys]
        emptied = [head_of(*key) for key in (*keys, *settled)]
        args = [len(looked), *looked, len(there), *there, len(places), *places, *emptied]
        _, removed = await self._directory.call("remove_checkpoints", thread_id, *args)
        return None if removed == -1 else int(removed or 0)

    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        keys = self._keys.pool(pool)
        for patience in (*(0 for _ in range(_FREE_TRIES)), *_GATE_MS):
            version = await self._link.call("shut", keys, [patience])
            reachable.clear()  # what was followed in another try may point to a pack by now
            await mark(await self._scans.roots(pool), reachable, partial(self._reader.links, pool))
            doomed = [digest for digest in candidates if digest not in reachable]
            if not doomed:
                if patience:
                    await self._link.command("DEL", self._keys.of(pool, "gate"))
                return 0
            if await self._link.call("collect", keys, [version, *doomed]):
                return len(doomed)
        raise Unavailable(f"pool {pool} was written during each attempt to collect its garbage; retry")

    # -- swaps

    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        args: list[Any] = [encoded(before.thread_id), self._ttl_ms, int((after.expires or 0.0) * 1000)]
        args += _words(before)
        args += _words(after)[1:]
        return bool(await self._link.call("swap_thread", self._keys.pool(before.pool), args))

    async def leases(self, thread_id: str | None = None) -> list[bytes]:
        if thread_id is not None:
            entry = await self._directory.entry(thread_id)
            words = ("HGET", self._keys.of(entry.pool, "leases"), encoded(thread_id)) if entry is not None else ()
            record = await self._link.command(*words) if words else None
            return [] if record is None else [record]
        found: list[bytes] = []
        async for pools in self._directory.pools():
            for records in await self._link.batch([("HVALS", self._keys.of(pool, "leases")) for pool in pools]):
                found += records
        return found

    async def swap_lease(self, thread_id: str, before: bytes | None, after: bytes | None) -> bool:
        args = [encoded(thread_id), self._ttl_ms, _given(before), _given(after)]
        for _ in range(_MOST_MOVES):
            entry = await self._directory.entry(thread_id)
            if entry is None:
                if after is None or before is not None:
                    return after is None
                entry = await self._directory.enter(thread_id)
                if entry is None:
                    continue
            swapped = int(await self._link.call("swap_lease", self._keys.pool(entry.pool), args))
            if swapped >= 0:
                return swapped == 1
            await self._bring_home(thread_id, entry)
        raise Unavailable(f"the thread {thread_id!r} was deleted and begun anew during {_MOST_MOVES} attempts; retry")

    async def _bring_home(self, thread_id: str, entry: Entry) -> None:
        """Finish a move that another writer began and did not end, so that the lease of the thread has a pool."""
        left = await self._directory.leave(thread_id, entry)
        made = await self._directory.enter(thread_id, before=left.before, instead_of=entry) if left else None
        if made is not None and left is not None and left.lease is not None:
            args = [encoded(thread_id), self._ttl_ms, b"", _given(left.lease)]
            await self._link.call("swap_lease", self._keys.pool(made.pool), args)

    # -- new bytes for the same things

    async def rewrap(
        self,
        pool: int,
        chunks: Pairs[ChunkRow] = (),
        *,
        thread: int = 0,
        checkpoints: Pairs[CheckpointRow] = (),
        writes: Pairs[WriteRow] = (),
    ) -> None:
        head, args = b"%d:" % thread, []
        for chunk, anew in chunks:
            args += [_CHUNKS_FIELD, chunk.digest, pack_chunk(*chunk[1:]), pack_chunk(*anew[1:])]
        for old, new in checkpoints:
            args += [_ROWS_FIELD, head + place_of(*old.key), pack_checkpoint(old), pack_checkpoint(new)]
        for was, now in writes:
            args += [_WRITES_FIELD, head + write_place_of(was), pack_write(was), pack_write(now)]
        await self._link.call("rewrap", self._keys.pool(pool), args)


def _arguments(change: Change, address: Address, number: int) -> list[Any]:
    """A change as the script APPLY takes it: its fields in one word, then its rows."""
    stamp, head, now = change.stamp, change.head, repr(change.now).encode()
    is_plain = change.joins is None and change.founded is None
    forked_from, created = (None, change.now) if is_plain else change.beginning
    fields = [
        b"%d" % number,
        b"%d" % address.pool,
        change.thread_id.encode(errors="surrogatepass"),
        b"%d" % address.ticket,
        optional(address.before) if address.before is not None else b"",
        _given(address.lease) if address.lease is not None else b"",
        now,
        b"%d:%d" % (stamp[0], stamp[1] & _EPOCH) if stamp is not None else b"",
        optional(change.continues) if change.continues is not None else b"",
        b"1" if change.begins else b"0",
        optional(change.joins) if change.joins is not None else b"",
        optional(forked_from) if forked_from is not None else b"",
        now if is_plain else repr(created).encode(),
        b"=" + escaped(head[0]) if head is not None else b"",
        optional(head[1]) if head is not None else b"",
        _given(change.lease) if change.lease is not None else b"",
        b"%d" % len(change.chunks),
        b"%d" % len(change.moved),
        b"%d" % len(change.checkpoints),
        b"%d" % len(change.writes),
        b"%d" % len(change.witnesses),
        b"%d" % len(change.firsts),
    ]
    args: list[Any] = [pack_fields(fields)]
    for chunks in (change.chunks, change.moved):
        for digest, links, form, data in chunks:
            args += [digest, pack_chunk(links, form, data)]
    for row in change.checkpoints:
        args += [place_of(row.namespace, row.id), pack_checkpoint(row)]
    for write in change.writes:
        args += [write_place_of(write), b"1" if write.replaces else b"0", pack_write(write)]
    for witness in change.witnesses:
        args += [place_of(witness.namespace, witness.id), repr(witness.created)]
    for write in change.firsts:
        args += [write_place_of(write), pack_write(write)]
    return args


def _given(record: bytes | None) -> bytes:
    """A record that may be None, as an argument."""
    return b"=" + record if record is not None else b""


def _words(row: ThreadRow) -> list[bytes]:
    """The fields of a thread that people and policies set."""
    serial, status, expires, tags, metadata = own_words(row)
    return [b"%d" % serial, encoded(status), optional(expires), encoded(tags), metadata]
