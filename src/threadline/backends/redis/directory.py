"""Which pool a thread lives in, how a thread begins, and how it moves to another pool.

Each life of a thread has a ticket, a number that is never given twice, and one entry in the directory: pool,
ticket, last deletion. The entry may precede the thread; a thread's row may only be made under the entry's ticket,
and only if no later ticket was seen in that pool. Whoever wants to replace an entry first leaves its pool (the
script LEAVE), after which nobody can begin there under the old ticket, and then swaps the entry. So a writer that
stops between any two steps, and goes on much later, is told to ask the directory again. There is never more than
one living row of a thread, and the directory leads to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...errors import Unavailable
from .layout import Entry, Keys, decoded, encoded, index_member, index_parts
from .link import Link
from .writing import LEAVE, SWAP_KEY, TICKET

__all__ = ["Directory", "Left"]

# A store that forgets by time is tidied by those who begin threads: each looks at a few old ones.
_SWEPT = 4
_MOST_CACHED = 100_000
# How often a store is opened again that loses its records at once.
_MOST_OPENINGS = 8


class Left(NamedTuple):
    """What a thread takes along when it leaves a pool."""

    before: str | None
    lease: bytes | None


class Directory:
    """From threads to pools."""

    def __init__(
        self, link: Link, keys: Keys, cache: dict[str, int], open_again: Callable[[], Awaitable[None]]
    ) -> None:
        self._link = link
        self._keys = keys
        # Restores the records of a store that lost them.
        self.open_again = open_again
        # Where living threads were last seen. A pool that does not know the thread as living sends us back here.
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

    async def enter(
        self, thread_id: str, *, pool: int | None = None, before: str | None = None, instead_of: Entry | None = None
    ) -> Entry | None:
        """A new entry for a thread, in a new pool or a given one; None if somebody else was first."""
        ticket = await self._ticket()
        made = Entry(pool or ticket, ticket, before)
        member = index_member(thread_id, ticket, made.pool)
        # The indexes come first: they may hold what never comes to be, and must not lack what is.
        adding = [("ZADD", self._keys.threads, 0, member)]
        if pool is None:
            adding.append(("ZADD", self._keys.pools, ticket, b"%d" % ticket))
        await self._link.batch(adding)
        was = b"=" + instead_of.packed() if instead_of is not None else b""
        if await self._link.call(SWAP_KEY, [self._keys.directory(thread_id)], [was, b"=" + made.packed()]):
            return made
        await self.unlist(thread_id, made, is_empty=pool is None)
        return None

    async def _ticket(self) -> int:
        for _ in range(_MOST_OPENINGS):
            number = await self._link.call(TICKET, [self._keys.meta])
            if number is not None:
                return int(number)
            await self.open_again()
        raise Unavailable(f"{self._link.where} loses the records of the store again and again: look at its settings")

    async def leave(self, thread_id: str, entry: Entry, *, only_absent: bool = False) -> Left | None:
        """Let nobody begin under this entry any more; None if the thread lives there."""
        args = [encoded(thread_id), entry.ticket, 1 if only_absent else 0]
        kind, *rest = await self._link.call(LEAVE, self._keys.pool(entry.pool), args)
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
                await self._link.call(SWAP_KEY, [self._keys.directory(thread_id)], [b"=" + entry.packed(), b""])
            await self.unlist(thread_id, Entry(pool, ticket, None), is_empty=pool == ticket)
