"""The contract of channels, and what those that hold one value have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from typing_extensions import Self

from ..constants import MISSING
from ..errors import EmptyChannelError

__all__ = ["BaseChannel", "OneValue"]

Value = TypeVar("Value")
Update = TypeVar("Update")
Stored = TypeVar("Stored")


class BaseChannel(ABC, Generic[Value, Update, Stored]):
    """What the loop asks of a channel.

    A class of your own needs `ValueType`, `UpdateType`, `from_checkpoint`, `update` and `get`.
    """

    __slots__ = ("key", "typ")

    def __init__(self, typ: Any, key: str = "") -> None:
        self.typ = typ
        self.key = key

    @property
    @abstractmethod
    def ValueType(self) -> Any:
        """The type of the stored value."""

    @property
    @abstractmethod
    def UpdateType(self) -> Any:
        """The type of one write."""

    @abstractmethod
    def from_checkpoint(self, checkpoint: Stored | Any) -> Self:
        """A new channel like this one, holding what `checkpoint` returned; MISSING: empty."""

    @abstractmethod
    def update(self, values: Sequence[Update]) -> bool:
        """Take the writes of one step; True when the channel changed."""

    @abstractmethod
    def get(self) -> Value:
        """The value; EmptyChannelError when there is none."""

    def copy(self) -> Self:
        """A channel of its own with the same value."""
        return self.from_checkpoint(self.checkpoint())

    def checkpoint(self) -> Stored | Any:
        """What to store: by default the value, MISSING when there is none."""
        try:
            return self.get()
        except EmptyChannelError:
            return MISSING

    def is_available(self) -> bool:
        """Whether `get` would return."""
        try:
            self.get()
        except EmptyChannelError:
            return False
        return True

    def consume(self) -> bool:
        """A task that this channel triggered was applied; True when the channel changed."""
        return False

    def finish(self) -> bool:
        """No channel triggers a node any more; True when the channel changed."""
        return False


class OneValue(BaseChannel[Value, Update, Value]):
    """What the channels that hold one value or none have in common."""

    __slots__ = ("value",)

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.value: Any = MISSING

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = None  # type: ignore[assignment]

    @property
    def ValueType(self) -> Any:
        return self.typ

    @property
    def UpdateType(self) -> Any:
        return self.typ

    def from_checkpoint(self, checkpoint: Any) -> Self:
        new = self._empty()
        new.value = checkpoint
        return new

    def copy(self) -> Self:
        return self.from_checkpoint(self.value)

    def get(self) -> Value:
        if self.value is MISSING:
            raise EmptyChannelError
        return self.value  # type: ignore[no-any-return]

    def is_available(self) -> bool:
        return self.value is not MISSING

    def checkpoint(self) -> Any:
        return self.value

    def _empty(self) -> Self:
        """A channel declared like this one, without its value. It skips the constructor: `typ` was looked at."""
        new: Self = self.__class__.__new__(self.__class__)
        new.typ = self.typ
        new.key = self.key
        new.value = MISSING
        return new
