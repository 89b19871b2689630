"""A store without rows: chunks in a dict, with an encoder and a reader over them."""

from collections.abc import Sequence
from typing import Any

from threadline.chunks.digest import Digester, split_links
from threadline.chunks.encode import Encoded, Encoder
from threadline.chunks.read import Pile
from threadline.chunks.refs import LIST, Pieces, Tree, links_of, unpack_node
from threadline.codec import Codec
from threadline.core.tools import Tools
from threadline.drive import run_now

STAMP = (1, 0)


class Shelf:
    """Keeps what it encodes, as if every put were acknowledged."""

    def __init__(self, **options: Any) -> None:
        self.codec = Codec()
        self.encoder = Encoder(self.codec, Digester(), **options)
        self.chunks: dict[bytes, tuple[bytes, bytes]] = {}
        self.fetches: list[list[bytes]] = []

    def keep(self, value: Any, before: Sequence[Any] = ()) -> Encoded:
        """Encode a value after `before`, the runs of its predecessor, and keep its chunks."""
        encoded = self.encoder.value(value, "channel", before, STAMP)
        self.chunks.update(encoded.chunks)
        for run in encoded.runs:
            run.stored = STAMP
        return encoded

    def read(self, ref: Any, **options: Any) -> Any:
        """The value of a reference, read by a reader that has seen nothing yet."""
        reader, pile = Tools(self.codec, **{"cache_bytes": 0, **options}).reader, Pile()
        run_now(reader.gather(1, [ref], self._fetch, pile))
        return reader.value(ref, pile)

    async def _fetch(self, digests: list[bytes]) -> list[tuple[bytes, bytes, int, bytes]]:
        self.fetches.append(digests)
        found = {digest: self.chunks[digest] for digest in digests if digest in self.chunks}
        return [(digest, links, 0, content) for digest, (links, content) in found.items()]

    def levels(self, tree: Tree) -> list[list[int]]:
        """How many entries each node has, level by level from the root; the root is the first level."""
        found = [[len(tree.children)]]
        level = list(tree.children)
        for depth in range(tree.depth, 0, -1):
            nodes = [unpack_node(*self.chunks[digest], tree.kind) for digest in level]
            found.append([len(node.refs) for node in nodes])
            if depth > 1:
                level = [child for node in nodes for child in node.refs]
        return found

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
