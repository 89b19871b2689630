"""Channels that fold what is written into the value they have."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

from typing_extensions import NotRequired, ReadOnly, Required, Self

from ..constants import MISSING
from .base import OneValue
from .overwriting import overwritten, plain

__all__ = ["BinaryOperatorAggregate", "DeltaChannel"]

Value = TypeVar("Value")

_CONCRETE: dict[Any, type] = {
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


class BinaryOperatorAggregate(OneValue[Value, Value]):
    """Folds each write into the value with a reducer of two arguments; starts at `typ()` where that works."""

    __slots__ = ("operator",)

    def __init__(self, typ: Any, operator: Callable[[Any, Any], Any]) -> None:
        super().__init__(typ)
        self.operator = operator
        self.value = _initial(typ)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _same_reducer(self.operator, other.operator)

    __hash__ = None

    def from_checkpoint(self, checkpoint: Any) -> Self:
        new = self._empty()
        new.value = _initial(self.typ) if checkpoint is MISSING else checkpoint
        return new

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        replaced = overwritten(values)
        if replaced is not MISSING:
            self.value = replaced
            return True
        writes: Iterator[Any] = iter(values)
        # The whole step is folded before the value changes: a reducer that raises leaves the channel as it was.
        value = next(writes) if self.value is MISSING else self.value
        for write in writes:
            value = self.operator(value, write)
        self.value = value
        return True

    def _empty(self) -> Self:
        new = super()._empty()
        new.operator = self.operator
        return new


class DeltaChannel(OneValue[Value, Any]):
    """Folds all writes of a step into the value with one call of `reducer(state, writes)`.

    `snapshot_frequency` is accepted and unused: the whole value is in every checkpoint, and storage keeps the
    chunks that did not change only once.
    """

    __slots__ = ("reducer", "snapshot_frequency")

    def __init__(
        self,
        reducer: Callable[[Any, Sequence[Any]], Any],
        typ: Any = None,
        *,
        snapshot_frequency: int = 100,
    ) -> None:
        if snapshot_frequency < 1:
            raise ValueError(f"snapshot_frequency must be a positive int, got {snapshot_frequency!r}")
        super().__init__(typ)
        self.reducer = reducer
        self.snapshot_frequency = snapshot_frequency

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _same_reducer(self.reducer, other.reducer)

    __hash__ = None

    def from_checkpoint(self, checkpoint: Any) -> Self:
        # LangGraph wraps the whole values that it stores now and then.
        wrapped = type(checkpoint).__name__ == "_DeltaSnapshot"
        return super().from_checkpoint(checkpoint.value if wrapped else checkpoint)

    def update(self, values: Sequence[Any]) -> bool:
        if not values:
            return False
        replaced = overwritten(values)
        self.value = self._folded(values) if replaced is MISSING else replaced
        return True

    def replay_writes(self, writes: Sequence[Any]) -> None:
        """Fold in writes that another engine stored instead of the value, one step at a time."""
        if writes:
            self.value = self._folded([plain(write) for write in writes])

    def _folded(self, values: Sequence[Any]) -> Any:
        state = _initial(self.typ) if self.value is MISSING else self.value
        return self.reducer(None if state is MISSING else state, values)

    def _empty(self) -> Self:
        new = super()._empty()
        new.reducer = self.reducer
        new.snapshot_frequency = self.snapshot_frequency
        return new


def _initial(typ: Any) -> Any:
    """`typ()`, with abstract collections as the concrete ones; MISSING where the type has no empty value."""
    while get_origin(typ) in (Annotated, Required, NotRequired, ReadOnly):
        typ = get_args(typ)[0]
    origin = get_origin(typ) or typ
    try:
        return _CONCRETE.get(origin, origin)()
    except Exception:
        return MISSING


def _same_reducer(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    # Two evaluations of one lambda are different objects; equality must not depend on that.
    anonymous = "<lambda>"
    if getattr(one, "__name__", None) == anonymous or getattr(other, "__name__", None) == anonymous:
        return True
    return one == other
