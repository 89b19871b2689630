"""Classes whose instances pack as just their `__dict__`: lists of these are taken apart without a call for each."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..errors import NotAllowed
from .plans import name_header
from .rules import TypeRules, class_name, registry
from .shapes import shape_of

__all__ = ["Alike"]

_extra = attrgetter("__pydantic_extra__")


class Alike:
    """What is known of such classes, as long as no registration changes."""

    def __init__(self, rules: TypeRules) -> None:
        self._rules = rules
        self.headers: dict[type, bytes] = {}
        self._field_counts: dict[type, int] = {}
        self._others: set[type] = set()

    def states(self, values: Sequence[Any], kinds: list[type]) -> list[dict[str, Any]] | None:
        """The states of values of these classes; None where there is another class or anything beside the fields."""
        if not self.knows(kinds):
            return None
        try:
            return None if any(map(_extra, values)) else [value.__dict__ for value in values]
        except AttributeError:  # an instance that was never set up
            return None

    def knows(self, kinds: list[type]) -> bool:
        """Whether all these classes are such."""
        distinct = set(kinds)
        return distinct <= self.headers.keys() or self._learn(distinct)

    def are_whole(self, states: list[dict[str, Any]], kinds: list[type]) -> bool:
        """Whether each has all its fields, and nothing that was cached among them."""
        return list(map(len, states)) == list(map(self._field_counts.get, kinds))

    def _learn(self, kinds: set[type]) -> bool:
        """Whether all these classes are such; remembers those that are."""
        if not self._others.isdisjoint(kinds):
            return False
        for kind in kinds - self.headers.keys():
            shape = None if kind in registry.by_class else shape_of(kind)
            if shape is None or not shape.is_dict or not self._may_be_rebuilt(kind):
                self._others.add(kind)
                return False
            self._field_counts[kind] = len(kind.model_fields)  # type: ignore[attr-defined]
            self.headers[kind] = name_header(class_name(kind))
        return True

    def _may_be_rebuilt(self, kind: type) -> bool:
        try:
            self._rules.find(class_name(kind))
        except NotAllowed:
            return False
        return True
