"""The Backend port: where records live. A backend sees bytes and keys, never values.

Promises every backend keeps, and the contract suite checks:
  - `apply` is atomic: a reader sees all of a change or nothing of it, and so does a crash.
  - What `apply` acknowledged is durable as the backend's page says, and visible to every later read.
  - Chunks are stored once per pool; storing a digest again is harmless.
  - Every deletion of chunks raises the pool's epoch in the same transaction. A change that relies on chunks it does not
    bring names that epoch, and rows it knows them by; `apply` refuses it as `Stale` if one of these is no more.
  - Methods are coroutines that a blocking backend finishes without suspending.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from .marks import Scope, reads, writes
from .records import Records
from .storage import Storage
from .whole import Wholes

__all__ = [
    "Applied",
    "Asking",
    "Backend",
    "Change",
    "CheckpointKey",
    "CheckpointKeys",
    "CheckpointRow",
    "Checkpoints",
    "ChunkRow",
    "DIGEST_BYTES",
    "Found",
    "Guard",
    "Pairs",
    "Query",
    "Stale",
    "Stamp",
    "ThreadRow",
    "Upkeep",
    "Weight",
    "Weights",
    "Witness",
    "WriteRow",
    "split_links",
]

Stamp = tuple[int, int]  # pool, epoch
DIGEST_BYTES = 16  # of the name of a chunk; a `links` column holds such names side by side


def split_links(links: bytes) -> list[bytes]:
    """The digests in a `links` column."""
    return [links[i : i + DIGEST_BYTES] for i in range(0, len(links), DIGEST_BYTES)]


# Rows are named tuples rather than dataclasses: thousands are made per second, straight from the driver.
class ChunkRow(NamedTuple):
    """A chunk: the digests it refers to, how its bytes are wrapped, and the bytes."""

    digest: bytes
    links: bytes
    form: int
    data: bytes


class CheckpointKey(NamedTuple):
    """The place of a checkpoint within its thread."""

    namespace: str
    id: str


CheckpointKeys: TypeAlias = Collection[CheckpointKey]
R = TypeVar("R")
Pairs: TypeAlias = Sequence[tuple[R, R]]  # what a row was, and what it becomes


class Witness(NamedTuple):
    """A stored checkpoint of a thread, and when it was put: one that was put again since is another."""

    namespace: str
    id: str
    created: float


class CheckpointRow(NamedTuple):
    """A checkpoint: document and metadata are the truth, step to searchable an index of what fits."""

    namespace: str
    id: str
    parent: str | None
    links: bytes
    form: int
    document: bytes
    metadata_form: int
    metadata: bytes
    step: int | None
    source: str | None
    run_id: str | None
    created: float
    searchable: str | None  # JSON of what can be looked for

    @property
    def key(self) -> CheckpointKey:
        """Its place within its thread."""
        return CheckpointKey(self.namespace, self.id)


class WriteRow(NamedTuple):
    """One pending write; `replaces` tells whether it takes the place of an earlier one at its index."""

    namespace: str
    checkpoint_id: str
    task_id: str
    idx: int
    task_path: str
    channel: str
    links: bytes
    form: int
    data: bytes
    replaces: bool = False

    @property
    def key(self) -> CheckpointKey:
        """The place of the checkpoint that it belongs to."""
        return CheckpointKey(self.namespace, self.checkpoint_id)


class ThreadRow(NamedTuple):
    """A thread: its pool and the pool's epoch, its life cycle, and what people say about it."""

    thread_id: str
    serial: int
    pool: int
    epoch: int
    status: str
    deleted_before: str | None
    forked_from: str | None
    created: float
    active: float
    expires: float | None
    tags: str
    metadata: bytes

    @property
    def stamp(self) -> Stamp:
        return self.pool, self.epoch


class Found(NamedTuple):
    """A checkpoint with what is needed to read it."""

    thread_id: str
    pool: int
    epoch: int
    row: CheckpointRow
    writes: list[WriteRow]

    @property
    def key(self) -> CheckpointKey:
        """Its place within its thread."""
        return CheckpointKey(self.row.namespace, self.row.id)

    @property
    def parent(self) -> CheckpointKey | None:
        """The place of its parent, which may be gone; None without one."""
        return CheckpointKey(self.row.namespace, self.row.parent) if self.row.parent else None

    @property
    def stamp(self) -> Stamp:
        return self.pool, self.epoch

    @property
    def cursor(self) -> tuple[str, str, str]:
        """Where the next page of a query begins (`Query.after`)."""
        return self.row.id, self.thread_id, self.row.namespace


class Asking(NamedTuple):
    """A thread that asked something at its newest checkpoint, and the pending writes there, in order."""

    thread: ThreadRow
    writes: list[WriteRow]


@dataclass(kw_only=True)
class Change:
    """The rows that one put or put_writes adds to a thread, atomically.

    Without slots: what is not set is the default of the class, and the straight line of a put sets few.
    """

    thread_id: str
    now: float
    # The pool and epoch under which chunks were left out as known; None when nothing was left out.
    stamp: Stamp | None = None
    # Checkpoints of the thread by which the writer knows of those chunks. Where one is not there, the store has lost
    # what it had, and the change is refused as stale.
    witnesses: Sequence[Witness] = ()
    chunks: Sequence[ChunkRow] = ()
    # Chunks that take the place of the rows of the same digests: an item that moved into a pack leaves a pointer, and
    # one that moves out of it takes the pointer's place. Where there is no such row they are added. No chunk of a
    # change is in both.
    moved: Sequence[ChunkRow] = ()
    checkpoints: Sequence[CheckpointRow] = ()
    writes: Sequence[WriteRow] = ()
    # The checkpoint this change descends from. It must not lie before the thread's deletion.
    continues: str | None = None
    # Whether the change may begin a thread that is deleted; a put with a parent may not.
    begins: bool = True
    # Writes that must be the first of their keys: where one is there with other bytes, the change is a Conflict.
    firsts: Sequence[WriteRow] = ()
    # Make the thread new in this one's pool; it must not exist yet, unless this very change made it.
    joins: str | None = None
    # Origin and creation time of a new thread, if they are not `joins` and `now`: a restored thread keeps both.
    founded: tuple[str | None, float] | None = None
    # A namespace, and the newest checkpoint that the writer saw there (None: there was none). When
    # another one is the newest by now, and none of this change, the change is refused.
    head: tuple[str, str | None] | None = None
    # The new root checkpoint that answers earlier questions. None if the writer knows of no question; a stale mark only
    # costs one extra read.
    settles: str | None = None
    # The token of the lease that the writer holds; the thread's lease must still begin with it.
    lease: bytes | None = None

    @property
    def beginning(self) -> tuple[str | None, float]:
        """What a thread that this change begins is forked from, and when it was made."""
        return self.founded or (self.joins, self.now)


class Applied(NamedTuple):
    """The change is in; its chunks are in this pool at this epoch."""

    stamp: Stamp


class Stale(NamedTuple):
    """Nothing was changed: chunks the change left out may be gone. This is the pool's stamp now."""

    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which checkpoints to list, newest first; or, of one thread, as they lie."""

    thread_id: str | None = None
    namespace: str | None = None
    checkpoint_id: str | None = None
    before: str | None = None
    # Exact values of index keys. A backend may return more than matches; the core checks again.
    equals: tuple[tuple[str, Any], ...] = ()
    run_ids: tuple[str, ...] | None = None
    # Continue after this place of the previous page.
    after: tuple[str, str, str] | None = None  # checkpoint id, thread id, namespace
    limit: int = 100
    with_writes: bool = True
    # All checkpoints of the thread by namespace and id, so that a page reads no more than it gives, however many
    # namespaces there are. The fields above that choose among them are not set then.
    as_they_lie: bool = False


class Guard(NamedTuple):
    """Keeps checkpoints from being deleted that somebody went on from since it was decided."""

    # The children of what goes that were known then; others among them do no harm.
    seen: CheckpointKeys
    # Checkpoints that stay, and must have no other children either.
    staying: CheckpointKeys = ()


class Weight(NamedTuple):
    """How many rows there are of one kind, and the bytes in them; `thread` is its serial, 0 for chunks of a pool."""

    pool: int
    thread: int
    rows: int
    bytes: int


class Weights(NamedTuple):
    """What some pools hold: checkpoints and pending writes by thread, chunks by pool."""

    checkpoints: list[Weight]
    writes: list[Weight]
    chunks: list[Weight]
    # When each checkpoint was made that was made since a time; none where no time was given.
    recent: list[float]


class Checkpoints(Protocol):
    """What a put, a get and the history of a thread need; see the promises at the head of this file."""

    @writes(Scope.CHANGES)
    async def apply(self, changes: Sequence[Change]) -> list[Applied | Stale]:
        """Make these changes in one transaction, or none of them: one stale change refuses all.

        Raises Conflict for a change that continues a thread which was deleted meanwhile, that joins a pool
        under the name of a living thread, whose head has moved, or whose lease was lost. The same change
        again, after an answer that never came, is harmless.
        """

    @reads(Scope.THREAD)
    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        """One checkpoint, or the newest of its namespace; with its pending writes in order."""

    @reads(Scope.THREADS)
    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        """The newest checkpoint of each of these threads that has one, without writes, in one go."""

    @reads(Scope.LISTING)
    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        """Living threads whose newest root checkpoint has a pending interrupt, by id, keyset paged.

        None is left out, whoever wrote it; what is read grows with the threads that ask, not with those that live. A
        page may hold threads that ask nothing any more: the writes tell.
        """

    @reads(Scope.LISTING)
    async def page(self, query: Query) -> list[Found]:
        """The next checkpoints of a query: newest id first, then by thread and namespace; or as they lie.

        Those of hidden threads (ports/rules.py) only where the query names the thread.
        """

    @reads(Scope.THREAD)
    async def chain(self, thread_id: str, namespace: str, checkpoint_id: str, limit: int) -> list[Found]:
        """A checkpoint and its ancestors, nearest first, at most `limit`; a gap ends the chain."""

    @reads(Scope.THREAD)
    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        """All pending writes of a thread, also those whose checkpoint never arrived."""

    @reads(Scope.POOL)
    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        """The chunks that exist among these: digest, links, form and data of each, as the driver gives them."""

    @reads(Scope.THREAD)
    async def thread(self, thread_id: str) -> ThreadRow | None:
        """A thread's row, deleted ones included."""

    @reads(Scope.LISTING)
    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        """Living threads by id, keyset paged; hidden ones only where the prefix is that of hidden ones."""

    @reads(Scope.LISTING, is_long=True)
    async def count_threads(self, prefix: str = "") -> int:
        """How many threads live; hidden ones count only where the prefix is that of hidden ones."""

    @writes(Scope.ROW)
    async def swap_thread(self, before: ThreadRow, after: ThreadRow) -> bool:
        """Replace a thread's status, expiry, tags and metadata if they are still those of `before`."""

    @reads(Scope.THREAD)
    async def children(self, thread_id: str, keys: CheckpointKeys) -> list[Found]:
        """The checkpoints that have one of these for their parent, without writes, in no order."""

    @reads(Scope.LISTING)
    async def leases(self, thread_id: str | None = None) -> list[bytes]:
        """The record of a thread's lease, which need not exist, or of all leases, also those that have run out.

        A record begins with its holder's token. They are in no order; few threads have one.
        """

    @writes(Scope.THREAD)
    async def swap_lease(self, thread_id: str, before: bytes | None, after: bytes | None) -> bool:
        """Replace the record of a thread's lease if it is still `before`."""


class Upkeep(Protocol):
    """What retention, integrity checks, key rotation and figures of checkpoints need."""

    @writes(Scope.THREAD, is_long=True)
    async def remove_thread(self, thread_id: str, deleted_before: str, now: float) -> None:
        """Delete a thread's rows and leave a tombstone; the last thread of a pool takes the chunks along."""

    @writes(Scope.THREAD, is_long=True)
    async def remove_checkpoints(
        self, thread_id: str, keys: CheckpointKeys, settled: CheckpointKeys = (), guard: Guard | None = None
    ) -> int | None:
        """Delete checkpoints and their writes, and of `settled` only the writes; chunks stay for collect.

        Where the guard finds a child that it does not know, nothing is deleted, and None returned: who decided must
        look again. What is read for that is the children of these checkpoints, however long the thread is.
        """

    @reads(Scope.POOL, is_long=True)
    async def roots(self, pool: int) -> dict[bytes, int]:
        """The links of every checkpoint and write of the pool's threads, and how many checkpoints have just these."""

    @writes(Scope.POOL, is_long=True)
    async def collect(self, pool: int, candidates: Sequence[bytes], reachable: set[bytes]) -> int:
        """Delete those candidates that nothing needs; returns how many.

        In one transaction that excludes writers of the pool: marks again from every row, adding to
        `reachable`, deletes what is left of the candidates, raises the epoch if anything went.
        """

    @reads(Scope.STORE)
    async def pools(self, after: int, limit: int) -> list[int]:
        """The pools that hold chunks, in order, keyset paged; also one that no thread uses any more."""

    @reads(Scope.POOL, is_long=True)
    async def chunk_sizes(self, pool: int, after: bytes, limit: int) -> list[tuple[bytes, bytes, int, int]]:
        """Digest, links, form and stored size of a pool's chunks, keyset paged; reads none of their bytes."""

    @reads(Scope.POOL)
    async def links(self, pool: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The links of these chunks, without their data."""

    @writes(Scope.POOL)
    async def rewrap(
        self,
        pool: int,
        chunks: Pairs[ChunkRow] = (),
        *,
        thread: int = 0,
        checkpoints: Pairs[CheckpointRow] = (),
        writes: Pairs[WriteRow] = (),
    ) -> None:
        """Replace stored bytes, each only if it is still what it was; names stay.

        Chunks are those of the pool, checkpoints and writes those of the thread of this serial in it.
        """

    @reads(Scope.POOL, is_long=True)
    async def weights(self, pools: Sequence[int], since: float | None = None) -> Weights:
        """How many rows these pools hold, the bytes in them, and which checkpoints were made since; reads no row."""


class Backend(Checkpoints, Upkeep, Wholes, Records, Storage, Protocol):
    """Where records live: an engine hands an operation one object with all ports."""
