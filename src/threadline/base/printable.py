"""Text from outside on one line: ids, names and messages of servers must not break a log or command a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: object) -> str:
    """A text whose control characters, line breaks and marks of direction are escaped, as `repr` does it."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)
