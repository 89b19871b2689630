"""Lists of nothing but objects, stored as `[names, which, states]`: every name once, and all states in one go.

`which` has for each object the place of its name among `names`; it is empty where there is one name only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ormsgpack import Ext

from ..errors import Corrupt
from .alike import Alike
from .plans import Plan
from .states import a_list, a_number, a_text, of_length

__all__ = ["put_together", "take_apart"]

# Types that ormsgpack packs without asking.
_NATIVE = frozenset((str, int, float, bool, type(None), list, dict, bytes, Ext))


def take_apart(values: list[Any], alike: Alike, plan_of: Callable[[Any], Plan]) -> list[Any] | None:
    """The parts of a group; None where a value stands for itself."""
    kinds = list(map(type, values))
    if not _NATIVE.isdisjoint(kinds):
        return None
    headers: list[bytes | None]
    states: list[Any] | None = alike.states(values, kinds)
    if states is not None and alike.are_whole(states, kinds):
        headers = list(map(alike.headers.__getitem__, kinds))
    else:
        try:
            taken = [plan_of(value)(value) for value in values]
        except Exception:  # code of a value's class; whoever encodes it alone meets it too, and says where
            return None
        headers, states = [header for header, _ in taken], [state for _, state in taken]
    places = {header: place for place, header in enumerate(dict.fromkeys(headers))}
    if None in places:
        return None
    names = [header[1:].decode() for header in places if header]
    return [names, list(map(places.__getitem__, headers)) if len(names) > 1 else [], states]


def put_together(parts: Any, builder_of: Callable[[bytes], Callable[[Any], Any]]) -> list[Any]:
    """The objects of a group."""
    names, which, states = map(a_list, of_length(parts, 3))
    if "*" in map(a_text, names):
        raise Corrupt("a group is no member of a group")
    builds = [builder_of(name.encode()) for name in names]
    if not which:
        [build] = builds
        return [build(state) for state in states]
    return [builds[a_number(place)](state) for place, state in zip(which, states, strict=True)]
