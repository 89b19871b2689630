"""What a schema says: its channels, how a node's input is built from them, and what a returned value writes.

Rules: a schema is read once and remembered as long as its class lives. Per key, in this order: a managed value, a
channel (an instance anywhere in the metadata, or a class), a reducer (a callable as the *last* item of Annotated),
otherwise the last value wins. A schema without keys is one channel, `__root__`. pydantic is never imported here: a
class that is a pydantic model has brought it along.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from typing_extensions import NotRequired, ReadOnly, Required, get_type_hints, is_typeddict

from ..channels import BaseChannel, BinaryOperatorAggregate, LastValue
from ..constants import ROOT
from .managed import is_managed_value

__all__ = [
    "Schema",
    "built_from",
    "first_parameter_schema",
    "is_model",
    "is_pydantic",
    "literal_values",
    "merge_channel",
    "plain_hint",
    "resolved_hints",
    "schema_of",
]

_QUALIFIERS = (Required, NotRequired, ReadOnly)


@dataclass(frozen=True, slots=True)
class Schema:
    """The channels and managed values that a class declares, by key."""

    channels: Mapping[str, BaseChannel[Any, Any, Any]]
    managed: Mapping[str, Any]
    hints: Mapping[str, Any]

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.channels, *self.managed)

    @property
    def is_root(self) -> bool:
        return ROOT in self.channels


_read: weakref.WeakKeyDictionary[type, Schema] = weakref.WeakKeyDictionary()


def schema_of(declared: Any) -> Schema:
    """The schema that a TypedDict, dataclass, model, annotated class or bare type declares."""
    if isinstance(declared, type):
        known = _read.get(declared)
        if known is None:
            known = _read[declared] = _schema(declared)
        return known
    return _schema(declared)


def _schema(declared: Any) -> Schema:
    if not hasattr(declared, "__annotations__"):
        return Schema({ROOT: _channel(ROOT, declared)}, {}, {})
    hints = {key: hint for key, hint in get_type_hints(declared, include_extras=True).items() if key != "__slots__"}
    channels: dict[str, BaseChannel[Any, Any, Any]] = {}
    managed: dict[str, Any] = {}
    for key, hint in hints.items():
        if (value := _managed(hint)) is not None:
            managed[key] = value
        else:
            channels[key] = _channel(key, hint)
    return Schema(channels, managed, hints)


def _without_qualifiers(hint: Any) -> Any:
    while get_origin(hint) in _QUALIFIERS:
        hint = get_args(hint)[0]
    return hint


def plain_hint(hint: Any) -> Any:
    """A hint without qualifiers, reducers and channels."""
    hint = _without_qualifiers(hint)
    return _without_qualifiers(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def _metadata(hint: Any) -> tuple[Any, ...]:
    return tuple(hint.__metadata__) if get_origin(hint) is Annotated else ()


def _managed(hint: Any) -> Any:
    metadata = _metadata(_without_qualifiers(hint))
    return metadata[-1] if metadata and is_managed_value(metadata[-1]) else None


def _channel(key: str, hint: Any) -> BaseChannel[Any, Any, Any]:
    hint = _without_qualifiers(hint)
    channel = _declared_channel(hint)
    channel.key = key
    return channel


def _declared_channel(hint: Any) -> BaseChannel[Any, Any, Any]:
    metadata = _metadata(hint)
    for item in metadata:
        if isinstance(item, BaseChannel):
            return item.copy()
        if isinstance(item, type) and issubclass(item, BaseChannel):
            return item(get_args(hint)[0])
    if metadata and callable(metadata[-1]):
        _check_reducer(metadata[-1])
        return BinaryOperatorAggregate(hint, metadata[-1])
    return LastValue(hint)


def _check_reducer(reducer: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(reducer)
    except ValueError:
        return  # some builtins, such as max, have no signature
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if sum(one.kind in positional for one in signature.parameters.values()) != 2:
        raise ValueError(f"Invalid reducer signature. Expected (a, b) -> c. Got {signature}")


def merge_channel(
    channels: dict[str, BaseChannel[Any, Any, Any]], key: str, channel: BaseChannel[Any, Any, Any]
) -> None:
    """Add a channel of another schema; a plain last value gives way to what is there."""
    if key not in channels:
        channels[key] = channel
    elif channels[key] != channel and not isinstance(channel, LastValue):
        raise ValueError(f"Channel '{key}' already exists with a different type")


# -- a node's input


def is_pydantic(declared: Any) -> bool:
    """Whether a class is a pydantic model; without pydantic loaded there is none."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(declared, type):
        return False
    if issubclass(declared, pydantic.BaseModel):
        return True
    v1 = sys.modules.get("pydantic.v1")
    return v1 is not None and issubclass(declared, v1.BaseModel)


def is_model(declared: Any) -> bool:
    """Whether values of this schema are objects made by its constructor, not dicts."""
    return isinstance(declared, type) and (dataclasses.is_dataclass(declared) or is_pydantic(declared))


def built_from(declared: Any) -> Callable[[dict[str, Any]], Any] | None:
    """What turns the keys of a node's input into its schema's class; None where the dict itself is the input."""
    if not isinstance(declared, type) or is_typeddict(declared) or not hasattr(declared, "__annotations__"):
        return None
    if issubclass(declared, dict):
        return None
    return lambda values: declared(**values)


def first_parameter_schema(function: Any) -> Any:
    """The class that annotates a function's first parameter, when it has keys; else None."""
    hints = resolved_hints(function)
    if not hints:
        return None
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except (ValueError, TypeError):
        return None
    declared = hints.get(first) if first is not None else None
    if isinstance(declared, type):
        try:
            if get_type_hints(declared):
                return declared
        except (NameError, TypeError):
            return None
    return None


def resolved_hints(function: Any) -> dict[str, Any]:
    """The type hints of a function, method or callable object; empty where they cannot be resolved."""
    target = function if inspect.isfunction(function) or inspect.ismethod(function) else _callable_of(function)
    try:
        return get_type_hints(target) if target is not None else {}
    except (NameError, TypeError, StopIteration):
        return {}


def _callable_of(function: Any) -> Any:
    if hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial keeps its function's hints
        return None
    return getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted


def literal_values(hint: Any) -> tuple[Any, ...]:
    """The names that a Literal hint lists; empty for any other hint."""
    return get_args(hint) if get_origin(hint) is Literal else ()
