"""The careful way of encoding, for values that ormsgpack alone would not pack exactly.

`encode_slowly` walks a value in Python and knows the path of every part, so an error names the place.
`hides_mutable_bytes` tells bytearrays from bytes, which ormsgpack packs alike. `take_apart` and `put_together` store
a list of nothing but objects as `[names, which, states]`: every type name once, and all states in one call. `which`
holds, for each object, the place of its name among `names`; it is empty for one name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from itertools import chain
from typing import Any

import ormsgpack

from ..base.native import native
from ..errors import Corrupt, NotSerializable
from .framing import array_header, ext_frame
from .limits import DEEPEST, a_list, a_number, a_text, check_room, is_deeper, of_length
from .plans import Plan, name_header
from .uniform import Alike, built

__all__ = [
    "OBJECT",
    "OPTIONS",
    "TEXT",
    "TOO_DEEP",
    "encode_slowly",
    "framed",
    "has_bytes",
    "has_text_keys",
    "hides_mutable_bytes",
    "may_hold_bytes",
    "put_together",
    "quick_hook",
    "take_apart",
]


OBJECT = 32
TEXT = 34  # text that UTF-8 cannot hold, because it has lone surrogates
TOO_DEEP = "nested deeper than 250 levels, or objects within objects deeper than about 100, or it contains itself"

packb, Ext = ormsgpack.packb, ormsgpack.Ext
OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_MOMENT_HEADER = b"\x02dt"
_utc = timezone.utc
_PLAIN = frozenset((float, bool, bytes, type(None), Ext))
_SURROGATE = re.compile("[\ud800-\udfff]")


def quick_hook(members: dict[int, Any], other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What ormsgpack asks for objects: moments, and members of enums by their ids, are answered at once.

    `members` are held by whoever gives them, so that no other object can have the id of one.
    """
    if native is not None:
        made: Callable[[Any], Any] = native.hook(members, other, packb, Ext, OBJECT, _MOMENT_HEADER)
        return made

    def pack(value: Any) -> Any:
        if type(value) is datetime:
            zone = value.tzinfo
            if (zone is _utc or zone is None) and not value.fold:
                return Ext(OBJECT, _MOMENT_HEADER + packb(value))  # as `isoformat` has it, in a fifth of the time
        else:
            member = members.get(id(value))
            if member is not None:
                return member
        return other(value)

    return pack


def encode_slowly(value: Any, path: str, plan_of: Callable[[Any], Plan]) -> bytes:
    """The bytes of a value; NotSerializable names the path of the part that has none."""
    try:
        packed = packb(_Lowering(plan_of).lower(value, path), option=OPTIONS)
    except NotSerializable:
        raise
    except (TypeError, RecursionError) as error:
        if isinstance(error, TypeError) and "ecursion" not in str(error):
            raise NotSerializable(str(error), path=path) from None
        raise NotSerializable(TOO_DEEP, path=path) from None
    except Exception as error:  # a buffer that was released meanwhile, say
        raise NotSerializable(f"it could not be packed ({type(error).__name__}: {error})", path=path) from None
    if is_deeper(packed, DEEPEST):
        raise NotSerializable(TOO_DEEP, path=path)
    return packed


class _Lowering:
    def __init__(self, plan_of: Callable[[Any], Plan]) -> None:
        self._plan_of = plan_of

    def lower(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind is str:
            return value if _is_utf8(value) else Ext(TEXT, value.encode("utf-8", "surrogatepass"))
        if kind is int:
            return value if -(2**63) <= value < 2**64 else Ext(OBJECT, name_header("i") + packb(hex(value)))
        if kind in _PLAIN:
            return value
        if kind is list:
            return [self.lower(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if kind is dict:
            return self._lower_dict(value, path)
        try:
            header, state = self._plan_of(value)(value)
            lowered = self.lower(state, path if kind is tuple else f"{path}<{kind.__name__}>")
        except NotSerializable as error:
            raise error if error.path else NotSerializable(str(error), path=path) from None
        except RecursionError:
            raise
        except Exception as error:  # code of the value's own class, or of its registration
            raise NotSerializable(f"it could not be taken apart ({error})", path=path) from error
        return lowered if header is None else Ext(OBJECT, header + packb(lowered, option=OPTIONS))

    def _lower_dict(self, value: dict[Any, Any], path: str) -> Any:
        if all(type(key) is str and _is_utf8(key) for key in value):
            return {key: self.lower(item, f"{path}[{key!r}]") for key, item in value.items()}
        pairs = [
            [self.lower(key, f"{path} key {key!r}"), self.lower(item, f"{path}[{key!r}]")]
            for key, item in value.items()
        ]
        return Ext(OBJECT, name_header("m") + packb(pairs, option=OPTIONS))


def _is_utf8(text: str) -> bool:
    return text.isascii() or not _SURROGATE.search(text)


# Types that ormsgpack looks into, or packs, without asking.
_SEE_THROUGH = frozenset((list, dict, bytearray, memoryview))
_CONTAINERS = frozenset((list, dict))


def hides_mutable_bytes(value: Any) -> bool:
    """Whether a bytearray or memoryview is inside, which ormsgpack packs as bytes without asking.

    Most packed values show by their bytes alone that they hold neither: `may_hold_bytes`. Other values are looked
    through level by level; objects inside were looked through when they were packed themselves.
    """
    if native is not None:
        with suppress(RecursionError):  # level by level it can be told all the same
            return bool(native.holds_mutable_bytes(value))
    if type(value) is list and _SEE_THROUGH.isdisjoint(map(type, value)):
        return False
    level = _suspects(value)
    while True:
        kinds = set(map(type, level))
        if bytearray in kinds or memoryview in kinds:
            return True
        if list not in kinds and dict not in kinds:
            return False
        # Not by gc.get_referents, which from Python 3.13 on finds nothing in the `__dict__` of an instance.
        inside = [item if type(item) is list else item.values() for item in level if type(item) in _CONTAINERS]
        level = list(chain.from_iterable(inside))


# Stands for an object, which was looked through when it was packed: it runs no code, and says True or False.
_any_plain_value = callable


def _suspects(value: Any) -> list[Any]:
    """The parts of a container that may hold bytes: packing each once more takes less time than looking through all."""
    parts: list[Any] = value if type(value) is list else [*value.values()] if type(value) is dict else []
    try:
        return [
            part
            for part in parts
            if type(part) in _SEE_THROUGH and may_hold_bytes(packb(part, _any_plain_value, OPTIONS))
        ] or ([] if parts else [value])
    except (TypeError, ValueError, RecursionError):  # it was changed meanwhile
        return [value]


def may_hold_bytes(packed: bytes) -> bool:
    """Whether bytes are in it; without the native module, whether one of their three markers occurs anywhere."""
    if native is not None:
        return bool(native.holds_bytes(packed))
    return 0xC4 in packed or 0xC5 in packed or 0xC6 in packed


def has_bytes(value: Any) -> bool:
    if type(value) is list:
        return any(map(has_bytes, value))
    return any(map(has_bytes, value.values())) if type(value) is dict else type(value) is bytes


# Types that ormsgpack packs without asking.
_NATIVE = frozenset((str, int, float, bool, type(None), list, dict, bytes, Ext))


def take_apart(values: list[Any], alike: Alike, plan_of: Callable[[Any], Plan]) -> list[Any] | None:
    """The parts of a group; None where a value stands for itself."""
    kinds = list(map(type, values))
    if not _NATIVE.isdisjoint(kinds):
        return None
    headers: list[Any]
    states: list[Any]
    taken = alike.take_apart(values, kinds)
    if taken is not None:
        headers, states = taken
    else:
        try:
            each = [plan_of(value)(value) for value in values]
        except Exception:  # code of a value's class; whoever encodes it alone meets it too, and says where
            return None
        headers, states = [header for header, _ in each], [state for _, state in each]
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
    builders = {place: builder_of(name.encode()) for place, name in enumerate(names)}
    if not which:
        of_length(names, 1)
        which = [0] * len(states)
    return built([*map(a_number, which)], states, builders)


def framed(heads: list[bytes], bodies: list[bytes]) -> bytes:
    """Values whose states stand side by side, each with its type header, as one encoded list."""
    joined = b"".join((array_header(len(heads)), *bodies))
    check_room(joined)
    states = ormsgpack.unpackb(joined, ext_hook=Ext)
    items = [packb(state, option=OPTIONS) for state in states]
    parts = [ext_frame(OBJECT, head, item) if head else item for head, item in zip(heads, items, strict=True)]
    return array_header(len(heads)) + b"".join(parts)


def has_text_keys(value: dict[Any, Any]) -> bool:
    """Whether all keys are plain text that msgpack can hold."""
    if not {str}.issuperset(map(type, value)):
        return False
    joined = "".join(value)
    if joined.isascii():
        return True
    try:
        joined.encode()
    except UnicodeEncodeError:
        return False
    return True
