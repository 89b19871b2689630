"""Fields of objects whose classes are an application's, read as data: nothing of the class runs.

`getattr` would run a property, `__getattr__` or `__getattribute__` of whatever class a stored value names.
"""

from __future__ import annotations

from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any, NamedTuple

__all__ = ["stored_field"]


class _Example(NamedTuple):
    field: None


_TUPLE_FIELD = type(_Example.__dict__["field"])
_ABSENT = object()
# Values that have no fields: most that are looked at, and looking is slow.
_PLAIN = frozenset((str, int, float, bool, type(None), bytes, list, tuple, dict))


def stored_field(value: Any, name: str, default: Any = None) -> Any:
    """What an object holds under this name: in its dict, a slot or a named tuple; nothing that is computed."""
    if type(value) in _PLAIN:
        return default
    found = getattr_static(value, name, _ABSENT)
    kind = type(found)
    if kind is MemberDescriptorType or kind is _TUPLE_FIELD:
        try:
            return found.__get__(value, type(value))
        except (AttributeError, TypeError):  # it was never set, or is no field of such an object
            return default
    if found is _ABSENT or getattr_static(kind, "__get__", _ABSENT) is not _ABSENT:
        return default
    return found
