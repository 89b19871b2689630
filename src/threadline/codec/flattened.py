"""Pydantic models as LangGraph stores them: fields by name, and nested models as plain dicts.

Rules: a model is set field by field, and no code of its class runs: no constructor, no validator. What a nested dict
or list was is told by what the field is declared to be, as pydantic has resolved it already; nothing is evaluated.
A dict that fits none of the declared classes, or more than one, stays a dict. Only classes that the rules allow are
rebuilt.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from ..errors import NotAllowed
from .rules import Registration, TypeRules, class_name
from .shapes import is_settings, shape_of

__all__ = ["reads_environment", "unflattened"]

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
    if depth > _DEEPEST or type(value) not in (dict, list):
        return value
    hints = _alternatives(hint)
    if type(value) is dict:
        candidates = [found for each in hints if (found := _class_for(value, each, rules)) is not None]
        if len(candidates) == 1:
            return _nested(candidates[0], value, rules, depth + 1)
        mappings = [typing.get_args(each) for each in hints if typing.get_origin(each) in (dict, Mapping)]
        if not candidates and len(mappings) == 1 and len(mappings[0]) == 2:
            return {key: _typed(item, mappings[0][1], rules, depth + 1) for key, item in value.items()}
        return value
    return _sequence(value, hints, rules, depth + 1)


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
