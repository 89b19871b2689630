"""The names of chunks: BLAKE2b of 128 bits, personalised by kind, keyed where the store is encrypted."""

from __future__ import annotations

from ..codec.hashing import blake2b

__all__ = ["DIGEST_BYTES", "Digester", "split_links"]

DIGEST_BYTES = 16


class Digester:
    """Names items and nodes; with a key, equal content in two stores has different names."""

    def __init__(self, key: bytes = b"") -> None:
        self.key = key
        self._item = blake2b(digest_size=DIGEST_BYTES, person=b"item", key=key)
        self._node = blake2b(digest_size=DIGEST_BYTES, person=b"node", key=key)

    def item(self, content: bytes) -> bytes:
        """The name of an item, or of a piece of one."""
        hashed = self._item.copy()
        hashed.update(content)
        return hashed.digest()

    def node(self, links: bytes, content: bytes) -> bytes:
        """The name of a node; the number of links keeps links and content apart."""
        hashed = self._node.copy()
        hashed.update(len(links).to_bytes(4, "big"))
        hashed.update(links)
        hashed.update(content)
        return hashed.digest()


def split_links(links: bytes) -> list[bytes]:
    """The digests in a `links` column."""
    return [links[i : i + DIGEST_BYTES] for i in range(0, len(links), DIGEST_BYTES)]
