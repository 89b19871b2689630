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
from functools import partial
from typing import TYPE_CHECKING, Any

import ormsgpack

from ..errors import Corrupt, NotAllowed
from .known import LANGCHAIN_MESSAGES, WELL_KNOWN
from .science import science_builder

if TYPE_CHECKING:
    from .wire import Codec

__all__ = ["build_legacy", "build_standard", "is_standard", "revive_json", "unpack_legacy"]

SINGLE_ARG, POSITIONAL, KEYWORDS, METHOD, PYDANTIC_V1, PYDANTIC_V2, NUMPY, DELTA_SNAPSHOT = range(8)
# LangChain's JSON names a class by where it once was.
_OF_LANGCHAIN = {**LANGCHAIN_MESSAGES, "Document": "langchain_core.documents.base:Document"}
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
    if is_standard(module, name):
        return build_standard(code, module, name, state)
    if (module, name) == _SEND:
        return codec.rules.find("langgraph.types:Send").shape.build(list(state))
    return _rebuild(f"{module}:{name}", state, codec, is_pydantic=code in (PYDANTIC_V1, PYDANTIC_V2))


def is_standard(module: str, name: str) -> bool:
    """Whether LangGraph stored a value of Python's standard library under this name."""
    return (module, name) in _STANDARD


def build_standard(code: int, module: str, name: str, state: Any) -> Any:
    """A value of the standard library; raises whatever its type raises for a state that does not fit."""
    build = _STANDARD[module, name]
    if code == KEYWORDS:
        return build(**state)
    return build(*state) if code == POSITIONAL else build(state)


def revive_json(value: dict[str, Any], codec: Codec) -> Any:
    """One object of LangChain's JSON form (`lc` 1 and 2); every other dict as it is."""
    if value.get("lc") not in (1, 2) or value.get("type") != "constructor":
        return value
    *module, name = value["id"]
    arguments, fields = value.get("args") or [], value.get("kwargs") or {}
    standard = _STANDARD.get((".".join(module), name))
    if standard is not None:
        return standard(*arguments, **fields)
    if name == "Send" and module[:1] == ["langgraph"]:
        return codec.rules.find("langgraph.types:Send").shape.build([fields["node"], fields["arg"]])
    stored = f"{'.'.join(module)}:{name}"
    if module[:1] in (["langchain"], ["langchain_core"]):
        stored = _OF_LANGCHAIN.get(name, stored)
    if not arguments:
        return _rebuild(stored, fields, codec, is_pydantic=True)
    registration = codec.rules.find(stored)
    if hasattr(registration.cls, "_value2member_map_"):
        return registration.shape.build(_enum_state(registration.cls, arguments[0]))
    raise NotAllowed(f"{stored} was stored by its constructor's arguments and cannot be rebuilt from them")


def _rebuild(name: str, state: Any, codec: Codec, *, is_pydantic: bool) -> Any:
    registration = codec.rules.find(name)
    cls: Any = registration.cls
    fields = getattr(cls, "model_fields", None) if is_pydantic else None
    if fields is None and is_pydantic and hasattr(cls, "parse_obj"):
        return _validated(cls.parse_obj, cls.construct, state)
    if fields is None or not isinstance(state, Mapping):
        return registration.shape.build(state if isinstance(state, Mapping) else _enum_state(cls, state))
    # Nested models of ordinary classes were flattened and need validation; messages have none.
    if name in WELL_KNOWN and state.keys() == fields.keys():
        return registration.shape.build(dict(state))
    return _validated(cls.model_validate, cls.model_construct, state)


def _validated(validate: Callable[[Any], Any], construct: Callable[..., Any], state: Any) -> Any:
    """A model; where its values were set without validation, they are taken as they are, as LangGraph does."""
    try:
        return validate(state)
    except ValueError:
        return construct(**state)


def _enum_state(cls: Any, value: Any) -> list[Any]:
    return ["", _as_member(value)] if hasattr(cls, "_value2member_map_") else value


def _collected(kind: Callable[[Any], Any], members: Any) -> Any:
    """The set of these members. LangGraph packs tuples as lists, which no set can hold: lists were tuples.

    Where that is not enough (a frozen dataclass that holds a tuple), the members as a list, as LangGraph
    gives them.
    """
    try:
        return kind(map(_as_member, members))
    except TypeError:
        return list(members)


def _as_member(value: Any) -> Any:
    return tuple(map(_as_member, value)) if type(value) is list else value


_STANDARD: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "bytearray"): bytearray.fromhex,
    ("builtins", "bytes"): bytes.fromhex,
    ("builtins", "set"): partial(_collected, set),
    ("builtins", "frozenset"): partial(_collected, frozenset),
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
