"""Values to references and chunks, recognising what was encoded before.

A list or dict is packed as a whole to be compared with its predecessor (chunks/unchanged.py); only items that are new
are encoded one by one. Their references are then cut into runs (chunks/runs.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import ormsgpack

from ..base.native import native
from ..codec.codec import OBJECT, OPTIONS, Codec
from ..codec.framing import array_header, ext_frame, is_container
from ..codec.packing import has_bytes, has_text_keys
from ..errors import NotSerializable
from .cutting import (
    ENTRY_BYTES,
    FEW_REPEATED,
    FEWEST_IN_RUN,
    INLINE_BYTES,
    LARGE_ITEM_BYTES,
    UNCOUNTED_BYTES,
    check_entries,
    check_size,
    pieces,
)
from .digest import Digester
from .growing import SMALL_BYTES, cost_of, extend, grown
from .refs import LIST, MAP, PIECES, Pair, is_plain
from .runs import Batch, Chunks, cut, root_of
from .unchanged import (
    STRETCH,
    Block,
    Sequence,
    Taking,
    are_same,
    are_unchanged,
    beginning,
    continuation,
    note_rest,
    take_over,
    wants_shots,
)
from .undivided import is_light, take_back, undivided
from .weigh import check_chunks

__all__ = ["Batch", "Chunks", "Encoder", "Source", "is_same_value"]

packb, unpackb, Ext = ormsgpack.packb, ormsgpack.unpackb, ormsgpack.Ext
# Large items within large items are taken apart so many times; what is deeper is cut into pieces.
_DEEPEST_NESTED = 64
# A container of at most so many plain values is packed whole first: most are small enough to be one inline item.
_FEW = 64
_SCALARS = frozenset((str, int, float, bool, type(None)))
_NOTHING = Block(0, 0, 0)
# What takes a few bytes, whatever it is.
_SHORT = frozenset((float, bool, type(None)))
_WIDE, _FEW_LETTERS = 1 << 63, 64
# The same of a dict of at most so many names, whose values are short.
_FEW_NAMES = 8
_HOLDERS = frozenset((list, dict))
# What a byte of a nested list may count as (chunks/weigh.py): it may be an entry.
_WEIGHT_OF_BYTE = 1 + ENTRY_BYTES
# What a value can be encoded from again: a sequence, or the bytes of one item.
Source = Sequence | bytes


class Encoder:
    """Encodes values for one pool: one codec, one digest key."""

    def __init__(
        self, codec: Codec, digester: Digester, *, trust_identity: bool = False, holds_parts: bool = False
    ) -> None:
        self.codec = codec
        self.digester = digester
        self.trust_identity = trust_identity
        # Whether the parts of a long list may be held in memory, to be compared with those of the next one.
        self.holds_parts = holds_parts

    def named_by(self, digester: Digester) -> Encoder:
        """This encoder for another pool."""
        if digester is self.digester:
            return self
        other = copy.copy(self)
        other.digester = digester
        return other

    def value(self, value: Any, path: str, batch: Batch, before: Source | None = None) -> tuple[Pair, Source]:
        """Encode one value; `before` is the source of the channel's last value, whose chunks are stored."""
        kind = type(value)
        if kind is list:
            if value:
                # A program may change its values at any moment: what is taken apart is what was there now.
                values = value.copy()
                if len(values) <= _FEW and _SCALARS.issuperset(map(type, values)) and self.codec.foreign is None:
                    content = self.codec.encode_natively(values, path)
                    if len(content) < INLINE_BYTES:
                        return (b"", content), content
                if not self.trust_identity and (made := grown(before, values, self.codec, batch, self.digester)):
                    return made.root, made
                return self._sequence(LIST, values, None, path, batch, before)
        elif kind is dict and value and has_text_keys(value):
            pairs = value.copy()
            if len(pairs) <= _FEW_NAMES and self.codec.foreign is None and all(map(_is_brief, pairs.values())):
                content = self.codec.encode_natively(pairs, path)
                if len(content) < INLINE_BYTES:
                    return (b"", content), content
            return self._sequence(MAP, [*pairs.values()], (*pairs,), path, batch, before)
        if self.codec.foreign is None and _is_short(value):
            content = packb(value)
            return (b"", content), content
        content = self.codec.encode(value, path)
        if len(content) < INLINE_BYTES:
            return (b"", content), content
        pair = self.content(content, batch)
        if _WEIGHT_OF_BYTE * len(content) > FEW_REPEATED:
            check_chunks(pair, batch.chunks, path)
        return pair, content

    def alone(self, value: Any, path: str, batch: Batch) -> tuple[Pair, Source]:
        """Encode one value that no later one is compared with: a short list is no more than its items."""
        if type(value) is not list or not 0 < len(value) < FEWEST_IN_RUN or self.codec.foreign is not None:
            return self.value(value, path, batch)
        values, encode = value.copy(), self.codec.encode_natively
        fresh: Chunks = {}
        entries: list[bytes | None] = []
        links, whole = b"", array_header(len(values))
        for one in values:
            try:
                content = encode(one)
            except NotSerializable:
                return self.value(values, path, batch)  # which says where
            whole += content
            if len(content) < INLINE_BYTES:
                entries.append(content)
            elif len(content) > LARGE_ITEM_BYTES:
                return self.value(values, path, batch)
            else:
                digest = self.digester.item(content)
                fresh[digest] = (b"", content)
                links += digest
                entries.append(None)
        if not links and len(whole) < INLINE_BYTES:
            return (b"", whole), whole
        batch.chunks.update(fresh)
        return root_of(LIST, [], links, entries, batch, self.digester), whole

    def content(self, content: bytes, batch: Batch, level: int = 0) -> Pair:
        """The reference to an encoded item; how it is cut is decided by its bytes alone."""
        if len(content) < INLINE_BYTES:
            return b"", content
        if len(content) <= LARGE_ITEM_BYTES:
            return self._chunk(content, batch), None
        check_size(0, len(content), "")
        if level < _DEEPEST_NESTED and is_container(content):
            value = self.codec.unpacked(content)
            if type(value) is list and value:
                return self._sequence(LIST, value, None, "", batch, None, level + 1)[0]
            if type(value) is dict and value and has_text_keys(value):
                return self._sequence(MAP, [*value.values()], (*value,), "", batch, None, level + 1)[0]
        if len(content) > UNCOUNTED_BYTES:
            check_entries([content], 0, "")
        names = [self._chunk(piece, batch) for piece in pieces(content)]
        return b"".join(names), [PIECES, 0, len(names)]

    def again(self, source: Source, batch: Batch) -> tuple[Pair, Source]:
        """Encode a value from its source: all its chunks, under this encoder's names, whatever is stored."""
        if isinstance(source, bytes):
            return self.content(source, batch), source
        made = Sequence(source.kind, source.keys, source.heads, b"")
        made.stretches, made.size = source.stretches, source.size
        made.is_exact, made.objects, made.kinds = source.is_exact, source.objects, source.kinds
        is_cut = self._cut(made, None, _NOTHING, source.state, batch, 0)
        assert is_cut is not None  # exact sources hold no bytes, and do not change
        made.cost_bytes = source.cost_bytes
        return made.root, made

    def _chunk(self, content: bytes, batch: Batch) -> bytes:
        digest = self.digester.item(content)
        batch.chunks[digest] = (b"", content)
        return digest

    # -- lists and dicts

    def _sequence(
        self,
        kind: int,
        values: list[Any],
        keys: tuple[str, ...] | None,
        path: str,
        batch: Batch,
        before: Source | None,
        level: int = 0,
    ) -> tuple[Pair, Source]:
        old = before if type(before) is Sequence and before.kind == kind else None
        made: Sequence | None = None
        sent = len(batch.chunks), batch.moved.copy()
        is_long, is_same = self.holds_parts and len(values) > STRETCH and keys is None and not level, False
        taking: Taking | None = None
        if self.codec.foreign is None and (old is None or old.is_exact):
            if old is not None and old.objects is not None and are_same(old, values, keys):
                made = self._followed(old, values, keys, batch)
            elif is_long and old is not None and are_unchanged(old, values, self.codec.refresh().alike):
                is_same, taking = True, Taking(values[len(old.heads) :], self.codec.alike)
                made = self._followed(old, values, keys, batch, taking)
            else:
                if is_long and wants_shots(old):
                    taking = Taking(values, self.codec.refresh().alike)
                made = self._compared(old, kind, values, keys, batch, level, taking)
        if made is None:
            made = self._one_by_one(old, kind, values, keys, path, batch, level)
        if made is old:
            return made.root, made
        made.cost_bytes = cost_of(made)
        made.kinds = frozenset(map(type, values)) if not is_same else _kinds_of(old, values)
        if self.trust_identity:
            made.objects = values
        if is_long:
            _remember_parts(made, old, taking, is_same=is_same)
        if made.size > SMALL_BYTES:
            _check(made, path, level)
            if not level and not is_light(made):
                # What is stored already is not at hand: all chunks are made once more, as they are.
                plain = [name for name, is_packed in zip(made.names, made.are_packed, strict=True) if not is_packed]
                whole = Batch(plain=frozenset(plain))
                try:
                    check_chunks(self.again(made, whole)[0], whole.chunks, path)
                except NotSerializable:
                    take_back(batch, sent)
                    content = undivided(made)
                    return self.content(content, batch), content
        return made.root, made

    def _compared(
        self,
        old: Sequence | None,
        kind: int,
        values: list[Any],
        keys: tuple[str, ...] | None,
        batch: Batch,
        level: int,
        taking: Taking | None = None,
    ) -> Sequence | None:
        """The sequence by the states of its items, packed in one call; None where each must be encoded by itself."""
        heads, states = self.codec.states(values)
        pack_within, count, known = self.codec.pack_within, len(values), 0
        try:
            if count > STRETCH:
                known, rest = self._front(states, old, taking)
            else:
                rest = packb(states, pack_within, OPTIONS)[1 if count < 16 else 3 :]
        except (TypeError, ValueError, RecursionError):
            return None

        def state(place: int) -> bytes:
            return packb(states[place], pack_within, OPTIONS)

        if old is not None:
            had, parts = len(old.heads), old.stretches[0]
            if not known and len(parts) == 1 and rest.startswith(parts[0]):
                known, rest = had, rest[old.size :]
            if known == had <= count and heads[:had] == old.heads and (keys is None or keys[:had] == old.keys):
                return old if count == had else self._grown(old, keys, heads, rest, state, batch, level)
            if known:
                rest = old.span(0, known) + rest
        return self._made(Sequence(kind, keys, heads, rest), old, state, batch, level)

    def _front(self, states: list[Any], old: Sequence | None, taking: Taking | None) -> tuple[int, bytes]:
        """How many items of a long list are what they were, by stretches; and the states of all others, packed.

        The bytes of a megabyte are slower to come by than the same in small parts.
        """
        known = 0
        if old is not None:
            old.divide()
            parts, starts = old.stretches
            for part, end in zip(parts, [*starts[1:], len(old.heads)], strict=True):
                if end > len(states):
                    break
                if self._packed(states, known, end, taking) != part:
                    if taking is not None:
                        taking.take_back()
                    break
                known = end
        return known, self._packed(states, known, len(states), taking)

    def _packed(self, states: list[Any], start: int, end: int, taking: Taking | None) -> bytes:
        """Some states side by side."""
        if taking is not None:
            packed = taking.packed(states, start, end, self.codec.pack_within)
        else:
            packed = packb(states[start:end], self.codec.pack_within, OPTIONS)
        return packed[1 if end - start < 16 else 3 if end - start < 65536 else 5 :]

    def _followed(
        self,
        old: Sequence,
        values: list[Any],
        keys: tuple[str, ...] | None,
        batch: Batch,
        taking: Taking | None = None,
    ) -> Sequence | None:
        """The sequence whose first items are known to be those of before."""
        known = len(old.heads)
        if len(values) == known:
            return old
        codec = self.codec
        heads, states = codec.states(values[known:])
        try:
            added = [self._packed(states, place, place + 1, taking) for place in range(len(states))]
        except (TypeError, ValueError, RecursionError):
            return None
        return self._grown(old, keys, old.heads + heads, b"".join(added), lambda place: added[place - known], batch, 0)

    def _grown(
        self,
        old: Sequence,
        keys: tuple[str, ...] | None,
        heads: list[bytes],
        added: bytes,
        state: Callable[[int], bytes],
        batch: Batch,
        level: int,
    ) -> Sequence | None:
        """The sequence of before, with items behind it whose states are `added`; None as `_cut` has it."""
        new = old.grown(keys, heads, added)
        if keys is None and extend(new, old, added, state, batch, self.digester):
            return new
        return self._cut(new, old, Block(0, 0, len(old.heads)), state, batch, level)

    def _made(
        self, new: Sequence, old: Sequence | None, state: Callable[[int], bytes], batch: Batch, level: int
    ) -> Sequence | None:
        """The sequence with its runs, or the old one where nothing changed; None as `_cut` has it."""
        block = _NOTHING
        if old is not None:
            block = beginning(old, new, state)
            if block[2] == len(new.heads) == len(old.heads):
                return old
        return self._cut(new, old, block, state, batch, level)

    def _cut(
        self,
        new: Sequence,
        old: Sequence | None,
        block: Block,
        state: Callable[[int], bytes],
        batch: Batch,
        level: int,
    ) -> Sequence | None:
        """Give the items their references and cut them into runs; None where the bytes do not tell what they hold."""
        fresh: Chunks = {}
        blocks = self._add(new, old, block, state, fresh, batch, level)
        if blocks is None:
            return None
        cut(new, old, blocks, fresh, batch, self.digester)
        return new

    def _one_by_one(
        self,
        old: Sequence | None,
        kind: int,
        values: list[Any],
        keys: tuple[str, ...] | None,
        path: str,
        batch: Batch,
        level: int,
    ) -> Sequence:
        """The sequence of items that are encoded each by itself: exact for all that the codec can say."""
        contents = []
        for place, value in enumerate(values):
            try:
                contents.append(self.codec.encode(value))
            except NotSerializable as error:
                raise error.under(f"{path}[{place if keys is None else keys[place]!r}]") from None
        new = Sequence(kind, keys, [b""] * len(values), b"".join(contents))
        new.is_exact = False
        made = self._made(new, old, contents.__getitem__, batch, level)
        assert made is not None
        return made

    def _add(
        self,
        new: Sequence,
        old: Sequence | None,
        block: Block,
        state: Callable[[int], bytes],
        fresh: Chunks,
        batch: Batch,
        level: int,
    ) -> list[Block] | None:
        """Give each item its end and its reference; `fresh` gets the chunks of new ones. Returns what `old` has, too.

        None where bytes stand among the items, which pack like bytearrays.
        """
        pairs, ends, heads, item = new.pairs, new.ends, new.heads, self.digester.item
        count, place, at = len(heads), 0, 0
        blocks, followers = [], None
        if old is not None and block.length:
            take_over(new, old, block)
            blocks.append(block)
            place, at = block.length, ends[-1]
        base, added = at, new.behind(at)
        if (0xC4 in added or 0xC5 in added or 0xC6 in added) and new.is_exact and _has_bytes(added, count - place):
            return None
        while place < count:
            packed = state(place) if place < count - 1 else added[at - base :]
            if not added.startswith(packed, at - base):
                return None  # it was changed meanwhile, or its type encodes to other bytes each time
            at += len(packed)
            ends.append(at)
            content = ext_frame(OBJECT, heads[place], packed) if heads[place] else packed
            pair: Pair
            if len(content) < INLINE_BYTES:
                pair = b"", content
            elif len(content) > LARGE_ITEM_BYTES:
                pair = self.content(content, batch, level)
            else:
                # Its chunk is kept apart, because a pack may come to hold it.
                pair = item(content), None
                fresh[pair[0]] = b"", content
            pairs.append(pair)
            place += 1
            if old is None or not old.bounds or place == count:
                continue
            if followers is None:
                followers = {old.pairs[bound - 1]: bound for bound in old.bounds if is_plain(old.pairs[bound - 1])}
            if is_plain(pair) and pair in followers:
                blocks += continuation(new, old, place, followers[pair])
                place, at = len(pairs), ends[-1]
        return blocks


def _is_short(value: Any) -> bool:
    """Whether a value packs to a few bytes, in a moment."""
    kind = type(value)
    return (
        kind in _SHORT
        or (kind is int and -_WIDE <= value < _WIDE)
        or (kind is str and len(value) < _FEW_LETTERS and value.isascii())
    )


def _is_brief(value: Any) -> bool:
    """Whether a value is short, or an empty list or dict: the input of a turn often has both."""
    return _is_short(value) or (type(value) in _HOLDERS and not value)


def _kinds_of(old: Sequence | None, values: list[Any]) -> frozenset[type]:
    """The types of items that begin with those of before."""
    assert old is not None
    return old.kinds.union(map(type, values[len(old.heads) :]))


def _remember_parts(made: Sequence, old: Sequence | None, taking: Taking | None, *, is_same: bool) -> None:
    """Have a long list keep the shots that were taken of its items."""
    if taking is not None and made.is_exact and made.objects is None:
        made.shots = taking.shots(made, old.shots if is_same and old is not None else None)
    if not is_same:
        note_rest(made, old, were_taken=taking is not None)


def is_same_value(one: Source, other: Source) -> bool:
    """Whether two sources are of equal values."""
    if isinstance(one, Sequence) and isinstance(other, Sequence):
        return one.is_like(other)
    return one == other


def _has_bytes(packed: bytes, count: int) -> bool:
    """Whether bytes stand among some packed items."""
    if native is not None:
        return bool(native.holds_bytes(packed))
    return has_bytes(unpackb(array_header(count) + packed, ext_hook=Ext))


def _check(made: Sequence, path: str, level: int) -> None:
    """NotSerializable for what is too large to be read."""
    size = made.size + sum([len(key.encode(errors="surrogatepass")) + 5 for key in made.keys or ()])
    check_size(len(made.heads), size, path)
    if size > UNCOUNTED_BYTES and not level:
        check_entries(map(made.content, range(len(made.heads))), len(made.keys or ()), path)
