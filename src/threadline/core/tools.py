"""What the operations of one store work with: its codec and keys, and what this process remembers of it."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import ormsgpack

from ..backends.hidden import HIDDEN
from ..backends.port import Backend, Found, Witness
from ..chunks.cache import BoundedCache
from ..chunks.digest import Digesters
from ..chunks.encode import Encoder
from ..chunks.read import Reader
from ..chunks.recall import Mark, Recall
from ..codec.envelope import Envelope
from ..codec.hashing import blake2b
from ..codec.seal import Ring
from ..codec.wire import Codec
from ..errors import Corrupt, InvalidRequest
from .documents import Roots
from .known import Known, KnownThreads
from .policy import Policy
from .requests import Place

__all__ = ["Descent", "Parent", "Tools", "ids_of_keys"]

log = logging.getLogger("threadline")
_META_KEYS = "keys"
_BYTES_PER_BRANCHING = 200
_MOST_PUTS = 10_000
_LEAST_BRANCHING_BYTES = 1024 * 1024
_ENCRYPTED = "this store is encrypted: open it with encryption=KeyRing(…)"

# The checkpoint that a put descends from, and whether it may begin a thread that is deleted.
Descent = tuple[str | None, bool]


class Parent(NamedTuple):
    """A checkpoint as the put that follows it needs it."""

    witness: Witness
    mark: Mark
    roots: Roots


class Tools:
    """Codec, digests, envelope and caches of one store; shared by the clones of a saver."""

    def __init__(
        self,
        codec: Codec,
        *,
        ring: Ring | None = None,
        compression: str | None = "zstd",
        cache_bytes: int = 64 * 1024 * 1024,
        trust_identity: bool = False,
        share_decoded: bool = False,
        index_metadata: tuple[str, ...] = (),
        is_in_memory: bool = False,
        fencing: bool = False,
        retention: Policy | None = None,
        ttl_seconds: float | None = None,
    ) -> None:
        self.codec = codec
        self.envelope = Envelope(compression=compression, ring=ring)
        # Under encryption nothing of the metadata is readable unless its key was named.
        self.indexed = tuple(index_metadata) if ring is not None else None
        self.digesters = Digesters()
        # A store in this process's memory needs no second copy of its bytes.
        shares = is_in_memory and ring is None
        self._encoder = Encoder(codec, self.digesters.of(0), trust_identity=trust_identity, shares_contents=shares)
        self.reader = Reader(
            codec,
            self.digesters,
            self.envelope,
            cache_bytes=0 if is_in_memory else cache_bytes,
            decoded_bytes=cache_bytes,
            share_decoded=share_decoded,
        )
        self.recall = Recall(cache_bytes)
        self._remember_within(cache_bytes)
        self.fencing = fencing
        # Whether a put is refused that has another value under its parent's version: `connect` has it so, except for
        # the bytes of a given serializer, which need not be the same twice.
        self.checks_versions = False
        # What a sweep keeps where it is told nothing else, and after how long an idle thread expires.
        self.retention, self.ttl_seconds = retention, ttl_seconds
        # The tokens of the leases that this saver holds, by thread: its puts are made under them.
        self.leases: dict[str, bytes] = {}
        self.is_open = False
        # The record of the store's keys as it was last seen.
        self._keys_record: bytes | None = None
        self.warned: set[str] = set()
        self._lenient: Tools | None = None
        # This and its clones: what is forgotten is forgotten by all of them.
        self._family: weakref.WeakSet[Tools] = weakref.WeakSet([self])

    def _remember_within(self, cache_bytes: int) -> None:
        """Begin to remember what is known of threads, in caches that share a bound."""
        self.known = KnownThreads(cache_bytes // 2)
        # (thread, namespace) -> the checkpoint last put or got.
        self._parents: BoundedCache[tuple[str, str], Parent] = BoundedCache(cache_bytes // 4)
        # Checkpoints whose puts are under way, with what these descend from; those whose puts were refused.
        self.coming: dict[tuple[str, str], Descent] = {}
        self.refused: dict[tuple[str, str], bool] = {}
        # Root checkpoints at which something was asked, as far as this process wrote or read it: the put that follows
        # one settles its questions.
        self.asked: dict[tuple[str, str], bool] = {}
        # Which checkpoints a run may branch from although they are not the newest: it read them by their ids, or
        # put them on such a branch. All others are fenced, so that what is forgotten is refused and not let through.
        self._branching: BoundedCache[int, bool] = BoundedCache(max(cache_bytes // 8, _LEAST_BRANCHING_BYTES))
        # pool -> how many checkpoints were deleted one by one since it was collected, and how many are a reason to.
        self.uncollected: BoundedCache[int, tuple[int, int]] = BoundedCache(cache_bytes // 64)

    def with_codec(self, codec: Codec) -> Tools:
        """The same store seen through another codec; what was decoded or recognised is not shared."""
        clone: Tools = object.__new__(Tools)
        clone.__dict__.update(self.__dict__)
        clone.codec, clone._lenient = codec, None
        prover, reader = self._encoder.prover, self.reader
        clone._encoder = Encoder(
            codec,
            self._encoder.digester,
            trust_identity=prover.trust_identity,
            shares_contents=prover.shares_contents,
        )
        clone.reader = Reader(
            codec,
            self.digesters,
            self.envelope,
            cache_bytes=reader.contents.limit_bytes + reader.nodes.limit_bytes,
            decoded_bytes=reader.decoded.limit_bytes,
            share_decoded=reader.share_decoded,
        )
        clone.recall = Recall(self.recall.limit_bytes)
        clone.warned = set()
        self._family.add(clone)
        return clone

    async def open(self, backend: Backend) -> None:
        """Learn the store's keys; a store is encrypted from its first use on, or never."""
        if self.is_open:
            return
        ring = self.envelope.ring
        stored = await backend.get_meta(_META_KEYS)
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
        stored = await backend.get_meta(_META_KEYS) if ring is not None else None
        if ring is None or stored == self._keys_record:
            return False
        if stored is None:
            if not restores or self._keys_record is None:
                return False
            await backend.swap_meta(_META_KEYS, None, self._keys_record)
            stored = await backend.get_meta(_META_KEYS) or self._keys_record
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
        stored = await backend.get_meta(_META_KEYS)
        if stored is not None:
            if ring is None:
                raise InvalidRequest(_ENCRYPTED)
            await self._use_keys(backend, ring, stored)

    async def fetch(self, backend: Backend, pool: int, digests: list[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        """Chunks as stored, after learning of any key they need."""
        found = await backend.chunks(pool, digests)
        forms = [form for _, _, form, _ in found]
        if self.envelope.ring is not None or forms.count(0) != len(forms):
            await self.learn_keys(backend, forms)
        return found

    def forget(self) -> None:
        """Drop everything remembered, also by clones; the store is asked again."""
        self.known.clear()
        self._parents.clear()
        for one in list(self._family):
            one.recall.clear()
            one.reader.clear()

    def expect(self, thread_id: str, checkpoint_id: str, descent: Descent) -> None:
        """A put is under way: what overtakes it descends from what it descends from."""
        self.coming[thread_id, checkpoint_id] = descent
        if self.refused:
            self.refused.pop((thread_id, checkpoint_id), None)
        if len(self.coming) > _MOST_PUTS:  # those that failed were never taken out
            self.coming.pop(next(iter(self.coming)), None)

    def refuse(self, thread_id: str, checkpoint_id: str) -> None:
        """A put was refused, and so will be what builds on it."""
        self.refused[thread_id, checkpoint_id] = True
        if len(self.refused) > _MOST_PUTS:
            self.refused.pop(next(iter(self.refused)), None)

    def note_asked(self, thread_id: str, checkpoint_id: str) -> None:
        """Something is asked at a checkpoint of the root graph: what follows it will have the answer."""
        self.asked[thread_id, checkpoint_id] = True
        if len(self.asked) > _MOST_PUTS:
            self.asked.pop(next(iter(self.asked)), None)

    @property
    def lenient(self) -> Tools:
        """The same store, where an object of a class that is not here is read as a `Structure`."""
        if self._lenient is None:
            from ..codec.structure import lenient  # with how LangGraph packs, which few programs ever read

            codec = lenient(self.codec)
            self._lenient = self if codec is self.codec else self.with_codec(codec)
        return self._lenient

    def encoder(self, known: Known | None) -> Encoder:
        """What encodes values for a thread; while its pool is not known, under names of no pool."""
        if self.envelope.ring is None:
            return self._encoder
        return self.encoder_of(known.stamp[0] if known is not None else 0)

    def encoder_of(self, pool: int) -> Encoder:
        """What encodes values for a pool."""
        return self._encoder.named_by(self.digesters.of(pool))

    def keep_parent(self, thread_id: str, witness: Witness, mark: Mark, roots: Roots) -> None:
        """Remember where a checkpoint's values are, for the put that follows it."""
        cost = 1000 + 200 * len(roots.versions)
        self._parents.put((thread_id, witness.namespace), Parent(witness, mark, roots), cost)

    def parent(self, thread_id: str, namespace: str, checkpoint_id: str, mark: Mark | None) -> Parent | None:
        """A checkpoint that is remembered, if what is known of its thread is what was known then."""
        held = self._parents.get((thread_id, namespace))
        return held if held is not None and held.witness.id == checkpoint_id and held.mark == mark else None

    def knows(self, found: Found) -> bool:
        """Whether a row, and with it what it is made of, is what was last put or got in its namespace."""
        row, known = found.row, self.known.of(found.thread_id)
        if known is None or known.stamp != (found.pool, found.epoch):
            return False
        held = self.parent(found.thread_id, row.namespace, row.id, known.mark)
        return held is not None and held.witness.created == row.created

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
        if await whole.count_threads() or await whole.count_threads(HIDDEN):
            raise InvalidRequest(
                "this store holds plaintext: encryption is chosen when a store is new. "
                "Open a new one with encryption=, and import this one into it"
            )
        sealed = ring.seal(os.urandom(32), b"digest key")
        await backend.swap_meta(_META_KEYS, None, ormsgpack.packb([[ring.current], 1, sealed]))
        stored = await backend.get_meta(_META_KEYS)
        assert stored is not None
        return stored

    async def _use_keys(self, backend: Backend, ring: Ring, stored: bytes) -> None:
        ids, number, sealed = ormsgpack.unpackb(stored)
        if ring.current not in ids:
            await backend.swap_meta(_META_KEYS, stored, ormsgpack.packb([[*ids, ring.current], number, sealed]))
            return await self._use_keys(backend, ring, (await backend.get_meta(_META_KEYS)) or stored)
        self.envelope.key_numbers = {key_id: position + 1 for position, key_id in enumerate(ids)}
        self._keys_record = stored
        secret = ring.open(ids[number - 1], sealed, b"digest key")
        if secret != self.digesters.secret:
            self.digesters.secret = secret
        return None

    async def reseal_digest_key(self, backend: Backend) -> None:
        """Put the digest key under the current key, so that older keys can be retired."""
        ring = self.envelope.ring
        stored = await backend.get_meta(_META_KEYS)
        assert ring is not None
        assert stored is not None
        ids, _, _ = ormsgpack.unpackb(stored)
        sealed = ring.seal(self.digesters.secret, b"digest key")
        await backend.swap_meta(_META_KEYS, stored, ormsgpack.packb([ids, ids.index(ring.current) + 1, sealed]))

    async def digest_key_number(self, backend: Backend) -> int:
        stored = await backend.get_meta(_META_KEYS)
        number: Any = ormsgpack.unpackb(stored)[1] if stored else 0
        return int(number)


def ids_of_keys(stored: bytes) -> list[str]:
    """The ids of the keys that a store knows, of its record of them."""
    try:
        ids, _, _ = ormsgpack.unpackb(stored)
        return [str(key_id) for key_id in ids]
    except (ValueError, TypeError):
        raise Corrupt("the record of the store's keys is damaged") from None


def _short(place: Place) -> int:
    """A place as a number, of which many can be remembered."""
    named = repr(tuple(place)).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(named, digest_size=8).digest(), "big")
