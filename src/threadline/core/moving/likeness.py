"""Whether values of two stores are the same, whose chunks have other names and seals in each of them.

What is compared is a digest of what is in the chunks, made from the bottom up as the names of chunks are, without any
key. An item that has moved into a pack counts as the item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...base.hashing import blake2b
from ...ports.checkpoints import ChunkRow, split_links
from ..context import Context
from .translate import Fault, Opened, Translator

__all__ = ["likenesses"]

_FETCH = 256
_DIGEST_BYTES = 16


class _Part(NamedTuple):
    """A chunk without its content: the digest of that, and the chunks that it leads to."""

    digest: bytes
    below: tuple[bytes, ...]


async def likenesses(store: Context, pool: int, links: Sequence[bytes]) -> list[bytes]:
    """For each of some links, a digest of all that they lead to; Fault where a chunk is missing or damaged."""
    parts: dict[bytes, _Part] = {}
    frontier = {digest for one in links for digest in split_links(one)}
    while frontier:
        for opened in await _opened(store, pool, sorted(frontier)):
            parts[opened.row.digest] = await _part(store, pool, opened)
        frontier = {child for digest in frontier for child in parts[digest].below} - parts.keys()
    made: dict[bytes, bytes] = {}
    return [b"".join([_made(digest, parts, made) for digest in split_links(one)]) for one in links]


async def _opened(store: Context, pool: int, digests: Sequence[bytes]) -> list[Opened]:
    translator = Translator(store.tools, store.tools, pool, pool)
    found: list[Opened] = []
    for start in range(0, len(digests), _FETCH):
        stored = await store.chunks(pool, digests[start : start + _FETCH])
        found += [translator.open(ChunkRow(*row)) for row in stored]
    if len(found) < len(digests):
        raise Fault("a chunk is missing")
    return found


async def _part(store: Context, pool: int, opened: Opened) -> _Part:
    content = opened.content
    if opened.place is not None:
        content = await _held(store, pool, opened)
    below = () if opened.is_item else tuple(split_links(opened.row.links))
    return _Part(blake2b(content, digest_size=_DIGEST_BYTES).digest(), below)


async def _held(store: Context, pool: int, opened: Opened, level: int = 0) -> bytes:
    """The item or the pack that a pointer leads to; a pack may have moved into another one, and that one into none."""
    [holder] = await _opened(store, pool, split_links(opened.row.links))
    pack = holder.content
    if holder.place is not None and not level:
        pack = await _held(store, pool, holder, 1)
    return Translator(store.tools, store.tools, pool, pool).held(opened, pack)


def _made(root: bytes, parts: dict[bytes, _Part], made: dict[bytes, bytes]) -> bytes:
    """The digest of a chunk and all below it; without recursion, because a forged chain may be long."""
    waiting = [root]
    while waiting:
        part = parts[waiting[-1]]
        lacking = [child for child in part.below if child not in made]
        if lacking:
            waiting += lacking
            continue
        below = b"".join([made[child] for child in part.below])
        made[waiting.pop()] = blake2b(part.digest + below, digest_size=_DIGEST_BYTES).digest()
    return made[root]
