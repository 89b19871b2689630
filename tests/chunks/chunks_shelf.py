"""A store without rows: chunks in a dict, with an encoder and a reader over them."""

from typing import Any, NamedTuple

from threadline.base.drive import run_now
from threadline.chunks.digest import Digester
from threadline.chunks.encode import Batch, Chunks, Encoder, Source
from threadline.chunks.gather import Pile
from threadline.chunks.refs import (
    LIST,
    MAP,
    PIECES,
    Inline,
    Pieces,
    Ref,
    Root,
    Tree,
    links_of,
    unpack_node,
    unpack_ref,
    unpack_root,
)
from threadline.codec import Codec
from threadline.core.context import ToolOptions, Tools
from threadline.ports.checkpoints import split_links


class Encoded(NamedTuple):
    """A value as it was encoded: where it is, what it was made from, and the chunks that it brought."""

    ref: Ref
    source: Source
    chunks: Chunks


class Shelf:
    """Keeps what it encodes, as if every put were acknowledged."""

    def __init__(self, **options: Any) -> None:
        self.codec = Codec()
        self.encoder = Encoder(self.codec, Digester(), **options)
        self.chunks: Chunks = {}
        self.fetches: list[list[bytes]] = []

    def encode(self, value: Any, before: Source | None = None) -> Encoded:
        """Encode a value after `before`, the source of its predecessor; keeps nothing."""
        batch = Batch(self.chunks.keys())
        pair, source = self.encoder.value(value, "channel", batch, before)
        return Encoded(unpack_ref(*pair), source, {**batch.chunks, **batch.moved})

    def keep(self, value: Any, before: Source | None = None) -> Encoded:
        """Encode a value and keep its chunks."""
        encoded = self.encode(value, before)
        self.chunks.update(encoded.chunks)
        return encoded

    def tree(self, ref: Ref) -> Any:
        """A reference, or the tree that it describes in a chunk of its own."""
        if not isinstance(ref, Root):
            return ref
        pile = Pile()
        pile.roots[ref.digest] = unpack_root(*self.chunks[ref.digest])
        return pile.tree(ref)

    def read(self, ref: Any, **options: Any) -> Any:
        """The value of a reference, read by a reader that has seen nothing yet."""
        reader, pile = Tools(self.codec, ToolOptions(**{"cache_bytes": 0, **options})).reader, Pile()
        run_now(reader.gather(1, [ref], self._fetch, pile))
        return reader.value(ref, pile)

    async def _fetch(self, digests: list[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        self.fetches.append(digests)
        found = {digest: self.chunks[digest] for digest in digests if digest in self.chunks}
        return [(digest, links, 0, content) for digest, (links, content) in found.items()]

    def leaves(self, tree: Tree) -> list[int]:
        """How many items each closed run has."""
        level: list[bytes] = []
        for names in tree.levels:
            level = [child for digest in level for child in unpack_node(*self.chunks[digest], tree.kind).refs]
            level += names
        return [len(unpack_node(*self.chunks[digest], tree.kind)) for digest in level]

    def needed_by(self, ref: Any) -> set[bytes]:
        """Every chunk that a reference needs, by following links alone."""
        found: set[bytes] = set()
        waiting = list(links_of(ref))
        while waiting:
            digest = waiting.pop()
            if digest not in found:
                found.add(digest)
                waiting.extend(split_links(self.chunks[digest][0]))
        return found


def is_list(ref: Any) -> bool:
    return isinstance(ref, Tree) and ref.kind == LIST


def is_cut(ref: Any) -> bool:
    return isinstance(ref, Pieces)


def packed(ref: Any) -> tuple[bytes, Any]:
    """The links of a reference, and the reference without them."""
    if type(ref) is bytes:
        return ref, None
    if isinstance(ref, Inline):
        return b"", ref.content
    if isinstance(ref, Pieces):
        return b"".join(ref.digests), [PIECES, 0, len(ref.digests)]
    if isinstance(ref, Root):
        return b"".join((ref.digest, *ref.behind)), len(ref.behind) or True
    pairs = list(map(packed, ref.refs))
    links = [digest for level in ref.levels for digest in level] + [pair[0] for pair in pairs]
    entries: Any = [pair[1] for pair in pairs]
    if ref.kind == MAP:
        entries = [part for entry in zip(ref.keys, entries, strict=True) for part in entry]
    elif all(entry is None for entry in entries):
        entries = len(entries)
    return b"".join(links), [ref.kind, [len(level) for level in ref.levels], entries]
