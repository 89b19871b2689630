"""Writing packs: chunks are added until one is full. No I/O: a finished pack is bytes and a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..ports.checkpoints import ChunkRow
from .format import MAGIC, MOST_BYTES, OFFSET_BYTES, Entry, Index, checksum, name_of, pack_index

__all__ = ["PackWriter", "Packed", "packs_of"]


@dataclass(frozen=True, slots=True)
class Packed:
    """A finished pack."""

    name: bytes
    content: bytes
    index: Index


class PackWriter:
    """One pack of chunks of a pool. `salt` makes it differ from every other one; an archive needs none."""

    def __init__(self, pool: int, *, salt: bytes = b"", most_bytes: int = MOST_BYTES) -> None:
        self._pool, self._salt, self._most = pool, salt, most_bytes
        self._parts = [MAGIC]
        self._entries: list[Entry] = []
        self.size = len(MAGIC)

    def __len__(self) -> int:
        return len(self._entries)

    def takes(self, length: int) -> bool:
        """Whether a chunk of so many bytes fits; an empty pack takes any."""
        return not self._entries or self.size + length <= self._most

    def add(self, row: ChunkRow) -> Entry:
        """Add a chunk as it is stored."""
        digest, links, form, data = row
        entry = Entry(bytes(digest), bytes(links), form, self.size, len(data))
        self._parts.append(data)
        self._entries.append(entry)
        self.size += len(data)
        return entry

    def finish(self) -> Packed:
        """The pack; nothing can be added after that."""
        index = Index(self._pool, self._salt, tuple(self._entries))
        body = b"".join((*self._parts, pack_index(index), self.size.to_bytes(OFFSET_BYTES, "big")))
        content = body + checksum(body)
        return Packed(name_of(content), content, index)


def packs_of(
    pool: int, rows: Iterable[ChunkRow], *, salt: bytes = b"", most_bytes: int = MOST_BYTES
) -> Iterator[Packed]:
    """The packs that some chunks fill, in their order."""
    writer = PackWriter(pool, salt=salt, most_bytes=most_bytes)
    for row in rows:
        if not writer.takes(len(row.data)):
            yield writer.finish()
            writer = PackWriter(pool, salt=salt, most_bytes=most_bytes)
        writer.add(row)
    if len(writer):
        yield writer.finish()
