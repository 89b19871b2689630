"""How values of each type are packed: a name in a header, and a state."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import NotSerializable
from .builtin import BUILTINS, RARE_MODULES, RARE_NAMES
from .states import a_list, a_text, bytes_of, of_length

__all__ = [
    "BUILTIN_BUILDERS",
    "BUILTIN_PLANS",
    "Plan",
    "each_once",
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
    from .rare import RARE

    return {row.type: make_plan(row.name, row.state) for row in RARE}, {row.name: row.build for row in RARE}


def upgraded(build: Callable[[Any], Any], upgrade: Callable[[Any, int], Any], stored: int) -> Callable[[Any], Any]:
    return lambda state: build(upgrade(state, stored))


def each_once(pack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Packs the members of an enum when they are first met; told apart by what they are, not by what they equal."""
    held: dict[int, tuple[Any, Any]] = {}

    def packed(member: Any) -> Any:
        found = held.get(id(member))
        if found is None:
            found = held[id(member)] = member, pack(member)
        return found[1]

    return packed


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
}
