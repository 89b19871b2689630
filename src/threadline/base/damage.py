"""What stands for a value that cannot be read, where the values beside it are told."""

from __future__ import annotations

__all__ = ["Damaged"]


class Damaged:
    """Stands for a value that cannot be read; `why` says what is wrong with it."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return "[damaged]"
