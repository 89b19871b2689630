"""Data classes taken apart and put together: pydantic models, dataclasses, enums, named tuples.

Rules: taking apart reads fields; putting together sets fields and calls no code of the class (no
constructor, no validator, no `__post_init__`). A field the class has gained takes its default, a field it
has lost is dropped; a field without a default that is missing is an error. A class with `__del__` is not
data: a forged instance would run it.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ..errors import NotAllowed

__all__ = ["Shape", "shape_of"]

log = logging.getLogger("threadline")
_new = object.__new__
_set = object.__setattr__
_BASIC_TYPES = frozenset((bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple))
_PLAIN_VALUES = (str, int, float, bool, bytes, type(None))


class Shape(NamedTuple):
    """How instances of one class become a plain state, and come back from one."""

    state: Callable[[Any], Any]
    build: Callable[[Any], Any]
    # Whether the state of an ordinary instance is just its `__dict__`: such instances pack in groups.
    is_dict: bool = False
    # What to add to the stored name for this instance, and how to build from a name with that addition.
    variant: Callable[[Any], str] | None = None
    build_variant: Callable[[str], Callable[[Any], Any]] | None = None


def shape_of(cls: type) -> Shape | None:
    """The shape of a data class; None for every other class."""
    if hasattr(cls, "__del__") or issubclass(cls, BaseException):
        return None
    if issubclass(cls, enum.Enum):
        return _enum(cls)
    if "__pydantic_fields__" in cls.__dict__ or hasattr(cls, "__pydantic_core_schema__"):
        if hasattr(cls, "model_fields"):
            return _pydantic(cls)
    elif hasattr(cls, "__fields__") and hasattr(cls, "__fields_set__") and hasattr(cls, "__validators__"):
        return _pydantic_v1(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(cls)
    return None


def _pydantic(cls: Any) -> Shape:
    fields = getattr(cls, "__pydantic_fields__", None) or cls.model_fields
    state, build = _model_state(fields), _model_build(cls, fields)
    if cls.__module__.startswith("langchain_core."):
        # LangGraph's savers do not keep which fields of a message were set; asking costs as much as packing.
        return Shape(state, build, is_dict=not cls.__private_attributes__)
    mask_of, chosen_of = _field_masks(sorted(fields))
    return Shape(state, build, variant=mask_of, build_variant=lambda mask: partial(build, chosen=chosen_of(mask)))


def _model_state(fields: Any) -> Callable[[Any], Any]:
    """Takes a model apart: its fields alone, or `[fields, extra, private]`, or these with the names of those
    extra fields that count as given, and of the fields without a value."""
    count = len(fields)

    def state(model: Any) -> Any:
        values = model.__dict__
        extra, private = model.__pydantic_extra__, model.__pydantic_private__
        if len(values) != count:
            values = {name: value for name, value in values.items() if name in fields}
        if not extra and not private and len(values) == count:
            return values
        parts = [values, extra or {}, private or {}]
        given = [name for name in extra or () if name in model.__pydantic_fields_set__]
        if len(given) != len(extra or ()) or len(values) != count:
            parts += [given, [name for name in fields if name not in values]]
        return parts

    return state


def _model_build(cls: Any, fields: Any) -> Callable[..., Any]:
    names = frozenset(fields)
    has_extra = cls.model_config.get("extra") == "allow"
    has_private = bool(cls.__private_attributes__)
    is_root = getattr(cls, "__pydantic_root_model__", False)

    # What nearly every model is built by, as directly as can be: this is the time that reading a chat takes.
    setters = _setters(cls) if not is_root and not has_private else None
    is_simple = setters is not None
    set_dict, set_chosen, set_extra, set_private = setters or [_set] * 4

    def build(state: Any, chosen: frozenset[str] = names) -> Any:
        if is_simple and type(state) is dict and state.keys() == names:
            model = _new(cls)
            set_dict(model, state)
            set_chosen(model, set(chosen))
            set_extra(model, {} if has_extra else None)
            set_private(model, None)
            return model
        return build_other(state, None if chosen is names else chosen)

    def build_other(state: Any, chosen: frozenset[str] | None) -> Any:
        more: Any = {}
        private: Any = None
        given: Any = ()
        absent: Any = ()
        if type(state) is list:
            state, more, private, *notes = state
            given, absent = notes or (more, ())
        if state.keys() != names:
            if state.keys() | set(absent) != names:
                chosen = None  # the mask counts fields of the class as it was
            state = _fitted(cls, state, names.difference(absent), lambda n: _pydantic_default(cls, fields[n], n))
        model = _new(cls)
        _set(model, "__dict__", state)
        chosen_names = set(state if chosen is None else chosen)
        _set(model, "__pydantic_fields_set__", chosen_names.union(given) if has_extra else chosen_names)
        if not is_root:  # a root model has these as attributes of its class
            _set(model, "__pydantic_extra__", more if has_extra else None)
            _set(model, "__pydantic_private__", private or (_private_defaults(cls) if has_private else None))
        return model

    return build


def _setters(cls: Any) -> list[Any] | None:
    """What sets the four parts of a model, past its own `__setattr__`; None for a class that declares one anew."""
    names = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
    found = [next(base.__dict__[name] for base in cls.__mro__ if name in base.__dict__) for name in names]
    return [part.__set__ for part in found] if all(hasattr(part, "__set__") for part in found) else None


def _field_masks(names: list[str]) -> tuple[Callable[[Any], str], Callable[[str], frozenset[str]]]:
    """Which fields of a model were set, as a short text and back; a model with all of them set has none."""
    every = frozenset(names)
    masks: dict[frozenset[str], str] = {every: ""}

    def mask_of(model: Any) -> str:
        if model.__pydantic_fields_set__ == every:
            return ""
        chosen = every.intersection(model.__pydantic_fields_set__)
        mask = masks.get(chosen)
        if mask is None:
            mask = masks[chosen] = f"?{sum(1 << i for i, name in enumerate(names) if name in chosen):x}"
        return mask

    def chosen_of(mask: str) -> frozenset[str]:
        bits = int(mask, 16)
        return frozenset(name for i, name in enumerate(names) if bits >> i & 1)

    return mask_of, chosen_of


def _pydantic_default(cls: type, field: Any, name: str) -> Any:
    if field.is_required():
        raise _missing_field(cls, name)
    return field.get_default(call_default_factory=True)


def _private_defaults(cls: Any) -> dict[str, Any] | None:
    attributes = cls.__private_attributes__
    if not attributes:
        return None
    drawn = {name: attribute.get_default() for name, attribute in attributes.items()}
    return {name: value for name, value in drawn.items() if type(value).__name__ != "PydanticUndefinedType"}


def _pydantic_v1(cls: Any) -> Shape:
    fields = cls.__fields__
    names = frozenset(fields)
    is_open = cls.__config__.extra.value == "allow"

    def state(model: Any) -> Any:
        if not model.__dict__.keys() >= names:
            raise TypeError(f"it was constructed without {', '.join(sorted(names - model.__dict__.keys()))}")
        private = {name: getattr(model, name) for name in cls.__private_attributes__ if hasattr(model, name)}
        return [dict(model.__dict__), sorted(model.__fields_set__), *([private] if private else [])]

    def default(name: str) -> Any:
        if fields[name].required:
            raise _missing_field(cls, name)
        return fields[name].get_default()

    def build(state: Any) -> Any:
        values, chosen, *private = state if type(state) is list else (state, list(state))
        if values.keys() != names:
            values = _fitted(cls, values, names.union(values) if is_open else names, default)
        model = _new(cls)
        _set(model, "__dict__", values)
        _set(model, "__fields_set__", set(chosen) & values.keys())
        model._init_private_attributes()
        for name, value in private[0].items() if private else ():
            if name in cls.__private_attributes__:
                _set(model, name, value)
        return model

    return Shape(state, build)


def _dataclass(cls: Any) -> Shape:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    names = frozenset(fields)
    in_dict = not any("__slots__" in base.__dict__ for base in cls.__mro__[:-1])
    also = next((base.__name__ for base in cls.__mro__ if base in _BASIC_TYPES), None)

    def state(instance: Any) -> Any:
        if also is not None:
            raise TypeError(f"a dataclass that is also a {also} has more than its fields: register() it with encode=")
        if in_dict and (values := instance.__dict__).keys() == names:
            return values
        found = {name: getattr(instance, name) for name in fields if hasattr(instance, name)}
        return found if len(found) == len(fields) else [found, [name for name in fields if name not in found]]

    def default(name: str) -> Any:
        field = fields[name]
        if field.default is not dataclasses.MISSING:
            return field.default
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        raise _missing_field(cls, name)

    def build(state: Any) -> Any:
        unset: Any = ()
        if type(state) is list:
            state, unset = state
        if state.keys() != names:
            state = _fitted(cls, state, names.difference(unset), default)
        instance = _new(cls)
        if in_dict:
            instance.__dict__.update(state)
        else:
            for name, value in state.items():
                _set(instance, name, value)
        return instance

    return Shape(state, build)


def _named_tuple(cls: Any) -> Shape:
    names = cls._fields

    def default(name: str) -> Any:
        if name in cls._field_defaults:
            return cls._field_defaults[name]
        raise _missing_field(cls, name)

    def build(state: Any) -> Any:
        if tuple(state) != names:
            state = _fitted(cls, state, frozenset(names), default)
        return tuple.__new__(cls, [state[name] for name in names])

    return Shape(lambda instance: dict(zip(names, instance, strict=True)), build)


def _enum(cls: Any) -> Shape:
    def state(member: Any) -> Any:
        value = member._value_
        return [member._name_, value] if type(value) in _PLAIN_VALUES else [member._name_]

    def build(state: Any) -> Any:
        name, *value = state
        member = cls._member_map_.get(name)
        if member is None and value:
            member = cls._value2member_map_.get(value[0])
            if member is None and issubclass(cls, enum.Flag) and type(value[0]) is int:
                base: Any = enum.IntFlag if issubclass(cls, enum.IntFlag) else enum.Flag
                member = base._missing_.__func__(cls, value[0])  # not cls(value): classes may bring their own
        if member is None:
            raise NotAllowed(f"{cls.__module__}:{cls.__qualname__} has no member {name!r} any more")
        return member

    return Shape(state, build)


def _fitted(
    cls: type, state: Mapping[str, Any], names: frozenset[str], default: Callable[[str], Any]
) -> dict[str, Any]:
    """The state of a class whose fields have changed since it was stored."""
    lost = state.keys() - names
    if lost:
        log.warning(
            "stored %s:%s has fields the class has lost: %s (dropped; threadline.register(upgrade=) can keep them)",
            cls.__module__,
            cls.__qualname__,
            ", ".join(sorted(map(str, lost))),
        )
    kept = {name: value for name, value in state.items() if name in names}
    return {**kept, **{name: default(name) for name in names - kept.keys()}}


def _missing_field(cls: type, name: str) -> NotAllowed:
    return NotAllowed(
        f"stored {cls.__module__}:{cls.__qualname__} lacks the field {name!r}, which has no default: "
        f"give it one, or register the class with an upgrade (threadline.register(cls, version=, upgrade=))"
    )
