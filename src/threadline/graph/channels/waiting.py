"""Channels that hold back what was written: until all have written, or until the run would end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from typing_extensions import Self

from ..constants import MISSING
from ..errors import EmptyChannelError, InvalidUpdateError
from .base import BaseChannel, OneValue

__all__ = ["LastValueAfterFinish", "NamedBarrierValue", "NamedBarrierValueAfterFinish"]

Value = TypeVar("Value")


class LastValueAfterFinish(OneValue[Value, Value]):
    """Keeps the last value of a step, and gives it out only when the run would end."""

    __slots__ = ("finished",)

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.finished = False

    def from_checkpoint(self, checkpoint: Any) -> Self:
        new = self._empty()
        if checkpoint is not MISSING:
            new.value, new.finished = checkpoint
        return new

    def copy(self) -> Self:
        return self.from_checkpoint(self.checkpoint())

    def checkpoint(self) -> Any:
        return MISSING if self.value is MISSING else (self.value, self.finished)

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        self.value = values[-1]
        self.finished = False
        return True

    def consume(self) -> bool:
        if not self.finished:
            return False
        self.finished = False
        self.value = MISSING
        return True

    def finish(self) -> bool:
        if self.finished or self.value is MISSING:
            return False
        self.finished = True
        return True

    def get(self) -> Value:
        if not self.finished:
            raise EmptyChannelError
        return super().get()

    def is_available(self) -> bool:
        return self.finished and self.value is not MISSING

    def _empty(self) -> Self:
        new = super()._empty()
        new.finished = False
        return new


class NamedBarrierValue(BaseChannel[Value, Value, "set[Value]"]):
    """Waits until every name was written; then it triggers once and waits again."""

    __slots__ = ("names", "seen")

    def __init__(self, typ: Any, names: set[Value]) -> None:
        super().__init__(typ)
        self.names = names
        self.seen: set[Value] = set()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.names == self.names

    __hash__ = None  # type: ignore[assignment]

    @property
    def ValueType(self) -> Any:
        return self.typ

    @property
    def UpdateType(self) -> Any:
        return self.typ

    def from_checkpoint(self, checkpoint: Any) -> Self:
        new = self.__class__(self.typ, self.names)
        new.key = self.key
        if checkpoint is not MISSING:
            new.seen = set(checkpoint)
        return new

    def checkpoint(self) -> Any:
        # A copy: the stored value may be written in the background while the next step goes on.
        return set(self.seen)

    def update(self, values: Sequence[Value]) -> bool:
        changed = False
        for value in values:
            if value not in self.names:
                raise InvalidUpdateError(f"At key '{self.key}': Value {value} not in {self.names}")
            if value not in self.seen:
                self.seen.add(value)
                changed = True
        return changed

    def get(self) -> Any:
        if not self.is_available():
            raise EmptyChannelError

    def is_available(self) -> bool:
        return self.seen == self.names

    def consume(self) -> bool:
        if self.seen != self.names:
            return False
        self.seen = set()
        return True


class NamedBarrierValueAfterFinish(NamedBarrierValue[Value]):
    """A barrier that opens only when the run would end."""

    __slots__ = ("finished",)

    def __init__(self, typ: Any, names: set[Value]) -> None:
        super().__init__(typ, names)
        self.finished = False

    def from_checkpoint(self, checkpoint: Any) -> Self:
        if checkpoint is MISSING:
            return super().from_checkpoint(MISSING)
        seen, finished = checkpoint
        new = super().from_checkpoint(seen)
        new.finished = finished
        return new

    def checkpoint(self) -> Any:
        return (set(self.seen), self.finished)

    def is_available(self) -> bool:
        return self.finished and self.seen == self.names

    def consume(self) -> bool:
        if not self.finished or self.seen != self.names:
            return False
        self.finished = False
        self.seen = set()
        return True

    def finish(self) -> bool:
        if self.finished or self.seen != self.names:
            return False
        self.finished = True
        return True
