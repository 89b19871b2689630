"""Conflicts of a merge, item by item: what both sides changed in different ways, and the value that choices make of it.

A merge is rehearsed on a saver that refuses to write: its strategy hears every channel that both sides changed, and the
put at its end is refused. So what is shown is what the merge itself will meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..codec.codec import Codec
from ..core.history.merge import merge_values
from ..errors import MergeConflict

__all__ = ["ABSENT", "ChannelConflict", "ItemConflict", "Rehearsal", "conflict_of", "resolved"]

ABSENT = object()


@dataclass(frozen=True, slots=True)
class ItemConflict:
    """One item that both sides changed; a side that has none has ABSENT."""

    key: Any
    base: Any
    ours: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class ChannelConflict:
    """One channel that both sides changed. `items` are those in conflict; None where it is chosen as a whole."""

    channel: str
    base: Any
    ours: Any
    theirs: Any
    is_joined: bool
    items: tuple[ItemConflict, ...] | None = None


class Rehearsal(Mapping[str, Callable[..., Any]]):
    """A strategy that takes our side everywhere and remembers what it was asked."""

    def __init__(self) -> None:
        self.heard: dict[str, tuple[Any, Any, Any]] = {}

    def __getitem__(self, channel: str) -> Callable[..., Any]:
        return partial(self._hear, channel)

    def _hear(self, channel: str, base: Any, ours: Any, theirs: Any) -> Any:
        self.heard[channel] = base, ours, theirs
        return ours

    # A merge checks the choices that were made beforehand: there are none.
    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def conflict_of(codec: Codec, channel: str, base: Any, ours: Any, theirs: Any) -> ChannelConflict:
    """What is to be chosen in a channel that both sides changed."""
    if merge_values(codec, base, ours, theirs) is not MergeConflict:
        return ChannelConflict(channel, base, ours, theirs, is_joined=True)
    sides = _by_name(base, ours, theirs)
    items = None if sides is None else tuple(_conflicts(codec, *sides))
    return ChannelConflict(channel, base, ours, theirs, is_joined=False, items=items)


def resolved(codec: Codec, base: Any, ours: Any, theirs: Any, choices: Sequence[str]) -> Any:
    """The value, where each item in conflict is taken from the side that was chosen, in their order."""
    sides = _by_name(base, ours, theirs)
    if sides is None:
        return theirs if choices and choices[0] == "theirs" else ours
    was, our, their = sides
    chosen = {one.key: side for one, side in zip(_conflicts(codec, *sides), choices, strict=True)}
    merged: dict[Any, Any] = {}
    for key in {**our, **their}:
        if key in chosen:
            value = (their if chosen[key] == "theirs" else our).get(key, ABSENT)
        elif _packed(codec, their.get(key, ABSENT)) == _packed(codec, was.get(key, ABSENT)):
            value = our.get(key, ABSENT)
        elif _packed(codec, our.get(key, ABSENT)) == _packed(codec, was.get(key, ABSENT)):
            value = their.get(key, ABSENT)
        else:
            value = our.get(key, ABSENT)  # both made the same of it
        if value is not ABSENT:
            merged[key] = value
    return merged if type(ours) is dict else list(merged.values())


_Named = dict[Any, Any]


def _by_name(base: Any, ours: Any, theirs: Any) -> tuple[_Named, _Named, _Named] | None:
    """The items of all sides by key, or by id; None where they have no names."""
    if type(ours) is dict and type(theirs) is dict:
        return (base if type(base) is dict else {}), ours, theirs
    if type(ours) is not list or type(theirs) is not list:
        return None
    named = [_with_ids(side if type(side) is list else []) for side in (base, ours, theirs)]
    if any(one is None for one in named):
        return None
    return named[0] or {}, named[1] or {}, named[2] or {}


def _with_ids(items: list[Any]) -> _Named | None:
    found: _Named = {}
    for item in items:
        name = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
        if not isinstance(name, (str, int)) or name in found:
            return None
        found[name] = item
    return found


def _conflicts(codec: Codec, base: _Named, ours: _Named, theirs: _Named) -> Iterator[ItemConflict]:
    for key in {**ours, **theirs}:
        sides = [side.get(key, ABSENT) for side in (base, ours, theirs)]
        was, our, their = (_packed(codec, side) for side in sides)
        if was not in (our, their) and our != their:
            yield ItemConflict(key, *sides)


def _packed(codec: Codec, value: Any) -> bytes | None:
    return None if value is ABSENT else codec.encode_natively(value)
