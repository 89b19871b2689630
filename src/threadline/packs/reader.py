"""Reading packs: from all of their bytes, which are checked, or by ranges. No I/O: the caller brings the bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from ..errors import Corrupt
from ..ports.checkpoints import ChunkRow
from .format import CHECKSUM_BYTES, MAGIC, OFFSET_BYTES, TRAILER_BYTES, Index, checksum, name_of, unpack_index

__all__ = ["ReadRange", "read_index", "read_pack", "rows_of"]

# Gives the bytes from an offset on, so many of them.
ReadRange = Callable[[int, int], Awaitable[bytes]]


def read_pack(content: bytes, name: bytes | None = None) -> Index:
    """The index of a pack after all of it was checked; Corrupt where it was cut or altered, or has another name."""
    if len(content) < len(MAGIC) + TRAILER_BYTES or not content.startswith(MAGIC):
        raise Corrupt("this is no pack of Threadline, or it was cut short")
    body, check = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    if checksum(body) != check:
        raise Corrupt("the pack was altered or cut short: its checksum differs")
    if name is not None and name_of(content) != name:
        raise Corrupt("the pack is another one than its name says")
    start = _index_start(body[-OFFSET_BYTES:], len(content))
    return unpack_index(body[start:-OFFSET_BYTES], start)


def rows_of(content: bytes, index: Index) -> Iterator[ChunkRow]:
    """The chunks of a pack as they were stored."""
    for digest, links, form, offset, length in index.entries:
        yield ChunkRow(digest, links, form, content[offset : offset + length])


async def read_index(read: ReadRange, size: int) -> Index:
    """The index of a pack of so many bytes, by two ranges; the checksum over the whole is not looked at.

    Each chunk that is read by it is to be compared with its digest.
    """
    if size < len(MAGIC) + TRAILER_BYTES:
        raise Corrupt("this is no pack of Threadline, or it was cut short")
    trailer = await read(size - TRAILER_BYTES, TRAILER_BYTES)
    start = _index_start(trailer[:OFFSET_BYTES], size)
    return unpack_index(await read(start, size - TRAILER_BYTES - start), start)


def _index_start(packed: bytes, size: int) -> int:
    start = int.from_bytes(packed, "big")
    if len(packed) != OFFSET_BYTES or not len(MAGIC) <= start <= size - TRAILER_BYTES:
        raise Corrupt("the pack was altered or cut short: its index is not where it should be")
    return start
