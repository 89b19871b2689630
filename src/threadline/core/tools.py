"""What the operations of one store work with: its codec and keys, and what this process remembers of it."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable
from typing import Any

import ormsgpack

from ..backends.port import Backend, Stamp
from ..chunks.cache import BoundedCache
from ..chunks.digest import Digester
from ..chunks.encode import Encoder
from ..chunks.read import Reader
from ..chunks.recall import Recall
from ..codec.envelope import Envelope
from ..codec.seal import Ring
from ..codec.wire import Codec
from ..errors import InvalidRequest
from .documents import Roots
from .policy import Policy
from .requests import Place

__all__ = ["KnownChunks", "Tools"]

log = logging.getLogger("threadline")
_META_KEYS = "keys"
_BYTES_PER_DIGEST = 100


class KnownChunks:
    """The chunks this process knows to be stored, by pool and epoch, within a bound in bytes.

    Known means acknowledged or read. A later epoch forgets the pool's chunks: some were deleted.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._pools: BoundedCache[int, tuple[int, set[bytes]]] = BoundedCache(limit_bytes)

    def of(self, stamp: Stamp | None) -> set[bytes]:
        """The chunks known under a stamp; empty when it has passed."""
        if stamp is None:
            return set()
        known = self._pools.get(stamp[0])
        return known[1] if known is not None and known[0] == stamp[1] else set()

    def add(self, stamp: Stamp, digests: Iterable[bytes]) -> None:
        pool, epoch = stamp
        known = self._pools.get(pool)
        if known is None or known[0] < epoch:
            known = (epoch, set())
        elif known[0] > epoch:
            return
        before = len(known[1])
        known[1].update(digests)
        if len(known[1]) > before or not before:
            self._pools.put(pool, known, _BYTES_PER_DIGEST * len(known[1]) + 200)

    def clear(self) -> None:
        self._pools.clear()


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
        # A store in this process's memory needs no second copy of its bytes.
        shares = is_in_memory and ring is None
        self.encoder = Encoder(codec, Digester(), trust_identity=trust_identity, shares_contents=shares)
        self.reader = Reader(
            codec,
            Digester(),
            self.envelope,
            cache_bytes=0 if is_in_memory else cache_bytes,
            decoded_bytes=cache_bytes,
            share_decoded=share_decoded,
        )
        self.recall = Recall(cache_bytes)
        self.known = KnownChunks(cache_bytes // 2)
        # thread id -> pool and epoch as last seen; (thread, namespace) -> the checkpoint last put or got, its roots.
        self.stamps: BoundedCache[str, Stamp] = BoundedCache(cache_bytes // 16)
        self._roots: BoundedCache[tuple[str, str], tuple[str, Stamp, Roots]] = BoundedCache(cache_bytes // 4)
        self.fencing = fencing
        # What a sweep keeps where it is told nothing else, and after how long an idle thread expires.
        self.retention = retention
        self.ttl_seconds = ttl_seconds
        # Which checkpoints were read as the newest of their namespace, for the puts that build on them.
        self._heads: BoundedCache[Place, bool] = BoundedCache(cache_bytes // 16)
        # The tokens of the leases that this saver holds, by thread: its puts are made under them.
        self.leases: dict[str, bytes] = {}
        self.is_open = False
        self.warned: set[str] = set()
        # This and its clones: what is forgotten is forgotten by all of them.
        self._family: weakref.WeakSet[Tools] = weakref.WeakSet([self])

    def with_codec(self, codec: Codec) -> Tools:
        """The same store seen through another codec; what was decoded or recognised is not shared."""
        clone: Tools = object.__new__(Tools)
        clone.__dict__.update(self.__dict__)
        clone.codec = codec
        prover, reader = self.encoder.prover, self.reader
        clone.encoder = Encoder(
            codec,
            self.encoder.digester,
            trust_identity=prover.trust_identity,
            shares_contents=prover.shares_contents,
        )
        clone.reader = Reader(
            codec,
            reader.digester,
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
                raise InvalidRequest("this store is encrypted: open it with encryption=KeyRing(…)")
        else:
            if stored is None:
                stored = await self._encrypt_new_store(backend, ring)
            await self._use_keys(backend, ring, stored)
        self.is_open = True

    async def learn_keys(self, backend: Backend, forms: Iterable[int]) -> None:
        """Look up keys that another process began to use since this one opened the store."""
        ring = self.envelope.ring
        if ring is None or max(forms, default=0) >> 1 <= len(self.envelope.key_numbers):
            return
        stored = await backend.get_meta(_META_KEYS)
        if stored is not None:
            await self._use_keys(backend, ring, stored)

    async def fetch(self, backend: Backend, pool: int, digests: list[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        """Chunks as stored, after learning of any key they need."""
        found = await backend.chunks(pool, digests)
        if self.envelope.ring is not None:
            await self.learn_keys(backend, [form for _, _, form, _ in found])
        return found

    def forget(self) -> None:
        """Drop everything remembered, also by clones; the store is asked again."""
        self.known.clear()
        self.stamps.clear()
        self._roots.clear()
        for one in list(self._family):
            one.recall.clear()
            one.reader.clear()

    def see(self, thread_id: str, stamp: Stamp | None) -> None:
        """Note the pool and epoch a thread has now; None for one that is not there."""
        if stamp is None:
            self.stamps.drop(thread_id)
        elif self.stamps.get(thread_id) != stamp:
            self.stamps.put(thread_id, stamp, 200 + len(thread_id))

    def keep_roots(self, thread_id: str, namespace: str, checkpoint_id: str, stamp: Stamp, roots: Roots) -> None:
        """Remember where a checkpoint's values are, for the put that follows it."""
        self._roots.put((thread_id, namespace), (checkpoint_id, stamp, roots), 1000 + 200 * len(roots.versions))

    def roots_of(self, thread_id: str, namespace: str, checkpoint_id: str, stamp: Stamp | None) -> Roots | None:
        """Where a checkpoint's values are, if that is remembered and still good."""
        held = self._roots.get((thread_id, namespace))
        return held[2] if held is not None and held[0] == checkpoint_id and held[1] == stamp else None

    def note_head(self, place: Place, *, is_head: bool) -> None:
        """Remember how a checkpoint was read: as the newest, or by its id."""
        self._heads.put(place, is_head, 400)

    def was_head(self, place: Place) -> bool:
        """Whether a put that builds on this place expects it to be the newest still."""
        return self._heads.get(place) or False

    async def _encrypt_new_store(self, backend: Backend, ring: Ring) -> bytes:
        # Of the whole store, also where only a part of its threads is seen.
        if await getattr(backend, "whole", backend).count_threads():
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
        digester = Digester(ring.open(ids[number - 1], sealed, b"digest key"))
        self.encoder.digester = self.reader.digester = digester
        return None

    async def reseal_digest_key(self, backend: Backend) -> None:
        """Put the digest key under the current key, so that older keys can be retired."""
        ring = self.envelope.ring
        stored = await backend.get_meta(_META_KEYS)
        assert ring is not None
        assert stored is not None
        ids, _, _ = ormsgpack.unpackb(stored)
        sealed = ring.seal(self.encoder.digester.key, b"digest key")
        await backend.swap_meta(_META_KEYS, stored, ormsgpack.packb([ids, ids.index(ring.current) + 1, sealed]))

    async def digest_key_number(self, backend: Backend) -> int:
        stored = await backend.get_meta(_META_KEYS)
        number: Any = ormsgpack.unpackb(stored)[1] if stored else 0
        return int(number)
