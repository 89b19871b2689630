"""Which pool a thread lives in, how a thread begins, and how it moves to another pool.

Each life of a thread has a ticket, a number that is never given twice, and one entry in the directory: pool, ticket,
last deletion. The entry may precede the thread; the row of a thread may only be made under the entry's ticket, and only
if no later ticket was seen in that pool. A writer that replaces an entry first leaves its pool (leave.lua), after which
no writer can begin there under the old ticket, and then swaps the entry. So a writer that stops between any two steps,
and goes on much later, is told to ask the directory again. There is never more than one living row of a thread, and the
directory leads to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from ...errors import Unavailable
from ...ports.checkpoints import ThreadRow
from ...ports.rules import FORMAT
from .keys import Entry, Keys, decoded, encoded, escaped, index_member, index_parts, optional, thread_of
from .wire import Link

__all__ = ["Directory", "Left"]

T = TypeVar("T")
# Where threads expire, each creation of a thread also checks this many others, chosen at random.
_SWEPT = 4
_MOST_CACHED = 100_000
_MOST_OPENINGS = 8
_POOLS_AT_ONCE = 64


class Left(NamedTuple):
    """What a thread takes along when it leaves a pool."""

    before: str | None
    lease: bytes | None


class Directory:
    """From threads to pools."""

    def __init__(self, link: Link, keys: Keys, cache: dict[str, int], reopen: Callable[[], Awaitable[None]]) -> None:
        self._link = link
        self._keys = keys
        # Checks the store again, and creates it again where it was lost.
        self.reopen = reopen
        # Where living threads were last seen. A pool in which the thread does not live sends us back here.
        self._cache = cache

    def remembered(self, thread_id: str) -> int | None:
        return self._cache.get(thread_id)

    def remember(self, thread_id: str, pool: int) -> None:
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        self._cache[thread_id] = pool

    def forget(self, thread_id: str) -> None:
        self._cache.pop(thread_id, None)

    async def entry(self, thread_id: str) -> Entry | None:
        """Where a thread lives, or would begin."""
        value = await self._link.command("GET", self._keys.directory(thread_id))
        return Entry.unpacked(value) if value is not None else None

    async def call(self, script: str, thread_id: str, *args: Any) -> tuple[int, Any]:
        """The pool of a thread, and the answer of a script there; None where the thread does not live."""
        argv = [encoded(thread_id), *args]
        pool = self.remembered(thread_id)
        if pool is not None:
            answer = await self._link.call(script, self._keys.pool(pool), argv)
            if answer is not None:
                return pool, answer
            self.forget(thread_id)
        while True:
            entry = await self.entry(thread_id)
            if entry is None:
                return 0, None
            answer = await self._link.call(script, self._keys.pool(entry.pool), argv)
            if answer is not None:
                self.remember(thread_id, entry.pool)
                return entry.pool, answer
            # The thread may have been deleted and begun anew elsewhere between the two reads.
            if await self.entry(thread_id) == entry:
                return 0, None

    async def row(self, thread_id: str, pool: int) -> ThreadRow | None:
        """The row of a thread in a pool, whatever state it is in."""
        return self.row_of(
            thread_id, pool, await self._link.call("thread", self._keys.pool(pool), [encoded(thread_id)])
        )

    def row_of(self, thread_id: str, pool: int, answer: Any) -> ThreadRow | None:
        """The row that thread.lua gives."""
        if not answer or answer[0] is None:
            return None
        return thread_of(thread_id, pool, self._link.stamped(answer[1]), answer[0])

    async def pools(self, after: bytes = b"-inf", size: int = _POOLS_AT_ONCE) -> AsyncIterator[list[int]]:
        """The numbers of all pools, some at a time."""
        while True:
            words = ("ZRANGEBYSCORE", self._keys.pools, after, b"+inf", "LIMIT", 0, size)
            pools = [int(pool) for pool in await self._link.command(*words)]
            if pools:
                yield pools
            if len(pools) < size:
                return
            after = b"(%d" % pools[-1]

    async def formatted(self, attempt: Callable[[], Awaitable[T | None]], sign: bytes | None = None) -> T:
        """The result of a call that gives None in a store without a format; then the store is opened again.

        A server that lost everything has no format either, and nothing is stored before it is there. `sign` is the key
        that stands for the format in a slot of its own.
        """
        for _ in range(_MOST_OPENINGS):
            result = await attempt()
            if result is not None:
                return result
            await self.reopen()
            if sign is not None:
                await self._link.command("SET", sign, FORMAT)
        raise Unavailable(
            f"{self._link.where} lost the format record during {_MOST_OPENINGS} attempts to open the store: "
            f"check maxmemory-policy and persistence"
        )

    async def enter(
        self, thread_id: str, *, pool: int | None = None, before: str | None = None, instead_of: Entry | None = None
    ) -> Entry | None:
        """A new entry for a thread, in a new pool or a given one; None if another writer was first."""
        was = b"=" + instead_of.packed() if instead_of is not None else b""
        if not self._link.is_cluster:
            own = b"" if pool is None else b"%d" % pool
            is_made, entry = await self._enter(thread_id, was, own, optional(before))
            return entry if is_made else None
        # The keys are in different slots.
        ticket = int(await self.formatted(lambda: self._link.call("ticket", [self._keys.meta])))
        made = Entry(pool or ticket, ticket, before)
        member = index_member(thread_id, ticket, made.pool)
        # The indexes come first: they may hold what never comes to be, and must not lack what is.
        adding = [("ZADD", self._keys.threads, 0, member)]
        if pool is None:
            adding.append(("ZADD", self._keys.pools, ticket, b"%d" % ticket))
        await self._link.batch(adding)
        if await self._link.call("swap_key", [self._keys.directory(thread_id)], [was, b"=" + made.packed()]):
            return made
        await self.unlist(thread_id, made, is_empty=pool is None)
        return None

    async def entry_or_new(self, thread_id: str) -> Entry:
        """Where a thread lives, or would begin; a new entry is for a pool of its own."""
        if not self._link.is_cluster:
            return (await self._enter(thread_id, b"", b"", b""))[1]
        while True:
            entry = await self.entry(thread_id) or await self.enter(thread_id)
            if entry is not None:
                return entry

    async def _enter(self, thread_id: str, *args: bytes) -> tuple[bool, Entry]:
        """Whether an entry was made on a single server, and the one that is there now."""
        keys = [self._keys.meta, self._keys.directory(thread_id), self._keys.threads, self._keys.pools]
        values = [escaped(thread_id), *args]
        is_made, entry = await self.formatted(lambda: self._link.call("enter", keys, values))
        return bool(is_made), Entry.unpacked(entry)

    async def leave(self, thread_id: str, entry: Entry, *, only_absent: bool = False) -> Left | None:
        """Let no writer begin under this entry any more; None if the thread lives there."""
        args = [encoded(thread_id), entry.ticket, int(only_absent)]
        kind, *rest = await self._link.call("leave", self._keys.pool(entry.pool), args)
        if kind != b"left":
            return None
        before = rest[0]
        return Left(decoded(before[1:]) if before else entry.before, rest[1] if len(rest) > 1 else None)

    async def unlist(self, thread_id: str, entry: Entry, *, is_empty: bool) -> None:
        """Take one life of a thread out of the index, and its pool if nothing is left in it."""
        member = index_member(thread_id, entry.ticket, entry.pool)
        removing = [("ZREM", self._keys.threads, member), ("ZREM", self._keys.asking, member)]
        if is_empty:
            removing.append(("ZREM", self._keys.pools, b"%d" % entry.pool))
        await self._link.batch(removing)

    async def sweep(self) -> None:
        """Look at a few entries by chance, and drop those whose pool has expired."""
        members = await self._link.command("ZRANDMEMBER", self._keys.threads, _SWEPT)
        for member in members or []:
            thread_id, ticket, pool = index_parts(member)
            if await self._link.command("EXISTS", self._keys.of(pool, "threads")):
                continue
            entry = await self.entry(thread_id)
            if entry is not None and entry.ticket == ticket:
                if await self.leave(thread_id, entry, only_absent=True) is None:
                    continue
                await self._link.call("swap_key", [self._keys.directory(thread_id)], [b"=" + entry.packed(), b""])
            await self.unlist(thread_id, Entry(pool, ticket, None), is_empty=pool == ticket)
