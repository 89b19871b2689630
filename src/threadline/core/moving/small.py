"""Small threads, copied many at a time: read together, sent in one transaction, read back together.

A thread that is copied by itself costs a dozen round trips, however little there is of it. Here is the plain case
alone: a thread that is the only one chosen of its pool, and that the target does not have, or has exactly as it is. Any
other thread, and all of a transaction that was refused, are left to the copy of one thread (threads.py), which finds
out what is wrong with which.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from ...errors import Conflict, NotFound
from ...packs.cold import is_cold
from ...ports.checkpoints import (
    Applied,
    Change,
    ChunkRow,
    Found,
    Stamp,
    ThreadRow,
    split_links,
)
from ...ports.rules import asks, own_words
from ...ports.whole import Whole
from ..context import Context
from ..paging import parts_of
from .carrier import children_first
from .report import CopyReport
from .translate import DAMAGES, Fault, Names, Opened, Translator, are_same, fault_in

__all__ = ["Copied", "SmallThreads"]

# What counts as small, and how much is moved at a time.
_MOST_ROWS = 64
_MOST_BYTES = 64 * 1024
_MOST_TOGETHER = 250
_MOST_BYTES_TOGETHER = 2 * 1024 * 1024
# What nobody has said anything of: status, expiry, tags and metadata of a thread that was just begun.
_NO_WORDS = ("active", None, "[]", b"")


class _Sent(NamedTuple):
    """A thread as it is sent."""

    whole: Whole
    change: Change
    translator: Translator


class Copied(NamedTuple):
    """A thread that was copied, and its row in the target."""

    whole: Whole
    held: ThreadRow
    translator: Translator


class SmallThreads:
    """Copies those of some threads that are small; `finish` sets what people said of them."""

    def __init__(
        self,
        source: Context,
        target: Context,
        report: CopyReport,
        advance: Callable[[int], None],
        finish: Callable[[Sequence[Copied]], Awaitable[None]],
    ) -> None:
        self._source, self._target, self._report = source, target, report
        self._advance, self._finish = advance, finish
        self._is_verbatim = Translator(source.tools, target.tools, 0, 0).is_verbatim
        # Whether both stores can give whole threads.
        self._is_possible = True

    async def copy(self, threads: Sequence[ThreadRow]) -> set[str]:
        """Copy what is small of these threads, no two of one pool; returns the ids of those that were copied."""
        done: set[str] = set()
        for start in range(0, len(threads), _MOST_TOGETHER):
            if not self._is_possible:
                break
            some = threads[start : start + _MOST_TOGETHER]
            sizes = await self._sizes(some)
            small = [(one, sizes[one.thread_id]) for one in some if one.thread_id in sizes]
            for part in parts_of(small, lambda pair: pair[1], _MOST_BYTES_TOGETHER):
                done |= await self._copy_part([one for one, _ in part])
        return done

    async def _sizes(self, threads: Sequence[ThreadRow]) -> dict[str, int]:
        """How large the small ones are."""
        weights = await self._source.backend.weights([thread.pool for thread in threads])
        rows: dict[tuple[int, int], int] = {}
        sizes: dict[tuple[int, int], int] = {}
        for one in (*weights.checkpoints, *weights.writes, *weights.chunks):
            place = one.pool, one.thread
            rows[place] = rows.get(place, 0) + one.rows
            sizes[place] = sizes.get(place, 0) + one.bytes
        found: dict[str, int] = {}
        for thread in threads:
            places = (thread.pool, thread.serial), (thread.pool, 0)  # its own rows, and the chunks of its pool
            size = sum(sizes.get(place, 0) for place in places)
            if size <= _MOST_BYTES and sum(rows.get(place, 0) for place in places) <= _MOST_ROWS:
                found[thread.thread_id] = size
        return found

    async def _copy_part(self, threads: Sequence[ThreadRow]) -> set[str]:
        names = [thread.thread_id for thread in threads]
        own, held = await self._wholes(self._source, names), await self._wholes(self._target, names)
        if own is None or held is None:
            self._is_possible = False
            return set()
        # A thread that was deleted meanwhile, or begun anew, is another one.
        chosen = [own[one.thread_id] for one in threads if _is_still(own.get(one.thread_id), one)]
        done = {whole.thread.thread_id for whole in chosen if self._is_there(whole, held.get(whole.thread.thread_id))}
        new = [whole for whole in chosen if whole.thread.thread_id not in held]
        try:
            sent = await self._send(new)
        except Conflict:
            sent = []
        if sent:
            await self._finish([one for one in await self._verify(sent) if _has_words(one.whole)])
        return done | {whole.thread.thread_id for whole, _, _ in sent}

    async def _wholes(self, store: Context, names: Sequence[str]) -> dict[str, Whole] | None:
        found = await store.backend.wholes(names)
        if found is None:
            return None
        await store.learn_forms([form for whole in found for form in _forms(whole)])
        return {whole.thread.thread_id: whole for whole in found}

    def _is_there(self, whole: Whole, held: Whole | None) -> bool:
        """Whether the target has a thread exactly as it is; counts its rows then."""
        if held is None or not self._is_verbatim or not _is_copy(whole, held):
            return False
        self._report.checkpoints.present += len(whole.checkpoints)
        self._report.writes.present += len(whole.writes)
        self._count(whole)
        return True

    def _count(self, whole: Whole) -> None:
        self._report.threads += 1
        self._advance(len(whole.checkpoints))

    async def _send(self, wholes: Sequence[Whole]) -> list[_Sent]:
        """Send threads to the target in one transaction; those that are damaged, or cannot be sent, are left out."""
        if not wholes:
            return []
        stamps: list[Stamp | None] = [None] * len(wholes)
        if not self._is_verbatim:
            # Bytes are sealed for their pool: the threads begin first.
            begun = await self._target.backend.apply([_beginning(whole.thread) for whole in wholes])
            stamps = [outcome.stamp for outcome in begun]
        made = [self._made(whole, stamp) for whole, stamp in zip(wholes, stamps, strict=True)]
        sent = [one for one in made if one is not None]
        outcomes = await self._target.backend.apply([one.change for one in sent]) if sent else []
        return sent if all(isinstance(outcome, Applied) for outcome in outcomes) else []

    def _made(self, whole: Whole, stamp: Stamp | None) -> _Sent | None:
        """A thread as it is sent; None where it is damaged, or needs objects of the cold tier."""
        thread = whole.thread
        pool = thread.pool if stamp is None else stamp[0]
        translator = Translator(self._source.tools, self._target.tools, thread.pool, pool)
        change = _beginning(thread)
        if stamp is not None:
            change = Change(thread_id=thread.thread_id, now=thread.active, stamp=stamp)
        names: Names = {}
        try:
            change.chunks = _translated(translator, whole, names)
            found = [Found(thread.thread_id, thread.pool, thread.epoch, row, []) for row in whole.checkpoints]
            change.checkpoints = [translator.checkpoint(one, thread.thread_id, names) for one in found]
            change.writes = [
                translator.write(write, thread.thread_id, thread.thread_id, names)._replace(replaces=write.idx < 0)
                for write in whole.writes
            ]
        except DAMAGES:
            return None  # the copy of one thread tells what is damaged
        return _Sent(whole, change, translator)

    async def _verify(self, sent: Sequence[_Sent]) -> list[Copied]:
        """Read back what was sent, and count it."""
        copied: list[Copied] = []
        stored = await self._wholes(self._target, [whole.thread.thread_id for whole, _, _ in sent]) or {}
        for whole, change, translator in sent:
            held = stored.get(change.thread_id)
            if held is None or held.thread.status == "deleted":
                raise NotFound(f"thread {change.thread_id!r} was deleted from the target while it was copied")
            fault = _fault_of(change, held, self._target)
            if fault is not None:
                self._report.problems.append(f"thread {change.thread_id!r}: {fault}")
                continue
            self._report.checkpoints.copied += len(change.checkpoints)
            self._report.writes.copied += len(change.writes)
            self._report.chunks += len(change.chunks)
            self._report.chunk_bytes += sum([len(row.data) for row in change.chunks])
            self._count(whole)
            copied.append(Copied(whole, held.thread, translator))
        return copied


def _has_words(whole: Whole) -> bool:
    """Whether people or policies said something of a thread, or it asked something."""
    return own_words(whole.thread)[1:] != _NO_WORDS or any(map(asks, whole.writes))


def _is_still(whole: Whole | None, thread: ThreadRow) -> bool:
    return whole is not None and whole.thread.serial == thread.serial and whole.thread.status != "deleted"


def _forms(whole: Whole) -> Iterator[int]:
    for row in whole.checkpoints:
        yield row.form
        yield row.metadata_form
    yield from [write.form for write in whole.writes]
    yield from [chunk.form for chunk in whole.chunks if not is_cold(chunk.form)]


def _is_copy(whole: Whole, held: Whole) -> bool:
    """Whether the rows of two threads are the same; a row that names chunks came after them."""
    return (
        whole.thread.created == held.thread.created
        and own_words(whole.thread)[1:] == own_words(held.thread)[1:]
        and len(whole.checkpoints) == len(held.checkpoints)
        and all(map(are_same, whole.checkpoints, held.checkpoints))
        and sorted(write[:9] for write in whole.writes) == sorted(write[:9] for write in held.writes)
    )


def _beginning(thread: ThreadRow) -> Change:
    """The change that begins a thread in the target, in a pool of its own."""
    return Change(thread_id=thread.thread_id, now=thread.active, founded=(thread.forked_from, thread.created))


def _translated(translator: Translator, whole: Whole, names: Names) -> list[ChunkRow]:
    """The chunks that the rows of a thread lead to, for the target, children before their parents; raises Fault."""
    rows = {row.digest: row for row in whole.chunks}
    links = [row.links for row in whole.checkpoints] + [write.links for write in whole.writes]
    roots = {digest for one in links for digest in split_links(one)}
    opened: dict[bytes, Opened] = {}
    frontier = roots
    while frontier:
        for digest in frontier:
            row = rows.get(digest)
            if row is None or is_cold(row.form):
                raise Fault(f"the chunk {digest.hex()} is not in the database")
            opened[digest] = translator.open(row)
        frontier = {child for digest in frontier for child in split_links(rows[digest].links)} - opened.keys()
    packs = {digest: one.content for digest, one in opened.items()}
    made: list[ChunkRow] = []
    for digest in children_first(roots, {digest: rows[digest].links for digest in opened}):
        made.append(translator.chunk(opened[digest], names, packs))
        names[digest] = made[-1].digest
    return made


def _fault_of(change: Change, held: Whole, target: Context) -> str | None:
    """What of a thread that was read back is not what was sent; rows that were put again since are newer."""
    rows = {row.key: row for row in held.checkpoints}
    for row in change.checkpoints:
        there = rows.get(row.key)
        if there is None or (not are_same(there, row) and there.created <= row.created):
            return f"checkpoint {row.id} was read back from the target otherwise than sent"
    writes = {write[:4]: write for write in held.writes}
    for write in change.writes:
        kept = writes.get(write[:4])
        if kept is None or kept[:6] != write[:6] or (kept[:9] != write[:9] and write.idx >= 0):
            return f"a pending write of checkpoint {write.checkpoint_id} was read back otherwise than sent"
    chunks = {row.digest: row for row in held.chunks}
    for chunk in change.chunks:
        stored = chunks.get(chunk.digest)
        if stored == chunk or (stored is not None and is_cold(stored.form)):
            continue  # it went to the cold tier meanwhile, which verifies what it moves
        fault = "is not there" if stored is None else fault_in(target.tools, held.thread.pool, stored)
        if fault is not None:
            return f"the chunk {chunk.digest.hex()} was read back from the target: {fault}"
    return None
