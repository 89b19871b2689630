"""Layers: wrappers with the Backend port that add one behaviour to any backend."""

from __future__ import annotations

from typing import Any

from ..errors import ReadOnly

__all__ = ["ReadOnlyLayer"]

_WRITING = frozenset(
    [
        "apply",
        "collect",
        "compact",
        "remove_checkpoints",
        "remove_thread",
        "rewrap_chunks",
        "rewrap_rows",
        "setup",
        "swap_lease",
        "swap_meta",
        "swap_thread",
    ]
)


class ReadOnlyLayer:
    """A backend that may only be read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in _WRITING:
            return _refuse
        return getattr(self._inner, name)


async def _refuse(*_: object, **__: object) -> Any:
    raise ReadOnly("this saver was opened with read_only=True")
