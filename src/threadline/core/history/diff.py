"""The difference between two checkpoints, item by item. Only the parts that differ are read.

Bytes decide: two values are equal when they are stored as the same bytes, so that 1, 1.0 and True differ, and so do
two orders of a dict. A channel whose roots are equal is not read at all, and of a list or dict only the parts that
one side does not have (chunks/tree_diff.py). Two items of a list are one item, changed, when they have the same id,
or stand at the same place.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple
from uuid import UUID

from ...base.attempts import ATTEMPTS, gave_up
from ...base.checkpoint import Config, config_of, is_engine_channel
from ...chunks.gather import Pile
from ...chunks.refs import LIST, Ref, Root, Tree
from ...chunks.sequence_diff import differing
from ...chunks.tree_diff import AFTER, BEFORE, DictWalk, Gap, ListWalk, Walk, walk_of
from ...errors import Corrupt, NotAllowed, NotFound, NotSerializable
from ...ports.checkpoints import Found
from ..context import Context, Tools
from ..rows import name_of
from .revisions import At, find

__all__ = ["ChannelDiff", "DamagedChannel", "Diff", "ItemChange", "Kind", "diff", "diff_between", "id_of", "paired"]


Kind = Literal["added", "removed", "changed", "damaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """One item of a list or dict that was added, removed or changed.

    `key` is the key of a dict. Of a list it is the index, in the list that has the item (in the later one where
    both have it), or None where finding it would need more of the list to be read.
    """

    kind: Kind
    key: str | int | None
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDiff:
    """One channel that was added, removed or changed.

    Where both values are lists, or both are dicts, `items` says what differs; it is empty when the items of a
    dict are the same in another order. Where it is None, `before` and `after` are the whole values.
    """

    channel: str
    kind: Kind
    items: tuple[ItemChange, ...] | None = None
    before: Any = None
    after: Any = None


class DamagedChannel(ChannelDiff):
    """A channel that differs and cannot be read on one side: `before`, `after` and `items` raise Corrupt.

    `kind` is "damaged", and `damage` says what is wrong.
    """

    __slots__ = ("damage",)
    damage: str

    def __init__(self, channel: str, damage: str) -> None:
        object.__setattr__(self, "channel", channel)
        object.__setattr__(self, "kind", "damaged")
        object.__setattr__(self, "damage", damage)

    @property
    def items(self) -> Any:
        raise Corrupt(self.damage)

    before = after = items

    def __repr__(self) -> str:
        return f"DamagedChannel(channel={self.channel!r}, damage={self.damage!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DamagedChannel) and (self.channel, self.damage) == (other.channel, other.damage)

    def __hash__(self) -> int:
        return hash((self.channel, self.damage))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The changes that turn checkpoint `a` into checkpoint `b`; false when they are equal."""

    a: Config
    b: Config
    channels: tuple[ChannelDiff, ...]

    @property
    def config(self) -> Config:
        """The config of the later side, `b`."""
        return self.b

    def __bool__(self) -> bool:
        return bool(self.channels)

    def __str__(self) -> str:
        from ...show.diffs import as_lines

        return "\n".join(as_lines(self.channels)) or "nothing differs"

    def _repr_html_(self) -> str:
        from ...show.diffs import as_html

        return as_html(self.a, self.b, self.channels)


async def diff_between(store: Context, thread_id: str, a: At, b: At, namespace: str) -> Diff:
    """The difference between two places of a thread."""
    return await diff(store, *[await find(store, thread_id, at, namespace) for at in (a, b)])


async def diff(store: Context, a: Found | None, b: Found, *, all_channels: bool = False) -> Diff:
    """The difference between two checkpoints, which may be of different threads; without `a`, everything is added.

    Channels of the engine are left out unless `all_channels`. A channel that is damaged is a DamagedChannel; the
    others are compared. Raises NotFound when a checkpoint was deleted meanwhile; one that was replaced is compared as
    it is now.
    """
    is_whole = a is None
    a = b if a is None else a
    for _ in range(ATTEMPTS):
        compared = await _compare(store, (a, b), all_channels=all_channels, is_whole=is_whole)
        if not any(isinstance(one, DamagedChannel) for one in compared.channels):
            return compared
        # Chunks may be gone because a checkpoint was deleted or replaced after its row was read.
        a_now, b_now = await _again(store, a), await _again(store, b)
        if (a_now.pool, a_now.row, b_now.pool, b_now.row) == (a.pool, a.row, b.pool, b.row):
            return compared
        a, b = a_now, b_now
    why = "one of the two was replaced during each of them"
    raise gave_up(f"diff of {name_of(a)} and {name_of(b)}", why, NotFound)


async def _again(store: Context, found: Found) -> Found:
    now = await store.find(found.thread_id, *found.key, with_writes=False)
    if now is None:
        raise NotFound(f"{name_of(found)} was deleted while it was compared")
    return now


class _Both(NamedTuple):
    """One channel on both sides, as far as it is there."""

    channel: str
    refs: tuple[Ref | None, Ref | None]
    walk: Walk | None

    def wanted(self, side: int) -> list[Ref]:
        """The references of one side whose values are part of the answer."""
        if self.walk is None:
            ref = self.refs[side]
            return [] if ref is None else [ref]
        if isinstance(self.walk, ListWalk):
            return [ref for gap in self.walk.gaps() for ref in gap.side(side)]
        return list(self.walk.entries()[side].values())


async def _compare(store: Context, founds: tuple[Found, Found], *, all_channels: bool, is_whole: bool) -> Diff:
    a, b = founds
    roots = [store.tools.document(found).roots.refs for found in founds]
    if is_whole:
        roots[BEFORE] = {}
    named = [
        channel
        for channel in dict.fromkeys((*roots[BEFORE], *roots[AFTER]))
        if roots[BEFORE].get(channel) != roots[AFTER].get(channel) and (all_channels or not is_engine_channel(channel))
    ]
    piles = {found.pool: Pile() for found in founds}
    for pool, pile in piles.items():
        sides = [side for side, found in enumerate(founds) if found.pool == pool]
        refs = [roots[side][channel] for side in sides for channel in named if channel in roots[side]]
        await store.tools.reader.gather_roots(pool, refs, partial(store.chunks, pool), pile)
    changed: list[_Both] = []
    damaged: dict[str, str] = {}
    for channel in named:
        before, after = (_described(roots[side].get(channel), piles[found.pool]) for side, found in enumerate(founds))
        names = (_named(a, channel), _named(b, channel))
        try:
            walk = walk_of(before, after, names) if before is not None and after is not None else None
        except Corrupt as damage:
            walk, damaged[channel] = None, str(damage)
        changed.append(_Both(channel, (before, after), walk))
    await _gather(store, (a.pool, b.pool), changed, damaged, piles)
    channels: list[ChannelDiff] = []
    for both in changed:
        try:
            if both.channel in damaged:
                raise Corrupt(damaged[both.channel])
            values: list[list[Any]] = []
            for side, found in enumerate(founds):
                with _naming(found, both.channel):
                    # As one list, because items are decoded faster together.
                    wanted = Tree(LIST, (), tuple(both.wanted(side)))
                    values.append(store.tools.reader.value(wanted, piles[found.pool]))
            # Equal values may be cut into leaves of two kinds: then nothing differs, unless it is the order of a dict.
            if not isinstance(both.walk, ListWalk) or values[BEFORE] or values[AFTER]:
                channels.append(_channel_diff(store.tools, both, values[BEFORE], values[AFTER]))
        except Corrupt as damage:
            channels.append(DamagedChannel(both.channel, str(damage)))
    # The place of nothing has no id.
    place = (a.row.namespace, "") if is_whole else a.key
    return Diff(a=config_of(a.thread_id, *place), b=config_of(b.thread_id, *b.key), channels=tuple(channels))


def _described(ref: Ref | None, pile: Pile) -> Ref | None:
    """A reference, or the tree that it describes in a chunk of its own; one that is damaged stays as it is."""
    if isinstance(ref, Root) and ref.digest in pile.roots:
        with suppress(Corrupt):
            return pile.tree(ref)
    return ref


async def _gather(
    store: Context,
    pools: tuple[int, int],
    changed: list[_Both],
    damaged: dict[str, str],
    piles: dict[int, Pile],
) -> None:
    """Carry all walks to their end, then fetch what they found; one query for each level and pool.

    What is wrong with channels whose walk met damage is noted in `damaged`.
    """
    before, after = piles[pools[BEFORE]], piles[pools[AFTER]]
    while walks := {
        both.channel: both.walk
        for both in changed
        if both.walk is not None and both.channel not in damaged and not both.walk.is_over
    }:
        needed: dict[int, dict[bytes, tuple[int, int]]] = {pool: {} for pool in piles}
        for walk in walks.values():
            for side, pool in enumerate(pools):
                needed[pool].update(walk.needed(side))
        for pool, nodes in needed.items():
            await store.tools.reader.gather_nodes(pool, nodes, partial(store.chunks, pool), piles[pool])
        for channel, walk in walks.items():
            try:
                walk.descend(before, after)
            except Corrupt as damage:
                damaged[channel] = str(damage)
    whole = [both for both in changed if both.channel not in damaged]
    for pool, pile in piles.items():
        refs = [ref for both in whole for side in (BEFORE, AFTER) if pools[side] == pool for ref in both.wanted(side)]
        await store.tools.reader.gather(pool, refs, partial(store.chunks, pool), pile)


def _channel_diff(tools: Tools, both: _Both, before: list[Any], after: list[Any]) -> ChannelDiff:
    """One channel, given the values of what `wanted` named on either side."""
    channel, refs, walk = both
    if isinstance(walk, ListWalk):
        return ChannelDiff(channel=channel, kind="changed", items=tuple(_list_changes(walk.gaps(), before, after)))
    if isinstance(walk, DictWalk):
        keys = walk.entries()
        known = [dict(zip(keys[side], values, strict=True)) for side, values in enumerate((before, after))]
        return ChannelDiff(channel=channel, kind="changed", items=tuple(_dict_changes(keys, known)))
    if refs[BEFORE] is None:
        return ChannelDiff(channel=channel, kind="added", after=after[0])
    if refs[AFTER] is None:
        return ChannelDiff(channel=channel, kind="removed", before=before[0])
    items = _items_of_values(tools, before[0], after[0])
    if items is not None:
        return ChannelDiff(channel=channel, kind="changed", items=items)
    return ChannelDiff(channel=channel, kind="changed", before=before[0], after=after[0])


def _items_of_values(tools: Tools, before: Any, after: Any) -> tuple[ItemChange, ...] | None:
    """The changed items of values that are not trees: short ones, and dicts whose keys are not all text."""
    encode = tools.codec.encode
    try:
        if type(before) is list and type(after) is list:
            tokens = [encode(item) for item in before], [encode(item) for item in after]
            blocks = differing(*tokens)
            gaps = [Gap(tokens[BEFORE][a0:a1], tokens[AFTER][b0:b1], a0, b0) for a0, a1, b0, b1 in blocks]
            old = [item for a0, a1, _, _ in blocks for item in before[a0:a1]]
            new = [item for _, _, b0, b1 in blocks for item in after[b0:b1]]
            return tuple(_list_changes(gaps, old, new))
        if _has_plain_keys(before) and _has_plain_keys(after):
            encoded = [{key: encode(item) for key, item in value.items()} for value in (before, after)]
            return tuple(_dict_changes(encoded, (before, after)))
    except NotSerializable:
        pass  # readable, and not writable under the rules in force: shown as a whole
    return None


def _list_changes(gaps: list[Gap], before: Sequence[Any], after: Sequence[Any]) -> Iterator[ItemChange]:
    """The changes in each gap; the values of all gaps stand one after the other."""
    a = b = 0  # where the gap's values begin
    for gap in gaps:
        old, new = before[a : a + len(gap.before)], after[b : b + len(gap.after)]
        a, b = a + len(gap.before), b + len(gap.after)
        for i, j in paired(old, new):
            if j is None:
                assert i is not None
                yield ItemChange(kind="removed", key=_index(gap.before_start, i), before=old[i])
            elif i is None:
                yield ItemChange(kind="added", key=_index(gap.after_start, j), after=new[j])
            elif gap.before[i] != gap.after[j]:
                yield ItemChange(kind="changed", key=_index(gap.after_start, j), before=old[i], after=new[j])


def _index(start: int | None, offset: int) -> int | None:
    return None if start is None else start + offset


def _dict_changes(tokens: Sequence[dict[Any, Any]], values: Sequence[dict[Any, Any]]) -> Iterator[ItemChange]:
    """The change of each key; a token stands for the bytes of a value."""
    before, after = values
    for key in before:
        if key not in after:
            yield ItemChange(kind="removed", key=key, before=before[key])
    for key in after:
        if key not in before:
            yield ItemChange(kind="added", key=key, after=after[key])
        elif tokens[BEFORE][key] != tokens[AFTER][key]:
            yield ItemChange(kind="changed", key=key, before=before[key], after=after[key])


def _has_plain_keys(value: Any) -> bool:
    # Others may be equal and yet differ, as 1 and True do.
    return type(value) is dict and set(map(type, value)) <= {str, int}


@contextmanager
def _naming(found: Found, channel: str) -> Iterator[None]:
    """Corrupt and NotAllowed name thread, checkpoint and channel."""
    try:
        yield
    except (Corrupt, NotAllowed) as error:
        raise type(error)(f"{_named(found, channel)}: {error}") from None


def _named(found: Found, channel: str) -> str:
    return f"{name_of(found)}, channel {channel!r}"


def paired(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[int | None, int | None]]:
    """Pairs of positions over a stretch that was replaced; None where an item has no partner.

    Items with an id belong to the item with the same id. Items without belong to each other in order, if
    there are as many before as after. What was removed comes first, then the rest in the order it has now.
    """
    places: dict[Hashable, list[int]] = {}
    nameless: list[int] = []
    for i, value in enumerate(before):
        name = id_of(value)
        if name is None:
            nameless.append(i)
        else:
            places.setdefault(name, []).append(i)
    partners: dict[int, int] = {}
    others: list[int] = []
    for j, value in enumerate(after):
        name = id_of(value)
        if name is None:
            others.append(j)
        elif places.get(name):
            partners[j] = places[name].pop(0)
    if len(nameless) == len(others):
        partners.update(zip(others, nameless, strict=True))
    kept = set(partners.values())
    removed: list[tuple[int | None, int | None]] = [(i, None) for i in range(len(before)) if i not in kept]
    return removed + [(partners.get(j), j) for j in range(len(after))]


def id_of(value: Any) -> Hashable | None:
    """An item's own name, with its type (1 and True are two names); None when it has none."""
    try:
        found = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    except Exception:  # code of the value's own class
        return None
    return (type(found), found) if isinstance(found, (str, int, UUID)) else None
