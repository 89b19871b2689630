"""Values to references and chunks, recognising what was encoded before.

A list or dict is encoded item by item and its references are cut into runs. What a run was made from is
remembered as its *proof* (chunks/recall.py); when the same channel is encoded again, runs whose proof
still holds are reused without touching their items. A run is reused only if its chunks are known to be
stored: recognised is not stored.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import Any

from ..codec.fingerprints import Contents
from ..codec.framing import array_header, is_container, map_header
from ..codec.wire import Codec
from ..errors import Conflict, NotSerializable
from .cutting import FEWEST_IN_RUN, INLINE_BYTES, LARGE_ITEM_BYTES, ROOT_ENTRIES, ends_run, pieces, runs
from .digest import Digester
from .recall import Mark, Prover, Run
from .refs import LIST, MAP, Inline, Node, Pieces, Ref, Tree, pack_node, unpack_node
from .sizes import check_repeats, check_size

__all__ = ["Chunks", "Encoded", "Encoder"]

# How many values are encoded before it is looked again whether what follows is known.
_STRETCH = 256
# Large items within large items are taken apart so many times; what is deeper is cut into pieces.
_DEEPEST_NESTED = 64
# A list of at most so many runs is far from being too large.
_FEW_RUNS = 4
# digest -> links, content
Chunks = dict[bytes, tuple[bytes, bytes]]


@dataclass(slots=True)
class Encoded:
    """One value, encoded: where it is, the chunks that are new, and the runs it is made of."""

    ref: Ref
    chunks: Chunks
    runs: list[Run] = field(default_factory=list)
    # Runs taken over from before, whose chunks are not among `chunks`.
    reused: list[Run] = field(default_factory=list)
    # Runs whose nodes are part of the tree.
    noded: list[Run] = field(default_factory=list)


class Encoder:
    """Encodes values for one pool: one codec, one digest key."""

    def __init__(
        self, codec: Codec, digester: Digester, *, trust_identity: bool = False, shares_contents: bool = False
    ) -> None:
        self.codec = codec
        self.digester = digester
        self.prover = Prover(codec, trust_identity=trust_identity, shares_contents=shares_contents)

    def named_by(self, digester: Digester) -> Encoder:
        """This encoder for another pool."""
        if digester is self.digester:
            return self
        other: Encoder = object.__new__(Encoder)
        other.codec, other.digester, other.prover = self.codec, digester, self.prover
        return other

    def value(
        self, value: Any, path: str, before: Sequence[Run] = (), mark: Mark | None = None, level: int = 0
    ) -> Encoded:
        """Encode one value; `before` are the runs of the channel's last value, good under `mark`."""
        chunks: Chunks = {}
        if not _can_be_taken_apart(value):
            return Encoded(self.item(value, path, chunks), chunks)
        # A program may change its values at any moment: what is taken apart is what was there now.
        if type(value) is list:
            return _Sequence(self, chunks, path, LIST, list(value), None, level).encode(before, mark)
        pairs = list(value.items())
        keys, values = tuple([key for key, _ in pairs]), [item for _, item in pairs]
        return _Sequence(self, chunks, path, MAP, values, keys, level).encode(before, mark)

    def item(self, value: Any, path: str, chunks: Chunks) -> Ref:
        """Encode one item, whole or cut."""
        return self.content(self.codec.encode(value, path), chunks)

    def content(self, content: bytes, chunks: Chunks, level: int = 0) -> Ref:
        """The reference to an encoded item; how it is cut is decided by its bytes alone."""
        if len(content) < INLINE_BYTES:
            return Inline(content)
        if len(content) <= LARGE_ITEM_BYTES:
            return self._chunk(content, chunks)
        check_size(0, len(content), "")
        if level < _DEEPEST_NESTED and is_container(content):
            nested = self.value(self.codec.unpacked(content), "", level=level + 1)
            if isinstance(nested.ref, Tree):
                chunks.update(nested.chunks)
                return nested.ref
        return Pieces(tuple(self._chunk(piece, chunks) for piece in pieces(content)))

    def renamed(self, ref: Ref, held: Chunks, chunks: Chunks) -> Ref:
        """What `held` has under another pool's names, as `value` would have made it for this pool."""
        if isinstance(ref, Inline):
            return ref
        if type(ref) is bytes:
            return self._chunk(held[ref][1], chunks)
        if isinstance(ref, Pieces):
            return Pieces(tuple([self._chunk(held[digest][1], chunks) for digest in ref.digests]))
        assert isinstance(ref, Tree)
        keys, children = _entries(ref, held)
        made: list[Run] = []
        refs: list[Ref] = []
        for end, child in enumerate(children, 1):
            refs.append(self.renamed(child, held, chunks))
            if end == len(children) or ends_run(refs[-1], len(refs)):
                inside = tuple(keys[end - len(refs) : end]) if ref.kind == MAP else None
                made.append(Run(tuple(refs), inside, Contents([], []), 0, 0))
                refs = []
        return self.tree(ref.kind, made, chunks, None)

    def rebuild(self, run: Run, chunks: Chunks) -> None:
        """The chunks of a run made again from its proof, without looking at live values."""
        for ref, (value, content) in zip(run.refs, self.prover.contents(run.proof), strict=True):
            made = self.item(value, "", chunks) if content is None else self.content(content, chunks)
            if made != ref:
                raise Conflict(
                    "chunks that were left out as known were deleted meanwhile, and cannot be made again: "
                    "put the checkpoint again"
                )
        self._node(run, chunks)

    def _chunk(self, content: bytes, chunks: Chunks) -> bytes:
        digest = self.digester.item(content)
        chunks[digest] = (b"", content)
        return digest

    def _node(self, run: Run, chunks: Chunks) -> bytes:
        links, content = pack_node(Node(run.refs, run.keys), is_leaf=True)
        digest = self.digester.node(links, content)
        chunks[digest] = (links, content)
        return digest

    def tree(self, kind: int, made: list[Run], chunks: Chunks, mark: Mark | None) -> Ref:
        """The tree over some runs, up to a root short enough to stand in a document."""
        if sum([len(run.refs) for run in made]) <= ROOT_ENTRIES:
            refs = tuple([ref for run in made for ref in run.refs])
            keys = tuple([key for run in made for key in run.keys or ()]) if kind == MAP else None
            return _inlined(kind, refs, keys) or Tree(kind, 0, refs, keys)
        level = []
        for run in made:
            if run.digest is None or run.node_stored != mark:
                run.digest = self._node(run, chunks)
            level.append(run.digest)
        depth = 1
        while len(level) > ROOT_ENTRIES:
            above = []
            for run_of_digests in runs(level):
                links, content = pack_node(Node(tuple(run_of_digests)), is_leaf=False)
                digest = self.digester.node(links, content)
                chunks[digest] = (links, content)
                above.append(digest)
            level = above
            depth += 1
        return Tree(kind, depth, tuple(level))


class _Sequence:
    """The values of one list or dict on their way into runs."""

    def __init__(
        self,
        encoder: Encoder,
        chunks: Chunks,
        path: str,
        kind: int,
        values: list[Any],
        keys: tuple[str, ...] | None,
        level: int,
    ) -> None:
        self.encoder, self.chunks, self.path, self.level = encoder, chunks, path, level
        self.kind, self.values, self.keys = kind, values, keys
        # Whether no item was so large that it was cut; a long key is as good as a large item.
        self.is_usual = keys is None or max(map(len, keys), default=0) <= LARGE_ITEM_BYTES
        self.made: list[Run] = []
        self.reused: list[Run] = []
        self.start = 0  # where the open run begins
        self.begun: Run | None = None  # the run of before that the open run continues
        self.refs: list[Ref] = []  # the references of the open run
        self.contents: list[bytes] = []  # its items, as far as they were encoded here
        self.before: Sequence[Run] = ()
        self.starts: dict[int, Run] = {}  # where a run of before may stand again
        self.order: list[int] = []  # the same, ascending
        self.followers: dict[Ref, Run] | None = None  # the runs of before by the reference that stood before them

    def encode(self, before: Sequence[Run], mark: Mark | None) -> Encoded:
        if mark is not None:
            self.before, self.starts = before, _starts(before)
            self.order = list(self.starts)
        total = len(self.values)
        position = 0
        while position < total:
            run = self.starts.get(position) if not self.refs else None
            if run is not None and run.stored == mark and self._still_holds(run, position):
                position += len(run.refs)
                self._reuse(run, position)
            else:
                position = self._encode_from(position)
        if self.refs:
            self._close(total)
        ref = self.encoder.tree(self.kind, self.made, self.chunks, mark)
        noded = self.made if isinstance(ref, Tree) and ref.depth else []
        # A short one is small: a run has at most 128 items, of 32 KB at most unless it is cut.
        if len(self.made) > _FEW_RUNS or not self.is_usual:
            check_size(total, sum([run.size for run in self.made]) + sum(map(len, self.keys or ())), self.path)
            check_repeats([run.digest for run in noded], [run.size for run in noded], self.path)
        return Encoded(ref, self.chunks, self.made, self.reused, noded)

    def _still_holds(self, run: Run, position: int) -> bool:
        end = position + len(run.refs)
        if end > len(self.values) or (None if self.keys is None else self.keys[position:end]) != run.keys:
            return False
        values = self.values[position:end]
        return self.encoder.prover.holds(run, values, is_closed=run is not self.before[-1])

    def _reuse(self, run: Run, end: int) -> None:
        """Take over a run that ends here."""
        self.reused.append(run)
        if run is not self.before[-1]:
            self.made.append(run)
            self.start = end
            self._expect(end, run.refs[-1])
            return
        # The last run was open: what follows may belong to it.
        self.refs = list(run.refs)
        self.start = end - len(run.refs)
        self.begun = run
        if ends_run(self.refs[-1], len(self.refs)):
            self._close(end)

    def _encode_from(self, position: int) -> int:
        """Encode values up to where a run of before may stand again; gives that position."""
        following = bisect_right(self.order, position)
        stop = min(position + _STRETCH, len(self.values))
        if following < len(self.order):
            stop = min(stop, self.order[following])
        # For one or two, asking what they have in common takes longer than encoding them.
        contents = self.encoder.codec.encode_items(self.values[position:stop]) if stop - position > 2 else None
        named, chunks, refs = self.encoder.digester.item, self.chunks, self.refs
        ref: Ref
        for place, known in enumerate(contents or repeat(None, stop - position), position):
            content = self._encode_one(place) if known is None else known
            if INLINE_BYTES <= len(content) <= LARGE_ITEM_BYTES:
                ref = named(content)
                chunks[ref] = (b"", content)
            else:
                self.is_usual = self.is_usual and len(content) < INLINE_BYTES
                ref = self.encoder.content(content, chunks, self.level)
            refs.append(ref)
            self.contents.append(content)
            if len(refs) >= FEWEST_IN_RUN and ends_run(ref, len(refs)):
                self._close(place + 1)
                if place + 1 in self.starts:
                    return place + 1
                refs = self.refs
        return stop

    def _encode_one(self, position: int) -> bytes:
        try:
            return self.encoder.codec.encode(self.values[position])
        except NotSerializable as error:
            name = position if self.keys is None else self.keys[position]
            raise error.under(f"{self.path}[{name!r}]") from None

    def _close(self, end: int) -> None:
        """End the open run; one that is just what it was before keeps its proof and its digest."""
        begun, self.begun = self.begun, None
        if begun is not None and not self.contents:
            self.made.append(begun)
        else:
            keys = None if self.keys is None else self.keys[self.start : end]
            values = self.values[self.start : end]
            proof = self.encoder.prover.prove(values, begun.proof if begun else None, self.contents)
            size = sum(map(len, self.contents)) + (begun.size if begun else 0)
            self.made.append(Run(tuple(self.refs), keys, proof, id(values[0]), size))
            self._expect(end, self.refs[-1])
        self.refs, self.contents = [], []
        self.start = end

    def _expect(self, position: int, last: Ref) -> None:
        """What ends like a run of before is likely to be followed by what followed that one."""
        if position in self.starts or position >= len(self.values):
            return
        if self.followers is None:
            self.followers = {run.refs[-1]: following for run, following in pairwise(self.before)}
        run = self.followers.get(last)
        if run is not None:
            self.starts[position] = run
            insort(self.order, position)


def _entries(tree: Tree, held: Chunks) -> tuple[list[str], list[Ref]]:
    """The keys (of a dict) and the references of a tree whose nodes were just made."""
    if tree.depth == 0:
        return list(tree.keys or ()), list(tree.children)
    level: list[Any] = list(tree.children)
    for _ in range(tree.depth - 1):
        level = [child for digest in level for child in unpack_node(*held[digest], tree.kind).refs]
    nodes = [unpack_node(*held[digest], tree.kind) for digest in level]
    return [key for node in nodes for key in node.keys or ()], [ref for node in nodes for ref in node.refs]


def _starts(before: Sequence[Run]) -> dict[int, Run]:
    found, position = {}, 0
    for run in before:
        found[position] = run
        position += len(run.refs)
    return found


def _can_be_taken_apart(value: Any) -> bool:
    """Whether a value is encoded item by item."""
    return bool(value) if type(value) is list else type(value) is dict and bool(value) and _has_text_keys(value)


def _has_text_keys(value: dict[Any, Any]) -> bool:
    """Whether all keys are plain text that msgpack can hold."""
    if set(map(type, value)) != {str}:
        return False
    try:
        "".join(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def _inlined(kind: int, refs: tuple[Ref, ...], keys: tuple[str, ...] | None) -> Inline | None:
    """A small list or dict as one inline item."""
    if type(refs[0]) is bytes:
        return None
    contents = [ref.content for ref in refs if isinstance(ref, Inline)]
    if len(contents) < len(refs):
        return None
    if kind == LIST:
        joined = array_header(len(contents)) + b"".join(contents)
    else:
        assert keys is not None
        import ormsgpack

        parts = (part for key, item in zip(keys, contents, strict=True) for part in (ormsgpack.packb(key), item))
        joined = map_header(len(contents)) + b"".join(parts)
    return Inline(joined) if len(joined) < INLINE_BYTES else None
