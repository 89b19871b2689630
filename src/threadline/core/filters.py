"""Filters over metadata: equality, nested keys, and operators. Pure; every backend's rows go through here.

{"source": "loop"}                    equal
{"user.plan": "pro"}                  a key with a dot, or a path into nested dicts
{"step": {"$gte": 3, "$lt": 10}}      $eq $ne $gt $gte $lt $lte $in $exists

Filters of items look into nested dicts, as LangGraph's stores do; those of metadata compare them as a whole.

{"user": {"age": {"$gt": 3}}}         of items: a dict that has such a part, whatever else it has
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..base.checkpoint import metadata_value
from ..errors import InvalidRequest
from .rows import can_search, fits_column, searchable_value

__all__ = [
    "MISSING",
    "as_metadata",
    "check_filter",
    "check_item_filter",
    "database_hints",
    "item_matches",
    "look_up",
    "matches",
]

# Keys are bound, never pasted; this keeps queries readable and refuses what can only be an attack.
_KEY = re.compile(r"[\w.\-:/@ ]{1,200}")
MISSING = object()


def check_filter(filter: Any) -> dict[str, Any]:
    """A filter that is well formed; an empty one for None."""
    if filter is None:
        return {}
    if not isinstance(filter, Mapping):
        raise InvalidRequest(f"a filter is a dict, not {type(filter).__name__}")
    for key, wanted in filter.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise InvalidRequest(f"the filter key {key!r} is not a metadata key (letters, digits, . - _ : / @)")
        if _is_operators(wanted):
            _check_operators(wanted)
    return dict(filter)


def _check_operators(wanted: Mapping[str, Any]) -> None:
    for name, operand in wanted.items():
        if name not in _OPERATORS:
            raise InvalidRequest(f"the filter operator {name!r} is unknown; there are {', '.join(_OPERATORS)}")
        if name == "$in" and not isinstance(operand, (list, tuple, set, frozenset)):
            raise InvalidRequest("$in takes a list")


def check_item_filter(filter: Any) -> dict[str, Any]:
    """A filter of items that is well formed, in nested dicts too; its tuples are lists, as those of values are."""
    try:
        return {key: _of_items(wanted) for key, wanted in check_filter(filter).items()}
    except RecursionError:
        raise InvalidRequest("a filter is nested too deeply, or it contains itself") from None


def _of_items(wanted: Any) -> Any:
    if _is_operators(wanted):
        _check_operators(wanted)
        return {name: [*map(_listed, part)] if name == "$in" else _listed(part) for name, part in wanted.items()}
    if isinstance(wanted, Mapping):
        return {key: _of_items(part) for key, part in wanted.items()}
    return [*map(_of_items, wanted)] if isinstance(wanted, (list, tuple)) else wanted


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _listed(part) for key, part in value.items()}
    return [*map(_listed, value)] if isinstance(value, (list, tuple)) else value


def as_metadata(filter: Mapping[str, Any]) -> dict[str, Any]:
    """A filter whose values have the form that the metadata of checkpoints has: a tuple finds a list."""
    return {key: _plain(wanted) for key, wanted in filter.items()}


def matches(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Whether the metadata is what the filter asks for."""
    for key, wanted in filter.items():
        value = look_up(metadata, key)
        if _is_operators(wanted):
            if not all(_OPERATORS[name](value, operand) for name, operand in wanted.items()):
                return False
        elif (None if value is MISSING else value) != wanted:
            return False
    return True


def item_matches(value: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Whether the value of an item is what a filter asks for that `check_item_filter` gave."""
    return all(_agrees(look_up(value, key), wanted) for key, wanted in filter.items())


def _agrees(value: Any, wanted: Any) -> bool:
    if _is_operators(wanted):
        return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
    if isinstance(wanted, Mapping):
        if not isinstance(value, Mapping):
            return False
        return all(_agrees(value.get(key, MISSING), part) for key, part in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_agrees, value, wanted))
    return bool((None if value is MISSING else value) == wanted)


def database_hints(filter: Mapping[str, Any], indexed: tuple[str, ...] | None) -> tuple[tuple[str, Any], ...]:
    """The part of a filter that a database can check exactly; the rest is checked here."""
    hints: list[tuple[str, Any]] = []
    for key, wanted in filter.items():
        if _is_operators(wanted) and set(wanted) == {"$eq"}:
            wanted = wanted["$eq"]
        if key in ("source", "run_id"):
            fits = fits_column(wanted)
        elif key == "step":
            fits = type(wanted) is int and abs(wanted) < 2**62
        else:
            fits = (indexed is None or key in indexed) and can_search(key, wanted)
        if fits:
            own_column = key in ("source", "run_id", "step")
            hints.append((key, wanted if own_column else searchable_value(wanted)))
    return tuple(hints)


def look_up(metadata: Mapping[str, Any], key: str) -> Any:
    """What a filter's key finds: the value of that key, or else of that path into nested dicts; or MISSING."""
    if key in metadata:
        return metadata[key]
    found: Any = metadata
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found


def _plain(wanted: Any) -> Any:
    if not _is_operators(wanted):
        return metadata_value(wanted)
    return {
        name: [metadata_value(one) for one in operand] if name == "$in" else metadata_value(operand)
        for name, operand in wanted.items()
    }


def _is_operators(wanted: Any) -> bool:
    return isinstance(wanted, Mapping) and any(isinstance(name, str) and name.startswith("$") for name in wanted)


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison that is false, not an error, between values that do not compare."""

    def check(value: Any, operand: Any) -> bool:
        if value is MISSING:
            return False
        try:
            return bool(compare(value, operand))
        except TypeError:
            return False

    return check


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, operand: (None if value is MISSING else value) == operand,
    "$ne": lambda value, operand: (None if value is MISSING else value) != operand,
    "$gt": _compared(lambda value, operand: value > operand),
    "$gte": _compared(lambda value, operand: value >= operand),
    "$lt": _compared(lambda value, operand: value < operand),
    "$lte": _compared(lambda value, operand: value <= operand),
    "$in": lambda value, operand: value is not MISSING and any(value == one for one in operand),
    "$exists": lambda value, operand: (value is not MISSING) is bool(operand),
}
