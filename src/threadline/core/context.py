"""The context of the operations of one store.

`Tools` are its codec and keys, and what this process remembers of it; a saver and its clones share them. A `Context`
is what one operation gets: the tools and a backend, after the store was opened. Rows that may be sealed are read
through it: it looks up keys that another process began to use, without which sound rows would seem damaged.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

import ormsgpack

from ..base.bounded_cache import BoundedCache
from ..base.checkpoint import WRITES_IDX_MAP
from ..base.hashing import blake2b
from ..chunks.digest import Digesters
from ..chunks.encode import Batch, Encoder
from ..chunks.read import Reader
from ..codec.codec import OPTIONS, Codec
from ..codec.envelope import Envelope
from ..codec.limits import unpack
from ..codec.seal import Ring
from ..errors import Corrupt, InvalidRequest, NotFound, TooLarge, Unavailable
from ..packs.cold import hot_form, is_cold, is_reference, read_reference
from ..ports.checkpoints import (
    Asking,
    Backend,
    CheckpointKeys,
    CheckpointRow,
    Found,
    Query,
    ThreadRow,
    WriteRow,
)
from ..ports.engine import Operation
from ..ports.records import Record, RecordSpace, Scan
from ..ports.rules import HIDDEN
from .known import Known, KnownThreads, Line, Lines, witness_of
from .requests import Place
from .retention.policy import Policy
from .rows import NONE, Document, Draft, Roots, form_of_thread, read_document, read_metadata, searchable
from .store_records import KEYS, read_record, swap_record

__all__ = ["Context", "Descent", "Reads", "ToolOptions", "Tools", "UNSEALED", "bound", "ids_of_keys"]

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
# The places of the forms in `WriteRow` and in the row of a chunk.
_form_of_write, _form_of_chunk = itemgetter(7), itemgetter(2)
_UNSEALED = frozenset((0, 1))
# The forms of records without a seal: those too that are objects of this process.
UNSEALED = frozenset((-1, 0, 1))
_BYTES_PER_BRANCHING = 200
_MOST_NOTED = 10_000
_LEAST_BRANCHING_BYTES = 1024 * 1024
_ENCRYPTED = "this store is encrypted: open it with encryption=KeyRing(…)"

# The checkpoint that a put descends from, and whether it may begin a thread that is deleted.
Descent = tuple[str | None, bool]


class Context:
    """A store as one operation sees it. The reading methods are those of the backend, and learn keys."""

    __slots__ = ("backend", "tools")

    def __init__(self, backend: Backend, tools: Tools) -> None:
        self.backend, self.tools = backend, tools

    async def find(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, with_writes: bool = True
    ) -> Found | None:
        found = await self.backend.find(thread_id, namespace, checkpoint_id, with_writes=with_writes)
        if found is not None and (found[3][4] or found[3][6] or any(map(_form_of_write, found[4]))):
            await self._learn([found])
        return found

    async def heads(self, thread_ids: Sequence[str], namespace: str) -> list[Found]:
        return await self._learn(await self.backend.heads(thread_ids, namespace))

    async def page(self, query: Query) -> list[Found]:
        return await self._learn(await self.backend.page(query))

    async def chain(self, thread_id: str, namespace: str, checkpoint_id: str, limit: int) -> list[Found]:
        return await self._learn(await self.backend.chain(thread_id, namespace, checkpoint_id, limit))

    async def children(self, thread_id: str, keys: CheckpointKeys) -> list[Found]:
        return await self._learn(await self.backend.children(thread_id, keys))

    async def thread_writes(self, thread_id: str) -> list[WriteRow]:
        writes = await self.backend.thread_writes(thread_id)
        await self.learn_forms([write.form for write in writes])
        return writes

    async def asking(self, after: str, limit: int, prefix: str = "") -> list[Asking]:
        page = await self.backend.asking(after, limit, prefix)
        await self.learn_forms([form for one in page for form in (form_of_thread(one.thread), *_forms(one.writes))])
        return page

    async def thread(self, thread_id: str) -> ThreadRow | None:
        row = await self.backend.thread(thread_id)
        if row is not None and row.metadata:
            await self.learn_forms([form_of_thread(row)])
        return row

    async def threads(self, after: str, limit: int, prefix: str = "") -> list[ThreadRow]:
        page = await self.backend.threads(after, limit, prefix)
        await self.learn_forms([form_of_thread(row) for row in page if row.metadata])
        return page

    async def chunks(self, pool: int, digests: Sequence[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        found = await self.backend.chunks(pool, digests)
        if not _UNSEALED.issuperset(forms := list(map(_form_of_chunk, found))):
            cold = [data for _, _, form, data in found if is_cold(form) and is_reference(data)]
            if cold:
                raise _out_of_reach(cold[0])
            await self.tools.learn_keys(self.backend, forms)
        return found

    async def read_records(self, space: RecordSpace, names: Sequence[bytes]) -> list[Record | None]:
        found = await self.backend.read_records(space, names)
        await self.learn_forms([one.form for one in found if one is not None and one.form not in UNSEALED])
        return found

    async def scan_records(self, space: RecordSpace, scan: Scan) -> list[Record]:
        found = await self.backend.scan_records(space, scan)
        await self.learn_forms([one.form for one in found if one.form not in UNSEALED])
        return found

    async def _learn(self, rows: list[Found]) -> list[Found]:
        forms = [form for one in rows for form in (one.row.form, one.row.metadata_form, *_forms(one.writes))]
        await self.learn_forms(forms)
        return rows

    async def learn_forms(self, forms: list[int]) -> None:
        if any(forms):
            await self.tools.learn_keys(self.backend, forms)


def _out_of_reach(reference: bytes) -> Unavailable:
    """A chunk is in an object, and no layer below reads those."""
    return Unavailable(
        f"the value is in the cold tier (object {read_reference(reference).object_name}), and this store was opened "
        f"without it: give cold='s3://…/prefix'; commands take THREADLINE_COLD, for a store to fill THREADLINE_TO_COLD"
    )


# Rows are read through a context where they are to be opened, and from the backend where that does not matter.
Reads: TypeAlias = Backend | Context


def bound(
    tools: Tools,
    operation: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]],
    *args: P.args,
    **options: P.kwargs,
) -> Operation[T]:
    """An operation with its arguments, for an engine; the store is opened first."""

    async def opened(backend: Backend) -> T:
        if not tools.is_open:
            await tools.open(backend)
        try:
            return await operation(Context(backend, tools), *args, **options)
        except MemoryError as shortage:
            if isinstance(shortage, TooLarge):
                raise
            raise TooLarge("it takes more memory than this process can have: ask for less, or give it more") from None

    return opened


class _Noted(dict[tuple[str, str], V], Generic[V]):
    """Notes about checkpoints, by thread and id; the oldest notes go first."""

    def note(self, thread_id: str, checkpoint_id: str, what: V) -> None:
        self[thread_id, checkpoint_id] = what
        if len(self) > _MOST_NOTED:
            self.trim()

    def trim(self) -> None:
        self.pop(next(iter(self)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """The options of `connect` that are about values and memory; it checks their values."""

    compression: str | None = "zstd"
    cache_bytes: int = 64 * 1024 * 1024
    trust_identity: bool = False
    share_decoded: bool = False
    index_metadata: Collection[str] = ()
    fencing: bool = False
    # The policy of a sweep that is given none, and after how many seconds an idle thread expires.
    retention: Policy | None = None
    ttl: float | None = None
    # After which time chunks of an idle thread go to the cold tier, or by which rules: a sweeper carries it out.
    cold_after: Any = None


class Tools:
    """Codec, digests, envelope and caches of one store; shared by the clones of a saver."""

    def __init__(
        self, codec: Codec, options: ToolOptions | None = None, *, ring: Ring | None = None, is_in_memory: bool = False
    ) -> None:
        self.options = options = options or ToolOptions()
        self.envelope = Envelope(compression=options.compression, ring=ring)
        # Under encryption nothing of the metadata is readable unless its key was named.
        self.indexed = tuple(options.index_metadata) if ring is not None else None
        # How the native module makes the row of a put.
        made_by = ormsgpack.packb, OPTIONS, searchable, self.indexed, self.envelope.begun, self.envelope.wrap_row
        self.how = *made_by, CheckpointRow, Draft, NONE
        # The same for the rows of writes.
        self.how_writes = WRITES_IDX_MAP, WriteRow, self.envelope.begun, self.envelope.wrap_row, Batch
        self.digesters = Digesters()
        self.is_in_memory = is_in_memory
        # Records of such a store hold plain values as they are: nothing can alter them but this process.
        self.keeps_objects = is_in_memory and ring is None
        self._use(codec)
        self._remember_within(options.cache_bytes)
        self.fencing = options.fencing
        # Whether a put is refused that has another value under its parent's version: `connect` has it so, except for
        # the bytes of a given serializer, which need not be the same twice.
        self.checks_versions = False
        # The tokens of the leases that this saver holds, by thread: its puts are made under them.
        self.leases: dict[str, bytes] = {}
        self.is_open = False
        # The record of the store's keys as it was last seen.
        self._keys_record: bytes | None = None
        # This and its clones: what is forgotten is forgotten by all of them.
        self._family: weakref.WeakSet[Tools] = weakref.WeakSet([self])

    def _use(self, codec: Codec) -> None:
        """Encode and decode by a codec; begin to remember what it decodes and recognises."""
        self.codec, options = codec, self.options
        trust, holds = options.trust_identity, not self.is_in_memory  # a store in memory has its values once already
        self._encoder = Encoder(codec, self.digesters.of(0), trust_identity=trust, holds_parts=holds)
        # The encoder of every thread; None where names depend on the pool.
        self.sole_encoder = self._encoder if self.envelope.ring is None else None
        self.reader = Reader(
            codec,
            self.digesters,
            self.envelope,
            # What is in memory anyhow is kept a second time only as far as it was compressed.
            cache_bytes=options.cache_bytes // 4 if self.is_in_memory else options.cache_bytes,
            decoded_bytes=options.cache_bytes,
            share_decoded=options.share_decoded,
        )
        # (thread, namespace) -> what is remembered of it.
        self.lines = Lines(options.cache_bytes)
        self.warned: set[str] = set()
        self._lenient: Tools | None = None

    def _remember_within(self, cache_bytes: int) -> None:
        """Begin to remember what is known of threads, in caches that share a bound."""
        self.known = KnownThreads(cache_bytes // 2)
        # Checkpoints whose puts are under way or failed, with what these descend from; those whose puts were refused.
        self.coming = _Noted[Descent]()
        self.refused = _Noted[bool]()
        # Root checkpoints at which something was asked, as far as is known here: the put that follows settles it.
        self.asked = _Noted[bool]()
        # Which checkpoints a run may branch from although they are not the newest: it read them by their ids, or
        # put them on such a branch. All others are fenced, so that what is forgotten is refused and not let through.
        self._branching: BoundedCache[int, bool] = BoundedCache(max(cache_bytes // 8, _LEAST_BRANCHING_BYTES))
        # pool -> how many checkpoints were deleted one by one since it was collected, and how many are a reason to.
        self.uncollected: BoundedCache[int, tuple[int, int]] = BoundedCache(cache_bytes // 64)

    def with_codec(self, codec: Codec) -> Tools:
        """This store seen through another codec; what was decoded or recognised is not shared."""
        clone: Tools = object.__new__(Tools)
        clone.__dict__.update(self.__dict__)
        clone._use(codec)
        self._family.add(clone)
        return clone

    async def open(self, backend: Backend) -> None:
        """Learn the store's keys; a store is encrypted from its first use on, or never."""
        if self.is_open:
            return
        ring = self.envelope.ring
        stored = await read_record(backend, KEYS)
        if ring is None:
            if stored is not None:
                raise InvalidRequest(_ENCRYPTED)
        else:
            if stored is None:
                stored = await self._encrypt_new_store(backend, ring)
            await self._use_keys(backend, ring, stored)
        self.is_open = True

    async def confirm_keys(self, backend: Backend, *, restores: bool) -> bool:
        """Whether the store's keys are others than those in use, which are then replaced.

        A store that lost everything may have been begun anew, with another secret, by somebody else; what is named by
        the old one could be read by nobody. Where it has no keys yet and `restores`, it gets those in use.
        """
        ring = self.envelope.ring
        stored = await read_record(backend, KEYS) if ring is not None else None
        if ring is None or stored == self._keys_record:
            return False
        if stored is None:
            if not restores or self._keys_record is None:
                return False
            await swap_record(backend, KEYS, None, self._keys_record)
            stored = await read_record(backend, KEYS) or self._keys_record
        before = self.digesters.secret
        await self._use_keys(backend, ring, stored)
        if self.digesters.secret == before:
            return False
        self.forget()
        return True

    async def learn_keys(self, backend: Backend, forms: Iterable[int]) -> None:
        """Look up keys that another process began to use since this one opened the store, be it the first of all."""
        ring = self.envelope.ring
        # A damaged row may hold anything for its form.
        if max([form for form in forms if type(form) is int], default=0) >> 1 <= len(self.envelope.key_numbers):
            return
        stored = await read_record(backend, KEYS)
        if stored is not None:
            if ring is None:
                raise InvalidRequest(_ENCRYPTED)
            await self._use_keys(backend, ring, stored)

    def document(self, found: Found) -> Document:
        """The document of a row; Corrupt, NotAllowed and NotFound (a key) name the checkpoint."""
        return read_document(found, self.codec, self.envelope)

    def metadata(self, found: Found) -> dict[str, Any]:
        """The metadata of a row; raises like `document`."""
        return read_metadata(found, self.codec, self.envelope)

    def forget(self) -> None:
        """Drop everything remembered, also by clones; the store is asked again."""
        self.known.clear()
        for one in list(self._family):
            one.lines.clear()
            one.reader.clear()

    def expect(self, thread_id: str, checkpoint_id: str, descent: Descent) -> None:
        """Note a put in progress: writes that arrive before its commit inherit its descent."""
        coming = self.coming
        coming[thread_id, checkpoint_id] = descent
        if len(coming) > _MOST_NOTED:
            coming.trim()
        if self.refused:
            self.refused.pop((thread_id, checkpoint_id), None)

    @property
    def lenient(self) -> Tools:
        """This store, where an object of a class that is not here is read as a `Structure`."""
        if self._lenient is None:
            from ..codec.structural import lenient

            codec = lenient(self.codec)
            self._lenient = self if codec is self.codec else self.with_codec(codec)
        return self._lenient

    def encoder(self, known: Known | None) -> Encoder:
        """The encoder of a thread; while its pool is not known, under names of no pool."""
        if self.envelope.ring is None:
            return self._encoder
        return self.encoder_of(known.stamp[0] if known is not None else 0)

    def encoder_of(self, pool: int) -> Encoder:
        """The encoder of a pool."""
        return self._encoder.named_by(self.digesters.of(pool))

    def remember(self, found: Found, digests: Collection[bytes], roots: Roots) -> None:
        """Note that a row was read: these chunks are stored, and the put that follows need not read it again."""
        if self.line_of(found) is None:
            witness = witness_of(found.row)
            known = self.known.learn(found.thread_id, found.stamp, digests, witness)
            if known.stamp == found.stamp:
                self.lines.keep(found.thread_id, witness, known.mark, roots, {})

    def line_of(self, found: Found) -> Line | None:
        """What is remembered of a row, if it is the one that was last put or got in its namespace."""
        thread_id, pool, epoch, row, _ = found
        held = self.lines.of((thread_id, row[0]))
        if held is None or (line := held.line)[0] != (row[0], row[1], row[11]):
            return None
        known = self.known.of(thread_id)
        return line if known is not None and known.stamp == (pool, epoch) and line[1] == known.mark else None

    def note_read(self, place: Place, *, by_id: bool) -> None:
        """Remember how a run came to a checkpoint: by its id, or as the newest."""
        if by_id:
            self._branching.put(_short(place), True, _BYTES_PER_BRANCHING)
        else:
            self._branching.drop(_short(place))

    def may_branch(self, place: Place) -> bool:
        """Whether a put that builds on this place need not find it the newest still."""
        return self._branching.get(_short(place)) or False

    async def _encrypt_new_store(self, backend: Backend, ring: Ring) -> bytes:
        # Of the whole store, also where only a part of its threads is seen.
        whole = getattr(backend, "whole", backend)
        records = [await whole.scan_records(space, Scan(limit=1)) for space in RecordSpace]
        if await whole.count_threads() or await whole.count_threads(HIDDEN) or any(records):
            raise InvalidRequest(
                "this store holds plaintext: encryption is chosen when a store is new. "
                "Open a new one with encryption=, and import this one into it"
            )
        sealed = ring.seal(os.urandom(32), b"digest key")
        await swap_record(backend, KEYS, None, ormsgpack.packb([[ring.current], 1, sealed]))
        stored = await read_record(backend, KEYS)
        assert stored is not None
        return stored

    async def _use_keys(self, backend: Backend, ring: Ring, stored: bytes) -> None:
        ids, number, sealed = unpack(stored)
        if ring.current not in ids:
            await self._refuse_strange_ring(backend, ring, stored)
            await swap_record(backend, KEYS, stored, ormsgpack.packb([[*ids, ring.current], number, sealed]))
            return await self._use_keys(backend, ring, (await read_record(backend, KEYS)) or stored)
        self.envelope.key_numbers = {key_id: position + 1 for position, key_id in enumerate(ids)}
        self._keys_record = stored
        try:
            secret = ring.open(ids[number - 1], sealed, b"digest key")
        except Corrupt as damage:
            raise Corrupt(f"the key {ids[number - 1]!r} that was given does not open this store: {damage}") from None
        if secret != self.digesters.secret:
            self.digesters.secret = secret
        return None

    async def _refuse_strange_ring(self, backend: Backend, ring: Ring, stored: bytes) -> None:
        """A ring adds its current key only to a store that it opens: NotFound, or Corrupt for another key of that id.

        That is, it has the key of the store's own secret and the newest one that rows are under. Older keys may be
        lost for good, and must not keep a new one out.
        """
        ids, number, sealed = unpack(stored)
        whole = getattr(backend, "whole", backend)
        used = {hot_form(form) >> 1 for form in await whole.forms() if type(form) is int}
        newest = max([place for place in used if 0 < place <= len(ids)], default=number)
        for key_id in dict.fromkeys([ids[number - 1], ids[newest - 1]]):
            if key_id not in getattr(ring, "ids", (ring.current,)):
                raise NotFound(
                    f"this store is encrypted under {key_id!r}, which is not in the ring: {ring.current!r} becomes a "
                    f"key of it only by a ring that has both"
                )
        ring.open(ids[number - 1], sealed, b"digest key")

    async def reseal_digest_key(self, backend: Backend) -> None:
        """Put the digest key under the current key, so that older keys can be retired."""
        ring = self.envelope.ring
        stored = await read_record(backend, KEYS)
        assert ring is not None
        assert stored is not None
        ids, _, _ = unpack(stored)
        sealed = ring.seal(self.digesters.secret, b"digest key")
        await swap_record(backend, KEYS, stored, ormsgpack.packb([ids, ids.index(ring.current) + 1, sealed]))

    async def digest_key_number(self, backend: Backend) -> int:
        stored = await read_record(backend, KEYS)
        number: Any = unpack(stored)[1] if stored else 0
        return int(number)


def _forms(writes: Iterable[WriteRow]) -> list[int]:
    return [write.form for write in writes]


def ids_of_keys(stored: bytes) -> list[str]:
    """The ids of the keys that a store knows, of its record of them."""
    try:
        ids, _, _ = unpack(stored)
        return [str(key_id) for key_id in ids]
    except (ValueError, TypeError):
        raise Corrupt("the record of the store's keys is damaged") from None


def _short(place: Place) -> int:
    """A place as a number, of which many can be remembered."""
    named = repr(tuple(place)).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(named, digest_size=8).digest(), "big")
