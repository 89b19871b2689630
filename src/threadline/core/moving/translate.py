"""Rows of one store as rows of another: pure functions of the row and the tools of both stores.

Values are never decoded. What a row wears is taken off with the source's envelope and put on anew for its place in the
target. Names of chunks depend on the digest key of their pool, so between stores of which one is encrypted every chunk
gets another name, from the bottom up: an item by its content, a node by its content and its renamed links, which the
content refers to by position alone (docs/format.md). Between two plain stores names, chunks and rows are the same, and
are passed on as they are, once their digests and checks were found right.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import ormsgpack

from ...chunks.gather import chunk_place
from ...chunks.pack import member_of, place_in, pointer_to, unpack_pack
from ...codec.limits import unpack
from ...errors import Corrupt, InvalidRequest, NotFound
from ...ports.checkpoints import CheckpointRow, ChunkRow, Found, ThreadRow, WriteRow, split_links
from ...ports.objects import why_lost
from ..context import Tools
from ..lifecycle import thread_place
from ..rows import place_of_row, searchable, write_place

__all__ = ["DAMAGES", "Fault", "Names", "Opened", "Translator", "are_same", "fault_in"]

# What damaged bytes may raise.
DAMAGES = (Corrupt, InvalidRequest, ValueError, TypeError)
# Names of chunks in the target by those in the source.
Names = dict[bytes, bytes]


class Fault(Corrupt):
    """A row of the source that is not what it was when it was written."""


class Opened(NamedTuple):
    """A chunk without its wrapping: an item, a node, or a pointer to a place in a pack, of an item or of a pack."""

    row: ChunkRow
    content: bytes
    is_item: bool
    # The place in a pack, where the row is a pointer; None otherwise.
    place: int | None = None


class Translator:
    """From one pool of a store to one pool of another."""

    def __init__(self, source: Tools, target: Tools, source_pool: int, target_pool: int) -> None:
        self.source, self.target = source, target
        self.source_pool, self.target_pool = source_pool, target_pool
        self.named, self.names_anew = source.digesters.of(source_pool), target.digesters.of(target_pool)
        # Whether chunks keep their names, and whether rows of a thread that keeps its id stay as they are.
        self.keeps_names = self.named.key == self.names_anew.key
        self.is_verbatim = source.envelope.ring is None and target.envelope.ring is None

    # -- chunks

    def open(self, row: ChunkRow) -> Opened:
        """A chunk of the source, checked against its name; raises Fault."""
        digest, links, form, data = row
        if type(data) is not bytes or type(links) is not bytes:
            raise Fault(f"the chunk {digest.hex()} {why_lost(data) or 'is damaged: it holds no bytes'}")
        try:
            content = self.source.envelope.unwrap(form, data, chunk_place(self.source_pool, digest))
            if not links and self.named.item(content) == digest:
                return Opened(row, content, True)
            if self.named.node(links, content) == digest:
                return Opened(row, content, False)
            return Opened(row, content, True, place_in(self.named, digest, links, content))
        except NotFound:
            raise
        except DAMAGES as damage:
            raise Fault(f"the chunk {digest.hex()} is damaged ({damage})") from None

    def chunk(self, opened: Opened, names: Names, packs: dict[bytes, bytes]) -> ChunkRow:
        """The row of a chunk in the target; its links must be in `names`, and of a pointer the pack in `packs`."""
        row = opened.row
        if self.is_verbatim:
            return row
        links = b"".join([names[digest] for digest in split_links(row.links)])
        content = opened.content
        if opened.place is not None:
            inside = self.held(opened, packs[row.links])
            is_item = self.named.item(inside) == row.digest
            digest = self.names_anew.item(inside) if is_item else self.names_anew.node(b"", inside)
            links, content = pointer_to(self.names_anew, digest, links, opened.place)
        elif opened.is_item:
            digest = self.names_anew.item(content)
        else:
            digest = self.names_anew.node(links, content)
        form, data = self.target.envelope.wrap(content, chunk_place(self.target_pool, digest))
        return ChunkRow(digest, links, form, data)

    def held(self, opened: Opened, pack: bytes) -> bytes:
        """The item or the pack that a pointer leads to, out of the pack that it names; raises Fault."""
        assert opened.place is not None
        inside = member_of(self.named, opened.row.digest, unpack_pack(pack), opened.place)
        if inside is None:
            raise Fault(f"the chunk {opened.row.digest.hex()} is not where it points to")
        return inside

    # -- rows

    def checkpoint(self, found: Found, thread_id: str, names: Names) -> CheckpointRow:
        """The row of a checkpoint in a thread of the target; raises Fault."""
        row = found.row
        try:
            parts = [
                self.source.envelope.unwrap_row(form, stored, place_of_row(found.thread_id, row, part))
                for part, form, stored in (
                    ("document", row.form, row.document),
                    ("metadata", row.metadata_form, row.metadata),
                )
            ]
        except DAMAGES as damage:
            raise Fault(f"checkpoint {row.id} of thread {found.thread_id!r} is damaged ({damage})") from None
        if self.is_verbatim and thread_id == found.thread_id:
            return row
        moved = row._replace(links=self.links(row.links, names), searchable=self._searchable(row, parts[1]))
        wrap = self.target.envelope.wrap_row
        form, document = wrap(parts[0], place_of_row(thread_id, moved, "document"))
        metadata_form, metadata = wrap(parts[1], place_of_row(thread_id, moved, "metadata"))
        return moved._replace(form=form, document=document, metadata_form=metadata_form, metadata=metadata)

    def write(self, write: WriteRow, source_thread: str, thread_id: str, names: Names) -> WriteRow:
        """The row of a pending write in a thread of the target; raises Fault."""
        try:
            content = self.source.envelope.unwrap_row(write.form, write.data, write_place(source_thread, write))
        except DAMAGES as damage:
            at = f"checkpoint {write.checkpoint_id} of thread {source_thread!r}"
            raise Fault(f"a pending write of {at} is damaged ({damage})") from None
        if self.is_verbatim and thread_id == source_thread:
            return write
        moved = write._replace(links=self.links(write.links, names))
        form, data = self.target.envelope.wrap_row(content, write_place(thread_id, moved))
        return moved._replace(form=form, data=data)

    def links(self, links: bytes, names: Names) -> bytes:
        """The links of a row, in the target."""
        return links if self.keeps_names else b"".join([names[digest] for digest in split_links(links)])

    def words(self, thread: ThreadRow, thread_id: str) -> bytes:
        """The metadata of a thread, for a thread of the target; raises Fault."""
        if not thread.metadata:
            return b""
        try:
            form, stored = unpack(thread.metadata)
            content = self.source.envelope.unwrap_row(form, stored, thread_place(thread.thread_id))
        except DAMAGES as damage:
            raise Fault(f"the metadata of thread {thread.thread_id!r} is damaged ({damage})") from None
        return ormsgpack.packb(list(self.target.envelope.wrap_row(content, thread_place(thread_id))))

    def _searchable(self, row: CheckpointRow, metadata: bytes) -> str | None:
        """What of a checkpoint can be looked for: an encrypted store shows the keys that its options name, no more."""
        indexed = self.target.indexed
        if indexed == self.source.indexed:
            return row.searchable
        if indexed is not None and not indexed:
            return None
        try:
            described = self.target.lenient.codec.decode(metadata)
        except DAMAGES as damage:
            raise Fault(f"the metadata of checkpoint {row.id} is damaged ({damage})") from None
        return searchable(described, indexed) if type(described) is dict else None


def are_same(row: CheckpointRow, other: CheckpointRow) -> bool:
    """Whether two rows hold the same; PostgreSQL gives the JSON by which it searches in an order of its own."""
    return row[:-1] == other[:-1] and (
        row.searchable == other.searchable
        or (row.searchable and json.loads(row.searchable)) == (other.searchable and json.loads(other.searchable))
    )


def fault_in(tools: Tools, pool: int, row: ChunkRow) -> str | None:
    """What is wrong with a chunk of a store; None where it is what its name says."""
    try:
        Translator(tools, tools, pool, pool).open(row)
    except Fault as fault:
        return str(fault)
    return None
