"""A store is opened before the first call on it: checked, and created where that is wanted."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ...ports.marks import Mark
from .layer import Call, Layer

__all__ = ["FirstUse", "FirstUseLayer"]


class FirstUse:
    """Whether a store was opened; both halves of an engine share one. Opening is idempotent, and may happen twice."""

    is_over = False


class FirstUseLayer(Layer):
    """Opens the store before the first call of any method; `setup` creates it in any case."""

    def __init__(self, inner: Any, first_use: FirstUse, opening: Callable[[bool], Coroutine[Any, Any, None]]) -> None:
        self._first_use = first_use
        self._opening = opening
        super().__init__(inner)

    def wrapped(self, name: str, mark: Mark, call: Call) -> Call:
        is_setup = name == "setup"

        async def opened(*args: Any, **options: Any) -> Any:
            if not self._first_use.is_over:
                await self._opening(is_setup)
                self._first_use.is_over = True
            return await call(*args, **options)

        return opened
