"""Standard-library types of modules that few programs need: loading these takes longer than loading the codec."""

from __future__ import annotations

import decimal
import fractions
import ipaddress
import pathlib
import zoneinfo
from typing import Any

from ..errors import NotAllowed
from .builtin import Builtin

__all__ = ["RARE"]


def _zone_info_state(zone: zoneinfo.ZoneInfo) -> str:
    if zone.key is None:
        raise TypeError("a ZoneInfo made from a file has no key to store it by")
    return zone.key


def _path(kind: type[pathlib.PurePath]) -> Builtin:
    is_foreign = issubclass(kind, pathlib.Path) and not isinstance(pathlib.Path(), kind)

    def build(text: Any) -> pathlib.PurePath:
        if is_foreign:
            raise NotAllowed(f"a {kind.__name__} cannot exist on this system")
        return kind(text)

    return Builtin(kind.__name__, kind, str, build)


def _address(kind: type) -> Builtin:
    return Builtin(kind.__name__, kind, str, kind)


RARE: tuple[Builtin, ...] = (
    Builtin("zi", zoneinfo.ZoneInfo, _zone_info_state, zoneinfo.ZoneInfo),
    Builtin("dec", decimal.Decimal, str, decimal.Decimal),
    Builtin("frac", fractions.Fraction, lambda v: [v.numerator, v.denominator], lambda s: fractions.Fraction(*s)),
    *map(_path, (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)),
    *map(_address, (ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network)),
    *map(_address, (ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network)),
)
