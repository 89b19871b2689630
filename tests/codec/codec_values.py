"""One of everything that can be stored, by name. Each entry makes its value anew, because tests change them."""

import collections
import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from typing import Any

import codec_kinds as kinds

from threadline import StoredException

PARIS = zoneinfo.ZoneInfo("Europe/Paris")
HALF_PAST = dt.timezone(dt.timedelta(hours=5, minutes=30, seconds=7))

_BASIC: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus one": -1,
    "largest of 64 bits": 2**64 - 1,
    "smallest of 64 bits": -(2**63),
    "beyond 64 bits": 2**64,
    "below 64 bits": -(2**63) - 1,
    "enormous": 7**2000,
    "enormous and negative": -(7**2000),
    "float": 0.1,
    "whole float": 1.0,
    "minus zero": -0.0,
    "nan": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "smallest float": 5e-324,
    "text": "naïve 漢字 🧵",
    "empty text": "",
    "text with NUL": "a\0b\0",
    "lone surrogate": "\ud800",
    "surrogates in text": "a\udcffb\ud83e",
    "long surrogates": "\udfff" * 5000,
    "bytes": b"\x00\xff\xc4\xc5\xc6",
    "no bytes": b"",
    "long bytes": bytes(range(256)) * 300,
    "bytearray": bytearray(b"\x00\xff"),
    "no bytearray": bytearray(),
    "list": [1, 2.0, "3", None],
    "no list": [],
    "tuple": (1, (2,), ()),
    "no tuple": (),
    "lists and tuples": [(1, [2, (3,)]), ([],)],
    "dict": {"b": 1, "a": 2},
    "no dict": {},
    "dict of ints": {2: "two", 1: "one", 2**80: "big", -1: None},
    "dict of everything": {None: 0, True: 1, 2.5: 2, b"b": 3, (1, "t"): 4, frozenset({1}): 5, "s": 6},
    "dict of surrogates": {"\ud800": 1, "ok": {"\udc00": "\ud800"}},
    "dict of nan": {float("inf"): 1},
    "dict of enums": {kinds.Text.LOW: 1, "high": 2, kinds.Number.ONE: 3, kinds.Plain.RED: 4},
    "dict of objects": {
        dt.date(2024, 1, 1): 1,
        uuid.UUID(int=5): 2,
        decimal.Decimal("1.0"): 3,
        kinds.FrozenPoint(1): 4,
        kinds.Pair(1, 2): 5,
        pathlib.PurePosixPath("a"): 6,
    },
    "set": {1, "a", None, 2.5, (1, 2), b"x"},
    "no set": set(),
    "frozenset": frozenset({1, frozenset({2, frozenset()})}),
    "set of enums": {kinds.Text.LOW, kinds.Plain.RED, kinds.Access.READ | kinds.Access.RUN},
    "bytearrays in places": [{"a": (bytearray(b"1"), [bytearray(b"2")])}, bytearray(b"3"), b"4"],
    "bytearray in a data class": [kinds.Point(1, bytearray(b"x")), kinds.Person(name="n", extra_data=bytearray(b"y"))],
    "bytearray in a deque": collections.deque([bytearray(b"a")]),
    "bytearray in an ordered dict": collections.OrderedDict(a=bytearray(b"a")),
    "deque": collections.deque([1, [2]]),
    "bounded deque": collections.deque([3, 4], maxlen=2),
    "deque of no length": collections.deque(maxlen=0),
    "ordered dict": collections.OrderedDict([("b", 1), ("a", 2)]),
    "ordered dict of ints": collections.OrderedDict([(2, 1), ((), 2)]),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "defaultdict without a factory": collections.defaultdict(None, {1: 2}),
    "counter": collections.Counter({"a": 2, "b": 0, "c": -1}),
    "uuid": uuid.UUID("12345678-1234-5678-1234-567812345678"),
    "fraction": fractions.Fraction(-7, 3),
    "huge fraction": fractions.Fraction(3**200, 2**200),
    "complex": complex(1.5, -0.0),
    "complex nan": complex(float("nan"), float("-inf")),
    "range": range(10, -5, -3),
    "empty range": range(5, 0, 1),
    "huge range": range(2**70),
}

_DECIMALS = {
    f"decimal {text}": decimal.Decimal(text)
    for text in ("1.0", "1.00", "-0", "1E+30", "1E-400", "NaN", "sNaN12", "-Infinity", "3." + "14159" * 20)
}

_MOMENTS: dict[str, Any] = {
    "datetime": dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    "first datetime": dt.datetime.min,
    "last datetime": dt.datetime.max,
    "datetime in utc": dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),
    "datetime at an offset": dt.datetime(2024, 1, 1, tzinfo=HALF_PAST),
    "datetime at a named offset": dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(0), "GMT")),
    "datetime in a zone": dt.datetime(2024, 7, 1, 12, tzinfo=PARIS),
    "datetime folded": dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=PARIS),
    "datetime folded, naive": dt.datetime(2024, 10, 27, 2, 30, fold=1),
    "date": dt.date(1, 1, 1),
    "time": dt.time(1, 2, 3, 4),
    "time folded": dt.time(2, 30, fold=1),
    "time in a zone": dt.time(2, 30, fold=1, tzinfo=PARIS),
    "time at an offset": dt.time(2, 30, tzinfo=HALF_PAST),
    "timedelta": dt.timedelta(days=-999999999, microseconds=1),
    "largest timedelta": dt.timedelta.max,
    "utc": dt.timezone.utc,
    "offset": HALF_PAST,
    "named offset": dt.timezone(dt.timedelta(hours=-3), "BRT"),
    "zone": PARIS,
    "zone of utc": zoneinfo.ZoneInfo("UTC"),
}

_TOOLS: dict[str, Any] = {
    "pattern": re.compile(r"a(?P<x>\d+)", re.IGNORECASE | re.MULTILINE),
    "pattern of bytes": re.compile(rb"\xff+", re.DOTALL),
    "pattern with flags inside": re.compile(r"(?ix) a b"),
    "ascii pattern": re.compile(r"\w", re.ASCII),
    "posix path": pathlib.PosixPath("/data/ä/../b"),
    "pure posix path": pathlib.PurePosixPath("a/b"),
    "pure windows path": pathlib.PureWindowsPath("C:\\a\\b"),
    "empty path": pathlib.PurePosixPath(),
    "path with a surrogate": pathlib.PurePosixPath("a\udcff"),
    "ip 4": ipaddress.IPv4Address("10.0.0.1"),
    "ip 4 interface": ipaddress.IPv4Interface("10.0.0.1/8"),
    "ip 4 network": ipaddress.IPv4Network("10.0.0.0/8"),
    "ip 6": ipaddress.IPv6Address("fe80::1%eth0"),
    "ip 6 interface": ipaddress.IPv6Interface("::1/64"),
    "ip 6 network": ipaddress.IPv6Network("2001:db8::/32"),
    "exception": StoredException("builtins:ValueError", "no \ud800 such\0thing"),
}

_ENUMS: dict[str, Any] = {
    "enum": kinds.Plain.RED,
    "enum by its alias": kinds.Plain.SAME_AS_RED,
    "enum of a tuple": kinds.Plain.PAIR,
    "enum of none": kinds.Plain.NOTHING,
    "str enum": kinds.Text.HIGH,
    "str and enum": kinds.OldText.LOW,
    "int enum": kinds.Number.ONE,
    "big int enum": kinds.Number.BIG,
    "flag": kinds.Access.READ,
    "flags": kinds.Access.READ | kinds.Access.RUN,
    "no flag": kinds.Access(0),
    "all flags": ~kinds.Access(0),
    "int flags": kinds.Bits.A | kinds.Bits.C,
    "int flags unknown": kinds.Bits(64 | 1),
    "nested enum": kinds.Outer.Level.ONE,
}


def _order() -> kinds.Order:
    made = kinds.Order(3, ["x"], hidden=4, factor=5)
    made.total += 1
    return made


def _secretive() -> kinds.Secretive:
    made = kinds.Secretive()
    made._count = 6
    made._log.append("entry")
    return made


def _open_secretive() -> kinds.OpenSecretive:
    made = kinds.OpenSecretive(more=bytearray(b"m"))  # type: ignore[call-arg]
    made._count = 7
    return made


def _unvalidated() -> kinds.Person:
    made = kinds.Person(name="n")
    made.age = "not a number"  # type: ignore[assignment]
    made.friends.append("nobody")  # type: ignore[arg-type]
    return made


def _old_person() -> kinds.OldPerson:
    made = kinds.OldPerson(name="n", address=kinds.OldAddress(street="s"))
    made._count = 8
    return made


_CLASSES: dict[str, Any] = {
    "dataclass": lambda: kinds.Point(1, [2, (3,)]),
    "frozen dataclass": lambda: kinds.FrozenPoint(1, "\ud800"),
    "slotted dataclass": lambda: kinds.SlottedPoint(2**70),
    "frozen slotted dataclass": lambda: kinds.FrozenSlottedPoint(x=1, y={1: 2}),
    "inherited dataclass": lambda: kinds.Point3(1, 2, -0.0, kinds.Point3(4)),
    "inherited slots": lambda: kinds.SlottedPoint3(1, 2, 3.5),
    "mixed slots": lambda: kinds.MixedSlots(1, 3),
    "dataclass with fields of all kinds": _order,
    "generic dataclass": lambda: kinds.Box[int](5),
    "nested class": lambda: kinds.Outer.Inner((1,)),
    "dataclass in itself": lambda: kinds.Point(kinds.Point(kinds.Point(1)), {"k": kinds.SlottedPoint(2)}),
    "named tuple": lambda: kinds.Pair(1, [2]),
    "inherited named tuple": lambda: kinds.Tagged((1,), {2}),
    "model": lambda: kinds.Person(name="n", age=3),
    "model with few fields set": lambda: kinds.Person(name="n"),
    "model with a field set to its default": lambda: kinds.Person(name="n", age=0),
    "nested models": lambda: kinds.Person(
        name="n", address=kinds.Address(street="s"), friends=[kinds.Person(name="m", extra_data={1: (2,)})]
    ),
    "model never validated": _unvalidated,
    "open model": lambda: kinds.Open(a=3, b=4, more=[5]),  # type: ignore[call-arg]
    "model that declares its extras": lambda: kinds.TypedExtras(a=3, more=5),  # type: ignore[call-arg]
    "model that declares its extras, without any": lambda: kinds.TypedExtras(a=3),
    "model that declares its private attributes": lambda: kinds.NoPrivates(a=3),
    "model with private attributes": _secretive,
    "open model with private attributes": _open_secretive,
    "model with aliases": lambda: kinds.Aliased(firstValue=1),
    "frozen model": lambda: kinds.FrozenModel(value=(1,)),
    "pydantic dataclass": lambda: kinds.CheckedPoint(1, (2,)),
    "generic model": lambda: kinds.IntHolder(content=1),
    "old model": lambda: kinds.OldAddress(street="s"),
    "old open model": lambda: kinds.OldOpen(more=1),  # type: ignore[call-arg]
}

_VALUES = {**_BASIC, **_DECIMALS, **_MOMENTS, **_TOOLS, **_ENUMS}

# What a program stores: name -> a function that makes the value.
MAKERS: dict[str, Any] = {
    **{name: (lambda value=value: _copy(value)) for name, value in _VALUES.items()},
    **_CLASSES,
}


def _copy(value: Any) -> Any:
    """Containers anew all the way down; everything else in the table cannot be changed."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(map(_copy, value))
    if kind is dict:
        return {key: _copy(item) for key, item in value.items()}
    return bytearray(value) if kind is bytearray else value
