"""Standard-library types with a stored form of their own.

A row of the table: the short name bytes carry, the exact type, how an instance becomes packable parts and
how the parts become an instance again. Short names have no colon, so they never meet a class name. Types of
modules that few programs need are in codec/builtin_rare.py.
"""

from __future__ import annotations

import collections
import datetime as dt
import re
import sys
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import Corrupt
from .limits import a_dict, a_list, a_number, a_text, bytes_of, of_length

__all__ = [
    "BUILTINS",
    "Builtin",
    "RARE_MODULES",
    "RARE_NAMES",
    "RESERVED_NAMES",
    "StoredException",
    "a_zone",
    "compiled",
    "is_zone_info",
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


# As long as a time in words of ISO 8601 gets, and longer.
_LONGEST_TIME = 64
_LONGEST_PATTERN = 20_000
_MOST_SETS = 100
_PATTERN_FLAGS = re.A | re.I | re.L | re.M | re.S | re.U | re.X


class Builtin(NamedTuple):
    name: str
    type: type
    state: Callable[[Any], Any]
    build: Callable[[Any], Any]


class StoredException(str):
    """What is kept of an exception, as text: its `repr`, as LangGraph's savers give it, never its code or its objects.

    `type_name` is the name of its type (`module:Class`), `message` what it said.
    """

    __slots__ = ("message", "type_name")

    type_name: str
    message: str

    def __new__(cls, type_name: str, message: str, text: str | None = None) -> StoredException:
        made = super().__new__(cls, f"{type_name.rpartition(':')[2]}({message!r})" if text is None else text)
        made.type_name = type_name
        made.message = message
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # A text is copied and pickled without what was added to it.
        return (StoredException, (self.type_name, self.message, str.__str__(self)))


def reduce_exception(error: BaseException | StoredException) -> list[str]:
    """An exception as its type's name, what it said, and its `repr`."""
    if isinstance(error, StoredException):
        return [_said(error.type_name), _said(error.message), str.__str__(error)]
    cls = type(error)
    module, name = (type.__getattribute__(cls, part) for part in ("__module__", "__qualname__"))
    return [f"{_said(module)}:{_said(name)}", _said(error), _said(error, repr)]


def _said(value: Any, say: Callable[[Any], str] = str) -> str:
    """The text of a value, as plain text; what it says must not keep its checkpoint from being stored."""
    if type(value) is str:
        return value
    try:
        return str.__str__(say(value))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # the value's own code
        return "(its text cannot be had)"


def _moment_state(moment: dt.datetime) -> Any:
    zone = moment.tzinfo
    if not moment.fold and (zone is None or zone is dt.timezone.utc):
        return moment.isoformat()  # what most moments are, in half the time
    if zone is not None and type(zone) is not dt.timezone and not is_zone_info(zone):
        # Zones of other libraries cannot be rebuilt; the offset in force at that moment can.
        offset = moment.utcoffset()
        zone = dt.timezone(offset) if offset is not None else None
    return [moment.replace(tzinfo=None, fold=0).isoformat(), moment.fold, zone]


def is_zone_info(zone: dt.tzinfo) -> bool:
    """Whether a time zone is one of `zoneinfo`."""
    module = sys.modules.get("zoneinfo")
    return module is not None and type(zone) is module.ZoneInfo


def _moment(parts: Any) -> dt.datetime:
    if type(parts) is str:
        return dt.datetime.fromisoformat(a_text(parts, _LONGEST_TIME))
    text, fold, zone = of_length(parts, 3)
    return dt.datetime.fromisoformat(a_text(text, _LONGEST_TIME)).replace(fold=a_number(fold), tzinfo=a_zone(zone))


def a_zone(zone: Any) -> dt.tzinfo | None:
    """The state of a time zone, which must be one."""
    if zone is None or type(zone) is dt.timezone or is_zone_info(zone):
        return zone  # type: ignore[no-any-return]
    raise Corrupt("a stored time has a zone that is none")


def _clock_state(moment: dt.time) -> list[Any]:
    return [moment.replace(tzinfo=None, fold=0).isoformat(), moment.fold, moment.tzinfo]


def _clock(parts: Any) -> dt.time:
    text, fold, zone = of_length(parts, 3)
    return dt.time.fromisoformat(a_text(text, _LONGEST_TIME)).replace(fold=a_number(fold), tzinfo=a_zone(zone))


def _zone_state(zone: dt.timezone) -> list[Any]:
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return [offset, *name]


def _zone(parts: Any) -> dt.timezone:
    offset, *name = of_length(parts, 1, 2)
    if type(offset) is not dt.timedelta:
        raise Corrupt("a stored time zone has an offset that is none")
    return dt.timezone(offset, *map(a_text, name)) if name or offset else dt.timezone.utc


def _defaultdict_state(value: Any) -> list[Any]:
    for name, factory in _FACTORIES.items():
        if value.default_factory is factory:
            return [name, dict(value)]
    raise TypeError("a defaultdict with a factory of your own cannot be stored: convert it with dict(…)")


def _pattern_state(pattern: re.Pattern[Any]) -> list[Any]:
    _check_pattern(pattern.pattern, pattern.flags)
    return [pattern.pattern, pattern.flags]


def _pattern(state: Any) -> re.Pattern[Any]:
    text, flags = of_length(state, 2)
    return compiled(text, flags)


def compiled(text: Any, flags: Any) -> re.Pattern[Any]:
    """A pattern, unless compiling it would take long or do more than compile."""
    if type(text) not in (str, bytes):
        raise Corrupt("a stored pattern is no text")
    try:
        _check_pattern(text, a_number(flags))
    except TypeError as refusal:
        raise Corrupt(str(refusal)) from None
    return re.compile(text, flags)


def _check_pattern(text: Any, flags: int) -> None:
    """TypeError for a pattern that is not stored. Compiling one costs time by its length; the flag DEBUG prints; and
    a set of characters without regard to case costs 10 ms, so of such sets there are few."""
    sets = text.count("[" if type(text) is str else b"[")
    if flags & ~_PATTERN_FLAGS or len(text) > _LONGEST_PATTERN:
        raise TypeError(f"a pattern has at most {_LONGEST_PATTERN:,} characters, and no flag but a i L m s u x")
    if sets > _MOST_SETS and (
        flags & re.IGNORECASE or re.search("[(][?][a-zA-Z]*i" if type(text) is str else b"[(][?][a-zA-Z]*i", text)
    ):
        raise TypeError(f"a pattern that disregards case has at most {_MOST_SETS} sets of characters")


def _deque(state: Any) -> collections.deque[Any]:
    most, items = of_length(state, 2)
    return collections.deque(a_list(items), most if most is None else a_number(most))


def _defaultdict(state: Any) -> collections.defaultdict[Any, Any]:
    factory, items = of_length(state, 2)
    if a_text(factory) not in _FACTORIES:
        raise Corrupt("a stored defaultdict has a factory that is none of ours")
    return collections.defaultdict(_FACTORIES[factory], a_dict(items))


def _numbers(state: Any, count: int, kind: type = int) -> list[Any]:
    return [a_number(part, kind) for part in of_length(state, count)]


BUILTINS: tuple[Builtin, ...] = (
    Builtin("t", tuple, list, lambda s: tuple(a_list(s))),
    Builtin("ba", bytearray, bytes, lambda s: bytearray(bytes_of(s))),
    Builtin("dq", collections.deque, lambda v: [v.maxlen, list(v)], _deque),
    Builtin("od", collections.OrderedDict, dict, lambda s: collections.OrderedDict(a_dict(s))),
    Builtin("dd", collections.defaultdict, _defaultdict_state, _defaultdict),
    Builtin("ct", collections.Counter, dict, lambda s: collections.Counter(a_dict(s))),
    Builtin("dt", dt.datetime, _moment_state, _moment),
    Builtin("date", dt.date, dt.date.isoformat, lambda s: dt.date.fromisoformat(a_text(s, _LONGEST_TIME))),
    Builtin("time", dt.time, _clock_state, _clock),
    Builtin("td", dt.timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda s: dt.timedelta(*_numbers(s, 3))),
    Builtin("tz", dt.timezone, _zone_state, _zone),
    Builtin("uuid", uuid.UUID, lambda v: v.hex, lambda s: uuid.UUID(a_text(s, 32))),
    Builtin("cx", complex, lambda v: [v.real, v.imag], lambda s: complex(*_numbers(s, 2, float))),
    Builtin("range", range, lambda v: [v.start, v.stop, v.step], lambda s: range(*_numbers(s, 3))),
    Builtin("re", re.Pattern, _pattern_state, _pattern),
    Builtin("exc", StoredException, reduce_exception, lambda s: StoredException(*map(a_text, of_length(s, 3)))),
)

# Names of the types in codec/builtin_rare.py, which is loaded when one of them is met.
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
    | frozenset(("*", "=", "fs", "i", "m", "nd", "np", "npdtype", "pickle", "s", "u", "SecretBytes", "SecretStr"))
    | frozenset(("pandas.DataFrame", "pandas.Series", "pandas.Timedelta", "pandas.Timestamp"))
)
