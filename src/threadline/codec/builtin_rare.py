"""Types that few programs need, and that cost more to import than the codec: time zones, fractions, paths,
addresses, secrets.

Pydantic's SecretStr and SecretBytes are stored as the text they hide, and masked wherever a value is shown. They are
rebuilt only where this process has imported pydantic. To keep them from readers of the database, encrypt the store.
"""

from __future__ import annotations

import decimal
import fractions
import ipaddress
import pathlib
import re
import sys
import zoneinfo
from collections.abc import Callable
from typing import Any

from ..errors import Corrupt, NotAllowed
from .builtin import Builtin
from .limits import a_number, a_text, bytes_of, of_length

__all__ = ["MASKS", "RARE", "secret_builder", "secret_plan", "zone_info"]


# Names of zones, as there are: no path leads out of the folder of zones.
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")
_LONGEST_ADDRESS = 128
# Dividing larger numbers takes noticeable time.
_MOST_FRACTION_BITS = 1 << 16


def _zone_info_state(zone: zoneinfo.ZoneInfo) -> str:
    if zone.key is None:
        raise TypeError("a ZoneInfo made from a file has no key to store it by")
    if len(zone.key) > 100 or not _ZONE.fullmatch(zone.key):
        raise TypeError("a ZoneInfo whose key is no name of a zone")
    return zone.key


def zone_info(key: Any) -> zoneinfo.ZoneInfo:
    """The zone of this name, among those that are installed."""
    if not _ZONE.fullmatch(a_text(key, 100)):
        raise Corrupt("a stored time zone has a name that is none")
    return zoneinfo.ZoneInfo(key)


def _fraction_state(value: fractions.Fraction) -> list[int]:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_FRACTION_BITS:
        raise TypeError(f"a Fraction of more than {_MOST_FRACTION_BITS:,} bits cannot be stored")
    return [value.numerator, value.denominator]


def _fraction(state: Any) -> fractions.Fraction:
    numerator, denominator = map(a_number, of_length(state, 2))
    if max(numerator.bit_length(), denominator.bit_length()) > _MOST_FRACTION_BITS:
        raise Corrupt("a stored Fraction is larger than any that is stored")
    return fractions.Fraction(numerator, denominator)


def _path(kind: type[pathlib.PurePath]) -> Builtin:
    is_foreign = issubclass(kind, pathlib.Path) and not isinstance(pathlib.Path(), kind)

    def build(text: Any) -> pathlib.PurePath:
        if is_foreign:
            raise NotAllowed(f"a {kind.__name__} cannot exist on this system")
        return kind(a_text(text))

    return Builtin(kind.__name__, kind, str, build)


def _address(kind: type) -> Builtin:
    return Builtin(kind.__name__, kind, str, lambda state: kind(a_text(state, _LONGEST_ADDRESS)))


RARE: tuple[Builtin, ...] = (
    Builtin("zi", zoneinfo.ZoneInfo, _zone_info_state, zone_info),
    Builtin("dec", decimal.Decimal, str, lambda s: decimal.Decimal(a_text(s))),
    Builtin("frac", fractions.Fraction, _fraction_state, _fraction),
    *map(_path, (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)),
    *map(_address, (ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network)),
    *map(_address, (ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network)),
)


_MODULE = "pydantic.types"
# How a secret is shown.
MASKS: dict[str, Any] = {"SecretStr": "**********", "SecretBytes": b"**********"}
_STATES: dict[str, Callable[[Any], Any]] = {"SecretStr": a_text, "SecretBytes": bytes_of}


def secret_plan(cls: type) -> Builtin | None:
    """How a secret is stored; None for every other class."""
    if cls.__module__ != _MODULE or cls.__name__ not in MASKS:
        return None
    return Builtin(cls.__name__, cls, lambda secret: secret.get_secret_value(), _build(cls.__name__))


def secret_builder(name: str) -> Callable[[Any], Any] | None:
    """How a stored secret is rebuilt."""
    return _build(name) if name in MASKS else None


def _build(name: str) -> Callable[[Any], Any]:
    def build(state: Any) -> Any:
        cls: Any = vars(sys.modules[_MODULE]).get(name) if _MODULE in sys.modules else None
        if cls is None:
            raise NotAllowed(f"the stored value is a {name}: import pydantic before reading")
        secret = object.__new__(cls)
        secret._secret_value = _STATES[name](state)
        return secret

    return build
