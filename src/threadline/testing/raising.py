"""`with refused(Conflict):` for promises, which must not import pytest."""

from __future__ import annotations

from types import TracebackType

__all__ = ["refused"]


class refused:
    """A block that must raise one of these errors, with some words in its message; it is kept as `error`."""

    def __init__(self, *kinds: type[Exception], saying: str = "") -> None:
        self.kinds = kinds
        self.saying = saying
        self.error: BaseException | None = None

    def __enter__(self) -> refused:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            promised = " or ".join(kind.__name__ for kind in self.kinds)
            raise AssertionError(f"nothing was raised where {promised} was promised")
        self.error = error
        if isinstance(error, self.kinds) and self.saying not in str(error):
            raise AssertionError(f"{self.saying!r} is not in the message: {error}")
        return isinstance(error, self.kinds)
