"""Values that a node reads from its state without anybody writing them: they are computed from the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import isclass
from typing import Annotated, Any, Generic, Protocol, TypeVar

from typing_extensions import TypeIs

__all__ = [
    "IsLastStep",
    "IsLastStepManager",
    "ManagedValue",
    "RemainingSteps",
    "RemainingStepsManager",
    "is_managed_value",
]

V = TypeVar("V")


class RunPosition(Protocol):
    """Where a run is: the step it runs, and the step that the recursion limit forbids."""

    @property
    def step(self) -> int: ...

    @property
    def stop(self) -> int: ...


class ManagedValue(ABC, Generic[V]):
    """A class of values that are computed for each task."""

    @staticmethod
    @abstractmethod
    def get(scratchpad: RunPosition) -> V:
        """The value at this point of the run."""


class IsLastStepManager(ManagedValue[bool]):
    """Whether the recursion limit ends the run after this step."""

    @staticmethod
    def get(scratchpad: RunPosition) -> bool:
        return scratchpad.step == scratchpad.stop - 1


class RemainingStepsManager(ManagedValue[int]):
    """How many steps the recursion limit leaves, this one included."""

    @staticmethod
    def get(scratchpad: RunPosition) -> int:
        return scratchpad.stop - scratchpad.step


IsLastStep = Annotated[bool, IsLastStepManager]
RemainingSteps = Annotated[int, RemainingStepsManager]


def is_managed_value(value: Any) -> TypeIs[type[ManagedValue[Any]]]:
    """Whether the last item of an Annotated declares a managed value."""
    return isclass(value) and issubclass(value, ManagedValue)
