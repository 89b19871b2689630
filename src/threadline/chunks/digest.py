"""The names of chunks: BLAKE2b of 128 bits, personalised by kind, keyed per pool where the store is encrypted."""

from __future__ import annotations

from typing import Any

from ..base.hashing import blake2b
from ..ports.checkpoints import DIGEST_BYTES

__all__ = ["Digester", "Digesters"]


# How many pools' keys are kept at hand.
_MOST_HELD = 1024


class Digester:
    """Names items and nodes; with a key, equal content under two keys has different names."""

    def __init__(self, key: bytes = b"") -> None:
        self.key = key
        # What the name of an item begins with; to be copied.
        self.begun: Any = blake2b(digest_size=DIGEST_BYTES, person=b"item", key=key)
        self._node = blake2b(digest_size=DIGEST_BYTES, person=b"node", key=key)
        self._pointer = blake2b(digest_size=8, person=b"pointer", key=key)

    def item(self, content: bytes) -> bytes:
        """The name of an item, or of a piece of one."""
        hashed = self.begun.copy()
        hashed.update(content)
        return hashed.digest()  # type: ignore[no-any-return]

    def node(self, links: bytes, content: bytes) -> bytes:
        """The name of a node; the number of links keeps links and content apart."""
        hashed = self._node.copy()
        hashed.update(len(links).to_bytes(4, "big"))
        hashed.update(links)
        hashed.update(content)
        return hashed.digest()

    def pointer(self, digest: bytes, pack: bytes, place: int) -> bytes:
        """The check of a pointer: the item of this digest is in that pack, at that place."""
        hashed = self._pointer.copy()
        hashed.update(digest + pack + bytes((place,)))
        return hashed.digest()


class Digesters:
    """The digester of each pool of a store: one for all without a secret, with one a key for each.

    Threads of one pool are forks of one another and share chunks. In an encrypted store nobody can tell from names
    whether two pools, and so two tenants, hold the same text.
    """

    def __init__(self) -> None:
        self._secret = b""
        self._plain = Digester()
        self._held: dict[int, Digester] = {}

    @property
    def secret(self) -> bytes:
        """What the keys are derived from; empty without encryption."""
        return self._secret

    @secret.setter
    def secret(self, secret: bytes) -> None:
        self._secret = secret
        self._held = {}

    def of(self, pool: int) -> Digester:
        """The digester of a pool."""
        if not self._secret:
            return self._plain
        held = self._held.get(pool)
        if held is None:
            if len(self._held) >= _MOST_HELD:
                self._held = {}
            key = blake2b(pool.to_bytes(8, "big"), digest_size=32, person=b"pool", key=self._secret).digest()
            held = self._held[pool] = Digester(key)
        return held
