"""How values of each type are packed: a name in a header, and a state."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import NotSerializable
from .builtin import BUILTINS, RARE_MODULES, RARE_NAMES
from .data_classes import fields_excluded, private_defaults
from .limits import a_list, a_text, bytes_of, of_length

__all__ = [
    "BUILTIN_BUILDERS",
    "BUILTIN_PLANS",
    "ITSELF",
    "Plan",
    "leaving_out",
    "make_plan",
    "name_header",
    "pickled",
    "rare_builder",
    "rare_plan",
    "reduction",
    "unpickled",
    "upgraded",
]

# How values of one type are packed: the header and the state of a value. Without a header the state stands
# for the value itself.
Plan = Callable[[Any], "tuple[bytes | None, Any]"]


def name_header(name: str) -> bytes:
    encoded = name.encode()
    if len(encoded) > 255:
        raise NotSerializable(f"the name {name[:60]}… is too long to store: register() the class with a short name=")
    return bytes((len(encoded),)) + encoded


def make_plan(name: str | None, state: Callable[[Any], Any], variant: Callable[[Any], str] | None = None) -> Plan:
    """A plan with one header for all values, or one for each variant that the values' class knows."""
    fixed = None if name is None else name_header(name)
    if variant is None:
        return lambda value: (fixed, state(value))
    assert name is not None
    headers: dict[str, bytes] = {}

    def varied(value: Any) -> tuple[bytes, Any]:
        suffix = variant(value)
        found = headers.get(suffix)
        if found is None:
            found = headers[suffix] = name_header(name + suffix)
        return found, state(value)

    return varied


def reduction(cls: type) -> Plan | None:
    """Subclasses of basic types are stored as the basic type, as LangGraph's savers do."""
    for base in cls.__mro__[1:]:
        if base in _REDUCERS:
            return make_plan(None, _REDUCERS[base])
        plan = BUILTIN_PLANS.get(base) or rare_plan(base)
        if plan is not None and cls.__module__.partition(".")[0] != "pandas":
            return plan
    return None


def rare_plan(cls: type) -> Plan | None:
    """The plan of a type that is built in, but not loaded before it is met."""
    return _rare()[0].get(cls) if cls.__module__.partition(".")[0] in RARE_MODULES else None


def rare_builder(name: str) -> Callable[[Any], Any] | None:
    """The builder of such a type."""
    return _rare()[1][name] if name in RARE_NAMES else None


@cache
def _rare() -> tuple[dict[type, Plan], dict[str, Callable[[Any], Any]]]:
    from .builtin_rare import RARE

    return {row.type: make_plan(row.name, row.state) for row in RARE}, {row.name: row.build for row in RARE}


def upgraded(build: Callable[[Any], Any], upgrade: Callable[[Any, int], Any], stored: int) -> Callable[[Any], Any]:
    return lambda state: build(upgrade(state, stored))


def leaving_out(cls: type, state: Callable[[Any], Any], can_be_stored: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """The states of a model without what cannot be stored, and comes back as its default.

    That may be fields that it leaves out of its dumps, and private attributes that were never changed.
    """
    excluded, unchanged = fields_excluded(cls), private_defaults(cls)
    if not excluded and not unchanged:
        return state

    def reduced(model: Any) -> Any:
        found = state(model)
        values = found if type(found) is dict else found[0]
        lost = [name for name in excluded if name in values and not can_be_stored(values[name])]
        kept = {name: value for name, value in values.items() if name not in lost} if lost else values
        if type(found) is dict:
            return kept
        private = {
            name: value
            for name, value in found[2].items()
            if name not in unchanged or value is not unchanged[name] or can_be_stored(value)
        }
        return [kept, found[1], private, *found[3:]]

    return reduced


def pickled(value: Any) -> bytes:
    import pickle

    return pickle.dumps(value)


def unpickled(data: bytes) -> Any:
    import pickle

    return pickle.loads(bytes_of(data))


_REDUCERS: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes(memoryview(value)),
    list: list,
    dict: dict,
    set: set,
    frozenset: frozenset,
}


# A list or dict that is not taken apart into chunks (chunks/undivided.py).
ITSELF = "="


def _pair(state: Any) -> list[Any]:
    return of_length(state, 2)


BUILTIN_PLANS: dict[type, Plan] = {
    **{row.type: make_plan(row.name, row.state) for row in BUILTINS},
    # What a view shows is kept, not what it is a view of.
    memoryview: make_plan(None, bytes),
}
BUILTIN_BUILDERS: dict[bytes, Callable[[Any], Any]] = {
    **{row.name.encode(): row.build for row in BUILTINS},
    b"s": lambda members: set(a_list(members)),
    b"fs": lambda members: frozenset(a_list(members)),
    b"i": lambda text: int(a_text(text), 16),
    b"m": lambda pairs: {key: value for key, value in map(_pair, a_list(pairs))},
    ITSELF.encode(): lambda state: state if type(state) is dict else a_list(state),
}
