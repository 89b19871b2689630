"""Objects that have nothing to store but their `__dict__`: many of them are taken apart, and built, together.

Most models and dataclasses are such. What would be a few calls for each object is a loop in C over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, eq
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple, TypeVar

from ..base.native import native
from ..errors import NotAllowed
from .allowed import TypeRules, found_by, registry
from .data_classes import Fields, Together, fields_excluded, shape_of
from .plans import name_header

__all__ = ["Alike", "Taken", "built"]

_dict_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")
_given_to = attrgetter("__pydantic_fields_set__")
_private_of = attrgetter("__pydantic_private__")
_Name = TypeVar("_Name", bytes, int)


class Taken(NamedTuple):
    """Objects taken apart: the header and the state of each."""

    headers: list[bytes]
    states: list[dict[str, Any]]


class _Known(NamedTuple):
    name: str
    header: bytes
    fields: Fields


class _Together(NamedTuple):
    """What some classes have in common."""

    are_models: bool
    # Whether the header of some says which fields were given.
    are_varied: bool


class Alike:
    """What is known of the classes of such objects, as long as no registration changes."""

    def __init__(self, rules: TypeRules, meet: Callable[[str], None]) -> None:
        self._rules = rules
        # Told the name of each class that is met.
        self._meet = meet
        self.headers: dict[type, bytes] = {}
        self._known: dict[type, _Known] = {}
        # How many fields an object of each class has.
        self.counts: dict[type, int] = {}
        self._together: dict[frozenset[type], _Together] = {}
        self._others: set[type] = set()
        # Of those that the native module may compare: where an object has its other parts (base/compiled.c).
        self.comparable: dict[type, tuple[int, int]] = {}
        # Of models: the header of those that were given these fields.
        self._varied: dict[tuple[type, frozenset[str]], bytes] = {}

    def take_apart(self, values: Sequence[Any], kinds: list[type]) -> Taken | None:
        """The headers and states of these values; None where one has another class, or more than its fields."""
        distinct = frozenset(kinds)
        together = self._together.get(distinct) or self._look_at_all(distinct)
        if together is None:
            return None
        try:
            if together.are_models and any(map(_extra_of, values)):
                return None
            if together.are_varied and any(map(_private_of, values)):
                return None
            states = list(map(_dict_of, values))
        except AttributeError:  # an instance that was never set up
            return None
        if list(map(len, states)) != list(map(self.counts.__getitem__, kinds)):
            return None
        if not together.are_models and not self._have_fields(states, kinds):
            return None
        if not together.are_varied or self._were_all_given(values, kinds, distinct):
            return tuple.__new__(Taken, (list(map(self.headers.__getitem__, kinds)), states))
        given = map(frozenset, map(_given_to, values))
        return Taken([self._varied.get(each) or self._vary(*each) for each in zip(kinds, given, strict=True)], states)

    def _look_at_all(self, distinct: frozenset[type]) -> _Together | None:
        """What is to be looked at in objects of these classes; None where they are not taken apart together."""
        if not distinct or not (distinct <= self._known.keys() or self._learn(set(distinct))):
            return None
        fields = [self._known[kind].fields for kind in distinct]
        if len({each.are_models for each in fields}) > 1:
            return None
        if len(self._together) >= _MOST_VARIED:
            self._together.clear()
        found = _Together(fields[0].are_models, any(each.mask_of is not None for each in fields))
        self._together[distinct] = found
        return found

    def _have_fields(self, states: list[dict[str, Any]], kinds: list[type]) -> bool:
        """Whether each has its fields and no other attributes."""
        names = [self._known[kind].fields.names for kind in kinds]
        return all(map(eq, map(dict.keys, states), names))

    def _were_all_given(self, values: Sequence[Any], kinds: list[type], distinct: frozenset[type]) -> bool:
        """Whether no header says which fields of a model were given."""
        fields = [self._known[kind].fields for kind in distinct]
        if all(each.mask_of is None for each in fields):
            return True
        if any(each.mask_of is None for each in fields):
            return False  # then each is looked at
        names = repeat(fields[0].names) if len(fields) == 1 else [self._known[kind].fields.names for kind in kinds]
        return all(map(eq, map(_given_to, values), names))

    def _vary(self, kind: type, given: frozenset[str]) -> bytes:
        known = self._known[kind]
        mask_of = known.fields.mask_of
        if mask_of is None:
            return known.header
        if len(self._varied) >= _MOST_VARIED:
            self._varied.clear()
        found = self._varied[kind, given] = name_header(known.name + mask_of(given))
        return found

    def _learn(self, kinds: set[type]) -> bool:
        """Whether all these classes are such; remembers those that are."""
        if not self._others.isdisjoint(kinds):
            return False
        for kind in kinds - self._known.keys():
            known = self._look_at(kind)
            if known is None:
                self._others.add(kind)
                return False
            self.counts[kind] = len(known.fields.names)
            self.headers.setdefault(kind, known.header)  # another thread may have learnt it, too
            self._known[kind] = known
            if native is not None and known.fields.mask_of is None:
                slots = _slots_of(kind) if known.fields.are_models else (0, 0)
                if slots is not None and _has_plain_dict(kind):
                    self.comparable[kind] = slots
        return True

    def _look_at(self, kind: type) -> _Known | None:
        registration = registry.by_class.get(kind)
        shape = shape_of(kind) if registration is None else registration.shape
        if shape is None or shape.fields is None:
            return None
        if registration is None:
            name = found_by(kind)
            if fields_excluded(kind) or not self._may_be_rebuilt(name):
                return None
            self._meet(name)
        else:
            name = registration.stored_name
        return _Known(name, name_header(name), shape.fields)

    def _may_be_rebuilt(self, name: str) -> bool:
        try:
            self._rules.find(name)
        except NotAllowed:
            return False
        return True


def _has_plain_dict(kind: type) -> bool:
    """Whether the `__dict__` of an instance is what its class keeps there, and no code of a class answers for it."""
    found = [base.__dict__["__dict__"] for base in kind.__mro__ if "__dict__" in base.__dict__]
    return bool(found) and all([type(each) is GetSetDescriptorType for each in found])


def _slots_of(kind: type) -> tuple[int, int] | None:
    """Where a model has its extra and its private parts; None where it does not keep them in slots."""
    assert native is not None
    offsets = []
    for name in ("__pydantic_extra__", "__pydantic_private__"):
        found = [base.__dict__[name] for base in kind.__mro__ if name in base.__dict__]
        if not found or type(found[0]) is not MemberDescriptorType or not issubclass(kind, found[0].__objclass__):
            return None
        offsets.append(native.slot_offset(found[0]))
    return offsets[0], offsets[1]


# Which fields were given may differ from model to model.
_MOST_VARIED = 10_000


def built(names: Sequence[_Name], states: Sequence[Any], builders: Mapping[_Name, Callable[[Any], Any]]) -> list[Any]:
    """The objects of these states, each by the builder of its name; those of one name are built together."""
    if len(names) != len(states):
        raise ValueError("there are more names than states, or fewer")
    distinct = dict.fromkeys(names)
    if native is not None and type(states) is list and type(names) is list:
        # By the very class: what a program registered may have attributes of any name.
        plans = {name: build.plan if type(build := builders[name]) is Together else None for name in distinct}
        if None not in plans.values() and (made := native.built(names, states, plans)) is not None:
            return made  # type: ignore[no-any-return]
    if len(distinct) == 1:
        [name] = distinct
        return _built_by(builders[name], states)
    states_of: dict[_Name, list[Any]] = {}
    for name, state in zip(names, states, strict=True):
        if name in states_of:
            states_of[name].append(state)
        else:
            states_of[name] = [state]
    parts = {name: iter(_built_by(builders[name], those)) for name, those in states_of.items()}
    return list(map(next, map(parts.__getitem__, names)))


def _built_by(build: Callable[[Any], Any], states: Sequence[Any]) -> list[Any]:
    return build.build_all(states) if type(build) is Together else [build(state) for state in states]
