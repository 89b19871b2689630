"""What differs between two checkpoints, item by item, for the price of what differs.

Bytes decide: two values are equal when they are stored as the same bytes, so that 1, 1.0 and True differ,
and so do two orders of a dict. A channel whose roots are equal is not read at all, and of a list or dict only
the parts that one side does not have (chunks/compare.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from ..backends.port import Backend, Found
from ..chunks.align import differing
from ..chunks.compare import AFTER, BEFORE, DictWalk, Gap, ListWalk, Walk, walk_of
from ..chunks.read import Pile
from ..chunks.refs import LIST, Ref, Tree
from ..errors import Corrupt, NotAllowed, NotFound, NotSerializable
from ..model import Config, is_engine_channel
from .documents import name_of, read_document
from .pairing import paired
from .showing import as_html, as_lines
from .tools import Tools

__all__ = ["ChannelDiff", "DamagedChannel", "Diff", "ItemChange", "Kind", "diff"]

Kind = Literal["added", "removed", "changed", "damaged"]

_RETRIES = 5


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
    """What has to happen to checkpoint `a` to give checkpoint `b`; false when nothing has to."""

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
        return "\n".join(as_lines(self.channels)) or "nothing differs"

    def _repr_html_(self) -> str:
        return as_html(self.a, self.b, self.channels)


async def diff(backend: Backend, tools: Tools, a: Found, b: Found, *, all_channels: bool = False) -> Diff:
    """What differs between two checkpoints, which may be of different threads.

    Channels of the engine are left out unless `all_channels`. A channel that is damaged is a DamagedChannel; the
    others are compared. Raises NotFound when a checkpoint was deleted meanwhile; one that was replaced is compared as
    it is now.
    """
    await tools.open(backend)
    for _ in range(_RETRIES):
        compared = await _compare(backend, tools, (a, b), all_channels=all_channels)
        if not any(isinstance(one, DamagedChannel) for one in compared.channels):
            return compared
        # Chunks may be gone because a checkpoint was deleted or replaced after its row was read.
        a_now, b_now = await _again(backend, a), await _again(backend, b)
        if (a_now.pool, a_now.row, b_now.pool, b_now.row) == (a.pool, a.row, b.pool, b.row):
            return compared
        a, b = a_now, b_now
    raise NotFound(f"{name_of(a)}, or {name_of(b)}, was replaced again and again while it was compared")


async def _again(backend: Backend, found: Found) -> Found:
    now = await backend.find(found.thread_id, found.row.namespace, found.row.id, with_writes=False)
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


async def _compare(backend: Backend, tools: Tools, founds: tuple[Found, Found], *, all_channels: bool) -> Diff:
    a, b = founds
    await tools.learn_keys(backend, [a.row.form, b.row.form])
    roots = [read_document(found, tools.codec, tools.envelope).roots.refs for found in founds]
    changed: list[_Both] = []
    for channel in dict.fromkeys((*roots[BEFORE], *roots[AFTER])):
        before, after = roots[BEFORE].get(channel), roots[AFTER].get(channel)
        if before == after or (is_engine_channel(channel) and not all_channels):
            continue
        names = (_named(a, channel), _named(b, channel))
        walk = walk_of(before, after, names) if before is not None and after is not None else None
        changed.append(_Both(channel, (before, after), walk))
    damaged: dict[str, str] = {}
    piles = await _gather(backend, tools, (a.pool, b.pool), changed, damaged)
    channels: list[ChannelDiff] = []
    for both in changed:
        try:
            if both.channel in damaged:
                raise Corrupt(damaged[both.channel])
            values: list[list[Any]] = []
            for side, found in enumerate(founds):
                with _naming(found, both.channel):
                    # As one list, because items are decoded faster together.
                    values.append(tools.reader.value(Tree(LIST, 0, tuple(both.wanted(side))), piles[side]))
            channels.append(_channel_diff(tools, both, values[BEFORE], values[AFTER]))
        except Corrupt as damage:
            channels.append(DamagedChannel(both.channel, str(damage)))
    return Diff(a=_config(a), b=_config(b), channels=tuple(channels))


async def _gather(
    backend: Backend, tools: Tools, pools: tuple[int, int], changed: list[_Both], damaged: dict[str, str]
) -> tuple[Pile, Pile]:
    """Carry all walks to their end, then fetch what they found; one query for each level and pool.

    What is wrong with channels whose walk met damage is noted in `damaged`.
    """
    piles = {pool: Pile() for pool in pools}
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
            await tools.reader.gather_nodes(pool, nodes, partial(tools.fetch, backend, pool), piles[pool])
        for channel, walk in walks.items():
            try:
                walk.descend(before, after)
            except Corrupt as damage:
                damaged[channel] = str(damage)
    whole = [both for both in changed if both.channel not in damaged]
    for pool, pile in piles.items():
        refs = [ref for both in whole for side in (BEFORE, AFTER) if pools[side] == pool for ref in both.wanted(side)]
        await tools.reader.gather(pool, refs, partial(tools.fetch, backend, pool), pile)
    return before, after


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
    """The same for values that are not trees: short ones, and dicts whose keys are not all text."""
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
    """What happened in each gap; the values of all gaps stand one after the other."""
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
    """What happened to each key; a token stands for the bytes of a value."""
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


def _config(found: Found) -> Config:
    row = found.row
    named = {"thread_id": found.thread_id, "checkpoint_ns": row.namespace, "checkpoint_id": row.id}
    return {"configurable": named}
