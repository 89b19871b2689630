"""LangGraph's stored forms, read under Threadline's rules.

LangGraph names a class by module and name, and calls its constructor. Here nothing is imported: standard types come
from a table, data classes pass the rules of codec/allowed.py and are set field by field. Only models that the program
named (registered, allow-listed) or that are well known are validated by their class, and never those that would read
missing fields from the environment.

LangGraph stores nested models as plain dicts. `unflattened` rebuilds them by the declared types of the fields, as
pydantic has resolved them already; nothing is evaluated, and no constructor or validator runs. A dict that fits none
of the declared classes, or more than one, stays a dict.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import ipaddress
import json
import pathlib
import re
import types
import typing
import uuid
import zoneinfo
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import ormsgpack

from ..errors import Corrupt, NotAllowed, ThreadlineError
from .allowed import LANGCHAIN_MESSAGES, SECRETS, WELL_KNOWN, Registration, TypeRules, class_name
from .builtin import compiled
from .builtin_rare import secret_builder, zone_info
from .data_classes import is_settings, shape_of
from .limits import a_list, a_text, of_length, text_dict
from .numpy_pandas import langgraph_time_builder, science_builder

if TYPE_CHECKING:
    from .codec import Codec


__all__ = [
    "build_legacy",
    "build_standard",
    "is_of_objects",
    "is_standard",
    "json_text",
    "library_builder",
    "load_json",
    "reads_environment",
    "revive_json",
    "unflattened",
    "unpack_legacy",
]


SINGLE_ARG, POSITIONAL, KEYWORDS, METHOD, PYDANTIC_V1, PYDANTIC_V2, NUMPY, DELTA_SNAPSHOT = range(8)
# LangChain's JSON names a class by where it once was.
_OF_LANGCHAIN = {**LANGCHAIN_MESSAGES, "Document": "langchain_core.documents.base:Document"}
_SEND = ("langgraph.types", "Send")
_DEEPEST_JSON = 250
_DEEPEST_MEMBER = 100
# What a reader of JSON must tell apart to count brackets: escapes, quotes and brackets.
_MARKS = re.compile(r"\\.|[\"\[\]{}]", re.DOTALL)


def unpack_legacy(data: bytes, hook: Callable[[int, bytes], Any]) -> Any:
    """Packed bytes of LangGraph, whose dicts may have keys that are not text."""
    return ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)


def build_legacy(code: int, data: bytes, codec: Codec) -> Any:
    """The value of one of LangGraph's extension types, the depth of whose bytes was checked."""
    if not 0 <= code <= DELTA_SNAPSHOT:
        raise Corrupt(f"unknown extension type {code}")
    content = unpack_legacy(data, codec._unpack_langgraph)
    if code == DELTA_SNAPSHOT:
        return codec.rules.find("langgraph.checkpoint.serde.types:_DeltaSnapshot").shape.build({"value": content})
    if code == NUMPY and is_of_objects(content):
        return codec._unknown("numpy:ndarray", None, NotAllowed("LangGraph stored an array of objects without them"))
    if code == NUMPY:
        array, state = science_builder("nd"), list(content) if type(content) is tuple else content
        assert array is not None
        try:
            return array(state)
        except NotAllowed as why:
            return codec._unknown("nd", state, why)
    module, name, state = of_length(content, 3, 4)[:3]
    if is_standard(a_text(module), a_text(name)):
        return build_standard(code, module, name, state)
    build = library_builder(module, name) if codec.rules.rebuilds else None
    try:
        if build is not None:
            return build(state)
        if (module, name) == _SEND:
            return codec.rules.find("langgraph.types:Send").shape.build(a_list(state))
        return _rebuild(f"{module}:{name}", state, codec, is_pydantic=code in (PYDANTIC_V1, PYDANTIC_V2))
    except NotAllowed as why:
        return codec._unknown(f"{module}:{name}", state, why, is_plain=True)


def library_builder(module: str, name: str) -> Callable[[Any], Any] | None:
    """How LangGraph's form of a secret of pydantic's or of a time of pandas' is rebuilt; None for every other class."""
    if f"{module}:{name}" in SECRETS:
        return secret_builder(name)
    return langgraph_time_builder(name) if module.partition(".")[0] == "pandas" else None


def is_of_objects(content: Any) -> bool:
    """Whether an array's elements are objects. LangGraph stores where they were in memory, and nothing of them."""
    kind = content[0] if type(content) in (list, tuple) and content else None
    return type(kind) is str and kind.lstrip("<>|=") == "O"


def is_standard(module: str, name: str) -> bool:
    """Whether LangGraph stored a value of Python's standard library under this name."""
    return (module, name) in _STANDARD


def build_standard(code: int, module: str, name: str, state: Any) -> Any:
    """A value of the standard library; Corrupt, or whatever its type raises, for a state that does not fit."""
    build = _STANDARD[module, name]
    if code == KEYWORDS:
        return build(**text_dict(state))
    return build(*a_list(state)) if code == POSITIONAL else build(state)


def load_json(content: bytes, codec: Codec) -> Any:
    """A value of LangChain's JSON form."""
    try:
        return json.loads(json_text(content), object_hook=lambda value: revive_json(value, codec))
    except ThreadlineError:
        raise
    except Exception as error:  # whatever a constructor says to arguments that do not fit
        raise Corrupt(f"undecodable JSON ({error})") from error


def json_text(content: bytes) -> str:
    """JSON as text; Corrupt where it is nested too deep."""
    try:
        text = content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Corrupt(f"undecodable JSON ({error.reason})") from None
    if text.count("[") + text.count("{") > _DEEPEST_JSON and _is_too_deep(text):
        raise Corrupt(f"undecodable JSON (nested deeper than {_DEEPEST_JSON} levels)")
    return text


def _is_too_deep(text: str) -> bool:
    """Whether JSON is nested deeper than any that is read."""
    depth, is_inside = 0, False  # of a text
    for found in _MARKS.finditer(text):
        mark = found.group()
        if mark == '"':
            is_inside = not is_inside
        elif not is_inside and mark in "[{":
            depth += 1
            if depth > _DEEPEST_JSON:
                return True
        elif not is_inside and mark in "]}":
            depth -= 1
    return False


def revive_json(value: dict[str, Any], codec: Codec) -> Any:
    """One object of LangChain's JSON form (`lc` 1 and 2); every other dict as it is."""
    lc, kind = value.get("lc"), value.get("type")
    if type(lc) is not int or lc not in (1, 2) or type(kind) is not str or kind != "constructor":
        return value
    *module, name = map(a_text, a_list(value["id"]))
    arguments, fields = a_list(value.get("args") or []), text_dict(value.get("kwargs") or {})
    standard = _STANDARD.get((".".join(module), name))
    if standard is not None:
        return standard(*arguments, **fields)
    stored = f"{'.'.join(module)}:{name}"
    try:
        return _revived(stored, module, name, arguments, fields, codec)
    except NotAllowed as why:
        return codec._unknown(stored, arguments[0] if arguments else fields, why, is_plain=True)


def _revived(
    stored: str, module: list[str], name: str, arguments: list[Any], fields: dict[str, Any], codec: Codec
) -> Any:
    if name == "Send" and module[:1] == ["langgraph"]:
        return codec.rules.find("langgraph.types:Send").shape.build([fields["node"], fields["arg"]])
    if module[:1] in (["langchain"], ["langchain_core"]):
        stored = _OF_LANGCHAIN.get(name, stored)
    if not arguments:
        return _rebuild(stored, fields, codec, is_pydantic=True)
    build = library_builder(".".join(module), name) if codec.rules.rebuilds else None
    if build is not None:
        return build(arguments[0])
    registration = codec.rules.find(stored)
    if not codec.rules.rebuilds or hasattr(registration.cls, "_value2member_map_"):
        return registration.shape.build(_enum_state(registration.cls, arguments[0]))
    raise NotAllowed(f"{stored} was stored by its constructor's arguments and cannot be rebuilt from them")


def _rebuild(name: str, state: Any, codec: Codec, *, is_pydantic: bool) -> Any:
    registration = codec.rules.find(name)
    cls: Any = registration.cls
    is_model = is_pydantic and (hasattr(cls, "model_fields") or hasattr(cls, "parse_obj"))
    if is_model and _is_root_model(cls):
        # LangGraph stores the root alone, whatever it is.
        return registration.shape.build({"root": _typed(state, _declared(cls)["root"], codec.rules, 0)})
    if is_model and type(state) is not dict:
        raise NotAllowed(f"{name} was stored as a root model, and the class of this name is none")
    if type(state) is not dict:
        return registration.shape.build(_enum_state(cls, state))
    if not is_model:
        return registration.shape.build(state)
    text_dict(state)
    fields = getattr(cls, "model_fields", None)
    if name in WELL_KNOWN and fields is not None and state.keys() == fields.keys():
        return registration.shape.build(state)
    if not codec.rules.trusts(name) or reads_environment(cls, is_well_known=name in WELL_KNOWN):
        return unflattened(registration, state, codec.rules)
    if fields is None:
        return _validated(cls.parse_obj, cls.construct, state)
    return _validated(cls.model_validate, cls.model_construct, state)


def _is_root_model(cls: Any) -> bool:
    return bool(getattr(cls, "__pydantic_root_model__", False))


def _validated(validate: Callable[[Any], Any], construct: Callable[..., Any], state: Any) -> Any:
    """A model; where its values were set without validation, they are taken as they are, as LangGraph does."""
    try:
        return validate(state)
    except ValueError:
        return construct(**state)


def _enum_state(cls: Any, value: Any) -> Any:
    return ["", _as_member(value)] if hasattr(cls, "_value2member_map_") else value


def _collected(kind: Callable[[Any], Any], members: Any) -> Any:
    """The set of these members. LangGraph packs tuples as lists, which no set can hold: lists were tuples.

    Where that is not enough (a frozen dataclass that holds a tuple), the members as a list, as LangGraph
    gives them.
    """
    try:
        return kind([_as_member(member) for member in a_list(members)])
    except TypeError:
        return list(members)


def _as_member(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST_MEMBER:
        raise Corrupt("a stored set has a member that is nested too deep")
    return tuple([_as_member(part, depth + 1) for part in value]) if type(value) is list else value


def _plain(build: Callable[..., Any], *kinds: type) -> Callable[..., Any]:
    """A type that is built of a few values of these kinds, or of None."""

    def checked(*arguments: Any, **fields: Any) -> Any:
        for value in (*arguments, *fields.values()):
            if value is not None and type(value) not in kinds:
                raise Corrupt("a stored value of the standard library was given other parts than it has")
        return build(*arguments, **fields)

    return checked


def _of_text(build: Callable[[str], Any], longest: int | None = None) -> Callable[[Any], Any]:
    return lambda state: build(a_text(state, longest))


_TIMES = (int, dt.timedelta, dt.timezone, zoneinfo.ZoneInfo, str)
_STANDARD: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "bytearray"): _of_text(bytearray.fromhex),
    ("builtins", "bytes"): _of_text(bytes.fromhex),
    ("builtins", "set"): partial(_collected, set),
    ("builtins", "frozenset"): partial(_collected, frozenset),
    ("collections", "deque"): lambda items: collections.deque(a_list(items)),
    ("datetime", "datetime"): _of_text(dt.datetime.fromisoformat, 64),
    ("datetime", "date"): _plain(dt.date, int),
    ("datetime", "time"): _plain(dt.time, *_TIMES),
    ("datetime", "timedelta"): _plain(dt.timedelta, int, float),
    ("datetime", "timezone"): _plain(dt.timezone, *_TIMES),
    ("decimal", "Decimal"): _of_text(decimal.Decimal),
    ("re", "compile"): lambda pattern, flags=0: compiled(pattern, flags),
    ("uuid", "UUID"): _of_text(uuid.UUID, 64),
    ("zoneinfo", "ZoneInfo"): zone_info,
    **{
        (module, name): _plain(getattr(pathlib, name), str)
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
    },
    **{
        ("ipaddress", f"IPv{family}{kind}"): _of_text(getattr(ipaddress, f"IPv{family}{kind}"), 128)
        for family in (4, 6)
        for kind in ("Address", "Interface", "Network")
    },
}


_SEQUENCES = (list, tuple, set, frozenset)
_DEEPEST = 100


def reads_environment(cls: Any, *, is_well_known: bool) -> bool:
    """Whether constructing a model may fill it from the environment: settings do, and own constructors may."""
    has_own_constructor = bool(getattr(cls, "__pydantic_custom_init__", False)) or (
        "__init__" in _own_attributes(cls) and not hasattr(cls, "model_fields")
    )
    return is_settings(cls) or (has_own_constructor and not is_well_known)


def unflattened(registration: Registration, state: dict[str, Any], rules: TypeRules, depth: int = 0) -> Any:
    """The model of these fields, set one by one."""
    cls: Any = registration.cls
    declared = _declared(cls)
    known = {name: _typed(value, declared[name], rules, depth) for name, value in state.items() if name in declared}
    more = {name: value for name, value in state.items() if name not in declared}
    if not hasattr(cls, "model_fields"):
        return registration.shape.build([{**known, **more}, [*known, *more]])
    # What is missing and has no default stays without a value, as LangGraph leaves it.
    absent = [name for name, field in cls.model_fields.items() if name not in known and field.is_required()]
    return registration.shape.build([known, more, {}, [*more], absent])


def _own_attributes(cls: type) -> set[str]:
    """What the classes of a program declare between a model and pydantic's own bases."""
    own = [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in ("pydantic", "builtins")]
    return {name for base in own for name in base.__dict__}


def _declared(cls: Any) -> dict[str, Any]:
    """The fields of a data class, and what each is declared to be."""
    fields = getattr(cls, "model_fields", None)
    if fields is not None:
        return {name: field.annotation for name, field in fields.items()}
    fields = getattr(cls, "__fields__", None)
    if fields is not None:
        return {name: field.outer_type_ for name, field in fields.items()}
    names = getattr(cls, "_fields", None) or getattr(cls, "__dataclass_fields__", {})
    annotations: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        annotations.update(base.__dict__.get("__annotations__", {}))  # noqa: RUF063 - as they are, evaluated by nobody
    return {name: annotations.get(name) for name in names}


def _typed(value: Any, hint: Any, rules: TypeRules, depth: int) -> Any:
    """A value as a field of this kind holds it."""
    if depth > _DEEPEST:
        return value
    hints = _alternatives(hint)
    if len(hints) == 1 and value is not None and _is_root_model(hints[0]) and type(value) is not hints[0]:
        return _nested_root(value, hints[0], rules, depth + 1)
    if type(value) not in (dict, list):
        return value
    if type(value) is dict:
        candidates = [found for each in hints if (found := _class_for(value, each, rules)) is not None]
        if len(candidates) == 1:
            return _nested(candidates[0], value, rules, depth + 1)
        mappings = [typing.get_args(each) for each in hints if typing.get_origin(each) in (dict, Mapping)]
        if not candidates and len(mappings) == 1 and len(mappings[0]) == 2:
            return {key: _typed(item, mappings[0][1], rules, depth + 1) for key, item in value.items()}
        return value
    return _sequence(value, hints, rules, depth + 1)


def _nested_root(value: Any, cls: Any, rules: TypeRules, depth: int) -> Any:
    """The root model that a field is declared to hold, which LangGraph stored as its root alone."""
    if not isinstance(cls, type) or not _is_allowed(cls, rules):
        return value
    root = _typed(value, _declared(cls)["root"], rules, depth)
    return rules.find(class_name(cls)).shape.build({"root": root})


def _sequence(value: list[Any], hints: list[Any], rules: TypeRules, depth: int) -> Any:
    """A list, or the tuple or named tuple that LangGraph packed as one."""
    tuples = [each for each in hints if isinstance(each, type) and issubclass(each, tuple) and hasattr(each, "_fields")]
    if len(tuples) == 1 and len(hints) == 1 and _is_allowed(tuples[0], rules) and len(value) == len(tuples[0]._fields):
        state = dict(zip(tuples[0]._fields, value, strict=True))
        return _nested(rules.find(class_name(tuples[0])), state, rules, depth)
    kinds = [each for each in hints if (typing.get_origin(each) or each) in _SEQUENCES]
    if len(kinds) != 1:
        return value
    origin, inside = typing.get_origin(kinds[0]) or kinds[0], typing.get_args(kinds[0])
    if origin is tuple and inside and inside[-1] is not Ellipsis:
        each_hint = list(inside) if len(inside) == len(value) else [None] * len(value)
    else:
        each_hint = [inside[0] if inside else None] * len(value)
    items = [_typed(item, hint, rules, depth) for item, hint in zip(value, each_hint, strict=True)]
    return tuple(items) if origin is tuple else items


def _alternatives(hint: Any) -> list[Any]:
    """What a hint allows, one by one."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _alternatives(typing.get_args(hint)[0])
    if origin is typing.Union or origin is types.UnionType:
        return [each for part in typing.get_args(hint) for each in _alternatives(part)]
    return [] if hint is None or hint is type(None) else [hint]


def _class_for(value: dict[Any, Any], hint: Any, rules: TypeRules) -> Registration | None:
    """The data class of this hint, if it may be rebuilt and the dict has its fields."""
    if not isinstance(hint, type) or typing.get_origin(hint) is not None or not _is_allowed(hint, rules):
        return None
    if _is_root_model(hint):
        return None  # a root that is a dict tells nothing of its model
    declared = _declared(hint)
    is_open = getattr(hint, "model_config", {}).get("extra") == "allow"
    if not {str}.issuperset(map(type, value)) or not (is_open or value.keys() <= declared.keys()):
        return None
    fields = getattr(hint, "model_fields", None) or {}
    if any(field.is_required() and name not in value for name, field in fields.items()):
        return None
    for name, kind in declared.items():
        choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
        if choices and type(value.get(name)) in (str, int, bool) and value[name] not in choices:
            return None
    return rules.find(class_name(hint))


def _is_allowed(cls: type, rules: TypeRules) -> bool:
    """Whether this very class may be rebuilt. The class that declares it does not vouch for it."""
    if cls.__module__ == "builtins" or shape_of(cls) is None:
        return False
    try:
        return rules.find(class_name(cls)).cls is cls
    except NotAllowed:
        return False


def _nested(registration: Registration, state: dict[str, Any], rules: TypeRules, depth: int) -> Any:
    cls: Any = registration.cls
    if hasattr(cls, "model_fields") or hasattr(cls, "__fields__"):
        return unflattened(registration, state, rules, depth)
    declared = _declared(cls)
    return registration.shape.build(
        {name: _typed(value, declared.get(name), rules, depth) for name, value in state.items()}
    )
