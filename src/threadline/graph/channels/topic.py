"""A channel that holds every value of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from typing_extensions import Self

from ..constants import MISSING
from ..errors import EmptyChannelError
from .base import BaseChannel

__all__ = ["Topic"]

Value = TypeVar("Value")


class Topic(BaseChannel["Sequence[Value]", "Value | list[Value]", "list[Value]"]):
    """All values of the previous step, or of all steps (accumulate=True); a written list is spread."""

    __slots__ = ("accumulate", "values")

    def __init__(self, typ: Any, accumulate: bool = False) -> None:
        super().__init__(typ)
        self.accumulate = accumulate
        self.values: list[Any] = []

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.accumulate == self.accumulate

    __hash__ = None  # type: ignore[assignment]

    @property
    def ValueType(self) -> Any:
        return Sequence[self.typ]  # type: ignore[name-defined]

    @property
    def UpdateType(self) -> Any:
        return self.typ | list[self.typ]  # type: ignore[name-defined]

    def from_checkpoint(self, checkpoint: Any) -> Self:
        new = self.__class__(self.typ, self.accumulate)
        new.key = self.key
        if checkpoint is not MISSING:
            # Old threads stored a pair whose second part is the list.
            new.values = list(checkpoint[1] if isinstance(checkpoint, tuple) else checkpoint)
        return new

    def copy(self) -> Self:
        return self.from_checkpoint(self.values)

    def checkpoint(self) -> Any:
        return list(self.values)

    def update(self, values: Sequence[Any]) -> bool:
        changed = False
        if not self.accumulate:
            changed = bool(self.values)
            self.values = []
        flat: list[Any] = []
        for value in values:
            if isinstance(value, list):
                flat.extend(value)
            else:
                flat.append(value)
        if flat:
            self.values.extend(flat)
            changed = True
        return changed

    def get(self) -> Sequence[Any]:
        if not self.values:
            raise EmptyChannelError
        return list(self.values)

    def is_available(self) -> bool:
        return bool(self.values)
