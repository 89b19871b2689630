"""Data classes taken apart and put together: pydantic models, dataclasses, enums, named tuples.

Rules: taking apart reads fields; putting together sets fields and calls no code of the class (no
constructor, no validator, no `__post_init__`, no property and no `__setattr__`: values go into slots and into the
`__dict__` themselves). A field the class has gained takes its default, a field it has lost is dropped; a field
without a default that is missing is an error. A class with `__del__` is not data: a forged instance would run it.
States are of the exact kinds that were written (codec/limits.py).
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import eq
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple

from ..base.printable import printable
from ..errors import Corrupt, NotAllowed
from .limits import a_dict, a_list, a_text, of_length, text_dict

__all__ = ["Fields", "Shape", "Together", "fields_excluded", "is_settings", "private_defaults", "shape_of"]

log = logging.getLogger("threadline")
_new = object.__new__
_BASIC_TYPES = frozenset((bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple))
_PLAIN_VALUES = (str, int, float, bool, bytes, type(None))
_SLOTS = (MemberDescriptorType, GetSetDescriptorType)
_ENVIRONMENT = frozenset(("environ", "environb", "getenv", "getenvb"))
# A flag of more bits takes noticeable time to be taken apart.
_MOST_FLAG_BITS = 1 << 12


class Fields(NamedTuple):
    """The fields of a class whose instances usually have nothing to store but their `__dict__`."""

    names: frozenset[str]
    # Whether they are models of pydantic's, which may hold more.
    are_models: bool = False
    # What to add to the stored name of a model that was given these fields; None where nothing is added.
    mask_of: Callable[[Any], str] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Together:
    """Builds an instance of its state; `build_all` builds many, and so does the native module by a `plan`."""

    build: Callable[[Any], Any]
    build_all: Callable[[Any], list[Any]]
    plan: tuple[Any, ...] | None

    def __call__(self, state: Any) -> Any:
        return self.build(state)


class Shape(NamedTuple):
    """How instances of one class become a plain state, and come back from one.

    Where many instances are built in less time, `build` is a `Together`.
    """

    state: Callable[[Any], Any]
    build: Callable[[Any], Any]
    # Where the state of an ordinary instance is just its `__dict__`: such instances are taken apart together.
    fields: Fields | None = None
    # What to add to the stored name for this instance, and how to build from a name with that addition.
    variant: Callable[[Any], str] | None = None
    build_variant: Callable[[str], Callable[[Any], Any]] | None = None


def shape_of(cls: type) -> Shape | None:
    """The shape of a data class; None for every other class."""
    if _has(cls, "__del__") or issubclass(cls, BaseException):
        return None
    if issubclass(cls, enum.Enum):
        return _enum(cls)
    if _has(cls, "__pydantic_fields__") or _has(cls, "__pydantic_core_schema__"):
        if hasattr(cls, "model_fields"):
            return _pydantic(cls)
    elif _has(cls, "__fields__") and _has(cls, "__fields_set__") and _has(cls, "__validators__"):
        return _pydantic_v1(cls)
    if _has(cls, "__dataclass_fields__"):
        return _dataclass(cls)
    if issubclass(cls, tuple) and _has(cls, "_fields"):
        return _named_tuple(cls)
    return None


def fields_excluded(cls: Any) -> list[str]:
    """The fields that a model leaves out of its dumps, as far as they have a default."""
    fields = getattr(cls, "__pydantic_fields__", None) or {}
    return [name for name, field in fields.items() if field.exclude and not field.is_required()]


def private_defaults(cls: Any) -> dict[str, Any]:
    """The defaults of a model's private attributes that are no plain values, such as classes."""
    found = {name: getattr(one, "default", None) for name, one in getattr(cls, "__private_attributes__", {}).items()}
    return {name: value for name, value in found.items() if type(value) not in _PLAIN_VALUES}


def is_settings(cls: type) -> bool:
    """Whether a model takes what it is not given from the environment of the process."""
    return any(
        base.__name__ == "BaseSettings" and base.__module__.partition(".")[0] in ("pydantic", "pydantic_settings")
        for base in cls.__mro__
    )


def _has(cls: type, name: str) -> bool:
    """Whether a class declares a name, itself or by a base; not by `hasattr`, which may ask a metaclass."""
    return any(name in base.__dict__ for base in type.__getattribute__(cls, "__mro__"))


def _pydantic(cls: Any) -> Shape:
    fields = getattr(cls, "__pydantic_fields__", None) or cls.model_fields
    state, build, build_all = _model_state(fields), *_model_build(cls, fields)
    names, is_simple = frozenset(fields), not cls.__private_attributes__
    if cls.__module__.startswith("langchain_core."):
        # LangGraph's savers do not keep which fields of a message were set; asking costs as much as packing.
        built_by = Together(build, build_all, _model_plan(cls, names, names))
        return Shape(state, built_by, Fields(names, True) if is_simple else None)
    mask_of, chosen_of = _field_masks(sorted(fields))

    def build_variant(mask: str) -> Callable[[Any], Any]:
        chosen = chosen_of(mask)
        plan = _model_plan(cls, names, chosen)
        return Together(partial(build, chosen=chosen), partial(build_all, chosen=chosen), plan)

    return Shape(
        state,
        Together(build, build_all, _model_plan(cls, names, names)),
        Fields(names, True, mask_of) if is_simple else None,
        variant=lambda model: mask_of(model.__pydantic_fields_set__),
        build_variant=build_variant,
    )


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


def _model_build(cls: Any, fields: Any) -> tuple[Callable[..., Any], Callable[..., list[Any]]]:
    """What builds a model, and what builds many."""
    names = frozenset(fields)
    has_extra = cls.model_config.get("extra") == "allow"
    has_private = bool(cls.__private_attributes__)
    is_root = getattr(cls, "__pydantic_root_model__", False)

    # What nearly every model is built by, as directly as can be: this is the time that reading a chat takes.
    set_dict, set_chosen, set_extra, set_private = (_setter(cls, part) for part in _PARTS)
    is_simple = not is_root and not has_private

    def build(state: Any, chosen: frozenset[str] = names) -> Any:
        if is_simple and type(state) is dict and state.keys() == names:
            model = _new(cls)
            set_dict(model, state)
            set_chosen(model, set(chosen))
            set_extra(model, {} if has_extra else None)
            set_private(model, None)
            return model
        return build_other(state, None if chosen is names else chosen)

    def build_all(states: Sequence[Any], chosen: frozenset[str] = names) -> list[Any]:
        if not is_simple or not _are_whole(states, names):
            return [build(state, chosen) for state in states]
        models = list(map(_new, repeat(cls, len(states))))
        deque(map(set_dict, models, states), 0)
        deque(map(set_chosen, models, map(set, repeat(chosen))), 0)
        deque(map(set_extra, models, map(dict, repeat(())) if has_extra else repeat(None)), 0)
        deque(map(set_private, models, repeat(None)), 0)
        return models

    def build_other(state: Any, chosen: frozenset[str] | None) -> Any:
        state, more, private, given, absent = _model_parts(state)
        if state.keys() != names:
            if state.keys() | set(absent) != names:
                chosen = None  # the mask counts fields of the class as it was
            state = _fitted(cls, state, names.difference(absent), lambda n: _pydantic_default(cls, fields[n], n))
        model = _new(cls)
        set_dict(model, state)
        chosen_names = set(state if chosen is None else chosen)
        set_chosen(model, chosen_names.union(given) if has_extra else chosen_names)
        if not is_root:  # a root model has these as attributes of its class
            set_extra(model, more if has_extra else None)
            # Private attributes that were not stored, because they had them, have their defaults.
            defaults = _private_defaults(cls) if has_private else None
            set_private(model, {**(defaults or {}), **(private or {})} or None)
        return model

    return build, build_all


def _model_plan(cls: Any, names: frozenset[str], chosen: frozenset[str]) -> tuple[Any, ...] | None:
    """How the native module builds a model; None for one that keeps its parts otherwise than models usually do."""
    if getattr(cls, "__pydantic_root_model__", False) or cls.__private_attributes__ or not _is_made_plainly(cls):
        return None
    # Not by `getattr`, which may ask a metaclass.
    found = [next((base.__dict__[part] for base in cls.__mro__ if part in base.__dict__), None) for part in _PARTS]
    if [type(each) for each in found] != [GetSetDescriptorType, *[MemberDescriptorType] * 3]:
        return None
    return (cls, names, *found, chosen, cls.model_config.get("extra") == "allow")


def _is_made_plainly(cls: type) -> bool:
    """Whether Python makes an instance without code of the class: not so of one that is also a dict or an int."""
    try:
        return _new(cls) is not None
    except TypeError:
        return False


def _are_whole(states: Sequence[Any], names: frozenset[str]) -> bool:
    """Whether each state has these fields."""
    return {dict}.issuperset(map(type, states)) and all(map(eq, map(dict.keys, states), repeat(names)))


_PARTS = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def _model_parts(state: Any) -> tuple[dict[str, Any], dict[str, Any], Any, list[str], list[str]]:
    """The fields of a model; its extra and private ones, the names of extra ones that were given, of absent ones."""
    if type(state) is not list:
        return text_dict(state), {}, None, [], []
    values, more, private, *notes = of_length(state, 3, 5)
    given, absent = ([*map(a_text, a_list(note))] for note in notes or ([*text_dict(more)], []))
    return text_dict(values), text_dict(more), text_dict(private), given, absent


def _setter(cls: Any, name: str) -> Callable[[Any, Any], None]:
    """What sets an attribute past all code of its class; it raises where there is nothing but code to set it."""
    found = [base.__dict__[name] for base in cls.__mro__ if name in base.__dict__]
    if found and type(found[0]) in _SLOTS:
        return found[0].__set__  # type: ignore[no-any-return]
    dicts = [base.__dict__.get("__dict__") for base in cls.__mro__]
    held = next((each for each in dicts if type(each) is GetSetDescriptorType), None)
    slot = next((each for each in found if type(each) is MemberDescriptorType), None)
    if name != "__dict__" and held is not None:
        return lambda instance, value: held.__get__(instance).__setitem__(name, value)
    if slot is not None:
        return slot.__set__

    def refuse(instance: Any, value: Any) -> None:
        raise NotAllowed(
            f"{cls.__module__}:{cls.__qualname__} keeps its field {name!r} by code of its own: "
            f"register() it with encode= and decode="
        )

    return refuse


def _field_masks(names: list[str]) -> tuple[Callable[[Any], str], Callable[[str], frozenset[str]]]:
    """Which fields of a model were given, as a short text and back; a model that was given all of them has none."""
    every = frozenset(names)
    masks: dict[frozenset[str], str] = {every: ""}

    def mask_of(given: Any) -> str:
        if given == every:
            return ""
        chosen = every.intersection(given)
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
    if not _may_call(cls, field.default_factory):
        raise _missing_field(cls, name)
    return field.get_default(call_default_factory=True)


def _may_call(cls: type, factory: Any) -> bool:
    """Whether a default may be had from this factory: not from one that takes it from the environment.

    A forged object without fields would otherwise be given the process's secrets, and the next put would store them.
    Only the factory's own code is looked at.
    """
    names = getattr(getattr(factory, "__code__", None), "co_names", ())
    return factory is None or not (is_settings(cls) or _ENVIRONMENT.intersection(names))


def _private_defaults(cls: Any) -> dict[str, Any] | None:
    attributes = cls.__private_attributes__
    if not attributes or is_settings(cls):
        return None
    drawn = {name: _private_default(attribute) for name, attribute in attributes.items()}
    return {name: value for name, value in drawn.items() if type(value).__name__ != "PydanticUndefinedType"}


def _private_default(attribute: Any) -> Any:
    # Not by `get_default` alone, which calls factories in some versions of pydantic and not in others.
    is_alone = not getattr(attribute, "default_factory_takes_validated_data", False)
    if attribute.default_factory is not None and is_alone:
        return attribute.default_factory() if _may_call(object, attribute.default_factory) else attribute.default
    return attribute.get_default()


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
        if fields[name].required or not _may_call(cls, fields[name].default_factory):
            raise _missing_field(cls, name)
        return fields[name].get_default()

    set_dict, set_chosen = _setter(cls, "__dict__"), _setter(cls, "__fields_set__")
    set_private = {name: _setter(cls, name) for name in cls.__private_attributes__}

    def build(state: Any) -> Any:
        parts = [state, [*text_dict(state)]] if type(state) is dict else of_length(state, 2, 3)
        values, chosen = text_dict(parts[0]), set(map(a_text, a_list(parts[1])))
        if values.keys() != names:
            values = _fitted(cls, values, names.union(values) if is_open else names, default)
        model = _new(cls)
        set_dict(model, values)
        set_chosen(model, chosen & values.keys())
        private = {} if is_settings(cls) else {n: _private_default(a) for n, a in cls.__private_attributes__.items()}
        private = {name: value for name, value in private.items() if type(value).__name__ != "UndefinedType"}
        for name, value in {**private, **(text_dict(parts[2]) if len(parts) > 2 else {})}.items():
            if name in set_private:
                set_private[name](model, value)
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
        if field.default_factory is not dataclasses.MISSING and _may_call(cls, field.default_factory):
            return field.default_factory()
        raise _missing_field(cls, name)

    setters = {} if in_dict else {name: _setter(cls, name) for name in fields}
    held = next((d for base in cls.__mro__ if type(d := base.__dict__.get("__dict__")) is GetSetDescriptorType), None)
    get_dict = held.__get__ if held is not None else None

    def build(state: Any) -> Any:
        unset: Any = ()
        if type(state) is list:
            state, unset = of_length(state, 2)
            unset = [*map(a_text, a_list(unset))]
        if a_dict(state).keys() != names:
            state = _fitted(cls, text_dict(state), names.difference(unset), default)
        instance = _new(cls)
        if in_dict and get_dict is not None:
            get_dict(instance).update(state)
        else:
            for name in fields:
                if name in state:
                    setters[name](instance, state[name])
        return instance

    if not in_dict or get_dict is None:
        return Shape(state, build)
    build_all = _dataclass_build_all(cls, names, build, get_dict)
    plan = (cls, names, held, None, None, None, None, None) if _is_made_plainly(cls) else None
    return Shape(state, Together(build, build_all, plan), Fields(names) if also is None else None)


def _dataclass_build_all(
    cls: type, names: frozenset[str], build: Callable[[Any], Any], get_dict: Callable[[Any], Any]
) -> Callable[[Sequence[Any]], list[Any]]:
    """What builds many instances of a dataclass that keeps its fields in its `__dict__`."""

    def build_all(states: Sequence[Any]) -> list[Any]:
        if not _are_whole(states, names):
            return list(map(build, states))
        instances: list[Any] = list(map(_new, repeat(cls, len(states))))
        deque(map(dict.update, map(get_dict, instances), states), maxlen=0)
        return instances

    return build_all


def _named_tuple(cls: Any) -> Shape:
    names = cls._fields

    def default(name: str) -> Any:
        if name in cls._field_defaults:
            return cls._field_defaults[name]
        raise _missing_field(cls, name)

    def build(state: Any) -> Any:
        if tuple(text_dict(state)) != names:
            state = _fitted(cls, state, frozenset(names), default)
        return tuple.__new__(cls, [state[name] for name in names])

    return Shape(lambda instance: dict(zip(names, instance, strict=True)), build)


def _enum(cls: Any) -> Shape:
    def state(member: Any) -> Any:
        value = member._value_
        return [member._name_, value] if type(value) in _PLAIN_VALUES else [member._name_]

    def build(state: Any) -> Any:
        if type(state) is dict:
            raise NotAllowed(f"{cls.__module__}:{cls.__qualname__} was no Enum when it was stored")
        name, *value = of_length(state, 1, 2)
        if name is not None:
            a_text(name)
        member = cls._member_map_.get(name)
        if member is None and value:
            if not _is_plain(value[0]):
                raise Corrupt("a stored enum member has a value that is not a plain one")
            member = cls._value2member_map_.get(value[0])
            if member is None and issubclass(cls, enum.Flag) and type(value[0]) is int:
                if value[0].bit_length() > _MOST_FLAG_BITS:
                    raise Corrupt("a stored flag has more bits than any that is stored")
                base: Any = enum.IntFlag if issubclass(cls, enum.IntFlag) else enum.Flag
                member = base._missing_.__func__(cls, value[0])  # not cls(value): classes may bring their own
        if member is None:
            raise NotAllowed(f"{cls.__module__}:{cls.__qualname__} has no member {name!r} any more")
        return member

    return Shape(state, build)


def _is_plain(value: Any) -> bool:
    """Whether a value is a plain one, or a tuple of such: hashing and comparing it calls no code of a class."""
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in _PLAIN_VALUES


def _fitted(
    cls: type, state: Mapping[str, Any], names: frozenset[str], default: Callable[[str], Any]
) -> dict[str, Any]:
    """The state of a class whose fields have changed since it was stored."""
    lost = state.keys() - names
    if lost:
        log.warning(
            "stored %s:%s has fields the class has lost: %s (dropped; threadline.register(upgrade=) can keep them)",
            printable(cls.__module__),
            printable(cls.__qualname__),
            printable(", ".join(sorted(repr(name)[:100] for name in lost))[:1000]),
        )
    kept = {name: value for name, value in state.items() if name in names}
    return {**kept, **{name: default(name) for name in names - kept.keys()}}


def _missing_field(cls: type, name: str) -> NotAllowed:
    return NotAllowed(
        f"stored {cls.__module__}:{cls.__qualname__} lacks the field {name!r}, which has no default: "
        f"give it one, or register the class with an upgrade (threadline.register(cls, version=, upgrade=))"
    )
