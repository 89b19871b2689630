"""Text from outside on one line: ids, names and messages of servers must not break a log or command a terminal."""

from __future__ import annotations

from typing import Any

__all__ = ["MOST_BITS", "about_digits", "printable", "shown"]

# Python writes no integer that is longer: its text takes time that grows with the square of its digits.
MOST_BITS = 14_000


def printable(text: object) -> str:
    """A text whose control characters, line breaks and marks of direction are escaped, as `repr` does it."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)


def shown(value: Any) -> str:
    """The `repr` of a value, in which integers that are too long to be written are told by their length."""
    try:
        return repr(value)
    except RecursionError:
        return "<nested too deep to be shown>"
    except ValueError:
        return repr(_abridged(value))


def about_digits(value: int) -> str:
    """An integer that is too long to be written."""
    return f"a whole number of about {int(value.bit_length() * 0.30103) + 1:,} digits"


class _Told:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"<{self._text}>"


def _abridged(value: Any) -> Any:
    """What can be shown of a value whose `repr` fails."""
    kind = type(value)
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return _Told(about_digits(value))
    if kind in (list, tuple):
        return kind(map(_abridged, value))
    if kind in (set, frozenset):
        return _Told("a set of " + ", ".join(shown(item) for item in value))
    if kind is dict:
        return {key if type(key) is str else _Told(shown(key)): _abridged(item) for key, item in value.items()}
    try:
        repr(value)
    except (ValueError, RecursionError):
        return _Told(f"a {kind.__name__} that is too long to be shown")
    return value
