"""Whether what is stored can be read: each chunk of a pool read and verified once, each row taken apart.

A walk goes down from references level by level and remembers names and verdicts, never contents: an item
is decoded when it is read, a node is sound when all below it is. A value is therefore judged without being
put together, and what many checkpoints share is judged once. Caches are passed by: storage is what is asked.

A key that is not in the ring is no damage: it raises NotFound, and nothing is judged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import ormsgpack

from ...base.printable import printable
from ...chunks.cutting import Budget
from ...chunks.digest import Digester
from ...chunks.gather import ANY_PACK, TOO_MUCH_OF_LITTLE, chunk_place
from ...chunks.pack import Pack, is_pointer, unpack_pack
from ...chunks.refs import MAP, Inline, Node, Pieces, Ref, Root, Tree, unpack_node, unpack_ref, unpack_root
from ...chunks.weigh import Key, Part, Scales, part_of_node, part_of_ref
from ...codec.envelope import FEW_EXCESS, MOST_TIMES
from ...codec.structural import StructuralCodec, unknown_in
from ...errors import Corrupt, InvalidRequest, NotAllowed, NotFound, TooLarge
from ...ports.checkpoints import CheckpointRow, Found, WriteRow
from ...ports.objects import Absence, absence_of, why_lost
from ..context import Context, Tools
from ..rows import name_of, read_document, read_metadata, write_place

__all__ = ["Subject", "TOO_LARGE", "Trouble", "Walk", "batches", "subject_of", "subject_of_write"]

T = TypeVar("T")
Stored = tuple[bytes, bytes, int, bytes]  # a chunk as the driver gives it: digest, links, form, data
_BATCH = 256
# The kind that the root of a tree is wanted as.
_ROOT = -1
# A value names at most this many of the chunks that it lacks.
_MOST_TROUBLES = 64
TOO_LARGE = "could not be looked at: it takes more memory than this process can have"


class Trouble(NamedTuple):
    """A fault of a value: the chunk at fault (empty for an inline item), and in which way."""

    digest: bytes
    what: str
    is_missing: bool = False
    # The bytes are good, but the rules in force, or its memory, do not let this process make an object of them.
    is_forbidden: bool = False
    # The object of the cold tier that should have the chunk.
    absence: Absence | None = None

    def __str__(self) -> str:
        return f"the chunk {self.digest.hex()} {self.what}" if self.digest else self.what


Troubles = tuple[Trouble, ...]


class Walk:
    """The chunks of one pool as they are met; safe beside writers, whose chunks arrive before their rows."""

    def __init__(self, store: Context, pool: int) -> None:
        self.store, self.tools, self.pool = store, store.tools, pool
        self.sound: set[bytes] = set()
        self.troubled: dict[bytes, Troubles] = {}
        # Chunks that are there and were found wanting at some time.
        self._faulty: set[bytes] = set()
        # Packs that were read for some of their items only.
        self._pointed_to: set[bytes] = set()
        # Values in pieces, by the digest of their digests: pieces say nothing alone.
        self._wholes: dict[bytes, Troubles] = {}
        # What the chunks that were read hold and name: the sizes of items, nodes by their digest and depth.
        self._sizes: dict[bytes, int] = {}
        # Roots that describe dicts.
        self._dicts: set[bytes] = set()
        # How many bytes more they become than a writer makes of what is stored.
        self._excess: dict[bytes, int] = {}
        self._parts: dict[tuple[bytes, int], Part] = {}
        self._scales = Scales(self._part_of)
        # What the rules do not rebuild is to be told, also where reading would give plain data for it.
        self._codec = store.tools.codec.refusing()
        # The types that cannot be rebuilt, and how many objects have each.
        self.unknown: Counter[str] = Counter()
        if isinstance(self._codec, StructuralCodec):
            self._codec.unknown = self.unknown

    @property
    def _digester(self) -> Digester:
        return self.tools.digesters.of(self.pool)

    def forget_troubles(self) -> None:
        """Read what was found wanting anew when it is next met; it may have been gone for a moment only."""
        self._faulty.update(self._there())
        self.troubled.clear()
        self._wholes = {whole: troubles for whole, troubles in self._wholes.items() if not troubles}

    def count(self) -> int:
        """How many chunks were read."""
        return len(self.sound | self._faulty | self._pointed_to | set(self._there()))

    async def take(self, refs: Iterable[Ref]) -> None:
        """Read and judge all that these references need and that was not met before."""
        opened: dict[bytes, Node | Tree] = {}
        level = _Level()
        for ref in refs:
            self._want(ref, level)
        while level.items or level.nodes or level.pieces:
            await self._judge_items(level.items)
            for pieces in level.pieces.values():
                await self._judge_pieces(pieces)
            below = _Level()
            nodes = {digest: shape for digest, shape in level.nodes.items() if digest not in opened}
            for digest, node in await self._read_nodes(nodes):
                opened[digest] = node
                self._parts[digest, nodes[digest][1]] = part_of_node(node, nodes[digest][1])
                if isinstance(node, Tree):
                    self._want(node, below)
                    continue
                kind, depth = nodes[digest]
                for child in node.refs:
                    if depth > 1:
                        self._want_node(child, kind, depth - 1, below)
                    else:
                        self._want(child, below)
            level = below
        for digest in opened:
            self._settle(digest, opened)

    def troubles_of(self, ref: Ref) -> Troubles:
        """The faults of a value whose chunks were taken; none when it can be read."""
        troubles = self._troubles_within(ref)
        if not any(not trouble.is_forbidden for trouble in troubles):
            try:
                self._scales.check(part_of_ref(ref))
            except Corrupt as excess:
                return (*troubles, Trouble(b"", str(excess)))
            except (KeyError, TypeError):  # a chunk is sound as something else than it is taken for here
                return (*troubles, Trouble(b"", "its chunks do not fit together"))
        return troubles

    def _part_of(self, key: Key) -> Part:
        return Part(self._sizes[key]) if isinstance(key, bytes) else self._parts[key[0], key[1]]

    def _troubles_within(self, ref: Ref) -> Troubles:
        """The faults of what a value is made of, each looked at by itself."""
        if type(ref) is bytes:
            return self.troubled.get(ref, ())
        if isinstance(ref, Inline):
            return self._decoded(b"", ref.content)
        if isinstance(ref, Pieces):
            below = _joined(self.troubled.get(digest, ()) for digest in ref.digests)
            return below or self._wholes.get(_whole(ref), ())
        if isinstance(ref, Root):
            if ref.behind and ref.digest in self._dicts:
                return (
                    Trouble(b"", "its chunks do not fit together: items stand behind a root that is not of a list"),
                )
            return _joined(self.troubled.get(digest, ()) for digest in (ref.digest, *ref.behind))
        assert isinstance(ref, Tree)
        below = _joined(self.troubled.get(digest, ()) for digest, _ in ref.nodes())
        return _joined([below, *map(self._troubles_within, ref.refs)])

    def content_of(self, stored: Stored) -> bytes | Trouble:
        """The unwrapped bytes of a chunk, whose digest is not checked yet."""
        digest, links, form, content = stored
        if type(content) is not bytes or type(links) is not bytes:
            what = why_lost(content) or "is damaged: it holds no bytes"
            return Trouble(digest, what, absence=absence_of(content))
        try:
            return self.tools.envelope.unwrap(form, content, chunk_place(self.pool, digest))
        except (Corrupt, InvalidRequest, TypeError) as damage:
            return Trouble(digest, f"is damaged: {damage}")

    def fault_of(self, stored: Stored) -> Trouble | None:
        """The fault of a chunk that may be an item or a node; None when it is sound."""
        content = self.content_of(stored)
        if isinstance(content, Trouble):
            return content
        digest, links, *_ = stored
        if digest in (self._digester.item(content), self._digester.node(links, content)):
            return None
        return None if self._place_of(stored, content) is not None else Trouble(digest, "was altered")

    async def spoiled(self, rows: Sequence[Stored]) -> list[bytes]:
        """Those of some chunks that are at fault, or point into packs that are gone."""
        bad = [stored[0] for stored in rows if self.fault_of(stored) is not None]
        sound = [stored for stored in rows if stored[0] not in bad and stored[1]]
        packs = {one[0]: one[1] for one in sound if self._points(one[0], one[1], self.content_of(one))}
        there = await self.store.backend.links(self.pool, sorted(set(packs.values()))) if packs else {}
        gone = [digest for digest, pack in packs.items() if pack not in there]
        # A collection may have deleted both since the rows were read.
        return bad + [one[0] for one in (await self.fetch(gone) if gone else ()) if one[1] == packs[one[0]]]

    def _place_of(self, stored: Stored, content: bytes) -> int | None:
        """The place in a pack that the row of an item points to; None for any other row."""
        return content[0] if self._points(stored[0], stored[1], content) else None

    def _points(self, digest: bytes, links: bytes, content: bytes | Trouble) -> bool:
        return bool(links) and isinstance(content, bytes) and is_pointer(self._digester, digest, links, content)

    async def fetch(self, digests: Iterable[bytes]) -> list[Stored]:
        return await self.store.chunks(self.pool, sorted(digests))

    def _there(self) -> Iterator[bytes]:
        for digest, troubles in self.troubled.items():
            if not any(trouble.is_missing and trouble.digest == digest for trouble in troubles):
                yield digest

    def _want(self, ref: Ref, level: _Level) -> None:
        if type(ref) is bytes:
            if not self._is_judged(ref):
                level.items.add(ref)
        elif isinstance(ref, Pieces):
            whole = _whole(ref)
            if whole not in self._wholes:
                level.pieces[whole] = ref
        elif isinstance(ref, Root):
            self._want_node(ref.digest, _ROOT, 0, level)
            for behind in ref.behind:
                self._want(behind, level)
        elif isinstance(ref, Tree):
            for child in ref.refs:
                self._want(child, level)
            for digest, depth in ref.nodes():
                self._want_node(digest, ref.kind, depth, level)

    def _want_node(self, digest: bytes, kind: int, depth: int, level: _Level) -> None:
        if not self._is_judged(digest):
            level.nodes[digest] = kind, depth

    def _is_judged(self, digest: bytes) -> bool:
        return digest in self.sound or digest in self.troubled

    async def _judge_items(self, digests: set[bytes]) -> None:
        for batch in batches(sorted(digests), _BATCH):
            for digest, content in await self._items(batch):
                self._judge(digest, self._decoded(digest, content))

    async def _judge_pieces(self, pieces: Pieces) -> None:
        contents: dict[bytes, bytes] = {}
        budget, room = Budget(), FEW_EXCESS
        for batch in batches(sorted(set(pieces.digests)), _BATCH):
            try:
                found = await self._items(batch)
                budget.take(0, sum([len(content) for _, content in found]))
                room -= sum([self._excess.get(digest, 0) for digest, _ in found])
                if room < 0:
                    raise Corrupt(f"it is damaged: {TOO_MUCH_OF_LITTLE}")
            except MemoryError:
                contents.clear()
                self._wholes[_whole(pieces)] = (Trouble(b"", TOO_LARGE, is_forbidden=True),)
                return
            except Corrupt as excess:
                self._wholes[_whole(pieces)] = (Trouble(b"", str(excess)),)
                return
            contents.update(found)
        self.sound.update(contents)
        if all(digest in contents for digest in pieces.digests):
            try:
                self._scales.check(part_of_ref(pieces))
            except Corrupt as excess:
                self._wholes[_whole(pieces)] = (Trouble(b"", str(excess)),)
                return
            self._wholes[_whole(pieces)] = self._decoded(b"", *[contents[digest] for digest in pieces.digests])

    async def _items(self, digests: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """The contents of these items, as far as they are good; the others are noted."""
        found = []
        rows = await self.fetch(digests)
        packs = await self._packs({stored[1] for stored in rows if type(stored[1]) is bytes and stored[1]})
        for stored in rows:
            content = self.content_of(stored)
            if not isinstance(content, Trouble) and stored[1]:
                content = self._moved(stored, content, packs.get(stored[1]))
            if not isinstance(content, Trouble) and self._digester.item(content) != stored[0]:
                content = Trouble(stored[0], "was altered")
            if isinstance(content, Trouble):
                self.troubled[stored[0]] = (content,)
            else:
                found.append((stored[0], content))
                self._sizes[stored[0]] = len(content)
                if len(content) > MOST_TIMES * len(stored[3]) and not stored[1]:
                    self._excess[stored[0]] = len(content) - MOST_TIMES * len(stored[3])
        self._note_missing(digests, rows)
        return found

    async def _packs(self, digests: set[bytes]) -> dict[bytes, Pack | Trouble]:
        """Those of some chunks that are packs, and what is wrong with the others."""
        packs: dict[bytes, Pack | Trouble] = {}
        rows = await self.fetch(digests) if digests else []
        for digest, links, content in await self._unmoved(rows):
            packs[digest] = self._pack_of(digest, links, content)
        self._pointed_to.update(packs)
        return packs

    async def _unmoved(self, rows: list[Stored]) -> list[tuple[bytes, bytes, bytes | Trouble]]:
        """The digest, the links and the content of nodes; of a pack that moved into another one, those it had."""
        found = [(stored[0], stored[1], self.content_of(stored)) for stored in rows]
        moved = {one[0]: one[1] for one in found if self._points(*one)}
        outer: dict[bytes, Pack | Trouble] = {}
        for stored in await self.fetch(set(moved.values())) if moved else ():
            # Its row is no pointer itself, or pointers could lead in circles.
            outer[stored[0]] = self._pack_of(stored[0], stored[1], self.content_of(stored))
        self._pointed_to.update(outer)
        return [
            (one[0], b"", self._moved(stored, one[2], outer.get(one[1]))) if one[0] in moved else one
            for stored, one in zip(rows, found, strict=True)
        ]

    def _pack_of(self, digest: bytes, links: bytes, content: bytes | Trouble) -> Pack | Trouble:
        node = self._node_of(digest, links, content, ANY_PACK, 1)
        if isinstance(node, Trouble):
            return node
        return node.pack if isinstance(node, Node) and node.pack else Trouble(digest, "is no pack")

    def _moved(self, stored: Stored, content: bytes | Trouble, pack: Pack | Trouble | None) -> bytes | Trouble:
        """The item, or the pack, that a pointer leads to."""
        place = None if isinstance(content, Trouble) else self._place_of(stored, content)
        if place is None:
            return Trouble(stored[0], "was altered")
        if pack is None:
            return Trouble(stored[1], "is missing", is_missing=True)
        if isinstance(pack, Trouble):
            return pack
        return pack.content(place) if place < len(pack) else Trouble(stored[0], "is not where it points to")

    async def _read_nodes(self, nodes: dict[bytes, tuple[int, int]]) -> list[tuple[bytes, Node | Tree]]:
        """Those of some nodes that have others below them; packs and what is at fault are judged."""
        found: list[tuple[bytes, Node | Tree]] = []
        for batch in batches(sorted(nodes), _BATCH):
            rows = await self.fetch(batch)
            for digest, links, content in await self._unmoved(rows):
                node = self._node_of(digest, links, content, *nodes[digest])
                if isinstance(node, Trouble):
                    self.troubled[digest] = (node,)
                elif isinstance(node, Node) and node.pack is not None:
                    # At once: nothing is below a pack, and those of a long list together may be large.
                    contents = node.pack.contents()
                    self._parts[digest, 1] = part_of_node(node, 1)
                    self._judge(digest, _joined(self._decoded(digest, content) for content in contents))
                else:
                    found.append((digest, node))
            self._note_missing(batch, rows)
        return found

    def _node_of(
        self, digest: bytes, links: bytes, content: bytes | Trouble, kind: int, depth: int
    ) -> Node | Tree | Trouble:
        if isinstance(content, Trouble):
            return content
        if self._digester.node(links, content) != digest:
            return Trouble(digest, "was altered")
        try:
            if kind == ANY_PACK:
                pack = unpack_pack(content)
                return Node((), pack.keys, pack=pack)
            if kind == _ROOT:
                root = unpack_root(links, content)
                if root.kind == MAP:
                    self._dicts.add(digest)
                return root
            node = unpack_node(links, content, kind)
        except Corrupt as damage:
            return Trouble(digest, f"is damaged: {damage}")
        return Trouble(digest, "is a pack that stands above leaves") if node.pack is not None and depth > 1 else node

    def _note_missing(self, digests: Sequence[bytes], rows: list[Stored]) -> None:
        for digest in set(digests).difference([stored[0] for stored in rows]):
            self.troubled[digest] = (Trouble(digest, "is missing", is_missing=True),)

    def _settle(self, digest: bytes, opened: dict[bytes, Node | Tree]) -> None:
        """The verdict on a node, after those on the nodes below it."""
        waiting = [digest]
        while waiting:  # and no recursion: roots that name roots are as deep as somebody forged them
            digest = waiting[-1]
            if self._is_judged(digest):
                waiting.pop()
                continue
            node = opened[digest]
            children: Iterable[Any] = [node] if isinstance(node, Tree) else node.refs
            named = dict.fromkeys(below for child in children for below in _nodes_in(child))
            first = [below for below in named if below in opened and not self._is_judged(below)]
            if first:
                waiting += first
            else:
                self._judge(digest, _joined(self._troubles_within(child) for child in children))

    def _judge(self, digest: bytes, troubles: Troubles) -> None:
        if troubles:
            self.troubled[digest] = troubles
        else:
            self.sound.add(digest)

    def _decoded(self, digest: bytes, *parts: bytes) -> Troubles:
        content, budget = b"", Budget()
        try:
            budget.take(0, sum(map(len, parts)))
            content = b"".join(parts)
            budget.unpack([content])
            self._codec.decode(content)
        except MemoryError:
            return (Trouble(digest, TOO_LARGE, is_forbidden=True),)
        except NotAllowed as refusal:
            self.unknown.update(unknown_in(self._codec, content))
            return (Trouble(digest, f"holds a type not allowed here: {refusal}", is_forbidden=True),)
        except Exception as error:  # a serializer of the user's own may raise anything
            said = f": {error}" if isinstance(error, Corrupt) else ""
            return (Trouble(digest, f"does not decode ({type(error).__name__}{said})"),)
        return ()


@dataclass(slots=True)
class _Level:
    """The chunks to read next."""

    items: set[bytes] = field(default_factory=set)
    nodes: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # digest -> kind, depth
    pieces: dict[bytes, Pieces] = field(default_factory=dict)


class Subject(NamedTuple):
    """A row taken apart: its values, and what is wrong with the row itself."""

    row: CheckpointRow | WriteRow
    # channel, what the value is called where it is not the channel's own, and where it is
    values: list[tuple[str, str, Ref]]
    # channel, what is wrong, and whether it is only a type that is not allowed here
    faults: list[tuple[str | None, str, bool]]


def subject_of(tools: Tools, found: Found) -> Subject:
    """A checkpoint without its writes, taken apart."""
    subject = Subject(found.row, [], [])
    prefix = name_of(found)
    for read in (read_document, read_metadata):
        try:
            read_part: Any = read(found, tools.codec, tools.envelope)
            if read is read_document:
                subject.values.extend((name, "", ref) for name, ref in read_part.roots.refs.items())
        except TooLarge as excess:
            subject.faults.append((None, _without(prefix, excess), True))
        except NotAllowed as refusal:
            subject.faults.append((None, f"type not allowed here: {_without(prefix, refusal)}", True))
        except Corrupt as damage:
            if isinstance(damage.__cause__, NotFound):
                raise damage.__cause__ from None
            subject.faults.append((None, _without(prefix, damage), False))
    return subject


def subject_of_write(tools: Tools, thread_id: str, write: WriteRow) -> Subject:
    """A pending write, taken apart."""
    label = f"a pending write of task {write.task_id!r}"
    try:
        content = tools.envelope.unwrap_row(write.form, write.data, write_place(thread_id, write))
        ref = unpack_ref(write.links, ormsgpack.unpackb(content))
    except TooLarge as excess:
        return Subject(write, [], [(write.channel, f"{label}: {excess}", True)])
    except (Corrupt, ValueError, TypeError) as damage:
        return Subject(write, [], [(write.channel, f"{label} is damaged ({damage})", False)])
    return Subject(write, [(write.channel, label, ref)], [])


def batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The values in runs of at most `size`."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _whole(pieces: Pieces) -> bytes:
    return hashlib.blake2b(b"".join(pieces.digests), digest_size=16, person=b"pieces").digest()


def _nodes_in(ref: Any) -> Iterator[bytes]:
    """The digests in a reference that may be those of nodes."""
    if type(ref) is bytes:
        yield ref
    elif isinstance(ref, Root):
        yield from (ref.digest, *ref.behind)
    elif isinstance(ref, Tree):
        for digest, _ in ref.nodes():
            yield digest
        for child in ref.refs:
            yield from _nodes_in(child)


def _joined(several: Iterable[Troubles]) -> Troubles:
    """The troubles of some values, each once."""
    found = dict.fromkeys(trouble for troubles in several for trouble in troubles)
    return tuple(found)[:_MOST_TROUBLES] if found else ()


def _without(prefix: str, error: Exception) -> str:
    return str(error).removeprefix(printable(prefix)).lstrip(":, ")
