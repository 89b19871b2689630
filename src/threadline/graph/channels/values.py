"""Channels that keep a value as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from typing_extensions import Self

from ..constants import MISSING
from ..errors import InvalidUpdateError
from .base import BaseChannel, OneValue
from .overwriting import ORDINARY, plain

__all__ = ["AnyValue", "EphemeralValue", "LastValue", "UntrackedValue"]

Value = TypeVar("Value")


class LastValue(OneValue[Value, Value]):
    """Keeps the last value; takes at most one in a step."""

    __slots__ = ()

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        if len(values) != 1:
            raise InvalidUpdateError(
                f"At key '{self.key}': Can receive only one value per step. "
                "Use an Annotated key to handle multiple values."
            )
        value = values[0]
        self.value = value if type(value) in ORDINARY else plain(value)
        return True


class AnyValue(OneValue[Value, Value]):
    """Keeps the last value of a step, assuming that all are equal; a step without a write empties it."""

    __slots__ = ()

    def update(self, values: Sequence[Value]) -> bool:
        if values:
            self.value = values[-1]
            return True
        return _clear(self)


class EphemeralValue(OneValue[Value, Value]):
    """Holds what the previous step wrote, and nothing after that. guard=True takes one value a step."""

    __slots__ = ("guard",)

    def __init__(self, typ: Any, guard: bool = True) -> None:
        super().__init__(typ)
        self.guard = guard

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.guard == self.guard

    __hash__ = None

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return _clear(self)
        if self.guard and len(values) != 1:
            raise _guarded(self)
        self.value = values[-1]
        return True

    def _empty(self) -> Self:
        new = super()._empty()
        new.guard = self.guard
        return new


class UntrackedValue(OneValue[Value, Value]):
    """Keeps the last value for the run and never stores it."""

    __slots__ = ("guard",)

    def __init__(self, typ: Any, guard: bool = True) -> None:
        super().__init__(typ)
        self.guard = guard

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.guard == self.guard

    __hash__ = None

    def checkpoint(self) -> Any:
        return MISSING

    def from_checkpoint(self, checkpoint: Any) -> Self:
        return self._empty()

    def copy(self) -> Self:
        new = self._empty()
        new.value = self.value
        return new

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        if self.guard and len(values) != 1:
            raise _guarded(self)
        self.value = values[-1]
        return True

    def _empty(self) -> Self:
        new = super()._empty()
        new.guard = self.guard
        return new


def _clear(channel: OneValue[Any, Any]) -> bool:
    if channel.value is MISSING:
        return False
    channel.value = MISSING
    return True


def _guarded(channel: BaseChannel[Any, Any, Any]) -> InvalidUpdateError:
    return InvalidUpdateError(
        f"At key '{channel.key}': {type(channel).__name__}(guard=True) can receive only one value per step. "
        "Use guard=False if you want to store any one of multiple values."
    )
