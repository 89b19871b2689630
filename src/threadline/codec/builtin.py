"""Standard-library types with a stored form of their own.

A row of the table: the short name bytes carry, the exact type, how an instance becomes packable parts and
how the parts become an instance again. Short names have no colon, so they never meet a class name. Types of
modules that few programs need are in codec/rare.py.
"""

from __future__ import annotations

import collections
import datetime as dt
import re
import sys
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "BUILTINS",
    "Builtin",
    "RARE_MODULES",
    "RARE_NAMES",
    "RESERVED_NAMES",
    "StoredException",
    "reduce_exception",
]

_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "none": None,
    "list": list,
    "dict": dict,
    "set": set,
    "int": int,
    "str": str,
    "float": float,
    "bool": bool,
    "tuple": tuple,
}


class Builtin(NamedTuple):
    name: str
    type: type
    state: Callable[[Any], Any]
    build: Callable[[Any], Any]


class StoredException(Exception):
    """What is kept of an exception: the name of its type and its text, never its code or its objects."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message

    def __repr__(self) -> str:
        return f"{self.type_name.rpartition(':')[2]}({self.message!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredException) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is copied and pickled by its args alone, which would be too few for `__init__`.
        return (StoredException, self._key())

    def _key(self) -> tuple[str, str]:
        return (self.type_name, self.message)


def reduce_exception(error: BaseException) -> list[str]:
    """An exception as its type's name and its text."""
    if isinstance(error, StoredException):
        return [error.type_name, error.message]
    cls = type(error)
    try:
        text = str(error)
    except Exception:  # the error's own code; what it says must not keep its checkpoint from being stored
        text = "(its text cannot be had)"
    return [f"{cls.__module__}:{cls.__qualname__}", text]


def _moment_state(moment: dt.datetime) -> Any:
    zone = moment.tzinfo
    if not moment.fold and (zone is None or zone is dt.timezone.utc):
        return moment.isoformat()  # what most moments are, in half the time
    if zone is not None and type(zone) is not dt.timezone and not _is_zone_info(zone):
        # Zones of other libraries cannot be rebuilt; the offset in force at that moment can.
        offset = moment.utcoffset()
        zone = dt.timezone(offset) if offset is not None else None
    return [moment.replace(tzinfo=None, fold=0).isoformat(), moment.fold, zone]


def _is_zone_info(zone: dt.tzinfo) -> bool:
    module = sys.modules.get("zoneinfo")
    return module is not None and type(zone) is module.ZoneInfo


def _moment(parts: Any) -> dt.datetime:
    if type(parts) is str:
        return dt.datetime.fromisoformat(parts)
    return dt.datetime.fromisoformat(parts[0]).replace(fold=parts[1], tzinfo=parts[2])


def _clock_state(moment: dt.time) -> list[Any]:
    return [moment.replace(tzinfo=None, fold=0).isoformat(), moment.fold, moment.tzinfo]


def _clock(parts: Any) -> dt.time:
    return dt.time.fromisoformat(parts[0]).replace(fold=parts[1], tzinfo=parts[2])


def _zone_state(zone: dt.timezone) -> list[Any]:
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return [offset, *name]


def _zone(parts: Any) -> dt.timezone:
    return dt.timezone.utc if parts == [dt.timedelta(0)] else dt.timezone(*parts)


def _defaultdict_state(value: Any) -> list[Any]:
    for name, factory in _FACTORIES.items():
        if value.default_factory is factory:
            return [name, dict(value)]
    raise TypeError("a defaultdict with a factory of your own cannot be stored: convert it with dict(…)")


BUILTINS: tuple[Builtin, ...] = (
    Builtin("t", tuple, list, tuple),
    Builtin("ba", bytearray, bytes, bytearray),
    Builtin("dq", collections.deque, lambda v: [v.maxlen, list(v)], lambda s: collections.deque(s[1], s[0])),
    Builtin("od", collections.OrderedDict, dict, collections.OrderedDict),
    Builtin(
        "dd", collections.defaultdict, _defaultdict_state, lambda s: collections.defaultdict(_FACTORIES[s[0]], s[1])
    ),
    Builtin("ct", collections.Counter, dict, collections.Counter),
    Builtin("dt", dt.datetime, _moment_state, _moment),
    Builtin("date", dt.date, dt.date.isoformat, dt.date.fromisoformat),
    Builtin("time", dt.time, _clock_state, _clock),
    Builtin("td", dt.timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda s: dt.timedelta(*s)),
    Builtin("tz", dt.timezone, _zone_state, _zone),
    Builtin("uuid", uuid.UUID, lambda v: v.hex, uuid.UUID),
    Builtin("cx", complex, lambda v: [v.real, v.imag], lambda s: complex(*s)),
    Builtin("range", range, lambda v: [v.start, v.stop, v.step], lambda s: range(*s)),
    Builtin("re", re.Pattern, lambda v: [v.pattern, v.flags], lambda s: re.compile(*s)),
    Builtin("exc", StoredException, reduce_exception, lambda s: StoredException(*s)),
)

# Names of the types in codec/rare.py, which is loaded when one of them is met.
RARE_NAMES = frozenset(
    (
        *("IPv4Address", "IPv4Interface", "IPv4Network", "IPv6Address", "IPv6Interface", "IPv6Network"),
        *("PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath", "dec", "frac", "zi"),
    )
)
RARE_MODULES = frozenset(("decimal", "fractions", "ipaddress", "pathlib", "zoneinfo"))

# Names that stored bytes use for built-in types, here and in the other modules of the codec.
RESERVED_NAMES = (
    frozenset(row.name for row in BUILTINS)
    | RARE_NAMES
    | frozenset(("*", "fs", "i", "m", "nd", "np", "npdtype", "pandas.DataFrame", "pandas.Series", "pickle", "s", "u"))
)
