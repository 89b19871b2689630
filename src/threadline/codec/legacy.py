"""LangGraph's stored forms, read under Threadline's rules.

LangGraph names a class by module and name, and calls its constructor. Here nothing is imported; standard
types come from a table, data classes through codec/rules.py. Only pydantic models are validated when they
are read, because LangGraph stores their nested models as plain dicts; LangChain's messages are set field
by field.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ormsgpack

from ..errors import Corrupt, NotAllowed
from .known import LANGCHAIN_MESSAGES, WELL_KNOWN
from .science import science_builder

if TYPE_CHECKING:
    from .wire import Codec

__all__ = ["build_legacy", "revive_json", "unpack_legacy"]

SINGLE_ARG, POSITIONAL, KEYWORDS, METHOD, PYDANTIC_V1, PYDANTIC_V2, NUMPY, DELTA_SNAPSHOT = range(8)
_SEND = ("langgraph.types", "Send")


def unpack_legacy(data: bytes, hook: Callable[[int, bytes], Any]) -> Any:
    """Packed bytes of LangGraph, whose dicts may have keys that are not text."""
    return ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)


def build_legacy(code: int, data: bytes, codec: Codec) -> Any:
    """The value of one of LangGraph's extension types."""
    if code > DELTA_SNAPSHOT:
        raise Corrupt(f"unknown extension type {code}")
    content = unpack_legacy(data, codec._unpack_extension)
    if code == DELTA_SNAPSHOT:
        return codec.rules.find("langgraph.checkpoint.serde.types:_DeltaSnapshot").shape.build({"value": content})
    if code == NUMPY:
        array = science_builder("nd")
        assert array is not None
        return array(content)
    module, name, state = content[:3]
    standard = _STANDARD.get((module, name))
    if standard is not None:
        if code == KEYWORDS:
            return standard(**state)
        return standard(*state) if code == POSITIONAL else standard(state)
    if (module, name) == _SEND:
        return codec.rules.find("langgraph.types:Send").shape.build(list(state))
    return _rebuild(f"{module}:{name}", state, codec, is_pydantic=code in (PYDANTIC_V1, PYDANTIC_V2))


def revive_json(value: dict[str, Any], codec: Codec) -> Any:
    """One object of LangChain's JSON form (`lc` 1 and 2); every other dict as it is."""
    if value.get("lc") not in (1, 2) or value.get("type") != "constructor":
        return value
    *module, name = value["id"]
    arguments = value.get("args") or []
    standard = _STANDARD.get((".".join(module), name))
    if standard is not None:
        return standard(*arguments)
    stored = LANGCHAIN_MESSAGES.get(name) or f"{'.'.join(module)}:{name}"
    if arguments:
        raise NotAllowed(f"{stored} was stored by its constructor's arguments and cannot be rebuilt from them")
    return _rebuild(stored, value.get("kwargs") or {}, codec, is_pydantic=True)


def _rebuild(name: str, state: Any, codec: Codec, *, is_pydantic: bool) -> Any:
    registration = codec.rules.find(name)
    cls: Any = registration.cls
    fields = getattr(cls, "model_fields", None) if is_pydantic else None
    if fields is None and is_pydantic and hasattr(cls, "parse_obj"):
        return cls.parse_obj(state)
    if fields is None or not isinstance(state, Mapping):
        return registration.shape.build(state if isinstance(state, Mapping) else _enum_state(cls, state))
    # Nested models of ordinary classes were flattened and need validation; messages have none.
    if name in WELL_KNOWN and state.keys() == fields.keys():
        return registration.shape.build(dict(state))
    return cls.model_validate(state)


def _enum_state(cls: Any, value: Any) -> list[Any]:
    return ["", value] if hasattr(cls, "_value2member_map_") else value


_STANDARD: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("collections", "deque"): collections.deque,
    ("datetime", "datetime"): dt.datetime.fromisoformat,
    ("datetime", "date"): dt.date,
    ("datetime", "time"): dt.time,
    ("datetime", "timedelta"): dt.timedelta,
    ("datetime", "timezone"): dt.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    ("re", "compile"): re.compile,
    ("uuid", "UUID"): uuid.UUID,
    ("zoneinfo", "ZoneInfo"): zoneinfo.ZoneInfo,
    **{
        (module, name): getattr(pathlib, name)
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
    },
    **{
        ("ipaddress", f"IPv{family}{kind}"): getattr(ipaddress, f"IPv{family}{kind}")
        for family in (4, 6)
        for kind in ("Address", "Interface", "Network")
    },
}
