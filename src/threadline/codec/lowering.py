"""The slow way of encoding: a value made of nothing but what ormsgpack packs exactly, by a walk in Python.

It knows the path of every value, so that an error names the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ormsgpack

from ..errors import NotSerializable
from .depth import DEEPEST, is_deeper
from .plans import Plan, name_header

__all__ = ["OBJECT", "OPTIONS", "TEXT", "TOO_DEEP", "encode_slowly"]

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
_PLAIN = frozenset((float, bool, bytes, type(None), Ext))
_SURROGATE = re.compile("[\ud800-\udfff]")


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
