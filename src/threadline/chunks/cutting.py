"""Where trees and large items are cut, decided by content alone.

A run of references ends where the digest of its last one says so, so that the same references make the
same runs whatever stands before or after: appending, editing the middle or trimming the front changes the
runs it touches and leaves the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from .refs import Inline, Ref, links_of

__all__ = [
    "FEWEST_IN_RUN",
    "INLINE_BYTES",
    "LARGE_ITEM_BYTES",
    "LONGEST_PIECE",
    "ROOT_ENTRIES",
    "ends_run",
    "pieces",
    "runs",
]

# An item below this costs more as a chunk (row, digest, index entry) than inside its leaf.
INLINE_BYTES = 128
# An item above this is cut, so that changing a part of it does not store all of it again.
LARGE_ITEM_BYTES = 32 * 1024
# No chunk but a node is longer.
LONGEST_PIECE = 64 * 1024
# A root of at most this many entries stands in the checkpoint's document.
ROOT_ENTRIES = 8
# A run has no fewer entries, so that every level of a tree shrinks.
FEWEST_IN_RUN = 8
_MOST, _MASK = 128, 31


def ends_run(ref: Ref, length: int) -> bool:
    """Whether a run of `length` references ends with this one."""
    if length < FEWEST_IN_RUN:
        return False
    return length >= _MOST or not _weight(ref) & _MASK


def runs(digests: list[bytes]) -> Iterator[list[bytes]]:
    """The digests of one level in the runs that become the nodes of the next."""
    run: list[bytes] = []
    for digest in digests:
        run.append(digest)
        if ends_run(digest, len(run)):
            yield run
            run = []
    if run:
        yield run


def pieces(content: bytes) -> list[bytes]:
    """A large item in pieces of some 16 KB, cut where its content says."""
    return [bytes(chunk.data) for chunk in _chunker().cut_buf(content)]


def _weight(ref: Ref) -> int:
    if type(ref) is bytes:
        return ref[0]
    if isinstance(ref, Inline):
        return zlib.crc32(ref.content)
    return next((digest[0] for digest in links_of(ref)), 0)


@lru_cache(maxsize=1)
def _chunker() -> Any:
    from pyfastcdc import FastCDC

    return FastCDC(avg_size=16 * 1024, min_size=4 * 1024, max_size=LONGEST_PIECE)
