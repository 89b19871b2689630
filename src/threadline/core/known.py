"""Which chunks of a thread this process knows to be stored, which rows prove it, and the last row of each namespace.

A chunk is known when a checkpoint that holds it was read here, or its put was acknowledged. A put leaves known
chunks out, and names the rows that they are known by, its *witnesses*: the backend looks for them inside the put's
transaction. A store that was set back to an earlier state lacks one of them, and the put is refused as `Stale`.

Few witnesses prove everything. A put that named a witness was committed after it, so where the put's own row is, the
witness was: an acknowledged put takes the place of the witnesses it named. What was read, or put at the same time,
stands beside them. Pending writes teach nothing, because they have no row that later puts could name.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import NamedTuple

from ..base.bounded_cache import BoundedCache
from ..chunks.encode import Source
from ..chunks.unchanged import Mark
from ..chunks.unchanged import Sequence as EncodedSequence
from ..ports.checkpoints import CheckpointRow, Stamp, Witness
from .rows import Roots

__all__ = ["Held", "Known", "KnownThreads", "Line", "Lines", "witness_of"]

_BYTES_PER_DIGEST = 100
_BYTES_PER_THREAD = 600
# Who reads many old checkpoints of a thread would make each later put look for all of them.
_MOST_WITNESSES = 8
# So many digests more than the cache has counted are not worth counting again.
_UNCOUNTED = 16
# How much longer a line may become before it is counted anew.
_LINE_GROWS_BYTES = 2000
_numbers = count(1)
_new = tuple.__new__


class Known:
    """The chunks of one thread that are known under one stamp."""

    __slots__ = ("counted", "digests", "mark", "stamp", "witnesses")

    def __init__(self, stamp: Stamp, witnesses: tuple[Witness, ...] = ()) -> None:
        self.stamp = stamp
        # Tells this knowledge from any other of the same stamp: what was marked under it passes with it.
        self.mark: Mark = (*stamp, next(_numbers))
        self.digests: set[bytes] = set()
        self.witnesses = witnesses
        # How many digests the cache counts for it.
        self.counted = -_UNCOUNTED


class Line(NamedTuple):
    """The last checkpoint of a namespace that was put or got, as the put that follows it needs it."""

    witness: Witness
    mark: Mark
    roots: Roots
    # What the lists and dicts of the channels were encoded as, as far as that was here.
    sources: dict[str, EncodedSequence]


class Held:
    """The line of a namespace, and what the cache counts for it."""

    __slots__ = ("counted", "line")

    def __init__(self, line: Line, counted: int) -> None:
        self.line, self.counted = line, counted


class KnownThreads:
    """The known chunks of each thread, within a bound in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._threads: BoundedCache[str, Known] = BoundedCache(limit_bytes)
        # What is known of a thread; None if nothing is. Asked several times by every put.
        self.of = self._threads.get

    def learn(
        self,
        thread_id: str,
        stamp: Stamp,
        digests: Collection[bytes],
        witness: Witness,
        replaces: Collection[Witness] = (),
        beside: Known | None = None,
    ) -> Known:
        """Note that a row is stored under a stamp, and these chunks with it.

        `replaces` are the witnesses that the row was put after; `beside` is used where nothing else is held yet.
        """
        held = was = self._threads.get(thread_id)
        if held is None or held.stamp != stamp:
            if held is not None and held.stamp[0] == stamp[0] and held.stamp[1] > stamp[1]:
                return held  # the answer of an older put came late
            held = beside if beside is not None and beside.stamp == stamp else Known(stamp)
        others: list[Witness] = []
        if held.witnesses != replaces:
            here = witness[0], witness[1]
            others = [one for one in held.witnesses if one not in replaces and one[:2] != here]
        if len(others) >= _MOST_WITNESSES:
            held, others = Known(stamp), []
        # First the witness, then what it proves: another thread may look in between.
        held.witnesses = (*others, witness)
        if held is was and not digests:
            return held
        held.digests.update(digests)
        if held is was and len(held.digests) < held.counted + _UNCOUNTED:
            return held
        held.counted = len(held.digests)
        cost = _BYTES_PER_THREAD + _BYTES_PER_DIGEST * (held.counted + _UNCOUNTED) + len(thread_id)
        self._threads.put(thread_id, held, cost)
        return held

    def drop(self, thread_id: str) -> None:
        """Forget a thread: what was known of it is in doubt."""
        self._threads.drop(thread_id)

    def clear(self) -> None:
        self._threads.clear()


class Lines:
    """The line of each namespace, by thread and namespace, within a bound in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._held: BoundedCache[tuple[str, str], Held] = BoundedCache(limit_bytes)
        # What is remembered of a namespace. It holds while what is known of its thread has the same mark.
        self.of = self._held.get
        self.clear = self._held.clear

    def keep(self, thread_id: str, witness: Witness, mark: Mark, roots: Roots, sources: dict[str, Source]) -> None:
        """Remember where a checkpoint's values are and what they were encoded as, for the put that follows it."""
        key = thread_id, witness[0]
        held = self.of(key)
        # Whatever was encoded under this mark is stored, be it of this checkpoint or of another one.
        kept = held.line[3].copy() if held is not None and held.line[1] == mark else {}
        for name, source in sources.items():
            if type(source) is EncodedSequence:
                kept[name] = source
        cost = 1000 + 200 * len(roots.versions)
        for one in kept.values():
            cost += one.cost_bytes
        line = _new(Line, (witness, mark, roots, kept))
        if held is not None and held.counted // 2 < cost <= held.counted:
            held.line = line
        else:
            # Counted with room to grow: most puts that follow replace the line alone.
            counted = cost + cost // 8 + _LINE_GROWS_BYTES
            self._held.put(key, Held(line, counted), counted)


def witness_of(row: CheckpointRow) -> Witness:
    return Witness(row.namespace, row.id, row.created)
