"""The pack file: chunks of one pool as they are stored, one after the other, and an index at the end.

    magic       8 bytes, `TLPACK1\\n`
    chunks      the stored bytes of each, compressed and sealed as they were in their rows
    index       msgpack: {"pool": number, "salt": bytes, "chunks": [[digest, links, form, offset, length], …]}
    trailer     8 bytes: where the index begins, big-endian; 32 bytes: BLAKE2b-256 of everything before

A pack never changes. Its name is BLAKE2b-128 of all of its bytes. The salt keeps apart packs of equal chunks: two
pools, or two stores under one prefix, never share an object, so what one of them deletes no other one misses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ormsgpack

from ..base.hashing import blake2b
from ..codec.limits import unpack
from ..errors import Corrupt
from ..ports.checkpoints import DIGEST_BYTES

__all__ = [
    "Entry",
    "Index",
    "MAGIC",
    "MOST_BYTES",
    "NAME_BYTES",
    "TRAILER_BYTES",
    "checksum",
    "name_of",
    "pack_index",
    "unpack_index",
]

MAGIC = b"TLPACK1\n"
# What a pack holds at most, unless one chunk is larger: few requests for a thread, and little to write anew.
MOST_BYTES = 16 * 1024 * 1024
NAME_BYTES = 16
OFFSET_BYTES, CHECKSUM_BYTES = 8, 32
TRAILER_BYTES = OFFSET_BYTES + CHECKSUM_BYTES


class Entry(NamedTuple):
    """A chunk of a pack, and where its stored bytes are."""

    digest: bytes
    links: bytes
    form: int
    offset: int
    length: int


class Index(NamedTuple):
    """The chunks of a pack, in the order of their bytes."""

    pool: int
    salt: bytes
    entries: tuple[Entry, ...]


def checksum(content: bytes) -> bytes:
    """What stands at the end of a pack, over everything before."""
    return blake2b(content, digest_size=CHECKSUM_BYTES, person=b"pack").digest()


def name_of(content: bytes) -> bytes:
    """The name of a pack, from all of its bytes."""
    return blake2b(content, digest_size=NAME_BYTES, person=b"packname").digest()


def pack_index(index: Index) -> bytes:
    """The bytes of an index."""
    entries = [list(entry) for entry in index.entries]
    return ormsgpack.packb({"pool": index.pool, "salt": index.salt, "chunks": entries})


def unpack_index(packed: bytes, chunks_end: int) -> Index:
    """The index in some bytes; Corrupt unless each chunk lies between the magic and `chunks_end`."""
    try:
        held = unpack(packed)
    except ValueError:
        raise Corrupt("the index of a pack is damaged") from None
    if not isinstance(held, dict) or type(held.get("pool")) is not int or type(held.get("salt")) is not bytes:
        raise Corrupt("the index of a pack is damaged: it names no pool or no salt")
    chunks = held.get("chunks")
    if not isinstance(chunks, list):
        raise Corrupt("the index of a pack is damaged: it lists no chunks")
    return Index(held["pool"], held["salt"], tuple(_entry(one, chunks_end) for one in chunks))


def _entry(held: Any, chunks_end: int) -> Entry:
    if not isinstance(held, Sequence) or [type(part) for part in held] != [bytes, bytes, int, int, int]:
        raise Corrupt("the index of a pack is damaged: an entry has another shape")
    entry = Entry(*held)
    is_named = len(entry.digest) == DIGEST_BYTES and len(entry.links) % DIGEST_BYTES == 0
    if not is_named or entry.length < 0 or not len(MAGIC) <= entry.offset <= chunks_end - entry.length:
        raise Corrupt("the index of a pack is damaged: an entry lies outside the pack")
    return entry
