"""A backend that may only be read: every method that is marked as writing raises ReadOnly."""

from __future__ import annotations

from typing import Any

from ...errors import ReadOnly
from ...ports.marks import Mark
from .layer import Call, Layer

__all__ = ["ReadOnlyLayer"]


class ReadOnlyLayer(Layer):
    """Refuses to write."""

    def wrapped(self, name: str, mark: Mark, call: Call) -> Call:
        return _refuse if mark.is_writing else call


async def _refuse(*_: object, **__: object) -> Any:
    raise ReadOnly("this saver was opened with read_only=True")
